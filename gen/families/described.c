/* described.c: the family of a description: its kinds, their blocks, and the list of the model's
 * blocks.
 *
 * A unit is divided into blocks where one value passes from the ops before to those after: so the
 * layer of a Llama has two, as in the family llama. Both sides have weights, and none of one
 * module: the block is named after the module of its first weight. */
#include "gen/families/described.h"

#include <stdlib.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/families/described_f32.h"
#include "gen/families/described_inputs.h"
#include "gen/families/described_ops.h"
#include "gen/families/described_shapes.h"
#include "gen/families/language.h"
#include "gen/model/gradient_rules.h"
#include "gen/model/op_signature.h"
#include "gen/model/pointwise.h"
#include "gen/topology/description.h"
#include "runtime/plan/plan.h"

/* ---- the blocks of a kind ---- */

struct kind_blocks {
  struct pen_kind *kind;
  struct pen_kind_block *block;
  uint32_t count;
};

/* The bytes of a weight's module: of "self_attn.q_proj.weight" those before the last point. */
static size_t module_bytes(const char *weight) {
  const char *point = strrchr(weight, '.');
  return point ? (size_t)(point - weight) : strlen(weight);
}

/* The next weight that ops [op, past) read, from operand k on; null: none. */
static const char *next_weight(const struct pen_kind *kind, uint32_t *op, int *k, uint32_t past) {
  for (; *op < past; ++*op, *k = 0)
    while (*k < PEN_OPERANDS_MAX) {
      const struct pen_kind_operand *operand = &kind->op[*op].operand[(*k)++];
      if (operand->source == PEN_OPERAND_WEIGHT) return operand->weight;
    }
  return NULL;
}

static const char *first_weight(const struct pen_kind *kind, uint32_t first, uint32_t past) {
  int k = 0;
  return next_weight(kind, &first, &k, past);
}

/* Whether the ops on both sides read weights, and none of one module. */
static bool parts_modules(const struct pen_kind *kind, uint32_t first, uint32_t place) {
  if (!first_weight(kind, first, place) || !first_weight(kind, place, kind->op_count)) return false;
  uint32_t i = first;
  int k = 0;
  for (const char *one; (one = next_weight(kind, &i, &k, place));) {
    uint32_t j = place;
    int m = 0;
    for (const char *other; (other = next_weight(kind, &j, &m, kind->op_count));)
      if (module_bytes(one) == module_bytes(other) && !memcmp(one, other, module_bytes(one)))
        return false;
  }
  return true;
}

/* The value whose gradient is that of another one, the only operand that reads it being passed the
 * gradient of an op's output; PEN_NONE: ops compute it. */
static uint32_t passed_to(const struct pen_kind *kind, uint32_t value) {
  uint32_t found = PEN_NONE, readers = 0;
  size_t count;
  const struct pen_pass_rule *rules = pen_pass_rules(&count);
  for (uint32_t i = 0; i < kind->op_count; i++)
    for (int k = 0; k < PEN_OPERANDS_MAX; k++) {
      const struct pen_kind_op *op = &kind->op[i];
      if (op->operand[k].source != PEN_OPERAND_VALUE || op->operand[k].value != value) continue;
      readers++;
      for (size_t r = 0; r < count; r++)
        if (rules[r].forward == op->row->kind && rules[r].input == k) found = op->first_output;
    }
  return readers == 1 ? found : PEN_NONE;
}

/* Whether the gradient of what a block takes is that of what it gives, which is another tensor. */
static bool passes_gradient(const struct pen_kind *kind, uint32_t takes, uint32_t gives) {
  while (takes != PEN_NONE && takes != gives) takes = passed_to(kind, takes);
  return takes != PEN_NONE;
}

/* Whether an op computes the gradient of what it reads. A block of ops does. */
static bool computes_gradients(const struct pen_kind *kind, uint32_t first, uint32_t past) {
  size_t count;
  const struct pen_gradient_rule *rules = pen_gradient_rules(&count);
  for (uint32_t i = first; i < past; i++) {
    if (pen_signature_of(kind->op[i].row->kind)->is_block) return true;
    for (size_t r = 0; r < count; r++)
      if (rules[r].forward == kind->op[i].row->kind && !rules[r].weight_part) return true;
  }
  return false;
}

/* The one value that passes from the ops before `place` to those after; PEN_NONE: none, or more, or
 * one of samples, or of f32 in a bf16 model. */
