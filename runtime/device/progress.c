/* progress.c: publishes how far a rank's device is in its step, and for which rank it waits (see
 * progress.h).
 *
 * The device counts how many actions are done, and up to which of them all messages are sent
 * (stream_executor.h). Each rank knows the counters of all ranks from shared memory, and from the
 * plan what its device needs next:
 *
 *     compute stream  at WAIT, the message; at WAIT_NORM, all entries; in a collective and at the
 *                     step's end, actions of peers; in an exchange, the actions before it of the
 *                     other members, and at the step's end their last exchange; before it
 *                     overwrites a source, that it is sent
 *     send stream     the credit of the next message, if it has one
 *
 * Where a step is serial (graph.h) there is no send stream: the compute stream waits for credits at
 * SEND; and over NCCL at SEND until the receiver is at its RECV, at RECV for the message.
 *
 * A rank waits for another if that one has not done what is needed, and if neither stream has work
 * left that its device could do. Else it waits for its own device. If both streams wait, it
 * publishes both: a rank that needs a message, a credit or an entry is delayed by the sends before
 * it, one that needs an action by actions alone (failure_text.h). So the chain of waits from any
 * rank leads to the one whose device stalls, since no verified plan has a circular wait.
 *
 * A host that is blocked publishes nothing, and what it has published may be outdated. While it
 * only publishes, it counts how often, so that the watchdog ignores outdated values. A call to its
 * device may block it for as long as it takes.
 *
 * If messages are not sent in one order (NCCL), a rank publishes that it waits for the sending
 * rank, and the watchdog follows from there. */
#include "runtime/device/progress.h"

#include "runtime/base/check.h"
#include "runtime/comm/transport_base.h"
#include "runtime/device/device_error.h"
#include "runtime/device/stream_state.h"

/* Whether the device of a process has done so many actions of its list, or has sent their messages,
 * in this rank's current step; 0: it has done the steps before. */
static bool has_reached(const struct pen_vm *vm, uint32_t process, uint32_t count, bool sent) {
  const struct pen_rank_state *state = &vm->endpoint->shared->ranks[process];
  const int32_t ahead = (int32_t)(atomic_load(&state->published.count) -
                                  atomic_load(&vm->endpoint->self->published.count));
  const uint64_t done = atomic_load(sent ? &state->sends_completed : &state->finished) -
                        atomic_load(&state->step_began);
  return ahead > 0 || (ahead == 0 && done >= count);
}

/* The same for that action. */
static bool has_done(const struct pen_vm *vm, uint32_t process, uint32_t action, bool sent) {
  return has_reached(vm, process, action + 1, sent);
}

static uint32_t process_of(const struct pen_vm *vm, uint32_t rank) {
  return pen_endpoint_process(vm->endpoint, PEN_PIPELINE, rank);
}

/* ---- for whom each stream waits; PEN_NONE: the rank's own device ---- */

static uint32_t for_message(const struct pen_vm *vm, uint32_t message) {
  const uint32_t from = vm->profile->channels[vm->profile->messages[message].channel].from_rank;
  const bool sent =
      !vm->transport->rendezvous &&
      has_done(vm, process_of(vm, from), vm->transport->actions.sent_by[message], true);
  return sent ? PEN_NONE : process_of(vm, from);
}

/* The first other member of a group that has not done so many actions: all run one list. */
static uint32_t for_group(const struct pen_vm *vm, int group, uint32_t count) {
  for (uint32_t m = 0; m < pen_group_size(vm->plan, group); m++) {
    const uint32_t member = pen_endpoint_process(vm->endpoint, group, m);
    if (member != vm->endpoint->global && !has_reached(vm, member, count, false)) {
      return member;
    }
  }
  return PEN_NONE;
}

static uint32_t for_collectives(const struct pen_vm *vm, uint32_t count) {
  return count == 0 ? PEN_NONE
                    : for_group(vm, PEN_DATA, vm->transport->actions.collectives[count] + 1);
}

/* The data of an exchange arrive when the peers have done all actions before it. */
static uint32_t for_rendezvous(const struct pen_vm *vm, uint32_t index) {
  const struct pen_action *action = &vm->program->actions[index];
  const bool exchanges =
      pen_kind_reads_peers(action->kind) || pen_collectives_within(vm->program, action) > 0;
  return exchanges ? for_group(vm, PEN_DATA, index) : PEN_NONE;
}

static bool has_exchanges(const struct pen_vm *vm, const struct pen_action *action) {
  const struct pen_program *program =
      action->kind <= PEN_W ? &vm->program->programs[action->program] : NULL;
  bool has = false;
  for (uint32_t op = 0; program != NULL && op < program->op_count && !has; op++) {
    const struct pen_collective *row =
        pen_collective_of(vm->program, &vm->program->ops[program->first_op + op]);
    has = row != NULL && row->group == PEN_TENSOR;
  }
  return has;
}

