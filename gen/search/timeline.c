/* timeline.c: the times of one order of F, I, W and B while actions move.
 *
 * A move shifts one action within its rank's list, or removes a W from it, whose I then means B, or
 * inserts it again. Actions that start before the end of the action that precedes the first changed
 * one keep their times, since effects only go forward in time. The others are timed again: each
 * rank runs its list until it must wait for a cell that another rank has not run yet, and continues
 * after that cell. The times of a trial are separate from the accepted ones, each with the number
 * of its trial, so that rejecting a trial costs nothing. Idle time only grows along a list: a trial
 * is rejected as soon as a rank has too much of it.
 *
 * What a rank holds depends only on its list and is checked before the trial is timed. */
#include "gen/search/timeline.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

#include <math.h>
#include <string.h>

struct pen_search_timeline *pen_search_timeline(const struct pen_search_problem *search) {
  size_t ranks = search->rank_count, actions = ranks * search->count;
  struct pen_search_timeline *timeline = pen_new(1, sizeof *timeline);
  timeline->search = search;
  timeline->list = pen_new(actions, sizeof *timeline->list);
  timeline->length = pen_new(ranks, sizeof *timeline->length);
  timeline->cell = pen_new(search->cell_count, sizeof *timeline->cell);
  timeline->place = pen_new(search->cell_count, sizeof *timeline->place);
  timeline->held = pen_new(actions + ranks, sizeof *timeline->held);
  timeline->times = pen_new(search->cell_count + 1u, sizeof *timeline->times);
  timeline->trial = pen_new(search->cell_count + 1u, sizeof *timeline->trial);
  timeline->turn = pen_new(actions, sizeof *timeline->turn);
  timeline->times[search->cell_count].start = -INFINITY;
  timeline->from = pen_new(ranks, sizeof *timeline->from);
  timeline->at = pen_new(ranks, sizeof *timeline->at);
  timeline->stack = pen_new(ranks, sizeof *timeline->stack);
  timeline->waits = pen_new(ranks, sizeof *timeline->waits);
  return timeline;
}

/* ---- what a rank holds ---- */

static inline const struct pen_search_type *type_of(const struct pen_search_timeline *timeline,
                                                    uint32_t cell) {
  return &timeline->search->type[timeline->cell[cell].type];
}

static double *held_by(struct pen_search_timeline *timeline, uint32_t rank) {
  return timeline->held + (size_t)rank * (timeline->search->count + 1u);
}

/* Whether the rank may hold that much: limits are inclusive, with a margin for rounding. */
static inline bool may_hold(const struct pen_search_problem *search, uint32_t rank, double held) {
  return held <= search->budget->limit[rank] * (1 + 1e-9);
}

/* Updates the places and what the rank holds, from a place on. False: it holds too much. */
static bool index_from(struct pen_search_timeline *timeline, uint32_t rank, uint32_t first) {
  const struct pen_search_problem *search = timeline->search;
  const uint32_t *list = timeline->list + (size_t)rank * search->count;
  double *held = held_by(timeline, rank);
  bool fits = true;
  for (uint32_t i = first; i < timeline->length[rank]; i++) {
    const struct pen_hold *hold = &type_of(timeline, list[i])->hold;
    timeline->place[list[i]] = i;
    if (!may_hold(search, rank, held[i] + hold->peak)) fits = false;
    held[i + 1] = held[i] + hold->remains;
  }
  return fits;
}

/* Whether a move keeps within the limit: the peak of the action at its new place, and those of the
 * actions that it passes. */
static bool shift_fits(struct pen_search_timeline *timeline, uint32_t rank, uint32_t from,
                       uint32_t to) {
  const struct pen_search_problem *search = timeline->search;
  if (!search->budget->limited) return true;
  const uint32_t *list = timeline->list + (size_t)rank * search->count;
  const double *held = held_by(timeline, rank);
  const struct pen_hold *moved = &type_of(timeline, list[from])->hold;
  double more = to < from ? moved->remains : -moved->remains;
  double before = to < from ? held[to] : held[to + 1] - moved->remains;
  uint32_t first = to < from ? to : from + 1, past = to < from ? from : to + 1;
  if (!may_hold(search, rank, before + moved->peak)) return false;
  for (uint32_t i = first; more > 0 && i < past; i++)
    if (!may_hold(search, rank, held[i] + more + type_of(timeline, list[i])->hold.peak))
      return false;
  return true;
}

