/* described_shapes.c: matches the shapes of a kind of units (see described_shapes.h).
 *
 * Shapes are matched for one token, or one sample: a value of (batch, sequence, width) has `width`
 * elements then, so that no row of an op can hold parts of two tokens. */
#include "gen/families/described_shapes.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/families/described_inputs.h"
#include "gen/families/described_pointwise.h"
#include "gen/model/op_signature.h"

#define FAIL(kind, op, ...) \
  pen_description_fail((kind)->description, (kind)->from, (op)->from, __VA_ARGS__)

/* A name with a `*` is that of a stack of experts, which is a matrix of each. */
static void check_stack(const struct pen_kind *kind, const struct pen_kind_op *op, int k,
                        const struct pen_described_weight *weight) {
  const char *star = strchr(op->operand[k].weight, '*');
  const bool is_of_experts = pen_signature_of(op->row->kind)->operand[k].extent_count == 3;
  if (is_of_experts == (star != NULL) &&
      (!is_of_experts || (weight->dim_count == 3 && star == strrchr(star, '*'))))
    return;
  FAIL(kind, op, "%s: operand %s: %s", op->operand[k].weight,
       pen_signature_of(op->row->kind)->operand[k].name,
       is_of_experts ? "a matrix of each expert: of three extents, the first how many, with one * "
                       "in its name in place of an expert's number"
                     : "no matrix of each expert, whose name has a *");
}

static struct pen_read_shape shape_of(const struct pen_kind *kind, const struct pen_kind_op *op,
                                      int k, const char *prefix) {
  const struct pen_kind_operand *operand = &op->operand[k];
  struct pen_read_shape shape = {.given = operand->source != PEN_OPERAND_ABSENT, .elements = 1};
  if (operand->source == PEN_OPERAND_VALUE || operand->source == PEN_OPERAND_CONSTANT)
    shape.elements = kind->value[operand->value].width;
  if (operand->source == PEN_OPERAND_INPUT)
    shape.elements = kind->description->input[operand->input].width;
  if (operand->source != PEN_OPERAND_WEIGHT) return shape;
  const char *name = pen_text("%s%s", prefix, operand->weight);
  const struct pen_described_weight *weight = pen_described_weight_find(kind->description, name);
  if (!weight)
    FAIL(kind, op, "%s: operand %s: there is no such weight; one of the list weights", name,
         pen_signature_of(op->row->kind)->operand[k].name);
  check_stack(kind, op, k, weight);
  const int extents = pen_signature_of(op->row->kind)->operand[k].extent_count;
  if (!pen_described_weight_view(weight, extents, shape.dim))
    FAIL(kind, op, "%s: operand %s has %d extents, the shape of the weight %u: those of 1 left out",
         name, pen_signature_of(op->row->kind)->operand[k].name, extents, weight->dim_count);
  shape.dim_count = (uint32_t)extents;
  shape.elements = weight->elements;
  return shape;
}

static void set_width(struct pen_kind *kind, const struct pen_kind_op *op, uint32_t value,
                      uint64_t width, bool is_first) {
  const char *each = kind->value[value].of_samples ? "of each sample" : "for each token";
  if (width > PEN_DESCRIBED_EXTENT_MAX)
    FAIL(kind, op, "%s: at most %d elements %s", kind->value[value].name, PEN_DESCRIBED_EXTENT_MAX,
         each);
  if (!is_first && kind->value[value].width != width)
    FAIL(kind, op, "%s has %llu elements %s, in another unit of the kind %llu: a kind of its own",
         kind->value[value].name, (unsigned long long)width, each,
         (unsigned long long)kind->value[value].width);
  kind->value[value].width = width;
}

/* Ids are rows of a table, or columns of logits. */
static void limit_ids(const struct pen_kind *kind, const struct pen_kind_op *op,
                      const int64_t dim[PEN_DIMS_MAX]) {
  const int vocab = pen_signature_dim(pen_signature_of(op->row->kind), "vocab");
  for (int k = 0; vocab >= 0 && k < PEN_OPERANDS_MAX; k++)
    if (op->operand[k].source == PEN_OPERAND_INPUT && op->operand[k].use < PEN_USED_AS_VALUES)
      pen_described_limit(kind->description, op->operand[k].input, (uint64_t)dim[vocab]);
}

/* A product whose columns are ids has a row for each token, or sample, not for a part of one. */
static void check_product(const struct pen_kind *kind, const struct pen_kind_op *op) {
  const bool has_ids = kind->product != PEN_NONE && op == &kind->op[kind->product];
  if ((has_ids || op->row->appended == PEN_APPENDED_TOKEN_LOGP) && op->rows != 1)
    FAIL(kind, op, "the product is of %lld rows for each token: one, as its columns are ids",
         (long long)op->rows);
}

/* What ops make of the product of the logits has a column for each of its columns, which the ids of
 * texts are. */
static void check_logits(const struct pen_kind *kind) {
  if (kind->logits == kind->product) return;
  const struct pen_kind_op *product = &kind->op[kind->product], *logits = &kind->op[kind->logits];
  const uint64_t columns = kind->value[product->first_output].width,
                 found = kind->value[logits->first_output].width;
  if (found != columns)
    FAIL(kind, logits, "%s, logits, has %llu columns: %llu, as %s",
         kind->value[logits->first_output].name, (unsigned long long)found,
         (unsigned long long)columns, kind->value[product->first_output].name);
}

void pen_kind_match_unit(struct pen_kind *kind, const char *prefix, bool is_first) {
  static const struct pen_step_sizes token = {1, 1, 1, 1, 1};
  int64_t dim[PEN_DIMS_MAX];
  double real[PEN_REALS_MAX];
  if (kind->takes != PEN_NONE) kind->value[kind->takes].width = kind->from->width;
  for (uint32_t i = 0; i < kind->op_count; i++) {
    struct pen_kind_op *op = &kind->op[i];
    struct pen_read_shape read[PEN_OPERANDS_MAX];
    if (is_first && op->row->appended == PEN_APPENDED_POINTWISE) {
      const char *wrong_program = pen_pointwise_resolve(kind, op);
      if (wrong_program) FAIL(kind, op, "%s", wrong_program);
    }
    for (int k = 0; k < pen_signature_of(op->row->kind)->input_count; k++)
      read[k] = shape_of(kind, op, k, prefix);
    const char *wrong = pen_row_dims(op->row, op->from, read, &token, dim, real);
    if (wrong) FAIL(kind, op, "%s", wrong);
    const int rows = pen_signature_dim(pen_signature_of(op->row->kind), "rows");
    op->rows = rows < 0 ? 0 : dim[rows];
    check_product(kind, op);
    limit_ids(kind, op, dim);
    for (int n = 0; n < pen_described_outputs(op->row->kind); n++)
      set_width(kind, op, op->first_output + (uint32_t)n,
                pen_row_output_elements(op->row->kind, n, dim), is_first);
  }
  check_logits(kind);
}
