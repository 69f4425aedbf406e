/* rope.c: ROPE and ROPE_DX: rotation of queries and keys by position (Su et al. 2021), with split
 * halves as in Llama; ROPE_QKV and ROPE_QKV_DX: of the first heads of a row. */
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

/* A row is the heads of a token, of which the first `rotated` turn. */
static inline void rotate_rows(const struct pen_call *call, float turn, size_t rotated,
                               size_t first, size_t past) {
  const stored *x = call->operand[0];
  const float *table = call->operand[1];
  const int32_t *starts = call->operand[2];
  stored *y = call->operand[3];
  const size_t sequence = (size_t)call->dim[1], heads = (size_t)call->dim[2],
               head_dim = (size_t)call->dim[3];
  for (size_t row = first; row < past; row++) {
    for (size_t h = 0; h < rotated; h++) {
      const size_t at = (row * heads + h) * head_dim, t = row % sequence;
      const size_t position = starts ? t - (size_t)starts[row] : t;
      const float *angles = table + position * head_dim;
      rotate(y + at, x + at, angles, angles + head_dim / 2, head_dim / 2, turn);
    }
    const size_t rest = (row * heads + rotated) * head_dim;
    if (y != x) memcpy(y + rest, x + rest, (heads - rotated) * head_dim * sizeof *y);
  }
}

static size_t all_heads(const struct pen_call *call) { return (size_t)call->dim[2]; }

static size_t heads_of_q_and_k(const struct pen_call *call) {
  return (size_t)(call->dim[5] + call->dim[6]);
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
