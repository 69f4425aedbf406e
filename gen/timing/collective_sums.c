/* collective_sums.c: the collectives of each rank in a simulated step, by kind.
 *
 * A collective is hidden as long as its rank could do nothing else: before an action whose input
 * has not arrived, and after the last one while others still compute. What is left is exposed. A
 * collective that is hidden on its own rank may still delay others, by the message that comes
 * later; `exposed` of struct pen_timing is what all of them add to the step. */
#include "gen/timing/collective_sums.h"

#include <math.h>

#include "gen/base/arena.h"
#include "gen/timing/cost.h"

struct sums {
  const struct pen_order *order;
  const struct pen_timing *timing;
  const struct pen_partition *partition;
  const struct pen_stage_cost *cost;
  const struct pen_collective_cost *collective;
  double *end[2]; /* F, backward: [stage * microbatches + microbatch] */
  struct pen_collective_sum *sum;
};

static size_t cell_of(const struct sums *s, uint32_t stage, uint32_t microbatch) {
  return (size_t)stage * s->partition->microbatch_count + microbatch;
}

/* Returns the end of the last compute action of all ranks. */
static double find_ends(struct sums *s) {
  double last = 0;
  for (int backward = 0; backward < 2; backward++)
    s->end[backward] = pen_new(cell_of(s, s->partition->stage_count, 0), sizeof(double));
  for (uint32_t rank = 0; rank < s->order->rank_count; rank++)
    for (uint32_t i = 0; i < s->order->count[rank]; i++) {
      const struct pen_compute *action = &s->order->action[rank][i];
      if (action->kind > PEN_W) continue;
      last = fmax(last, s->timing->end[rank][i]);
      if (action->kind != PEN_W)
        s->end[action->kind != PEN_F][cell_of(s, action->stage, action->microbatch)] =
            s->timing->end[rank][i];
    }
  return last;
}

/* When the message that an action reads arrives; 0: it reads none. */
static double arrival_of(const struct sums *s, uint32_t rank, const struct pen_compute *action) {
  bool forward = action->kind == PEN_F;
  if (action->kind == PEN_W ||
      (forward ? action->stage == 0 : action->stage + 1u == s->partition->stage_count))
    return 0;
  uint32_t sender = forward ? action->stage - 1u : action->stage + 1u;
  return s->end[!forward][cell_of(s, sender, action->microbatch)] +
         pen_send_cost(s->partition, s->cost, sender, rank);
}

static struct pen_collective_sum *sum_of(const struct sums *s, uint32_t rank,
                                         const struct pen_compute *action) {
  bool weights = action->kind == PEN_UNSHARD || action->kind == PEN_ALL_GATHER_WEIGHT;
  return &s->sum[rank * PEN_COLLECTIVE_KINDS + (weights ? PEN_KIND_weights : PEN_KIND_gradients)];
}

/* Adds the collectives from index `first` to `past`; `ready`: from when on they are exposed. */
static void add_exposed(const struct sums *s, uint32_t rank, uint32_t first, uint32_t past,
                        double ready) {
  for (uint32_t i = first; i < past; i++) {
    const struct pen_compute *action = &s->order->action[rank][i];
    struct pen_collective_sum *sum = sum_of(s, rank, action);
    sum->calls++;
    sum->bytes += s->collective[action->stage].sent[pen_collective_index(action->kind)];
    sum->exposed += fmax(0, s->timing->end[rank][i] - fmax(s->timing->start[rank][i], ready));
  }
}

/* Adds the collectives within an action; exposed is by how much they lengthen it. */
static void add_within(const struct sums *s, uint32_t rank, const struct pen_compute *action) {
  static const int kinds[PEN_WITHIN] = {[PEN_WITHIN_WEIGHTS] = PEN_KIND_weights,
                                        [PEN_WITHIN_GRADIENTS] = PEN_KIND_gradients,
                                        [PEN_WITHIN_TENSOR] = PEN_KIND_tensor};
  for (int k = 0; k < PEN_WITHIN && s->collective; k++) {
    const struct pen_collectives_within *within =
        &s->collective[action->stage].within[pen_program_of(action->kind)][k];
    struct pen_collective_sum *sum = &s->sum[rank * PEN_COLLECTIVE_KINDS + (uint32_t)kinds[k]];
    sum->calls += within->calls;
    sum->bytes += within->sent;
    sum->exposed += within->exposed;
  }
}

