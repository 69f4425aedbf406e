/* kernels_contract.c: what kernels.h and ops.def promise of every op alike, read from the op's own signature: the same bits at
 * every address and every time, outputs that may lie on inputs, inputs left alone, no number lost that is not one. */
#include "tests/kernels_signature.h"

/* A case: an op, dims, reals; integer operands get values below `integers`. */
struct subject {
  enum pen_op_kind kind;
  int64_t dim[PEN_DIMS_MAX];
  double real[PEN_REALS_MAX];
  int integers;
};

static const struct subject subjects[] = {
  { PEN_OP_LINEAR, { 7, 13, 5 }, { 0 }, 0 },          { PEN_OP_LINEAR, { 300, 256, 130 }, { 0 }, 0 },
  { PEN_OP_LINEAR_DX, { 7, 13, 5 }, { 0 }, 0 },       { PEN_OP_LINEAR_DX, { 300, 130, 256 }, { 0 }, 0 },
  { PEN_OP_LINEAR_DW, { 7, 13, 5 }, { 0 }, 0 },       { PEN_OP_LINEAR_DW, { 300, 130, 256 }, { 0 }, 0 },
  { PEN_OP_RMSNORM, { 3, 37 }, { 1e-5 }, 0 },         { PEN_OP_RMSNORM_DX, { 3, 101 }, { 1e-5 }, 0 },
  { PEN_OP_ACCUMULATE, { 45 }, { 0 }, 0 },            { PEN_OP_ROPE, { 2, 5, 3, 14, 5 }, { 0 }, 0 },
  { PEN_OP_ROPE_DX, { 2, 5, 3, 64, 5 }, { 0 }, 0 },      { PEN_OP_ATTENTION, { 2, 53, 4, 2, 18 }, { 0 }, 0 },
  { PEN_OP_ATTENTION, { 1, 200, 2, 1, 32 }, { 0 }, 0 },
  { PEN_OP_ATTENTION_DX, { 2, 53, 4, 2, 18 }, { 0 }, 0 },
  { PEN_OP_ATTENTION_DX, { 1, 200, 2, 1, 32 }, { 0 }, 0 },
  { PEN_OP_SWIGLU, { 77 }, { 0 }, 0 },                { PEN_OP_SWIGLU_DX, { 77 }, { 0 }, 0 },
  { PEN_OP_GELU, { 77 }, { 0 }, 0 },                  { PEN_OP_GELU_DX, { 77 }, { 0 }, 0 },
  { PEN_OP_SCALE, { 77 }, { 1.5 }, 0 },               { PEN_OP_SCALE_DX, { 77 }, { 1.5 }, 0 },
  { PEN_OP_ADD, { 77 }, { 0 }, 0 },                   { PEN_OP_EMBEDDING, { 9, 21, 7 }, { 0 }, 7 },
  { PEN_OP_EMBEDDING_DW, { 9, 21, 7 }, { 0 }, 7 },    { PEN_OP_CROSS_ENTROPY, { 4, 1111 }, { 0 }, 1111 },
  { PEN_OP_SUM_LOSS, { 4, 31 }, { 0.5 }, 0 },         { PEN_OP_AFFINE, { 7, 13, 5 }, { 0 }, 0 },
  { PEN_OP_AFFINE, { 300, 256, 130 }, { 0 }, 0 },     { PEN_OP_AFFINE_DX, { 7, 13, 5 }, { 0 }, 0 },
  { PEN_OP_AFFINE_DX, { 300, 130, 256 }, { 0 }, 0 },  { PEN_OP_AFFINE_DW, { 300, 130, 256 }, { 0 }, 0 },
  { PEN_OP_BIAS_DW, { 9, 21 }, { 0 }, 0 },            { PEN_OP_LAYERNORM, { 3, 37 }, { 1e-5 }, 0 },
  { PEN_OP_LAYERNORM_DX, { 3, 101 }, { 1e-5 }, 0 },   { PEN_OP_SPLIT, { 5, 21 }, { 0 }, 0 },
  { PEN_OP_SPLIT_DX, { 5, 21 }, { 0 }, 0 },           { PEN_OP_GELU_TANH, { 77 }, { 0 }, 0 },
  { PEN_OP_GELU_TANH_DX, { 77 }, { 0 }, 0 },          { PEN_OP_POSITION, { 10, 21, 5, 5 }, { 0 }, 0 },
  { PEN_OP_POSITION_DW, { 10, 21, 5, 5 }, { 0 }, 0 },
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

/* Fills all operands of a call at `shift` cache lines past a page; the same values whatever the shift. */
static struct pen_call fill(const struct subject *subject, const struct signature *s, size_t shift) {
  struct pen_call call = { 0 };
  memcpy(call.dim, subject->dim, sizeof call.dim);
  memcpy(call.real, subject->real, sizeof call.real);
  for (size_t i = 0; i < s->count; i++) {
    const struct operand *o = &s->operand[i];
    call.operand[i] = bytes_at(operand_bytes(o), (shift * (i + 1)) % 64);
    if (!strcmp(o->name, "starts"))
      fill_starts(call.operand[i], o->count, starts_sequence(subject->kind, subject->dim));
    else if (o->integer)
      for (size_t k = 0; k < o->count; k++)
        ((int32_t *)call.operand[i])[k] = (int32_t)(k * 5 % (size_t)subject->integers);
    else if (!o->output || o->accumulates)
      spread_operand(call.operand[i], o, i + 1);
  }
  return call;
}

static void assert_same_outputs(enum pen_op_kind kind, const struct signature *s, const struct pen_call *a,
                                const struct pen_call *b) {
  for (size_t i = 0; i < s->count; i++)
    if (s->operand[i].output) {
      char what[64];
      snprintf(what, sizeof what, "%s.%s", op_rows[kind].name, s->operand[i].name);
      assert_same_bits(what, a->operand[i], b->operand[i], operand_bytes(&s->operand[i]));
    }
}

static void bits_do_not_depend_on_addresses(void **state) {
  for (size_t n = 0; n < SUBJECTS; n++) {
    const struct signature s = parse(subjects[n].kind, subjects[n].dim);
    struct pen_call first = fill(&subjects[n], &s, 0);
    run(subjects[n].kind, &first);
    for (size_t shift = 0; shift < 8; shift += 1 + shift) {
      struct pen_call other = fill(&subjects[n], &s, shift);
      run(subjects[n].kind, &other);
      assert_same_outputs(subjects[n].kind, &s, &first, &other);
    }
    free_tensors(state);
  }
}

static void inputs_stay(void **state) {
  for (size_t n = 0; n < SUBJECTS; n++) {
    const struct signature s = parse(subjects[n].kind, subjects[n].dim);
    struct pen_call used = fill(&subjects[n], &s, 0), fresh = fill(&subjects[n], &s, 0);
    run(subjects[n].kind, &used);
    for (size_t i = 0; i < s.count; i++)
      if (!s.operand[i].output)
        assert_same_bits(s.operand[i].name, used.operand[i], fresh.operand[i], operand_bytes(&s.operand[i]));
    free_tensors(state);
  }
}

static void outputs_may_lie_on_inputs(void **state) {
  for (size_t n = 0; n < SUBJECTS; n++) {
    const struct signature s = parse(subjects[n].kind, subjects[n].dim);
    struct pen_call apart = fill(&subjects[n], &s, 0), shared = fill(&subjects[n], &s, 0);
    for (size_t i = 0; i < s.count; i++)
      if (s.operand[i].shares[0])
        shared.operand[i] = shared.operand[find(&s, s.operand[i].shares)];
    run(subjects[n].kind, &apart);
    run(subjects[n].kind, &shared);
    assert_same_outputs(subjects[n].kind, &s, &apart, &shared);
    free_tensors(state);
  }
}

static int any_nan(const struct signature *s, const struct pen_call *call) {
  for (size_t i = 0; i < s->count; i++)
    for (size_t k = 0; s->operand[i].output && k < s->operand[i].count; k++)
      if (s->operand[i].element_bytes == sizeof(double) ? isnan(((double *)call->operand[i])[k])
                                                        : isnan(((float *)call->operand[i])[k]))
        return 1;
  return 0;
}

/* A NaN at the front, in the middle and at the end of each input reaches an output. The cases' integer operands touch every
 * element of an embedding table. */
static void nan_comes_through(void **state) {
  for (size_t n = 0; n < SUBJECTS; n++) {
    const struct signature s = parse(subjects[n].kind, subjects[n].dim);
    for (size_t i = 0; i < s.count; i++)
      for (size_t place = 0; place < 3; place++) {
        const struct operand *o = &s.operand[i];
        if (o->integer || (o->output && !o->accumulates))
          continue;
        struct pen_call call = fill(&subjects[n], &s, 0);
        if (o->element_bytes == sizeof(double))
          ((double *)call.operand[i])[place * (o->count - 1) / 2] = (double)NAN;
        else
          ((float *)call.operand[i])[place * (o->count - 1) / 2] = NAN;
        run(subjects[n].kind, &call);
        if (!any_nan(&s, &call))
          fail_msg("%s loses a NaN in %s", op_rows[subjects[n].kind].name, o->name);
        free_tensors(state);
      }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(bits_do_not_depend_on_addresses),
    cmocka_unit_test(inputs_stay),
    cmocka_unit_test(outputs_may_lie_on_inputs),
    cmocka_unit_test(nan_comes_through),
  };
  return RUN_ON_EVERY_SET(tests);
}
