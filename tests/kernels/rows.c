/* rows.c: the bits of a row do not depend on other rows, nor on its place among them: what an op
 * computes of the rows from each row on is what it computes of them as a part of all, with every
 * instruction set. So generation, whose steps have other rows than evaluation's, has its logits. */
#include "kernels/cpu/cpu.h"
#include "tests/support/kernels_signature.h"

extern pen_multiply pen_wide_multiply, pen_wide_bf16_multiply;

/* The rows from 1, 2, ... LAST_FIRST on are compared: their last tiles have each height. */
enum { LAST_FIRST = 25 };

/* The bytes that a row has of each operand; 0: all rows share it. */
static void bytes_of_rows(const struct op_case *of, enum pen_dtype dtype,
                          size_t bytes[PEN_OPERANDS_MAX]) {
  int64_t more[PEN_DIMS_MAX];
  memcpy(more, of->dim, sizeof more);
  more[0]++;
  const struct signature one = parse_signature_as(dtype, of->kind, of->dim),
                         other = parse_signature_as(dtype, of->kind, more);
  for (size_t i = 0; i < one.count; i++)
    bytes[i] = operand_bytes(&other.operand[i]) - operand_bytes(&one.operand[i]);
}

static void *copy_bytes(const void *from, size_t bytes) {
  return memcpy(bytes_at(bytes, 0), from, bytes);
}

/* Compares the rows from `first` on. `given`: the operands before `whole` ran; it has run. */
static void compare_rest(const struct op_case *of, enum pen_dtype dtype, int64_t first,
                         const struct pen_call *given, const struct pen_call *whole) {
  const struct signature s = parse_signature_as(dtype, of->kind, of->dim);
  struct pen_call rest = *given;
  size_t bytes[PEN_OPERANDS_MAX];
  bytes_of_rows(of, dtype, bytes);
  rest.dim[0] -= first;
  for (size_t i = 0; i < s.count; i++)
    if (bytes[i])
      rest.operand[i] = copy_bytes((const char *)given->operand[i] + (size_t)first * bytes[i],
                                   (size_t)rest.dim[0] * bytes[i]);
  run_as(dtype, of->kind, &rest);
  for (size_t i = 0; i < s.count; i++)
    if (s.operand[i].output)
      assert_same_bits(op_rows[of->kind].name, rest.operand[i],
                       (const char *)whole->operand[i] + (size_t)first * bytes[i],
                       (size_t)rest.dim[0] * bytes[i]);
}

static void check_op(const struct op_case *of, enum pen_dtype dtype, void **state) {
  const struct signature s = parse_signature_as(dtype, of->kind, of->dim);
  for (int64_t first = 1; first <= LAST_FIRST; first++) {
    const struct pen_call given = fill_call(of, &s, 0);
    struct pen_call whole = fill_call(of, &s, 0);
    run_as(dtype, of->kind, &whole);
    compare_rest(of, dtype, first, &given, &whole);
    free_tensors(state);
  }
}

static void check_ops(enum pen_dtype dtype, void **state) {
  for (size_t n = 0; n < op_case_count; n++)
    if ((op_cases[n].tests & FOR_ROWS) != 0 && pen_kernel_of(op_cases[n].kind, dtype) != NULL)
      check_op(&op_cases[n], dtype, state);
}

static void open_own_products(void) {
  setenv("PEN_PRODUCTS", "own", 1);
  pen_kernels_open();
  unsetenv("PEN_PRODUCTS");
}

static void in_f32(void **state) {
  open_own_products();
  check_ops(PEN_F32, state);
}

static void in_bf16(void **state) {
  open_own_products();
  check_ops(PEN_BF16, state);
  check_ops(PEN_BF16_PARTIAL, state);
}

/* The products for 64-byte vectors, on any CPU. */
static void by_wide_products(void **state) {
  open_own_products();
  pen_multiply_f32 = pen_wide_multiply;
  check_ops(PEN_F32, state);
}

static void by_wide_pairs(void **state) {
  open_own_products();
  pen_products_bf16_open(pen_wide_bf16_multiply);
  check_ops(PEN_BF16, state);
  check_ops(PEN_BF16_PARTIAL, state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(in_f32),
      cmocka_unit_test(in_bf16),
      cmocka_unit_test(by_wide_products),
      cmocka_unit_test(by_wide_pairs),
  };
  return RUN_ON_EVERY_SET(tests);
}
