/* exchange.c: where the rows stand by which the replicas of a stage come to one gradient (data_parallel.replicas).
 *
 * REDUCE_GRAD says that a stage's gradient is whole. It costs nothing and never blocks, so it stands right behind the last action that
 * adds to the gradient: the others can then go on. WAIT_GRAD sums; its rank does nothing else meanwhile. It stands before the first
 * action after that for which the simulated rank would wait anyway, so that the sums hide in the bubble at the end of the backward;
 * where there is none, behind the last action. Stages whose gradients are whole earlier are summed earlier.
 *
 * The gradient of a tied matrix is whole behind JOIN, which stands behind all compute actions; so is then its stage's.
 *
 * All replicas run the same lists. Whatever a row waits for stands further up in its own list, hence in its peers': let all replicas run
 * in step along an order in which one replica alone comes to its end, and every row finds what it waits for. So replicas add no
 * deadlock. DDP (Li et al. 2020) overlaps bucket by bucket; a bucket is a stage here. */
#include <stdlib.h>

#include "gen/gen.h"

/* A stage's gradient on its rank: between which compute actions it is whole, and summed. */
struct gradient {
  uint32_t stage, whole, summed;
};

static bool adds(const struct pen_compute *action) { return action->kind == PEN_B || action->kind == PEN_W; }

/* Orders by when the gradient is whole, then by stage. */
static int compare(const void *a, const void *b) {
  const struct gradient *x = a, *y = b;
  if (x->whole != y->whole) return x->whole < y->whole ? -1 : 1;
  return (x->stage > y->stage) - (x->stage < y->stage);
}

/* The gradients of a rank's stages, by when they are whole: before the first action behind the last that adds, which is not the
 * second of a pair. */
static struct gradient *gradients_of(const struct pen_order *order, const struct pen_partition *partition, uint32_t rank, size_t *count) {
  struct gradient *gradient = pen_new(partition->stage_count, sizeof *gradient);
  uint32_t *place = pen_new(partition->stage_count, sizeof *place);
  *count = 0;
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) {
    if (partition->rank_of[stage] != rank) continue;
    place[stage] = (uint32_t)*count;
    gradient[(*count)++] = (struct gradient){stage, 0, order->count[rank]};
  }
  for (uint32_t index = 0; index < order->count[rank]; index++) {
    const struct pen_compute *action = &order->action[rank][index];
    if (adds(action)) gradient[place[action->stage]].whole = index + (action->overlaps ? 2 : 1);
  }
  for (size_t i = 0; i < *count && partition->joins; i++)
    if (gradient[i].stage == 0) gradient[i].whole = gradient[i].summed = PEN_NONE;
  qsort(gradient, *count, sizeof *gradient, compare);
  return gradient;
}

/* Puts the sums of one rank before actions that it would wait for; one such wait takes any number of sums. */
static void hide_sums(struct gradient *gradient, size_t count, const double *start, const double *end, uint32_t actions) {
  size_t next = 0;
  for (uint32_t index = 1; index < actions && next < count; index++) {
    if (start[index] <= end[index - 1]) continue;
    for (; next < count && gradient[next].whole <= index; next++) gradient[next].summed = index;
  }
}

/* The rows of one rank: both kinds stand in the order in which gradients are whole. */
static struct pen_exchange_row *merge_rows(const struct gradient *gradient, size_t count) {
  struct pen_exchange_row *row = pen_new(2 * count, sizeof *row);
  for (size_t whole = 0, summed = 0; summed < count;) {
    bool reduces = whole < count && gradient[whole].whole <= gradient[summed].summed;
    const struct gradient *g = &gradient[reduces ? whole++ : summed];
    row[whole + summed - reduces] = (struct pen_exchange_row){reduces ? g->whole : g->summed, reduces ? PEN_REDUCE_GRAD : PEN_WAIT_GRAD,
                                                              (uint16_t)g->stage};
    summed += !reduces;
  }
  return row;
}

struct pen_exchange *pen_exchange_of(const struct pen_order *order, const struct pen_partition *partition,
                                     const struct pen_timing *timing, int profile_kind) {
  if (partition->replica_count <= 1 || profile_kind != PEN_TRAIN) return NULL;
  struct pen_exchange *exchange = pen_new(1, sizeof *exchange);
  exchange->count = pen_new(order->rank_count, sizeof *exchange->count);
  exchange->row = pen_new(order->rank_count, sizeof *exchange->row);
  for (uint32_t rank = 0; rank < order->rank_count; rank++) {
    size_t count;
    struct gradient *gradient = gradients_of(order, partition, rank, &count);
    if (timing) hide_sums(gradient, count, timing->start[rank], timing->end[rank], order->count[rank]);
    exchange->row[rank] = merge_rows(gradient, count);
    exchange->count[rank] = (uint32_t)(2 * count);
  }
  return exchange;
}
