/* backward_order.c: compares the order of backwards (see backward_order.h). */
#include "gen/schedule/backward_order.h"

#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

/* [microbatches]: those of a stage's B or W, as they run. Returns how many. */
static uint32_t list_backwards(const struct pen_stage_order *of, uint32_t stage, uint32_t *list) {
  const uint32_t rank = of->rank_of[stage];
  uint32_t count = 0;
  for (uint32_t i = 0; i < of->order->count[rank]; i++) {
    const struct pen_compute *action = &of->order->action[rank][i];
    if (action->stage == stage && (action->kind == PEN_B || action->kind == PEN_W) &&
        count < of->microbatch_count)
      list[count++] = action->microbatch;
  }
  return count;
}

static bool all_have(const struct pen_stage_order *of, const uint32_t *list, uint32_t count) {
  uint32_t *own = pen_new(of->microbatch_count + 1u, sizeof *own);
  bool same = true;
  for (uint32_t stage = 0; stage < of->stage_count && same; stage++) {
    same = list_backwards(of, stage, own) == count;
    for (uint32_t i = 0; i < count && same; i++) same = own[i] == list[i];
  }
  return same;
}

bool pen_backwards_agree(const struct pen_stage_order *one, const struct pen_stage_order *other) {
  uint32_t *list = pen_new(one->microbatch_count + 1u, sizeof *list);
  const uint32_t count = list_backwards(one, 0, list);
  return all_have(one, list, count) && all_have(other, list, count);
}
