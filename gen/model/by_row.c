/* by_row.c: ops that a description names (see by_row.h). */
#include "gen/model/by_row.h"

#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/model/gradient_rules.h"
#include "gen/model/op_signature.h"
#include "gen/topology/description.h"

/* ---- the table ---- */

static const struct pen_described_row rows[] = {
#define PEN_DESCRIBED(kind, required, optional, appended) \
  {PEN_OP_##kind, required, optional, PEN_APPENDED_##appended},
#include "kernels/ops.def"
};

enum { ROW_COUNT = sizeof rows / sizeof *rows, UNKNOWN = 0 };

/* The value of a dim that is no attribute. */
enum dim_source {
  SOURCE_ZERO,
  SOURCE_ONE,
  SOURCE_OFFSET,
  SOURCE_LAST,
  SOURCE_BATCH,
  SOURCE_SEQUENCE,
  SOURCE_ROWS,
  SOURCE_ROWS_IF_OPEN,
  SOURCE_POSITIONS,
  SOURCE_GROUP,
  SOURCE_TABLE,
  SOURCE_OPERANDS
};

static enum dim_source source_of(int kind, const char *dim) {
  enum { PEN_OP_ANY = -1 };
  static const struct {
    int kind;
    const char *dim;
    enum dim_source source;
  } of[] = {
#define PEN_DESCRIBED_DIM(kind, dim, value) {PEN_OP_##kind, #dim, SOURCE_##value},
#include "gen/model/described.def"
  };
  for (size_t i = 0; i < sizeof of / sizeof *of; i++)
    if ((of[i].kind == kind || of[i].kind == PEN_OP_ANY) && strcmp(of[i].dim, dim) == 0)
      return of[i].source;
  return SOURCE_OPERANDS;
}

enum pen_row_turn pen_row_turn_of(int kind) {
  static const struct {
    int kind;
    enum pen_row_turn turn;
  } of[] = {
#define PEN_DESCRIBED_TURN(kind, turn) {PEN_OP_##kind, PEN_TURN_##turn},
#include "gen/model/described.def"
  };
  for (size_t i = 0; i < sizeof of / sizeof *of; i++)
    if (of[i].kind == kind) return of[i].turn;
  return PEN_TURN_NONE;
}

const struct pen_described_row *pen_described_row_find(const char *name) {
  for (size_t i = 0; i < ROW_COUNT; i++)
    if (strcmp(pen_signature_of(rows[i].kind)->kind, name) == 0) return &rows[i];
  return NULL;
}

const char *pen_described_row_names(void) {
  const char *text = "";
  for (size_t i = 0; i < ROW_COUNT; i++)
    text = pen_text("%s%s%s", text, i ? ", " : "", pen_signature_of(rows[i].kind)->kind);
  return text;
}

/* ---- operands ---- */

/* Whether a gradient rule of the op has that operand, with that mark, among its inputs or its
 * outputs. */
static bool has_rule(int kind, int operand, char mark, bool output, bool weight_part) {
  size_t count;
  const struct pen_gradient_rule *rule = pen_gradient_rules(&count);
  for (; count-- > 0; rule++)
    for (size_t w = 0; w < rule->count && rule->forward == kind; w++)
      if (rule->word[w].operand == operand && rule->word[w].mark == mark &&
          (w >= rule->input_count) == output && (!weight_part || rule->weight_part))
        return true;
  return false;
}

static bool passes(int kind, int operand) {
  size_t count;
  const struct pen_pass_rule *rule = pen_pass_rules(&count);
  for (; count-- > 0; rule++)
    if (rule->forward == kind && (rule->input == operand || rule->output == operand)) return true;
  return false;
}

/* Whether a loss computes the gradient of its input. */
static bool has_loss_gradient(int kind, int operand) {
  const struct pen_signature *signature = pen_signature_of(kind);
  for (int k = signature->input_count; k < signature->operand_count; k++)
    if (pen_loss_gradient_of(kind, k) == operand) return true;
  return false;
}

/* Whether one of its extents is the dim `rows`. */
static bool has_rows(int kind, const struct pen_operand *operand) {
  const int rows = pen_signature_dim(pen_signature_of(kind), "rows");
  for (int e = 0; e < operand->extent_count; e++)
    if (operand->extent[e].dim == rows) return true;
  return false;
}

enum pen_operand_class pen_operand_class_of(int kind, int operand) {
  const struct pen_operand *row = &pen_signature_of(kind)->operand[operand];
  if (pen_signature_of(kind)->is_block)
    return has_rows(kind, row) ? PEN_READS_VALUE : PEN_READS_WEIGHT;
  if (has_rule(kind, operand, '\'', true, true)) return PEN_READS_WEIGHT;
  if (!row->of_op && row->dtype != PEN_F32) return PEN_READS_DATA;
  if (has_rule(kind, operand, '\'', true, false) || passes(kind, operand) ||
      has_loss_gradient(kind, operand))
    return PEN_READS_VALUE;
  return PEN_READS_CONSTANT;
}

int pen_described_outputs(int kind) {
  const struct pen_signature *signature = pen_signature_of(kind);
  int count = 1;
  while (signature->input_count + count < signature->operand_count &&
         has_rule(kind, signature->input_count + count, '\'', false, false))
    count++;
  return count;
}

uint64_t pen_row_output_elements(int kind, int output, const int64_t dim[PEN_DIMS_MAX]) {
  const struct pen_signature *signature = pen_signature_of(kind);
  return pen_operand_elements(&signature->operand[signature->input_count + output], dim);
}

/* ---- attributes ---- */

static const char *attributes_text(const struct pen_described_row *row) {
  const char *both = *row->required && *row->optional ? " " : "";
  return *row->required || *row->optional ? pen_text("%s%s%s", row->required, both, row->optional)
                                          : "none";
}

static const struct pen_described_attribute *find_attribute(const struct pen_described_op *op,
                                                            const char *name) {
  for (size_t a = 0; a < op->attribute_count; a++)
    if (strcmp(op->attribute[a].name, name) == 0) return &op->attribute[a];
  return NULL;
}

/* Whether a dim is a place, counted from 0. */
static bool is_place(int kind, const char *dim) {
  const enum dim_source source = source_of(kind, dim);
  return source == SOURCE_OFFSET || source == SOURCE_LAST;
}

static const char *check_attributes(const struct pen_described_row *row,
                                    const struct pen_described_op *op) {
  const struct pen_signature *signature = pen_signature_of(row->kind);
  for (size_t a = 0; a < op->attribute_count; a++) {
    const struct pen_described_attribute *one = &op->attribute[a];
    if (!pen_has_word(row->required, one->name) && !pen_has_word(row->optional, one->name))
      return pen_text("there is no attribute %s; its attributes are: %s", one->name,
                      attributes_text(row));
    if (strcmp(one->name, "program") == 0) {
      if (op->step_count == 0) return "program: a list of steps";
      continue;
    }
    const int least = is_place(row->kind, one->name) ? 0 : 1;
    if (pen_signature_dim(signature, one->name) >= 0 &&
        (!one->is_whole || one->value < least || one->value > PEN_DESCRIBED_EXTENT_MAX))
      return pen_text("%s = %.17g: a whole number from %d to %d", one->name, one->value, least,
                      PEN_DESCRIBED_EXTENT_MAX);
    if (!isfinite(one->value)) return pen_text("%s is not finite", one->name);
  }
  for (const char *at = row->required; *at; at += strspn(at, " ")) {
    char name[PEN_SIGNATURE_NAME_BYTES] = {0};
    memcpy(name, at, strcspn(at, " "));
    if (!find_attribute(op, name))
      return pen_text("the attribute %s is missing; its attributes are: %s", name,
                      attributes_text(row));
    at += strlen(name);
  }
  return NULL;
}

/* ---- dims ---- */

/* The value of a dim that is known from the step; UNKNOWN: operands determine it. */
static int64_t size_of(enum dim_source source, const struct pen_step_sizes *sizes) {
  switch (source) {
    case SOURCE_ONE: return 1;
    case SOURCE_BATCH: return sizes->batch;
    case SOURCE_SEQUENCE: return sizes->sequence;
    case SOURCE_ROWS: return sizes->rows;
    case SOURCE_POSITIONS: return sizes->positions;
    case SOURCE_GROUP: return sizes->group;
    default: return UNKNOWN;
  }
}

/* An op while its dims are found; a dim is known if that is set. */
struct matching {
  const struct pen_signature *signature;
  const struct pen_read_shape *read;
  int64_t *dim;
  bool known[PEN_DIMS_MAX];
};

static void know(struct matching *m, int n, int64_t value) {
  m->dim[n] = value;
  m->known[n] = true;
}

/* The extents of a weight are dims, one by one. */
static void take_weights(struct matching *m) {
  for (int k = 0; k < m->signature->input_count; k++) {
    const struct pen_operand *operand = &m->signature->operand[k];
    const struct pen_read_shape *read = &m->read[k];
    for (uint32_t e = 0; read->given && e < read->dim_count && e < operand->extent_count; e++)
      if (operand->extent[e].dim >= 0 && !m->known[operand->extent[e].dim])
        know(m, operand->extent[e].dim, (int64_t)read->dim[e]);
  }
}

/* Finds a dim that is the only unknown one of an operand; false: there is none. */
static bool solve_one(struct matching *m) {
  for (int k = 0; k < m->signature->input_count; k++) {
    const struct pen_operand *operand = &m->signature->operand[k];
    int unknown = -1, count = 0;
    uint64_t others = 1;
    if (!m->read[k].given || m->read[k].dim_count) continue;
    for (int e = 0; e < operand->extent_count; e++) {
      const int n = operand->extent[e].dim;
      if (n >= 0 && !m->known[n])
        unknown = n, count++;
      else if (__builtin_mul_overflow(
                   others, (uint64_t)(n < 0 ? operand->extent[e].number : m->dim[n]), &others))
        others = 0;
    }
    if (count != 1 || others == 0) continue;
    know(m, unknown, (int64_t)(m->read[k].elements / others));
    return true;
  }
  return false;
}

/* "x[rows,in] = 6 x 48": an operand with its dims. */
static const char *operand_text(const struct matching *m, int k) {
  const struct pen_operand *operand = &m->signature->operand[k];
  const char *names = "", *values = "";
  for (int e = 0; e < operand->extent_count; e++) {
    const int n = operand->extent[e].dim;
    const long long value = n < 0 ? (long long)operand->extent[e].number : (long long)m->dim[n];
    names = pen_text("%s%s%s", names, e ? "," : "",
                     n < 0 ? pen_text("%lld", value) : m->signature->dim[n]);
    values = pen_text("%s%s%lld", values, e ? " x " : "", value);
  }
  return pen_text("%s[%s] is %s", operand->name, names, values);
}

/* What an op reads, for a message: shapes are matched for one token. */
static const char *read_text(const struct pen_read_shape *read) {
  if (read->dim_count == 3)
    return pen_text("%llu x %llu x %llu elements", (unsigned long long)read->dim[0],
                    (unsigned long long)read->dim[1], (unsigned long long)read->dim[2]);
  if (read->dim_count == 2)
    return pen_text("%llu x %llu elements", (unsigned long long)read->dim[0],
                    (unsigned long long)read->dim[1]);
  return pen_text("%llu elements%s", (unsigned long long)read->elements,
                  read->dim_count ? "" : " for each token");
}

static const char *check_operand(const struct matching *m, int k) {
  const struct pen_operand *operand = &m->signature->operand[k];
  const struct pen_read_shape *read = &m->read[k];
  bool same = pen_operand_elements(operand, m->dim) == read->elements &&
              (!read->dim_count || read->dim_count == operand->extent_count);
  for (uint32_t e = 0; same && e < read->dim_count; e++)
    same = m->dim[operand->extent[e].dim] == (int64_t)read->dim[e];
  if (same) return NULL;
  return pen_text("%s, by the other operands and attributes, but what it reads has %s",
                  operand_text(m, k), read_text(read));
}

/* Conditions that no shape says. */
static const char *check_reals(const struct matching *m, const double *real) {
  for (int n = 0; n < m->signature->real_count; n++) {
    const char *name = m->signature->real[n];
    if (strcmp(name, "epsilon") == 0 && real[n] < 0) return "epsilon: 0 or more";
    if (strcmp(name, "theta") == 0 && real[n] <= 0) return "theta: above 0";
    if (strcmp(name, "cap") == 0 && real[n] < 0) return "cap: 0 or more";
  }
  return NULL;
}

static const char *check_heads(const struct matching *m) {
  const int heads = pen_signature_dim(m->signature, "heads"),
            kv_heads = pen_signature_dim(m->signature, "kv_heads");
  if (heads < 0 || kv_heads < 0 || m->dim[heads] % m->dim[kv_heads] == 0) return NULL;
  return pen_text("kv_heads = %lld: a divisor of heads = %lld", (long long)m->dim[kv_heads],
                  (long long)m->dim[heads]);
}

static const char *check_flags(const struct matching *m) {
  static const char *const flags[] = {"pairs", "mean", "normalize", "sigmoid"};
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
    const int n = pen_signature_dim(m->signature, flags[i]);
    if (n >= 0 && m->dim[n] > 1)
      return pen_text("%s = %lld: 1, or absent", flags[i], (long long)m->dim[n]);
  }
  return NULL;
}

