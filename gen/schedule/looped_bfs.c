/* looped_bfs.c: the looped breadth-first schedule. */
#include "gen/schedule/internal.h"
#include "runtime/plan/plan.h"

/* GPipe with several stages per rank: each rank runs all forwards of its first stage, then of its
 * second, and so on; then all backwards of its last stage, then of the one before. Forwards run in
 * ascending, backwards in descending order of microbatches. Source: Lamy-Poirier, Breadth-First
 * Pipeline Parallelism, 2022, arXiv 2211.05953, section 4.2 (without its data parallelism). */
void pen_compose_looped_bfs(const struct pen_composer *composer) {
  for (uint32_t rank = 0; rank < composer->rank_count; rank++) {
    for (uint32_t local = 0; local < composer->stages_per_rank; local++)
      for (uint32_t microbatch = 0; microbatch < composer->microbatch_count; microbatch++)
        pen_order_add(composer, rank, PEN_F, local, microbatch);
    for (uint32_t local = composer->stages_per_rank; local-- > 0;)
      for (uint32_t microbatch = composer->microbatch_count; microbatch-- > 0;)
        pen_order_add(composer, rank, PEN_B, local, microbatch);
  }
}
