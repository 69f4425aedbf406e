/* attention_cached.c: ATTENTION_CACHED, a chunk or a token at a time, in any slot, gives the bits
 * of ATTENTION over the whole sequence, in f32 and in bf16; and leaves other slots alone. */
#include "tests/support/kernels_support.h"

enum { SLOTS = 3 };

/* sequence, heads, kv_heads, head_dim, tokens of a chunk */
static const int64_t shapes[][5] = {
    {1, 1, 1, 1, 1},     {17, 3, 3, 16, 1},   {48, 4, 2, 20, 16}, {96, 2, 1, 33, 48},
    {192, 2, 2, 64, 64}, {320, 2, 1, 32, 64}, {608, 1, 1, 8, 32}, {160, 6, 2, 128, 32},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* The tensors of one sequence, and what ATTENTION makes of them. */
struct subject {
  enum pen_dtype dtype;
  size_t sequence, q_row, k_row, element_bytes;
  int64_t heads, kv_heads, head_dim, window;
  unsigned char *q, *k, *v, *o;
};

static unsigned char *numbers(const struct subject *s, size_t count, uint64_t key) {
  float *x = random_floats(count, key);
  return s->dtype == PEN_BF16 ? (unsigned char *)halves(x, count) : (unsigned char *)x;
}

static struct subject pose(enum pen_dtype dtype, const int64_t *shape, int64_t window,
                           uint64_t key) {
  struct subject s = {.dtype = dtype,
                      .sequence = (size_t)shape[0],
                      .q_row = (size_t)(shape[1] * shape[3]),
                      .k_row = (size_t)(shape[2] * shape[3]),
                      .element_bytes = pen_dtype_bytes((int)dtype),
                      .heads = shape[1],
                      .kv_heads = shape[2],
                      .head_dim = shape[3],
                      .window = window};
  s.q = numbers(&s, s.sequence * s.q_row, key);
  s.k = numbers(&s, s.sequence * s.k_row, key + 1);
  s.v = numbers(&s, s.sequence * s.k_row, key + 2);
  s.o = bytes_at(s.sequence * s.q_row * s.element_bytes, 0);
  struct pen_call call = {
      .operand = {s.q, s.k, s.v, NULL, s.o, floats(s.sequence * (size_t)s.heads)},
      .dim = {1, shape[0], shape[1], shape[2], shape[3], window}};
  run_as(dtype, PEN_OP_ATTENTION, &call);
  return s;
}

/* A cache and what it has to hold afterwards. */
struct held_cache {
  unsigned char *keys, *values;
};

/* Feeds `count` tokens from `first` on of two sequences at once; `slot` is the place of each. */
static void feed(const struct subject *subject, const struct held_cache *cache, const int32_t *slot,
                 size_t first, size_t count) {
  const struct subject *one = &subject[0];
  const size_t q_bytes = count * one->q_row * one->element_bytes,
               k_bytes = count * one->k_row * one->element_bytes,
               from_q = first * one->q_row * one->element_bytes,
               from_k = first * one->k_row * one->element_bytes;
  unsigned char *q = bytes_at(2 * q_bytes, 0), *k = bytes_at(2 * k_bytes, 0),
                *v = bytes_at(2 * k_bytes, 0), *o = bytes_at(2 * q_bytes, 0);
  int32_t *starts = bytes_at(2 * count * sizeof *starts, 0);
  for (size_t i = 0; i < 2; i++) {
    memcpy(q + i * q_bytes, subject[i].q + from_q, q_bytes);
    memcpy(k + i * k_bytes, subject[i].k + from_k, k_bytes);
    memcpy(v + i * k_bytes, subject[i].v + from_k, k_bytes);
  }
  for (size_t t = 0; t < 2 * count; t++) starts[t] = -(int32_t)first;
  int32_t *slots = memcpy(bytes_at(2 * sizeof *slots, 0), slot, 2 * sizeof *slots);
  struct pen_call call = {.operand = {q, k, v, starts, slots, o, cache->keys, cache->values},
                          .dim = {2, (int64_t)count, one->heads, one->kv_heads, one->head_dim,
                                  one->window, SLOTS, (int64_t)one->sequence}};
  run_as(one->dtype, PEN_OP_ATTENTION_CACHED, &call);
  for (size_t i = 0; i < 2; i++) {
    if (slot[i] >= 0) {
      assert_same_bits("o", o + i * q_bytes, subject[i].o + from_q, q_bytes);
      continue;
    }
    for (size_t b = 0; b < q_bytes; b++) assert_int_equal(o[i * q_bytes + b], 0);
  }
  for (int i = 0; i < 7; i++) free_last_tensor(); /* the last one is the workspace */
}

/* The first part in chunks, the second token by token; the second sequence only takes part in the
 * first tokens, and the third slot stays as it was. */
static void check(enum pen_dtype dtype, const int64_t *shape, int64_t window) {
  const struct subject subject[2] = {pose(dtype, shape, window, 1), pose(dtype, shape, window, 11)};
  const size_t sequence = subject[0].sequence, chunk = (size_t)shape[4],
               bytes = sequence * subject[0].k_row * subject[0].element_bytes;
  const struct held_cache cache = {memset(bytes_at(SLOTS * bytes, 0), 0xff, SLOTS * bytes),
                                   memset(bytes_at(SLOTS * bytes, 0), 0xff, SLOTS * bytes)};
  const int32_t both[2] = {2, 0}, first_alone[2] = {2, -1};
  size_t first = 0;
  for (; first < sequence / 2 / chunk * chunk; first += chunk)
    feed(subject, &cache, both, first, chunk);
  for (; first < sequence; first++) feed(subject, &cache, first_alone, first, 1);
  assert_same_bits("keys", cache.keys + 2 * bytes, subject[0].k, bytes);
  assert_same_bits("values", cache.values + 2 * bytes, subject[0].v, bytes);
  for (size_t b = 0; b < bytes; b++) assert_int_equal(cache.keys[bytes + b], 0xff);
}

/* With windows from the whole sequence down to a few tokens. */
static void has_the_bits_of_attention(void **state) {
  for (int s = 0; s < SHAPES; s++) {
    for (int64_t window = shapes[s][0]; window > 0; window /= 7) {
      check(PEN_F32, shapes[s], window);
      free_tensors(state);
      check(PEN_BF16, shapes[s], window);
      free_tensors(state);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(has_the_bits_of_attention, free_tensors),
  };
  return run_on_every_set(tests, sizeof tests / sizeof *tests);
}
