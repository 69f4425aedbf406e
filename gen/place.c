/* place.c: the places of activations and messages in every rank's arena, for one profile.
 *
 * The activation part is packed per profile and rank: each row's scratch, and for each stage and microbatch the blocks that F keeps
 * for I, F for W, I for W, outputs until they are sent, and what is handed over between two stages of one rank. A block is a
 * rectangle (bytes x rows), see pack.c; receive slots are slots.c's. */
#include <string.h>

#include "gen/laying.h"

enum { SPARE_SLOTS = 2 };

static void find_rows(struct pen_laying *l) {
  const struct pen_lowered *lowered = l->input->lowered;
  size_t count = (size_t)l->partition->stage_count * l->partition->microbatch_count;
  l->rows = pen_new(count, sizeof *l->rows);
  memset(l->rows, 0xff, count * sizeof *l->rows);
  for (uint32_t r = 0; r < lowered->rank_count; r++)
    for (uint32_t i = 0; i < lowered->count[r]; i++) {
      const struct pen_action *a = &lowered->action[r][i];
      if (a->kind >= PEN_NORM) continue;
      struct rows *rows = pen_rows_of(l, a->stage, a->microbatch);
      int program = pen_program_of(a->kind);
      if (program >= 0) rows->program[program] = i;
      if (a->kind == PEN_SEND_F) rows->send_f = i;
      if (a->kind == PEN_SEND_B) rows->send_b = i;
      if (a->kind == PEN_RECV_F) rows->recv_f = i;
      if (a->kind == PEN_RECV_B) rows->recv_b = i;
    }
}

/* The row in which a stage is done with a value that programs up to `last` (F, I, W) use: B stands for I and W. */
static uint32_t end_row(const struct rows *rows, int last) {
  if (last == PEN_PROGRAM_F) return rows->program[PEN_PROGRAM_F];
  if (rows->program[PEN_PROGRAM_B] != NO_ROW) return rows->program[PEN_PROGRAM_B];
  return rows->program[last];
}

static uint32_t backward_row(const struct rows *rows) {
  return rows->program[PEN_PROGRAM_B] != NO_ROW ? rows->program[PEN_PROGRAM_B] : rows->program[PEN_PROGRAM_I];
}

/* ---- messages ---- */

/* The stage at the other end of a message. */
static uint32_t reader_stage(const struct pen_message *message) {
  return message->kind == PEN_SEND_F ? message->stage + 1u : message->stage - 1u;
}

static void place_messages(struct pen_laying *l) {
  struct pen_lowered *lowered = l->input->lowered;
  uint32_t *last_reader = pen_new(lowered->message_count + 1u, sizeof *last_reader);
  uint64_t *bytes = pen_new(lowered->message_count + 1u, sizeof *bytes);
  for (uint32_t m = 0; m < lowered->message_count; m++) {
    struct pen_message *message = &lowered->message[m];
    uint32_t reader = reader_stage(message);
    const struct pen_graph *graph = l->input->graph[reader];
    const struct pen_blocks *blocks = &l->blocks[reader];
    bool forward = message->kind == PEN_SEND_F;
    last_reader[m] = forward ? end_row(pen_rows_of(l, reader, message->microbatch), blocks->input_last)
                             : end_row(pen_rows_of(l, reader, message->microbatch), blocks->output_gradient_last);
    if (!forward && blocks->output_gradient_last == PEN_PROGRAM_F)
      last_reader[m] = backward_row(pen_rows_of(l, reader, message->microbatch)); /* nobody reads it: all that follows is frozen */
    bytes[m] = message->bytes = graph->value[forward ? graph->input : graph->output_gradient].bytes;
  }
  struct pen_slotting *slotting = pen_slots_begin(lowered, last_reader, bytes);
  for (uint32_t r = 0; r < lowered->rank_count; r++) {
    struct pen_window window = pen_slots_place(slotting, r, SPARE_SLOTS);
    l->window_bytes[r] = window.bytes;
    l->slot_count[r] = window.slot_count;
  }
  pen_slots_end(slotting);
  for (uint32_t m = 0; m < lowered->message_count; m++) {
    const struct pen_message *message = &lowered->message[m];
    int base = message->kind == PEN_SEND_F ? PEN_BASE_INPUT : PEN_BASE_OUTPUT_GRADIENT;
    pen_places_of(l, reader_stage(message), message->microbatch)->base[base] = message->target_offset;
  }
}

/* ---- activations of one rank ---- */

/* Rectangles, and where each one's offset goes when it is found. */
struct packing {
  const struct pen_action *row; /* the rank's */
  struct pen_rectangle *rectangle;
  uint64_t **target;
  uint64_t **second; /* a hand-over on one rank has two names; may be null */
  size_t count, capacity, target_capacity, second_capacity;
};

/* Both of a pair a|b are at work from the start of a to the end of b: what either uses lives through both rows. */
static void add_block(struct packing *p, uint64_t bytes, uint32_t first, uint32_t last, uint64_t *target, uint64_t *second) {
  if (!bytes) return;
  if (first > 0 && p->row[first - 1].overlaps) first--;
  if (p->row[last].overlaps) last++;
  p->rectangle = pen_grow(p->rectangle, &p->capacity, p->count + 1, sizeof *p->rectangle);
  p->target = pen_grow(p->target, &p->target_capacity, p->count + 1, sizeof *p->target);
  p->second = pen_grow(p->second, &p->second_capacity, p->count + 1, sizeof *p->second);
  p->rectangle[p->count] = (struct pen_rectangle){bytes, first, last, 0};
  p->target[p->count] = target;
  p->second[p->count++] = second;
}

