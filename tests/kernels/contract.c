/* contract.c: what kernels.h and ops.def state of all ops, by the signature of each op: the same
 * bits at each address and in each call, outputs in place of inputs, unchanged inputs, NaN
 * propagates; in each dtype. A bf16 result is the f32 result, rounded. Each op has a case. */
#include "kernels/head_loss.h"
#include "tests/support/kernels_signature.h"

/* Each case is one in f32, then one in bf16, then one in bf16 with partial sums. */
static const struct op_case *subject_of(size_t n) { return &op_cases[n % op_case_count]; }
static enum pen_dtype dtype_of(size_t n) {
  static const enum pen_dtype dtypes[] = {PEN_F32, PEN_BF16, PEN_BF16_PARTIAL};
  return dtypes[n / op_case_count];
}

/* Each case in each dtype of its op. */
#define FOR_EACH_CASE(n)                              \
  for (size_t n = 0; n < 3 * op_case_count; n++)      \
    if ((subject_of(n)->tests & FOR_CONTRACT) != 0 && \
        pen_kernel_of(subject_of(n)->kind, dtype_of(n)) != NULL)

static bool has_case(enum pen_op_kind kind) {
  return op_has_case(kind, FOR_CONTRACT) ||
         kind == PEN_OP_ATTENTION_CACHED || /* which keeps state: attention_cached.c, fused.c */
         kind == PEN_OP_ATTENTION_CACHED_QKV ||
         (kind >= PEN_OP_LINEAR_FUSED && kind <= PEN_OP_LINEAR_FUSED_DW); /* fused.c */
}

/* A row of ops.def needs a kernel, and a case. */
static void every_op_has_a_kernel_and_a_case(void **state) {
  (void)state;
  for (int kind = 0; kind < PEN_OP_COUNT; kind++) {
    if (op_rows[kind].name == NULL) continue; /* the runtime fills or runs it */
    if (pen_kernel_of((enum pen_op_kind)kind, PEN_F32) == NULL)
      fail_msg("%s has no kernel (kernels/cpu/ops.def)", op_rows[kind].name);
    if (!has_case((enum pen_op_kind)kind)) fail_msg("%s has no case", op_rows[kind].name);
  }
}

static void bits_do_not_depend_on_addresses(void **state) {
  FOR_EACH_CASE(n) {
    const struct op_case *subject = subject_of(n);
    const struct signature s = parse_signature_as(dtype_of(n), subject->kind, subject->dim);
    struct pen_call first = fill_call(subject, &s, 0);
    run_as(dtype_of(n), subject->kind, &first);
    for (size_t shift = 0; shift < 8; shift += 1 + shift) {
      struct pen_call other = fill_call(subject, &s, shift);
      run_as(dtype_of(n), subject->kind, &other);
      assert_same_outputs(subject->kind, &s, &first, &other);
    }
    free_tensors(state);
  }
}

static void inputs_are_unchanged(void **state) {
  FOR_EACH_CASE(n) {
    const struct op_case *subject = subject_of(n);
    const struct signature s = parse_signature_as(dtype_of(n), subject->kind, subject->dim);
    struct pen_call used = fill_call(subject, &s, 0), fresh = fill_call(subject, &s, 0);
    run_as(dtype_of(n), subject->kind, &used);
    for (size_t i = 0; i < s.count; i++)
      if (!s.operand[i].output)
        assert_same_bits(s.operand[i].name, used.operand[i], fresh.operand[i],
                         operand_bytes(&s.operand[i]));
    free_tensors(state);
  }
}

static void outputs_may_replace_inputs(void **state) {
  FOR_EACH_CASE(n) {
    const struct op_case *subject = subject_of(n);
    const struct signature s = parse_signature_as(dtype_of(n), subject->kind, subject->dim);
    struct pen_call apart = fill_call(subject, &s, 0), shared = fill_call(subject, &s, 0);
    for (size_t i = 0; i < s.count; i++)
      if (s.operand[i].shares[0])
        shared.operand[i] = shared.operand[find_operand(&s, s.operand[i].shares)];
    run_as(dtype_of(n), subject->kind, &apart);
    run_as(dtype_of(n), subject->kind, &shared);
    assert_same_outputs(subject->kind, &s, &apart, &shared);
    free_tensors(state);
  }
}

static double element_of(const struct operand *o, const void *at, size_t k) {
  if (o->element_bytes == sizeof(double)) return ((const double *)at)[k];
  return (double)(o->element_bytes == sizeof(float) ? ((const float *)at)[k]
                                                    : float_of(((const uint16_t *)at)[k]));
}

static int any_nan(const struct signature *s, const struct pen_call *call) {
  for (size_t i = 0; i < s->count; i++)
    for (size_t k = 0; s->operand[i].output && k < s->operand[i].count; k++)
      if (isnan(element_of(&s->operand[i], call->operand[i], k))) return 1;
  return 0;
}

/* Ops that read only what their integers, a mask too, and dims select; and the maximum of logits,
 * which is read with their sum: the sum has the NaN. */
