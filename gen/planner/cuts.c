/* cuts.c: what is known of the stages of a cut.
 *
 * Many pipelines have the same stages: those with as many stages in all, the same microbatch, cut
 * and recomputation, whatever their ranks, schedule and replicas. Their graphs are built once, when
 * the cut is first asked for, and only numbers are kept. By measured costs a stage that copies a
 * message to another rank takes longer, and equal times are evened out over ranks: then ranks and
 * placement count, too. */
#include "gen/planner/cuts.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/planner/attempts.h"
#include "gen/topology/schedule_table.h"

/* A cut, and the choices that it depends on. */
struct known_cut {
  struct pen_choice key; /* without replicas, stages, schedule */
  uint32_t stage_count;
  bool splits, zigzag; /* zigzag: where the cut depends on it */
  struct known_cut *next;
  struct pen_cut cut;
};

enum { LISTS = 256 };

struct pen_cuts {
  const struct pen_planner *planner;
  struct known_cut *list[LISTS]; /* by stage_count */
  uint16_t no_recomputation;     /* index of "none"; PEN_NOT_CHOSEN: it is not allowed */
  struct pen_refusal refusal;
};

struct pen_cuts *pen_cuts_new(const struct pen_planner *planner) {
  struct pen_cuts *cuts = pen_new(1, sizeof *cuts);
  const struct pen_axis_values *recompute = &planner->axes->axis[PEN_AXIS_recompute];
  *cuts = (struct pen_cuts){.planner = planner, .no_recomputation = PEN_NOT_CHOSEN};
  for (size_t i = 0; i < recompute->count; i++)
    if (recompute->value[i].number == PEN_RECOMPUTE_NONE) cuts->no_recomputation = (uint16_t)i;
  return cuts;
}

const struct pen_refusal *pen_cuts_refusal(const struct pen_cuts *cuts) { return &cuts->refusal; }

static struct pen_choice choice_of(const struct pen_cuts *cuts, const struct pen_choice *pipeline,
                                   bool without_recomputation) {
  struct pen_choice choice = *pipeline;
  if (without_recomputation && cuts->no_recomputation != PEN_NOT_CHOSEN)
    choice.index[PEN_AXIS_recompute] = cuts->no_recomputation;
  return choice;
}

static struct known_cut *new_cut(struct pen_cuts *cuts, const struct pen_choice *choice,
                                 uint32_t stages) {
  struct known_cut *known = pen_new(1, sizeof *known);
  struct pen_cut *cut = &known->cut;
  const struct pen_attempt_input input = {cuts->planner, choice, &cuts->refusal};
  cut->stage_count = stages;
  cut->cost = pen_new(stages, sizeof *cut->cost);
  cut->live = pen_new(stages, sizeof *cut->live);
  cut->traffic = pen_new(stages, sizeof *cut->traffic);
  cut->elements = pen_new(stages, sizeof *cut->elements);
  cut->valid = pen_attempt_cut(&input, cut);
  return known;
}

const struct pen_cut *pen_cut_of(struct pen_cuts *cuts, const struct pen_choice *pipeline,
                                 bool without_recomputation) {
  const struct pen_axes *axes = cuts->planner->axes;
  const struct pen_choice choice = choice_of(cuts, pipeline, without_recomputation);
  const uint32_t stages = (uint32_t)(pen_choice_ranks(axes, pipeline) *
                                     pen_axis_number(axes, pipeline, PEN_AXIS_stages));
  const bool by_rank = cuts->planner->options->costs != NULL ||
                       pen_axis_number(axes, pipeline, PEN_AXIS_balance) == PEN_BALANCE_TIME,
             splits =
                 pen_schedule_splits(pen_choice_schedule(axes, pipeline), cuts->planner->written),
             zigzag = by_rank && pen_choice_zigzag(axes, pipeline);
  struct pen_choice key = choice;
  key.index[PEN_AXIS_replicas] = key.index[PEN_AXIS_schedule] = 0;
  if (!by_rank) key.index[PEN_AXIS_stages] = 0;
  struct known_cut **list = &cuts->list[stages % LISTS];
  for (struct known_cut *known = *list; known; known = known->next)
    if (known->stage_count == stages && known->splits == splits && known->zigzag == zigzag &&
        memcmp(&known->key, &key, sizeof key) == 0)
      return &known->cut;
  struct known_cut *known = new_cut(cuts, &choice, stages);
  known->key = key;
  known->stage_count = stages;
  known->splits = splits;
  known->zigzag = zigzag;
  known->next = *list;
  *list = known;
  return &known->cut;
}

bool pen_cut_is_kept(const struct pen_cuts *cuts, const struct pen_choice *pipeline) {
  return pen_axis_number(cuts->planner->axes, pipeline, PEN_AXIS_balance) != PEN_BALANCE_TIME ||
         pipeline->index[PEN_AXIS_recompute] ==
             choice_of(cuts, pipeline, true).index[PEN_AXIS_recompute];
}
