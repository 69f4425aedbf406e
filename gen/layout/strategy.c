/* strategy.c: which of the ways to pack a rank is tried, and how long.
 *
 * Three things keep the tables small and cost a few bytes: one offset for the scratch of all
 * actions, so that those of one stage and microbatch share a frame; receive slots beyond the least,
 * which need fewer credits; and SAVED_W in one buffer. First fit packs a rank with all three, then
 * with scratch for each action, with SAVED_W split, with fewer slots, until the arena is at most
 * one part in FIRST_FIT above what is live. If the least of these is more than one part in NEAR
 * above, orders of the rectangles are searched, longer if it is then still one part in FAR above,
 * and longest if one in TOO_FAR: but only on ranks whose F keeps values, since on others the
 * cause is buffers that last whole actions, which no search removes. memory.extra_receive_buffers
 * fixes the number of slots; their bytes then count as live. */
#include "gen/layout/strategy.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/layout/activations.h"
#include "gen/layout/buffer_intervals.h"
#include "gen/layout/kept_buffers.h"
#include "gen/layout/persistent.h"

enum { SPARE_MAX = 2 /* receive slots of each size */ };

/* Parts of an arena: see above. */
enum { FIRST_FIT = 150, NEAR = 100, FAR = 40, TOO_FAR = 33 };

/* Steps of a search, see pen_pack(). */
enum {
  NEAR_STEPS = 250000, /* for each way to split */
  FAR_STEPS = 2000000,
  TOO_FAR_STEPS = 100000000, /* a quarter of a second, divided on many ranks */
  RANKS_FEW = 16,
};

static bool lists_alike(const struct pen_op_list *a, const struct pen_op_list *b) {
  if (a->count != b->count) return false;
  for (size_t i = 0; i < a->count; i++)
    if (a->op[i].kind != b->op[i].kind || a->op[i].workspace != b->op[i].workspace ||
        memcmp(a->op[i].operand, b->op[i].operand, sizeof a->op[i].operand))
      return false;
  return true;
}

/* Whether two stages have the same buffers: they differ in names alone. */
static bool graphs_equal(const struct pen_partition *partition, const struct pen_graph *a,
                         const struct pen_graph *b) {
  if (a->value_count != b->value_count || a->input != b->input || a->output != b->output ||
      a->training != b->training ||
      pen_comes_by_message(partition, a, false) != pen_comes_by_message(partition, b, false) ||
      pen_comes_by_message(partition, a, true) != pen_comes_by_message(partition, b, true) ||
      a->output_gradient != b->output_gradient || a->input_gradient != b->input_gradient)
    return false;
  for (size_t v = 0; v < a->value_count; v++) {
    const struct pen_value *x = &a->value[v], *y = &b->value[v];
    bool parts = v == 0 || !strcmp(x->prefix, x[-1].prefix) == !strcmp(y->prefix, y[-1].prefix);
    parts = parts && x->block - pen_first_block(a) == y->block - pen_first_block(b);
    if (x->bytes != y->bytes || x->base != y->base || x->storage != y->storage ||
        x->within != y->within || x->role != y->role || !parts)
      return false;
  }
  for (size_t p = 0; p < PEN_PROGRAMS; p++)
    if (!lists_alike(&a->program[p], &b->program[p])) return false;
  return true;
}

/* ---- the buffers of stages, whole or split ---- */

/* The buffers of each stage, made when they are first used; equal stages share them. */
struct templates {
  uint32_t *equal;                                    /* [stage]: the first stage that it equals */
  struct pen_stage_buffers *buffers[PEN_SPLIT_KINDS]; /* [stage] */
  bool *made[PEN_SPLIT_KINDS];
  uint32_t layers, layers_per_piece;
  uint32_t model_blocks; /* the most blocks of the model in a stage */
};

