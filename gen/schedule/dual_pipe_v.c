/* dual_pipe_v.c: the DualPipeV schedule. */
#include "gen/schedule/internal.h"
#include "gen/base/arena.h"
#include "gen/schedule/order.h"
#include "runtime/plan/plan.h"
#include "gen/topology/message.h"

/* The progress of one rank: the next forward and backward of its two stages, down (stage r) and up
 * (stage 2P-1-r), and the backwards with an outstanding W, oldest first. */
struct dual_pipe {
  const struct pen_composer *composer;
  uint32_t rank;
  uint32_t next_forward[2], next_backward[2]; /* [down, up] */
  struct pen_compute *waiting;                /* with local stages */
  uint32_t waiting_count, done_count;
};
enum { DOWN, UP };

static void run_forward(struct dual_pipe *pipe, uint32_t local) {
  pen_order_add(pipe->composer, pipe->rank, PEN_F, local, pipe->next_forward[local]++);
}

static void run_whole_backward(struct dual_pipe *pipe, uint32_t local) {
  pen_order_add(pipe->composer, pipe->rank, PEN_B, local, pipe->next_backward[local]++);
}

/* Runs I; W stays outstanding. */
static void run_split_backward(struct dual_pipe *pipe, uint32_t local) {
  uint32_t microbatch = pipe->next_backward[local]++;
  pen_order_add(pipe->composer, pipe->rank, PEN_I, local, microbatch);
  pipe->waiting[pipe->waiting_count++] =
      (struct pen_compute){.stage = (uint16_t)local, .microbatch = microbatch};
}

static void run_oldest_weight(struct dual_pipe *pipe) {
  const struct pen_compute *oldest = &pipe->waiting[pipe->done_count++];
  pen_order_add(pipe->composer, pipe->rank, PEN_W, oldest->stage, oldest->microbatch);
}

/* A forward of one stage that overlaps a backward of the other. */
static void run_pair(struct dual_pipe *pipe, uint32_t forward_local, uint32_t backward_local) {
  run_forward(pipe, forward_local);
  pen_order_overlap(pipe->composer, pipe->rank);
  run_whole_backward(pipe, backward_local);
}

/* Rank r of P, with m microbatches. Each of F, I, W and B is of the next microbatch of its stage; W
 * is of the oldest outstanding I.
 *
 *   fill   2(P-1-r) times F down; r+1 times F down, F up; P-1-r times I up, W, F up
 *   hold   m-2P+r+1 times the pairs F down | B up and F up | B down (the last rank runs its first
 *          F down and B up one after the other, since a pair would have to wait for both)
 *   drain  P-1-r times B up and the pair F up | B down; r+1 times a backward up and one down, the
 *          first half of them B, the others I; P-1-r times W, I down; r+1 times W
 *
 * Forwards and backwards go down and up at the same time, so that each hides the messages of the
 * other. Source: DeepSeek-AI, DeepSeek-V3 Technical Report, 2024, arXiv 2412.19437, section 3.2.1
 * (DualPipe), cut in half to a V as in github.com/deepseek-ai/DualPipe; the exact order is that of
 * PyTorch's ScheduleDualPipeV and d9d's dual_pipe_v. */
static void compose_dual_pipe_rank(struct dual_pipe *pipe) {
  uint32_t ranks = pipe->composer->rank_count, rank = pipe->rank, others = ranks - 1 - rank;
  for (uint32_t n = 0; n < 2 * others; n++) run_forward(pipe, DOWN);
  for (uint32_t n = 0; n < rank + 1; n++) {
    run_forward(pipe, DOWN);
    run_forward(pipe, UP);
  }
  for (uint32_t n = 0; n < others; n++) {
    run_split_backward(pipe, UP);
    run_oldest_weight(pipe);
    run_forward(pipe, UP);
  }
  for (uint32_t n = 0; n < pipe->composer->microbatch_count - 2 * ranks + rank + 1; n++) {
    if (n == 0 && rank == ranks - 1) {
      run_forward(pipe, DOWN);
      run_whole_backward(pipe, UP);
    } else {
      run_pair(pipe, DOWN, UP);
    }
    run_pair(pipe, UP, DOWN);
  }
  for (uint32_t n = 0; n < others; n++) {
    run_whole_backward(pipe, UP);
    run_pair(pipe, UP, DOWN);
  }
  for (uint32_t n = 0; n < 2 * (rank + 1); n++) {
    uint32_t local = n % 2 ? DOWN : UP;
    if (n < rank + 1)
      run_whole_backward(pipe, local);
    else
      run_split_backward(pipe, local);
  }
  for (uint32_t n = 0; n < others; n++) {
    run_oldest_weight(pipe);
    run_split_backward(pipe, DOWN);
  }
  for (uint32_t n = 0; n < rank + 1; n++) run_oldest_weight(pipe);
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
    compose_dual_pipe_rank(
        &(struct dual_pipe){.composer = composer, .rank = rank, .waiting = waiting});
}