static uint32_t passing_value(const struct pen_kind *kind, uint32_t place) {
  uint32_t found = PEN_NONE;
  for (uint32_t v = 0; v < kind->value_count; v++) {
    const struct pen_kind_value *value = &kind->value[v];
    const bool is_made = value->maker == PEN_NONE || value->maker < place,
               is_constant = value->maker != PEN_NONE &&
                             kind->op[value->maker].row->appended == PEN_APPENDED_CONSTANT;
    if (!is_made || is_constant || (value->past_read <= place && v != kind->gives)) continue;
    if (found != PEN_NONE || value->of_samples || pen_kind_value_is_f32(kind, v)) return PEN_NONE;
    found = v;
  }
  return found;
}

/* Whether a block may end before the op, after one that began with `first`: not where one of both
 * would only pass on gradients. */
static bool may_cut(const struct pen_kind *kind, uint32_t first, uint32_t place) {
  const uint32_t taken = first ? passing_value(kind, first) : kind->takes,
                 passing = passing_value(kind, place);
  return passing != PEN_NONE && place <= kind->product && place <= kind->first_loss &&
         (kind->takes == PEN_NONE || computes_gradients(kind, first, place)) &&
         computes_gradients(kind, place, kind->op_count) &&
         !passes_gradient(kind, taken, passing) && !passes_gradient(kind, passing, kind->gives) &&
         parts_modules(kind, first, place);
}

static const struct pen_declared *declared_of(const struct pen_kind *kind, uint32_t value) {
  if (value == PEN_NONE) return NULL;
  struct pen_declared *declared = pen_new(1, sizeof *declared);
  *declared = (struct pen_declared){
      .name = "hidden_states",
      .extents = pen_text("batch sequence %llu", (unsigned long long)kind->value[value].width),
      .split = 0,
      .dtype = PEN_OF_MODEL};
  return declared;
}

static void add_read(struct pen_block_kind *block, const struct pen_declared *declared) {
  size_t n = 0;
  while (n < PEN_BLOCK_READS_MAX && block->reads[n] && block->reads[n] != declared) n++;
  if (n == PEN_BLOCK_READS_MAX)
    pen_stop(PEN_EXIT_INTERNAL, "model: block %s reads too many inputs", block->name);
  block->reads[n] = declared;
}

/* The inputs of the step that ops read. Any that counts positions may need the starts. */
static void add_reads(struct pen_kind_block *block) {
  const struct pen_kind *kind = block->kind;
  for (uint32_t i = block->first; i < block->past; i++) {
    for (int k = 0; k < PEN_OPERANDS_MAX; k++) {
      const struct pen_kind_operand *operand = &kind->op[i].operand[k];
      if (operand->source == PEN_OPERAND_INPUT || operand->source == PEN_OPERAND_SHARE)
        add_read(&block->block, pen_described_declared(kind->description, operand->input,
                                                       (enum pen_input_use)operand->use));
    }
    if (pen_signature_operand(pen_signature_of(kind->op[i].row->kind), "starts") >= 0)
      add_read(&block->block, &pen_language_starts);
    if (kind->needed && i == kind->product) add_read(&block->block, &pen_described_text_targets);
  }
}

static void add_block(struct kind_blocks *blocks, uint32_t first, uint32_t past) {
  struct pen_kind *kind = blocks->kind;
  struct pen_kind_block *block = &blocks->block[blocks->count++];
  const char *weight = first_weight(kind, first, past);
  *block = (struct pen_kind_block){
      .kind = kind,
      .first = first,
      .past = past,
      .takes = first ? passing_value(kind, first) : kind->takes,
      .gives = past < kind->op_count ? passing_value(kind, past) : kind->gives};
  block->passes = passes_gradient(kind, block->takes, block->gives);
  block->block = (struct pen_block_kind){
      .name = weight ? pen_text("%.*s", (int)module_bytes(weight), weight) : kind->from->name,
      .emit = pen_described_emit,
      .takes = declared_of(kind, block->takes),
      .gives = declared_of(kind, block->gives)};
  add_reads(block);
}

/* The widths of values are set. */
static void divide(struct kind_blocks *blocks) {
  const struct pen_kind *kind = blocks->kind;
  uint32_t first = 0;
  blocks->block = pen_new(kind->op_count, sizeof *blocks->block);
  for (uint32_t place = 1; place < kind->op_count; place++) {
    if (!may_cut(kind, first, place)) continue;
    add_block(blocks, first, place);
    first = place;
  }
  add_block(blocks, first, kind->op_count);
}

/* ---- weights ---- */

/* An op's use of a weight. */
struct weight_use {
  const char *name;
  uint32_t unit;
};

static int compare_uses(const void *one, const void *other) {
  const struct weight_use *a = one, *b = other;
  const int order = strcmp(a->name, b->name);
  return order ? order : a->unit < b->unit ? -1 : a->unit > b->unit;
}

