/* shape.h: a binary may hold plans of several buckets, for sequences of different lengths; which of
 * them a step runs.
 *
 * A step runs the shape of the shortest sequence that holds every window which that shape would
 * read, as the file's index gives their lengths; a plain file's windows all have the longest. All
 * ranks read the same index and cursor, and so choose alike. */
#ifndef PEN_BUCKET_H
#define PEN_BUCKET_H

#include <stdint.h>

#include "runtime/data/token_file.h"
#include "runtime/plan/plan.h"

enum { PEN_BUCKETS_MAX = 17 };

/* Profiles of one kind, in rising order of their sequences. */
struct pen_buckets {
  const struct pen_profile *profile[PEN_BUCKETS_MAX];
  uint32_t count;
};

/* All of a plan's profiles of that kind; count 0: it has none. */
struct pen_buckets pen_buckets_of(const struct pen_plan *plan, enum pen_profile_kind kind);

/* Leaves the shape of that sequence alone. Fails (64), naming those that there are. */
void pen_buckets_force(struct pen_buckets *buckets, uint64_t sequence);

/* The shape, as an index, of the step that begins at window `cursor`. */
uint32_t pen_bucket_of_step(const struct pen_buckets *buckets, const struct pen_plan *plan,
                            const struct pen_data *data, uint64_t cursor);

#endif
