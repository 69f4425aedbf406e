/* v_half.c: the V-Half schedule. */
#include "gen/schedule/internal.h"
#include "gen/base/arena.h"

/* The block of rank r of P: F down at 2r, F up at 3P-2-r, I up at 3P-1+d+2r, I down at 6P-2+d-r; d
 * is 3 for even P, else 0, so that no two are on the same tick modulo 6. Ranks follow each other by
 * two ticks on the way down and by one on the way up. So the activations from F down to I down live
 * longest on the first rank, and those from F up to I up shortest; the sum is the same on all
 * ranks, half of what the first rank of 1F1B holds: P/2 + 1 microbatches, or (P+1)/2 for odd P, of
 * two stages each. Source: Qi et al. 2024, arXiv 2405.15362, section 4.2 and appendix; offsets as
 * in github.com/sail-sg/zero-bubble-pipeline-parallelism. */
void pen_compose_v_half(const struct pen_composer *composer) {
  uint32_t ranks = composer->rank_count, delay = ranks % 2 ? 0 : 3;
  struct pen_building_block *block = pen_new(ranks, sizeof *block);
  for (uint32_t r = 0; r < ranks; r++)
    block[r] = (struct pen_building_block){
        {2 * r, 3 * ranks - 2 - r, 3 * ranks - 1 + delay + 2 * r, 6 * ranks - 2 + delay - r}};
  pen_compose_building_block(composer, block, 2 * ((ranks + 2) / 2));
}
