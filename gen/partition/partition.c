/* partition.c: assigns blocks to stages and stages to ranks.
 *
 * A stage is a run of the model's blocks, which the family lists (gen/families/). One of four rules
 * divides them:
 *
 *   evenly     The embedding counts as virtual_pre layers and the head as virtual_post. Every stage
 *              gets (layers + pre + post) / stages, the early ones one more until the remainder is
 *              used up; then the virtual layers are subtracted from the first and the last stage
 *              (docs/contracts.md section 8). With partition.unit = "block" the same is done with
 *              the blocks within layers; a virtual layer counts as the blocks of a layer.
 *   as listed  partition.layers: the number of layers of each stage
 *   as named   partition.before: the first block of each stage but the first
 *   by time    partition.balance = "time": the least maximum stage time, see balance.c
 *
 * The blocks before all layers belong to the first stage and those after them to the last, unless a
 * name or the balance puts a stage boundary among them. A layer counts for the stage in which it
 * begins. */
#include <string.h>

#include "gen/partition/balance.h"
#include "gen/partition/block_cost.h"
#include "gen/families/families.h"
#include "gen/topology/data_parallel.h"
#include "gen/topology/settings.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"
#include "gen/topology/message.h"

/* ---- units of division ---- */

/* The possible first blocks of a stage, besides the model's first block: those of layers, or all
 * blocks within layers. block[count] follows the last. */
struct partition_units {
  const char *name; /* "layer", "block" */
  uint32_t *block, count;
};

static bool cuts_blocks(const struct pen_topology *t) { return t->partition_unit == PEN_CUT_BLOCK; }

static struct partition_units units_by(enum pen_cut_unit kind, const struct pen_partition *p) {
  struct partition_units units = {.name = pen_enum_text(pen_enum_cut_unit, (int)kind),
                                  .block = pen_new(p->stages.block_count + 1u, sizeof(uint32_t))};
  uint32_t past = 0;
  for (uint32_t b = 0; b < p->stages.block_count; b++) {
    bool within = p->stages.block[b].layer != PEN_NONE;
    if (p->stages.block[b].begins_layer || (within && kind == PEN_CUT_BLOCK))
      units.block[units.count++] = b;
    if (within) past = b + 1;
  }
  units.block[units.count] = past;
  return units;
}

static struct partition_units units_of(const struct pen_topology *t,
                                       const struct pen_partition *p) {
  return units_by(t->partition_unit, p);
}

/* ---- evenly ---- */

/* Fails: a stage has no unit. Names the setting that causes it. */
static _Noreturn void fail_empty(const struct pen_topology *t, const char *unit, uint32_t stage,
                                 uint32_t stage_count, int64_t share) {
  if (stage == 0 && t->partition_virtual_pre && t->partition_virtual_pre >= share)
    pen_topology_fail(t, "partition.virtual_pre",
                      "leaves stage 0 with no %s: less than its share of %lld", unit,
                      (long long)share);
  if (stage + 1 == stage_count && t->partition_virtual_post && share > 0)
    pen_topology_fail(t, "partition.virtual_post",
                      "leaves stage %u with no %s: less than its share of %lld", stage, unit,
                      (long long)share);
  pen_topology_fail(
      t, "model.layers",
      "leaves stage %u with no %s: at least one for each of the %u stages, ranks x stages_per_rank",
      stage, unit, stage_count);
}

/* The units of a stage, less than 1 where virtual layers leave none; *share: with virtual layers.
 */
static int64_t even_count(const struct pen_topology *t, const struct partition_units *units,
                          uint32_t stage, uint32_t stages, int64_t *share) {
  int64_t weight = units->count / t->model_layers, pre = t->partition_virtual_pre * weight,
          post = t->partition_virtual_post * weight;
  int64_t total = units->count + pre + post;
  *share = total / stages + (stage < total % stages);
  return *share - (stage == 0 ? pre : 0) - (stage + 1 == stages ? post : 0);
}