static void shift_action(struct pen_search_timeline *timeline, uint32_t rank, uint32_t from,
                         uint32_t to) {
  const struct pen_search_problem *search = timeline->search;
  uint32_t *list = timeline->list + (size_t)rank * search->count, cell = list[from];
  double *held = held_by(timeline, rank), remains = type_of(timeline, cell)->hold.remains;
  for (uint32_t i = from; i > to; i--) {
    list[i] = list[i - 1];
    timeline->place[list[i]] = i;
    held[i] = held[i - 1] + remains;
  }
  for (uint32_t i = from; i < to; i++) {
    list[i] = list[i + 1];
    timeline->place[list[i]] = i;
    held[i + 1] = held[i + 2] - remains;
  }
  list[to] = cell;
  timeline->place[cell] = to;
}

/* The cell of the I that belongs to a W. */
static uint32_t backward_of(const struct pen_search_problem *search, uint32_t cell) {
  return cell - search->stage_count * search->microbatch_count;
}

/* Removes a W, so that its I means B, or inserts it. False: the rank then holds too much. */
static bool change_split(struct pen_search_timeline *timeline, const struct pen_search_move *m) {
  const struct pen_search_problem *search = timeline->search;
  uint32_t *list = timeline->list + (size_t)m->rank * search->count,
           *length = &timeline->length[m->rank];
  uint32_t input = backward_of(search, m->cell), type = search->cell[m->cell].type;
  if (m->to == PEN_NONE) {
    memmove(list + m->from, list + m->from + 1, (--*length - m->from) * sizeof *list);
    list[*length] = PEN_NONE;
    timeline->place[m->cell] = PEN_NONE;
    timeline->cell[input].type = type + search->stage_count;
  } else {
    memmove(list + m->to + 1, list + m->to, ((*length)++ - m->to) * sizeof *list);
    list[m->to] = m->cell;
    timeline->cell[input].type = type - search->stage_count;
  }
  return index_from(timeline, m->rank, timeline->place[input]);
}

static bool changes_split(const struct pen_search_move *m) {
  return m->from == PEN_NONE || m->to == PEN_NONE;
}

/* ---- allowed places ---- */

/* The places that an action may move to. */
struct reach {
  const struct pen_search_timeline *timeline;
  uint32_t lowest, highest;
};

static uint32_t place_of(const struct pen_search_timeline *timeline, uint32_t kind, uint32_t stage,
                         uint32_t microbatch) {
  return timeline->place[pen_search_cell_of(timeline->search, kind, stage, microbatch)];
}

static void bound_below(struct reach *reach, uint32_t kind, uint32_t stage, uint32_t microbatch) {
  uint32_t place = place_of(reach->timeline, kind, stage, microbatch);
  if (place != PEN_NONE && place + 1 > reach->lowest) reach->lowest = place + 1;
}

static void bound_above(struct reach *reach, uint32_t kind, uint32_t stage, uint32_t microbatch) {
  uint32_t place = place_of(reach->timeline, kind, stage, microbatch);
  if (place != PEN_NONE && place - 1 < reach->highest) reach->highest = place - 1;
}

/* Keeps the weight gradients in ascending order; a B is also the place of its W. */
static void bound_ascending(struct reach *reach, uint32_t kind, uint32_t stage,
                            uint32_t microbatch) {
  const struct pen_search_timeline *timeline = reach->timeline;
  bool whole =
      kind == PEN_PROGRAM_I && place_of(timeline, PEN_PROGRAM_W, stage, microbatch) == PEN_NONE;
  if (microbatch > 0) {
    bound_below(reach, kind, stage, microbatch - 1);
    if (whole) bound_below(reach, PEN_PROGRAM_W, stage, microbatch - 1);
  }
  if (microbatch + 1 < timeline->search->microbatch_count) {
    bool next_whole =
        kind == PEN_PROGRAM_W && place_of(timeline, kind, stage, microbatch + 1) == PEN_NONE;
    bound_above(reach, next_whole ? PEN_PROGRAM_I : kind, stage, microbatch + 1);
  }
}

void pen_search_reach(const struct pen_search_timeline *timeline, uint32_t cell, uint32_t *lowest,
                      uint32_t *highest) {
  const struct pen_search_problem *search = timeline->search;
  uint32_t microbatch = cell % search->microbatch_count, type = cell / search->microbatch_count;
  uint32_t stage = type % search->stage_count, kind = type / search->stage_count,
           last = search->stage_count - 1;
  const uint32_t *rank_of = search->partition->rank_of;
  uint32_t rank = rank_of[stage];
  struct reach reach = {timeline, 0, timeline->length[rank] - 1};
  bound_ascending(&reach, kind, stage, microbatch);
  if (kind > PEN_PROGRAM_F) bound_below(&reach, kind - 1, stage, microbatch);
  if (kind < PEN_PROGRAM_W) bound_above(&reach, kind + 1, stage, microbatch);
  bool below = stage > 0 && rank_of[stage - 1] == rank,
       above = stage < last && rank_of[stage + 1] == rank;
  if (kind == PEN_PROGRAM_F && below) bound_below(&reach, kind, stage - 1, microbatch);
  if (kind == PEN_PROGRAM_F && above) bound_above(&reach, kind, stage + 1, microbatch);
  if (kind == PEN_PROGRAM_I && below) bound_above(&reach, kind, stage - 1, microbatch);
  if (kind == PEN_PROGRAM_I && above) bound_below(&reach, kind, stage + 1, microbatch);
  *lowest = reach.lowest;
  *highest = timeline->place[cell] == PEN_NONE ? reach.highest + 1 : reach.highest;
}

