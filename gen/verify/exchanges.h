/* exchanges.h: the exchanges between the tensor ranks within a program. */
#ifndef PEN_VERIFY_EXCHANGES_H
#define PEN_VERIFY_EXCHANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/plan/plan.h"

/* Whether ops of that kind are exchanges, or a member's part of one. */
bool pen_puts_values(int kind);

/* The program in progress. */
struct pen_exchanges {
  const struct pen_rank_program *tables;
  uint32_t members;
  uint64_t slot_bytes;
  uint32_t begun; /* exchanges */
  uint32_t parts; /* of the last one, so far */
  uint32_t op;    /* its last op */
  uint32_t *of;   /* [tensor]: the exchange that has put it into its slot */
};

/* For a rank's tensors. */
void pen_exchanges_open(struct pen_exchanges *e, const struct pen_plan *plan, uint32_t rank,
                        const struct pen_rank_program *tables);
void pen_exchanges_close(struct pen_exchanges *e);
/* Before the first op of a program. */
void pen_exchanges_start(struct pen_exchanges *e);

/* Each returns null, or what is wrong, as the end of a sentence: "which ...". An op, by its index:
 * an exchange or SIGNAL_MEMBERS, after its inputs are read; a tensor that an op reads, or, if
 * it does not exchange, writes; the end of the program. */
const char *pen_exchange_op(struct pen_exchanges *e, uint32_t index);
const char *pen_exchange_read(const struct pen_exchanges *e, uint32_t tensor);
const char *pen_exchange_written(const struct pen_exchanges *e, uint32_t tensor);
const char *pen_exchanges_end(const struct pen_exchanges *e);

#endif
