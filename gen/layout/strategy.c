/* strategy.c: which of the ways to pack a rank is tried, and how long.
 *
 * Three things keep the tables small and cost a few bytes: one offset for the scratch of all
 * actions, so that those of one stage and microbatch share a frame; receive slots beyond the least,
 * which need fewer credits; and SAVED_W in one buffer. A rank is packed with all three first. If
 * that takes more than one part in NEAR above what is live, it is packed with scratch for each
 * action, with SAVED_W split, with fewer slots; the least is taken. It is searched for longer if it
 * is still one part in FAR above, and longest if one in TOO_FAR: but only on ranks whose F keeps
 * values, since elsewhere buffers that last whole actions are the cause, which no search removes.
 * memory.extra_receive_buffers fixes the number of slots; their bytes are then allowed for. */
#include "gen/layout/strategy.h"
#include <string.h>
#include "gen/base/arena.h"
#include "gen/layout/activations.h"
#include "gen/layout/buffer_intervals.h"
#include "gen/layout/graph_equal.h"
#include "gen/layout/kept_buffers.h"
#include "gen/layout/persistent.h"

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
    c.alike[s] = s && pen_graphs_equal(l->partition, l->input->graph[s - 1], l->input->graph[s])
                     ? c.alike[s - 1]
                     : s;
    uint32_t parts = c.alike[s] == s ? pen_number_layers(l->input->graph[s], NULL) : 0;
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
  struct pen_slot_assignment *slots;
  struct templates *templates;
  struct pen_rank_packing *packing;
  uint32_t rank;
  bool shares_scratch;  /* may */
  uint32_t least_spare; /* slots beyond the least that stay, whatever they cost */
  uint64_t enough;      /* bytes of window and activations that a packing need not go below */
  uint64_t stop, least; /* bytes of the arena's part: when to end, and the least so far */
  struct pen_strategy best, last;
};

static uint64_t pack_so(struct trial *t, const struct pen_strategy *strategy, uint64_t limit) {
  cut_rank(t->l, t->templates, t->rank, strategy->cut);
  t->last = *strategy;
  return pen_pack_rank(t->l, t->slots, t->packing, t->rank, strategy, limit, t->enough);
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
static bool try_strategy(struct trial *t, const struct pen_strategy *strategy) {
  uint64_t bytes = pack_so(t, strategy, strategy->spare > t->least_spare ? t->enough : t->least);
  if (bytes == UINT64_MAX) return false;
  if (arena_part(t->l, t->rank, bytes) >= t->least) return true;
  t->least = arena_part(t->l, t->rank, bytes);
  t->best = *strategy;
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
    if (t->shares_scratch) try_strategy(t, &(struct pen_strategy){cuts[i], spare, true, 0});
    if (t->least > t->stop)
      hopeless[cuts[i]] = !try_strategy(t, &(struct pen_strategy){cuts[i], spare, false, 0});
    if (hopeless[PEN_CUT_NOT]) return;
  }
  for (int i = 0; i < PEN_CUTS && t->least > t->stop; i++)
    if (!hopeless[cuts[i]] && (cuts[i] == PEN_CUT_NOT || t->l->input->kind == PEN_TRAIN))
      try_strategy(t, &(struct pen_strategy){cuts[i], spare, false,
                                             spare > t->least_spare ? FEW_STEPS : MANY_STEPS});
}

static bool same_strategy(const struct pen_strategy *a, const struct pen_strategy *b) {
  return a->cut == b->cut && a->spare == b->spare && a->shares_scratch == b->shares_scratch &&
         a->steps == b->steps;
}

/* What the slots that a topology asks for take beyond the least. */
static uint64_t spare_bytes(struct pen_slot_assignment *slots, uint32_t rank, uint32_t spare) {
  struct pen_receive_region least = pen_slots_place(slots, rank, 0),
                            window = pen_slots_place(slots, rank, spare);
  pen_free(least.message);
  pen_free(window.message);
  return window.bytes - least.bytes;
}

/* Tries whole blocks and spare slots first; see the top of the file. */
static void place_rank(struct pen_layout_state *l, struct pen_slot_assignment *slots,
                       struct templates *c, struct pen_rank_packing *p, uint32_t rank) {
  l->live_bytes[rank] = pen_live_bytes(l, rank);
  uint64_t others =
      part_with(l, rank, 0, 0); /* fewer bytes than the profiles before need gain nothing */
  const struct pen_topology *topology = l->topology;
  bool fixed = topology->has_memory_extra_receive_buffers;
  uint32_t spare = fixed ? (uint32_t)topology->memory_extra_receive_buffers : SPARE_MAX;
  uint64_t live = most_live(l, rank), wanted = live + (fixed ? spare_bytes(slots, rank, spare) : 0);
  uint64_t all = live + resident_bytes(l, rank), near = wanted + all / NEAR,
           far = wanted + all / FAR, too_far = wanted + all / TOO_FAR;
  struct trial trial = {.l = l,
                        .slots = slots,
                        .templates = c,
                        .packing = p,
                        .rank = rank,
                        .shares_scratch = !has_pairs(l->lowered, rank),
                        .least_spare = fixed ? spare : 0,
                        .enough = near,
                        .stop = near > others ? near : others,
                        .least = UINT64_MAX};
  try_cuts(&trial, spare);
  while (spare > trial.least_spare && trial.least > trial.stop) try_cuts(&trial, --spare);
  if (trial.least > far && trial.least > trial.stop)
    try_strategy(&trial,
                 &(struct pen_strategy){trial.best.cut, trial.least_spare, false, MOST_STEPS});
  if (trial.least > too_far && trial.least > trial.stop && keeps_much(l, rank))
    try_strategy(&trial, &(struct pen_strategy){
                             trial.best.cut, trial.least_spare, false,
                             LAST_STEPS / (1 + (size_t)topology->pipeline_ranks / RANKS_FEW)});
  if (!same_strategy(&trial.best, &trial.last)) pack_so(&trial, &trial.best, UINT64_MAX);
}

void pen_place_activations(struct pen_layout_state *l) {
  pen_find_stage_actions(l);
  struct templates templates = start_templates(l);
  l->stages = pen_partition_stages(l->partition);
  l->unsharded = pen_new(l->partition->rank_count, sizeof *l->unsharded);
  for (uint32_t r = 0; r < l->partition->rank_count; r++) cut_rank(l, &templates, r, PEN_CUT_NOT);
  l->places = pen_new((size_t)l->partition->stage_count * l->partition->microbatch_count,
                      sizeof *l->places);
  struct pen_slot_assignment *slots = pen_start_slots(l);
  struct pen_rank_packing packing = {0};
  for (uint32_t r = 0; r < l->partition->rank_count; r++)
    place_rank(l, slots, &templates, &packing, r);
  pen_slots_number_credits(slots);
  pen_set_message_bases(l);
}
