/* critical_path.c: the critical path of a simulated step (see critical_path.h).
 *
 * Every action of the simulator starts for one reason: its rank came free, or a message came. Both
 * are a sum of doubles that the simulator formed, and the same sum formed again has the same bits;
 * so the reason is found by comparing for equality, from the action that ends last back to one that
 * starts with the step. There is no slack on the way: costs and latencies add up to the makespan.
 * This is the longest path of the graph of actions and messages (Kelley and Walker, "Critical-path
 * planning and scheduling", 1959), read off the times instead of searched for: each step back is
 * O(1).
 *
 * Rows of the exchange between replicas are actions like others: they wait for their own rank
 * alone.
 *
 * What has to become shorter for the step to become shorter stands on this path (on every such
 * path, where there are several). */
#include <stdio.h>

#include "gen/timing/critical_path.h"

#include "gen/schedule/action_text.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

struct search {
  const struct pen_order *order;
  const struct pen_partition *partition;
  const struct pen_training *training;
  const struct pen_stage_cost *cost;
  const struct pen_timing *timing;
  uint32_t *place[2]; /* F, backward: [stage * microbatches + microbatch]: index in the list of the
                         stage's rank */
};

static void find_places(struct search *search) {
  size_t cells = (size_t)search->partition->stage_count * search->partition->microbatch_count;
  for (int backward = 0; backward < 2; backward++)
    search->place[backward] = pen_new(cells, sizeof(uint32_t));
  for (uint32_t rank = 0; rank < search->order->rank_count; rank++)
    for (uint32_t index = 0; index < search->order->count[rank]; index++) {
      const struct pen_compute *action = &search->order->action[rank][index];
      if (action->kind >= PEN_W) continue;
      search->place[action->kind != PEN_F]
                   [(size_t)action->stage * search->partition->microbatch_count +
                    action->microbatch] = index;
    }
}

/* The stage on another rank that sends what an action reads, or PEN_NONE. */
static uint32_t sender_of(const struct search *search, uint32_t rank,
                          const struct pen_compute *action) {
  uint32_t sender = PEN_NONE;
  if (action->kind == PEN_F && action->stage > 0) sender = action->stage - 1u;
  if ((action->kind == PEN_B || action->kind == PEN_I) &&
      action->stage + 1u < search->partition->stage_count)
    sender = action->stage + 1u;
  return sender != PEN_NONE && search->partition->rank_of[sender] != rank ? sender : PEN_NONE;
}

/* Sets the first action of what runs at `index`: a pair begins one before its second half. */
static struct pen_path_step step_at(const struct search *search, uint32_t rank, uint32_t index) {
  const struct pen_compute *action = search->order->action[rank];
  if (index > 0 && action[index - 1].overlaps) index--;
  bool pair = action[index].overlaps && index + 1 < search->order->count[rank];
  return (struct pen_path_step){
      rank, index, pair, search->timing->start[rank][index], search->timing->end[rank][index], 0};
}

/* Goes from a step to the one that it waited for; sets the step's `sent`. False: it waited for
 * nothing, the step begins here. */
static bool go_back(const struct search *search, struct pen_path_step *step,
                    struct pen_path_step *before) {
  if (step->index > 0 && search->timing->end[step->rank][step->index - 1] == step->start) {
    *before = step_at(search, step->rank, step->index - 1);
    return true;
  }
  for (uint32_t index = step->index; index <= step->index + step->pair; index++) {
    const struct pen_compute *action = &search->order->action[step->rank][index];
    uint32_t sender = sender_of(search, step->rank, action);
    if (sender == PEN_NONE) continue;
    size_t cell = (size_t)sender * search->partition->microbatch_count + action->microbatch;
    struct pen_path_step made = step_at(search, search->partition->rank_of[sender],
                                        search->place[action->kind != PEN_F][cell]);
    if (made.end + search->cost[sender].send != step->start) continue;
    step->sent = search->cost[sender].send;
    *before = made;
    return true;
  }
  return false;
}