static uint32_t later(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* An output (of F, or the gradient that backward makes) until its reader on this rank, or its send, and its own stage are done. */
static void add_output(struct pen_laying *l, struct packing *p, uint32_t stage, uint32_t microbatch, bool backward) {
  const struct pen_graph *graph = l->input->graph[stage];
  const struct pen_blocks *own = &l->blocks[stage];
  struct rows *rows = pen_rows_of(l, stage, microbatch);
  int base = backward ? PEN_BASE_INPUT_GRADIENT : PEN_BASE_OUTPUT;
  if ((backward ? graph->input_gradient : graph->output) == PEN_NONE) return;
  uint32_t reader = backward ? stage - 1 : stage + 1;
  uint32_t first = backward ? backward_row(rows) : rows->program[PEN_PROGRAM_F];
  uint32_t last = later(first, end_row(rows, backward ? own->input_gradient_last : own->output_last));
  uint64_t *second = NULL;
  if (pen_same_rank(l, stage, reader)) {
    const struct pen_blocks *other = &l->blocks[reader];
    struct rows *reader_rows = pen_rows_of(l, reader, microbatch);
    last = later(last, backward ? backward_row(reader_rows) : reader_rows->program[PEN_PROGRAM_F]);
    last = later(last, end_row(reader_rows, backward ? other->output_gradient_last : other->input_last));
    second = &pen_places_of(l, reader, microbatch)->base[backward ? PEN_BASE_OUTPUT_GRADIENT : PEN_BASE_INPUT];
  } else {
    last = later(last, backward ? rows->send_b : rows->send_f);
  }
  add_block(p, own->bytes[base], first, last, &pen_places_of(l, stage, microbatch)->base[base], second);
}

static void add_stage_blocks(struct pen_laying *l, struct packing *p, uint32_t stage, uint32_t microbatch) {
  const struct pen_blocks *blocks = &l->blocks[stage];
  const struct rows *rows = pen_rows_of(l, stage, microbatch);
  uint64_t *base = pen_places_of(l, stage, microbatch)->base;
  add_output(l, p, stage, microbatch, false);
  if (l->input->kind != PEN_TRAIN) return;
  uint32_t forward = rows->program[PEN_PROGRAM_F];
  add_block(p, blocks->bytes[PEN_BASE_SAVED_I], forward, end_row(rows, PEN_PROGRAM_I), &base[PEN_BASE_SAVED_I], NULL);
  add_block(p, blocks->bytes[PEN_BASE_SAVED_W], forward, end_row(rows, PEN_PROGRAM_W), &base[PEN_BASE_SAVED_W], NULL);
  if (rows->program[PEN_PROGRAM_B] == NO_ROW)
    add_block(p, blocks->bytes[PEN_BASE_KEPT_W], rows->program[PEN_PROGRAM_I], rows->program[PEN_PROGRAM_W],
              &base[PEN_BASE_KEPT_W], NULL);
  add_output(l, p, stage, microbatch, true);
}

static void pack_rank(struct pen_laying *l, uint32_t rank) {
  const struct pen_lowered *lowered = l->input->lowered;
  struct packing p = {.row = lowered->action[rank]};
  for (uint32_t s = 0; s < l->partition->stage_count; s++)
    if (l->partition->rank_of[s] == rank)
      for (uint32_t m = 0; m < l->partition->microbatch_count; m++) add_stage_blocks(l, &p, s, m);
  l->scratch[rank] = pen_new(lowered->count[rank] + 1u, sizeof **l->scratch);
  for (uint32_t i = 0; i < lowered->count[rank]; i++) {
    int program = pen_program_of(lowered->action[rank][i].kind);
    if (program >= 0)
      add_block(&p, l->blocks[lowered->action[rank][i].stage].scratch[program], i, i, &l->scratch[rank][i], NULL);
  }
  l->activation_bytes[rank] = pen_pack(p.rectangle, p.count);
  for (size_t i = 0; i < p.count; i++) {
    *p.target[i] = p.rectangle[i].offset;
    if (p.second[i]) *p.second[i] = p.rectangle[i].offset;
  }
}

/* The most bytes live at one op of the rank, whatever the slots: messages count from RECV to their last use. */
static int64_t live_of(const struct pen_laying *l, uint32_t rank) {
  const struct pen_lowered *lowered = l->input->lowered;
  int64_t live = 0, most = 0;
  for (uint32_t i = 0; i < lowered->count[rank]; i++) {
    const struct pen_action *a = &lowered->action[rank][i];
    int program = pen_program_of(a->kind);
    const struct pen_blocks *blocks = &l->blocks[a->stage];
    if (a->kind == PEN_RECV_F || a->kind == PEN_RECV_B) live += (int64_t)pen_aligned(lowered->message[a->message].bytes);
    if (a->kind == PEN_SEND_F || a->kind == PEN_SEND_B) {
      bool forward = a->kind == PEN_SEND_F;
      if ((forward ? blocks->output_last : blocks->input_gradient_last) <= (forward ? PEN_PROGRAM_F : PEN_PROGRAM_I))
        live -= (int64_t)pen_aligned(lowered->message[a->message].bytes);
    }
    if (program >= 0 && live + blocks->peak[program] > most) most = live + blocks->peak[program];
    if (program >= 0) live += blocks->remains[program];
    if (live > most) most = live;
  }
  return most;
}

void pen_place(struct pen_laying *l) {
  find_rows(l);
  l->places = pen_new((size_t)l->partition->stage_count * l->partition->microbatch_count, sizeof *l->places);
  place_messages(l);
  for (uint32_t r = 0; r < l->partition->rank_count; r++) {
    pack_rank(l, r);
    l->live_bytes[r] = live_of(l, r);
  }
}
