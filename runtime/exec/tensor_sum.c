/* tensor_sum.c: the checksum of a tensor (see tensor_sum.h).
 *
 * It is that of Fletcher (1982) with 64-bit sums, in LANES lanes. Lane l has the words x[LANES*t +
 * l]; `a` is the sum of its words so far, and `b` the sum of all values that `a` took. After T
 * words b = sum of (T - t)*x, so that sum of t*x = T*a - b: a word costs two additions. */
#include "runtime/exec/tensor_sum.h"

#include <string.h>

enum { PAIRS = 4, LANES = 2 * PAIRS, WORD_BYTES = 4, LANES_BYTES = LANES * WORD_BYTES };

/* A word of two lanes each: the even ones and the odd ones. */
typedef uint64_t pairs __attribute__((vector_size(LANES_BYTES)));

static uint32_t word_at(const unsigned char *tensor, size_t bytes, uint64_t index) {
  const size_t at = (size_t)index * WORD_BYTES, left = bytes - at;
  uint32_t word = 0;
  memcpy(&word, tensor + at, left < WORD_BYTES ? left : WORD_BYTES);
  return word;
}

static uint64_t word_count(size_t bytes) { return (bytes + WORD_BYTES - 1) / WORD_BYTES; }

static inline __attribute__((always_inline)) struct pen_audit_sum sum_of(const void *tensor,
                                                                         size_t bytes) {
  const unsigned char *at = tensor;
  const uint64_t rounds = bytes / LANES_BYTES, count = word_count(bytes);
  pairs a[2] = {{0}}, b[2] = {{0}};
  for (uint64_t t = 0; t < rounds; t++) {
    pairs x;
    memcpy(&x, at + t * LANES_BYTES, sizeof x);
    a[0] += x & UINT32_MAX;
    b[0] += a[0];
    a[1] += x >> 32;
    b[1] += a[1];
  }
  struct pen_audit_sum sum = {0};
  for (uint64_t l = 0; l < LANES; l++) {
    const uint64_t first = a[l % 2][l / 2], all = b[l % 2][l / 2];
    sum.words += first;
    sum.weighted += LANES * (rounds * first - all) + l * first;
  }
  for (uint64_t i = rounds * LANES; i < count; i++) {
    const uint64_t word = word_at(at, bytes, i);
    sum.words += word;
    sum.weighted += i * word;
  }
  return sum;
}

#ifdef __x86_64__
/* Three times as fast. */
__attribute__((target("avx2"))) static struct pen_audit_sum sum_of_avx2(const void *tensor,
                                                                        size_t bytes) {
  return sum_of(tensor, bytes);
}
#endif

struct pen_audit_sum pen_tensor_sum(const void *tensor, size_t bytes) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) {
    return sum_of_avx2(tensor, bytes);
  }
#endif
  return sum_of(tensor, bytes);
}

bool pen_tensor_sum_locate(struct pen_audit_sum before, struct pen_audit_sum after,
                           const void *tensor, size_t bytes, uint64_t *word, uint32_t *was) {
  const int64_t change = (int64_t)(after.words - before.words),
                weighted = (int64_t)(after.weighted - before.weighted);
  if (change == 0 || weighted == INT64_MIN || change < -(int64_t)UINT32_MAX ||
      change > (int64_t)UINT32_MAX || weighted % change != 0 || weighted / change < 0 ||
      (uint64_t)(weighted / change) >= word_count(bytes)) {
    return false;
  }
  *word = (uint64_t)(weighted / change);
  const int64_t old = (int64_t)word_at(tensor, bytes, *word) - change;
  *was = (uint32_t)old;
  return old >= 0 && old <= (int64_t)UINT32_MAX;
}
