/* activations.c: activations and messages in one rank's arena, for one profile.
 *
 * What a rank holds besides what persists is rectangles (bytes x actions), packed together: the
 * scratch of each action, and for each stage and microbatch the buffers that F keeps for I and W
 * and I for W, outputs until they are sent, and what two stages of one rank share. Receive slots
 * have their offsets already (receive_slots.c) and are below all else; the other rectangles may use
 * a slot while no message can arrive. No rectangle crosses the end of the receive region, since
 * what persists begins there. */
#include "gen/layout/activations.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/layout/audit.h"
#include "gen/layout/weights.h"

void pen_find_stage_actions(struct pen_layout_state *l) {
  const struct pen_lowered *lowered = l->lowered;
  size_t count = (size_t)l->partition->stage_count * l->partition->microbatch_count;
  l->stage_actions = pen_new(count, sizeof *l->stage_actions);
  memset(l->stage_actions, 0xff, count * sizeof *l->stage_actions);
  for (uint32_t r = 0; r < lowered->rank_count; r++)
    for (uint32_t i = 0; i < lowered->count[r]; i++) {
      const struct pen_action *a = &lowered->action[r][i];
      if (a->kind >= PEN_NORM) continue;
      struct pen_stage_actions *actions = pen_stage_actions_of(l, a->stage, a->microbatch);
      int program = pen_program_of(a->kind);
      if (program >= 0) {
        actions->program[program] = i;
        l->runs[program] = true;
      }
      if (a->kind == PEN_SEND_F) actions->send_f = i;
      if (a->kind == PEN_SEND_B) actions->send_b = i;
      if (a->kind == PEN_RECV_F) actions->recv_f = i;
      if (a->kind == PEN_RECV_B) actions->recv_b = i;
    }
}

/* The last action of a stage that uses a value which programs up to `last` (F, I, W) use. B is I
 * and W. */
static uint32_t last_action(const struct pen_stage_actions *actions, int last) {
  if (last == PEN_PROGRAM_F) return actions->program[PEN_PROGRAM_F];
  if (actions->program[PEN_PROGRAM_B] != NO_ACTION) return actions->program[PEN_PROGRAM_B];
  return actions->program[last];
}

static uint32_t backward_action(const struct pen_stage_actions *actions) {
  return actions->program[PEN_PROGRAM_B] != NO_ACTION ? actions->program[PEN_PROGRAM_B]
                                                      : actions->program[PEN_PROGRAM_I];
}

/* ---- messages ---- */

/* Whether a message is between neighbouring stages; else it is of a tied weight. */
static bool between_neighbours(const struct pen_message *message) {
  return message->kind == PEN_SEND_F || message->kind == PEN_SEND_B;
}

/* The stage at the other end of a message between neighbours. */
static uint32_t reader_stage(const struct pen_message *message) {
  return message->kind == PEN_SEND_F ? message->stage + 1u : message->stage - 1u;
}

/* The ADD_TIED_GRAD action of a rank. */
static uint32_t add_tied_grad_action(const struct pen_lowered *lowered, uint32_t rank) {
  uint32_t index = lowered->count[rank];
  while (index-- > 0)
    if (lowered->action[rank][index].kind == PEN_ADD_TIED_GRAD) return index;
  pen_stop(PEN_EXIT_INTERNAL, "layout: rank %u receives a gradient that it does not add", rank);
}

struct pen_slot_assignment *pen_start_slots(struct pen_layout_state *l) {
  struct pen_lowered *lowered = l->lowered;
  uint32_t *last_reader = pen_new(lowered->message_count + 1u, sizeof *last_reader);
  uint64_t *bytes = pen_new(lowered->message_count + 1u, sizeof *bytes);
  for (uint32_t m = 0; m < lowered->message_count; m++) {
    struct pen_message *message = &lowered->message[m];
    if (!between_neighbours(message)) {
      bytes[m] = message->bytes = pen_tied_message_bytes(l->plan, message->kind);
      if (message->kind == PEN_SEND_G)
        last_reader[m] = add_tied_grad_action(lowered, l->weights[l->ties->weight].rank);
      continue;
    }
    uint32_t reader = reader_stage(message);
    const struct pen_graph *graph = l->input->graph[reader];
    const struct pen_stage_buffers *buffers = &l->buffers[reader];
    bool forward = message->kind == PEN_SEND_F;
    last_reader[m] = forward ? last_action(pen_stage_actions_of(l, reader, message->microbatch),
                                           buffers->input_last)
                             : last_action(pen_stage_actions_of(l, reader, message->microbatch),
                                           buffers->output_gradient_last);
    if (!forward && buffers->output_gradient_last == PEN_PROGRAM_F)
      last_reader[m] = backward_action(pen_stage_actions_of(
          l, reader,
          message->microbatch)); /* no program reads it: all earlier weights are frozen */
    bytes[m] = message->bytes =
        pen_value_bytes_passed(graph, forward ? graph->input : graph->output_gradient);
  }
  return pen_slots_prepare(lowered, last_reader, bytes);
}

