/* kernels_product_bf16.c: LINEAR, AFFINE and their _DX and _DW with factors of bf16, against sums in f64 of the same numbers: what this CPU
 * runs. */
#include "tests/kernels_product.h"

static void run_product(enum pen_op_kind kind, struct pen_call *call) { run_as(PEN_BF16, kind, call); }

/* A sum that bf16 could not hold: 1 + 300 times 2^-9 is 1.5859375; added up in bf16 it would stay 1. */
static void sums_are_f32(void **state) {
  (void)state;
  enum { DEPTH = 301 };
  float *ones = floats(DEPTH), *small = floats(DEPTH);
  for (int k = 0; k < DEPTH; k++)
    ones[k] = 1, small[k] = k ? 0x1p-9f : 1;
  uint16_t *y = bytes_at(sizeof *y, 0);
  struct pen_call call = { .operand = { halves(ones, DEPTH), halves(small, DEPTH), NULL, y }, .dim = { 1, DEPTH, 1 } };
  run_as(PEN_BF16, PEN_OP_LINEAR, &call);
  assert_true(float_of(*y) == 1.5859375f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(forward_and_input_gradient),
    cmocka_unit_test(weight_gradient_adds_up),
    cmocka_unit_test(sums_are_f32),
  };
  return RUN_ON_EVERY_SET(tests);
}
