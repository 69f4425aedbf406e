/* 1f1b.c: the 1F1B schedule: one or several stages per rank, classic or doubled warm-up, whole or
 * split backward. */
#include "gen/schedule/internal.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"
#include "gen/topology/message.h"
#include "gen/topology/schedule_table.h"

struct interleaving {
  uint32_t stages; /* per rank */
  uint32_t round;  /* microbatches in a round */
  uint32_t total;  /* forwards of a rank */
};

/* The n-th forward of a rank: rounds of microbatches, and within a round stage after stage. A
 * backward has the stages in reverse order. */
static void add_forward(const struct pen_composer *composer, const struct interleaving *shape,
                        uint32_t rank, uint32_t n) {
  uint32_t microbatch = n / (shape->round * shape->stages) * shape->round + n % shape->round;
  pen_order_add(composer, rank, PEN_F, n / shape->round % shape->stages, microbatch);
}

static void add_backward(const struct pen_composer *composer, const struct interleaving *shape,
                         uint32_t rank, int kind, uint32_t n) {
  uint32_t microbatch = n / (shape->round * shape->stages) * shape->round + n % shape->round;
  pen_order_add(composer, rank, kind, shape->stages - 1 - n / shape->round % shape->stages,
                microbatch);
}

static uint32_t rounds_of(uint32_t ranks, uint32_t microbatches) {
  return microbatches / ranks > 1 ? microbatches / ranks : 1;
}

bool pen_1f1b_suits(uint32_t ranks, uint32_t stages_per_rank, uint32_t microbatches) {
  return stages_per_rank == 1 || microbatches % rounds_of(ranks, microbatches) == 0;
}

/* With s stages per rank, rounds = max(1, m div P) must divide m (if s > 1), and a round has
 * R = m / rounds microbatches. Rank r first runs min((s-1) R + warmup (P-1-r), m s) forwards, then
 * one forward and one backward in turn, then the remaining backwards. warmup is 1 (classic) or 2
 * (doubled: a rank runs ahead, so that computation hides the messages). With zero_bubble (zb_h1 and
 * zb_h2 always) the backward is I; after the n-th I (from 0), if n >= warmup r, the oldest
 * outstanding W runs, and the rest of W at the end. The classic bubble is (P-1)/(m+P-1), divided by
 * s when stages interleave.
 * Sources: Narayanan et al., PipeDream, 2019, arXiv 1806.03377; Narayanan et al., Megatron-LM,
 * 2021, arXiv 2104.04473, section 2.2; Qi et al., Zero Bubble, 2023, arXiv 2401.10241 (ZB-H1 with
 * warmup 1, ZB-H2 with 2); doubled warm-up and rounds as in PyTorch's and d9d's Interleaved1F1B. */
void pen_compose_1f1b(const struct pen_composer *composer) {
  const struct pen_topology *topology = composer->topology;
  uint32_t ranks = composer->rank_count, microbatches = composer->microbatch_count,
           stages = composer->stages_per_rank;
  uint32_t rounds = rounds_of(ranks, microbatches), warmup = composer->warmup;
  bool split = composer->splits;
  if (!pen_1f1b_suits(ranks, stages, microbatches))
    pen_topology_fail(
        topology, "pipeline.microbatches",
        "with several stages a rank, %s needs rounds = microbatches div ranks = %u to divide it"
        " (the next below that fits: %u)",
        pen_schedule_of(topology->pipeline_schedule)->name, rounds,
        rounds * (microbatches / rounds));
  struct interleaving shape = {.stages = stages,
                               .round = stages > 1 ? microbatches / rounds : microbatches,
                               .total = stages * microbatches};
  for (uint32_t rank = 0; rank < ranks; rank++) {
    uint64_t target = (uint64_t)(stages - 1) * shape.round + (uint64_t)warmup * (ranks - 1 - rank);
    uint32_t forward = 0, weight = 0;
    for (; forward < target && forward < shape.total; forward++)
      add_forward(composer, &shape, rank, forward);
    for (uint32_t backward = 0; backward < shape.total; backward++) {
      if (forward < shape.total) add_forward(composer, &shape, rank, forward++);
      add_backward(composer, &shape, rank, split ? PEN_I : PEN_B, backward);
      if (split && backward >= warmup * rank) add_backward(composer, &shape, rank, PEN_W, weight++);
    }
    while (split && weight < shape.total) add_backward(composer, &shape, rank, PEN_W, weight++);
  }
}