bool pen_search_may_leave(const struct pen_search_timeline *timeline, uint32_t cell) {
  const struct pen_search_problem *search = timeline->search;
  if (!search->whole[cell / search->microbatch_count % search->stage_count]) return false;
  if (cell % search->microbatch_count == 0 || timeline->place[cell - 1] == PEN_NONE) return true;
  return timeline->place[cell - 1] < timeline->place[backward_of(search, cell)];
}

/* ---- times ---- */

/* The first of a rank's actions that starts at `time` or later, by the accepted times. */
static uint32_t first_from(const struct pen_search_timeline *timeline, uint32_t rank, double time) {
  const uint32_t *list = timeline->list + (size_t)rank * timeline->search->count;
  uint32_t low = 0, high = timeline->length[rank];
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (timeline->times[list[middle]].start < time)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Times a rank's list from its current action to the end or to one whose input is not complete.
 * Pushes the ranks that waited for its cells. False: the rank's idle time exceeds `most`. */
static bool run_rank(struct pen_search_timeline *timeline, uint32_t rank, double since, double most,
                     uint32_t *stacked) {
  const struct pen_search_problem *search = timeline->search;
  const uint32_t *list = timeline->list + (size_t)rank * search->count;
  struct pen_search_trial *trial = timeline->trial;
  uint64_t epoch = timeline->epoch;
  uint32_t i = timeline->at[rank], first = i;
  double end = search->before[rank], idle = search->by_span ? 0 : end;
  if (i > 0) {
    uint32_t cell = list[i - 1];
    const struct pen_search_times *last =
        i == timeline->from[rank] ? &timeline->times[cell] : &trial[cell].times;
    end = last->start + type_of(timeline, cell)->cost;
    idle = last->idle;
  }
  for (; i < timeline->length[rank]; i++) {
    uint32_t cell = list[i], need = timeline->cell[cell].need;
    double ready = timeline->times[need].arrival;
    if (timeline->times[need].start >= since) {
      if (trial[need].epoch != epoch) {
        timeline->waits[rank] = need;
        break;
      }
      ready = trial[need].times.arrival;
    }
    double start = ready > end ? ready : end;
    if (i > 0 || !search->by_span) idle += start - end;
    if (idle > most) return false;
    const struct pen_search_type *type = type_of(timeline, cell);
    end = start + type->cost;
    idle += type->beyond;
    trial[cell] = (struct pen_search_trial){{start, end + type->send, idle}, epoch};
    uint32_t consumer = type->consumer;
    if (consumer != PEN_NONE && timeline->waits[consumer] == cell) {
      timeline->waits[consumer] = PEN_NONE;
      timeline->stack[(*stacked)++] = consumer;
    }
  }
  memcpy(timeline->turn + timeline->turns, list + first, (i - first) * sizeof *list);
  timeline->turns += i - first;
  timeline->work += i - first;
  timeline->at[rank] = i;
  return true;
}

/* Times all actions that start at `since` or later, those of the moved rank from index `from` on;
 * if `since` is below 0, all actions. */
static bool run_from(struct pen_search_timeline *timeline, double since, uint32_t moved,
                     uint32_t from, double most, struct pen_search_value *value) {
  const struct pen_search_problem *search = timeline->search;
  uint32_t stacked = 0;
  timeline->epoch++;
  timeline->turns = 0;
  for (uint32_t rank = search->rank_count; rank-- > 0;) {
    timeline->from[rank] = timeline->at[rank] = since < 0       ? 0
                                                : rank == moved ? from
                                                                : first_from(timeline, rank, since);
    timeline->waits[rank] = PEN_NONE;
    if (timeline->at[rank] < timeline->length[rank]) timeline->stack[stacked++] = rank;
  }
  while (stacked > 0) {
    uint32_t rank = timeline->stack[--stacked];
    double fixed = search->work[rank] + (search->by_span ? 0 : search->after[rank]);
    if (!run_rank(timeline, rank, since, most - fixed, &stacked)) return false;
  }
  *value = (struct pen_search_value){-INFINITY, 0, -INFINITY};
  for (uint32_t rank = 0; rank < search->rank_count; rank++) {
    if (timeline->at[rank] < timeline->length[rank]) return false;
    uint32_t last = timeline->list[(size_t)rank * search->count + timeline->length[rank] - 1];
    double idle = timeline->from[rank] < timeline->length[rank] ? timeline->trial[last].times.idle
                                                                : timeline->times[last].idle;
    uint32_t head = timeline->list[(size_t)rank * search->count];
    double start =
        timeline->from[rank] == 0 ? timeline->trial[head].times.start : timeline->times[head].start;
    double lasts = search->work[rank] + idle, after = search->after[rank];
    value->greatest = fmax(value->greatest, lasts + (search->by_span ? 0 : after));
    value->mean += lasts / search->rank_count;
    value->other = fmax(value->other, lasts + (search->by_span ? start + after : -start));
  }
  return true;
}

void pen_search_keep(struct pen_search_timeline *timeline) {
  const struct pen_search_problem *search = timeline->search;
  for (uint32_t rank = 0; rank < search->rank_count; rank++) {
    const uint32_t *list = timeline->list + (size_t)rank * search->count;
    for (uint32_t i = timeline->from[rank]; i < timeline->length[rank]; i++)
      timeline->times[list[i]] = timeline->trial[list[i]].times;
  }
}

/* Copies the lists; sets the places, and which I mean B. False: a rank holds too much. */
static bool take_lists(struct pen_search_timeline *timeline, const uint32_t *list) {
  const struct pen_search_problem *search = timeline->search;
  bool fits = true;
  memcpy(timeline->list, list, (size_t)search->rank_count * search->count * sizeof *list);
  memcpy(timeline->cell, search->cell, search->cell_count * sizeof *timeline->cell);
  for (uint32_t cell = 0; cell < search->cell_count; cell++) timeline->place[cell] = PEN_NONE;
  for (uint32_t rank = 0; rank < search->rank_count; rank++) {
    const uint32_t *own = timeline->list + (size_t)rank * search->count;
    uint32_t *length = &timeline->length[rank];
    for (*length = 0; *length < search->count && own[*length] != PEN_NONE; ++*length)
      timeline->place[own[*length]] = *length;
  }
  for (uint32_t cell = pen_search_cell_of(search, PEN_PROGRAM_W, 0, 0); cell < search->cell_count;
       cell++)
    if (timeline->place[cell] == PEN_NONE)
      timeline->cell[backward_of(search, cell)].type += 2 * search->stage_count;
  for (uint32_t rank = 0; rank < search->rank_count; rank++) {
    held_by(timeline, rank)[0] = 0;
    fits &= index_from(timeline, rank, 0);
  }
  return fits;
}

bool pen_search_set(struct pen_search_timeline *timeline, const uint32_t *list,
                    struct pen_search_value *value) {
  const struct pen_search_problem *search = timeline->search;
  bool fits = take_lists(timeline, list);
  for (uint32_t cell = 0; cell < search->cell_count; cell++)
    timeline->times[cell].start = INFINITY; /* no times are accepted yet */
  if (!fits || !run_from(timeline, -1, 0, 0, INFINITY, value)) return false;
  pen_search_keep(timeline);
  return true;
}

void pen_search_undo(struct pen_search_timeline *timeline, const struct pen_search_move *m) {
  if (!changes_split(m)) {
    shift_action(timeline, m->rank, m->to, m->from);
    return;
  }
  (void)change_split(timeline, &(struct pen_search_move){m->rank, m->cell, m->to, m->from});
}

bool pen_search_try(struct pen_search_timeline *timeline, const struct pen_search_move *m,
                    double most, struct pen_search_value *value) {
  const struct pen_search_problem *search = timeline->search;
  const uint32_t *list = timeline->list + (size_t)m->rank * search->count;
  uint32_t first = m->from < m->to ? m->from : m->to;
  if (changes_split(m)) {
    first = timeline->place[backward_of(search, m->cell)];
    if (!change_split(timeline, m)) {
      pen_search_undo(timeline, m);
      return false;
    }
  } else {
    if (!shift_fits(timeline, m->rank, m->from, m->to)) return false;
    shift_action(timeline, m->rank, m->from, m->to);
  }
  double since =
      first > 0 ? timeline->times[list[first - 1]].start + type_of(timeline, list[first - 1])->cost
                : 0;
  /* Actions without cost may start at that time and precede the first that changes: they are timed
   * again. */
  while (first > 0 && timeline->times[list[first - 1]].start >= since) first--;
  if (run_from(timeline, since, m->rank, first, most, value)) return true;
  pen_search_undo(timeline, m);
  return false;
}
