/* program_collectives.c: are the collectives within a program right, whatever other processes do at
 * the same time?
 *
 *   summed    a gradient of one microbatch is zeroed, added to, and then summed once; what is added
 *             is proved by terms (gradients.c)
 *   complete  collectives may run beside kernels: what ALL_GATHER makes is read, and the bytes of
 *             either kind are written again, only after a WAIT_EVENT that names it
 *
 *   in use    (in_use.h) of the gradients of a microbatch, which peers read, and of the slots that
 *             other tensor ranks fill. A program may follow any other, of the same step or of the
 *             next: when it ends, its gradients are free; its first exchange fills the first half
 *             of the slots, and when it ends, no slot of this half was used since its signal */
#include "gen/verify/program_collectives.h"

#include <string.h>

#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

void pen_program_collectives_open(struct pen_program_collectives *c,
                                  const struct pen_rank_context *context) {
  const size_t tensors = (size_t)context->tables->tensor_count + 1;
  *c = (struct pen_program_collectives){.context = context,
                                        .partial = pen_new(tensors, sizeof *c->partial),
                                        .partials = pen_new(tensors, sizeof *c->partials),
                                        .alone = pen_group_size(context->plan, PEN_DATA) == 1};
}

void pen_program_collectives_close(struct pen_program_collectives *c) {
  pen_free(c->partial);
  pen_free(c->partials);
}

void pen_program_collectives_start(struct pen_program_collectives *c, uint32_t first,
                                   uint32_t past) {
  for (size_t i = 0; i < c->partial_count; i++) c->partial[c->partials[i]].state = PEN_PARTIAL_NONE;
  memset(c->signals, 0, sizeof c->signals);
  c->partial_count = 0;
  c->first = first;
  c->past = past;
  c->lowest_slot = UINT64_MAX;
}

/* ---- in use ---- */

/* Whether others read what the op reads, or write what it writes: the puts of its row are such. */
static enum pen_user user_of(const struct pen_program_collectives *c, bool writes) {
  const int kind = writes ? PEN_PUT_WRITE : PEN_PUT_ADD;
  return c->row && c->row->put_count && c->context->tables->puts[c->row->first_put].kind == kind
             ? PEN_OTHERS
             : PEN_OWN;
}

static bool is_of_row(const struct pen_program_collectives *c, uint32_t op) {
  const struct pen_rank_program *tables = c->context->tables;
  return op >= c->first && op < c->past && pen_collective_of(tables, &tables->ops[op]) == c->row;
}

/* The first op of a row waits, the last one signals. */
void pen_program_op_begins(struct pen_program_collectives *c, uint32_t op) {
  c->op = op;
  c->row = pen_collective_of(c->context->tables, &c->context->tables->ops[op]);
  if (c->row && !is_of_row(c, op - 1)) pen_signals_wait(&c->signals[c->row->group], c->row);
}

void pen_program_op_ends(struct pen_program_collectives *c) {
  if (!c->row || is_of_row(c, c->op + 1)) return;
  pen_signals_give(&c->signals[c->row->group], c->row, user_of(c, true) == PEN_OTHERS);
  if (c->row->group == PEN_TENSOR) c->lowest_slot = UINT64_MAX;
}

static bool is_slot(const struct pen_program_collectives *c, uint32_t tensor) {
  return c->context->tables->tensors[tensor].base == PEN_BASE_EXCHANGE;
}

static const char *use(struct pen_program_collectives *c, uint32_t tensor, bool writes) {
  return pen_use(&c->partial[tensor].use, user_of(c, writes), writes,
                 c->signals[is_slot(c, tensor) ? PEN_TENSOR : PEN_DATA]);
}

static uint64_t middle_of_slots(const struct pen_program_collectives *c) {
  return c->context->memory->exchange_offset + c->context->memory->exchange_bytes / 2;
}

const char *pen_use_read(struct pen_program_collectives *c, uint32_t tensor, uint64_t first) {
  if (is_slot(c, tensor) && first < c->lowest_slot) c->lowest_slot = first;
  return is_slot(c, tensor) || user_of(c, false) == PEN_OTHERS ? use(c, tensor, false) : NULL;
}

const char *pen_use_overwritten(struct pen_program_collectives *c, uint32_t tensor) {
  return use(c, tensor, true);
}

const char *pen_use_written(struct pen_program_collectives *c, uint32_t tensor, uint64_t first,
                            uint64_t past) {
  const bool own = user_of(c, true) == PEN_OWN;
  c->partial[tensor].use = (struct pen_in_use){{0}, {0}};
  if (is_slot(c, tensor) && own && first < c->lowest_slot) c->lowest_slot = first;
  return is_slot(c, tensor) && !own && c->signals[PEN_TENSOR].known == 0 &&
                 past > middle_of_slots(c)
             ? "which others may still read from the program before"
             : use(c, tensor, true);
}

const char *pen_use_left(struct pen_program_collectives *c, uint32_t tensor) {
  return pen_use(&c->partial[tensor].use, PEN_OWN, true, c->signals[PEN_DATA]);
}

bool pen_slots_left(const struct pen_program_collectives *c) {
  return c->lowest_slot >= middle_of_slots(c);
}

/* ---- whole ---- */

static void set_state(struct pen_program_collectives *c, uint32_t tensor,
                      enum pen_partial_state state) {
  if (c->partial[tensor].state == PEN_PARTIAL_NONE) c->partials[c->partial_count++] = tensor;
  c->partial[tensor].state = (uint8_t)state;
  c->partial[tensor].complete = false;
}

void pen_partial_zeroed(struct pen_program_collectives *c, uint32_t tensor) {
  set_state(c, tensor, PEN_PARTIAL_ZERO);
}

const char *pen_partial_added(struct pen_program_collectives *c, uint32_t tensor) {
  if (c->partial[tensor].state == PEN_PARTIAL_NONE)
    return "which is neither the gradient of a trainable weight nor zero";
  if (c->partial[tensor].state == PEN_PARTIAL_SUMMED) return "which is summed already";
  set_state(c, tensor, PEN_PARTIAL_ADDED);
  return use(c, tensor, true);
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
