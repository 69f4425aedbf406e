/* draft.c: the passes around the choice of an order (see draft.h). */
#include "gen/model/model.h"
#include "gen/layout/draft.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/pass_times.h"
#include "gen/families/families.h"
#include "gen/layout/layout.h"
#include "gen/lower/lower.h"
#include "gen/partition/block_cost.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/schedule.h"
#include "gen/schedule/torch_csv.h"
#include "gen/topology/message.h"
#include "gen/topology/shapes.h"

const struct pen_partition *pen_divide(const struct pen_topology *topology,
                                       const uint32_t *first_block) {
  const struct pen_family *family = pen_family_of(topology);
  if (first_block) return pen_partition_of_blocks(topology, family, first_block);
  const struct pen_block_costs *costs = NULL;
  if (pen_partition_by_time(topology)) {
    const struct pen_schedule *schedule = pen_schedule_of(topology->pipeline_schedule);
    costs = pen_block_costs(topology, family, pen_schedule_splits(schedule, topology));
  }
  return pen_partition(topology, family, costs);
}

/* The order of pipeline.schedule_file. */
static const struct pen_order *read_schedule_file(const struct pen_topology *t,
                                                  const struct pen_partition *p) {
  const struct pen_csv *csv =
      pen_csv_read(t->schedule_path, t->schedule_text, t->schedule_bytes, p,
                   pen_enum_text(pen_enum_placement, (int)t->pipeline_placement));
  const struct pen_stage_cost *no_cost = pen_new(p->stage_count, sizeof *no_cost);
  const struct pen_timing *timing = pen_simulate(csv->order, p, &pen_training_none, no_cost, -1);
  if (!timing->complete) pen_csv_fail_deadlock(csv, p, pen_timing_done(timing, csv->order));
  return csv->order;
}

/* The graphs of a partition and what a step does besides them; its actions are not set. */
static struct pen_bucket build_graphs(const struct pen_topology *topology,
                                      const struct pen_partition *partition) {
  pen_pass("model and derive");
  struct pen_graph *const *eval = pen_graphs_of(topology, &partition->stages, false);
  struct pen_graph *const *own =
      topology->trains ? pen_graphs_of(topology, &partition->stages, true) : eval;
  return (struct pen_bucket){topology, partition, pen_training_of(topology, partition, own),
                             own,      eval,      NULL};
}

const struct pen_order *pen_draft_compose(const struct pen_draft *draft) {
  pen_pass("compose");
  const struct pen_topology *t = draft->bucket->topology;
  const struct pen_partition *p = draft->bucket->partition;
  return pen_schedule_of(t->pipeline_schedule)->given == PEN_GIVEN_BY_FILE
             ? read_schedule_file(t, p)
             : pen_compose(t, p);
}

/* Sets the bucket's actions to those of an order. */
static const struct pen_timing *lower_order(struct pen_bucket *b, const struct pen_cost_model *cost,
                                            const struct pen_placed_order *order) {
  const int kind = b->topology->trains ? PEN_TRAIN : PEN_EVAL;
  b->topology = order->topology;
  b->partition = order->partition;
  pen_pass("simulate");
  const struct pen_timing *timing = pen_cost_model_time(cost, order->order, b->partition,
                                                        b->training, kind, order->given != NULL);
  pen_pass("lower");
  if (order->given)
    b->lowered = pen_lower_given(order->given, order->given_count, b->partition, b->training, kind);
  else if (kind == PEN_EVAL)
    b->lowered = pen_lower_forward(order->order, b->partition, b->training, PEN_EVAL);
  else
    b->lowered = pen_lower(order->order, b->partition, b->training, timing, kind);
  return timing;
}

/* A further sequence length: the same stages on the same ranks, with its own microbatches. */
static struct pen_bucket bucket_of_shape(const struct pen_bucket *own, size_t shape) {
  const struct pen_topology *t = pen_topology_of_shape(own->topology, shape);
  struct pen_partition *p = pen_new(1, sizeof *p);
  *p = *own->partition;
  p->microbatch_count = (uint32_t)t->pipeline_microbatches;
  struct pen_bucket bucket = build_graphs(t, p);
  pen_pass("costs");
  const struct pen_cost_model cost = pen_cost_model(t, p, bucket.own, NULL);
  const struct pen_placed_order order = {pen_draft_compose(&(struct pen_draft){.bucket = &bucket}),
                                         t, p, NULL, NULL};
  lower_order(&bucket, &cost, &order);
  return bucket;
}

struct pen_draft pen_draft(const struct pen_cost_source *source, const uint32_t *first_block,
                           bool given) {
  const struct pen_topology *t = source->topology;
  pen_pass("partition");
  const struct pen_partition *partition = pen_divide(t, first_block);
  struct pen_draft draft = {.bucket_count = 1 + t->shapes_sequence.count,
                            .shapes = pen_stage_io_of(t, &partition->stages)};
  draft.bucket = pen_new(draft.bucket_count, sizeof *draft.bucket);
  draft.bucket[0] = build_graphs(t, partition);
  pen_pass("costs");
  draft.cost = pen_cost_model(t, partition, draft.bucket[0].own, source->measured);
  if (draft.bucket_count > 1 && given)
    pen_topology_fail(t, "shapes.sequence", "none, with --actions: its actions are for one shape");
  for (size_t i = 1; i < draft.bucket_count; i++)
    draft.bucket[i] = bucket_of_shape(&draft.bucket[0], i - 1);
  return draft;
}

struct pen_laid_out pen_draft_lay_out(const struct pen_draft *draft,
                                      const struct pen_placed_order *order) {
  const size_t count = draft->bucket_count;
  struct pen_bucket *bucket = pen_new(count, sizeof *bucket);
  memcpy(bucket, draft->bucket, count * sizeof *bucket);
  struct pen_laid_out laid_out = {.cost = draft->cost};
  if (order->partition != bucket->partition)
    laid_out.cost = pen_cost_model_placed(&draft->cost, order->partition);
  laid_out.timing = lower_order(&bucket[0], &laid_out.cost, order);
  const struct pen_profile_inputs profiles = pen_profiles_of(bucket, count);
  pen_pass("layout");
  laid_out.plan = pen_layout(order->topology, order->partition, profiles.profile, profiles.count);
  return laid_out;
}

void pen_draft_check_overlap(const struct pen_draft *draft, const struct pen_order *order) {
  const struct pen_topology *topology = draft->bucket->topology;
  const struct pen_measured *measured = draft->cost.source.measured;
  if (!measured || measured->overlap >= 0 || !topology->has_costs_overlap) return;
  if (pen_order_has_pair(order))
    pen_topology_fail(topology, "costs.overlap",
                      "not with --costs, which are in ms: %s must have \"overlap\"",
                      measured->path);
}
