/* gpipe.c: the GPipe schedule. */
#include "gen/schedule/internal.h"
#include "runtime/plan/plan.h"

/* Every rank runs the forwards of all microbatches in ascending order, then their backwards in
 * descending order, so that the newest saved tensors are used first. The bubble is (P-1)/(m+P-1); a
 * rank holds all m microbatches. Source: Huang et al., GPipe, 2019, arXiv 1811.06965, section 2.2.
 */
void pen_compose_gpipe(const struct pen_composer *composer) {
  for (uint32_t rank = 0; rank < composer->rank_count; rank++) {
    for (uint32_t microbatch = 0; microbatch < composer->microbatch_count; microbatch++)
      pen_order_add(composer, rank, PEN_F, 0, microbatch);
    for (uint32_t microbatch = composer->microbatch_count; microbatch-- > 0;)
      pen_order_add(composer, rank, PEN_B, 0, microbatch);
  }
}
