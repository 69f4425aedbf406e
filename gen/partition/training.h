/* training.h: what a step does besides F, I, W and B: between replicas and at its end. */
#ifndef PEN_TRAINING_H
#define PEN_TRAINING_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/model/graph.h"
#include "gen/partition/partition.h"

struct pen_training {
  bool adds_tied_gradient; /* a tied matrix is trained: the head's gradient is added to the
                              embedding's once a step (struct pen_tie) */
  bool waits_for_norm;     /* no rank runs the optimizer before all ranks have published their norms
                              (optimizer.clip_norm) */
  bool reshards_each_use;  /* data_parallel.reshard = "use" */
  /* [stage * PEN_PROGRAMS + program]: collectives that its ops complete; null: none do */
  const uint32_t *program_collectives;
  bool exchanges; /* programs exchange values between tensor ranks, in one order: none is run beside
                     another */
  const bool *weights_in_w; /* [stage]: its W also reads weights that UNSHARD gathers; null: none
                               does */
};

/* None of these. */
extern const struct pen_training pen_training_none;

/* `graph` is [stage], of the topology's own profile. */
struct pen_training *pen_training_of(const struct pen_topology *topology,
                                     const struct pen_partition *partition,
                                     struct pen_graph *const *graph);

/* Whether programs read a value where UNSHARD gathers it: a weight of sharded weights that is not a
 * tied matrix. */
bool pen_value_is_unsharded(const struct pen_partition *partition, const struct pen_graph *graph,
                            uint32_t value);

#endif
