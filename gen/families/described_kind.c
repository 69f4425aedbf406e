/* described_kind.c: resolves the names of a kind of units (see described_kind.h). */
#include "gen/families/described_kind.h"

#include <string.h>

#include "base/message.h"
#include "gen/base/arena.h"
#include "gen/families/described_f32.h"
#include "gen/families/described_inputs.h"
#include "gen/families/described_pointwise.h"
#include "gen/model/gradient_rules.h"
#include "gen/model/op_signature.h"
#include "gen/topology/description_inputs.h"
#include "runtime/plan/plan.h"

#define FAIL(kind, op, ...) \
  pen_description_fail((kind)->description, (kind)->from, (op)->from, __VA_ARGS__)

/* ---- names ---- */

static struct pen_kind_alias *find_alias(const struct pen_kind *kind, const char *name) {
  for (uint32_t a = 0; a < kind->alias_count; a++)
    if (strcmp(kind->alias[a].name, name) == 0) return &kind->alias[a];
  return NULL;
}

/* The value of that name that ops so far have made; PEN_NONE: there is none. */
static uint32_t find_value(const struct pen_kind *kind, const char *name) {
  const struct pen_kind_alias *alias = find_alias(kind, name);
  if (alias) return alias->value;
  for (uint32_t v = kind->value_count; v-- > 0;)
    if (strcmp(kind->value[v].name, name) == 0) return v;
  return PEN_NONE;
}

static const struct pen_described_input *find_input(const struct pen_description *d,
                                                    const char *name, size_t bytes) {
  for (size_t i = 0; i < d->input_count; i++)
    if (strlen(d->input[i].name) == bytes && memcmp(d->input[i].name, name, bytes) == 0)
      return &d->input[i];
  return NULL;
}

static uint32_t add_value(struct pen_kind *kind, const char *name, uint32_t maker) {
  PEN_RESERVE(kind->value, kind->value_count + 1);
  kind->value[kind->value_count] = (struct pen_kind_value){
      .name = name,
      .maker = maker,
      .of_samples =
          maker != PEN_NONE && (kind->op[maker].of_samples ||
                                pen_row_turn_of(kind->op[maker].row->kind) == PEN_TURN_TO_SAMPLES)};
  return kind->value_count++;
}

static const struct pen_operand *operand_row(const struct pen_kind_op *op, int k) {
  return &pen_signature_of(op->row->kind)->operand[k];
}

/* Fails (78) unless data have the input by name, with a dtype that serves, or from where the
 * operand of ops.def is named after. */
static void check_input(const struct pen_kind *kind, const struct pen_kind_op *op, int k,
                        const char *name, const struct pen_described_input *input,
                        enum pen_input_use use) {
  static const struct {
    bool ids, values;
  } may[PEN_INPUT_DTYPES] = {
#define PEN_INPUT_DTYPE(name, text, also, ids, values) {ids, values},
#include "runtime/plan/inputs.def"
  };
  static const char *const wanted[PEN_INPUT_USES] = {
      "tokens", "targets", "a value, not an input; or an input by name of f32, bf16 or u8"};
  const char *operand = operand_row(op, k)->name;
  const bool is_named = input && input->from == PEN_SOURCE_NAME;
  if (is_named && strcmp(operand, "starts") != 0 &&
      (use == PEN_USED_AS_VALUES ? may[input->dtype].values : may[input->dtype].ids))
    return;
  if (use == PEN_USED_AS_VALUES) FAIL(kind, op, "%s: operand %s: %s", name, operand, wanted[use]);
  const char *from = strcmp(operand, "share") == 0 ? wanted[use] : operand;
  if (strcmp(operand, "mask") == 0)
    FAIL(kind, op, "%s: operand mask: an input by name of i32, i64 or u8", name);
  if (!input || is_named || strcmp(pen_described_source_text(input->from), from) != 0)
    FAIL(kind, op, "%s: operand %s: the input from \"%s\"%s, or one by name of i32, i64 or u8",
         name, operand, from, strcmp(operand, "share") == 0 ? ", with .share" : "");
}

