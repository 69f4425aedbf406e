/* in_use.h: the rule "in use" (see in_use.c). */
#ifndef PEN_IN_USE_H
#define PEN_IN_USE_H

#include "gen/verify/rank_context.h"
#include "runtime/plan/plan.h"

/* Who uses a part of a member's memory. */
enum pen_user { PEN_OWN, PEN_OTHERS, PEN_USERS };

/* A part of memory: the collective whose signal ends the last read, or write, by each; 0: none. */
struct pen_in_use {
  uint32_t read[PEN_USERS], written[PEN_USERS];
};

/* A place in the list: the collectives before it, and those that the others are known to have
 * ended. */
struct pen_signals {
  uint32_t ended, known;
};

/* Uses a part. Returns null, or what is wrong, as the end of a sentence: "which ...". */
const char *pen_use(struct pen_in_use *part, enum pen_user user, bool writes,
                    struct pen_signals at);
/* The wait of a row of a program, and its signal. */
void pen_signals_wait(struct pen_signals *signals, const struct pen_collective *row);
void pen_signals_give(struct pen_signals *signals, const struct pen_collective *row,
                      bool others_write);

/* The program in progress, with what others may read or write: gradients of a microbatch, and the
 * slots of exchanges between tensor ranks. */
struct pen_uses {
  const struct pen_rank_context *context;
  struct pen_in_use *part; /* [tensor], of those that the program has written */
  struct pen_signals signals[PEN_GROUPS];
  uint32_t first, past, op;               /* its ops, and the one in progress */
  const struct pen_collective *row;       /* of that op; null: it has none */
  const struct pen_collective *first_put; /* the first row with which others fill slots */
  uint64_t lowest_slot; /* address of the first slot that the member has used since its signal */
};

void pen_uses_open(struct pen_uses *u, const struct pen_rank_context *context);
void pen_uses_close(struct pen_uses *u);
/* Before the ops [first, past) of a program; before and after each of them. */
void pen_uses_start(struct pen_uses *u, uint32_t first, uint32_t past);
void pen_uses_begin_op(struct pen_uses *u, uint32_t op);
void pen_uses_end_op(struct pen_uses *u);
/* Each returns null, or what is wrong: "which ...". The op reads a tensor at an address; writes
 * over a tensor, or adds to it; has written one to [first, past). */
const char *pen_uses_read(struct pen_uses *u, uint32_t tensor, uint64_t first);
const char *pen_uses_overwrite(struct pen_uses *u, uint32_t tensor);
const char *pen_uses_written(struct pen_uses *u, uint32_t tensor, uint64_t first, uint64_t past);
/* The program ends: the next one may write over a tensor; others fill its first slots. */
const char *pen_uses_left(struct pen_uses *u, uint32_t tensor);
bool pen_uses_end(const struct pen_uses *u);

#endif
