/* program_collectives.h: what the collectives within a program use, and what they make. */
#ifndef PEN_PROGRAM_COLLECTIVES_H
#define PEN_PROGRAM_COLLECTIVES_H

#include "gen/verify/in_use.h"
#include "gen/verify/rank_context.h"
#include "runtime/plan/plan.h"

/* What a gradient of one microbatch went through in the program in progress. */
enum pen_partial_state {
  PEN_PARTIAL_NONE,
  PEN_PARTIAL_ZERO,
  PEN_PARTIAL_ADDED,
  PEN_PARTIAL_SUMMED,
  PEN_GATHERED /* a gathered weight */
};

struct pen_partial {
  uint8_t state;         /* enum pen_partial_state */
  bool complete;         /* SUMMED, GATHERED: WAIT_EVENT has named it */
  struct pen_in_use use; /* once the program has written it */
};

/* The program in progress. */
struct pen_program_collectives {
  const struct pen_rank_context *context;
  struct pen_partial *partial; /* [tensor] */
  uint32_t *partials;          /* [partial_count]: those that are not NONE */
  size_t partial_count;
  bool alone; /* one replica: nothing is sent */
  struct pen_signals signals[PEN_GROUPS];
  uint32_t first, past, op;         /* its ops, and the one in progress */
  const struct pen_collective *row; /* of that op; null: it has none */
  uint64_t lowest_slot; /* address of the first slot that the rank has used since its signal */
};

void pen_program_collectives_open(struct pen_program_collectives *c,
                                  const struct pen_rank_context *context);
void pen_program_collectives_close(struct pen_program_collectives *c);
/* Before the ops [first, past) of a program; before and after each of them. */
void pen_program_collectives_start(struct pen_program_collectives *c, uint32_t first,
                                   uint32_t past);
void pen_program_op_begins(struct pen_program_collectives *c, uint32_t op);
void pen_program_op_ends(struct pen_program_collectives *c);

void pen_partial_zeroed(struct pen_program_collectives *c, uint32_t tensor);
void pen_weight_gathered(struct pen_program_collectives *c, uint32_t tensor);
/* Each returns null, or what is wrong with the tensor, as the end of a sentence: ", which ...". */
const char *pen_partial_added(struct pen_program_collectives *c, uint32_t tensor);
const char *pen_partial_summed(struct pen_program_collectives *c, uint32_t tensor);
const char *pen_event_waited(struct pen_program_collectives *c, uint32_t tensor);
/* A kernel reads it. */
const char *pen_partial_read(const struct pen_program_collectives *c, uint32_t tensor);
/* Other bytes than its own are written over it. */
const char *pen_partial_overwritten(const struct pen_program_collectives *c, uint32_t tensor);
/* The program ends. */
const char *pen_partial_left(const struct pen_program_collectives *c, uint32_t tensor);
static inline bool pen_is_partial(const struct pen_program_collectives *c, uint32_t tensor) {
  return c->partial[tensor].state != PEN_PARTIAL_NONE && c->partial[tensor].state != PEN_GATHERED;
}

/* Rule "in use" for the op in progress, as above: it reads a tensor at an address; writes over a
 * tensor; has written one to [first, past). When the program ends, the next one may write over a
 * tensor, and others fill its first slots. */
const char *pen_use_read(struct pen_program_collectives *c, uint32_t tensor, uint64_t first);
const char *pen_use_overwritten(struct pen_program_collectives *c, uint32_t tensor);
const char *pen_use_written(struct pen_program_collectives *c, uint32_t tensor, uint64_t first,
                            uint64_t past);
const char *pen_use_left(struct pen_program_collectives *c, uint32_t tensor);
bool pen_slots_left(const struct pen_program_collectives *c);

#endif
