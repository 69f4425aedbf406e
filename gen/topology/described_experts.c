/* described_experts.c: the mixtures of experts of a description (see described_experts.h).
 *
 * The op MOE of kernels/ops.def: what it says becomes settings, which gen/model/experts.c reads.
 * They are the model's, and so all its layers have the same. */
#include "gen/topology/described_experts.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/topology/description.h"

enum { EXPERTS_MAX = 1024, CHOICES_MAX = 64, BIAS = 2, GATE = 3 /* operands */ };

/* An op MOE, in a unit. */
struct block_of_experts {
  const struct pen_description *description;
  const struct pen_described_unit *unit;
  const struct pen_described_op *op;
  struct pen_described_router router;
};

#define FAIL(block, ...) \
  pen_description_fail((block)->description, (block)->unit->kind, (block)->op, __VA_ARGS__)

static const char *operand_of(const struct pen_described_op *op, size_t k) {
  return k < op->operand_count ? op->operand[k] : NULL;
}

static double attribute_of(const struct pen_described_op *op, const char *name, double absent) {
  for (size_t a = 0; a < op->attribute_count; a++)
    if (strcmp(op->attribute[a].name, name) == 0) return op->attribute[a].value;
  return absent;
}

/* A number of things; 1 in place of what is none, which by_row.c refuses. */
static long long count_of(const struct pen_described_op *op, const char *name) {
  const double value = attribute_of(op, name, 1);
  return value >= 1 && value <= PEN_DESCRIBED_EXTENT_MAX ? (long long)value : 1;
}

/* The op of the unit; null: it has none. */
static const struct pen_described_op *find_op(const struct pen_description *d,
                                              const struct pen_described_unit *unit) {
  const struct pen_described_kind *kind = unit->kind;
  const struct pen_described_op *found = NULL;
  for (size_t i = 0; i < kind->op_count; i++) {
    const struct pen_described_op *op = &kind->op[i];
    if (strcmp(op->row, "MOE") != 0) continue;
    if (found) pen_description_fail(d, kind, op, "one MOE of a unit, not two");
    if (unit->layer == PEN_NONE || !kind->takes || !kind->gives)
      pen_description_fail(d, kind, op,
                           "in a layer, a unit with a count or a prefix that ends with a number, "
                           "which takes and gives a value; not in the unit of prefix \"%s\"",
                           unit->prefix);
    found = op;
  }
  return found;
}

/* Fails unless the router has as many experts as it chooses, in whole groups. */
static void check_router(const struct block_of_experts *b) {
  const struct pen_described_router *r = &b->router;
  if (r->experts > EXPERTS_MAX)
    FAIL(b, "operand gate: of at most %d experts, not %lld", EXPERTS_MAX, r->experts);
  const long long most = r->experts < CHOICES_MAX ? r->experts : CHOICES_MAX;
  if (r->choices > most)
    FAIL(b, "choices = %lld: at most %lld, with %lld experts", r->choices, most, r->experts);
  if (attribute_of(b->op, "scale", 1) <= 0) FAIL(b, "scale: above 0");
  if (r->has_bias && !r->is_sigmoid) FAIL(b, "operand bias: absent, without sigmoid = 1");
  if (r->groups > 1 && !r->is_sigmoid) FAIL(b, "groups = %lld: 1, without sigmoid = 1", r->groups);
  if (r->experts % r->groups || (r->groups > 1 && r->experts / r->groups < 2))
    FAIL(b, "groups = %lld: a divisor of %lld experts, with two or more in each", r->groups,
         r->experts);
  if (r->best_groups > r->groups || r->best_groups * (r->experts / r->groups) < r->choices)
    FAIL(b, "best_groups = %lld: at most groups = %lld, with choices = %lld experts or more in all",
         r->best_groups, r->groups, r->choices);
}

/* False: it has no stack of experts. */
static bool read_router(struct block_of_experts *b) {
  const char *gate = operand_of(b->op, GATE);
  const struct pen_described_weight *weight =
      gate && *gate == '.'
          ? pen_described_weight_find(b->description, pen_text("%s%s", b->unit->prefix, gate + 1))
          : NULL;
  if (!weight || weight->dim_count != 3) return false;
  b->router = (struct pen_described_router){.experts = (long long)weight->dim[0],
                                            .ffn = (long long)weight->dim[1],
                                            .choices = count_of(b->op, "choices"),
                                            .groups = count_of(b->op, "groups"),
                                            .best_groups = count_of(b->op, "best_groups"),
                                            .scale = attribute_of(b->op, "scale", 0),
                                            .normalizes = attribute_of(b->op, "normalize", 0) > 0,
                                            .is_sigmoid = attribute_of(b->op, "sigmoid", 0) > 0,
                                            .has_bias = operand_of(b->op, BIAS) != NULL};
  check_router(b);
  return true;
}

/* Fails where two routers differ. */
static void compare(const struct block_of_experts *first, const struct block_of_experts *b) {
  const struct pen_described_router *one = &first->router, *other = &b->router;
  const struct {
    const char *name;
    double one, other;
  } numbers[] = {{"experts", (double)one->experts, (double)other->experts},
                 {"ffn", (double)one->ffn, (double)other->ffn},
                 {"choices", (double)one->choices, (double)other->choices},
                 {"normalize", one->normalizes, other->normalizes},
                 {"sigmoid", one->is_sigmoid, other->is_sigmoid},
                 {"groups", (double)one->groups, (double)other->groups},
                 {"best_groups", (double)one->best_groups, (double)other->best_groups},
                 {"scale", one->scale > 0 ? one->scale : 1, other->scale > 0 ? other->scale : 1},
                 {"bias", one->has_bias, other->has_bias}};
  for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
    if (numbers[n].one < numbers[n].other || numbers[n].one > numbers[n].other)
      FAIL(b, "%s = %.17g: %.17g, as %s of %s; all MOE of a model have the same", numbers[n].name,
           numbers[n].other, numbers[n].one, pen_description_place(first->unit->kind, first->op),
           first->unit->prefix);
}

struct pen_described_router pen_described_router_of(struct pen_description *d) {
  struct block_of_experts first = {.description = d};
  d->experts = pen_new(d->layer_count, sizeof *d->experts);
  for (size_t u = 0; u < d->unit_count; u++) {
    struct block_of_experts block = {
        .description = d, .unit = &d->unit[u], .op = find_op(d, &d->unit[u])};
    if (!block.op || !read_router(&block)) continue;
    d->experts[d->unit[u].layer] = block.op;
    if (first.op)
      compare(&first, &block);
    else
      first = block;
  }
  return first.router;
}
