/* save.c: the order of a checkpoint over the ranks: rank 0 makes the files, all write their tensors, rank 0 makes it whole. */
#include "runtime/save.h"

#include "runtime/checkpoint.h"
#include "runtime/seal.h"

static bool save(struct pen_transport *end, const char *directory, uint64_t steps, uint64_t cursor) {
  unsigned char(*digests)[PEN_DIGEST_BYTES] = (unsigned char(*)[PEN_DIGEST_BYTES])end->shared->checksums;
  struct pen_control *control = end->shared->control;
  if (end->rank == 0) {
    atomic_store(&control->saving, 1);
    pen_checkpoint_begin(directory, end->plan, steps);
  }
  if (!end->kind->barrier(end)) {
    return false;
  }
  pen_checkpoint_write(end->plan, end->rank, end->arena, directory, steps, digests);
  if (!end->kind->barrier(end)) {
    return false;
  }
  if (end->rank == 0) {
    pen_checkpoint_finish(end->plan, directory, steps, cursor, digests);
    atomic_store(&control->saving, 0);
  }
  /* Nobody goes on before it stands: a rank that waits for rank 0's disk within a step would look at a stalled peer. */
  return end->kind->barrier(end);
}

bool pen_save(struct pen_transport *end, const char *directory, uint64_t steps, uint64_t cursor) {
  atomic_store_explicit(&end->self->phase, PEN_PHASE_SAVE, memory_order_relaxed);
  pen_unseal();
  bool saved = save(end, directory, steps, cursor);
  pen_seal();
  atomic_store_explicit(&end->self->phase, PEN_PHASE_STEPS, memory_order_relaxed);
  return saved;
}