static bool may_lose_nan(const struct op_case *subject, const char *operand) {
  const enum pen_op_kind kind = subject->kind;
  const bool is_split = kind == PEN_OP_EMBEDDING && subject->dim[2] < subject->dim[4];
  const bool is_hidden = (kind == PEN_OP_ATTENTION_FULL || kind == PEN_OP_ATTENTION_FULL_DX) &&
                         (!strcmp(operand, "k") || !strcmp(operand, "v"));
  return is_split || is_hidden || kind == PEN_OP_SELECT_TOKENS || kind == PEN_OP_SHARD_SEQUENCE ||
         (kind == PEN_OP_EMBEDDING && strcmp(operand, "a") == 0) ||
         kind == PEN_OP_EMBEDDING_SELECT || kind == PEN_OP_LOGITS_JOIN ||
         kind == PEN_OP_LOGITS_MAXIMUM || kind == PEN_OP_HEAD_MAXIMUM;
}

/* A NaN at the start, in the middle and at the end of each input reaches an output. The integer
 * operands of the cases touch each element of an embedding table. */
static void nan_propagates(void **state) {
  FOR_EACH_CASE(n) {
    const struct op_case *subject = subject_of(n);
    const struct signature s = parse_signature_as(dtype_of(n), subject->kind, subject->dim);
    for (size_t i = 0; i < s.count; i++)
      for (size_t place = 0; place < 3; place++) {
        const struct operand *o = &s.operand[i];
        if (o->integer || (o->output && !o->accumulates) || may_lose_nan(subject, o->name))
          continue;
        struct pen_call call = fill_call(subject, &s, 0);
        if (o->element_bytes == sizeof(double))
          ((double *)call.operand[i])[place * (o->count - 1) / 2] = (double)NAN;
        else if (o->element_bytes == sizeof(uint16_t))
          ((uint16_t *)call.operand[i])[place * (o->count - 1) / 2] = 0x7fc0;
        else
          ((float *)call.operand[i])[place * (o->count - 1) / 2] = NAN;
        run_as(dtype_of(n), subject->kind, &call);
        if (!any_nan(&s, &call))
          fail_msg("%s loses a NaN in %s", op_rows[subject->kind].name, o->name);
        free_tensors(state);
      }
  }
}

/* The f32 call with the inputs of a bf16 call of that signature, converted. */
static struct pen_call widened_call(const struct op_case *subject, const struct signature *wide,
                                    const struct signature *narrow, const struct pen_call *half) {
  struct pen_call call = fill_call(subject, wide, 0);
  for (size_t i = 0; i < wide->count; i++)
    if (narrow->operand[i].element_bytes == sizeof(uint16_t) && !wide->operand[i].output)
      call.operand[i] = floats_of(half->operand[i], wide->operand[i].count);
  return call;
}

/* Rounding to bf16 changes a number by at most 2^-8, and below the smallest normal number by half
 * of 2^-133. The f32 results, which other tests check against f64, may differ by the order of a sum
 * if a product is divided into blocks: 2e-6 of the maximum, as there. */
static void assert_rounded(const char *what, const struct operand *o, const uint16_t *half,
                           const float *whole) {
  double most = 0;
  for (size_t k = 0; k < o->count; k++) most = fmax(most, fabs((double)whole[k]));
  for (size_t k = 0; k < o->count; k++) {
    const double x = (double)whole[k], off = fabs((double)float_of(half[k]) - x);
    if (!(off <= fabs(x) * 0x1p-8 + 0x1p-134 + 2e-6 * most))
      fail_msg("%s[%zu] is %.9g in bf16, %.9g in f32", what, k, (double)float_of(half[k]), x);
  }
}

/* HEAD_LOSS rounds intermediate results, as the ops that it combines; so does attention if the CPU
 * multiplies bf16: attention.c gives the tolerance. */
static int rounds_on_its_way(enum pen_op_kind kind, const char *set) {
  return pen_is_head_loss(kind) ||
         (!strcmp(set, "avx512bf16") && !strncmp(op_rows[kind].name, "ATTENTION", 9));
}

static void bf16_is_f32_rounded(void **state) {
  FOR_EACH_CASE(n) {
    const struct op_case *subject = subject_of(n);
    if (dtype_of(n) == PEN_F32 || rounds_on_its_way(subject->kind, *state)) continue;
    const struct signature narrow = parse_signature_as(dtype_of(n), subject->kind, subject->dim),
                           wide = parse_signature(subject->kind, subject->dim);
    struct pen_call half = fill_call(subject, &narrow, 0),
                    whole = widened_call(subject, &wide, &narrow, &half);
    run_as(dtype_of(n), subject->kind, &half);
    run(subject->kind, &whole);
    for (size_t i = 0; i < wide.count; i++) {
      const struct operand *o = &wide.operand[i];
      char what[64];
      snprintf(what, sizeof what, "%s.%s", op_rows[subject->kind].name, o->name);
      if (o->output && narrow.operand[i].element_bytes == sizeof(uint16_t))
        assert_rounded(what, o, half.operand[i], whole.operand[i]);
      else if (o->output && o->element_bytes == sizeof(float))
        assert_near(what, half.operand[i], widened(whole.operand[i], o->count), o->count, 2e-6, 1);
      else if (o->output)
        assert_same_bits(what, half.operand[i], whole.operand[i], operand_bytes(o));
    }
    free_tensors(state);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_op_has_a_kernel_and_a_case),
      cmocka_unit_test(bits_do_not_depend_on_addresses),
      cmocka_unit_test(inputs_are_unchanged),
      cmocka_unit_test(outputs_may_replace_inputs),
      cmocka_unit_test(nan_propagates),
      cmocka_unit_test(bf16_is_f32_rounded),
  };
  return RUN_ON_EVERY_SET(tests);
}
