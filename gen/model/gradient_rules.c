/* gradient_rules.c: parses the gradient rules of ops.def (see gradient_rules.h). */
#include "gen/model/gradient_rules.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "gen/base/error.h"
#include "gen/model/op_signature.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- PEN_GRADIENT ---- */

static const struct rule_text {
  int forward, backward;
  bool weight_part;
  const char *operands, *dims;
} rule_texts[] = {
#define PEN_GRADIENT(forward, part, backward, operands, dims) \
  {PEN_OP_##forward, PEN_OP_##backward, #part[0] == 'W', operands, dims},
#include "kernels/ops.def"
};

static void parse_operands(const struct rule_text *from, struct pen_gradient_rule *rule) {
  const struct pen_signature *forward = pen_signature_of(from->forward);
  for (const char *text = from->operands; *text;) {
    size_t length = strcspn(text, " ");
    if (length == 2 && strncmp(text, "->", 2) == 0) {
      rule->input_count = rule->count;
    } else if (length) {
      char last = text[length - 1], name[PEN_SIGNATURE_NAME_BYTES] = {0};
      struct pen_rule_operand *word = &rule->word[rule->count++];
      word->mark = last == '\'' || last == '*' || last == '+' ? last : 0;
      memcpy(name, text, length - (word->mark != 0));
      word->operand = word->mark == '+' ? -1 : (int8_t)pen_signature_operand(forward, name);
      if (word->mark != '+' && word->operand < 0)
        pen_stop(PEN_EXIT_INTERNAL, "ops.def: gradient of %s: no operand %s", forward->kind, name);
    }
    text += length ? length : 1;
  }
}

/* What the rule has behind "name="; null: nothing. */
static const char *pair_of(const char *dims, const char *name) {
  const size_t bytes = strlen(name);
  for (const char *at = dims; *at; at += strspn(at, " ")) {
    if (strncmp(at, name, bytes) == 0 && at[bytes] == '=') return at + bytes + 1;
    at += strcspn(at, " ");
  }
  return NULL;
}

/* Finds the forward op's dims by name, or by the rule's `name=name` pairs, or `name=NUMBER`. */
static void bind_dims(const struct rule_text *from, struct pen_gradient_rule *rule) {
  const struct pen_signature *forward = pen_signature_of(from->forward),
                             *to = pen_signature_of(from->backward);
  for (int i = 0; i < to->dim_count; i++) {
    char name[PEN_SIGNATURE_NAME_BYTES];
    const char *pair = pair_of(from->dims, to->dim[i]), *wanted = pair ? pair : to->dim[i];
    const size_t bytes = strcspn(wanted, " ");
    if (bytes >= sizeof name)
      pen_stop(PEN_EXIT_INTERNAL, "ops.def: gradient of %s: the dim %s has too long a name",
               forward->kind, wanted);
    memcpy(name, wanted, bytes);
    name[bytes] = 0;
    rule->dim[i] = (int8_t)pen_signature_dim(forward, name);
    rule->number[i] = (uint8_t)strtoul(name, NULL, 10);
    if (rule->dim[i] < 0 && !isdigit((unsigned char)*name))
      pen_stop(PEN_EXIT_INTERNAL, "ops.def: gradient of %s: no dim %s", forward->kind, name);
  }
  for (int i = 0; i < to->real_count; i++)
    rule->real[i] = (int8_t)pen_signature_real(forward, to->real[i]);
}

const struct pen_gradient_rule *pen_gradient_rules(size_t *count) {
  static struct pen_gradient_rule rules[COUNT(rule_texts)];
  *count = COUNT(rules);
  if (rules[0].count) return rules;
  for (size_t i = 0; i < COUNT(rules); i++) {
    const struct rule_text *from = &rule_texts[i];
    rules[i] = (struct pen_gradient_rule){
        .forward = from->forward, .backward = from->backward, .weight_part = from->weight_part};
    parse_operands(from, &rules[i]);
    bind_dims(from, &rules[i]);
  }
  return rules;
}

bool pen_op_adds_in_order(int backward) {
  size_t count;
  const struct pen_gradient_rule *rules = pen_gradient_rules(&count);
  for (size_t i = 0; i < count; i++)
    if (rules[i].backward == backward && !rules[i].weight_part) return true;
  return false;
}

uint8_t pen_rule_dtype(const struct pen_gradient_rule *rule, int forward_dtype, int model_dtype) {
  const bool is_f32 = forward_dtype == PEN_F32 &&
                      pen_signature_dtype(pen_signature_of(rule->forward), model_dtype) != PEN_F32;
  return pen_signature_dtype(pen_signature_of(rule->backward), is_f32 ? PEN_F32 : model_dtype);
}

/* ---- PEN_PASS ---- */

static const struct pass_text {
  int forward;
  const char *input, *output;
} pass_texts[] = {
#define PEN_PASS(forward, input, output) {PEN_OP_##forward, #input, #output},
#include "kernels/ops.def"
};

const struct pen_pass_rule *pen_pass_rules(size_t *count) {
  static struct pen_pass_rule rules[COUNT(pass_texts)];
  static bool parsed;
  *count = COUNT(rules);
  for (size_t i = 0; i < COUNT(rules) && !parsed; i++) {
    const struct pen_signature *signature = pen_signature_of(pass_texts[i].forward);
    rules[i] = (struct pen_pass_rule){
        pass_texts[i].forward, (int8_t)pen_signature_operand(signature, pass_texts[i].input),
        (int8_t)pen_signature_operand(signature, pass_texts[i].output)};
    if (rules[i].input < 0 || rules[i].output < 0)
      pen_stop(PEN_EXIT_INTERNAL, "ops.def: gradient of %s: no operand %s or %s", signature->kind,
               pass_texts[i].input, pass_texts[i].output);
  }
  parsed = true;
  return rules;
}

uint32_t pen_op_tensor_rank(int kind, const int64_t *dim) {
  const int tensor_rank = pen_signature_dim(pen_signature_of(kind), "tensor_rank");
  return tensor_rank < 0 ? 0 : (uint32_t)dim[tensor_rank];
}

/* ---- losses ---- */

int pen_loss_gradient_of(int loss, int k) {
  const struct pen_signature *signature = pen_signature_of(loss);
  const char *name = signature->operand[k].name;
  return k >= signature->input_count && name[0] == 'd' ? pen_signature_operand(signature, name + 1)
                                                       : -1;
}

/* ---- PEN_FUSED_LOSS, PEN_FUSED_GRADIENT ---- */

static const struct pen_fused_loss fused_losses[] = {
#define PEN_FUSED_LOSS(forward, weight, both) {PEN_OP_##forward, PEN_OP_##weight, PEN_OP_##both},
#define PEN_FUSED_GRADIENT PEN_FUSED_LOSS
#include "kernels/ops.def"
};

const struct pen_fused_loss *pen_fused_loss_of(int forward) {
  for (size_t i = 0; i < COUNT(fused_losses); i++)
    if (fused_losses[i].forward == forward) return &fused_losses[i];
  return NULL;
}

const struct pen_fused_loss *pen_fused_loss_made_by(int both) {
  for (size_t i = 0; i < COUNT(fused_losses); i++)
    if (fused_losses[i].both == both) return &fused_losses[i];
  return NULL;
}

/* ---- PEN_KEPT ---- */

bool pen_op_is_kept(int kind) {
  static const bool is_kept[PEN_OP_COUNT] = {
#define PEN_KEPT(kind) [PEN_OP_##kind] = true,
#include "kernels/ops.def"
  };
  return is_kept[kind];
}

/* ---- PEN_MIXES_ROWS ---- */

bool pen_op_mixes_rows(int kind) {
  static const bool mixes[PEN_OP_COUNT] = {
#define PEN_MIXES_ROWS(kind) [PEN_OP_##kind] = true,
#include "kernels/ops.def"
  };
  return mixes[kind];
}
