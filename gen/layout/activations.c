/* activations.c: activations and messages in one rank's arena, for one profile.
 *
 * What a rank needs beside what persists are rectangles (bytes x actions), packed together: the
 * scratch of each action, and for each stage and microbatch the buffers that F keeps for I and W
 * and I for W, outputs until they are sent, and what two stages of one rank share. Receive slots
 * have their offsets already (receive_slots.c) and are below all else; the other rectangles may use
 * a slot while no message can arrive. No rectangle crosses the end of the receive region, since
 * what persists begins there. */
#include "gen/layout/activations.h"
#include <string.h>
#include "gen/base/arena.h"
#include "gen/base/error.h"

void pen_find_stage_actions(struct pen_layout_state *l) {
  const struct pen_lowered *lowered = l->lowered;
  size_t count = (size_t)l->partition->stage_count * l->partition->microbatch_count;
  l->rows = pen_new(count, sizeof *l->rows);
  memset(l->rows, 0xff, count * sizeof *l->rows);
  for (uint32_t r = 0; r < lowered->rank_count; r++)
    for (uint32_t i = 0; i < lowered->count[r]; i++) {
      const struct pen_action *a = &lowered->action[r][i];
      if (a->kind >= PEN_NORM) continue;
      struct rows *rows = pen_stage_actions_of(l, a->stage, a->microbatch);
      int program = pen_program_of(a->kind);
      if (program >= 0) {
        rows->program[program] = i;
        l->runs[program] = true;
      }
      if (a->kind == PEN_SEND_F) rows->send_f = i;
      if (a->kind == PEN_SEND_B) rows->send_b = i;
      if (a->kind == PEN_RECV_F) rows->recv_f = i;
      if (a->kind == PEN_RECV_B) rows->recv_b = i;
    }
}

/* The row in which a stage is done with a value that programs up to `last` (F, I, W) use: B stands
 * for I and W. */
static uint32_t end_row(const struct rows *rows, int last) {
  if (last == PEN_PROGRAM_F) return rows->program[PEN_PROGRAM_F];
  if (rows->program[PEN_PROGRAM_B] != NO_ROW) return rows->program[PEN_PROGRAM_B];
  return rows->program[last];
}

static uint32_t backward_row(const struct rows *rows) {
  return rows->program[PEN_PROGRAM_B] != NO_ROW ? rows->program[PEN_PROGRAM_B]
                                                : rows->program[PEN_PROGRAM_I];
}

/* ---- messages ---- */

/* Whether a message is the schedule's, from stage to neighbour; else a tied matrix's. */
static bool between_neighbours(const struct pen_message *message) {
  return message->kind == PEN_SEND_F || message->kind == PEN_SEND_B;
}

/* The stage at the other end of a message between neighbours. */
static uint32_t reader_stage(const struct pen_message *message) {
  return message->kind == PEN_SEND_F ? message->stage + 1u : message->stage - 1u;
}

/* The row of a rank that joins a tied matrix's gradients. */
static uint32_t join_row(const struct pen_lowered *lowered, uint32_t rank) {
  uint32_t row = lowered->count[rank];
  while (row-- > 0)
    if (lowered->action[rank][row].kind == PEN_ADD_TIED_GRAD) return row;
  pen_stop(70, "layout: rank %u is sent a gradient that it does not join", rank);
}

