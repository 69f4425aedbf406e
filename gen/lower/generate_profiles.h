/* generate_profiles.h: the profiles of a plan before layout, and those of the generate command. */
#ifndef PEN_GENERATE_PROFILES_H
#define PEN_GENERATE_PROFILES_H

#include "gen/lower/lower.h"
#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/topology/topology.h"

/* What the passes before layout found for one profile. */
struct pen_profile_input {
  const char *name;
  int kind; /* enum pen_profile_kind */
  struct pen_lowered *lowered;
  struct pen_graph **graph;              /* [stage] */
  const struct pen_topology *topology;   /* of its sequence-length bucket; NULL: the plan's */
  const struct pen_partition *partition; /* with the bucket's microbatches; NULL: the plan's */
};

/* The shortest window of generation, in tokens, and the most profiles. */
enum { PEN_GENERATION_LEAST = 64, PEN_GENERATION_MAX = 32 };

/* Fills profile[PEN_GENERATION_MAX] and returns the count; 0 if the model predicts no tokens. */
size_t pen_generation(const struct pen_topology *topology, const struct pen_partition *partition,
                      const struct pen_training *training, struct pen_profile_input *profile);

#endif
