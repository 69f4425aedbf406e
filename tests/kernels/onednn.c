/* onednn.c: products by oneDNN against sums in f64 of the same numbers.
 *
 * A CPU without AVX512_BF16 has no such products of bf16. There, descriptors, strides, addends,
 * bias, scratchpad and calls are tested all the same: in f32, with the numbers widened before and
 * narrowed after. */
#include "kernels/cpu/onednn.h"
#include "tests/support/kernels_product.h"

/* In an f32 call: the operand that is f32 already, the bias of AFFINE or the sum of a weight
 * gradient. */
static int stays(enum pen_op_kind kind, int operand) {
  const int gradient = kind == PEN_OP_LINEAR_DW || kind == PEN_OP_AFFINE_DW;
  return operand == 2 && (gradient || kind == PEN_OP_AFFINE);
}

/* Elements of an operand: as many as its signature says. */
static size_t count_of(enum pen_op_kind kind, const int64_t *dim, int operand) {
  const int64_t rows = dim[0], in = dim[1], out = dim[2];
  switch (kind) {
    case PEN_OP_LINEAR_DX:
    case PEN_OP_AFFINE_DX:
      return (size_t)(operand == 0 ? rows * out : operand == 1 ? in * out : rows * in);
    case PEN_OP_LINEAR_DW:
    case PEN_OP_AFFINE_DW: return (size_t)(operand == 0 ? rows * out : rows * in);
    default: return (size_t)(operand == 0 ? rows * in : operand == 1 ? in * out : rows * out);
  }
}

/* The call in f32. Where the result lies on the addend it does so here. */
static void run_wide(enum pen_op_kind kind, struct pen_call *call) {
  struct pen_call wide = *call;
  const int last = kind == PEN_OP_AFFINE                                  ? 4
                   : kind == PEN_OP_LINEAR_DW || kind == PEN_OP_AFFINE_DW ? 2
                                                                          : 3;
  for (int i = 0; i <= last; i++)
    if (call->operand[i] && !stays(kind, i))
      wide.operand[i] = floats_of(call->operand[i], count_of(kind, call->dim, i));
  if (call->operand[last] == call->operand[last - 1]) wide.operand[last] = wide.operand[last - 1];
  wide.prepared = pen_onednn_prepare(kind, PEN_F32, wide.dim, NULL, 0);
  assert_non_null(wide.prepared);
  pen_onednn_product(&wide);
  if (!stays(kind, last))
    memcpy(call->operand[last], halves(wide.operand[last], count_of(kind, call->dim, last)),
           2 * count_of(kind, call->dim, last));
}

void run_product(enum pen_op_kind kind, struct pen_call *call) {
  if (!pen_onednn_suits_cpu()) {
    run_wide(kind, call);
    return;
  }
  call->prepared = pen_onednn_prepare(kind, PEN_BF16, call->dim, NULL, 0);
  assert_non_null(call->prepared);
  pen_onednn_product(call);
}

static void a_shape_is_prepared_once(void **state) {
  (void)state;
  const int64_t dim[PEN_DIMS_MAX] = {5, 6, 7}, other[PEN_DIMS_MAX] = {5, 7, 6};
  void *first = pen_onednn_prepare(PEN_OP_LINEAR, PEN_F32, dim, NULL, 0);
  assert_non_null(first);
  assert_ptr_equal(pen_onednn_prepare(PEN_OP_LINEAR, PEN_F32, dim, NULL, 0), first);
  assert_ptr_not_equal(pen_onednn_prepare(PEN_OP_LINEAR, PEN_F32, other, NULL, 0), first);
  assert_ptr_not_equal(pen_onednn_prepare(PEN_OP_AFFINE, PEN_F32, dim, NULL, 0), first);
}

static int others;
static void other_product(const struct pen_call *call) { others += call != NULL; }

/* A library that cannot multiply bf16 here says so, and another is run. */
static void unsupported_products_use_the_fallback(void **state) {
  (void)state;
  if (pen_onednn_suits_cpu()) return; /* it can */
  struct pen_call call = {.dim = {5, 6, 7}};
  assert_null(pen_onednn_prepare(PEN_OP_LINEAR, PEN_BF16, call.dim, NULL, 0));
  call.prepared = pen_onednn_prepare(PEN_OP_LINEAR, PEN_BF16, call.dim, other_product, 0);
  assert_non_null(call.prepared);
  pen_onednn_product(&call);
  assert_int_equal(others, 1);
}

/* Products by split weights have the bits of this project's kernel. */
static void split_weights_use_the_fallback(void **state) {
  (void)state;
  struct pen_call call = {.dim = {5, 6, 7, 2}};
  const int before = others;
  call.prepared = pen_onednn_prepare(PEN_OP_LINEAR, PEN_BF16, call.dim, other_product, 0);
  assert_non_null(call.prepared);
  pen_onednn_product(&call);
  assert_int_equal(others, before + 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(forward_and_input_gradient, free_tensors),
      cmocka_unit_test_teardown(weight_gradient_accumulates, free_tensors),
      cmocka_unit_test(a_shape_is_prepared_once),
      cmocka_unit_test(unsupported_products_use_the_fallback),
      cmocka_unit_test(split_weights_use_the_fallback),
  };
  if (pen_onednn_open() == NULL) {
    printf("1..0 # SKIP no oneDNN 2 here, or configured without\n");
    return 0;
  }
  printf("# %s, in %s: this CPU has %s AVX512_BF16\n", pen_onednn_open(),
         pen_onednn_suits_cpu() ? "bf16" : "f32", pen_onednn_suits_cpu() ? "" : "no");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