struct weight_uses {
  struct weight_use *use;
  size_t count;
};

static void add_uses(struct weight_uses *uses, const struct pen_kind *kind, const char *prefix,
                     uint32_t unit) {
  uint32_t op = 0;
  int k = 0;
  for (const char *name; (name = next_weight(kind, &op, &k, kind->op_count));) {
    PEN_RESERVE(uses->use, uses->count + 1);
    uses->use[uses->count++] = (struct weight_use){pen_text("%s%s", prefix, name), unit};
  }
}

/* A weight has one reader; one with two names has its first in the first unit, for an embedding,
 * and its other in the last, for the head. */
static void check_uses(const struct pen_description *d, struct weight_uses *uses) {
  bool *used = pen_new(d->weight_count + 1, sizeof *used);
  qsort(uses->use, uses->count, sizeof *uses->use, compare_uses);
  for (size_t i = 0; i < uses->count; i++) {
    const struct weight_use *use = &uses->use[i];
    const struct pen_described_weight *weight = pen_described_weight_find(d, use->name);
    const bool is_other = weight->tied && strcmp(weight->tied, use->name) == 0;
    const size_t unit = is_other ? d->unit_count - 1 : 0;
    if (i && strcmp(use[-1].name, use->name) == 0)
      pen_stop(PEN_EXIT_TOPOLOGY, "%s: weight %s: one op reads it, not several, in units %u and %u",
               d->path, use->name, use[-1].unit, use->unit);
    if (weight->tied && use->unit != unit)
      pen_stop(PEN_EXIT_TOPOLOGY,
               "%s: weight %s, of two names: unit %zu alone reads it, not unit %u", d->path,
               use->name, unit, use->unit);
    used[weight - d->weight] = true;
  }
  for (size_t w = 0; w < d->weight_count; w++)
    if (!used[w])
      pen_stop(PEN_EXIT_TOPOLOGY, "%s: weights[%zu]: %s: no op reads it", d->path, w,
               d->weight[w].name);
}

/* An input that data must have is read, by an op, or for a share. */
static void check_inputs(const struct pen_description *d) {
  for (size_t i = 0; i < d->input_count; i++) {
    bool is_read = d->input[i].from != PEN_SOURCE_NAME;
    for (int use = 0; use < PEN_INPUT_USES; use++) is_read = is_read || d->input[i].declared[use];
    for (size_t s = 0; s < d->share_count; s++) is_read = is_read || d->share[s].input == i;
    if (!is_read)
      pen_stop(PEN_EXIT_TOPOLOGY, "%s: inputs[%zu]: %s: no op reads it", d->path, i,
               d->input[i].name);
  }
}

static bool uses_share(const struct pen_kind *kind, uint32_t share) {
  for (uint32_t i = 0; i < kind->op_count; i++)
    for (int k = 0; k < PEN_OPERANDS_MAX; k++)
      if (kind->op[i].operand[k].source == PEN_OPERAND_NAMED_SHARE &&
          kind->op[i].operand[k].input == share)
        return true;
  return false;
}

/* A loss uses each share: the last unit has them all. */
static void check_shares(const struct pen_description *d, const struct pen_kind *last) {
  for (uint32_t s = 0; s < d->share_count; s++)
    if (!uses_share(last, s))
      pen_stop(PEN_EXIT_TOPOLOGY, "%s: shares[%u]: %s: no loss has it", d->path, s,
               d->share[s].name);
}

/* The ops that read the weight with two names: EMBEDDING its first one, the head its other. */
static void check_tied(const struct pen_description *d, const struct pen_kind *kind,
                       const char *prefix) {
  for (uint32_t i = 0; i < kind->op_count && d->tied; i++)
    for (int k = 0; k < PEN_OPERANDS_MAX; k++) {
      const struct pen_kind_operand *operand = &kind->op[i].operand[k];
      if (operand->source != PEN_OPERAND_WEIGHT) continue;
      const char *name = pen_text("%s%s", prefix, operand->weight);
      if (pen_described_weight_find(d, name) != d->tied) continue;
      const bool is_other = strcmp(d->tied->tied, name) == 0;
      if (is_other ? i != kind->product : kind->op[i].row->kind != PEN_OP_EMBEDDING)
        pen_description_fail(d, kind->from, kind->op[i].from, "%s, of two names: %s reads it", name,
                             is_other ? "the LINEAR of the logits" : "an EMBEDDING");
    }
}

/* ---- the family ---- */

/* A family while it is made. */
struct family_maker {
  const struct pen_description *description;
  struct kind_blocks *blocks; /* [kind] */
  struct pen_family *family;
  struct pen_model_block *block;
};

