/* draft.h: the passes before a plan has its order, partition, model and costs; and those after it,
 * simulate, lower and layout. */
#ifndef PEN_DRAFT_H
#define PEN_DRAFT_H

#include "gen/lower/profiles.h"
#include "gen/model/stage_io.h"
#include "gen/schedule/order.h"
#include "gen/timing/cost_model.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

/* A plan without an order. */
struct pen_draft {
  struct pen_bucket *bucket; /* [bucket_count] the first is the topology's own, not yet lowered */
  size_t bucket_count;
  struct pen_stage_io shapes;
  struct pen_cost_model cost; /* of the topology's bucket */
};

/* An order of the topology's bucket, and its topology and partition with the placement of the
 * order. */
struct pen_placed_order {
  const struct pen_order *order;
  const struct pen_topology *topology;
  const struct pen_partition *partition;
  struct pen_action *const *given; /* [rank] the actions that it is of; NULL: it is lowered */
  const uint32_t *given_count;     /* [rank] */
};

struct pen_laid_out {
  struct pen_cost_model cost; /* with the placement of the order */
  const struct pen_timing *timing;
  const struct pen_plan *plan; /* not verified, without a digest */
};

/* The blocks of the stages; `first_block`: [stage] NULL: as the topology divides the model. */
const struct pen_partition *pen_divide(const struct pen_topology *topology,
                                       const uint32_t *first_block);

/* `source`: a topology without "auto", and its costs. `given`: the order will be that of --actions.
 */
struct pen_draft pen_draft(const struct pen_cost_source *source, const uint32_t *first_block,
                           bool given);

/* The order of the topology's schedule, which is not "search". */
const struct pen_order *pen_draft_compose(const struct pen_draft *draft);

/* The plan. A draft with several buckets can be laid out once, since the layout takes them over. */
struct pen_laid_out pen_draft_lay_out(const struct pen_draft *draft,
                                      const struct pen_placed_order *order);

/* Fails (78) if the order has a pair whose cost the topology gives, but not the file of --costs,
 * whose unit is another. */
void pen_draft_check_overlap(const struct pen_draft *draft, const struct pen_order *order);

#endif