static void cut_evenly(const struct pen_topology *t, const struct pen_partition *p, uint32_t *cut) {
  struct partition_units units = units_of(t, p);
  uint32_t stages = p->stage_count, first = 0;
  int64_t share;
  for (uint32_t stage = 0; stage < stages; stage++)
    if (even_count(t, &units, stage, stages, &share) < 1)
      fail_empty(t, units.name, stage, stages, share);
  for (uint32_t stage = 0; stage < stages; stage++) {
    cut[stage] = stage ? units.block[first] : 0;
    first += (uint32_t)even_count(t, &units, stage, stages, &share);
  }
}

/* ---- as listed ---- */

static void cut_as_listed(const struct pen_topology *t, const struct pen_partition *p,
                          uint32_t *cut) {
  const struct pen_integers *list = &t->partition_layers;
  uint32_t stages = p->stage_count, first = 0;
  int64_t sum = 0;
  if (list->count != stages)
    pen_topology_fail(t, "partition.layers", "a list of %u counts, one a stage; this one has %zu",
                      stages, list->count);
  for (uint32_t stage = 0; stage < stages; stage++) {
    if (list->value[stage] == 0 && stage > 0 && stage + 1 < stages)
      pen_topology_fail(t, "partition.layers",
                        "stage %u has no layer; only the first and the last may have none", stage);
    sum += list->value[stage];
  }
  if (sum != t->model_layers)
    pen_topology_fail(t, "partition.layers", "counts whose sum is model.layers = %lld, not %lld",
                      (long long)t->model_layers, (long long)sum);
  const uint32_t *block = units_by(PEN_CUT_LAYER, p).block;
  for (uint32_t stage = 0; stage < stages; stage++) {
    cut[stage] = stage ? block[first] : 0;
    first += (uint32_t)list->value[stage];
  }
}

/* ---- as named ---- */

/* Whether the name is the block's, or that of the layer that begins with the block: the block's
 * name without ".KIND". */
static bool is_named(const struct pen_model_block *block, const char *name) {
  size_t length = strlen(name);
  if (strncmp(block->name, name, length) != 0) return false;
  const char *rest = block->name + length;
  return *rest == 0 ||
         (block->begins_layer && *rest == '.' && strcmp(rest + 1, block->kind->name) == 0);
}

static _Noreturn void fail_unknown(const struct pen_topology *t, const struct pen_partition *p,
                                   const char *name) {
  const char *nearest = "";
  size_t least = SIZE_MAX;
  for (uint32_t b = 1; b < p->stages.block_count; b++) {
    const struct pen_model_block *block = &p->stages.block[b];
    int layer_bytes = (int)(strlen(block->name) - strlen(block->kind->name)) - 1;
    const char *names[] = {block->name, block->begins_layer
                                            ? pen_text("%.*s", layer_bytes, block->name)
                                            : block->name};
    for (size_t i = 0; i < 2; i++) {
      size_t found = pen_name_distance(name, names[i]);
      if (found > least) continue;
      least = found;
      nearest = names[i];
    }
  }
  pen_topology_fail(
      t, "partition.before",
      "family %s of %lld layers has no block \"%s\"; did you mean \"%s\"? Its blocks are %s",
      p->stages.family->name, (long long)t->model_layers, name, nearest,
      pen_family_block_names(p->stages.family));
}

/* The block of that name. Names are mostly in order, so the search begins at `from` and wraps. */
static uint32_t find_block(const struct pen_topology *t, const struct pen_partition *p,
                           const char *name, uint32_t from) {
  for (uint32_t step = 0; step < p->stages.block_count; step++) {
    uint32_t block =
        from + step < p->stages.block_count ? from + step : from + step - p->stages.block_count;
    if (is_named(&p->stages.block[block], name)) return block;
  }
  fail_unknown(t, p, name);
}

