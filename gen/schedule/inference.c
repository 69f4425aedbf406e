/* inference.c: the inference schedule: forwards only. */
#include "gen/schedule/internal.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

/* Time counts in ticks of one forward. In every tick each rank runs the deepest of its stages whose
 * next microbatch the stage before has finished in an earlier tick; microbatches are in ascending
 * order within a stage. With one stage per rank that is the order 0, 1, 2, ...; with several, on
 * any placement, a microbatch leaves the pipeline as soon as possible, so that few messages are in
 * flight. With one stage per rank the order is that of d9d's inference schedule. */
void pen_compose_inference(const struct pen_composer *composer) {
  uint32_t stage_count = composer->rank_count * composer->stages_per_rank;
  uint32_t *done =
      pen_new(stage_count, sizeof *done); /* microbatches that finished before this tick */
  uint32_t *picked = pen_new(composer->rank_count, sizeof *picked);
  uint64_t left = (uint64_t)stage_count * composer->microbatch_count;
  while (left > 0) {
    for (uint32_t rank = 0; rank < composer->rank_count; rank++) {
      const uint32_t *stages = composer->stages + (size_t)rank * composer->stages_per_rank;
      uint32_t local = composer->stages_per_rank;
      picked[rank] = PEN_NONE;
      while (picked[rank] == PEN_NONE && local-- > 0) {
        uint32_t stage = stages[local],
                 come = stage == 0 ? composer->microbatch_count : done[stage - 1];
        if (done[stage] < come) picked[rank] = local;
      }
    }
    for (uint32_t rank = 0; rank < composer->rank_count; rank++) {
      if (picked[rank] == PEN_NONE) continue;
      uint32_t stage = composer->stages[(size_t)rank * composer->stages_per_rank + picked[rank]];
      pen_order_add(composer, rank, PEN_F, picked[rank], done[stage]++);
      left--;
    }
  }
}