/* The first other member that has done no more actions and waits for a rank that is no member. */
static uint32_t for_waiting_member(const struct pen_vm *vm, uint32_t count) {
  for (uint32_t m = 0; m < pen_group_size(vm->plan, PEN_TENSOR); m++) {
    const uint32_t member = pen_transport_process(vm->transport, PEN_TENSOR, m);
    const uint32_t awaited = atomic_load(&vm->endpoint->shared->ranks[member].waits_for);
    if (m != vm->endpoint->tensor_rank && awaited != 0 &&
        !has_reached(vm, member, count + 1, false) &&
        !pen_in_group(vm->plan, member, PEN_TENSOR, awaited - 1)) {
      return member;
    }
  }
  return PEN_NONE;
}

/* An exchange waits for the actions before it of the other members, and for what these wait for in
 * the same action; over ipc a step's end waits for its last exchange. */
static uint32_t for_exchange(const struct pen_vm *vm, uint32_t index) {
  if (pen_group_size(vm->plan, PEN_TENSOR) == 1) {
    return PEN_NONE;
  }
  if (index < vm->program->action_count) {
    const bool exchanges = has_exchanges(vm, &vm->program->actions[index]);
    const uint32_t member = exchanges ? for_group(vm, PEN_TENSOR, index) : PEN_NONE;
    return exchanges && member == PEN_NONE ? for_waiting_member(vm, index) : member;
  }
  while (index > 0 && !has_exchanges(vm, &vm->program->actions[index - 1])) {
    index--;
  }
  return index == 0 || vm->transport->rendezvous ? PEN_NONE : for_group(vm, PEN_TENSOR, index);
}

/* The entries of the statistics of other ranks: those that are read, see pen_transport_gathers();
 * or all ranks' arrival at WAIT_NORM. */
static uint32_t for_entries(const struct pen_vm *vm) {
  const uint32_t self = vm->endpoint->global;
  const bool rendezvous = vm->transport->rendezvous;
  const int kind = rendezvous ? PEN_WAIT_NORM : PEN_PUBLISH;
  for (uint32_t r = 0; r < pen_process_count(vm->plan); r++) {
    const struct pen_rank_program *program = &vm->profile->ranks[pen_table_rank(vm->plan, r)];
    const bool wanted = r != self && (rendezvous || vm->profile->kind == PEN_TRAIN ||
                                      pen_group_member(vm->plan, r, PEN_DATA) == vm->replica);
    uint32_t past = wanted ? program->action_count : 0;
    while (past > 0 && program->actions[past - 1].kind != kind) {
      past--;
    }
    if (past > 1 && !has_done(vm, r, rendezvous ? past - 2 : past - 1, !rendezvous)) {
      return r;
    }
  }
  return PEN_NONE;
}

static uint32_t for_credit(const struct pen_vm *vm, const struct pen_action *action) {
  if (!pen_kind_sends(action->kind) || vm->profile->messages[action->message].credit == PEN_NONE) {
    return PEN_NONE;
  }
  const uint32_t to = vm->profile->channels[vm->profile->messages[action->message].channel].to_rank;
  return has_done(vm, process_of(vm, to), vm->transport->actions.received_by[action->message], true)
             ? PEN_NONE
             : process_of(vm, to);
}

/* At an action of a message, where all is on the compute stream. */
static uint32_t for_serial_message(const struct pen_vm *vm, const struct pen_action *action) {
  const struct pen_channel *channel =
      &vm->profile->channels[vm->profile->messages[action->message].channel];
  const uint32_t to = process_of(vm, channel->to_rank);
  if (!vm->transport->rendezvous) {
    return for_credit(vm, action);
  }
  if (pen_kind_receives(action->kind)) {
    return for_message(vm, action->message);
  }
  return has_reached(vm, to, vm->transport->actions.received_by[action->message], false) ? PEN_NONE
                                                                                         : to;
}

static bool is_gather(const struct pen_vm *vm, uint32_t index) {
  return index < vm->program->action_count && vm->program->actions[index].kind == PEN_WAIT_NORM;
}

