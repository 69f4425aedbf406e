/* mock_device_bytes.c: looks at every action, op and operand for every message (see mock_device.h).
 * It shares no code with the generator's search for reuse. */
#include <stdlib.h>

#include "runtime/exec/operands.h"
#include "tests/emulation/mock_device.h"

struct byte_range {
  uint64_t first, bytes;
};

static bool meets(struct byte_range a, struct byte_range b) {
  return a.first < b.first + b.bytes && b.first < a.first + a.bytes;
}

static bool tensor_meets(const struct pen_rank_program *program, const struct pen_action *row,
                         uint32_t tensor, struct byte_range range) {
  if (tensor == PEN_NONE) {
    return false;
  }
  const struct pen_tensor *t = &program->tensors[tensor];
  return meets((struct byte_range){program->frames[row->frame].base[t->base] + t->offset, t->bytes},
               range);
}

/* The tensors that an action gathers. */
static bool block_meets(const struct pen_rank_program *program, const struct pen_action *row,
                        struct byte_range range) {
  const struct pen_collective *collective = &program->collectives[row->collective];
  bool met = false;
  for (uint32_t i = 0; i < collective->put_count && !met; i++) {
    const struct pen_put *put = &program->puts[collective->first_put + i];
    met = meets(
        (struct byte_range){program->frames[row->frame].base[put->to_base] + put->to,
                            pen_plan.weights[put->weight].count * pen_dtype_bytes(put->dtype)},
        range);
  }
  return met;
}

/* Whether a compute action reads (or, `writes`, writes) there, or an action that gathers weights
 * writes there. */
static bool row_meets(uint32_t rank, const struct pen_action *row, struct byte_range range,
                      bool writes) {
  const struct pen_rank_program *program = &mock_device_profile->ranks[rank];
  if (row->kind == PEN_UNSHARD) {
    return block_meets(program, row, range);
  }
  if (row->kind > PEN_W) {
    return false;
  }
  const struct pen_program *called = &program->programs[row->program];
  for (uint32_t i = called->first_op; i < called->first_op + called->op_count; i++) {
    const struct pen_op *op = &program->ops[i];
    const struct pen_operand_count operands = pen_operands_of(op->kind);
    bool met = tensor_meets(program, row, op->workspace, range);
    for (uint32_t k = writes ? operands.inputs : 0; k < operands.all && !met; k++) {
      met = tensor_meets(program, row, op->operand[k], range);
    }
    if (met) {
      return true;
    }
  }
  return false;
}

static uint32_t row_of(const struct pen_rank_program *program, uint32_t message, bool sends) {
  uint32_t r = 0;
  for (; r < program->action_count; r++) {
    const int kind = program->actions[r].kind;
    const bool right =
        sends
            ? kind == PEN_SEND_F || kind == PEN_SEND_B || kind == PEN_SEND_G || kind == PEN_SEND_V
            : kind == PEN_RECV_F || kind == PEN_RECV_B || kind == PEN_RECV_G || kind == PEN_RECV_V;
    if (right && program->actions[r].message == message) {
      break;
    }
  }
  return r < program->action_count ? r : PEN_NONE;
}

struct bytes mock_device_bytes(void) {
  const struct pen_profile *profile = mock_device_profile;
  struct bytes bytes = {calloc(profile->message_count + 1, sizeof(uint32_t)),
                        calloc(profile->message_count + 1, sizeof(uint32_t)),
                        calloc(profile->message_count + 1, sizeof(uint32_t)),
                        calloc(profile->message_count + 1, sizeof(uint32_t))};
  for (uint32_t m = 0; m < profile->message_count; m++) {
    const struct pen_message *message = &profile->messages[m];
    const struct pen_channel *channel = &profile->channels[message->channel];
    const struct pen_rank_program *from = &profile->ranks[channel->from_rank],
                                  *to = &profile->ranks[channel->to_rank];
    const uint32_t sent = row_of(from, m, true), received = row_of(to, m, false);
    bytes.received_by[m] = received;
    bytes.sent_by[m] = sent;
    bytes.overwritten_by[m] = bytes.last_touch[m] = PEN_NONE;
    for (uint32_t r = sent;
         r != PEN_NONE && r < from->action_count && bytes.overwritten_by[m] == PEN_NONE; r++) {
      if (row_meets(channel->from_rank, &from->actions[r],
                    (struct byte_range){message->source_offset, message->bytes}, true)) {
        bytes.overwritten_by[m] = r;
      }
    }
    for (uint32_t i = 0;
         received != PEN_NONE && i < to->action_count && bytes.last_touch[m] == PEN_NONE; i++) {
      const uint32_t r = (received + to->action_count - 1 - i) % to->action_count;
      if (row_meets(channel->to_rank, &to->actions[r],
                    (struct byte_range){message->target_offset, message->bytes}, false)) {
        bytes.last_touch[m] = r;
      }
    }
  }
  return bytes;
}
