/* send_hazards.c: finds the first action that overwrites a message's source (see send_hazards.h).
 *
 * One pass over the actions keeps the messages that may be in flight. An action writes: the outputs
 * and workspaces of its program's ops, at its frame's bases; RECV: the message's target, which a
 * peer may fill from here on; UNSHARD: its buffer; the actions of a step's end: anything that
 * persists. Each message in flight whose source overlaps with one of these must be sent before the
 * action, and is not looked at again; except after RECV, where only the peer has waited for it, and
 * not this rank. */
#include "runtime/exec/send_hazards.h"

#include <stdbool.h>
#include <stdlib.h>

#include "runtime/base/check.h"
#include "runtime/exec/operands.h"

struct hazard_search {
  const struct pen_plan *plan;
  const struct pen_profile *profile;
  const struct pen_rank_program *program;
  uint32_t *in_flight; /* messages */
  uint32_t in_flight_count;
  struct pen_send_hazards found;
  size_t found_count, found_capacity;
};

static void add_hazard(struct hazard_search *search, uint32_t message) {
  if (search->found_count == search->found_capacity) {
    search->found_capacity = 2 * search->found_capacity + 64;
    search->found.message =
        realloc(search->found.message, search->found_capacity * sizeof *search->found.message);
    pen_check(search->found.message != NULL && search->found_capacity < UINT32_MAX,
              "no memory for %zu messages", search->found_capacity);
  }
  search->found.message[search->found_count++] = message;
}

/* Bytes are overwritten: messages in flight from there must be sent before. */
static void overwrite(struct hazard_search *search, uint64_t offset, uint64_t bytes, bool by_peer) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < search->in_flight_count; i++) {
    const uint32_t index = search->in_flight[i];
    const struct pen_message *message = &search->profile->messages[index];
    const bool overlaps =
        offset < message->source_offset + message->bytes && message->source_offset < offset + bytes;
    if (overlaps) {
      add_hazard(search, index);
    }
    if (!overlaps || by_peer) {
      search->in_flight[kept++] = index;
    }
  }
  search->in_flight_count = kept;
}

static void overwrite_tensor(struct hazard_search *search, const struct pen_frame *frame,
                             uint32_t index) {
  if (index != PEN_NONE) {
    const struct pen_tensor *tensor = &search->program->tensors[index];
    overwrite(search, frame->base[tensor->base] + tensor->offset, tensor->bytes, false);
  }
}

static void overwrite_outputs(struct hazard_search *search, const struct pen_action *action) {
  const struct pen_program *program = &search->program->programs[action->program];
  const struct pen_frame *frame = &search->program->frames[action->frame];
  for (uint32_t i = 0; i < program->op_count && search->in_flight_count > 0; i++) {
    const struct pen_op *op = &search->program->ops[program->first_op + i];
    const struct pen_operand_count count = pen_operands_of(op->kind);
    for (uint32_t k = count.inputs; k < count.all; k++) {
      overwrite_tensor(search, frame, op->operand[k]);
    }
    overwrite_tensor(search, frame, op->workspace);
  }
}

/* What UNSHARD makes whole. */
static void overwrite_unsharded(struct hazard_search *search, const struct pen_action *action) {
  const struct pen_collective *row = &search->program->collectives[action->collective];
  const struct pen_frame *frame = &search->program->frames[action->frame];
  for (uint32_t i = row->first_put; i < row->first_put + row->put_count; i++) {
    const struct pen_put *put = &search->program->puts[i];
    overwrite(search, frame->base[put->to_base] + put->to,
              search->plan->weights[put->weight].count * pen_dtype_bytes(put->dtype), false);
  }
}

static bool computes(const struct pen_action *action) { return action->kind <= PEN_W; }

static void visit_action(struct hazard_search *search, const struct pen_action *action) {
  if (computes(action)) {
    overwrite_outputs(search, action);
    if (action->overlaps) {
      overwrite_outputs(search, action + 1);
    }
  } else if (pen_kind_receives(action->kind)) {
    overwrite(search, search->profile->messages[action->message].target_offset,
              search->profile->messages[action->message].bytes, true);
  } else if (pen_kind_sends(action->kind)) {
    search->in_flight[search->in_flight_count++] = action->message;
  } else if (action->kind == PEN_UNSHARD) {
    overwrite_unsharded(search, action);
  } else if (action->kind == PEN_UPDATE || action->kind == PEN_ADD_TIED_GRAD) {
    overwrite(search, 0, UINT64_MAX, false);
  }
}

struct pen_send_hazards pen_send_hazards_of(const struct pen_plan *plan,
                                            const struct pen_profile *profile, uint32_t rank) {
  const struct pen_rank_program *program = &profile->ranks[rank];
  struct hazard_search search = {.plan = plan, .profile = profile, .program = program};
  search.in_flight = calloc(profile->message_count + 1u, sizeof *search.in_flight);
  search.found.first = calloc(program->action_count + 1u, sizeof *search.found.first);
  pen_check(search.in_flight != NULL && search.found.first != NULL, "no memory for %u messages",
            profile->message_count);
  for (uint32_t r = 0; r < program->action_count; r++) {
    search.found.first[r] = (uint32_t)search.found_count;
    visit_action(&search, &program->actions[r]);
  }
  search.found.first[program->action_count] = (uint32_t)search.found_count;
  free(search.in_flight);
  return search.found;
}