/* What turns of a head (ROPE_PART). */
static const char *check_rotated(const struct matching *m) {
  const int rotated = pen_signature_dim(m->signature, "rotated"),
            head_dim = pen_signature_dim(m->signature, "head_dim");
  if (rotated < 0 || m->dim[rotated] <= m->dim[head_dim]) return NULL;
  return pen_text("the table is of %lld elements of a head: at most head_dim = %lld",
                  (long long)m->dim[rotated], (long long)m->dim[head_dim]);
}

/* Of both sides of a copy there are blocks. */
static const char *check_blocks(const struct matching *m) {
  static const char *const of[][2] = {{"source", "from"}, {"target", "to"}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    const int place = pen_signature_dim(m->signature, of[i][0]),
              past = pen_signature_dim(m->signature, of[i][1]);
    if (place >= 0 && m->dim[place] >= m->dim[past])
      return pen_text("%s = %lld: below %s = %lld", of[i][0], (long long)m->dim[place], of[i][1],
                      (long long)m->dim[past]);
  }
  return NULL;
}

/* A row of a table that is a padding token's: rows are counted from 1. */
static const char *check_padding(const struct matching *m) {
  const int padding = pen_signature_dim(m->signature, "padding"),
            rows = pen_signature_dim(m->signature, "vocab");
  if (padding < 0 || m->dim[padding] <= m->dim[rows]) return NULL;
  return pen_text("padding = %lld: at most %lld, the rows of the table", (long long)m->dim[padding],
                  (long long)m->dim[rows]);
}

