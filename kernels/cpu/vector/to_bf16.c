/* to_bf16.c: ACCUMULATE, and conversion of rows between f32 and bf16. */
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/vector.h"

void PEN_NAME(accumulate)(const struct pen_call *call) {
  const float *x = call->operand[0];
  float *sum = call->operand[1];
  const size_t count = (size_t)call->dim[0];
  for (size_t i = 0; i < count; i += LANES)
    store_n(sum + i, load_n(sum + i, count - i) + load_n(x + i, count - i), count - i);
}

void PEN_NAME(widen_rows)(float *to, size_t to_row, const uint16_t *from, size_t from_row,
                          size_t rows, size_t width) {
  const bf16 *half = (const bf16 *)(const void *)from;
  for (size_t r = 0; r < rows; r++, to += to_row, half += from_row)
    for (size_t i = 0; i < width; i += LANES)
      store_n(to + i, load_n(half + i, width - i), width - i);
}

void PEN_NAME(narrow_rows)(uint16_t *to, size_t to_row, const float *from, size_t from_row,
                           size_t rows, size_t width) {
  bf16 *half = (bf16 *)(void *)to;
  for (size_t r = 0; r < rows; r++, half += to_row, from += from_row)
    for (size_t i = 0; i < width; i += LANES)
      store_n(half + i, load_n(from + i, width - i), width - i);
}
