/* best_first.c: finds the candidates with the shortest steps that fit, best first.
 *
 * A queue holds, by the least step that each may have:
 *
 *   - PIPELINE: a choice of the axes of pipelines, with pen_pipeline_bound(); it stands for all
 *     ways in which its replicas may share. Taken from the queue, its candidates enter with
 *     pen_candidate_bounds_of(); those whose memory cannot fit do not.
 *   - CANDIDATE: taken from the queue, it is simulated and enters again.
 *   - TIMED: with its step. Taken from the queue, no other candidate has a shorter step: it is
 *     laid out, and if it fits it is the next best.
 *
 * With --exhaustive all pipelines and all candidates are taken first, whatever their bounds. Times
 * that differ by rounding only count as equal (equal_time.h); of these the first in the order of
 * the axes is taken first, and all are taken before those with least memory are kept. So both ways
 * find the same. */
#include "gen/planner/best_first.h"

#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/base/heap.h"
#include "gen/planner/attempts.h"
#include "gen/planner/candidates.h"
#include "gen/planner/equal_time.h"
#include "gen/planner/progress.h"
#include "gen/planner/refine.h"

enum queue_level { PIPELINE, CANDIDATE, TIMED, LAID_OUT /* its bytes are exact */ };
enum { FIRST = -1 }; /* a key below all times */

struct queued {
  enum queue_level level;
  uint32_t pipeline, shared;
  uint64_t least_bytes; /* of the largest arena */
  struct pen_step_times times;
};

struct best_first {
  const struct pen_planner *planner;
  struct pen_candidates candidates;
  struct pen_heap heap;      /* by time */
  struct pen_heap too_large; /* by bytes: candidates that cannot fit */
  struct queued *queued;     /* what both hold */
  size_t queued_count;
  struct pen_candidate_bounds bounds; /* of one pipeline */
  uint64_t taken;                     /* pipelines */
  struct pen_refusal refusal;
  struct pen_plan_result result;
  size_t wanted; /* of result.best */
};

static uint64_t index_of(const struct best_first *b, const struct queued *q) {
  return b->candidates.pipeline[q->pipeline].first + q->shared;
}

static struct pen_choice choice_of(const struct best_first *b, const struct queued *q) {
  return pen_candidate_choice(&b->candidates.pipeline[q->pipeline], q->shared);
}

static void enqueue(struct best_first *b, struct pen_heap *heap, double key, struct queued q) {
  PEN_RESERVE(b->queued, b->queued_count + 1);
  b->queued[b->queued_count] = q;
  pen_heap_push(heap, (struct pen_heap_item){key, index_of(b, &q), b->queued_count++});
}

/* Ends the program: a candidate that the checks of its parts accept is refused. */
static _Noreturn void fail_refused(const struct pen_refusal *refusal) {
  pen_plan_progress_end();
  pen_stop(refusal->status, "%s", refusal->text);
}

/* Without --all: the one that was found with the same values of the axes up to the schedule, or
 * null. */
static struct pen_plan_candidate *same_found(const struct best_first *b,
                                             const struct pen_choice *choice) {
  const size_t bytes = (PEN_AXIS_schedule + 1) * sizeof *choice->index;
  for (size_t i = 0; !b->planner->options->all && i < b->result.count; i++)
    if (!memcmp(b->result.best[i].choice.index, choice->index, bytes)) return &b->result.best[i];
  return NULL;
}

/* Whether nothing with this key can be among the best. */
static bool is_behind(const struct best_first *b, double key, const struct queued *q) {
  const struct pen_plan_candidate *same =
      same_found(b, &b->candidates.pipeline[q->pipeline].choice);
  return same && pen_equal_time(same->step) < key;
}

/* ---- the levels ---- */