static const char *check_match(const struct matching *m) {
  for (int k = 0; k < m->signature->input_count; k++) {
    const char *wrong = m->read[k].given ? check_operand(m, k) : NULL;
    if (wrong) return wrong;
  }
  for (int n = 0; n < m->signature->dim_count; n++)
    if (!m->known[n]) return pen_text("%s does not follow from the operands", m->signature->dim[n]);
  const char *wrong = check_heads(m);
  if (!wrong) wrong = check_flags(m);
  if (!wrong) wrong = check_rotated(m);
  if (!wrong) wrong = check_padding(m);
  return wrong ? wrong : check_blocks(m);
}

/* The dims that nothing else has given. */
static void take_rest(struct matching *m, int kind, const struct pen_step_sizes *sizes) {
  for (int n = 0; n < m->signature->dim_count; n++) {
    const enum dim_source source = source_of(kind, m->signature->dim[n]);
    if (m->known[n]) continue;
    if (source == SOURCE_ROWS_IF_OPEN) know(m, n, sizes->rows);
    if (source == SOURCE_TABLE) know(m, n, m->dim[pen_signature_dim(m->signature, "vocab")]);
  }
}

/* Zeros, attributes and sizes of the step, and a sum of attributes. `own` is what an op computes of
 * the rows: all. */
