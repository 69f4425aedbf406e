/* rope.c: ROPE and ROPE_DX: rotation of queries and keys by position (Su et al. 2021), with split
 * halves as in Llama; ROPE_QKV and ROPE_QKV_DX: of the first heads of a row; ROPE_PART and
 * ROPE_PART_DX: of the first elements of each head, by halves or by pairs. */
#include <string.h>

#include "kernels/cpu/threads.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/vector.h"

/* Rotates the vector of a head by the angles of a position: (lo, hi) -> (lo cos - hi sin, hi cos +
 * lo sin). y may be x: each step loads both halves before it stores. turn: 1, or -1 for the
 * inverse. */
static inline void rotate(stored *y, const stored *x, const float *cosine, const float *sine,
                          size_t half, float turn) {
  for (size_t i = 0; i < half; i += LANES) {
    const size_t n = half - i;
    vf lo = load_n(x + i, n), hi = load_n(x + half + i, n);
    vf c = load_n(cosine + i, n), s = load_n(sine + i, n) * turn;
    store_n(y + i, lo * c - hi * s, n);
    store_n(y + half + i, hi * c + lo * s, n);
  }
}

/* The same of adjacent elements, one by one. */
static inline void rotate_pairs(stored *y, const stored *x, const float *cosine, const float *sine,
                                size_t half, float turn) {
  for (size_t i = 0; i < half; i++) {
    const float one = widen(x[2 * i]), other = widen(x[2 * i + 1]), s = sine[i] * turn;
    store_n(y + 2 * i, splat(one * cosine[i] - other * s), 1);
    store_n(y + 2 * i + 1, splat(other * cosine[i] + one * s), 1);
  }
}

/* What turns: of a row the first heads, of each of them the first elements, by halves or by pairs.
 */
struct rotated {
  size_t heads, part;
  bool pairs;
};

/* A row is the heads of a token. */
static inline void rotate_rows(const struct pen_call *call, float turn, struct rotated rotated,
                               size_t first, size_t past) {
  const stored *x = call->operand[0];
  const float *table = call->operand[1];
  const int32_t *starts = call->operand[2];
  stored *y = call->operand[3];
  const size_t sequence = (size_t)call->dim[1], heads = (size_t)call->dim[2],
               head_dim = (size_t)call->dim[3], half = rotated.part / 2;
  for (size_t row = first; row < past; row++) {
    for (size_t h = 0; h < rotated.heads; h++) {
      const size_t at = (row * heads + h) * head_dim, t = row % sequence;
      const size_t position = starts ? t - (size_t)starts[row] : t;
      const float *angles = table + position * rotated.part;
      (rotated.pairs ? rotate_pairs : rotate)(y + at, x + at, angles, angles + half, half, turn);
      if (y != x)
        memcpy(y + at + rotated.part, x + at + rotated.part, (head_dim - rotated.part) * sizeof *y);
    }
    const size_t rest = (row * heads + rotated.heads) * head_dim;
    if (y != x) memcpy(y + rest, x + rest, (heads - rotated.heads) * head_dim * sizeof *y);
  }
}

static struct rotated all_heads(const struct pen_call *call) {
  return (struct rotated){(size_t)call->dim[2], (size_t)call->dim[3], false};
}

static struct rotated heads_of_q_and_k(const struct pen_call *call) {
  return (struct rotated){(size_t)(call->dim[5] + call->dim[6]), (size_t)call->dim[3], false};
}

static struct rotated parts_of_heads(const struct pen_call *call) {
  return (struct rotated){(size_t)call->dim[2], (size_t)call->dim[5], call->dim[6] > 0};
}

#define ROTATION(name, turn, rotated)                                                    \
  static void name##_tiles(const void *call, size_t thread, size_t first, size_t past) { \
    (void)thread;                                                                        \
    rotate_rows(call, turn, rotated(call), first, past);                                 \
  }                                                                                      \
  void PEN_NAME(name)(const struct pen_call *call) {                                     \
    pen_parallel_rows((size_t)(call->dim[0] * call->dim[1]),                             \
                      (size_t)(call->dim[2] * call->dim[3]), name##_tiles, call);        \
  }
ROTATION(rope, 1.0f, all_heads)
ROTATION(rope_dx, -1.0f, all_heads)
ROTATION(rope_qkv, 1.0f, heads_of_q_and_k)
ROTATION(rope_qkv_dx, -1.0f, heads_of_q_and_k)
ROTATION(rope_part, 1.0f, parts_of_heads)
ROTATION(rope_part_dx, -1.0f, parts_of_heads)
