/* balance.h: divides a list of blocks into stages so that the slowest stage is as fast as possible.
 */
#ifndef PEN_BALANCE_H
#define PEN_BALANCE_H

#include <stdint.h>

/* The time of a stage that holds blocks [first, past); must not decrease when a block is added at
 * either end. Any unit, 0 or more. */
typedef double pen_part_cost(const void *context, uint32_t stage, uint32_t first, uint32_t past);

/* Chooses the first block of each of `stages` stages among place[0..count-1], which are ascending;
 * stage 0 begins at place[0], and place[count] is the end. No stage is empty: count must be
 * `stages` or more. Fills first[stages]. See balance.c for what is least. */
void pen_balance(uint32_t stages, const uint32_t *place, uint32_t count, pen_part_cost *cost,
                 const void *context, uint32_t *first);

/* Evens out, from the first blocks that pen_balance() chose, the times of the ranks: the sums over
 * the stages of each. rank_of[stages] are below `ranks`. A local optimum; see balance.c. */
void pen_balance_ranks(uint32_t stages, const uint32_t *rank_of, uint32_t ranks,
                       const uint32_t *place, uint32_t count, pen_part_cost *cost,
                       const void *context, uint32_t *first);

#endif