static struct kind_blocks *blocks_of(const struct family_maker *m, size_t unit) {
  return &m->blocks[m->description->unit[unit].kind - m->description->kind];
}

static uint64_t width_given(const struct family_maker *m, size_t unit) {
  const struct pen_kind *kind = blocks_of(m, unit)->kind;
  return kind->value[kind->gives].width;
}

static void match_units(struct family_maker *m) {
  const struct pen_description *d = m->description;
  struct weight_uses uses = {0};
  for (size_t u = 0; u < d->unit_count; u++) {
    struct kind_blocks *blocks = blocks_of(m, u);
    const char *prefix = d->unit[u].prefix;
    const bool is_first = !blocks->kind;
    if (is_first) blocks->kind = pen_described_kind(d, d->unit[u].kind);
    const struct pen_kind *kind = blocks->kind;
    pen_kind_match_unit(blocks->kind, prefix, is_first);
    if (u > 0 && width_given(m, u - 1) != kind->from->width)
      pen_description_fail(d, kind->from, NULL,
                           "takes %s of width %llu, but the unit before it gives one of %llu",
                           kind->from->takes, (unsigned long long)kind->from->width,
                           (unsigned long long)width_given(m, u - 1));
    check_tied(d, kind, prefix);
    add_uses(&uses, kind, prefix, (uint32_t)u);
  }
  check_uses(d, &uses);
  check_inputs(d);
  check_shares(d, blocks_of(m, d->unit_count - 1)->kind);
}

static void list_blocks(struct family_maker *m) {
  const struct pen_description *d = m->description;
  for (size_t u = 0; u < d->unit_count; u++) {
    const struct kind_blocks *blocks = blocks_of(m, u);
    for (uint32_t b = 0; b < blocks->count; b++) {
      const struct pen_block_kind *kind = &blocks->block[b].block;
      PEN_RESERVE(m->block, m->family->block_count + 1);
      m->block[m->family->block_count++] =
          (struct pen_model_block){.name = pen_text("%s%s", d->unit[u].prefix, kind->name),
                                   .layer = d->unit[u].layer,
                                   .begins_layer = b == 0 && d->unit[u].layer != PEN_NONE,
                                   .kind = kind,
                                   .prefix = d->unit[u].prefix};
    }
  }
  m->family->block = m->block;
}

/* Whether a model without the layers from that number on has all kinds, and each unit takes what
 * the one before it gives. */
static bool is_model(const struct family_maker *m, uint32_t layers) {
  const struct pen_description *d = m->description;
  bool *has = pen_new(d->kind_count, sizeof *has), is = true;
  uint64_t width = 0;
  for (size_t u = 0; u < d->unit_count; u++) {
    if (d->unit[u].layer != PEN_NONE && d->unit[u].layer >= layers) continue;
    has[d->unit[u].kind - d->kind] = true;
    is = is && d->unit[u].kind->width == width;
    if (u + 1 < d->unit_count) width = width_given(m, u);
  }
  for (size_t k = 0; k < d->kind_count; k++) is = is && has[k];
  pen_free(has);
  return is;
}

static char *config_json(const struct pen_topology *topology) {
  const char *config = topology->description->config;
  return pen_text("%s", config ? config : "{\"model_type\": \"penstock_described\"}\n");
}

const struct pen_family *pen_described_family(const struct pen_description *d) {
  if (*d->family) return *d->family;
  struct pen_family *family = pen_new(1, sizeof *family);
  *d->pointwise = pen_new(1, sizeof **d->pointwise);
  struct family_maker m = {d, pen_new(d->kind_count, sizeof *m.blocks), family, NULL};
  *family = pen_family_described;
  match_units(&m);
  for (size_t k = 0; k < d->kind_count; k++) {
    if (!m.blocks[k].kind)
      pen_description_fail(d, &d->kind[k], NULL, "the list units has none of this kind");
    divide(&m.blocks[k]);
  }
  list_blocks(&m);
  family->input = pen_described_declared_list(d);
  family->embedding = d->tied ? d->tied->name : NULL;
  for (family->period = 1; family->period < d->layer_count; family->period++)
    if (is_model(&m, family->period)) break;
  *d->family = family;
  return family;
}

/* What its families have in common. */
const struct pen_family pen_family_described = {
    .name = "described",
    .before = (const struct pen_block_kind[]){{0}},
    .layer = (const struct pen_block_kind[]){{0}},
    .after = (const struct pen_block_kind[]){{0}},
    .input = (const struct pen_declared *const[]){NULL},
    .config_json = config_json,
};
