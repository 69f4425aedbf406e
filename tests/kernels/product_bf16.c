/* product_bf16.c: LINEAR, AFFINE and their _DX and _DW with bf16 factors, against f64 sums of the
 * same numbers: the products of this CPU, and those by pairs for 64-byte vectors on any CPU
 * (product_wide_bf16.c). */
#include "kernels/cpu/cpu.h"
#include "tests/support/kernels_product.h"

extern pen_multiply pen_wide_bf16_multiply;

void run_product(enum pen_op_kind kind, struct pen_call *call) { run_as(PEN_BF16, kind, call); }

/* A sum that bf16 cannot represent: 1 + 300 times 2^-9 is 1.5859375; accumulated in bf16 it would
 * stay 1. */
static void sums_are_f32(void **state) {
  (void)state;
  enum { DEPTH = 301 };
  float *ones = floats(DEPTH), *small = floats(DEPTH);
  for (int k = 0; k < DEPTH; k++) ones[k] = 1, small[k] = k ? 0x1p-9f : 1;
  uint16_t *y = bytes_at(sizeof *y, 0);
  struct pen_call call = {.operand = {halves(ones, DEPTH), halves(small, DEPTH), NULL, y},
                          .dim = {1, DEPTH, 1}};
  run_as(PEN_BF16, PEN_OP_LINEAR, &call);
  assert_true(float_of(*y) == 1.5859375f);
}

/* With Penstock's products the bits of an element do not depend on other rows and columns: a part
 * of x times a part of w is the part of y. k is small, or more than PEN_PAIR_DEPTH. */
static void check_parts(size_t in) {
  enum { ROWS = 101, OUT = 90 };
  uint16_t *x = bf16_numbers((int64_t)(ROWS * in), 1).half,
           *w = bf16_numbers((int64_t)(OUT * in), 2).half;
  uint16_t *y = bytes_at(ROWS * OUT * sizeof *y, 0), *part = bytes_at(ROWS * OUT * sizeof *y, 0);
  struct pen_call whole = {.operand = {x, w, NULL, y}, .dim = {ROWS, (int64_t)in, OUT}};
  run_as(PEN_BF16, PEN_OP_LINEAR, &whole);
  for (size_t row = 1; row < ROWS; row += 17)
    for (size_t column = 3; column < OUT; column += 29) {
      const size_t rows = (ROWS - row + 1) / 2, out = (OUT - column + 2) / 3;
      struct pen_call call = {.operand = {x + row * in, w + column * in, NULL, part},
                              .dim = {(int64_t)rows, (int64_t)in, (int64_t)out}};
      run_as(PEN_BF16, PEN_OP_LINEAR, &call);
      for (size_t r = 0; r < rows; r++)
        assert_same_bits("part of y", part + r * out, y + (row + r) * OUT + column,
                         out * sizeof *y);
    }
}

static void check_all_parts(void **state) {
  check_parts(500);
  free_tensors(state);
  check_parts(PEN_PAIR_DEPTH + 100);
}

static void open_own(void) {
  setenv("PEN_PRODUCTS", "own", 1);
  pen_kernels_open();
  unsetenv("PEN_PRODUCTS");
}

static void an_element_depends_on_its_row_and_column_alone(void **state) {
  open_own();
  check_all_parts(state);
}

/* Runs a check by pairs, with any instruction set. */
static void check_by_pairs(void (*check)(void **), void **state) {
  open_own();
  pen_products_bf16_open(pen_wide_bf16_multiply);
  check(state);
}

static void forward_and_input_gradient_by_pairs(void **state) {
  check_by_pairs(forward_and_input_gradient, state);
}
static void weight_gradient_accumulates_by_pairs(void **state) {
  check_by_pairs(weight_gradient_accumulates, state);
}
static void an_element_by_pairs_depends_on_its_row_and_column_alone(void **state) {
  check_by_pairs(check_all_parts, state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(forward_and_input_gradient),
      cmocka_unit_test(weight_gradient_accumulates),
      cmocka_unit_test(sums_are_f32),
      cmocka_unit_test(an_element_depends_on_its_row_and_column_alone),
      cmocka_unit_test(forward_and_input_gradient_by_pairs),
      cmocka_unit_test(weight_gradient_accumulates_by_pairs),
      cmocka_unit_test(an_element_by_pairs_depends_on_its_row_and_column_alone),
  };
  return RUN_ON_EVERY_SET(tests);
}
