/* matrices.h: matrices that Muon updates. */
#ifndef PEN_EXEC_MATRICES_H
#define PEN_EXEC_MATRICES_H

#include "runtime/exec/exec.h"

/* A matrix whose splits are on several tensor ranks, and which the process orthogonalizes: their
 * gradients are what has come of them. */
struct pen_shared_matrix {
  struct pen_adamw_tensor *split;
  uint32_t split_count; /* 0: the process has nothing to do */
};

/* Lists the matrices of each pair of exchanges, once. Allocates. */
void pen_list_matrices(struct pen_vm *vm);

/* The part of UPDATE that comes first: of each matrix of Muon the gradients become X
 * (pen_muon_orthogonalize() of kernels/kernels.h). False: aborted. */
bool pen_orthogonalize_matrices(struct pen_vm *vm);

#endif