/* For whom the compute stream waits before its next action is done. */
static uint32_t for_action(const struct pen_vm *vm, uint32_t index) {
  const uint32_t member = for_exchange(vm, index);
  if (member != PEN_NONE) {
    return member;
  }
  if (index == vm->program->action_count) {
    return for_collectives(vm, vm->transport->actions.end_collectives);
  }
  const struct pen_action *action = &vm->program->actions[index];
  if (pen_kind_waits(action->kind)) {
    return for_message(vm, action->message);
  }
  if (vm->transport->serial && (pen_kind_sends(action->kind) || pen_kind_receives(action->kind))) {
    return for_serial_message(vm, action);
  }
  if (is_gather(vm, index)) {
    return for_entries(vm);
  }
  const bool within = pen_collectives_within(vm->program, action) > 0;
  if (pen_group_size(vm->plan, PEN_DATA) == 1 ||
      !(within || pen_kind_is_collective(action->kind))) {
    return PEN_NONE;
  }
  return within || vm->transport->rendezvous ? for_rendezvous(vm, index)
                                             : for_collectives(vm, action->awaited_collective);
}

/* Whether the compute stream waits until messages from action `sending` on are sent. */
static bool waits_for_sends(const struct pen_vm *vm, uint32_t index, uint32_t sending) {
  const struct pen_send_hazards *hazards = &vm->send_hazards;
  bool needs = index == vm->program->action_count;
  for (uint32_t i = needs ? 0 : hazards->first[index]; !needs && i < hazards->first[index + 1];
       i++) {
    needs = vm->transport->actions.sent_by[hazards->message[i]] >= sending;
  }
  return needs;
}

/* For whom the rank waits, global rank + 1, 0 for its own device alone: in all its work, and in its
 * actions (shared_control.h). */
struct awaited_ranks {
  uint32_t all, actions;
};

static struct awaited_ranks find_awaited_ranks(const struct pen_vm *vm, uint32_t done,
                                               uint32_t sent) {
  const struct pen_transport *transport = vm->transport;
  uint32_t sending =
      transport->rendezvous ? done : sent; /* collectives send in no order, and have no counter */
  while (sending < done &&
         transport->ops->send_stream(transport, &vm->program->actions[sending]) == NULL) {
    sending++;
  }
  const uint32_t sent_to =
      sending < done ? for_credit(vm, &vm->program->actions[sending]) : PEN_NONE;
  const bool sends = sending < done;
  uint32_t peer = for_action(vm, done);
  if (peer == PEN_NONE && sends && waits_for_sends(vm, done, sending)) {
    peer = sent_to;
  }
  if (peer == PEN_NONE || (sends && sent_to == PEN_NONE)) {
    return (struct awaited_ranks){0, 0};
  }
  const bool exchanges = !pen_in_group(vm->plan, vm->endpoint->global, PEN_PIPELINE, peer) &&
                         !transport->rendezvous && !is_gather(vm, done);
  return (struct awaited_ranks){(sends ? sent_to : peer) + 1,
                                (peer + 1) | (exchanges ? PEN_WAITS_FOR_ACTIONS : 0)};
}

/* ---- publishing ---- */

struct pen_progress_counters pen_progress_read(const struct pen_stream_state *state) {
  return (struct pen_progress_counters){__atomic_load_n(pen_pinned_done(state), __ATOMIC_ACQUIRE),
                                        __atomic_load_n(pen_pinned_sent(state), __ATOMIC_ACQUIRE)};
}

void pen_progress_publish(struct pen_vm *vm, struct pen_progress_counters counters) {
  struct pen_rank_state *self = vm->endpoint->self;
  const uint64_t began = vm->stream_state->actions_done;
  const struct awaited_ranks awaited = pen_process_count(vm->plan) == 1
                                           ? (struct awaited_ranks){0, 0}
                                           : find_awaited_ranks(vm, counters.done, counters.sent);
  atomic_store_explicit(&self->step_began, began, memory_order_relaxed);
  atomic_store_explicit(&self->profile, (uint32_t)(vm->profile - vm->plan->profiles),
                        memory_order_relaxed);
  atomic_store_explicit(&self->finished, began + counters.done, memory_order_relaxed);
  atomic_store_explicit(&self->sends_completed, began + counters.sent, memory_order_relaxed);
  atomic_store_explicit(&self->actions_wait_for, awaited.actions, memory_order_relaxed);
  atomic_store_explicit(&self->waits_for, awaited.all, memory_order_relaxed);
  atomic_store_explicit(&self->heartbeat,
                        atomic_load_explicit(&self->heartbeat, memory_order_relaxed) + 1,
                        memory_order_relaxed);
}

void pen_progress_end(struct pen_vm *vm) {
  atomic_store_explicit(&vm->endpoint->self->heartbeat, 0, memory_order_relaxed);
}

bool pen_progress_wait(struct pen_vm *vm, void *event) {
  /* the counters are those of the step of the next actions */
  pen_assert(vm->stream_state->finished == vm->stream_state->begun);
  bool going;
  do {
    pen_progress_publish(vm, pen_progress_read(vm->stream_state));
    going = pen_device_is_well(vm);
  } while (going && !vm->device->event_query(event));
  pen_progress_end(vm);
  return going;
}
