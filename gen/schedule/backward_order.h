/* backward_order.h: in which order a stage runs the backwards of its microbatches. Weight gradients
 * add up in that order, so that topologies with the same one give the same bits (docs/contracts.md
 * section 9). */
#ifndef PEN_BACKWARD_ORDER_H
#define PEN_BACKWARD_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/schedule/order.h"

/* Whether all stages of both orders run B, or W, in one order of the microbatches. `rank_of`: of
 * each stage. */
struct pen_stage_order {
  const struct pen_order *order;
  const uint32_t *rank_of;
  uint32_t stage_count, microbatch_count;
};
bool pen_backwards_agree(const struct pen_stage_order *one, const struct pen_stage_order *other);

#endif