static struct pen_kind_operand input_operand(const struct pen_kind *kind,
                                             const struct pen_kind_op *op, int k, const char *name,
                                             size_t bytes, enum pen_input_use use) {
  const struct pen_described_input *input = find_input(kind->description, name, bytes);
  check_input(kind, op, k, name, input, use);
  const uint32_t index = (uint32_t)(input - kind->description->input);
  return (struct pen_kind_operand){
      .source = PEN_OPERAND_INPUT, .use = (uint8_t)use, .input = index};
}

static struct pen_kind_operand named_share(const struct pen_kind *kind,
                                           const struct pen_kind_op *op, const char *name) {
  const struct pen_description *d = kind->description;
  for (uint32_t i = 0; i < d->share_count; i++)
    if (strcmp(d->share[i].name, name) == 0)
      return (struct pen_kind_operand){.source = PEN_OPERAND_NAMED_SHARE, .input = i};
  FAIL(kind, op, "%s: operand share: a name of the list shares", name);
}

/* An input of the step that the row of the op asks for: the weight of a target in the loss, which
 * is NAME.share, or ids, of which the loss ignores some. */
static struct pen_kind_operand data_operand(const struct pen_kind *kind,
                                            const struct pen_kind_op *op, int k, const char *name) {
  static const char ending[] = ".share";
  const char *wanted = operand_row(op, k)->name;
  const size_t bytes = strlen(name);
  if (strcmp(wanted, "share") == 0 && kind->description->share_count > 0)
    return named_share(kind, op, name);
  if (strcmp(wanted, "share") != 0)
    return input_operand(kind, op, k, name, bytes,
                         strcmp(wanted, "targets") == 0 ? PEN_USED_AS_TARGETS : PEN_USED_AS_IDS);
  struct pen_kind_operand share =
      input_operand(kind, op, k, name,
                    pen_ends_in(name, ending, sizeof ending - 1) ? bytes + 1 - sizeof ending : 0,
                    PEN_USED_AS_TARGETS);
  const int targets = pen_signature_operand(pen_signature_of(op->row->kind), "targets");
  if (targets >= 0 && share.input != op->operand[targets].input)
    FAIL(kind, op, "%s: operand share: that of the operand targets", name);
  share.source = PEN_OPERAND_SHARE;
  return share;
}

static bool is_constant(const struct pen_kind *kind, uint32_t value) {
  const uint32_t maker = kind->value[value].maker;
  return maker != PEN_NONE && kind->op[maker].row->appended == PEN_APPENDED_CONSTANT;
}

/* A value or a constant of the kind. */
static struct pen_kind_operand value_operand(const struct pen_kind *kind,
                                             const struct pen_kind_op *op, int k, const char *name,
                                             bool constant) {
  const uint32_t value = find_value(kind, name),
                 maker = value == PEN_NONE ? PEN_NONE : kind->value[value].maker;
  if (value == PEN_NONE)
    FAIL(kind, op,
         "%s: operand %s: there is no such value; what the unit takes, or an op before "
         "this one makes",
         name, operand_row(op, k)->name);
  if (is_constant(kind, value) != constant)
    FAIL(kind, op, "%s: operand %s: %s", name, operand_row(op, k)->name,
         constant ? "a constant, which ROPE_TABLE makes" : "a value, not a constant");
  if (maker != PEN_NONE && kind->op[maker].row->appended == PEN_APPENDED_LOSS)
    FAIL(kind, op, "%s: operand %s: a value, not the loss", name, operand_row(op, k)->name);
  if (find_alias(kind, name)) find_alias(kind, name)->is_read = true;
  return (struct pen_kind_operand){.source = constant ? PEN_OPERAND_CONSTANT : PEN_OPERAND_VALUE,
                                   .value = value};
}

