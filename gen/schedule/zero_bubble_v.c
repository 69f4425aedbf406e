/* zero_bubble_v.c: the ZB-V schedule. */
#include "gen/schedule/internal.h"
#include "runtime/plan/plan.h"

/* How far one rank has come: of its two stages, down (rank r) and up (2P-1-r), the next F, I and W.
 */
struct state {
  const struct pen_composer *composer;
  uint32_t rank;
  uint32_t next[3][2]; /* [F, I, W][down, up] */
};
enum { DOWN, UP };
enum { F, I, W };

/* Runs the next microbatch of a kind. The rule counts at least 2P-1 microbatches; those that do not
 * exist are left out. */
static void run(struct state *state, int what, uint32_t local) {
  static const int kinds[] = {[F] = PEN_F, [I] = PEN_I, [W] = PEN_W};
  uint32_t microbatch = state->next[what][local]++;
  if (microbatch < state->composer->microbatch_count)
    pen_order_add(state->composer, state->rank, kinds[what], local, microbatch);
}

static void backward(struct state *state, uint32_t local) {
  run(state, I, local);
  run(state, W, local);
}

/* Of rank r among P, with n = max(m, 2P-1) microbatches:
 *   fill   2(P-r)-1 forwards down; r times a forward up and one down; P-r times a forward up with
 * its I and W; hold   until all forwards are done: a forward down while there is one, I and W down,
 * a forward up, I and W up; drain  r times I down and I up, W put off; P-r times I down and the
 * oldest W down; then all W left up, all W left down. Each rank holds at most 2P halves (P whole
 * stages' worth) of saved tensors, as 1F1B's first rank does. Source: Qi, Wan, Huang, Lin, Zero
 * Bubble Pipeline Parallelism, 2023, arXiv 2401.10241, section 6 and figure 7; the exact order is
 * that of PyTorch's ScheduleZBVZeroBubble and d9d's zero_bubble_v. */
static void compose_rank(struct state *state) {
  uint32_t ranks = state->composer->rank_count, rank = state->rank, least = 2 * ranks - 1;
  uint32_t count =
      state->composer->microbatch_count > least ? state->composer->microbatch_count : least;
  for (uint32_t n = 0; n < 2 * (ranks - rank) - 1; n++) run(state, F, DOWN);
  for (uint32_t n = 0; n < rank; n++) {
    run(state, F, UP);
    run(state, F, DOWN);
  }
  for (uint32_t n = 0; n < ranks - rank; n++) {
    run(state, F, UP);
    backward(state, UP);
  }
  while (state->next[F][UP] < state->next[F][DOWN] || state->next[F][DOWN] < count) {
    if (state->next[F][DOWN] < count) run(state, F, DOWN);
    backward(state, DOWN);
    run(state, F, UP);
    backward(state, UP);
  }
  for (uint32_t n = 0; n < rank; n++) {
    run(state, I, DOWN);
    run(state, I, UP);
  }
  for (uint32_t n = 0; n < ranks - rank; n++) backward(state, DOWN);
  while (state->next[W][UP] < count) run(state, W, UP);
  while (state->next[W][DOWN] < count) run(state, W, DOWN);
}

void pen_compose_zero_bubble_v(const struct pen_composer *composer) {
  for (uint32_t rank = 0; rank < composer->rank_count; rank++)
    compose_rank(&(struct state){.composer = composer, .rank = rank});
}
