/* op_signature.c: parses the signatures and the size expressions of ops.def. */
#include "gen/model/op_signature.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *kind, *dims, *reals, *signature, *flops, *meaning;
  bool is_data, is_runtime, is_block;
} rows[PEN_OP_COUNT] = {
#define PEN_OP(kind, dims, reals, signature, flops, meaning) \
  [PEN_OP_##kind] = {#kind, dims, reals, signature, flops, meaning, false, false, false},
#define PEN_DATA_OP(kind, dims, reals, signature, flops, meaning) \
  [PEN_OP_##kind] = {#kind, dims, reals, signature, flops, meaning, true, false, false},
#define PEN_RUNTIME_OP(kind, dims, reals, signature, flops, meaning) \
  [PEN_OP_##kind] = {#kind, dims, reals, signature, flops, meaning, false, true, false},
#define PEN_BLOCK_OP(kind, dims, reals, signature, flops, meaning) \
  [PEN_OP_##kind] = {#kind, dims, reals, signature, flops, meaning, false, false, true},
#include "kernels/ops.def"
};

static const char *const workspaces[PEN_DEVICES][PEN_OP_COUNT] = {
    [PEN_DEVICE_CPU] =
        {
#define PEN_CPU_ROW(kind, threads, workspace) [PEN_OP_##kind] = workspace,
#include "kernels/cpu/ops.def"
        },
    [PEN_DEVICE_CUDA] =
        {
#define PEN_CUDA_ROW(kind, workspace) [PEN_OP_##kind] = workspace,
#include "kernels/cuda/ops.def"
        },
};

static const struct {
  const char *first, *last;
} parts[PEN_OP_COUNT] = {
#define PEN_PARTS(kind, first, last) [PEN_OP_##kind] = {#first, #last},
#include "kernels/ops.def"
};

static const struct {
  const char *dim, *formula;
} sums[PEN_OP_COUNT] = {
#define PEN_SUM(kind, dim, formula) [PEN_OP_##kind] = {#dim, formula},
#include "kernels/ops.def"
};

enum { FACTORS_MAX = 32 * PEN_OP_COUNT };

static void skip_blanks(const char **at) {
  while (**at == ' ') (*at)++;
}

static bool consume(const char **at, char wanted) {
  if (**at != wanted) return false;
  (*at)++;
  return true;
}

/* Reads a name (letters, digits, underscores; no digit first). False: there is none, or it is too
 * long. */
static bool take_name(const char **at, char name[PEN_SIGNATURE_NAME_BYTES]) {
  size_t length = 0;
  while (isalnum((unsigned char)(*at)[length]) || (*at)[length] == '_') length++;
  if (length == 0 || length >= PEN_SIGNATURE_NAME_BYTES || isdigit((unsigned char)**at))
    return false;
  memcpy(name, *at, length);
  name[length] = 0;
  *at += length;
  return true;
}

static bool take_number(const char **at, int64_t *number) {
  if (!isdigit((unsigned char)**at)) return false;
  char *end;
  *number = strtoll(*at, &end, 10);
  *at = end;
  return true;
}

/* Splits "rows in out" into names. Returns how many, or -1. */
static int split_names(const char *text, char (*name)[PEN_SIGNATURE_NAME_BYTES], int maximum) {
  int count = 0;
  for (skip_blanks(&text); *text; skip_blanks(&text))
    if (count == maximum || !take_name(&text, name[count++])) return -1;
  return count;
}

static int index_of(const char (*name)[PEN_SIGNATURE_NAME_BYTES], int count, const char *wanted) {
  for (int index = 0; index < count; index++)
    if (strcmp(name[index], wanted) == 0) return index;
  return -1;
}

int pen_signature_dim(const struct pen_signature *signature, const char *name) {
  return index_of(signature->dim, signature->dim_count, name);
}

int pen_signature_real(const struct pen_signature *signature, const char *name) {
  return index_of(signature->real, signature->real_count, name);
}

int pen_signature_operand(const struct pen_signature *signature, const char *name) {
  for (int index = 0; index < signature->operand_count; index++)
    if (strcmp(signature->operand[index].name, name) == 0) return index;
  return -1;
}

/* Reads `[dim,2,dim]`. */
static const char *parse_extents(const struct pen_signature *signature, struct pen_operand *operand,
                                 const char **at) {
  if (!consume(at, '[')) return "an operand has no shape";
  do {
    char name[PEN_SIGNATURE_NAME_BYTES];
    int64_t number = 0;
    int dim = -1;
    if (operand->extent_count == PEN_EXTENTS_MAX) return "a shape has too many extents";
    if (take_name(at, name)) {
      if ((dim = pen_signature_dim(signature, name)) < 0) return "a shape names no dim of the op";
    } else if (!take_number(at, &number)) {
      return "an extent is neither a dim nor a number";
    }
    operand->extent[operand->extent_count].dim = (int8_t)dim;
    operand->extent[operand->extent_count++].number = number;
  } while (consume(at, ','));
  return consume(at, ']') ? 0 : "a shape has no end";
}

static const char *parse_dtype(struct pen_operand *operand, const char **at) {
  char name[PEN_SIGNATURE_NAME_BYTES];
  if (!consume(at, ':')) return 0;
  if (!take_name(at, name)) return "':' without a dtype";
  operand->partial = strcmp(name, "s") == 0;
  operand->of_op = operand->partial || strcmp(name, "t") == 0;
  if (operand->of_op) return 0;
  for (int dtype = 0; dtype < PEN_DTYPES; dtype++)
    if (strcmp(name, pen_dtype_text(dtype)) == 0) {
      operand->dtype = (uint8_t)dtype;
      return 0;
    }
  return "unknown dtype";
}

static const char *parse_operand(struct pen_signature *signature, bool output, const char **at) {
  char name[PEN_SIGNATURE_NAME_BYTES];
  const char *wrong;
  if (signature->operand_count == PEN_OPERANDS_MAX) return "too many operands";
  struct pen_operand *operand = &signature->operand[signature->operand_count];
  *operand = (struct pen_operand){.output = output, .dtype = PEN_F32, .alias = -1};
  if (!take_name(at, operand->name)) return "an operand has no name";
  if (pen_signature_operand(signature, operand->name) >= 0)
    return "two operands have the same name";
  operand->optional = consume(at, '?');
  if ((wrong = parse_extents(signature, operand, at)) || (wrong = parse_dtype(operand, at)))
    return wrong;
  if (consume(at, '@')) {
    if (!output || !take_name(at, name)) return "'@' without an output and an input";
    operand->alias = (int8_t)pen_signature_operand(signature, name);
    if (operand->alias < 0 || signature->operand[operand->alias].output)
      return "'@' names no input";
  }
  operand->accumulates = consume(at, '+');
  if (operand->accumulates && (!output || operand->alias >= 0))
    return "'+' belongs to an output of its own";
  signature->operand_count++;
  return **at == ' ' || **at == 0 ? 0 : "no space after an operand";
}

const char *pen_signature_parse(struct pen_signature *signature, const char *dims,
                                const char *reals, const char *text) {
  *signature = (struct pen_signature){0};
  int dim_count = split_names(dims, signature->dim, PEN_DIMS_MAX);
  int real_count = split_names(reals, signature->real, PEN_REALS_MAX);
  if (dim_count < 0 || real_count < 0) return "bad or too many dims or reals";
  signature->dim_count = (uint8_t)dim_count;
  signature->real_count = (uint8_t)real_count;
  bool output = false;
  for (skip_blanks(&text); *text; skip_blanks(&text)) {
    if (!output && strncmp(text, "->", 2) == 0) {
      output = true;
      text += 2;
      continue;
    }
    const char *wrong = parse_operand(signature, output, &text);
    if (wrong) return wrong;
    if (!output) signature->input_count++;
  }
  return output ? 0 : "no output";
}

static _Noreturn void fail_row(const char *kind, const char *text, const char *why) {
  fprintf(stderr, "ops.def: %s: %s: %s\n", kind, text, why);
  abort();
}

/* ---- formulas ---- */

/* The factors of all parsed formulas. */
static struct pen_formula_factor factors[FACTORS_MAX];
static size_t factors_used;

/* The factors that are words: all but dims, and the minimum of a dim and a number. */
static const char *const factor_words[] = {
    [PEN_FACTOR_BF16] = "bf16", [PEN_FACTOR_F32] = "f32", [PEN_FACTOR_THREADS] = "threads"};

static int word_of(const char *name) {
  for (int kind = PEN_FACTOR_BF16; kind <= PEN_FACTOR_THREADS; kind++)
    if (strcmp(name, factor_words[kind]) == 0) return kind;
  return PEN_FACTOR_DIM;
}

/* One factor of a product: a number, a word, a dim, or the minimum of a dim and a number. */
static void parse_factor(struct pen_formula_factor *factor, const struct pen_signature *signature,
                         const char *text, const char **at) {
  char name[PEN_SIGNATURE_NAME_BYTES];
  int64_t number = 0;
  if (take_number(at, &number)) {
    factor->number = number;
    return;
  }
  bool named = take_name(at, name);
  int dim = named ? pen_signature_dim(signature, name) : -1;
  if (named && word_of(name) != PEN_FACTOR_DIM) {
    factor->kind = word_of(name);
    return;
  }
  if (dim < 0) fail_row(signature->kind, text, "not a sum of products of dims and numbers");
  bool lesser = consume(at, '<');
  if (lesser && !take_number(at, &number)) fail_row(signature->kind, text, "'<' without a number");
  factor->kind = lesser ? PEN_FACTOR_LESSER : PEN_FACTOR_DIM;
  factor->dim = (uint8_t)dim;
  factor->number = number;
}

static struct pen_formula_factor *add_factor(struct pen_formula *formula,
                                             const struct pen_signature *signature,
                                             const char *text) {
  if (factors_used == FACTORS_MAX || formula->factor_count == UINT8_MAX)
    fail_row(signature->kind, text, "too many factors");
  formula->factor_count++;
  return &factors[factors_used++];
}

/* Aborts if the text is no such sum or names no dim: it is in ops.def. */
static void parse_formula(struct pen_formula *formula, const struct pen_signature *signature,
                          const char *text) {
  const char *at = text;
  *formula = (struct pen_formula){.factor = &factors[factors_used]};
  bool minus;
  do {
    do parse_factor(add_factor(formula, signature, text), signature, text, &at);
    while (consume(&at, '*'));
    factors[factors_used - 1].ends = true;
    minus = consume(&at, '-');
    if (minus) add_factor(formula, signature, text)->number = -1; /* of the next product */
  } while (minus || consume(&at, '+'));
  if (*at) fail_row(signature->kind, text, "not a sum of products of dims and numbers");
}

static double value_of(const struct pen_formula *formula, uint32_t threads, int op_dtype,
                       const int64_t *dim) {
  double sum = 0, product = 1;
  for (const struct pen_formula_factor *factor = formula->factor,
                                       *past = factor + formula->factor_count;
       factor < past; factor++) {
    int64_t number = factor->number, extent = dim[factor->dim];
    switch (factor->kind) {
      case PEN_FACTOR_NUMBER: product *= (double)number; break;
      case PEN_FACTOR_DIM: product *= (double)extent; break;
      case PEN_FACTOR_LESSER: product *= (double)(extent < number ? extent : number); break;
      case PEN_FACTOR_BF16: product *= op_dtype != PEN_F32; break;
      case PEN_FACTOR_F32: product *= op_dtype == PEN_F32; break;
      case PEN_FACTOR_THREADS: product *= threads; break;
    }
    while (product == 0 && !factor->ends) factor++; /* for another dtype */
    if (!factor->ends) continue;
    sum += product;
    product = 1;
  }
  return sum;
}

/* The operand, or dim, that a row of ops.def names. */
static uint8_t index_named(const struct pen_signature *signature, const char *name,
                           int (*find)(const struct pen_signature *, const char *)) {
  const int index = find(signature, name);
  if (index < 0) fail_row(signature->kind, name, "no such name in the signature");
  return (uint8_t)index;
}

static void parse_parts_and_sum(struct pen_signature *signature, int op_kind) {
  if (parts[op_kind].first) {
    signature->first_part = index_named(signature, parts[op_kind].first, pen_signature_operand);
    signature->last_part = index_named(signature, parts[op_kind].last, pen_signature_operand);
  }
  if (sums[op_kind].dim) {
    signature->sum_dim = index_named(signature, sums[op_kind].dim, pen_signature_dim);
    parse_formula(&signature->sum, signature, sums[op_kind].formula);
  }
}

/* Signatures are stored in the order of their first use: a plan uses only some of them, and unused
 * pages cost nothing. */
static const struct pen_signature *parse_row(int op_kind) {
  static struct pen_signature parsed[PEN_OP_COUNT];
  static size_t count;
  struct pen_signature *signature = &parsed[count++];
  const char *wrong = pen_signature_parse(signature, rows[op_kind].dims, rows[op_kind].reals,
                                          rows[op_kind].signature);
  if (wrong) fail_row(rows[op_kind].kind, rows[op_kind].signature, wrong);
  signature->is_data = rows[op_kind].is_data;
  signature->is_runtime = rows[op_kind].is_runtime;
  signature->is_block = rows[op_kind].is_block;
  signature->meaning = rows[op_kind].meaning;
  signature->kind = rows[op_kind].kind; /* for errors of the formulas */
  parse_formula(&signature->flops, signature, rows[op_kind].flops);
  for (int device = 0; device < PEN_DEVICES; device++)
    parse_formula(&signature->workspace[device], signature,
                  workspaces[device][op_kind] ? workspaces[device][op_kind] : "0");
  parse_parts_and_sum(signature, op_kind);
  return signature;
}

const struct pen_signature *pen_signature_of(int op_kind) {
  static const struct pen_signature *known[PEN_OP_COUNT];
  if (op_kind < 0 || op_kind >= PEN_OP_COUNT) fail_row("?", "op kind", "out of range");
  if (!known[op_kind]) known[op_kind] = parse_row(op_kind);
  return known[op_kind];
}

uint64_t pen_operand_elements(const struct pen_operand *operand, const int64_t *dim) {
  uint64_t product = 1;
  for (int index = 0; index < operand->extent_count; index++) {
    int64_t extent = operand->extent[index].dim >= 0 ? dim[operand->extent[index].dim]
                                                     : operand->extent[index].number;
    if (extent <= 0 || __builtin_mul_overflow(product, (uint64_t)extent, &product))
      return UINT64_MAX;
  }
  return product;
}

uint64_t pen_operand_bytes(const struct pen_operand *operand, int op_dtype, const int64_t *dim) {
  uint64_t elements = pen_operand_elements(operand, dim), bytes;
  return __builtin_mul_overflow(
             elements, (uint64_t)pen_dtype_bytes(pen_operand_dtype(operand, op_dtype)), &bytes)
             ? UINT64_MAX
             : bytes;
}

bool pen_part_is_empty(const struct pen_operand *operand, const int64_t *dim) {
  for (int index = 0; index < operand->extent_count; index++)
    if (operand->extent[index].dim >= 0 && dim[operand->extent[index].dim] == 0) return true;
  return false;
}

int64_t pen_signature_sum(const struct pen_signature *signature, const int64_t *dim) {
  return signature->sum.factor_count ? (int64_t)value_of(&signature->sum, 1, PEN_F32, dim) : 0;
}

bool pen_signature_adds_up(const struct pen_signature *signature, const int64_t *dim) {
  return signature->sum.factor_count == 0 ||
         (double)dim[signature->sum_dim] == value_of(&signature->sum, 1, PEN_F32, dim);
}

uint8_t pen_operand_dtype(const struct pen_operand *operand, int op_dtype) {
  if (!operand->of_op) return operand->dtype;
  if (op_dtype != PEN_BF16_PARTIAL) return (uint8_t)op_dtype;
  return operand->partial ? PEN_F32 : PEN_BF16;
}

uint8_t pen_signature_dtype(const struct pen_signature *signature, int model_dtype) {
  for (int index = 0; index < signature->operand_count; index++)
    if (signature->operand[index].of_op) return (uint8_t)model_dtype;
  return PEN_F32;
}

double pen_signature_flops(const struct pen_signature *signature, const int64_t *dim) {
  return value_of(&signature->flops, 1, PEN_F32, dim);
}

uint64_t pen_signature_workspace_bytes(const struct pen_signature *signature, int device,
                                       uint32_t threads, int op_dtype, const int64_t *dim) {
  const struct pen_formula *rule = &signature->workspace[device];
  if (rule->factor_count == 1 && rule->factor[0].kind == PEN_FACTOR_NUMBER)
    return (uint64_t)rule->factor[0].number; /* 0 for most ops */
  double bytes = value_of(rule, threads, op_dtype, dim);
  return bytes >= 0x1p63 ? UINT64_MAX : (uint64_t)bytes;
}