static struct pen_kind_operand read_operand(const struct pen_kind *kind,
                                            const struct pen_kind_op *op, int k, const char *name) {
  const enum pen_operand_class class = pen_operand_class_of(op->row->kind, k);
  const bool is_weight = name && *name == '.';
  const bool is_loss = op->row->appended == PEN_APPENDED_LOSS;
  if (!name && (!operand_row(op, k)->optional || is_loss))
    FAIL(kind, op, "operand %s is missing", operand_row(op, k)->name);
  if (!name) return (struct pen_kind_operand){.source = PEN_OPERAND_ABSENT};
  if (is_weight != (class == PEN_READS_WEIGHT) || strcmp(name, ".") == 0)
    FAIL(kind, op, "%s: operand %s: %s", name, operand_row(op, k)->name,
         class == PEN_READS_WEIGHT ? "a weight, whose name begins with a point" : "no weight");
  switch (class) {
    case PEN_READS_WEIGHT:
      return (struct pen_kind_operand){.source = PEN_OPERAND_WEIGHT, .weight = name + 1};
    case PEN_READS_DATA: return data_operand(kind, op, k, name);
    case PEN_READS_VALUE:
      if (find_value(kind, name) == PEN_NONE && find_input(kind->description, name, strlen(name)))
        return input_operand(kind, op, k, name, strlen(name), PEN_USED_AS_VALUES);
      return value_operand(kind, op, k, name, false);
    default: return value_operand(kind, op, k, name, true);
  }
}

/* Whether an operand is a value or an input, and is of samples or of tokens. */
static bool is_of(const struct pen_kind *kind, const struct pen_kind_operand *operand,
                  bool samples) {
  if (operand->source == PEN_OPERAND_VALUE)
    return kind->value[operand->value].of_samples == samples;
  return operand->source == PEN_OPERAND_INPUT &&
         kind->description->input[operand->input].has_tokens != samples;
}

/* All that an op reads is of tokens, or all is of samples; the latter is so in a step whose
 * sequences have one token. */
static void find_samples(const struct pen_kind *kind, struct pen_kind_op *op) {
  int of[2] = {-1, -1};
  for (int k = 0; k < PEN_OPERANDS_MAX; k++)
    for (int samples = 0; samples < 2; samples++)
      if (is_of(kind, &op->operand[k], samples)) of[samples] = k;
  const enum pen_row_turn turn = pen_row_turn_of(op->row->kind);
  if (turn == PEN_TURN_TO_TOKENS && of[0] >= 0)
    FAIL(kind, op, "operand x: a value of samples, not of tokens");
  op->of_samples = of[1] >= 0 && turn != PEN_TURN_TO_TOKENS;
  if (!op->of_samples) return;
  if (of[0] >= 0)
    FAIL(kind, op, "operand %s is of samples, operand %s of tokens; all are of either",
         operand_row(op, of[1])->name, operand_row(op, of[0])->name);
  if (op->row->appended == PEN_APPENDED_EXPERTS)
    FAIL(kind, op, "operand x: a value of tokens, not of samples");
  if (turn == PEN_TURN_TO_SAMPLES) FAIL(kind, op, "operand x: a value of tokens, not of samples");
  if (op->row->appended == PEN_APPENDED_LOSS && kind->description->share_count == 0)
    FAIL(kind, op, "a loss of samples: only with a list shares");
}

/* Operands in the order of the row; of POINTWISE in any order. */
static void read_operands(const struct pen_kind *kind, struct pen_kind_op *op) {
  const struct pen_signature *signature = pen_signature_of(op->row->kind);
  const struct pen_described_op *from = op->from;
  if (op->row->appended == PEN_APPENDED_POINTWISE) {
    uint8_t place[PEN_POINTWISE_OPERANDS];
    const char *wrong = pen_pointwise_places(from, place);
    if (wrong) FAIL(kind, op, "%s", wrong);
    for (size_t i = 0; i < from->operand_count; i++)
      if (from->operand[i])
        op->operand[place[i]] = read_operand(kind, op, place[i], from->operand[i]);
    return;
  }
  if (from->operand_count > signature->input_count)
    FAIL(kind, op, "it has at most %d operands, not %zu", signature->input_count,
         from->operand_count);
  for (int k = 0; k < signature->input_count; k++)
    op->operand[k] =
        read_operand(kind, op, k, (size_t)k < from->operand_count ? from->operand[k] : NULL);
}