static void take_given(struct matching *m, const struct pen_described_row *row,
                       const struct pen_described_op *op, const struct pen_step_sizes *sizes) {
  for (int n = 0; n < m->signature->dim_count; n++) {
    const enum dim_source source = source_of(row->kind, m->signature->dim[n]);
    const struct pen_described_attribute *given = find_attribute(op, m->signature->dim[n]);
    const int64_t size = size_of(source, sizes);
    if (given)
      know(m, n, (int64_t)given->value);
    else if (source == SOURCE_ZERO || source == SOURCE_OFFSET || size != UNKNOWN)
      know(m, n, size);
    else if (source == SOURCE_LAST)
      know(m, n, sizes->sequence - m->dim[pen_signature_dim(m->signature, "tokens")]);
  }
  if (pen_signature_sum(m->signature, m->dim))
    know(m, m->signature->sum_dim, pen_signature_sum(m->signature, m->dim));
}

const char *pen_row_dims(const struct pen_described_row *row, const struct pen_described_op *op,
                         const struct pen_read_shape *read, const struct pen_step_sizes *sizes,
                         int64_t dim[PEN_DIMS_MAX], double real[PEN_REALS_MAX]) {
  struct matching m = {.signature = pen_signature_of(row->kind), .read = read, .dim = dim};
  const char *wrong = check_attributes(row, op);
  if (wrong) return wrong;
  memset(dim, 0, PEN_DIMS_MAX * sizeof *dim);
  memset(real, 0, PEN_REALS_MAX * sizeof *real);
  for (int n = 0; n < m.signature->real_count; n++) {
    const struct pen_described_attribute *given = find_attribute(op, m.signature->real[n]);
    real[n] = given ? given->value : 0;
  }
  take_given(&m, row, op, sizes);
  take_weights(&m);
  while (solve_one(&m)) continue;
  take_rest(&m, row->kind, sizes);
  while (solve_one(&m)) continue;
  wrong = check_match(&m);
  return wrong ? wrong : check_reals(&m, real);
}

