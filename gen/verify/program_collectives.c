/* program_collectives.c: are the gradients and weights of the collectives within a program whole
 * when they are read?
 *
 *   summed    a gradient of one microbatch is zeroed, added to once, and then summed once
 *   complete  collectives may run beside kernels: what ALL_GATHER makes is read, and the bytes of
 *             either kind are written again, only after a WAIT_EVENT that names it
 *
 * That peers do not use the bytes at the same time is the rule "in use" (in_use.h). */
#include "gen/verify/program_collectives.h"

#include <string.h>

#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

void pen_program_collectives_open(struct pen_program_collectives *c, size_t tensor_count,
                                  bool alone) {
  *c = (struct pen_program_collectives){.partial = pen_new(tensor_count + 1, sizeof *c->partial),
                                        .partials = pen_new(tensor_count + 1, sizeof *c->partials),
                                        .alone = alone};
}

void pen_program_collectives_close(struct pen_program_collectives *c) {
  pen_free(c->partial);
  pen_free(c->partials);
}

void pen_program_collectives_start(struct pen_program_collectives *c) {
  for (size_t i = 0; i < c->partial_count; i++)
    c->partial[c->partials[i]] = (struct pen_partial){PEN_PARTIAL_NONE, false};
  c->partial_count = 0;
}

static void set_state(struct pen_program_collectives *c, uint32_t tensor,
                      enum pen_partial_state state) {
  if (c->partial[tensor].state == PEN_PARTIAL_NONE) c->partials[c->partial_count++] = tensor;
  c->partial[tensor] = (struct pen_partial){(uint8_t)state, false};
}

void pen_partial_zeroed(struct pen_program_collectives *c, uint32_t tensor) {
  set_state(c, tensor, PEN_PARTIAL_ZERO);
}

const char *pen_partial_added(struct pen_program_collectives *c, uint32_t tensor) {
  if (c->partial[tensor].state == PEN_PARTIAL_NONE)
    return "which is neither the gradient of a trainable weight nor zero";
  if (c->partial[tensor].state != PEN_PARTIAL_ZERO) return "to which it has added already";
  set_state(c, tensor, PEN_PARTIAL_ADDED);
  return NULL;
}

const char *pen_partial_summed(struct pen_program_collectives *c, uint32_t tensor) {
  if (c->partial[tensor].state == PEN_PARTIAL_SUMMED) return "which is summed already";
  if (c->partial[tensor].state != PEN_PARTIAL_ADDED) return "to which nothing was added";
  set_state(c, tensor, PEN_PARTIAL_SUMMED);
  return NULL;
}

void pen_weight_gathered(struct pen_program_collectives *c, uint32_t tensor) {
  set_state(c, tensor, PEN_GATHERED);
}

const char *pen_event_waited(struct pen_program_collectives *c, uint32_t tensor) {
  struct pen_partial *partial = &c->partial[tensor];
  if (partial->state != PEN_PARTIAL_SUMMED && partial->state != PEN_GATHERED)
    return "which no collective before it uses";
  partial->complete = true;
  return NULL;
}

const char *pen_partial_read(const struct pen_program_collectives *c, uint32_t tensor) {
  const struct pen_partial *partial = &c->partial[tensor];
  if (pen_is_partial(c, tensor)) return "the gradient of one microbatch";
  return partial->state == PEN_GATHERED && !partial->complete
             ? "which may not have been gathered: no WAIT_EVENT names it"
             : NULL;
}

const char *pen_partial_overwritten(const struct pen_program_collectives *c, uint32_t tensor) {
  const struct pen_partial *partial = &c->partial[tensor];
  return (partial->state == PEN_PARTIAL_SUMMED || partial->state == PEN_GATHERED) && !c->alone &&
                 !partial->complete
             ? "which its collective may still use: no WAIT_EVENT names it"
             : NULL;
}

const char *pen_partial_left(const struct pen_program_collectives *c, uint32_t tensor) {
  return pen_is_partial(c, tensor) && c->partial[tensor].state != PEN_PARTIAL_SUMMED
             ? "which is not summed"
             : pen_partial_overwritten(c, tensor);
}