void pen_set_message_bases(struct pen_layout_state *l) {
  const struct pen_lowered *lowered = l->lowered;
  for (uint32_t m = 0; m < lowered->message_count; m++) {
    const struct pen_message *message = &lowered->message[m];
    if (!between_neighbours(message)) continue;
    int base = message->kind == PEN_SEND_F ? PEN_BASE_INPUT : PEN_BASE_OUTPUT_GRADIENT;
    *pen_place_of(l, reader_stage(message), message->microbatch, base) = message->target_offset;
  }
}

/* ---- activations of one rank ---- */

/* Adds a rectangle. Two actions that overlap use their buffers from the start of the first to the
 * end of the second. */
static void add_buffer(struct pen_rank_packing *p, uint64_t bytes, uint32_t first, uint32_t last,
                       uint64_t *target, uint64_t *second) {
  if (!bytes) return;
  if (first > 0 && p->action[first - 1].overlaps) first--;
  if (p->action[last].overlaps) last++;
  PEN_RESERVE(p->rectangle, p->count + 1);
  PEN_RESERVE(p->target, p->count + 1);
  PEN_RESERVE(p->second, p->count + 1);
  p->rectangle[p->count] = (struct pen_rectangle){.bytes = bytes, .first = first, .last = last};
  p->target[p->count] = target;
  p->second[p->count++] = second;
}

