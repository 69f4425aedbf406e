/* v_min.c: the V-Min schedule. */
#include "gen/schedule/internal.h"
#include "gen/base/arena.h"

/* The block of rank r of P: F down at r, F up at 2P-1-r, I up at 2P+d+r, I down at 4P-1+d-r; d is 2
 * when 3 divides P, else 0, so that no two are on the same tick modulo 6. Every action runs as
 * early as possible, so activations live shortest: a rank holds (P+4) div 3 microbatches of two
 * stages each, a third of what the first rank of 1F1B holds. The way down and up is then the
 * longest dependency chain and costs a bubble; the bubble grows when the costs of F, I and W differ
 * much. Source: Qi et al. 2024, arXiv 2405.15362, section 4.2 and appendix; offsets as in
 * github.com/sail-sg/zero-bubble-pipeline-parallelism. */
void pen_compose_v_min(const struct pen_composer *composer) {
  uint32_t ranks = composer->rank_count, delay = ranks % 3 ? 0 : 2;
  struct pen_building_block *block = pen_new(ranks, sizeof *block);
  for (uint32_t r = 0; r < ranks; r++)
    block[r] = (struct pen_building_block){
        {r, 2 * ranks - 1 - r, 2 * ranks + delay + r, 4 * ranks - 1 + delay - r}};
  pen_compose_building_block(composer, block, 2 * ((ranks + 4) / 3));
}
