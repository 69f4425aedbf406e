/* candidates.c: all candidates, without those that the passes refuse.
 *
 * There may be millions, so they are checked in parts: the settings of each pipeline, each cut of
 * the model, and each way to share. No check of one part depends on the choices of another. */
#include "gen/planner/candidates.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/planner/attempts.h"
#include "gen/planner/progress.h"
#include "gen/topology/schedule_table.h"

/* The costs of the stages of a cut, for the pipelines that have it. */
struct known_cut {
  struct pen_choice key; /* without replicas, stages, schedule */
  uint32_t stage_count;
  bool splits;
  struct pen_cut_costs costs;
};

struct listing {
  const struct pen_planner *planner;
  const struct pen_axes *axes;
  struct pen_candidates all;
  struct pen_sharing *sharing;
  size_t sharing_count, sharing_capacity;
  struct known_cut *cut;
  size_t cut_count, cut_capacity;
  uint16_t no_recomputation; /* index of "none"; PEN_NOT_CHOSEN: it is not allowed */
};

static struct pen_attempt_input input_of(struct listing *l, const struct pen_choice *choice) {
  return (struct pen_attempt_input){l->planner, choice, &l->all.refusal};
}

static bool splits_backward(const struct listing *l, const struct pen_choice *choice) {
  return pen_schedule_splits(pen_schedule_of(pen_axis_text(l->axes, choice, PEN_AXIS_schedule)),
                             l->planner->written);
}

/* ---- ways to share ---- */

struct pen_choice pen_candidate_choice(const struct pen_pipeline *pipeline, size_t shared) {
  struct pen_choice choice = pipeline->choice;
  for (int a = PEN_PIPELINE_AXES; a < PEN_AXES; a++)
    choice.index[a] = pipeline->sharing->choice[shared].index[a];
  return choice;
}

/* `pipeline`: any valid one with these replicas. */
static struct pen_sharing new_sharing(struct listing *l, const struct pen_choice *pipeline) {
  const struct pen_choices choices = pen_choices_of(l->axes, pipeline, PEN_PIPELINE_AXES, PEN_AXES);
  struct pen_sharing sharing = {.replicas = pen_axis_number(l->axes, pipeline, PEN_AXIS_replicas),
                                .choice = pen_new(choices.count + 1, sizeof *sharing.choice),
                                .terms = pen_new(choices.count + 1, sizeof *sharing.terms)};
  for (size_t i = 0; i < choices.count; i++) {
    const struct pen_attempt_input input = input_of(l, &choices.choice[i]);
    struct pen_replica_terms *terms = &sharing.terms[sharing.count];
    *terms = (struct pen_replica_terms){
        .host_of = pen_new((size_t)l->planner->written->plan_ranks, sizeof *terms->host_of)};
    if (!pen_attempt_sharing(&input, terms)) continue;
    sharing.choice[sharing.count++] = choices.choice[i];
  }
  return sharing;
}

static const struct pen_sharing *find_sharing(struct listing *l,
                                              const struct pen_choice *pipeline) {
  const int64_t replicas = pen_axis_number(l->axes, pipeline, PEN_AXIS_replicas);
  for (size_t i = 0; i < l->sharing_count; i++)
    if (l->sharing[i].replicas == replicas) return &l->sharing[i];
  struct pen_sharing *sharing = &l->sharing[l->sharing_count++];
  *sharing = new_sharing(l, pipeline);
  if (sharing->count > l->all.sharing_most) l->all.sharing_most = sharing->count;
  return sharing;
}

/* ---- cuts ---- */

/* The choice whose cut bounds a pipeline's: without recomputation, if that is allowed. */
static struct pen_choice cut_choice(const struct listing *l, const struct pen_choice *pipeline) {
  struct pen_choice choice = *pipeline;
  if (l->no_recomputation != PEN_NOT_CHOSEN) choice.index[PEN_AXIS_recompute] = l->no_recomputation;
  return choice;
}

static bool is_cut_of(const struct known_cut *cut, const struct pen_choice *key,
                      uint32_t stage_count, bool splits) {
  return cut->stage_count == stage_count && cut->splits == splits &&
         memcmp(&cut->key, key, sizeof *key) == 0;
}

