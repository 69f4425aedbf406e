/* reuse.c: finds the first row that writes over a message's source (see reuse.h).
 *
 * One pass over the rows holds the messages that may still be on their way. A row writes: the
 * outputs and workspaces of its program's ops, at its frame's bases; RECV: the message's home,
 * which a peer may fill from here on; UNSHARD: its block; the rows of a step's end: anything that
 * persists. Each message under way whose source meets one of these must leave before the row, and
 * is not looked at again; but for RECV, after which only the peer has waited for it, and not this
 * rank. */
#include "runtime/device/send_hazards.h"

#include <stdbool.h>
#include <stdlib.h>

#include "runtime/base/check.h"
#include "runtime/exec/vm.h"

struct walk {
  const struct pen_plan *plan;
  const struct pen_profile *profile;
  const struct pen_rank_program *program;
  uint32_t rank;
  uint32_t *under_way; /* messages */
  uint32_t under_way_count;
  struct pen_send_hazards found;
  size_t found_count, found_capacity;
};

static void add(struct walk *walk, uint32_t message) {
  if (walk->found_count == walk->found_capacity) {
    walk->found_capacity = 2 * walk->found_capacity + 64;
    walk->found.message =
        realloc(walk->found.message, walk->found_capacity * sizeof *walk->found.message);
    pen_check(walk->found.message != NULL && walk->found_capacity < UINT32_MAX,
              "no memory for %zu messages", walk->found_capacity);
  }
  walk->found.message[walk->found_count++] = message;
}

/* Something is written there: what is on its way from there must have left. */
static void write(struct walk *walk, uint64_t offset, uint64_t bytes, bool by_peer) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < walk->under_way_count; i++) {
    const uint32_t index = walk->under_way[i];
    const struct pen_message *message = &walk->profile->messages[index];
    const bool meets =
        offset < message->source_offset + message->bytes && message->source_offset < offset + bytes;
    if (meets) {
      add(walk, index);
    }
    if (!meets || by_peer) {
      walk->under_way[kept++] = index;
    }
  }
  walk->under_way_count = kept;
}

static void write_tensor(struct walk *walk, const struct pen_frame *frame, uint32_t index) {
  if (index != PEN_NONE) {
    const struct pen_tensor *tensor = &walk->program->tensors[index];
    write(walk, frame->base[tensor->base] + tensor->offset, tensor->bytes, false);
  }
}

static void compute(struct walk *walk, const struct pen_action *row) {
  const struct pen_program *program = &walk->program->programs[row->program];
  const struct pen_frame *frame = &walk->program->frames[row->frame];
  for (uint32_t i = 0; i < program->op_count && walk->under_way_count > 0; i++) {
    const struct pen_op *op = &walk->program->ops[program->first_op + i];
    const struct pen_operand_count count = pen_operands_of(op->kind);
    for (uint32_t k = count.inputs; k < count.all; k++) {
      write_tensor(walk, frame, op->operand[k]);
    }
    write_tensor(walk, frame, op->workspace);
  }
}

/* The weights of the row's stage that it brings together. */
static void unshard(struct walk *walk, const struct pen_action *row) {
  for (uint32_t i = 0; i < walk->program->tensor_count && walk->under_way_count > 0; i++) {
    const struct pen_tensor *tensor = &walk->program->tensors[i];
    if (tensor->base == PEN_BASE_UNSHARDED &&
        walk->plan->weights[pen_unsharded_weight(walk->plan, walk->rank, tensor)].stage ==
            row->stage) {
      write_tensor(walk, &walk->program->frames[row->frame], i);
    }
  }
}

static bool computes(const struct pen_action *row) { return row->kind <= PEN_W; }

static void visit(struct walk *walk, const struct pen_action *row) {
  if (computes(row)) {
    compute(walk, row);
    if (row->overlaps) {
      compute(walk, row + 1);
    }
  } else if (pen_kind_receives(row->kind)) {
    write(walk, walk->profile->messages[row->message].target_offset,
          walk->profile->messages[row->message].bytes, true);
  } else if (pen_kind_sends(row->kind)) {
    walk->under_way[walk->under_way_count++] = row->message;
  } else if (row->kind == PEN_UNSHARD) {
    unshard(walk, row);
  } else if (row->kind == PEN_UPDATE || row->kind == PEN_ADD_TIED_GRAD) {
    write(walk, 0, UINT64_MAX, false);
  }
}

struct pen_send_hazards pen_send_hazards_of(const struct pen_plan *plan,
                                            const struct pen_profile *profile, uint32_t rank) {
  const struct pen_rank_program *program = &profile->ranks[rank];
  struct walk walk = {.plan = plan, .profile = profile, .program = program, .rank = rank};
  walk.under_way = calloc(profile->message_count + 1u, sizeof *walk.under_way);
  walk.found.first = calloc(program->action_count + 1u, sizeof *walk.found.first);
  pen_check(walk.under_way != NULL && walk.found.first != NULL, "no memory for %u messages",
            profile->message_count);
  for (uint32_t r = 0; r < program->action_count; r++) {
    walk.found.first[r] = (uint32_t)walk.found_count;
    visit(&walk, &program->actions[r]);
  }
  walk.found.first[program->action_count] = (uint32_t)walk.found_count;
  free(walk.under_way);
  return walk.found;
}