static void cut_as_named(const struct pen_topology *t, const struct pen_partition *p,
                         uint32_t *cut) {
  const struct pen_strings *list = &t->partition_before;
  if (list->count + 1 != p->stage_count)
    pen_topology_fail(t, "partition.before",
                      "a list of %u names, one for each stage except the first; this one has %zu",
                      p->stage_count - 1, list->count);
  for (uint32_t stage = 1; stage < p->stage_count; stage++) {
    const char *name = list->value[stage - 1];
    cut[stage] = find_block(t, p, name, cut[stage - 1]);
    if (cut[stage] == 0)
      pen_topology_fail(t, "partition.before",
                        "\"%s\" is the model's first block: stage %u would be left with nothing",
                        name, stage - 1);
    if (cut[stage] <= cut[stage - 1])
      pen_topology_fail(t, "partition.before",
                        "names in the order of the model; \"%s\" does not come after \"%s\"", name,
                        list->value[stage - 2]);
  }
}

/* ---- by time ---- */

uint32_t *pen_partition_places(const struct pen_topology *t, const struct pen_partition *p,
                               uint32_t *count) {
  uint32_t *place = pen_new(p->stages.block_count + 2u, sizeof *place);
  struct partition_units units = units_of(t, p);
  *count = 1;
  for (uint32_t b = 1; b < p->stages.block_count; b++) { /* place[0] is 0 */
    bool allowed =
        cuts_blocks(t) || p->stages.block[b].begins_layer || b == units.block[units.count];
    if (allowed) place[(*count)++] = b;
  }
  place[*count] = p->stages.block_count;
  if (*count < p->stage_count)
    pen_topology_fail(t, "model.layers",
                      "leaves a stage with no %s: the model can be cut into at most %u stages, "
                      "ranks x stages_per_rank"
                      " is %u",
                      units.name, *count, p->stage_count);
  return place;
}

static void cut_by_time(const struct pen_topology *t, const struct pen_partition *p,
                        const struct pen_block_costs *costs, uint32_t *cut) {
  uint32_t count, *place = pen_partition_places(t, p, &count);
  pen_balance(p->stage_count, place, count, pen_span_cost, costs, cut);
  if (p->stages_per_rank > 1)
    pen_balance_ranks(p->stage_count, p->rank_of, p->rank_count, place, count, pen_span_cost, costs,
                      cut);
}

/* ---- the pass ---- */

bool pen_partition_by_time(const struct pen_topology *t) {
  return t->partition_balance == PEN_BALANCE_TIME;
}

bool pen_partition_is_joint(const struct pen_topology *t) {
  return t->partition_balance == PEN_BALANCE_JOINT;
}

/* Fails when settings ask for more than one rule. */
static void check_rules(const struct pen_topology *t) {
  bool balances = pen_partition_by_time(t) || pen_partition_is_joint(t);
  if (t->partition_before.value && t->partition_layers.value)
    pen_topology_fail(t, "partition.before", "not together with partition.layers");
  if (balances && (t->partition_before.value || t->partition_layers.value))
    pen_topology_fail(t, "partition.balance",
                      "\"count\", together with partition.%s, which leaves nothing to balance",
                      t->partition_before.value ? "before" : "layers");
}

static void cut_model(const struct pen_topology *t, const struct pen_partition *p,
                      const struct pen_block_costs *costs, uint32_t *first_block) {
  check_rules(t);
  if (t->partition_before.value)
    cut_as_named(t, p, first_block);
  else if (t->partition_layers.value)
    cut_as_listed(t, p, first_block);
  else if (pen_partition_by_time(t))
    cut_by_time(t, p, costs, first_block);
  else
    cut_evenly(t, p, first_block);
}

/* Fills the spans from the first block of each stage. */
static void fill_spans(struct pen_partition *p, const uint32_t *first_block) {
  uint32_t layer = 0;
  for (uint32_t stage = 0; stage < p->stage_count; stage++) {
    struct pen_span *span = &p->stages.span[stage];
    span->first_block = first_block[stage];
    span->past_last_block =
        stage + 1 < p->stage_count ? first_block[stage + 1] : p->stages.block_count;
    span->first_layer = layer;
    for (uint32_t b = span->first_block; b < span->past_last_block; b++)
      layer += p->stages.block[b].begins_layer;
    span->past_last_layer = layer;
  }
}

