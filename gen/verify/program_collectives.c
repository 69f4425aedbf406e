/* program_collectives.c: are the collectives within a program right, whatever its peers do at the
 * same time?
 *
 * All replicas run the same ops. A rank whose WAIT_PEERS waits for the n-th SIGNAL_PEERS of the
 * program knows that every peer has run its ops up to there, and nothing more. From that:
 *
 *   acyclic   WAIT_PEERS waits only for signals that come before it in the list, so no deadlock
 *             (the argument of replicas.c)
 *   summed    a gradient of one microbatch is zeroed, added to once, and then summed once.
 *             REDUCE_SCATTER, which reads those of the peers, knows a signal after their addition
 *   free      its bytes are not written again, also by the next program, before this rank knows a
 *             signal of every peer after the peer has read them
 *   gathered  after ALL_GATHER, which reads the shards of the peers, comes a signal, so that UPDATE
 *             of the peers can know that the reading is done (replicas.c)
 *   complete  collectives may run beside kernels: what ALL_GATHER makes is read, and the bytes of
 *             either kind are written again, only after a WAIT_EVENT that names it */
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
    c->partial[c->partials[i]] = (struct pen_partial){PEN_PARTIAL_NONE, false, 0};
  c->completed = c->waited = c->gathered = 0;
  c->partial_count = 0;
}

static void set_state(struct pen_program_collectives *c, uint32_t tensor,
                      enum pen_partial_state state) {
  if (c->partial[tensor].state == PEN_PARTIAL_NONE) c->partials[c->partial_count++] = tensor;
  c->partial[tensor] = (struct pen_partial){(uint8_t)state, false, c->completed};
}

/* Whether every peer has signalled since the tensor came into its state. */
static bool peers_signalled(const struct pen_program_collectives *c, uint32_t tensor) {
  return c->alone || c->waited > c->partial[tensor].at;
}

const char *pen_partial_zeroed(struct pen_program_collectives *c, uint32_t tensor) {
  set_state(c, tensor, PEN_PARTIAL_ZERO);
  return NULL;
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
  if (!peers_signalled(c, tensor))
    return "which peers may not have completed: no WAIT_PEERS waits for a signal after it";
  set_state(c, tensor, PEN_PARTIAL_SUMMED);
  return NULL;
}

const char *pen_weight_gathered(struct pen_program_collectives *c, uint32_t tensor) {
  c->gathered = c->completed + 1;
  set_state(c, tensor, PEN_GATHERED);
  return NULL;
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

/* Own collectives, then peers, may still use the bytes. */
const char *pen_partial_overwritten(const struct pen_program_collectives *c, uint32_t tensor) {
  const struct pen_partial *partial = &c->partial[tensor];
  if (partial->state != PEN_PARTIAL_SUMMED && partial->state != PEN_GATHERED) return NULL;
  if (!c->alone && !partial->complete)
    return "which its collective may still use: no WAIT_EVENT names it";
  return partial->state == PEN_PARTIAL_SUMMED && !peers_signalled(c, tensor)
             ? "which peers may still read"
             : NULL;
}

const char *pen_program_waits(struct pen_program_collectives *c, int64_t count) {
  if (count > c->completed) return "deadlock: it waits for a signal that peers give after theirs";
  if (count > c->waited) c->waited = (uint32_t)count;
  return NULL;
}

const char *pen_program_ends(const struct pen_program_collectives *c, uint32_t *tensor) {
  *tensor = PEN_NONE;
  if (c->gathered > c->completed)
    return "no SIGNAL_PEERS follows its last ALL_GATHER: peers may update what it reads";
  for (size_t i = 0; i < c->partial_count; i++) {
    *tensor = c->partials[i];
    if (pen_is_partial(c, *tensor) && c->partial[*tensor].state != PEN_PARTIAL_SUMMED)
      return "which is not summed";
    const char *wrong = pen_partial_overwritten(c, *tensor);
    if (wrong) return wrong;
  }
  return NULL;
}