static uint32_t later_of(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* The last action that uses an output (of F, or the gradient of the input): of its stage, of its
 * send, or of its reader on this rank. Sets `second` to the offset of the reader's buffer, if that
 * is on this rank. */
static uint32_t output_end(struct pen_layout_state *l, uint32_t stage, uint32_t microbatch,
                           bool backward, uint64_t **second) {
  const struct pen_stage_buffers *own = &l->buffers[stage];
  struct pen_stage_actions *actions = pen_stage_actions_of(l, stage, microbatch);
  uint32_t reader = backward ? stage - 1 : stage + 1;
  uint32_t first = backward ? backward_action(actions) : actions->program[PEN_PROGRAM_F];
  uint32_t last =
      later_of(first, last_action(actions, backward ? own->input_gradient_last : own->output_last));
  if (!pen_same_rank(l, stage, reader))
    return later_of(last, backward ? actions->send_b : actions->send_f);
  const struct pen_stage_buffers *other = &l->buffers[reader];
  struct pen_stage_actions *reader_actions = pen_stage_actions_of(l, reader, microbatch);
  last = later_of(
      last, backward ? backward_action(reader_actions) : reader_actions->program[PEN_PROGRAM_F]);
  *second =
      pen_place_of(l, reader, microbatch, backward ? PEN_BASE_OUTPUT_GRADIENT : PEN_BASE_INPUT);
  return later_of(last, last_action(reader_actions,
                                    backward ? other->output_gradient_last : other->input_last));
}

/* An output, or the gradient of the input: from the action that writes it, or from F if its buffer
 * holds another value before. */
static void add_output(struct pen_layout_state *l, struct pen_rank_packing *p, uint32_t stage,
                       uint32_t microbatch, bool backward) {
  const struct pen_graph *graph = l->input->graph[stage];
  const struct pen_stage_buffers *own = &l->buffers[stage];
  const struct pen_stage_actions *actions = pen_stage_actions_of(l, stage, microbatch);
  if ((backward ? graph->input_gradient : graph->output) == PEN_NONE) return;
  int base = backward ? PEN_BASE_INPUT_GRADIENT : PEN_BASE_OUTPUT;
  bool early = !backward || own->gradient_from_f;
  uint64_t *second = NULL;
  uint32_t last = output_end(l, stage, microbatch, backward, &second);
  add_buffer(p, own->bytes[base],
             early ? actions->program[PEN_PROGRAM_F] : backward_action(actions), last,
             pen_place_of(l, stage, microbatch, base), second);
}

/* The scratch of each action; or, if they share it, the largest, for the whole step. */
static void add_scratch(struct pen_layout_state *l, struct pen_rank_packing *p, bool shared) {
  const struct pen_lowered *lowered = l->lowered;
  uint32_t count = lowered->count[p->rank];
  uint64_t most = 0;
  if (!shared && !l->scratch[p->rank])
    l->scratch[p->rank] = pen_new(count + 1u, sizeof **l->scratch);
  for (uint32_t index = 0; index < count; index++) {
    int program = pen_program_of(p->action[index].kind);
    uint64_t bytes = program < 0 ? 0 : l->buffers[p->action[index].stage].scratch[program];
    if (bytes > most) most = bytes;
    if (!shared) add_buffer(p, bytes, index, index, &l->scratch[p->rank][index], NULL);
  }
  p->scratch = 0;
  if (shared) add_buffer(p, most, 0, count - 1, &p->scratch, NULL);
}

/* The whole weights of a stage, from each UNSHARD to its RESHARD. */
static void add_unsharded_buffers(struct pen_layout_state *l, struct pen_rank_packing *p,
                                  uint32_t rank) {
  const struct pen_lowered *lowered = l->lowered;
  if (l->partition->sharding != PEN_SHARD_WEIGHTS) return;
  if (!l->unsharded[rank])
    l->unsharded[rank] = pen_new(lowered->count[rank] + 1u, sizeof **l->unsharded);
  for (uint32_t index = 0; index < lowered->count[rank]; index++) {
    uint32_t last = index;
    if (p->action[index].kind != PEN_UNSHARD) continue;
    while (p->action[last].kind != PEN_RESHARD || p->action[last].stage != p->action[index].stage)
      last++;
    add_buffer(p, l->buffers[p->action[index].stage].bytes[PEN_BASE_UNSHARDED], index, last,
               &l->unsharded[rank][index], NULL);
  }
}

static void add_stage_buffers(struct pen_layout_state *l, struct pen_rank_packing *p,
                              uint32_t stage, uint32_t microbatch) {
  const struct pen_stage_buffers *buffers = &l->buffers[stage];
  const struct pen_stage_actions *actions = pen_stage_actions_of(l, stage, microbatch);
  add_output(l, p, stage, microbatch, false);
  if (l->input->kind != PEN_TRAIN) return;
  add_output(l, p, stage, microbatch, true);
  uint32_t forward = actions->program[PEN_PROGRAM_F];
  add_buffer(p, buffers->bytes[PEN_BASE_SAVED_I], forward, last_action(actions, PEN_PROGRAM_I),
             pen_place_of(l, stage, microbatch, PEN_BASE_SAVED_I), NULL);
  for (uint32_t piece = 0; piece < PEN_PIECES; piece++)
    add_buffer(p, buffers->bytes[pen_piece_base(piece)], forward,
               last_action(actions, PEN_PROGRAM_W),
               pen_place_of(l, stage, microbatch, pen_piece_base(piece)), NULL);
  if (actions->program[PEN_PROGRAM_B] == NO_ACTION)
    add_buffer(p, buffers->bytes[PEN_BASE_KEPT_W], actions->program[PEN_PROGRAM_I],
               actions->program[PEN_PROGRAM_W], pen_place_of(l, stage, microbatch, PEN_BASE_KEPT_W),
               NULL);
}

int64_t pen_live_bytes(const struct pen_layout_state *l, uint32_t rank) {
  const struct pen_lowered *lowered = l->lowered;
  int64_t live = 0, most = 0;
  for (uint32_t i = 0; i < lowered->count[rank]; i++) {
    const struct pen_action *a = &lowered->action[rank][i];
    int program = pen_program_of(a->kind);
    const struct pen_stage_buffers *buffers = &l->buffers[a->stage];
    if (a->kind == PEN_RECV_F || a->kind == PEN_RECV_B || a->kind == PEN_RECV_G)
      live += (int64_t)pen_aligned(lowered->message[a->message].bytes);
    if (a->kind == PEN_SEND_F || a->kind == PEN_SEND_B) {
      bool forward = a->kind == PEN_SEND_F;
      if ((forward ? buffers->output_last : buffers->input_gradient_last) <=
          (forward ? PEN_PROGRAM_F : PEN_PROGRAM_I))
        live -= (int64_t)pen_aligned(lowered->message[a->message].bytes);
    }
    if (a->kind == PEN_UNSHARD) live += (int64_t)buffers->bytes[PEN_BASE_UNSHARDED];
    if (a->kind == PEN_RESHARD) live -= (int64_t)buffers->bytes[PEN_BASE_UNSHARDED];
    int64_t peak = program < 0 ? 0 : buffers->peak[program];
    if (a->overlaps)
      peak += l->buffers[a[1].stage]
                  .peak[pen_program_of(a[1].kind)]; /* both may reach their peak at once */
    if (program >= 0 && live + peak > most) most = live + peak;
    if (program >= 0) live += buffers->remains[program];
    if (live > most) most = live;
  }
  return most;
}

/* Adds the messages, whose offsets are fixed. */
static void add_messages(struct pen_rank_packing *p, const struct pen_receive_region *region,
                         uint32_t last_index) {
  for (size_t i = 0; i < region->message_count; i++) {
    const struct pen_receive_slot *slot = &region->message[i];
    add_buffer(p, pen_aligned(slot->bytes), slot->first, slot->last, NULL, NULL);
    p->rectangle[p->count - 1].offset = slot->offset;
    if (slot->before == PEN_NONE || slot->before > last_index) continue;
    add_buffer(p, pen_aligned(slot->bytes), slot->before, last_index, NULL, NULL);
    p->rectangle[p->count - 1].offset = slot->offset;
  }
  p->fixed = p->count;
}

/* Bytes of the receive region if this profile's slots take `bytes`: all profiles have one arena. */
static uint64_t receive_bytes_with(const struct pen_layout_state *l, uint32_t rank,
                                   uint64_t bytes) {
  for (const struct pen_layout_state *other = l->before; other; other = other->before)
    if (other->receive_bytes[rank] > bytes) bytes = other->receive_bytes[rank];
  return bytes;
}

/* Starts the list of rectangles with the messages of a rank, unless they are in it. */
static void start_packing(struct pen_layout_state *l, struct pen_slot_assignment *slots,
                          struct pen_rank_packing *p, uint32_t rank, uint32_t spare) {
  const struct pen_lowered *lowered = l->lowered;
  p->count = p->fixed;
  if (p->has_fixed && p->rank == rank && p->spare == spare) return;
  p->region = pen_slots_place(slots, rank, spare);
  p->has_fixed = true;
  p->rank = rank;
  p->spare = spare;
  p->action = lowered->action[rank];
  l->receive_bytes[rank] = receive_bytes_with(l, rank, p->region.bytes);
  l->slot_count[rank] = p->region.slot_count;
  p->count = 0;
  add_messages(p, &p->region, lowered->count[rank] - 1);
  pen_free(p->region.message);
}

/* Copies the offsets of the rectangles to their buffers. */
static void set_targets(struct pen_layout_state *l, struct pen_rank_packing *p, bool shared) {
  for (size_t i = p->fixed; i < p->count; i++) {
    *p->target[i] = p->rectangle[i].offset;
    if (p->second[i]) *p->second[i] = p->rectangle[i].offset;
  }
  if (!shared) return;
  l->shared_scratch[p->rank] = p->scratch;
  pen_free(l->scratch[p->rank]);
  l->scratch[p->rank] = NULL;
}

uint64_t pen_pack_rank(struct pen_layout_state *l, struct pen_slot_assignment *slots,
                       struct pen_rank_packing *p, uint32_t rank,
                       const struct pen_strategy *strategy, uint64_t limit, uint64_t goal) {
  start_packing(l, slots, p, rank, strategy->spare);
  add_scratch(l, p, strategy->shares_scratch);
  add_unsharded_buffers(l, p, rank);
  for (uint32_t i = 0; i < l->partition->stages_per_rank; i++)
    for (uint32_t m = 0; m < l->partition->microbatch_count; m++)
      add_stage_buffers(l, p, pen_stage_at(l, rank, i), m);
  uint64_t receive_bytes = l->receive_bytes[rank],
           bytes = pen_pack(p->rectangle, p->fixed, p->count, receive_bytes, limit, goal,
                            strategy->steps);
  if (bytes == UINT64_MAX) return bytes;
  if (bytes < receive_bytes) bytes = receive_bytes;
  l->activation_bytes[rank] = bytes - receive_bytes;
  set_targets(l, p, strategy->shares_scratch);
  return bytes;
}
