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
  uint64_t steps;                    /* optimizer steps that are in the weights */
  uint64_t cursor;                   /* of the next step */
  uint64_t keep;                     /* checkpoints to keep; 0: all */
  bool last;                         /* no step comes after it */
  const struct pen_arena_view *view; /* of the rank's arena; null: it lies here */
};

/* Every rank calls it after the same step. False: the run was aborted meanwhile; what is
 * half-written the parent removes. Where the disk is full, or the like, rank 0 says so, what is
 * half-written is removed, and *status tells every rank with which status to end if it ends now;
 * else *status is 0. */
bool pen_save(struct pen_endpoint *endpoint, const struct pen_saving *saving, int *status);

/* The same without a word to the seal and to those who watch: for threads that write while their
 * ranks go on. */
bool pen_save_together(struct pen_endpoint *endpoint, const struct pen_saving *saving, int *status);

#endif
