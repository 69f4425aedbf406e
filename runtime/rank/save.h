/* save.h: one checkpoint, saved by all ranks together, between two steps. */
#ifndef PEN_SAVE_H
#define PEN_SAVE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/storage/checkpoint_save.h"
#include "runtime/comm/endpoint.h"

/* What is to be saved. */
struct pen_saving {
  const char *directory;
  struct pen_checkpoint_state state;
  const struct pen_folder_id *locked; /* the directory's */
  int log;                            /* descriptor of --log, or -1 */
  bool overwrites;                    /* the run's first save removes what a former run has saved */
  uint64_t keep;                      /* checkpoints to keep; 0: all */
  const struct pen_kept_files *kept;  /* or null */
  bool last;                          /* no step comes after it */
  const struct pen_arena_view *view;  /* of the rank's arena; null: it is in host memory */
};

/* Every rank calls it after the same step. False: the run was aborted meanwhile; the parent removes
 * an incomplete checkpoint. Where a file cannot be written, as on a full disk, rank 0 prints why,
 * the incomplete checkpoint is removed, and *status is the exit status for every rank that ends
 * now; else *status is 0. */
bool pen_save(struct pen_endpoint *endpoint, const struct pen_saving *saving, int *status);

/* The same without changing the seal and the rank's phase: for threads that write while their ranks
 * continue. */
bool pen_save_together(struct pen_endpoint *endpoint, const struct pen_saving *saving, int *status);

#endif