static struct templates start_templates(const struct pen_layout_state *l) {
  const struct pen_stages *stages = &l->partition->stages;
  uint32_t count = l->partition->stage_count;
  struct templates t = {.equal = pen_new(count, sizeof *t.equal)};
  for (int k = 0; k < PEN_SPLIT_KINDS; k++) {
    t.buffers[k] = pen_new(count, sizeof **t.buffers);
    t.made[k] = pen_new(count, sizeof **t.made);
  }
  for (uint32_t s = 0; s < count; s++) {
    t.equal[s] = s && graphs_equal(l->partition, l->input->graph[s - 1], l->input->graph[s])
                     ? t.equal[s - 1]
                     : s;
    uint32_t layers = t.equal[s] == s ? pen_number_layers(l->input->graph[s], NULL) : 0;
    if (layers > t.layers) t.layers = layers;
    uint32_t blocks = stages->span[s].past_last_block - stages->span[s].first_block;
    if (blocks > t.model_blocks) t.model_blocks = blocks;
  }
  t.layers_per_piece = (t.layers + PEN_PIECES - 1) / PEN_PIECES;
  return t;
}

static void use_buffers(struct pen_layout_state *l, struct templates *t, uint32_t stage,
                        const struct pen_buffer_split *split) {
  uint32_t first = t->equal[stage];
  struct pen_stage_buffers *buffers = &t->buffers[split->kind][first];
  bool depends_on_rank = split->kind == PEN_SPLIT_COMMON || split->kind == PEN_SPLIT_BLOCKS;
  if (!t->made[split->kind][first])
    *buffers = pen_stage_buffers_of(l->partition, l->input->graph[first], split);
  t->made[split->kind][first] = !depends_on_rank;
  l->buffers[stage] = *buffers;
}

/* How many values of a stage one block of the model passes to another. */
static size_t count_passed_on(const struct pen_saved *saved, size_t count) {
  size_t passed = 0;
  for (size_t i = 0; i < count; i++) passed += saved[i].passed_on;
  return passed;
}

/* Makes the buffers of a rank's stages. */
static void split_rank(struct pen_layout_state *l, struct templates *t, uint32_t rank,
                       enum pen_split_kind kind) {
  uint32_t stages = l->partition->stages_per_rank;
  struct pen_buffer_split split = {.kind = kind,
                                   .layers_per_piece = t->layers_per_piece,
                                   .passed_on = SIZE_MAX,
                                   .runs = l->runs};
  if (kind == PEN_SPLIT_COMMON || kind == PEN_SPLIT_BLOCKS) {
    const struct pen_saved **saved = pen_new(stages, sizeof *saved);
    size_t *count = pen_new(stages, sizeof *count);
    for (uint32_t i = 0; i < stages; i++) {
      saved[i] =
          pen_saved_values_of(l->partition, l->input->graph[pen_stage_at(l, rank, i)], &count[i]);
      size_t passed = count_passed_on(saved[i], count[i]);
      if (passed < split.passed_on) split.passed_on = passed;
    }
    split.common = pen_common_sizes(saved, count, stages);
  }
  for (uint32_t i = 0; i < stages; i++) use_buffers(l, t, pen_stage_at(l, rank, i), &split);
}

/* ---- bytes of one rank ---- */

static uint64_t rank_resident_bytes(const struct pen_layout_state *l, uint32_t rank) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < l->partition->stages_per_rank; i++)
    bytes += pen_stage_resident_bytes(l->partition, l->input->graph[pen_stage_at(l, rank, i)]);
  return bytes;
}

/* Bytes of a rank's arena except what persists, if this profile has such a receive region and such
 * activations: the profiles before use the same arena. */
static uint64_t bytes_with(const struct pen_layout_state *l, uint32_t rank, uint64_t receive_bytes,
                           uint64_t activation_bytes) {
  activation_bytes += pen_cache_beside(l, rank);
  for (const struct pen_layout_state *other = l->before; other; other = other->before) {
    if (other->receive_bytes[rank] > receive_bytes) receive_bytes = other->receive_bytes[rank];
    const uint64_t bytes = other->activation_bytes[rank] + pen_cache_beside(other, rank);
    if (bytes > activation_bytes) activation_bytes = bytes;
  }
  return receive_bytes + activation_bytes;
}

/* The most that is live in this profile and those before. */
static uint64_t most_live(const struct pen_layout_state *l, uint32_t rank) {
  int64_t most = 0;
  for (; l; l = l->before) {
    const int64_t live = l->live_bytes[rank] + (int64_t)pen_cache_beside(l, rank);
    if (live > most) most = live;
  }
  return (uint64_t)most;
}

