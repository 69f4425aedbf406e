/* place.c: the places of activations and messages in every rank's arena, for one profile.
 *
 * Everything is packed per profile and rank: each row's scratch, and for each stage and microbatch
 * the blocks that F keeps for I, F for W, I for W, outputs until they are sent, and what is handed
 * over between two stages of one rank. A block is a rectangle (bytes x rows), see pack.c. Receive
 * slots come first (slots.c), below all else; a slot serves as memory like any other while no
 * message may come. The rest goes around them; nothing lies across the end of the slots, where the
 * window ends and what persists begins.
 *
 * Three things can be had for a few bytes or saved for them: one place for the scratch of all rows,
 * so that those of one stage and microbatch share a frame; slots beyond the least, which spare
 * credits; and blocks in one piece. All keep the tables small. So a rank is packed with all three,
 * and when that takes more than one part in NEAR above what is live, with scratch by itself for
 * each row, with blocks cut, or fewer slots, or all of it; the least is taken, and packed with more
 * patience if it is still one part in FAR above, and with the last that there is if then one in
 * TOO_FAR: where F keeps much, for elsewhere it is whole rows that cost so much, and no patience
 * brings that back. memory.extra_receive_buffers says how many slots it must be; their bytes are
 * then allowed for. */
#include <string.h>

#include "gen/layout/state.h"
#include "gen/model/op_signature.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/partition/partition.h"
#include "gen/lower/lower.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

enum {
  NEAR = 125,
  FAR = 40,
  TOO_FAR = 33,  /* parts in so many */
  SPARE_MAX = 2, /* slots of each size */
  FEW_STEPS = 300000,
  MANY_STEPS = 2000000, /* of packing, while there are slots to spare, and without */
  MOST_STEPS = 20000000,
  LAST_STEPS =
      200000000,  /* where the rank is still far from what is live, and too far: half a second */
  RANKS_FEW = 16, /* with more, each has less of the last */
};

