/* critical_path.c: the critical path of a simulated step (see critical_path.h).
 *
 * An action starts when its rank becomes free or when a message arrives. Both times are sums of
 * doubles that the simulator computed, and the same sum computed again has the same bits; so the
 * cause is found by a test for equality, from the action that ends last back to one that starts
 * with the step. There is no slack on the path: costs and latencies add up to the makespan. It is
 * the longest path of the graph of actions and messages (Kelley and Walker, "Critical-path planning
 * and scheduling", 1959), found from the times: each step back is O(1).
 *
 * Collectives are actions like others: they wait only for their own rank.
 *
 * A step becomes shorter only if an action or message on this path does (or, with several such
 * paths, on each of them). */
#include <stdio.h>

#include "gen/timing/critical_path.h"
#include "gen/timing/cost.h"

#include "gen/schedule/action_text.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

struct path_search {
  const struct pen_order *order;
  const struct pen_partition *partition;
  const struct pen_training *training;
  const struct pen_stage_cost *cost;
  const struct pen_timing *timing;
  uint32_t
      *place[2]; /* F, backward: [stage * microbatches + microbatch]: index in its rank's list */
};

static void find_places(struct path_search *search) {
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

/* The path step that contains an action: of a pair, from the index of its first. */
static struct pen_path_step step_at(const struct path_search *search, uint32_t rank,
                                    uint32_t index) {
  const struct pen_compute *action = search->order->action[rank];
  if (index > 0 && action[index - 1].overlaps) index--;
  bool pair = action[index].overlaps && index + 1 < search->order->count[rank];
  return (struct pen_path_step){
      rank, index, pair, search->timing->start[rank][index], search->timing->end[rank][index], 0};
}

/* Sets `before` to the path step that `step` waited for, and step->sent. False: it waited for none.
 */
static bool find_cause(const struct path_search *search, struct pen_path_step *step,
                       struct pen_path_step *before) {
  if (step->index > 0 && search->timing->end[step->rank][step->index - 1] == step->start) {
    *before = step_at(search, step->rank, step->index - 1);
    return true;
  }
  for (uint32_t index = step->index; index <= step->index + step->pair; index++) {
    const struct pen_compute *action = &search->order->action[step->rank][index];
    uint32_t sender = pen_message_stage(search->partition, action, -1);
    if (sender == PEN_NONE) continue;
    size_t cell = (size_t)sender * search->partition->microbatch_count + action->microbatch;
    struct pen_path_step made = step_at(search, search->partition->rank_of[sender],
                                        search->place[action->kind != PEN_F][cell]);
    double sent = pen_send_cost(search->partition, search->cost, sender, step->rank);
    if (made.end + sent != step->start) continue;
    step->sent = sent;
    *before = made;
    return true;
  }
  return false;
}

/* The path step that ends the step; `rest`: the tail of its rank. */
static struct pen_path_step last_step(const struct path_search *search, double *rest) {
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

/* Reverses the path, which is found from its end, and sets its legs and sums. */
static void complete_path(struct pen_path *path, const struct pen_order *order) {
  for (size_t i = 0; i < path->count / 2; i++) {
    struct pen_path_step other = path->step[i];
    path->step[i] = path->step[path->count - 1 - i];
    path->step[path->count - 1 - i] = other;
  }
  path->leg = pen_new(path->count + 1, sizeof *path->leg);
  for (size_t i = 0; i < path->count; i++) {
    const struct pen_path_step *step = &path->step[i];
    bool computes = order->action[step->rank][step->index].kind <= PEN_W;
    *(computes ? &path->compute : &path->exchanged) += step->end - step->start;
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
  struct path_search search = {
      .order = order, .partition = partition, .training = training, .cost = cost, .timing = timing};
  struct pen_path *path = pen_new(1, sizeof *path);
  find_places(&search);
  struct pen_path_step before = last_step(&search, &path->after);
  for (bool more = before.end >= 0; more;) {
    struct pen_path_step step = before;
    more = find_cause(&search, &step, &before);
    PEN_RESERVE(path->step, path->count + 1);
    path->step[path->count++] = step;
  }
  complete_path(path, order);
  return path;
}

/* ---- as text ---- */

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
  if (path->exchanged > 0) fprintf(out, ", %.6g of collectives", path->exchanged);
  if (path->after > 0) fprintf(out, ", then %.6g of the tied matrix's", path->after);
  fputc('\n', out);
  size_t shown = lines == 0 || path->leg_count <= lines ? path->leg_count : lines / 2;
  for (size_t i = 0; i < shown; i++) print_leg(out, path, &path->leg[i], order);
  if (shown == path->leg_count) return;
  fprintf(out, "  ... %zu more changes of rank ...\n", path->leg_count - 2 * shown);
  for (size_t i = path->leg_count - shown; i < path->leg_count; i++)
    print_leg(out, path, &path->leg[i], order);
}