/* What ends the step; `rest`: what follows it on its rank. */
static struct pen_path_step last_step(const struct search *search, double *rest) {
  struct pen_path_step last = {.end = -1};
  double *after = pen_tied_weight_tail(search->partition, search->training, search->cost),
         latest = -1;
  for (uint32_t rank = 0; rank < search->order->rank_count; rank++) {
    uint32_t count = search->order->count[rank];
    if (count == 0 || search->timing->end[rank][count - 1] + after[rank] <= latest) continue;
    last = step_at(search, rank, count - 1);
    latest = last.end + after[rank];
  }
  *rest = last.end >= 0 ? after[last.rank] : 0;
  pen_free(after);
  return last;
}

/* Turns the steps, found from the end, and sums up. */
static void conclude(struct pen_path *path) {
  for (size_t i = 0; i < path->count / 2; i++) {
    struct pen_path_step other = path->step[i];
    path->step[i] = path->step[path->count - 1 - i];
    path->step[path->count - 1 - i] = other;
  }
  path->leg = pen_new(path->count + 1, sizeof *path->leg);
  for (size_t i = 0; i < path->count; i++) {
    const struct pen_path_step *step = &path->step[i];
    path->compute += step->end - step->start;
    path->sent += step->sent;
    if (i == 0 || step->rank != path->step[i - 1].rank)
      path->leg[path->leg_count++] = (struct pen_path_leg){step->rank, i, 0};
    path->leg[path->leg_count - 1].count++;
  }
}

struct pen_path *pen_critical_path(const struct pen_order *order,
                                   const struct pen_partition *partition,
                                   const struct pen_training *training,
                                   const struct pen_stage_cost *cost,
                                   const struct pen_timing *timing) {
  struct search search = {
      .order = order, .partition = partition, .training = training, .cost = cost, .timing = timing};
  struct pen_path *path = pen_new(1, sizeof *path);
  size_t capacity = 0;
  find_places(&search);
  struct pen_path_step before = last_step(&search, &path->after);
  for (bool more = before.end >= 0; more;) {
    struct pen_path_step step = before;
    more = go_back(&search, &step, &before);
    path->step = pen_grow(path->step, &capacity, path->count + 1, sizeof *path->step);
    path->step[path->count++] = step;
  }
  conclude(path);
  return path;
}

/* ---- in words ---- */

static const char *step_text(const struct pen_path_step *step, const struct pen_order *order,
                             char text[32]) {
  const struct pen_compute *action = &order->action[step->rank][step->index];
  return pen_action_format(text, action->kind, action->stage, action->microbatch);
}

static void print_leg(FILE *out, const struct pen_path *path, const struct pen_path_leg *leg,
                      const struct pen_order *order) {
  const struct pen_path_step *first = &path->step[leg->first], *last = first + leg->count - 1;
  char text[32], actions[72];
  if (leg->count == 1) {
    snprintf(actions, sizeof actions, "%s", step_text(first, order, text));
  } else {
    int used = snprintf(actions, sizeof actions, "%s ... ", step_text(first, order, text));
    snprintf(actions + used, sizeof actions - (size_t)used, "%s", step_text(last, order, text));
  }
  fprintf(out, "  rank %-4u %-20s %6zu action%s %10.4g to %.4g", leg->rank, actions, leg->count,
          leg->count == 1 ? " " : "s", first->start, last->end);
  if (first->sent > 0) fprintf(out, ", after a message of %.4g", first->sent);
  fputc('\n', out);
}

void pen_path_print(FILE *out, const struct pen_path *path, const struct pen_order *order,
                    size_t lines) {
  fprintf(out, "critical path: %zu actions, %.6g of computation and %.6g of messages", path->count,
          path->compute, path->sent);
  if (path->after > 0) fprintf(out, ", then %.6g of the tied matrix's", path->after);
  fputc('\n', out);
  size_t shown = lines == 0 || path->leg_count <= lines ? path->leg_count : lines / 2;
  for (size_t i = 0; i < shown; i++) print_leg(out, path, &path->leg[i], order);
  if (shown == path->leg_count) return;
  fprintf(out, "  ... %zu more changes of rank ...\n", path->leg_count - 2 * shown);
  for (size_t i = path->leg_count - shown; i < path->leg_count; i++)
    print_leg(out, path, &path->leg[i], order);
}
