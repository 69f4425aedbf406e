/* partition_hint.c: see partition_hint.h. */
#include "gen/pipeline/partition_hint.h"

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/layout/draft.h"
#include "gen/partition/partition.h"
#include "gen/topology/message.h"
#include "gen/topology/schedule_table.h"

#define GAIN_LEAST 0.03

struct by_time {
  struct pen_cost_source source;
  double makespan;
};

static void run_by_time(void *context) {
  struct by_time *by = context;
  const struct pen_draft draft = pen_draft(&by->source, NULL, false);
  by->makespan =
      pen_cost_model_time(&draft.cost, pen_draft_compose(&draft), draft.bucket->partition,
                          draft.bucket->training, PEN_TRAIN, false)
          ->makespan;
}

static bool is_by_count(const struct pen_topology *t) {
  return t->partition_balance == PEN_BALANCE_COUNT && !t->cuts_by_default &&
         !t->partition_layers.value && !t->partition_before.value;
}

void pen_partition_hint(const struct pen_result *result, const struct pen_measured *measured) {
  const struct pen_topology *t = result->topology;
  if (!is_by_count(t) || !t->trains || result->partition->stage_count == 1 ||
      pen_schedule_of(t->pipeline_schedule)->given != PEN_GIVEN_BY_RULE)
    return;
  struct pen_topology copy = *t;
  copy.partition_balance = PEN_BALANCE_TIME;
  copy.partition_unit = PEN_CUT_BLOCK;
  struct by_time by = {.source = {&copy, measured}};
  struct pen_refusal refusal;
  struct pen_arena_mark *mark = pen_arena_mark();
  const bool done = pen_attempt(run_by_time, &by, &refusal);
  pen_arena_release(mark);
  const double gain = 1 - by.makespan / result->timing->makespan;
  if (done && gain >= GAIN_LEAST)
    pen_topology_hint(t, "partition.balance",
                      "\"time\" with partition.unit = \"block\" makes the step %.0f%% shorter",
                      100 * gain);
}
