/* narrow.c: conversion between f32 and bf16: each bf16, each rounding boundary, NaN; and the loads
 * and stores of ops. */
#include "tests/support/kernels_support.h"

enum { HALVES = 1 << 16 };

static void bf16_to_f32_is_exact(void **state) {
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
  pen_f32_to_bf16(back, wide, HALVES); /* a signalling NaN becomes quiet, all else is unchanged */
  for (uint32_t i = 0; i < HALVES; i++)
    assert_int_equal(back[i], isnan(float_of(half[i])) ? half[i] | 0x40 : half[i]);
}

/* A bf16, at, just below and just above the middle to the next, and just below the next. */
static void f32_to_bf16_rounds_to_nearest(void **state) {
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

/* Any count; nothing is written after the last element. */
static void any_count_is_converted(void **state) {
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
      cmocka_unit_test(bf16_to_f32_is_exact),
      cmocka_unit_test(f32_to_bf16_rounds_to_nearest),
      cmocka_unit_test(any_count_is_converted),
  };
  return RUN_ON_EVERY_SET(tests);
}