/* ---- the list ---- */

static void print_operands(FILE *out, const struct pen_signature *signature, int first, int past) {
  for (int k = first; k < past; k++) {
    const struct pen_operand *operand = &signature->operand[k];
    fprintf(out, " %s%s[", operand->name, operand->optional ? "?" : "");
    for (int e = 0; e < operand->extent_count; e++)
      if (operand->extent[e].dim < 0)
        fprintf(out, "%s%lld", e ? "," : "", (long long)operand->extent[e].number);
      else
        fprintf(out, "%s%s", e ? "," : "", signature->dim[operand->extent[e].dim]);
    fprintf(out, "]");
  }
}

static void print_attributes(FILE *out, const char *names, const char *ending) {
  for (const char *at = names; *at; at += strspn(at, " ")) {
    const int bytes = (int)strcspn(at, " ");
    fprintf(out, " %.*s%s", bytes, at, ending);
    at += bytes;
  }
}

void pen_described_rows_list(FILE *out) {
  for (size_t i = 0; i < ROW_COUNT; i++) {
    const struct pen_signature *signature = pen_signature_of(rows[i].kind);
    const int outputs = signature->input_count + pen_described_outputs(rows[i].kind);
    fprintf(out, "%s", signature->kind);
    print_operands(out, signature, 0, signature->input_count);
    fprintf(out, " ->");
    print_operands(out, signature, signature->input_count, outputs);
    fprintf(out, " {");
    print_attributes(out, rows[i].required, "");
    print_attributes(out, rows[i].optional, "?");
    fprintf(out, " } %s\n", signature->meaning);
  }
}