static const struct pen_cut_costs *find_cut(struct listing *l, const struct pen_choice *pipeline) {
  const struct pen_choice choice = cut_choice(l, pipeline);
  struct pen_choice key = choice;
  const uint32_t stages = (uint32_t)(pen_choice_ranks(l->axes, pipeline) *
                                     pen_axis_number(l->axes, pipeline, PEN_AXIS_stages));
  const bool splits = splits_backward(l, pipeline);
  key.index[PEN_AXIS_replicas] = key.index[PEN_AXIS_stages] = key.index[PEN_AXIS_schedule] = 0;
  for (size_t i = l->cut_count; i-- > 0;)
    if (is_cut_of(&l->cut[i], &key, stages, splits)) return &l->cut[i].costs;
  l->cut = pen_grow(l->cut, &l->cut_capacity, l->cut_count + 1, sizeof *l->cut);
  struct known_cut *cut = &l->cut[l->cut_count++];
  *cut = (struct known_cut){.key = key, .stage_count = stages, .splits = splits};
  cut->costs.forward = pen_new(stages, sizeof(double));
  cut->costs.backward = pen_new(stages, sizeof(double));
  const struct pen_attempt_input input = input_of(l, &choice);
  cut->costs.valid = pen_attempt_cut(&input, &cut->costs);
  return &cut->costs;
}

/* Whether the stages of a pipeline are those of find_cut(), perhaps with recomputation. */
static bool has_cut(const struct listing *l, const struct pen_choice *pipeline) {
  const char *balance = pen_axis_text(l->axes, pipeline, PEN_AXIS_balance);
  return !balance || !strcmp(balance, "count") ||
         pipeline->index[PEN_AXIS_recompute] == cut_choice(l, pipeline).index[PEN_AXIS_recompute];
}

/* ---- pipelines ---- */

static void add_pipeline(struct listing *l, const struct pen_choice *choice) {
  const struct pen_cut_costs *cut = find_cut(l, choice);
  if (!cut->valid) return;
  const struct pen_sharing *sharing = find_sharing(l, choice);
  const struct pen_schedule *schedule =
      pen_schedule_of(pen_axis_text(l->axes, choice, PEN_AXIS_schedule));
  struct pen_candidates *all = &l->all;
  all->pipeline = pen_grow(all->pipeline, &all->capacity, all->count + 1, sizeof *all->pipeline);
  struct pen_pipeline *pipeline = &all->pipeline[all->count++];
  *pipeline = (struct pen_pipeline){.choice = *choice, .sharing = sharing, .first = all->total};
  if (!l->planner->options->exhaustive)
    pipeline->bound = pen_pipeline_bound(cut, (uint32_t)pen_choice_ranks(l->axes, choice),
                                         (uint32_t)pen_choice_microbatches(l->axes, choice),
                                         !strcmp(schedule->placement, "v"),
                                         splits_backward(l, choice), has_cut(l, choice));
  all->total += sharing->count;
}

struct pen_candidates pen_candidates_of(const struct pen_planner *planner) {
  struct listing l = {
      .planner = planner, .axes = planner->axes, .no_recomputation = PEN_NOT_CHOSEN};
  const struct pen_axis_values *recompute = &l.axes->axis[PEN_AXIS_recompute];
  struct pen_choice none;
  memset(&none, 0xff, sizeof none);
  for (size_t i = 0; i < recompute->count; i++)
    if (!strcmp(recompute->value[i].text, "none")) l.no_recomputation = (uint16_t)i;
  l.sharing = pen_new(l.axes->axis[PEN_AXIS_replicas].count + 1, sizeof *l.sharing);
  const struct pen_choices settings =
      pen_choices_of(l.axes, &none, PEN_AXIS_replicas, PEN_AXIS_schedule + 1);
  for (size_t i = 0; i < settings.count; i++) {
    const struct pen_attempt_input input = input_of(&l, &settings.choice[i]);
    if (!pen_attempt_settings(&input)) continue;
    const struct pen_choices pipelines =
        pen_choices_of(l.axes, &settings.choice[i], PEN_AXIS_schedule + 1, PEN_PIPELINE_AXES);
    for (size_t k = 0; k < pipelines.count; k++) add_pipeline(&l, &pipelines.choice[k]);
    pen_free(pipelines.choice);
    pen_progress_show(planner, "listing", (double)(i + 1) / (double)settings.count, l.all.total, 0);
  }
  return l.all;
}
