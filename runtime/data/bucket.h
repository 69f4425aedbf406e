/* bucket.h: a binary may hold profiles for several sequence lengths (buckets): which one a step
 * runs.
 *
 * A step runs the bucket of the shortest sequence that holds every window that it would read. The
 * file's index has their lengths; the windows of a plain file all have the longest. All ranks read
 * the same index and cursor, and so choose the same bucket. */
#ifndef PEN_BUCKET_H
#define PEN_BUCKET_H

#include <stdint.h>

#include "runtime/data/token_file.h"
#include "runtime/plan/plan.h"

enum { PEN_BUCKETS_MAX = 17 };

/* Profiles of one kind, by increasing sequence. */
struct pen_buckets {
  const struct pen_profile *profile[PEN_BUCKETS_MAX];
  uint32_t count;
};

/* All of a plan's profiles of that kind; count 0: it has none. */
struct pen_buckets pen_buckets_of(const struct pen_plan *plan, enum pen_profile_kind kind);

/* The kind of those that score reads: SCORE, or EVAL, whose loss is the cross-entropy of texts. */
enum pen_profile_kind pen_scored_kind(const struct pen_plan *plan);

/* Those of generation: the kind GENERATE, then the kind CACHED. */
struct pen_buckets pen_buckets_of_generation(const struct pen_plan *plan);

/* Removes all buckets except that of the sequence. Fails (64) with the list of the existing ones.
 */
void pen_buckets_force(struct pen_buckets *buckets, uint64_t sequence);

/* The index of the bucket of the step that begins at window `cursor`. */
uint32_t pen_bucket_of_step(const struct pen_buckets *buckets, const struct pen_plan *plan,
                            const struct pen_data *data, uint64_t cursor);

#endif