static void find_rows(struct pen_layout_state *l) {
  const struct pen_lowered *lowered = l->input->lowered;
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
static struct pen_slot_assignment *begin_slots(struct pen_layout_state *l) {
  struct pen_lowered *lowered = l->input->lowered;
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
static void note_homes(struct pen_layout_state *l) {
  const struct pen_lowered *lowered = l->input->lowered;
  for (uint32_t m = 0; m < lowered->message_count; m++) {
    const struct pen_message *message = &lowered->message[m];
    if (!between_neighbours(message)) continue;
    int base = message->kind == PEN_SEND_F ? PEN_BASE_INPUT : PEN_BASE_OUTPUT_GRADIENT;
    pen_places_of(l, reader_stage(message), message->microbatch)->base[base] =
        message->target_offset;
  }
}

/* ---- activations of one rank ---- */

/* Rectangles, and where each one's offset goes when it is found. */
struct packing {
  const struct pen_action *row; /* the rank's */
  struct pen_rectangle *rectangle;
  uint64_t **target;
  uint64_t **second; /* a hand-over on one rank has two names; may be null */
  size_t count, capacity, target_capacity, second_capacity, fixed;
  bool begun; /* the homes are those of: */
  uint32_t rank, spare;
  struct pen_receive_region window;
  uint64_t scratch; /* where all rows have theirs, if they share it */
};

/* Both of a pair a|b are at work from the start of a to the end of b: what either uses lives
 * through both rows. */
static void add_block(struct packing *p, uint64_t bytes, uint32_t first, uint32_t last,
                      uint64_t *target, uint64_t *second) {
  if (!bytes) return;
  if (first > 0 && p->row[first - 1].overlaps) first--;
  if (p->row[last].overlaps) last++;
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
static void add_output(struct pen_layout_state *l, struct packing *p, uint32_t stage,
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
static void add_scratch(struct pen_layout_state *l, struct packing *p, bool shared) {
  const struct pen_lowered *lowered = l->input->lowered;
  uint32_t count = lowered->count[p->rank];
  uint64_t most = 0;
  if (!shared && !l->scratch[p->rank])
    l->scratch[p->rank] = pen_new(count + 1u, sizeof **l->scratch);
  for (uint32_t row = 0; row < count; row++) {
    int program = pen_program_of(p->row[row].kind);
    uint64_t bytes = program < 0 ? 0 : l->blocks[p->row[row].stage].scratch[program];
    if (bytes > most) most = bytes;
    if (!shared) add_block(p, bytes, row, row, &l->scratch[p->rank][row], NULL);
  }
  p->scratch = 0;
  if (shared) add_block(p, most, 0, count - 1, &p->scratch, NULL);
}

/* A stage's weights, from each UNSHARD to its RESHARD. */
static void add_unsharded(struct pen_layout_state *l, struct packing *p, uint32_t rank) {
  const struct pen_lowered *lowered = l->input->lowered;
  if (l->partition->sharding != PEN_SHARD_WEIGHTS) return;
  if (!l->unsharded[rank])
    l->unsharded[rank] = pen_new(lowered->count[rank] + 1u, sizeof **l->unsharded);
  for (uint32_t row = 0; row < lowered->count[rank]; row++) {
    uint32_t last = row;
    if (p->row[row].kind != PEN_UNSHARD) continue;
    while (p->row[last].kind != PEN_RESHARD || p->row[last].stage != p->row[row].stage) last++;
    add_block(p, l->blocks[p->row[row].stage].bytes[PEN_BASE_UNSHARDED], row, last,
              &l->unsharded[rank][row], NULL);
  }
}

static void add_stage_blocks(struct pen_layout_state *l, struct packing *p, uint32_t stage,
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
static int64_t live_of(const struct pen_layout_state *l, uint32_t rank) {
  const struct pen_lowered *lowered = l->input->lowered;
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
static void add_homes(struct packing *p, const struct pen_receive_region *window,
                      uint32_t last_row) {
  for (size_t i = 0; i < window->home_count; i++) {
    const struct pen_receive_slot *home = &window->home[i];
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
static uint64_t window_with(const struct pen_layout_state *l, uint32_t rank, uint64_t bytes) {
  for (const struct pen_layout_state *other = l->before; other; other = other->before)
    if (other->receive_bytes[rank] > bytes) bytes = other->receive_bytes[rank];
  return bytes;
}

/* Gives a rank's messages slots, and begins the list of what is to be packed with their homes;
 * nothing, if that was the last to be done. */
static void begin_packing(struct pen_layout_state *l, struct pen_slot_assignment *slotting,
                          struct packing *p, uint32_t rank, uint32_t spare) {
  const struct pen_lowered *lowered = l->input->lowered;
  p->count = p->fixed;
  if (p->begun && p->rank == rank && p->spare == spare) return;
  p->window = pen_slots_place(slotting, rank, spare);
  p->begun = true;
  p->rank = rank;
  p->spare = spare;
  p->row = lowered->action[rank];
  l->receive_bytes[rank] = window_with(l, rank, p->window.bytes);
  l->slot_count[rank] = p->window.slot_count;
  p->count = 0;
  add_homes(p, &p->window, lowered->count[rank] - 1);
  pen_free(p->window.home);
}

/* Gives every block the place that was found for it. */
static void note_places(struct pen_layout_state *l, struct packing *p, bool shared) {
  for (size_t i = p->fixed; i < p->count; i++) {
    *p->target[i] = p->rectangle[i].offset;
    if (p->second[i]) *p->second[i] = p->rectangle[i].offset;
  }
  if (!shared) return;
  l->shared_scratch[p->rank] = p->scratch;
  pen_free(l->scratch[p->rank]);
  l->scratch[p->rank] = NULL;
}

/* A way to lay out a rank. */
struct way {
  enum pen_cut cut;
  uint32_t spare; /* slots */
  bool shared_scratch;
  size_t steps; /* of packing; 0: quickly */
};

/* Packs a rank; returns the bytes of its window and activations, UINT64_MAX if they must be more
 * than `limit`. */
static uint64_t pack_rank(struct pen_layout_state *l, struct pen_slot_assignment *slotting,
                          struct packing *p, uint32_t rank, const struct way *way, uint64_t limit,
                          uint64_t goal) {
  begin_packing(l, slotting, p, rank, way->spare);
  add_scratch(l, p, way->shared_scratch);
  add_unsharded(l, p, rank);
  for (uint32_t i = 0; i < l->partition->stages_per_rank; i++)
    for (uint32_t m = 0; m < l->partition->microbatch_count; m++)
      add_stage_blocks(l, p, pen_stage_at(l, rank, i), m);
  uint64_t window = l->receive_bytes[rank],
           bytes = pen_pack(p->rectangle, p->fixed, p->count, window, limit, goal, way->steps);
  if (bytes == UINT64_MAX) return bytes;
  if (bytes < window) bytes = window;
  l->activation_bytes[rank] = bytes - window;
  note_places(l, p, way->shared_scratch);
  return bytes;
}

/* ---- the blocks of stages, whole or cut ---- */

/* Blocks by stage, made when they are wanted; stages that are alike share them. */
struct templates {
  uint32_t *alike;                            /* [stage] the first stage that it is like */
  struct pen_stage_buffers *blocks[PEN_CUTS]; /* [stage] */
  bool *made[PEN_CUTS];
  uint32_t parts_a_piece, parts;
  uint32_t model_blocks; /* the most that a stage has */
};

static struct templates start_templates(const struct pen_layout_state *l) {
  uint32_t stages = l->partition->stage_count;
  struct templates c = {.alike = pen_new(stages, sizeof *c.alike)};
  for (int k = 0; k < PEN_CUTS; k++) {
    c.blocks[k] = pen_new(stages, sizeof **c.blocks);
    c.made[k] = pen_new(stages, sizeof **c.made);
  }
  for (uint32_t s = 0; s < stages; s++) {
    c.alike[s] = s && pen_graphs_alike(l->partition, l->input->graph[s - 1], l->input->graph[s])
                     ? c.alike[s - 1]
                     : s;
    uint32_t parts = c.alike[s] == s ? pen_parts_of(l->input->graph[s]) : 0;
    if (parts > c.parts) c.parts = parts;
    uint32_t blocks =
        l->partition->stages.span[s].past_last_block - l->partition->stages.span[s].first_block;
    if (blocks > c.model_blocks) c.model_blocks = blocks;
  }
  c.parts_a_piece = (c.parts + PEN_PIECES - 1) / PEN_PIECES;
  return c;
}

static void use_blocks(struct pen_layout_state *l, struct templates *c, uint32_t stage,
                       const struct pen_cutting *cutting) {
  uint32_t first = c->alike[stage];
  struct pen_stage_buffers *blocks = &c->blocks[cutting->cut][first];
  bool lasting = cutting->cut != PEN_CUT_ALIKE &&
                 cutting->cut != PEN_CUT_BLOCKS; /* those depend on the rank's other stages */
  if (!c->made[cutting->cut][first])
    *blocks = pen_stage_buffers_of(l->partition, l->input->graph[first], cutting);
  c->made[cutting->cut][first] = lasting;
  l->blocks[stage] = *blocks;
}

/* How many values a stage keeps that one block hands on to another. */
static size_t count_handed_on(const struct pen_saved *saved, size_t count) {
  size_t handed = 0;
  for (size_t i = 0; i < count; i++) handed += saved[i].handed_on;
  return handed;
}

/* Cuts the stages of a rank. */
static void cut_rank(struct pen_layout_state *l, struct templates *c, uint32_t rank,
                     enum pen_cut cut) {
  uint32_t stages = l->partition->stages_per_rank;
  struct pen_cutting cutting = {
      .cut = cut, .parts_a_piece = c->parts_a_piece, .handed_on = SIZE_MAX, .runs = l->runs};
  if (cut == PEN_CUT_ALIKE || cut == PEN_CUT_BLOCKS) {
    const struct pen_saved **saved = pen_new(stages, sizeof *saved);
    size_t *count = pen_new(stages, sizeof *count);
    for (uint32_t i = 0; i < stages; i++) {
      saved[i] =
          pen_saved_values_of(l->partition, l->input->graph[pen_stage_at(l, rank, i)], &count[i]);
      size_t handed = count_handed_on(saved[i], count[i]);
      if (handed < cutting.handed_on) cutting.handed_on = handed;
    }
    cutting.common = pen_common_of(saved, count, stages);
  }
  for (uint32_t i = 0; i < stages; i++) use_blocks(l, c, pen_stage_at(l, rank, i), &cutting);
}

/* ---- one rank ---- */

/* What a rank holds whatever its activations. */
static uint64_t resident_bytes(const struct pen_layout_state *l, uint32_t rank) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < l->partition->stages_per_rank; i++) {
    uint32_t stage = pen_stage_at(l, rank, i);
    for (size_t w = 0; w < l->input->graph[stage]->weight_count; w++)
      bytes += pen_resident_bytes(l->partition, l->input->graph[stage], w);
  }
  return bytes;
}

/* What a rank's arena takes beside what persists when this profile has such a window and
 * activations: other profiles use it, too. */
static uint64_t part_with(const struct pen_layout_state *l, uint32_t rank, uint64_t window,
                          uint64_t activations) {
  for (const struct pen_layout_state *other = l->before; other; other = other->before) {
    if (other->receive_bytes[rank] > window) window = other->receive_bytes[rank];
    if (other->activation_bytes[rank] > activations) activations = other->activation_bytes[rank];
  }
  return window + activations;
}

static uint64_t arena_part(const struct pen_layout_state *l, uint32_t rank, uint64_t bytes) {
  return part_with(l, rank, l->receive_bytes[rank], bytes - l->receive_bytes[rank]);
}

/* The most that is live in any profile so far. */
static uint64_t most_live(const struct pen_layout_state *l, uint32_t rank) {
  int64_t most = 0;
  for (; l; l = l->before)
    if (l->live_bytes[rank] > most) most = l->live_bytes[rank];
  return (uint64_t)most;
}

/* The ways of a rank, and the best so far. */
struct trial {
  struct pen_layout_state *l;
  struct pen_slot_assignment *slotting;
  struct templates *templates;
  struct packing *packing;
  uint32_t rank;
  bool shares_scratch;  /* may */
  uint32_t least_spare; /* slots beyond the least that stay, whatever they cost */
  uint64_t enough;      /* bytes of window and activations that a packing need not go below */
  uint64_t stop, least; /* bytes of the arena's part: when to end, and the least so far */
  struct way best, last;
};

static uint64_t pack_so(struct trial *t, const struct way *way, uint64_t limit) {
  cut_rank(t->l, t->templates, t->rank, way->cut);
  t->last = *way;
  return pack_rank(t->l, t->slotting, t->packing, t->rank, way, limit, t->enough);
}

/* Both of a pair are at work at once, so they cannot share their scratch. */
static bool has_pairs(const struct pen_lowered *lowered, uint32_t rank) {
  for (uint32_t row = 0; row < lowered->count[rank]; row++)
    if (lowered->action[rank][row].overlaps) return true;
  return false;
}

/* Whether a stage of the rank keeps what its F makes. */
static bool keeps_much(const struct pen_layout_state *l, uint32_t rank) {
  bool keeps = false;
  for (uint32_t i = 0; l->input->kind == PEN_TRAIN && i < l->topology->pipeline_stages_per_rank;
       i++)
    keeps = keeps || !l->input->graph[pen_stage_at(l, rank, i)]->recomputes;
  return keeps;
}

/* One way; false when it cannot come near, whatever the patience. */
static bool try_way(struct trial *t, const struct way *way) {
  uint64_t bytes = pack_so(t, way, way->spare > t->least_spare ? t->enough : t->least);
  if (bytes == UINT64_MAX) return false;
  if (arena_part(t->l, t->rank, bytes) >= t->least) return true;
  t->least = arena_part(t->l, t->rank, bytes);
  t->best = *way;
  return true;
}

/* Every cut, first quickly, then thoroughly those that can come near: none, when whole blocks
 * cannot, for what is alive does not depend on the cuts. */
static void try_cuts(struct trial *t, uint32_t spare) {
  static const enum pen_cut cuts[PEN_CUTS] = {PEN_CUT_NOT, PEN_CUT_ALIKE, PEN_CUT_LAYERS,
                                              PEN_CUT_BLOCKS, PEN_CUT_EVEN};
  bool hopeless[PEN_CUTS] = {
      [PEN_CUT_LAYERS] =
          t->templates->parts<2, [PEN_CUT_BLOCKS] = t->templates->model_blocks> PEN_PIECES - 2};
  for (int i = 0; i < PEN_CUTS && t->least > t->stop; i++) {
    if (hopeless[cuts[i]] || (cuts[i] != PEN_CUT_NOT && t->l->input->kind != PEN_TRAIN))
      continue; /* eval saves nothing */
    if (t->shares_scratch) try_way(t, &(struct way){cuts[i], spare, true, 0});
    if (t->least > t->stop)
      hopeless[cuts[i]] = !try_way(t, &(struct way){cuts[i], spare, false, 0});
    if (hopeless[PEN_CUT_NOT]) return;
  }
  for (int i = 0; i < PEN_CUTS && t->least > t->stop; i++)
    if (!hopeless[cuts[i]] && (cuts[i] == PEN_CUT_NOT || t->l->input->kind == PEN_TRAIN))
      try_way(
          t, &(struct way){cuts[i], spare, false, spare > t->least_spare ? FEW_STEPS : MANY_STEPS});
}

static bool same_way(const struct way *a, const struct way *b) {
  return a->cut == b->cut && a->spare == b->spare && a->shared_scratch == b->shared_scratch &&
         a->steps == b->steps;
}

/* What the slots that a topology asks for take beyond the least. */
static uint64_t spare_bytes(struct pen_slot_assignment *slotting, uint32_t rank, uint32_t spare) {
  struct pen_receive_region least = pen_slots_place(slotting, rank, 0),
                            window = pen_slots_place(slotting, rank, spare);
  pen_free(least.home);
  pen_free(window.home);
  return window.bytes - least.bytes;
}

/* Tries whole blocks and spare slots first; see the top of the file. */
static void place_rank(struct pen_layout_state *l, struct pen_slot_assignment *slotting,
                       struct templates *c, struct packing *p, uint32_t rank) {
  l->live_bytes[rank] = live_of(l, rank);
  uint64_t others =
      part_with(l, rank, 0, 0); /* fewer bytes than the profiles before need gain nothing */
  const struct pen_topology *topology = l->topology;
  bool fixed = topology->has_memory_extra_receive_buffers;
  uint32_t spare = fixed ? (uint32_t)topology->memory_extra_receive_buffers : SPARE_MAX;
  uint64_t live = most_live(l, rank),
           wanted = live + (fixed ? spare_bytes(slotting, rank, spare) : 0);
  uint64_t all = live + resident_bytes(l, rank), near = wanted + all / NEAR,
           far = wanted + all / FAR, too_far = wanted + all / TOO_FAR;
  struct trial trial = {.l = l,
                        .slotting = slotting,
                        .templates = c,
                        .packing = p,
                        .rank = rank,
                        .shares_scratch = !has_pairs(l->input->lowered, rank),
                        .least_spare = fixed ? spare : 0,
                        .enough = near,
                        .stop = near > others ? near : others,
                        .least = UINT64_MAX};
  try_cuts(&trial, spare);
  while (spare > trial.least_spare && trial.least > trial.stop) try_cuts(&trial, --spare);
  if (trial.least > far && trial.least > trial.stop)
    try_way(&trial, &(struct way){trial.best.cut, trial.least_spare, false, MOST_STEPS});
  if (trial.least > too_far && trial.least > trial.stop && keeps_much(l, rank))
    try_way(&trial, &(struct way){trial.best.cut, trial.least_spare, false,
                                  LAST_STEPS / (1 + (size_t)topology->pipeline_ranks / RANKS_FEW)});
  if (!same_way(&trial.best, &trial.last)) pack_so(&trial, &trial.best, UINT64_MAX);
}

void pen_place(struct pen_layout_state *l) {
  find_rows(l);
  struct templates templates = start_templates(l);
  l->stages = pen_partition_stages(l->partition);
  l->unsharded = pen_new(l->partition->rank_count, sizeof *l->unsharded);
  for (uint32_t r = 0; r < l->partition->rank_count; r++) cut_rank(l, &templates, r, PEN_CUT_NOT);
  l->places = pen_new((size_t)l->partition->stage_count * l->partition->microbatch_count,
                      sizeof *l->places);
  struct pen_slot_assignment *slotting = begin_slots(l);
  struct packing packing = {0};
  for (uint32_t r = 0; r < l->partition->rank_count; r++)
    place_rank(l, slotting, &templates, &packing, r);
  pen_slots_number_credits(slotting);
  note_homes(l);
}
