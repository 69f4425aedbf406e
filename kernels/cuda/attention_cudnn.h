/* attention_cudnn.h: cuDNN's attention as a library of cuda.h, and what it offers for a GPU that is
 * described but not there. Part of a build --with-cudnn. */
#ifndef PEN_CUDA_ATTENTION_CUDNN_H
#define PEN_CUDA_ATTENTION_CUDNN_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct pen_cuda_library pen_cuda_cudnn; /* of attention in bf16 */

/* An engine of cuDNN, with its settings, and the bytes of workspace that it wants. */
struct pen_cudnn_engine {
  char name[160];
  size_t workspace_bytes;
};

/* Opens the library and no GPU. Returns its name and version, static storage; null: *why, static
 * storage, says why not. */
const char *pen_cudnn_load(const char **why);

/* Chooses the engine for an op in bf16 as prepare() does, on the GPU that `device` describes: JSON
 * as pen_cudnn_describe() gives it. Returns null, or why there is none, static storage. Needs no
 * GPU; cuDNN wants the driver's libcuda.so.1, or the toolkit's stub of it, to be loaded. */
const char *pen_cudnn_choose(struct pen_cudnn_engine *engine, enum pen_op_kind kind,
                             const int64_t dim[PEN_DIMS_MAX], const char *device);

/* The bytes of call->workspace that are cuDNN's, before any more that a start allocates. */
size_t pen_cudnn_reserved_bytes(enum pen_op_kind kind, const int64_t dim[PEN_DIMS_MAX]);

/* Writes the description of GPU `number` as cuDNN sees it, with its end, after pen_cudnn_load().
 * Returns null, or why there is none, static storage. */
const char *pen_cudnn_describe(int number, char *json, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
