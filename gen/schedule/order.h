/* order.h: the compute order of every rank. */
#ifndef PEN_ORDER_H
#define PEN_ORDER_H

#include <stdbool.h>
#include <stdint.h>

/* One compute action; `overlaps`: it forms a pair a|b with the next action. */
struct pen_compute {
  uint8_t kind; /* PEN_F, PEN_B, PEN_I, PEN_W */
  bool overlaps;
  uint16_t stage;
  uint32_t microbatch;
};

struct pen_order {
  uint32_t rank_count;
  uint32_t *count;             /* [rank_count] */
  struct pen_compute **action; /* [rank_count][count] */
};

#endif
