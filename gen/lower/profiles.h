/* profiles.h: the profiles of a plan: train and eval of each sequence length, and generation. */
#ifndef PEN_PROFILES_H
#define PEN_PROFILES_H

#include <stddef.h>

#include "gen/lower/lower.h"
#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/topology/topology.h"

/* A sequence-length bucket: the topology with that length, and the results of the passes on it. */
struct pen_bucket {
  const struct pen_topology *topology;
  const struct pen_partition *partition; /* with this bucket's microbatches */
  const struct pen_training *training;
  struct pen_graph *const *own;  /* [stage] the graphs of the step: training ones if it trains */
  struct pen_graph *const *eval; /* [stage] the graphs of eval: the same if it does not train */
  struct pen_lowered *lowered;   /* the step; a profile gets it */
};

/* One profile before layout. */
struct pen_profile_input {
  const char *name;
  int kind;                       /* enum pen_profile_kind */
  struct pen_lowered *lowered;    /* pen_layout() takes it over */
  struct pen_graph *const *graph; /* [stage] */
  const struct pen_topology *topology;
  const struct pen_partition *partition;
};

struct pen_profile_inputs {
  const struct pen_profile_input *profile; /* [count] */
  size_t count;
};

/* The profiles of a plan: for each bucket train, if it trains, and eval; then that of score, if
 * eval has other losses, and the profiles of generation, if the model predicts tokens; only_trains:
 * the first alone. bucket[0] is the topology's own; the names of the others' profiles end with
 * their sequence length. Lowers eval and generation. */
struct pen_profile_inputs pen_profiles_of(const struct pen_bucket *bucket, size_t bucket_count);

#endif
