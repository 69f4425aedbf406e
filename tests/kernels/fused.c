/* fused.c: the ops of fused products, and attention over a cache, have the bits of those that they
 * replace, with every instruction set. */
#include "tests/support/fused_ops.h"

static void run_here(enum pen_dtype dtype, enum pen_op_kind kind, struct pen_call *call,
                     void *block, size_t bytes) {
  (void)block, (void)bytes;
  run_as(dtype, kind, call);
}

static void fused_ops_have_the_bits_of_others_in_f32(void **state) {
  (void)state;
  check_fused_ops(PEN_F32, run_here);
}

static void fused_ops_have_the_bits_of_others_in_bf16(void **state) {
  (void)state;
  check_fused_ops(PEN_BF16, run_here);
}

static void a_cache_has_the_bits_of_attention(void **state) {
  (void)state;
  check_cached_ops(PEN_F32, run_here);
  check_cached_ops(PEN_BF16, run_here);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(fused_ops_have_the_bits_of_others_in_f32, free_tensors),
      cmocka_unit_test_teardown(fused_ops_have_the_bits_of_others_in_bf16, free_tensors),
      cmocka_unit_test_teardown(a_cache_has_the_bits_of_attention, free_tensors),
  };
  return RUN_ON_EVERY_SET(tests);
}
