/* kernels_narrow.c: f32 to bf16 and back: every bf16, every place where rounding turns, what is not
 * a number; and the ops' loads and stores. */
#include "tests/support/kernels_support.h"

enum { HALVES = 1 << 16 };

static void widening_is_exact(void **state) {
  (void)state;
  uint16_t *half = bytes_at(HALVES * sizeof *half, 0), *back = bytes_at(HALVES * sizeof *back, 0);
  float *wide = floats(HALVES);
  for (uint32_t i = 0; i < HALVES; i++) half[i] = (uint16_t)i;
  pen_bf16_to_f32(wide, half, HALVES);
  for (uint32_t i = 0; i < HALVES; i++) {
    uint32_t bits;
    memcpy(&bits, &wide[i], sizeof bits);
    assert_int_equal(bits, i << 16);
  }
  pen_f32_to_bf16(back, wide, HALVES); /* a signalling NaN comes back quiet, all else as it was */
  for (uint32_t i = 0; i < HALVES; i++)
    assert_int_equal(back[i], isnan(float_of(half[i])) ? half[i] | 0x40 : half[i]);
}

/* What lies on a bf16, at, just below and just above the middle to the next, and just below the
 * next. */
static void narrowing_takes_the_nearest(void **state) {
  static const uint32_t lower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  for (size_t n = 0; n < sizeof lower / sizeof *lower; n++) {
    float *wide = floats(HALVES);
    uint16_t *half = bytes_at(HALVES * sizeof *half, 0);
    for (uint32_t i = 0; i < HALVES; i++) {
      const uint32_t bits = i << 16 | lower[n];
      memcpy(&wide[i], &bits, sizeof bits);
    }
    pen_f32_to_bf16(half, wide, HALVES);
    for (uint32_t i = 0; i < HALVES; i++)
      if (half[i] != half_of(wide[i]))
        fail_msg("%a becomes %#x, not %#x", (double)wide[i], half[i], half_of(wide[i]));
    free_tensors(state);
  }
}

/* Any count, and not one element past it. */
static void counts_are_kept(void **state) {
  (void)state;
  enum { MOST = 70 };
  for (size_t count = 0; count <= MOST; count++) {
    float *wide = random_floats(MOST, count + 1), *back = floats(MOST);
    uint16_t *half = bytes_at(MOST * sizeof *half, 0);
    pen_f32_to_bf16(half, wide, count);
    pen_bf16_to_f32(back, half, count);
    for (size_t i = 0; i < MOST; i++) {
      assert_int_equal(half[i], i < count ? half_of(wide[i]) : 0x7f7f);
      assert_true(back[i] == (i < count ? float_of(half[i]) : 0x1.fefefep127f));
    }
    free_tensors(NULL);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(widening_is_exact),
      cmocka_unit_test(narrowing_takes_the_nearest),
      cmocka_unit_test(counts_are_kept),
  };
  return RUN_ON_EVERY_SET(tests);
}