/* What slots need to know of the messages: bytes and last readers. */
struct pen_slot_assignment *pen_start_slots(struct pen_layout_state *l) {
  struct pen_lowered *lowered = l->lowered;
  uint32_t *last_reader = pen_new(lowered->message_count + 1u, sizeof *last_reader);
  uint64_t *bytes = pen_new(lowered->message_count + 1u, sizeof *bytes);
  for (uint32_t m = 0; m < lowered->message_count; m++) {
    struct pen_message *message = &lowered->message[m];
    if (!between_neighbours(message)) {
      int dtype = message->kind == PEN_SEND_G ? PEN_F32 : l->tie->dtype;
      bytes[m] = message->bytes = l->weights[l->tie->weight].count * pen_dtype_bytes(dtype);
      if (message->kind == PEN_SEND_G)
        last_reader[m] = join_row(lowered, l->weights[l->tie->weight].rank);
      continue;
    }
    uint32_t reader = reader_stage(message);
    const struct pen_graph *graph = l->input->graph[reader];
    const struct pen_stage_buffers *blocks = &l->blocks[reader];
    bool forward = message->kind == PEN_SEND_F;
    last_reader[m] =
        forward ? end_row(pen_stage_actions_of(l, reader, message->microbatch), blocks->input_last)
                : end_row(pen_stage_actions_of(l, reader, message->microbatch),
                          blocks->output_gradient_last);
    if (!forward && blocks->output_gradient_last == PEN_PROGRAM_F)
      last_reader[m] = backward_row(pen_stage_actions_of(
          l, reader, message->microbatch)); /* nobody reads it: all that follows is frozen */
    bytes[m] = message->bytes = graph->value[forward ? graph->input : graph->output_gradient].bytes;
  }
  return pen_slots_prepare(lowered, last_reader, bytes);
}

/* Where the readers of messages find them. */
void pen_set_message_bases(struct pen_layout_state *l) {
  const struct pen_lowered *lowered = l->lowered;
  for (uint32_t m = 0; m < lowered->message_count; m++) {
    const struct pen_message *message = &lowered->message[m];
    if (!between_neighbours(message)) continue;
    int base = message->kind == PEN_SEND_F ? PEN_BASE_INPUT : PEN_BASE_OUTPUT_GRADIENT;
    pen_places_of(l, reader_stage(message), message->microbatch)->base[base] =
        message->target_offset;
  }
}

/* ---- activations of one rank ---- */

/* Both of a pair a|b are at work from the start of a to the end of b: what either uses lives
 * through both rows. */
static void add_block(struct pen_rank_packing *p, uint64_t bytes, uint32_t first, uint32_t last,
                      uint64_t *target, uint64_t *second) {
  if (!bytes) return;
  if (first > 0 && p->action[first - 1].overlaps) first--;
  if (p->action[last].overlaps) last++;
  p->rectangle = pen_grow(p->rectangle, &p->capacity, p->count + 1, sizeof *p->rectangle);
  p->target = pen_grow(p->target, &p->target_capacity, p->count + 1, sizeof *p->target);
  p->second = pen_grow(p->second, &p->second_capacity, p->count + 1, sizeof *p->second);
  p->rectangle[p->count] = (struct pen_rectangle){.bytes = bytes, .first = first, .last = last};
  p->target[p->count] = target;
  p->second[p->count++] = second;
}

