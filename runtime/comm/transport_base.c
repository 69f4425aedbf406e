/* transport_base.c: what the implementations of transport.h share (see transport_base.h). */
#include "runtime/comm/transport_base.h"

#include <stdlib.h>

#include "runtime/base/check.h"
#include "runtime/plan/shard.h"

/* ---- a rank alone ---- */

void pen_transport_no_call(struct pen_transport *transport) { (void)transport; }

static bool no_others(struct pen_transport *transport) { return (void)transport, true; }

static bool no_wait(struct pen_transport *transport, uint32_t index) {
  return (void)transport, (void)index, true;
}

static bool no_receive(struct pen_transport *transport, uint32_t message, const uint32_t *sends,
                       uint32_t send_count) {
  return (void)transport, (void)message, (void)sends, (void)send_count, true;
}

static void no_wait_sent(struct pen_transport *transport, uint32_t message) {
  (void)transport, (void)message;
}

static void no_sendrecv(struct pen_transport *transport, const struct pen_sendrecv *sendrecv) {
  (void)transport, (void)sendrecv;
}

static bool no_wait_group(struct pen_transport *transport, int group, uint32_t count) {
  return (void)transport, (void)group, (void)count, true;
}

void pen_transport_no_signal(struct pen_transport *transport, int group) {
  (void)transport, (void)group;
}

static unsigned char *own_arena(struct pen_transport *transport, int group, uint32_t member) {
  return (void)group, (void)member, transport->arena;
}

const char *pen_transport_no_capture_error(struct pen_transport *transport) {
  return (void)transport, NULL;
}

bool pen_transport_own_captured(struct pen_transport *transport, bool captured) {
  return (void)transport, captured;
}

const char *pen_transport_no_error(struct pen_transport *transport, uint32_t *peer) {
  *peer = pen_transport_self(transport);
  return NULL;
}

static void *no_send_stream(const struct pen_transport *transport,
                            const struct pen_action *action) {
  return (void)transport, (void)action, NULL;
}

const struct pen_transport_ops pen_transport_alone = {
    .name = "alone",
    .export_handles = pen_transport_no_call,
    .connect = pen_transport_no_call,
    .send = no_wait,
    .receive = no_receive,
    .wait = no_wait,
    .wait_sent = no_wait_sent,
    .publish = no_others,
    .gather = no_others,
    .end_step = pen_transport_no_call,
    .wait_group = no_wait_group,
    .signal_group = pen_transport_no_signal,
    .member_arena = own_arena,
    .group_begin = pen_transport_no_call,
    .sendrecv = no_sendrecv,
    .group_end = pen_transport_no_call,
    .send_stream = no_send_stream,
    .cannot_capture = pen_transport_no_capture_error,
    .clear_error = pen_transport_no_capture_error,
    .all_captured = pen_transport_own_captured,
    .error = pen_transport_no_error,
    .abort = pen_transport_no_call,
};

/* ---- opening ---- */

void pen_transport_fill(struct pen_transport *transport,
                        const struct pen_transport_config *config) {
  struct pen_endpoint *endpoint = config->endpoint;
  *transport = (struct pen_transport){
      .endpoint = endpoint,
      .plan = endpoint->plan,
      .profile = config->profile,
      .shared = endpoint->shared,
      .rank = endpoint->rank,
      .replica = endpoint->replica,
      .device = config->device,
      .stream = config->stream,
      .collective_stream = config->stream,
      .arena = endpoint->arena,
      .first = config->first,
      .announces = config->announces,
  };
}

/* Whether a rank gathers, and which of its actions send and receive which messages. */
static void list_rank(struct pen_transport *transport, uint32_t rank) {
  struct pen_transport_actions *actions = &transport->actions;
  const struct pen_rank_program *program = &transport->profile->ranks[rank];
  for (uint32_t i = 0; i < program->action_count; i++) {
    const struct pen_action *action = &program->actions[i];
    actions->gathers[rank] = actions->gathers[rank] || action->kind == PEN_WAIT_NORM;
    if (pen_kind_sends(action->kind)) {
      actions->sent_by[action->message] = i;
    } else if (pen_kind_receives(action->kind)) {
      actions->received_by[action->message] = i;
    }
  }
}

/* The collectives of the rank's list, with those within programs: see transport.h. */
static void list_collectives(struct pen_transport *transport) {
  const struct pen_rank_program *program = &transport->profile->ranks[transport->rank];
  struct pen_transport_actions *actions = &transport->actions;
  uint32_t capacity = 0;
  for (uint32_t i = 0; i < program->action_count; i++) {
    capacity += 1 + pen_collectives_within(program, &program->actions[i]);
  }
  actions->collectives = pen_allocate(capacity + 1u, sizeof *actions->collectives, "a transport");
  for (uint32_t i = 0; pen_group_size(transport->plan, PEN_DATA) > 1 && i < program->action_count;
       i++) {
    uint32_t count = pen_collectives_within(program, &program->actions[i]) +
                     pen_kind_is_collective(program->actions[i].kind);
    for (; count > 0; count--) {
      actions->collectives[++actions->collective_count] = i;
    }
  }
}

void pen_transport_list_actions(struct pen_transport *transport) {
  const struct pen_plan *plan = transport->plan;
  const struct pen_profile *profile = transport->profile;
  struct pen_transport_actions *actions = &transport->actions;
  *actions = (struct pen_transport_actions){
      .gathers = pen_allocate(plan->rank_count, sizeof *actions->gathers, "a transport"),
      .all_gather = true,
      .sent_by = pen_allocate(profile->message_count + 1u, sizeof *actions->sent_by, "a transport"),
      .received_by =
          pen_allocate(profile->message_count + 1u, sizeof *actions->received_by, "a transport"),
  };
  for (uint32_t r = 0; r < plan->rank_count; r++) {
    list_rank(transport, r);
    actions->all_gather = actions->all_gather && actions->gathers[r];
  }
  list_collectives(transport);
}

/* ---- the statistics of a step ---- */

bool pen_transport_gathers(const struct pen_transport *transport, uint32_t global) {
  return transport->actions.gathers[pen_table_rank(transport->plan, global)] &&
         (pen_group_member(transport->plan, global, PEN_DATA) == transport->replica ||
          transport->profile->kind == PEN_TRAIN);
}

/* The weight of whose tensors an entry is one. */
static uint32_t weight_of_entry(const struct pen_plan *plan, uint32_t entry) {
  uint32_t first = 0, past = plan->weight_count;
  while (past - first > 1) {
    const uint32_t middle = first + (past - first) / 2;
    if (pen_first_entry(plan, middle) > entry) {
      past = middle;
    } else {
      first = middle;
    }
  }
  return first;
}

static bool is_own_entry(const struct pen_transport *transport, uint32_t entry) {
  const uint32_t weight = weight_of_entry(transport->plan, entry);
  return pen_owns_weight(transport->plan, &transport->plan->weights[weight],
                         pen_transport_self(transport));
}

bool pen_transport_entries(const struct pen_transport *transport, bool own, uint32_t *first,
                           uint32_t *past) {
  const uint32_t count = pen_entry_count(transport->plan);
  for (*first = *past; *first < count && is_own_entry(transport, *first) != own; ++*first) {
  }
  for (*past = *first; *past < count && is_own_entry(transport, *past) == own; ++*past) {
  }
  return *first < *past;
}