/* ---- ops ---- */

static bool reads_the_same(const struct pen_kind_op *a, const struct pen_kind_op *b) {
  for (int k = 0; k < PEN_OPERANDS_MAX; k++) {
    const struct pen_kind_operand *x = &a->operand[k], *y = &b->operand[k];
    if (x->source != y->source || x->source == PEN_OPERAND_WEIGHT || x->use != y->use ||
        x->input != y->input || x->value != y->value)
      return false;
  }
  return true;
}

/* The earlier op that equals this one, and so makes the same values; PEN_NONE: there is none. */
static uint32_t find_equal(const struct pen_kind *kind, const struct pen_kind_op *op) {
  for (uint32_t i = 0; i < kind->op_count; i++)
    if (kind->op[i].row == op->row && op->row->appended != PEN_APPENDED_LOSS &&
        reads_the_same(&kind->op[i], op) && pen_described_same_numbers(kind->op[i].from, op->from))
      return i;
  return PEN_NONE;
}

/* Adds the outputs of an op; `equal`: the op that makes them, or PEN_NONE. */
static void add_outputs(struct pen_kind *kind, struct pen_kind_op *op, uint32_t equal) {
  const size_t wanted = (size_t)pen_described_outputs(op->row->kind);
  if (op->from->output_count != wanted)
    FAIL(kind, op, "it has %zu outputs, not %zu", wanted, op->from->output_count);
  op->first_output = kind->value_count;
  for (size_t n = 0; n < wanted; n++) {
    const char *name = op->from->output[n];
    if (*name == '.' || find_value(kind, name) != PEN_NONE ||
        find_input(kind->description, name, strlen(name)))
      FAIL(kind, op, "%s: output %zu: a name of its own, without a point in front", name, n);
    if (equal == PEN_NONE) {
      add_value(kind, name, (uint32_t)(op - kind->op));
      continue;
    }
    PEN_RESERVE(kind->alias, kind->alias_count + 1);
    kind->alias[kind->alias_count++] = (struct pen_kind_alias){
        .name = name, .from = op->from, .value = kind->op[equal].first_output + (uint32_t)n};
  }
}

/* Notes which values an op of the kind reads. */
static void note_reads(struct pen_kind *kind, const struct pen_kind_op *op) {
  for (int k = 0; k < PEN_OPERANDS_MAX; k++)
    if (op->operand[k].source == PEN_OPERAND_VALUE || op->operand[k].source == PEN_OPERAND_CONSTANT)
      kind->value[op->operand[k].value].past_read = (uint32_t)(op - kind->op) + 1;
}

static void add_op(struct pen_kind *kind, const struct pen_described_op *from) {
  struct pen_kind_op *op = &kind->op[kind->op_count];
  *op = (struct pen_kind_op){.row = pen_described_row_find(from->row), .from = from};
  if (!op->row)
    FAIL(kind, op, "there is no such row; a description may name %s", pen_described_row_names());
  read_operands(kind, op);
  find_samples(kind, op);
  const uint32_t equal = find_equal(kind, op);
  add_outputs(kind, op, equal);
  if (equal != PEN_NONE) return;
  note_reads(kind, op);
  kind->op_count++;
}

/* ---- the kind ---- */

static bool is_loss(const struct pen_kind *kind, uint32_t op) {
  return kind->op[op].row->appended == PEN_APPENDED_LOSS;
}

/* Whether an op makes a row of its value from a row of one value, with weights alone besides. */
static bool is_by_rows(const struct pen_kind_op *op) {
  const struct pen_signature *signature = pen_signature_of(op->row->kind);
  for (int k = 1; k < signature->input_count; k++)
    if (op->operand[k].source != PEN_OPERAND_WEIGHT && op->operand[k].source != PEN_OPERAND_ABSENT)
      return false;
  return op->operand[0].source == PEN_OPERAND_VALUE && pen_described_outputs(op->row->kind) == 1 &&
         pen_signature_operand(signature, "starts") < 0;
}