static uint32_t later(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* How long an output (of F, or the gradient that backward makes) lives: until its reader on this
 * rank, or its send, and its own stage are done; and its second name, if it is handed over on the
 * rank. */
static uint32_t output_life(struct pen_layout_state *l, uint32_t stage, uint32_t microbatch,
                            bool backward, uint64_t **second) {
  const struct pen_stage_buffers *own = &l->blocks[stage];
  struct rows *rows = pen_stage_actions_of(l, stage, microbatch);
  uint32_t reader = backward ? stage - 1 : stage + 1;
  uint32_t first = backward ? backward_row(rows) : rows->program[PEN_PROGRAM_F];
  uint32_t last =
      later(first, end_row(rows, backward ? own->input_gradient_last : own->output_last));
  if (!pen_same_rank(l, stage, reader)) return later(last, backward ? rows->send_b : rows->send_f);
  const struct pen_stage_buffers *other = &l->blocks[reader];
  struct rows *reader_rows = pen_stage_actions_of(l, reader, microbatch);
  last = later(last, backward ? backward_row(reader_rows) : reader_rows->program[PEN_PROGRAM_F]);
  *second = &pen_places_of(l, reader, microbatch)
                 ->base[backward ? PEN_BASE_OUTPUT_GRADIENT : PEN_BASE_INPUT];
  return later(last,
               end_row(reader_rows, backward ? other->output_gradient_last : other->input_last));
}

/* An output, or the gradient of the input: from the row that makes it, or from F on when its block
 * holds something else before. */
static void add_output(struct pen_layout_state *l, struct pen_rank_packing *p, uint32_t stage,
                       uint32_t microbatch, bool backward) {
  const struct pen_graph *graph = l->input->graph[stage];
  const struct pen_stage_buffers *own = &l->blocks[stage];
  const struct rows *rows = pen_stage_actions_of(l, stage, microbatch);
  if ((backward ? graph->input_gradient : graph->output) == PEN_NONE) return;
  int base = backward ? PEN_BASE_INPUT_GRADIENT : PEN_BASE_OUTPUT;
  bool early = !backward || own->gradient_from_f;
  uint64_t *second = NULL;
  uint32_t last = output_life(l, stage, microbatch, backward, &second);
  add_block(p, own->bytes[base], early ? rows->program[PEN_PROGRAM_F] : backward_row(rows), last,
            &pen_places_of(l, stage, microbatch)->base[base], second);
}

/* The scratch of each row; or, where they share it, of the one that needs most, from the first row
 * to the last. */
static void add_scratch(struct pen_layout_state *l, struct pen_rank_packing *p, bool shared) {
  const struct pen_lowered *lowered = l->lowered;
  uint32_t count = lowered->count[p->rank];
  uint64_t most = 0;
  if (!shared && !l->scratch[p->rank])
    l->scratch[p->rank] = pen_new(count + 1u, sizeof **l->scratch);
  for (uint32_t row = 0; row < count; row++) {
    int program = pen_program_of(p->action[row].kind);
    uint64_t bytes = program < 0 ? 0 : l->blocks[p->action[row].stage].scratch[program];
    if (bytes > most) most = bytes;
    if (!shared) add_block(p, bytes, row, row, &l->scratch[p->rank][row], NULL);
  }
  p->scratch = 0;
  if (shared) add_block(p, most, 0, count - 1, &p->scratch, NULL);
}

/* A stage's weights, from each UNSHARD to its RESHARD. */
static void add_unsharded(struct pen_layout_state *l, struct pen_rank_packing *p, uint32_t rank) {
  const struct pen_lowered *lowered = l->lowered;
  if (l->partition->sharding != PEN_SHARD_WEIGHTS) return;
  if (!l->unsharded[rank])
    l->unsharded[rank] = pen_new(lowered->count[rank] + 1u, sizeof **l->unsharded);
  for (uint32_t row = 0; row < lowered->count[rank]; row++) {
    uint32_t last = row;
    if (p->action[row].kind != PEN_UNSHARD) continue;
    while (p->action[last].kind != PEN_RESHARD || p->action[last].stage != p->action[row].stage)
      last++;
    add_block(p, l->blocks[p->action[row].stage].bytes[PEN_BASE_UNSHARDED], row, last,
              &l->unsharded[rank][row], NULL);
  }
}

static void add_stage_blocks(struct pen_layout_state *l, struct pen_rank_packing *p, uint32_t stage,
                             uint32_t microbatch) {
  const struct pen_stage_buffers *blocks = &l->blocks[stage];
  const struct rows *rows = pen_stage_actions_of(l, stage, microbatch);
  uint64_t *base = pen_places_of(l, stage, microbatch)->base;
  add_output(l, p, stage, microbatch, false);
  if (l->input->kind != PEN_TRAIN) return;
  add_output(l, p, stage, microbatch, true);
  uint32_t forward = rows->program[PEN_PROGRAM_F];
  add_block(p, blocks->bytes[PEN_BASE_SAVED_I], forward, end_row(rows, PEN_PROGRAM_I),
            &base[PEN_BASE_SAVED_I], NULL);
  for (uint32_t piece = 0; piece < PEN_PIECES; piece++)
    add_block(p, blocks->bytes[pen_piece_base(piece)], forward, end_row(rows, PEN_PROGRAM_W),
              &base[pen_piece_base(piece)], NULL);
  if (rows->program[PEN_PROGRAM_B] == NO_ROW)
    add_block(p, blocks->bytes[PEN_BASE_KEPT_W], rows->program[PEN_PROGRAM_I],
              rows->program[PEN_PROGRAM_W], &base[PEN_BASE_KEPT_W], NULL);
}

/* The most bytes live at one op of the rank, or at two of a pair, whatever the slots: messages
 * count from RECV to their last use. */
int64_t pen_live_bytes(const struct pen_layout_state *l, uint32_t rank) {
  const struct pen_lowered *lowered = l->lowered;
  int64_t live = 0, most = 0;
  for (uint32_t i = 0; i < lowered->count[rank]; i++) {
    const struct pen_action *a = &lowered->action[rank][i];
    int program = pen_program_of(a->kind);
    const struct pen_stage_buffers *blocks = &l->blocks[a->stage];
    if (a->kind == PEN_RECV_F || a->kind == PEN_RECV_B || a->kind == PEN_RECV_G)
      live += (int64_t)pen_aligned(lowered->message[a->message].bytes);
    if (a->kind == PEN_SEND_F || a->kind == PEN_SEND_B) {
      bool forward = a->kind == PEN_SEND_F;
      if ((forward ? blocks->output_last : blocks->input_gradient_last) <=
          (forward ? PEN_PROGRAM_F : PEN_PROGRAM_I))
        live -= (int64_t)pen_aligned(lowered->message[a->message].bytes);
    }
    if (a->kind == PEN_UNSHARD) live += (int64_t)blocks->bytes[PEN_BASE_UNSHARDED];
    if (a->kind == PEN_RESHARD) live -= (int64_t)blocks->bytes[PEN_BASE_UNSHARDED];
    int64_t peak = program < 0 ? 0 : blocks->peak[program];
    if (a->overlaps)
      peak += l->blocks[a[1].stage]
                  .peak[pen_program_of(a[1].kind)]; /* both may be at their most at once */
    if (program >= 0 && live + peak > most) most = live + peak;
    if (program >= 0) live += blocks->remains[program];
    if (live > most) most = live;
  }
  return most;
}

/* The homes of messages, whose places are settled. */
static void add_messages(struct pen_rank_packing *p, const struct pen_receive_region *region,
                         uint32_t last_row) {
  for (size_t i = 0; i < region->message_count; i++) {
    const struct pen_receive_slot *home = &region->message[i];
    add_block(p, pen_aligned(home->bytes), home->first, home->last, NULL, NULL);
    p->rectangle[p->count - 1].offset = home->offset;
    if (home->before == PEN_NONE || home->before > last_row) continue;
    add_block(p, pen_aligned(home->bytes), home->before, last_row, NULL, NULL);
    p->rectangle[p->count - 1].offset = home->offset;
  }
  p->fixed = p->count;
}

/* The window of a profile whose slots take so many bytes: that of the profiles before, if theirs is
 * larger. They all have one arena. */
static uint64_t receive_bytes_with(const struct pen_layout_state *l, uint32_t rank,
                                   uint64_t bytes) {
  for (const struct pen_layout_state *other = l->before; other; other = other->before)
    if (other->receive_bytes[rank] > bytes) bytes = other->receive_bytes[rank];
  return bytes;
}

/* Gives a rank's messages slots, and begins the list of what is to be packed with their homes;
 * nothing, if that was the last to be done. */
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

/* Gives every block the place that was found for it. */
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

/* Packs a rank; returns the bytes of its window and activations, UINT64_MAX if they must be more
 * than `limit`. */
uint64_t pen_pack_rank(struct pen_layout_state *l, struct pen_slot_assignment *slots,
                       struct pen_rank_packing *p, uint32_t rank,
                       const struct pen_strategy *strategy, uint64_t limit, uint64_t goal) {
  start_packing(l, slots, p, rank, strategy->spare);
  add_scratch(l, p, strategy->shares_scratch);
  add_unsharded(l, p, rank);
  for (uint32_t i = 0; i < l->partition->stages_per_rank; i++)
    for (uint32_t m = 0; m < l->partition->microbatch_count; m++)
      add_stage_blocks(l, p, pen_stage_at(l, rank, i), m);
  uint64_t window = l->receive_bytes[rank],
           bytes = pen_pack(p->rectangle, p->fixed, p->count, window, limit, goal, strategy->steps);
  if (bytes == UINT64_MAX) return bytes;
  if (bytes < window) bytes = window;
  l->activation_bytes[rank] = bytes - window;
  set_targets(l, p, strategy->shares_scratch);
  return bytes;
}
