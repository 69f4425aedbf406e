/* zero_bubble_v.c: the ZB-V schedule. */
#include "gen/schedule/internal.h"
#include "runtime/plan/plan.h"

/* The progress of one rank: the next F, I and W of its two stages, down (stage r) and up (2P-1-r).
 */
struct zero_bubble {
  const struct pen_composer *composer;
  uint32_t rank;
  uint32_t next[3][2]; /* [F, I, W][down, up] */
};
enum { DOWN, UP };
enum { F, I, W };

/* Runs the next microbatch of a kind. The rule counts at least 2P-1 microbatches and skips those
 * that do not exist. */
static void run_next(struct zero_bubble *rank_state, int what, uint32_t local) {
  static const int kinds[] = {[F] = PEN_F, [I] = PEN_I, [W] = PEN_W};
  uint32_t microbatch = rank_state->next[what][local]++;
  if (microbatch < rank_state->composer->microbatch_count)
    pen_order_add(rank_state->composer, rank_state->rank, kinds[what], local, microbatch);
}

static void run_backward(struct zero_bubble *rank_state, uint32_t local) {
  run_next(rank_state, I, local);
  run_next(rank_state, W, local);
}

/* Rank r of P, with n = max(m, 2P-1) microbatches:
 *
 *   fill   2(P-r)-1 forwards down; r times a forward up and one down; P-r times a forward up with
 *          its I and W
 *   hold   until all forwards are done: a forward down if one is left, I and W down, a forward up,
 *          I and W up
 *   drain  r times I down and I up, W postponed; P-r times I down and the oldest W down; then all
 *          remaining W up, all remaining W down
 *
 * Each rank holds at most 2P stage activations (as much as P stages of 1F1B's first rank). Source:
 * Qi, Wan, Huang, Lin, Zero Bubble Pipeline Parallelism, 2023, arXiv 2401.10241, section 6 and
 * figure 7; the exact order is that of PyTorch's ScheduleZBVZeroBubble and d9d's zero_bubble_v. */
static void compose_zero_bubble_rank(struct zero_bubble *rank_state) {
  uint32_t ranks = rank_state->composer->rank_count, rank = rank_state->rank, least = 2 * ranks - 1;
  uint32_t count = rank_state->composer->microbatch_count > least
                       ? rank_state->composer->microbatch_count
                       : least;
  for (uint32_t n = 0; n < 2 * (ranks - rank) - 1; n++) run_next(rank_state, F, DOWN);
  for (uint32_t n = 0; n < rank; n++) {
    run_next(rank_state, F, UP);
    run_next(rank_state, F, DOWN);
  }
  for (uint32_t n = 0; n < ranks - rank; n++) {
    run_next(rank_state, F, UP);
    run_backward(rank_state, UP);
  }
  while (rank_state->next[F][UP] < rank_state->next[F][DOWN] || rank_state->next[F][DOWN] < count) {
    if (rank_state->next[F][DOWN] < count) run_next(rank_state, F, DOWN);
    run_backward(rank_state, DOWN);
    run_next(rank_state, F, UP);
    run_backward(rank_state, UP);
  }
  for (uint32_t n = 0; n < rank; n++) {
    run_next(rank_state, I, DOWN);
    run_next(rank_state, I, UP);
  }
  for (uint32_t n = 0; n < ranks - rank; n++) run_backward(rank_state, DOWN);
  while (rank_state->next[W][UP] < count) run_next(rank_state, W, UP);
  while (rank_state->next[W][DOWN] < count) run_next(rank_state, W, DOWN);
}

void pen_compose_zero_bubble_v(const struct pen_composer *composer) {
  for (uint32_t rank = 0; rank < composer->rank_count; rank++)
    compose_zero_bubble_rank(&(struct zero_bubble){.composer = composer, .rank = rank});
}