/* The bytes of the receive slots of the topology beyond the least. */
static uint64_t spare_bytes(struct pen_slot_assignment *slots, uint32_t rank, uint32_t spare) {
  struct pen_receive_region least = pen_slots_place(slots, rank, 0),
                            region = pen_slots_place(slots, rank, spare);
  pen_free(least.message);
  pen_free(region.message);
  return region.bytes - least.bytes;
}

/* ---- trials ---- */

/* The trials of a rank. Limits are bytes of its arena except what persists. */
struct trials {
  struct pen_layout_state *l;
  struct pen_slot_assignment *slots;
  struct templates *templates;
  struct pen_rank_packing *packing;
  uint32_t rank;
  uint32_t least_spare; /* the least `spare` that is allowed */
  uint64_t goal;        /* a packing of at most so many bytes is good enough */
  uint64_t first_fit_stop, near_stop, far_stop, too_far_stop;
  uint64_t least;
  struct pen_strategy best, last; /* that of `least`; that of the latest packing */
  bool impossible[PEN_SPLIT_KINDS];
};

static uint64_t pack_with(struct trials *t, const struct pen_strategy *strategy, uint64_t limit) {
  split_rank(t->l, t->templates, t->rank, strategy->split);
  t->last = *strategy;
  return pen_pack_rank(t->l, t->slots, t->packing, t->rank, strategy, limit, t->goal);
}

/* False if the strategy cannot do better, however long the search. */
static bool try_strategy(struct trials *t, struct pen_strategy strategy) {
  uint64_t bytes = pack_with(t, &strategy, strategy.spare > t->least_spare ? t->goal : t->least);
  if (bytes == UINT64_MAX) return false;
  uint64_t receive_bytes = t->l->receive_bytes[t->rank],
           all = bytes_with(t->l, t->rank, receive_bytes, bytes - receive_bytes);
  if (all >= t->least) return true;
  t->least = all;
  t->best = strategy;
  return true;
}

static bool strategies_are_equal(const struct pen_strategy *a, const struct pen_strategy *b) {
  return a->split == b->split && a->spare == b->spare && a->shares_scratch == b->shares_scratch &&
         a->steps == b->steps;
}

/* Actions that overlap cannot share their scratch. */
static bool has_overlaps(const struct pen_lowered *lowered, uint32_t rank) {
  for (uint32_t i = 0; i < lowered->count[rank]; i++)
    if (lowered->action[rank][i].overlaps) return true;
  return false;
}

/* Whether a stage of the rank keeps what its F makes. */
static bool keeps_values(const struct pen_layout_state *l, uint32_t rank) {
  bool keeps = false;
  for (uint32_t i = 0; l->input->kind == PEN_TRAIN && i < l->partition->stages_per_rank; i++)
    keeps = keeps || l->input->graph[pen_stage_at(l, rank, i)]->recompute != PEN_RECOMPUTE_FULL;
  return keeps;
}

static const enum pen_split_kind split_order[PEN_SPLIT_KINDS] = {
    PEN_SPLIT_NONE, PEN_SPLIT_COMMON, PEN_SPLIT_LAYERS, PEN_SPLIT_BLOCKS, PEN_SPLIT_EVEN};

/* First fit, with each way to split. What is live does not depend on the split: if whole buffers
 * are impossible, the others are. */
static void try_first_fit(struct trials *t, uint32_t spare, bool shares_scratch) {
  bool trains = t->l->input->kind == PEN_TRAIN; /* other profiles save nothing */
  for (int k = 0; k < PEN_SPLIT_KINDS; k++) t->impossible[k] = !trains && k != PEN_SPLIT_NONE;
  t->impossible[PEN_SPLIT_LAYERS] |= t->templates->layers < 2;
  t->impossible[PEN_SPLIT_BLOCKS] |= t->templates->model_blocks > PEN_PIECES - 2;
  for (int i = 0; i < PEN_SPLIT_KINDS && t->least > t->first_fit_stop; i++) {
    enum pen_split_kind kind = split_order[i];
    if (t->impossible[kind] || t->impossible[PEN_SPLIT_NONE]) continue;
    if (shares_scratch) try_strategy(t, (struct pen_strategy){kind, spare, true, 0});
    if (t->least > t->first_fit_stop)
      t->impossible[kind] = !try_strategy(t, (struct pen_strategy){kind, spare, false, 0});
  }
}

