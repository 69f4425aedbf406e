/* program_collectives.h: whether what the collectives within a program use and make is whole. */
#ifndef PEN_PROGRAM_COLLECTIVES_H
#define PEN_PROGRAM_COLLECTIVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a gradient of one microbatch went through in the program in progress. */
enum pen_partial_state {
  PEN_PARTIAL_NONE,
  PEN_PARTIAL_ZERO,
  PEN_PARTIAL_ADDED,
  PEN_PARTIAL_SUMMED,
  PEN_GATHERED /* a gathered weight */
};

struct pen_partial {
  uint8_t state; /* enum pen_partial_state */
  bool complete; /* SUMMED, GATHERED: WAIT_EVENT has named it */
};

/* The program in progress. */
struct pen_program_collectives {
  struct pen_partial *partial; /* [tensor] */
  uint32_t *partials;          /* [partial_count]: those that are not NONE */
  size_t partial_count;
  bool alone; /* one replica: nothing is sent */
};

/* For a rank's tensors. */
void pen_program_collectives_open(struct pen_program_collectives *c, size_t tensor_count,
                                  bool alone);
void pen_program_collectives_close(struct pen_program_collectives *c);
/* Before the first op of a program. */
void pen_program_collectives_start(struct pen_program_collectives *c);

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

#endif
