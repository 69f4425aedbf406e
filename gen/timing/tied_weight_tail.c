/* tied_weight_tail.c: what follows the last action of each rank before a training step is over: the
 * messages of a tied matrix.
 *
 * A matrix that embedding and head share (struct pen_tie) and that learns has two gradients, of two
 * stages. Where these are on two ranks, the head's rank sends its gradient behind its last action;
 * the embedding's rank, when it has run its own last action too, adds both, takes the optimizer's
 * step and sends the new weight back, and with clip_norm it takes the step only when every rank has
 * published its norms. In this model sums, norms and the optimizer's step take no time; a message
 * comes `send` of its stage later. So the step is over
 *
 *     send[0]               after the last action of the embedding's rank; with clip_norm, of any
 *     send[last] + send[0]  after the last action of the head's
 *
 * whichever is latest: a constant for each rank. It counts for the makespan; the span is of actions
 * alone (design.md section 8). */
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/timing/timing.h"

double *pen_tied_weight_tail(const struct pen_partition *partition,
                             const struct pen_training *training,
                             const struct pen_stage_cost *cost) {
  double *after = pen_new(partition->rank_count, sizeof *after);
  uint32_t last = partition->stage_count - 1, owner = partition->rank_of[0],
           head = partition->rank_of[last];
  if (!training->adds_tied_gradient || owner == head) return after;
  for (uint32_t rank = 0; training->waits_for_norm && rank < partition->rank_count; rank++)
    after[rank] = cost[0].send;
  after[owner] = cost[0].send;
  after[head] = cost[last].send + cost[0].send;
  return after;
}