/* The last unit ends with the loss, of logits that a product makes, and perhaps ops that work row
 * by row: so they may be computed of the last token alone. */
static void find_head(struct pen_kind *kind) {
  const struct pen_kind_op *last = &kind->op[kind->op_count - 1];
  const struct pen_kind_op *op = last;
  uint32_t maker = kind->op_count - 1;
  do {
    const bool is_made = op->operand[0].source == PEN_OPERAND_VALUE;
    maker = is_made ? kind->value[op->operand[0].value].maker : PEN_NONE;
    op = maker == PEN_NONE ? NULL : &kind->op[maker];
  } while (op && is_by_rows(op) && op->row->kind != PEN_OP_LINEAR);
  if (!op || op->row->kind != PEN_OP_LINEAR || op->operand[2].source != PEN_OPERAND_ABSENT)
    FAIL(kind, last,
         "%s: operand logits: what a LINEAR without addend makes, with ops of one value between",
         last->from->operand[0]);
  kind->head = maker;
}

/* The last op is a loss, with the share of its targets; or there are several ops that are, with
 * shares of the list. */
static void find_losses(struct pen_kind *kind) {
  const struct pen_kind_op *last = &kind->op[kind->op_count - 1];
  const bool has_shares = kind->description->share_count > 0;
  kind->first_loss = 0;
  while (kind->first_loss < kind->op_count && !is_loss(kind, kind->first_loss)) kind->first_loss++;
  if (!is_loss(kind, kind->op_count - 1))
    FAIL(kind, last, "the last op must be CROSS_ENTROPY or SUM_LOSS");
  if (has_shares) return;
  if (kind->first_loss + 1 < kind->op_count || last->row->kind != PEN_OP_CROSS_ENTROPY)
    FAIL(kind, &kind->op[kind->first_loss],
         "one loss, CROSS_ENTROPY, unless the description has a list shares");
  find_head(kind);
}

/* Whether the gradient of the op needs none of that output, and it is not the only one: an op reads
 * another, or the unit gives it. */
static bool may_be_unread(const struct pen_kind *kind, uint32_t value) {
  const struct pen_kind_op *op = &kind->op[kind->value[value].maker];
  const int outputs = pen_described_outputs(op->row->kind),
            output = pen_signature_of(op->row->kind)->input_count + (int)(value - op->first_output);
  bool is_optional = false, is_read = false;
  size_t count;
  const struct pen_gradient_rule *rule = pen_gradient_rules(&count);
  for (; count-- > 0; rule++)
    for (size_t w = 0; w < rule->input_count && rule->forward == op->row->kind; w++)
      if (rule->word[w].operand == output && rule->word[w].mark == '\'')
        is_optional = pen_signature_of(rule->backward)->operand[w].optional;
  for (int n = 0; n < outputs; n++)
    is_read = is_read || kind->value[op->first_output + (uint32_t)n].past_read ||
              op->first_output + (uint32_t)n == kind->gives;
  return is_optional && is_read;
}

static void check_readers(const struct pen_kind *kind) {
  for (uint32_t v = 0; v < kind->value_count; v++) {
    const struct pen_kind_value *value = &kind->value[v];
    const bool ends =
        value->maker != PEN_NONE && is_loss(kind, value->maker) && kind->gives == PEN_NONE;
    if (value->past_read || v == kind->gives || ends) continue;
    if (value->maker == PEN_NONE)
      pen_description_fail(kind->description, kind->from, NULL, "%s: no op reads what it takes",
                           value->name);
    if (may_be_unread(kind, v)) continue;
    FAIL(kind, &kind->op[value->maker], "%s: no op reads it", value->name);
  }
  for (uint32_t a = 0; a < kind->alias_count; a++)
    if (!kind->alias[a].is_read && kind->alias[a].value != kind->gives &&
        !may_be_unread(kind, kind->alias[a].value))
      FAIL(kind, &kind->alias[a], "%s: no op reads it", kind->alias[a].name);
}

