/* in_use.c: the rule "in use": from the wait to the signal of its readers nobody else uses the
 * bytes of a row.
 *
 * The members of a group run one list. Its collectives are numbered from 1. Who has waited for
 * collective n of the others knows that all of them have run their lists up to the signal of n, and
 * nothing more. So a use of memory that both a member and others access needs to know the
 * collective by which the last use by the other side is over: a read, that of the last write; a
 * write, that of the last read as well. What a row reads and writes, and when it waits and signals,
 * its columns say (moves.c proves these). Since all run one list, what others do in a member's
 * memory is what it does in theirs.
 *
 * A program may follow any other, of the same step or of the next: when it ends, the gradients of
 * its microbatch are free; it fills the first half of the slots first, and when it ends, no slot of
 * this half has been used since its last signal. */
#include "gen/verify/in_use.h"

#include <string.h>

#include "gen/base/arena.h"

const char *pen_use(struct pen_in_use *part, enum pen_user user, bool writes,
                    struct pen_signals at) {
  const enum pen_user other = user == PEN_OWN ? PEN_OTHERS : PEN_OWN;
  if (part->written[other] > at.known) return "which others may still write";
  if (writes && part->read[other] > at.known) return "which others may still read";
  (writes ? part->written : part->read)[user] = at.ended + 1;
  return NULL;
}

void pen_signals_wait(struct pen_signals *signals, const struct pen_collective *row) {
  const uint32_t awaited = row->group == PEN_TENSOR ? signals->ended : row->awaited;
  if (row->waits && awaited > signals->known) signals->known = awaited;
}

/* What others have written has come when they have signalled, too. */
void pen_signals_give(struct pen_signals *signals, const struct pen_collective *row,
                      bool others_write) {
  signals->ended += row->completes;
  if (others_write) signals->known = signals->ended;
}

/* ---- programs ---- */

void pen_uses_open(struct pen_uses *u, const struct pen_rank_context *context) {
  *u = (struct pen_uses){
      .context = context,
      .part = pen_new((size_t)context->tables->tensor_count + 1, sizeof *u->part)};
}

void pen_uses_close(struct pen_uses *u) { pen_free(u->part); }

void pen_uses_start(struct pen_uses *u, uint32_t first, uint32_t past) {
  memset(u->signals, 0, sizeof u->signals);
  u->first = first;
  u->past = past;
  u->first_put = NULL;
  u->lowest_slot = UINT64_MAX;
}

/* Whether others read what the op reads, or write what it writes: the puts of its row are such. */
static enum pen_user user_of(const struct pen_uses *u, bool writes) {
  const int kind = writes ? PEN_PUT_WRITE : PEN_PUT_ADD;
  return u->row && u->row->put_count && u->context->tables->puts[u->row->first_put].kind == kind
             ? PEN_OTHERS
             : PEN_OWN;
}

static bool is_of_row(const struct pen_uses *u, uint32_t op) {
  const struct pen_rank_program *tables = u->context->tables;
  return op >= u->first && op < u->past && pen_collective_of(tables, &tables->ops[op]) == u->row;
}

/* The first op of a row waits, the last one signals. */
void pen_uses_begin_op(struct pen_uses *u, uint32_t op) {
  u->op = op;
  u->row = pen_collective_of(u->context->tables, &u->context->tables->ops[op]);
  if (u->row && !is_of_row(u, op - 1)) pen_signals_wait(&u->signals[u->row->group], u->row);
}

void pen_uses_end_op(struct pen_uses *u) {
  if (!u->row || is_of_row(u, u->op + 1)) return;
  pen_signals_give(&u->signals[u->row->group], u->row, user_of(u, true) == PEN_OTHERS);
  if (u->row->group == PEN_TENSOR) u->lowest_slot = UINT64_MAX;
}

static bool is_slot(const struct pen_uses *u, uint32_t tensor) {
  return u->context->tables->tensors[tensor].base == PEN_BASE_EXCHANGE;
}

static const char *use(struct pen_uses *u, uint32_t tensor, bool writes) {
  return pen_use(&u->part[tensor], user_of(u, writes), writes,
                 u->signals[is_slot(u, tensor) ? PEN_TENSOR : PEN_DATA]);
}

static uint64_t middle_of_slots(const struct pen_uses *u) {
  return u->context->memory->exchange_offset + u->context->memory->exchange_bytes / 2;
}

const char *pen_uses_read(struct pen_uses *u, uint32_t tensor, uint64_t first) {
  if (is_slot(u, tensor) && first < u->lowest_slot) u->lowest_slot = first;
  return is_slot(u, tensor) || user_of(u, false) == PEN_OTHERS ? use(u, tensor, false) : NULL;
}

const char *pen_uses_overwrite(struct pen_uses *u, uint32_t tensor) { return use(u, tensor, true); }

const char *pen_uses_written(struct pen_uses *u, uint32_t tensor, uint64_t first, uint64_t past) {
  u->part[tensor] = (struct pen_in_use){{0}, {0}};
  use(u, tensor, true);
  if (!is_slot(u, tensor)) return NULL;
  if (user_of(u, true) == PEN_OWN) {
    if (first < u->lowest_slot) u->lowest_slot = first;
    return NULL;
  }
  if (!u->first_put) u->first_put = u->row;
  return u->first_put == u->row && past > middle_of_slots(u)
             ? "which others may still read from the program before"
             : NULL;
}

const char *pen_uses_left(struct pen_uses *u, uint32_t tensor) {
  return pen_use(&u->part[tensor], PEN_OWN, true, u->signals[PEN_DATA]);
}

bool pen_uses_end(const struct pen_uses *u) { return u->lowest_slot >= middle_of_slots(u); }