static void add_rank(const struct sums *s, uint32_t rank, double last) {
  const struct pen_compute *action = s->order->action[rank];
  uint32_t first = 0; /* of the collectives since the last compute action */
  for (uint32_t i = 0; i < s->order->count[rank]; i++) {
    if (action[i].kind > PEN_W) continue;
    add_within(s, rank, &action[i]);
    double ready = arrival_of(s, rank, &action[i]);
    if (action[i].overlaps) ready = fmax(ready, arrival_of(s, rank, &action[i + 1]));
    add_exposed(s, rank, first, i, ready);
    first = i + 1;
  }
  add_exposed(s, rank, first, s->order->count[rank], last);
}

/* ---- the tied matrix ---- */

/* The end of a rank's actions and collectives. */
static double rank_end(const struct sums *s, uint32_t rank) {
  uint32_t count = s->order->count[rank];
  return count ? s->timing->end[rank][count - 1] : 0;
}

/* The head's rank sends its gradient, the embedding's adds, updates and sends the value back, as in
 * pen_tied_weight_tail(): both wait after all actions. */
static void expose_tied(const struct sums *s, const struct pen_training *training) {
  uint32_t last = s->partition->stage_count - 1, owner = s->partition->rank_of[0],
           head = s->partition->rank_of[last];
  double all = 0;
  for (uint32_t rank = 0; rank < s->order->rank_count; rank++) all = fmax(all, rank_end(s, rank));
  double arrives = rank_end(s, head) + pen_send_cost(s->partition, s->cost, last, owner);
  double updated = fmax(arrives, training->waits_for_norm ? all : rank_end(s, owner));
  double returns = updated + pen_send_cost(s->partition, s->cost, 0, head);
  s->sum[owner * PEN_COLLECTIVE_KINDS + PEN_KIND_tied].exposed = fmax(0, arrives - all);
  s->sum[head * PEN_COLLECTIVE_KINDS + PEN_KIND_tied].exposed = fmax(0, returns - all);
}

static void add_tied(const struct sums *s, const struct pen_plan *plan,
                     const struct pen_training *training) {
  const struct pen_profile *profile = &plan->profiles[0];
  bool any = false;
  for (uint32_t index = 0; index < profile->message_count; index++) {
    const struct pen_message *message = &profile->messages[index];
    if (message->kind != PEN_SEND_G && message->kind != PEN_SEND_V) continue;
    uint32_t rank = profile->channels[message->channel].from_rank;
    s->sum[rank * PEN_COLLECTIVE_KINDS + PEN_KIND_tied].calls++;
    s->sum[rank * PEN_COLLECTIVE_KINDS + PEN_KIND_tied].bytes += message->bytes;
    any = true;
  }
  if (any) expose_tied(s, training);
}

struct pen_collective_sum *pen_collective_sums(
    const struct pen_plan *plan, const struct pen_order *order, const struct pen_timing *timing,
    const struct pen_partition *partition, const struct pen_training *training,
    const struct pen_stage_cost *cost, const struct pen_collective_cost *collective) {
  struct sums s = {.order = order,
                   .timing = timing,
                   .partition = partition,
                   .cost = cost,
                   .collective = collective,
                   .sum = pen_new((size_t)order->rank_count * PEN_COLLECTIVE_KINDS, sizeof *s.sum)};
  double last = find_ends(&s);
  for (uint32_t rank = 0; rank < order->rank_count; rank++) add_rank(&s, rank, last);
  add_tied(&s, plan, training);
  for (int backward = 0; backward < 2; backward++) pen_free(s.end[backward]);
  return s.sum;
}
