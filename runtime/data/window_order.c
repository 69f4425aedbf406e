/* window_order.c: the windows of an epoch in the order of the file, or shuffled (see
 * window_order.h). */
#include "runtime/data/window_order.h"

#include <stdio.h>

#include "runtime/base/key.h"

enum { FEISTEL_ROUNDS = 8, PHILOX_ROUNDS = 10 };

struct pen_window_order pen_window_order_shuffled(uint64_t seed, uint32_t file) {
  char stream[32] = "shuffle";
  struct pen_window_order order = {.shuffled = true, .seed = seed};
  if (file > 0) {
    snprintf(stream, sizeof stream, "shuffle %u", file);
  }
  pen_key(order.key, seed, stream);
  return order;
}

/* The first of the four words that Philox4x32-10 returns for a counter. */
static uint32_t philox(uint32_t a, uint32_t b, uint32_t c, uint32_t d, const uint32_t key[2]) {
  uint32_t key0 = key[0], key1 = key[1];
  for (int round = 0; round < PHILOX_ROUNDS; round++) {
    const uint64_t left = (uint64_t)a * 0xD2511F53u, right = (uint64_t)c * 0xCD9E8D57u;
    a = (uint32_t)(right >> 32) ^ b ^ key0;
    c = (uint32_t)(left >> 32) ^ d ^ key1;
    b = (uint32_t)right;
    d = (uint32_t)left;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return a;
}

/* Permutes the numbers below 4^half_bits. */
static uint64_t permute(const struct pen_window_order *order, uint64_t epoch, uint64_t number,
                        unsigned half_bits) {
  const uint64_t mask = ((uint64_t)1 << half_bits) - 1;
  uint64_t left = number >> half_bits, right = number & mask;
  for (uint32_t round = 0; round < FEISTEL_ROUNDS; round++) {
    const uint64_t next = left ^ (philox((uint32_t)right, round, (uint32_t)epoch,
                                         (uint32_t)(epoch >> 32), order->key) &
                                  mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

uint64_t pen_window_at(const struct pen_window_order *order, uint64_t position,
                       uint64_t window_count) {
  const uint64_t group = order->group > 1 ? order->group : 1, count = window_count / group,
                 place = position % window_count;
  uint64_t window = place / group;
  unsigned half_bits = 0;
  if (!order->shuffled) {
    return place;
  }
  while (half_bits < 32 && (uint64_t)1 << 2 * half_bits < count) {
    half_bits++;
  }
  do {
    window = permute(order, position / window_count, window, half_bits);
  } while (window >= count);
  return window * group + place % group;
}
