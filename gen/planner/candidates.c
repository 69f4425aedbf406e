/* candidates.c: all candidates, without those that the passes refuse.
 *
 * There may be millions, so they are checked in parts: the settings of each pipeline, each cut of
 * the model, and each way to share. No check of one part depends on the choices of another. */
#include "gen/planner/candidates.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/planner/attempts.h"
#include "gen/planner/progress.h"

struct candidate_listing {
  const struct pen_planner *planner;
  const struct pen_axes *axes;
  struct pen_candidates all;
  struct pen_sharing *sharing;
  size_t sharing_count;
};

static struct pen_attempt_input input_of(struct candidate_listing *l,
                                         const struct pen_choice *choice) {
  return (struct pen_attempt_input){l->planner, choice, &l->all.refusal};
}

/* ---- ways to share ---- */

struct pen_choice pen_candidate_choice(const struct pen_pipeline *pipeline, size_t shared) {
  struct pen_choice choice = pipeline->choice;
  for (int a = PEN_PIPELINE_AXES; a < PEN_AXES; a++)
    choice.index[a] = pipeline->sharing->choice[shared].index[a];
  return choice;
}

/* `pipeline`: any valid one with these replicas and ranks. */
static struct pen_sharing new_sharing(struct candidate_listing *l,
                                      const struct pen_choice *pipeline) {
  const struct pen_choices choices = pen_choices_of(l->axes, pipeline, PEN_PIPELINE_AXES, PEN_AXES);
  const size_t ranks = (size_t)pen_choice_ranks(l->axes, pipeline);
  struct pen_sharing sharing = {.ranks = (int64_t)ranks,
                                .replicas = pen_axis_number(l->axes, pipeline, PEN_AXIS_replicas),
                                .choice = pen_new(choices.count + 1, sizeof *sharing.choice),
                                .terms = pen_new(choices.count + 1, sizeof *sharing.terms)};
  for (size_t i = 0; i < choices.count; i++) {
    const struct pen_attempt_input input = input_of(l, &choices.choice[i]);
    struct pen_sharing_terms *terms = &sharing.terms[sharing.count];
    *terms = (struct pen_sharing_terms){.shards = pen_new(ranks, sizeof *terms->shards),
                                        .groups = pen_new(ranks, sizeof *terms->groups)};
    if (!pen_attempt_sharing(&input, terms)) continue;
    sharing.choice[sharing.count++] = choices.choice[i];
  }
  return sharing;
}

static const struct pen_sharing *find_sharing(struct candidate_listing *l,
                                              const struct pen_choice *pipeline) {
  const int64_t replicas = pen_axis_number(l->axes, pipeline, PEN_AXIS_replicas),
                ranks = pen_choice_ranks(l->axes, pipeline);
  for (size_t i = 0; i < l->sharing_count; i++)
    if (l->sharing[i].replicas == replicas && l->sharing[i].ranks == ranks) return &l->sharing[i];
  struct pen_sharing *sharing = &l->sharing[l->sharing_count++];
  *sharing = new_sharing(l, pipeline);
  if (sharing->count > l->all.sharing_most) l->all.sharing_most = sharing->count;
  return sharing;
}

/* ---- pipelines ---- */

/* Ends the program where the topology asks for a number of tensor ranks, which its settings allow,
 * but nothing was measured with it, or not with its splits. */
static void check_measured(const struct candidate_listing *l, const struct pen_choice *choice) {
  const struct pen_measured *measured = l->planner->measured;
  const struct pen_axis_values *tensor = &l->axes->axis[PEN_AXIS_tensor];
  const int64_t ranks = pen_axis_number(l->axes, choice, PEN_AXIS_tensor);
  const struct pen_topology *written = l->planner->written;
  const bool set = written->has_tensor_parallel_splits;
  const int64_t splits = set ? written->tensor_parallel_splits : ranks;
  if (!measured || !ranks || !(tensor->fixed || tensor->listed) ||
      pen_measured_blocks_have(measured->blocks, ranks, splits))
    return;
  pen_plan_progress_end();
  pen_stop(PEN_EXIT_DATA, "%s: blocks: none was measured with tensor_parallel.ranks = %lld%s%s",
           measured->path, (long long)ranks, tensor->listed ? ", of plan.tensor" : "",
           set ? pen_text(", and splits = %lld", (long long)splits) : "");
}

/* By flops, recomputation only adds to the costs of a cut; a file of measured costs may have any.
 */
static void add_pipeline(struct candidate_listing *l, const struct pen_choice *choice) {
  struct pen_candidates *all = &l->all;
  const bool by_flops = !l->planner->options->costs;
  const struct pen_cut *cut = pen_cut_of(all->cuts, choice, by_flops);
  if (!cut->valid) {
    check_measured(l, choice);
    return;
  }
  PEN_RESERVE(all->pipeline, all->count + 1);
  struct pen_pipeline *pipeline = &all->pipeline[all->count++];
  *pipeline = (struct pen_pipeline){
      .choice = *choice, .sharing = find_sharing(l, choice), .first = all->total};
  const struct pen_pipeline_shape shape = pen_pipeline_shape_of(l->planner, choice);
  pipeline->bound =
      pen_pipeline_bound(cut, &shape, !by_flops || pen_cut_is_kept(all->cuts, choice));
  all->total += pipeline->sharing->count;
}

struct pen_candidates pen_candidates_of(const struct pen_planner *planner) {
  struct candidate_listing l = {
      .planner = planner, .axes = planner->axes, .all = {.cuts = pen_cuts_new(planner)}};
  struct pen_choice none;
  memset(&none, 0xff, sizeof none);
  l.sharing =
      pen_new(l.axes->axis[PEN_AXIS_replicas].count * l.axes->axis[PEN_AXIS_tensor].count + 1,
              sizeof *l.sharing);
  const struct pen_choices settings =
      pen_choices_of(l.axes, &none, PEN_AXIS_replicas, PEN_AXIS_schedule + 1);
  for (size_t i = 0; i < settings.count; i++) {
    const struct pen_attempt_input input = input_of(&l, &settings.choice[i]);
    if (!pen_attempt_settings(&input)) continue;
    const struct pen_choices pipelines =
        pen_choices_of(l.axes, &settings.choice[i], PEN_AXIS_schedule + 1, PEN_PIPELINE_AXES);
    for (size_t k = 0; k < pipelines.count; k++) add_pipeline(&l, &pipelines.choice[k]);
    pen_free(pipelines.choice);
    pen_plan_progress_show(planner, "listing", (double)(i + 1) / (double)settings.count,
                           l.all.total, 0);
  }
  return l.all;
}