static void take_pipeline(struct best_first *b, const struct queued *q) {
  const struct pen_pipeline *pipeline = &b->candidates.pipeline[q->pipeline];
  const struct pen_sharing *sharing = pipeline->sharing;
  const bool all = b->planner->options->exhaustive;
  const struct pen_cut *cut = pen_cut_of(b->candidates.cuts, &pipeline->choice, false);
  const struct pen_pipeline_shape shape = pen_pipeline_shape_of(b->planner, &pipeline->choice);
  b->taken++;
  if (!cut->valid) fail_refused(pen_cuts_refusal(b->candidates.cuts));
  struct pen_arena_mark *mark = pen_arena_mark();
  pen_candidate_bounds_of(cut, &shape, sharing->terms, sharing->count, &b->bounds);
  pen_arena_release(mark);
  for (uint32_t shared = 0; shared < sharing->count; shared++) {
    const double bound = fmax(pipeline->bound, b->bounds.step[shared]);
    const struct queued candidate = {.level = CANDIDATE,
                                     .pipeline = q->pipeline,
                                     .shared = shared,
                                     .least_bytes = b->bounds.arena_bytes[shared]};
    if (all || candidate.least_bytes <= b->planner->memory_bytes)
      enqueue(b, &b->heap, all ? FIRST : pen_equal_bound(bound), candidate);
    else
      enqueue(b, &b->too_large, (double)candidate.least_bytes, candidate);
  }
}

static void take_candidate(struct best_first *b, struct queued q) {
  const struct pen_choice choice = choice_of(b, &q);
  const struct pen_attempt_input input = {b->planner, &choice, &b->refusal};
  if (!pen_attempt_times(&input, &q.times)) fail_refused(&b->refusal);
  b->result.evaluated++;
  q.level = TIMED;
  enqueue(b, &b->heap, pen_equal_time(q.times.step), q);
}

/* The exact bytes of a candidate. */
static uint64_t lay_out(struct best_first *b, const struct queued *q) {
  struct pen_planned planned;
  const struct pen_choice choice = choice_of(b, q);
  const struct pen_attempt_input input = {b->planner, &choice, &b->refusal};
  if (!pen_attempt_plan(&input, NULL, &planned)) fail_refused(&b->refusal);
  if (planned.arena_bytes < q->least_bytes)
    pen_stop(PEN_EXIT_INTERNAL,
             "penstock-plan: internal error: candidate %llu needs %llu bytes, its bound is %llu",
             (unsigned long long)index_of(b, q), (unsigned long long)planned.arena_bytes,
             (unsigned long long)q->least_bytes);
  return planned.arena_bytes;
}

static void add_found(struct best_first *b, const struct pen_plan_candidate *candidate) {
  struct pen_plan_result *result = &b->result;
  struct pen_plan_candidate *same = same_found(b, &candidate->choice);
  if (same) {
    if (candidate->arena_bytes < same->arena_bytes) *same = *candidate;
    return;
  }
  PEN_RESERVE(result->best, result->count + 1);
  result->best[result->count++] = *candidate;
}

/* Whether enough were found, and a candidate that takes as long as the last of them needs at least
 * as much memory as each that does. */
static bool is_too_late(const struct best_first *b, const struct queued *q) {
  const struct pen_plan_result *found = &b->result;
  uint64_t most = 0;
  for (size_t i = found->count;
       i-- > 0 && pen_equal_time(found->best[i].step) == pen_equal_time(q->times.step);)
    most = found->best[i].arena_bytes > most ? found->best[i].arena_bytes : most;
  return found->count >= b->wanted && q->least_bytes >= most;
}

static void take_timed(struct best_first *b, const struct queued *q) {
  if (is_too_late(b, q)) return;
  if (q->least_bytes > b->planner->memory_bytes) {
    enqueue(b, &b->too_large, (double)q->least_bytes, *q);
    return;
  }
  struct queued exact = *q;
  exact.least_bytes = lay_out(b, q);
  if (exact.least_bytes > b->planner->memory_bytes) {
    exact.level = LAID_OUT;
    enqueue(b, &b->too_large, (double)exact.least_bytes, exact);
    return;
  }
  add_found(b, &(struct pen_plan_candidate){.choice = choice_of(b, q),
                                            .index = index_of(b, q),
                                            .makespan = q->times.makespan,
                                            .step = q->times.step,
                                            .arena_bytes = exact.least_bytes,
                                            .bubble = q->times.bubble,
                                            .idle = q->times.idle,
                                            .parts = q->times.parts});
}