/* The op that computes that op of the description: itself, or the earlier one that it equals. */
static uint32_t computed_by(const struct pen_kind *kind, uint32_t described) {
  const struct pen_described_op *from = described == PEN_NONE ? NULL : &kind->from->op[described];
  for (uint32_t i = 0; from && i < kind->op_count; i++)
    if (kind->op[i].from == from) return i;
  for (uint32_t a = 0; from && a < kind->alias_count; a++)
    if (kind->alias[a].from == from) return kind->value[kind->alias[a].value].maker;
  return PEN_NONE;
}

/* What score and generate read: the logits of the loss or, of losses with shares, those that the
 * description has found. */
static void find_logits(struct pen_kind *kind) {
  const struct pen_described_texts *texts = &kind->description->texts;
  if (kind->head != PEN_NONE) {
    kind->product = kind->head;
    kind->logits = kind->value[kind->op[kind->op_count - 1].operand[0].value].maker;
  } else if (!texts->refused) {
    kind->product = computed_by(kind, texts->product);
    kind->logits = computed_by(kind, texts->logits);
    kind->needed = texts->needed ? pen_new(kind->op_count, sizeof *kind->needed) : NULL;
    for (uint32_t i = 0; texts->needed && i < kind->from->op_count; i++)
      if (texts->needed[i]) kind->needed[computed_by(kind, i)] = true;
  }
}

static void declare_inputs(const struct pen_kind *kind) {
  for (uint32_t i = 0; i < kind->op_count; i++)
    for (int k = 0; k < PEN_OPERANDS_MAX; k++)
      if (kind->op[i].operand[k].source == PEN_OPERAND_INPUT ||
          kind->op[i].operand[k].source == PEN_OPERAND_SHARE)
        pen_described_declared(kind->description, kind->op[i].operand[k].input,
                               (enum pen_input_use)kind->op[i].operand[k].use);
}

static void find_given(struct pen_kind *kind) {
  const char *name = kind->from->gives;
  if (!name) return;
  kind->gives = find_value(kind, name);
  const uint32_t maker = kind->gives == PEN_NONE ? PEN_NONE : kind->value[kind->gives].maker;
  if (maker == PEN_NONE || is_constant(kind, kind->gives) || is_loss(kind, maker))
    pen_description_fail(kind->description, kind->from, NULL,
                         "gives %s: a value that an op of the unit makes", name);
  if (kind->value[kind->gives].of_samples)
    pen_description_fail(kind->description, kind->from, NULL,
                         "gives %s: a value of tokens, not of samples", name);
}

struct pen_kind *pen_described_kind(const struct pen_description *d,
                                    const struct pen_described_kind *from) {
  struct pen_kind *kind = pen_new(1, sizeof *kind);
  *kind = (struct pen_kind){.description = d,
                            .from = from,
                            .op = pen_new(from->op_count, sizeof *kind->op),
                            .takes = PEN_NONE,
                            .gives = PEN_NONE,
                            .head = PEN_NONE,
                            .product = PEN_NONE,
                            .logits = PEN_NONE,
                            .first_loss = PEN_NONE};
  if (from->takes && find_input(d, from->takes, strlen(from->takes)))
    pen_description_fail(d, from, NULL, "takes %s: a name that no input has", from->takes);
  if (from->takes) kind->takes = add_value(kind, from->takes, PEN_NONE);
  for (size_t i = 0; i < from->op_count; i++) add_op(kind, &from->op[i]);
  find_given(kind);
  if (kind->gives == PEN_NONE) {
    find_losses(kind);
    find_logits(kind);
    if (d->is_bf16) pen_kind_find_f32(kind);
  }
  declare_inputs(kind);
  check_readers(kind);
  return kind;
}
