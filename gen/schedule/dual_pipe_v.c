/* dual_pipe_v.c: the DualPipeV schedule. */
#include "gen/schedule/internal.h"
#include "gen/base/arena.h"
#include "gen/schedule/order.h"
#include "runtime/plan/plan.h"
#include "gen/topology/message.h"

/* How far one rank has come: of its two stages, down (rank r) and up (2P-1-r), the next forward and
 * the next backward; and the backwards whose W waits, oldest first. */
struct state {
  const struct pen_composer *composer;
  uint32_t rank;
  uint32_t next_forward[2], next_backward[2]; /* [down, up] */
  struct pen_compute *waiting;                /* stage is the local one */
  uint32_t waiting_count, done_count;
};
enum { DOWN, UP };

static void forward(struct state *state, uint32_t local) {
  pen_order_add(state->composer, state->rank, PEN_F, local, state->next_forward[local]++);
}

static void whole_backward(struct state *state, uint32_t local) {
  pen_order_add(state->composer, state->rank, PEN_B, local, state->next_backward[local]++);
}

/* I now, W in its turn. */
static void split_backward(struct state *state, uint32_t local) {
  uint32_t microbatch = state->next_backward[local]++;
  pen_order_add(state->composer, state->rank, PEN_I, local, microbatch);
  state->waiting[state->waiting_count++] =
      (struct pen_compute){.stage = (uint16_t)local, .microbatch = microbatch};
}

static void oldest_weight(struct state *state) {
  const struct pen_compute *oldest = &state->waiting[state->done_count++];
  pen_order_add(state->composer, state->rank, PEN_W, oldest->stage, oldest->microbatch);
}

/* A forward of one stage and a backward of the other, side by side. */
static void pair(struct state *state, uint32_t forward_local, uint32_t backward_local) {
  forward(state, forward_local);
  pen_order_overlap(state->composer, state->rank);
  whole_backward(state, backward_local);
}

/* Of rank r among P with m microbatches, F, I, W and B each of the next microbatch of its stage, W
 * of the oldest I that waits for it: fill     2(P-1-r) times F down; r+1 times F down, F up; P-1-r
 * times I up, W, F up; hold     m-2P+r+1 times the pairs F down | B up and F up | B down (the last
 * rank runs its first F down, B up in turn: a pair would wait for both); drain    P-1-r times B up
 * and the pair F up | B down; r+1 times a backward up and one down, of which the first half are B,
 * the others I; P-1-r times W, I down; r+1 times W. Forwards and backwards come down and go up at
 * the same time, so that each hides the messages of the other. Source: DeepSeek-AI, DeepSeek-V3
 * Technical Report, 2024, arXiv 2412.19437, section 3.2.1 (DualPipe); cut in half to a V as in
 * github.com/deepseek-ai/DualPipe; the exact order is that of PyTorch's ScheduleDualPipeV and d9d's
 * dual_pipe_v. */
static void compose_rank(struct state *state) {
  uint32_t ranks = state->composer->rank_count, rank = state->rank, others = ranks - 1 - rank;
  for (uint32_t n = 0; n < 2 * others; n++) forward(state, DOWN);
  for (uint32_t n = 0; n < rank + 1; n++) {
    forward(state, DOWN);
    forward(state, UP);
  }
  for (uint32_t n = 0; n < others; n++) {
    split_backward(state, UP);
    oldest_weight(state);
    forward(state, UP);
  }
  for (uint32_t n = 0; n < state->composer->microbatch_count - 2 * ranks + rank + 1; n++) {
    if (n == 0 && rank == ranks - 1) {
      forward(state, DOWN);
      whole_backward(state, UP);
    } else {
      pair(state, DOWN, UP);
    }
    pair(state, UP, DOWN);
  }
  for (uint32_t n = 0; n < others; n++) {
    whole_backward(state, UP);
    pair(state, UP, DOWN);
  }
  for (uint32_t n = 0; n < 2 * (rank + 1); n++) {
    uint32_t local = n % 2 ? DOWN : UP;
    if (n < rank + 1)
      whole_backward(state, local);
    else
      split_backward(state, local);
  }
  for (uint32_t n = 0; n < others; n++) {
    oldest_weight(state);
    split_backward(state, DOWN);
  }
  for (uint32_t n = 0; n < rank + 1; n++) oldest_weight(state);
}

bool pen_dual_pipe_v_suits(uint32_t ranks, uint32_t stages_per_rank, uint32_t microbatches) {
  (void)stages_per_rank;
  return microbatches >= 2 * ranks;
}

void pen_compose_dual_pipe_v(const struct pen_composer *composer) {
  if (!pen_dual_pipe_v_suits(composer->rank_count, composer->stages_per_rank,
                             composer->microbatch_count))
    pen_topology_fail(composer->topology, "pipeline.microbatches",
                      "with the schedule dual_pipe_v at least 2 x ranks = %u",
                      2 * composer->rank_count);
  struct pen_compute *waiting = pen_new(2 * (size_t)composer->microbatch_count, sizeof *waiting);
  for (uint32_t rank = 0; rank < composer->rank_count; rank++)
    compose_rank(&(struct state){.composer = composer, .rank = rank, .waiting = waiting});
}
