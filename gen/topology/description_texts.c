/* description_texts.c: which of a description's ops make the logits of texts (see
 * description_texts.h).
 *
 * `score` and `generate` run a model up to its logits. Whatever loss it trains with, these are what
 * one LINEAR of the last unit makes, and perhaps ops that work row by row. What they do not depend
 * on is left out, and with it the inputs that only the losses read. Texts have tokens, which the
 * first unit embeds, and targets; a row must not depend on later ones, nor on those of another
 * sequence (PEN_MIXES_ROWS). */
#include "gen/topology/description_texts.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"

enum { FACTORS = 2 /* operands of LINEAR and TOKEN_LOGP */ };

static bool is_row(const struct pen_described_op *op, const char *row) {
  return strcmp(op->row, row) == 0;
}

/* The operand of that number; null: absent. */
static const char *operand_of(const struct pen_described_op *op, size_t k) {
  return k < op->operand_count ? op->operand[k] : NULL;
}

/* The op of the kind that makes the value of that name; PEN_NONE: none. */
static uint32_t maker_of(const struct pen_described_kind *kind, const char *name) {
  for (uint32_t i = 0; name && i < kind->op_count; i++)
    for (size_t n = 0; n < kind->op[i].output_count; n++)
      if (strcmp(kind->op[i].output[n], name) == 0) return i;
  return PEN_NONE;
}

/* ---- rows ---- */

