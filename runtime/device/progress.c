/* queue_told.c: what the host of a rank on a device tells the watch (fault.c): how far the device
 * is in its step, and which rank it waits for.
 *
 * The device says by two words how many rows are done, and from how many of them all that they send
 * has left (queue.h). Each rank knows all ranks' words from shared memory, and from the plan what
 * its device needs next:
 *
 *     the queue's stream       at WAIT, the message; at WAIT_NORM, all entries; in the exchange and
 * at the step's end, rows of peers; anywhere, that what it is to write over has left the stream
 * that sends    the credit of the next message, if it has one
 *
 * A rank waits for another if that one has not done what is needed, and if nothing that the rank's
 * own device could do is left on either stream. Else what it waits for is its own device. So
 * whoever waits, waits for what is truly not done. Where both streams wait, it says both: who wants
 * a message, a credit or an entry of it is held up by what leaves before that, who wants a row by
 * its rows (lost.h). So from any rank that stands still those that are waited for lead to the one
 * whose device stalls, since no verified plan has a circle.
 *
 * A host that is held up tells nothing anew, and what it told may be over. While it does nothing
 * but tell it counts how often, so that the watch takes what is old for nothing. In a call to its
 * device it may stand as long as that works.
 *
 * Where messages have no one order in which they leave (NCCL), a rank says that it waits for
 * whoever is to send, and the watch looks further. */
#include "runtime/device/link.h"
#include "runtime/device/stream_executor.h"

/* Whether a process's device has done that row of its list, or has sent what the row sends, in the
 * step at hand here. */
static bool has_done(const struct pen_vm *vm, uint32_t process, uint32_t row, bool sent) {
  const struct pen_rank_state *state = &vm->transport->shared->ranks[process];
  const int32_t ahead = (int32_t)(atomic_load(&state->published.count) -
                                  atomic_load(&vm->transport->self->published.count));
  const uint64_t done = atomic_load(sent ? &state->sends_completed : &state->finished) -
                        atomic_load(&state->step_began);
  return ahead > 0 || (ahead == 0 && done > row);
}

static uint32_t process_of(const struct pen_vm *vm, uint32_t rank) {
  return vm->replica * vm->plan->rank_count + rank;
}

/* ---- whom each stream waits for; PEN_NONE: the rank's own device ---- */

static uint32_t for_message(const struct pen_vm *vm, uint32_t message) {
  const uint32_t from = vm->profile->channels[vm->profile->messages[message].channel].from_rank;
  const bool sent = !vm->queued.link->meets &&
                    has_done(vm, process_of(vm, from), vm->queued.link->sent_by[message], true);
  return sent ? PEN_NONE : process_of(vm, from);
}

/* The first peer that has not done a row of the list that all peers have. */
static uint32_t for_peers(const struct pen_vm *vm, uint32_t row) {
  for (uint32_t d = 0; d < vm->plan->replica_count; d++) {
    const uint32_t peer = d * vm->plan->rank_count + vm->rank;
    if (d != vm->replica && !has_done(vm, peer, row, false)) {
      return peer;
    }
  }
  return PEN_NONE;
}

static uint32_t for_exchange(const struct pen_vm *vm, uint32_t count) {
  return count == 0 ? PEN_NONE : for_peers(vm, vm->queued.link->exchange_rows[count]);
}

/* What one row swaps comes when the peers have done all rows above it. */
static uint32_t for_meeting(const struct pen_vm *vm, uint32_t row) {
  return pen_kind_reads_peers(vm->program->actions[row].kind) && row > 0 ? for_peers(vm, row - 1)
                                                                         : PEN_NONE;
}

/* Others' entries of the board: of whom they are wanted, see pen_link_gathers(); or that all come
 * to WAIT_NORM. */
static uint32_t for_entries(const struct pen_vm *vm) {
  const uint32_t self = vm->transport->global, ranks = vm->plan->rank_count;
  const bool meets = vm->queued.link->meets;
  const int kind = meets ? PEN_WAIT_NORM : PEN_PUBLISH;
  for (uint32_t r = 0; r < pen_process_count(vm->plan); r++) {
    const struct pen_rank_program *program = &vm->profile->ranks[r % ranks];
    const bool wanted =
        r != self && (meets || vm->profile->kind == PEN_TRAIN || r / ranks == vm->replica);
    uint32_t past = wanted ? program->action_count : 0;
    while (past > 0 && program->actions[past - 1].kind != kind) {
      past--;
    }
    if (past > 1 && !has_done(vm, r, meets ? past - 2 : past - 1, !meets)) {
      return r;
    }
  }
  return PEN_NONE;
}