static void show(const struct best_first *b) {
  const double share = b->candidates.count ? (double)b->taken / (double)b->candidates.count : 1;
  pen_plan_progress_show(b->planner, "searching", share, b->candidates.total, b->result.evaluated);
}

/* ---- nothing fits ---- */

/* Ends the program with the least memory of any candidate. */
static _Noreturn void fail_memory(struct best_first *b) {
  const struct pen_topology *t = b->planner->written;
  uint64_t least = 0;
  while (b->too_large.count) {
    struct queued q = b->queued[pen_heap_pop(&b->too_large).value];
    least = q.least_bytes;
    if (q.level == LAID_OUT) break;
    q.least_bytes = lay_out(b, &q);
    q.level = LAID_OUT;
    enqueue(b, &b->too_large, (double)q.least_bytes, q);
  }
  pen_plan_progress_end();
  const struct pen_refusal *cut = pen_cuts_refusal(b->candidates.cuts);
  if (!least && cut->status) fail_refused(cut);
  if (!least && b->candidates.refusal.status) fail_refused(&b->candidates.refusal);
  if (!least)
    pen_stop(PEN_EXIT_TOPOLOGY,
             "%s: plan.ranks, plan.sequences: no combination of the allowed values is possible: "
             "ranks = replicas x "
             "pipeline ranks x tensor ranks, sequences = replicas x microbatch x microbatches, "
             "of which there are at most %d (or pipeline.microbatches)",
             t->path, PEN_PLANNED_MICROBATCHES_MOST);
  pen_stop(PEN_EXIT_TOPOLOGY, "%s: plan.memory_mib = %lld: at least %llu", t->path,
           (long long)(b->planner->memory_bytes >> 20),
           (unsigned long long)((least + (1 << 20) - 1) >> 20));
}

/* Whether what comes next may take as little time as the last that was found. */
static bool is_tied(const struct best_first *b) {
  return b->heap.item[0].key <= pen_equal_time(b->result.best[b->result.count - 1].step);
}

struct pen_plan_result pen_best_first(const struct pen_planner *planner, size_t wanted) {
  struct best_first b = {
      .planner = planner, .wanted = wanted, .candidates = pen_candidates_of(planner)};
  b.result.total = b.candidates.total;
  b.bounds.step = pen_new(b.candidates.sharing_most + 1, sizeof *b.bounds.step);
  b.bounds.arena_bytes = pen_new(b.candidates.sharing_most + 1, sizeof *b.bounds.arena_bytes);
  for (uint32_t p = 0; p < b.candidates.count; p++)
    enqueue(&b, &b.heap,
            planner->options->exhaustive ? FIRST : pen_equal_bound(b.candidates.pipeline[p].bound),
            (struct queued){.level = PIPELINE, .pipeline = p});
  while (b.heap.count && (b.result.count < wanted || is_tied(&b))) {
    const struct pen_heap_item item = pen_heap_pop(&b.heap);
    const struct queued q = b.queued[item.value];
    if (is_behind(&b, item.key, &q)) continue;
    if (q.level == PIPELINE)
      take_pipeline(&b, &q);
    else if (q.level == CANDIDATE)
      take_candidate(&b, q);
    else
      take_timed(&b, &q);
    show(&b);
  }
  if (!b.result.count) fail_memory(&b);
  pen_plan_progress_end();
  pen_sort_candidates(&b.result);
  if (b.result.count > wanted) b.result.count = wanted;
  b.result.others_least =
      b.result.count < wanted ? INFINITY : b.result.best[b.result.count - 1].step;
  return b.result;
}