/* The rank of each stage, [stage_count]. */
static uint32_t *place_stages(const struct pen_partition *partition, bool zigzag) {
  uint32_t *rank_of = pen_new(partition->stage_count, sizeof *rank_of);
  for (uint32_t turn = 0; turn < partition->stages_per_rank; turn++)
    for (uint32_t rank = 0; rank < partition->rank_count; rank++)
      rank_of[pen_placed_stage(partition->rank_count, zigzag, rank, turn)] = rank;
  return rank_of;
}

void pen_group_hosts(const struct pen_group_sizes *sizes, const uint32_t *host_of, uint32_t process,
                     int group, uint32_t *host) {
  for (uint32_t m = 0; m < pen_group_size(sizes, group); m++)
    host[m] = host_of ? host_of[pen_group_process(sizes, process, group, m)] : 0;
}

struct pen_partition *pen_partition_placed(const struct pen_partition *partition, bool zigzag) {
  struct pen_partition *placed = pen_new(1, sizeof *placed);
  *placed = *partition;
  placed->rank_of = place_stages(partition, zigzag);
  return placed;
}

uint32_t *pen_partition_stages(const struct pen_partition *partition) {
  uint32_t *stages = pen_new(partition->stage_count, sizeof *stages);
  uint32_t *filled = pen_new(partition->rank_count, sizeof *filled);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) {
    uint32_t rank = partition->rank_of[stage];
    stages[(size_t)rank * partition->stages_per_rank + filled[rank]++] = stage;
  }
  pen_free(filled);
  return stages;
}

struct pen_partition *pen_partition_cut(const struct pen_partition *partition,
                                        const uint32_t *first_block) {
  struct pen_partition *cut = pen_new(1, sizeof *cut);
  *cut = *partition;
  cut->stages.span = pen_new(cut->stage_count, sizeof *cut->stages.span);
  fill_spans(cut, first_block);
  return cut;
}

/* Without the blocks of the stages. */
static struct pen_partition *place_model(const struct pen_topology *t,
                                         const struct pen_family *family) {
  struct pen_partition *partition = pen_new(1, sizeof *partition);
#define PEN_SIZE(field, setting) partition->field = (uint32_t)t->setting;
#include "runtime/plan/groups.def"
  partition->stages_per_rank = (uint32_t)t->pipeline_stages_per_rank;
  partition->stage_count = partition->rank_count * partition->stages_per_rank;
  partition->microbatch_count = (uint32_t)t->pipeline_microbatches;
  partition->sharding = pen_sharding_of(t);
  partition->gathers_units = pen_gathers_units(t);
  partition->reduces_microbatches = pen_reduces_microbatches(t);
  partition->stages.stage_count = partition->stage_count;
  partition->stages.family = family;
  partition->stages.block =
      pen_family_blocks(family, t, (uint32_t)t->model_layers, &partition->stages.block_count);
  partition->rank_of = place_stages(partition, t->pipeline_placement == PEN_PLACEMENT_V);
  partition->speed = t->cluster_speed.count ? t->cluster_speed.value : NULL;
  partition->host_of = t->cluster_hosts.count > 1 ? pen_topology_rank_hosts(t) : NULL;
  return partition;
}

struct pen_partition *pen_partition(const struct pen_topology *t, const struct pen_family *family,
                                    const struct pen_block_costs *costs) {
  struct pen_partition *partition = place_model(t, family);
  uint32_t *first_block = pen_new(partition->stage_count, sizeof *first_block);
  cut_model(t, partition, costs, first_block);
  return pen_partition_cut(partition, first_block);
}

struct pen_partition *pen_partition_of_blocks(const struct pen_topology *t,
                                              const struct pen_family *family,
                                              const uint32_t *first_block) {
  return pen_partition_cut(place_model(t, family), first_block);
}

bool pen_partition_divides_evenly(const struct pen_topology *t, const struct pen_family *family) {
  const struct pen_partition *p = place_model(t, family);
  struct partition_units units = units_of(t, p);
  int64_t share;
  for (uint32_t stage = 0; stage < p->stage_count; stage++)
    if (even_count(t, &units, stage, p->stage_count, &share) < 1) return false;
  return true;
}