static uint32_t for_credit(const struct pen_vm *vm, const struct pen_action *row) {
  if (!pen_kind_sends(row->kind) || vm->profile->messages[row->message].credit == PEN_NONE) {
    return PEN_NONE;
  }
  const uint32_t to = vm->profile->channels[vm->profile->messages[row->message].channel].to_rank;
  return has_done(vm, process_of(vm, to), vm->queued.link->received_by[row->message], true)
             ? PEN_NONE
             : process_of(vm, to);
}

static bool is_gather(const struct pen_vm *vm, uint32_t row) {
  return row < vm->program->action_count && vm->program->actions[row].kind == PEN_WAIT_NORM;
}

/* Whom the queue's stream waits for before its next row is done. */
static uint32_t for_row(const struct pen_vm *vm, uint32_t row) {
  if (row == vm->program->action_count) {
    return for_exchange(vm, vm->queued.link->end_exchange);
  }
  const struct pen_action *action = &vm->program->actions[row];
  if (pen_kind_waits(action->kind)) {
    return for_message(vm, action->message);
  }
  if (is_gather(vm, row)) {
    return for_entries(vm);
  }
  if (vm->plan->replica_count == 1 || !pen_kind_is_collective(action->kind)) {
    return PEN_NONE;
  }
  return vm->queued.link->meets ? for_meeting(vm, row)
                                : for_exchange(vm, action->awaited_collective);
}

/* Whether the queue's stream does not go on before messages from row `sending` on have left. */
static bool needs_room(const struct pen_vm *vm, uint32_t row, uint32_t sending) {
  const struct pen_send_hazards *reuse = &vm->queued.link->reuse;
  bool needs = row == vm->program->action_count;
  for (uint32_t i = needs ? 0 : reuse->first[row]; !needs && i < reuse->first[row + 1]; i++) {
    needs = vm->queued.link->sent_by[reuse->message[i]] >= sending;
  }
  return needs;
}

/* What is said of whom the rank waits for, 0 for its own device alone: of all that it does, and of
 * its rows (control.h). */
struct said {
  uint32_t all, rows;
};

static struct said awaited(const struct pen_vm *vm, uint32_t rows, uint32_t left) {
  const struct pen_link *link = vm->queued.link;
  uint32_t sending =
      link->meets ? rows : left; /* what meets leaves in no order, and is in no word */
  while (sending < rows && link->kind->leaving(link, &vm->program->actions[sending]) == NULL) {
    sending++;
  }
  const uint32_t sent_to =
      sending < rows ? for_credit(vm, &vm->program->actions[sending]) : PEN_NONE;
  const bool sends = sending < rows;
  uint32_t peer = for_row(vm, rows);
  if (peer == PEN_NONE && sends && needs_room(vm, rows, sending)) {
    peer = sent_to;
  }
  if (peer == PEN_NONE || (sends && sent_to == PEN_NONE)) {
    return (struct said){0, 0};
  }
  const bool exchanges =
      peer / vm->plan->rank_count != vm->replica && !link->meets && !is_gather(vm, rows);
  return (struct said){(sends ? sent_to : peer) + 1,
                       (peer + 1) | (exchanges ? PEN_WAITS_FOR_ACTIONS : 0)};
}

void pen_stream_publish_progress(struct pen_vm *vm, uint32_t rows, uint32_t left) {
  struct pen_rank_state *self = vm->transport->self;
  const uint64_t began = vm->queue->rows;
  atomic_store_explicit(&self->step_began, began, memory_order_relaxed);
  atomic_store_explicit(&self->profile, (uint32_t)(vm->profile - vm->plan->profiles),
                        memory_order_relaxed);
  atomic_store_explicit(&self->finished, began + rows, memory_order_relaxed);
  atomic_store_explicit(&self->sends_completed, began + left, memory_order_relaxed);
  const struct said said = vm->queued.link == NULL ? (struct said){0, 0} : awaited(vm, rows, left);
  atomic_store_explicit(&self->actions_wait_for, said.rows, memory_order_relaxed);
  atomic_store_explicit(&self->waits_for, said.all, memory_order_relaxed);
  atomic_store_explicit(&self->heartbeat,
                        atomic_load_explicit(&self->heartbeat, memory_order_relaxed) + 1,
                        memory_order_relaxed);
}

void pen_stream_progress(struct pen_vm *vm) {
  atomic_store_explicit(&vm->transport->self->heartbeat, 0, memory_order_relaxed);
}