/* PEN_MIXES_ROWS. */
static bool mixes_rows(const struct pen_described_op *op) {
  static const char *const rows[] = {
#define PEN_MIXES_ROWS(kind) #kind,
#include "kernels/ops.def"
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (is_row(op, rows[i])) return true;
  return false;
}

static bool reads_starts(const struct pen_described_op *op) {
  static const struct {
    const char *row, *signature;
  } ops[] = {
#define PEN_OP(kind, dims, reals, signature, flops, meaning) {#kind, signature},
#include "kernels/ops.def"
  };
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
    if (is_row(op, ops[i].row)) return strstr(ops[i].signature, "starts") != NULL;
  return false;
}

/* Whether an op makes a row of its one output from that of one value, with weights besides. */
static bool is_by_rows(const struct pen_described_op *op) {
  for (size_t k = 1; k < op->operand_count; k++)
    if (op->operand[k] && *op->operand[k] != '.') return false;
  return op->output_count == 1 && !mixes_rows(op) && !reads_starts(op);
}

/* ---- the logits ---- */

/* The LINEAR without addend of which the op is made, row by row; PEN_NONE: none. */
static uint32_t product_of(const struct pen_described_kind *kind, uint32_t op) {
  while (op != PEN_NONE) {
    const struct pen_described_op *at = &kind->op[op];
    if (is_row(at, "LINEAR")) return operand_of(at, 2) ? PEN_NONE : op;
    const uint32_t before = maker_of(kind, operand_of(at, 0));
    op = before < op && is_by_rows(at) ? before : PEN_NONE;
  }
  return PEN_NONE;
}

/* The op that makes the logits of all CROSS_ENTROPY and LOGP; TOKEN_LOGP makes its own. PEN_NONE:
 * there are none, or several. */
static uint32_t only_logits(const struct pen_described_kind *kind) {
  uint32_t found = PEN_NONE;
  for (uint32_t i = 0; i < kind->op_count; i++) {
    const struct pen_described_op *op = &kind->op[i];
    const bool reads = is_row(op, "CROSS_ENTROPY") || is_row(op, "LOGP");
    if (!reads && !is_row(op, "TOKEN_LOGP")) continue;
    const uint32_t made = reads ? maker_of(kind, operand_of(op, 0)) : i;
    if (made == PEN_NONE || (found != PEN_NONE && found != made)) return PEN_NONE;
    found = made;
  }
  return found;
}

/* Marks the ops of which that one is made, and itself. */
static bool *needed_for(const struct pen_described_kind *kind, uint32_t op) {
  bool *needed = pen_new(kind->op_count, sizeof *needed);
  needed[op] = true;
  for (uint32_t i = op + 1; i-- > 0;)
    for (size_t k = 0; needed[i] && k < kind->op[i].operand_count; k++) {
      const uint32_t maker = maker_of(kind, kind->op[i].operand[k]);
      if (maker < i) needed[maker] = true;
    }
  return needed;
}

uint64_t pen_description_table_rows(const struct pen_description *d, size_t unit,
                                    const struct pen_described_op *op) {
  const char *name = operand_of(op, 1);
  const struct pen_described_weight *weight =
      name && *name == '.'
          ? pen_described_weight_find(d, pen_text("%s%s", d->unit[unit].prefix, name + 1))
          : NULL;
  uint64_t dim[PEN_OPERAND_EXTENTS];
  return weight && pen_described_weight_view(weight, 2, dim) ? dim[0] : 0;
}

/* Finds the logits: by the key, or those that all losses of logits read. */
static void find_logits(struct pen_description *d) {
  const size_t last = d->unit_count - 1;
  const struct pen_described_kind *kind = d->unit[last].kind;
  const char *key = d->logits;
  struct pen_described_texts *texts = &d->texts;
  texts->logits = key ? maker_of(kind, key) : only_logits(kind);
  const bool is_fused =
      !key && texts->logits != PEN_NONE && is_row(&kind->op[texts->logits], "TOKEN_LOGP");
  texts->product = is_fused ? texts->logits : product_of(kind, texts->logits);
  if (key &&
      (texts->product == PEN_NONE || (d->share_count == 0 && texts->logits != only_logits(kind))))
    pen_stop(PEN_EXIT_TOPOLOGY,
             "%s: logits = \"%s\": a value that a LINEAR of the last unit without an addend makes, "
             "with ops of one value between; without shares that of CROSS_ENTROPY",
             d->path, key);
  if (texts->product == PEN_NONE) return;
  texts->needed = needed_for(kind, texts->logits);
  texts->columns = pen_description_table_rows(d, last, &kind->op[texts->product]);
}

/* ---- what the model reads ---- */

/* Which input an operand names, or has the share of; null: none. */
static const struct pen_described_input *input_of(const struct pen_description *d,
                                                  const char *operand) {
  static const char share[] = ".share";
  for (size_t i = 0; operand && i < d->input_count; i++) {
    const size_t bytes = strlen(d->input[i].name);
    if (strncmp(operand, d->input[i].name, bytes) == 0 &&
        (operand[bytes] == 0 || strcmp(operand + bytes, share) == 0))
      return &d->input[i];
  }
  return NULL;
}

/* Whether texts have the input as the op of that unit reads it. Sets what they have: the tokens, or
 * the targets. */
static bool is_of_texts(const struct pen_description *d, size_t unit,
                        const struct pen_described_op *op, const struct pen_described_input *input,
                        const struct pen_described_input *read[2]) {
  const bool embeds = is_row(op, "EMBEDDING") && unit == 0,
             ends = is_row(op, "CROSS_ENTROPY") && unit + 1 == d->unit_count;
  const struct pen_described_input **known = &read[ends];
  if (input->from == PEN_SOURCE_STARTS) return true;
  if ((!embeds && !ends) || (*known && *known != input)) return false;
  *known = input;
  return true;
}

/* Why texts do not have what an op reads; null: they do. Of what makes the product score and
 * generate read the factors alone: TOKEN_LOGP has ids besides. */
static const char *refuse_op(const struct pen_description *d, size_t unit, size_t number,
                             const struct pen_described_input *read[2]) {
  const struct pen_described_kind *kind = d->unit[unit].kind;
  const struct pen_described_op *op = &kind->op[number];
  const bool is_product = unit + 1 == d->unit_count && number == d->texts.product;
  if (unit == 0 && is_row(op, "EMBEDDING") &&
      pen_description_table_rows(d, 0, op) != d->texts.columns)
    return pen_text("has logits of %llu tokens, and %s embeds %llu",
                    (unsigned long long)d->texts.columns, pen_description_place(kind, op),
                    (unsigned long long)pen_description_table_rows(d, 0, op));
  if (mixes_rows(op))
    return pen_text("reads more than texts have: %s: later tokens, or those of other samples",
                    pen_description_place(kind, op));
  for (size_t k = 0; k < (is_product ? FACTORS : op->operand_count); k++) {
    const struct pen_described_input *input = input_of(d, operand_of(op, k));
    if (input && !is_of_texts(d, unit, op, input, read))
      return pen_text(
          "reads more than texts have, the tokens of its first unit and the targets of "
          "its last: %s: %s",
          pen_description_place(kind, op), input->name);
  }
  return NULL;
}

static const char *refuse(const struct pen_description *d) {
  const struct pen_described_input *read[2] = {NULL, NULL};
  const bool has_shares = d->share_count > 0;
  if (d->texts.product == PEN_NONE)
    return "makes no logits of tokens, or several: a key \"logits\" of its description names them";
  for (size_t u = 0; u < d->unit_count; u++)
    for (size_t i = 0; i < d->unit[u].kind->op_count; i++) {
      if (has_shares && u + 1 == d->unit_count && !d->texts.needed[i]) continue;
      const char *why = refuse_op(d, u, i, read);
      if (why) return why;
    }
  return read[0] && (has_shares || (read[1] && read[0] != read[1]))
             ? NULL
             : "does not read what texts have, tokens in its first unit and targets in its last";
}

void pen_description_find_texts(struct pen_description *d) {
  find_logits(d);
  d->texts.refused = refuse(d);
}