static void search_packings(struct trials *t, bool keeps, size_t too_far_steps) {
  uint32_t spare = t->least_spare;
  for (int i = 0; i < PEN_SPLIT_KINDS && t->least > t->near_stop; i++)
    if (!t->impossible[split_order[i]] && !t->impossible[PEN_SPLIT_NONE])
      try_strategy(t, (struct pen_strategy){split_order[i], spare, false, NEAR_STEPS});
  if (t->least > t->far_stop)
    try_strategy(t, (struct pen_strategy){t->best.split, spare, false, FAR_STEPS});
  if (t->least > t->too_far_stop && keeps)
    try_strategy(t, (struct pen_strategy){t->best.split, spare, false, too_far_steps});
}

static uint64_t larger_of(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void place_rank(struct pen_layout_state *l, struct pen_slot_assignment *slots,
                       struct templates *templates, struct pen_rank_packing *packing,
                       uint32_t rank) {
  const struct pen_topology *topology = l->topology;
  bool fixed = topology->has_memory_extra_receive_buffers,
       shares_scratch = !has_overlaps(l->lowered, rank);
  uint32_t spare = fixed ? (uint32_t)topology->memory_extra_receive_buffers : SPARE_MAX;
  l->live_bytes[rank] = pen_live_bytes(l, rank);
  uint64_t live = most_live(l, rank), arena = live + rank_resident_bytes(l, rank),
           wanted = live + (fixed ? spare_bytes(slots, rank, spare) : 0);
  uint64_t before = bytes_with(l, rank, 0, 0); /* less than the profiles before has no advantage */
  struct trials t = {.l = l,
                     .slots = slots,
                     .templates = templates,
                     .packing = packing,
                     .rank = rank,
                     .least_spare = fixed ? spare : 0,
                     .goal = wanted + arena / FIRST_FIT,
                     .first_fit_stop = larger_of(wanted + arena / FIRST_FIT, before),
                     .near_stop = larger_of(wanted + arena / NEAR, before),
                     .far_stop = larger_of(wanted + arena / FAR, before),
                     .too_far_stop = larger_of(wanted + arena / TOO_FAR, before),
                     .least = UINT64_MAX};
  try_first_fit(&t, spare, shares_scratch);
  while (spare > t.least_spare && t.least > t.first_fit_stop)
    try_first_fit(&t, --spare, shares_scratch);
  if (t.least > t.near_stop)
    search_packings(&t, keeps_values(l, rank),
                    TOO_FAR_STEPS / (1 + (size_t)l->partition->rank_count / RANKS_FEW));
  if (!strategies_are_equal(&t.best, &t.last)) pack_with(&t, &t.best, UINT64_MAX);
}

void pen_place_activations(struct pen_layout_state *l) {
  uint32_t ranks = l->partition->rank_count;
  pen_find_stage_actions(l);
  struct templates templates = start_templates(l);
  l->stages = pen_partition_stages(l->partition);
  l->unsharded = pen_new(ranks, sizeof *l->unsharded);
  for (uint32_t r = 0; r < ranks; r++) split_rank(l, &templates, r, PEN_SPLIT_NONE);
  l->place_count =
      (l->input->kind == PEN_TRAIN ? PEN_BASE_UNSHARDED : PEN_BASE_OUTPUT + 1) - PEN_BASE_INPUT;
  l->places = pen_new((size_t)l->partition->stage_count * l->partition->microbatch_count,
                      l->place_count * sizeof *l->places);
  struct pen_slot_assignment *slots = pen_start_slots(l);
  struct pen_rank_packing packing = {0};
  for (uint32_t r = 0; r < ranks; r++) place_rank(l, slots, &templates, &packing, r);
  pen_slots_number_credits(slots);
  pen_set_message_bases(l);
}
