/* attention.c: ATTENTION and ATTENTION_FULL, and their gradients, against the formula in f64, and
 * the formula against finite differences; in bf16 also the code for CPUs with bf16 products, on any
 * CPU (attention_wide_bf16.c and attention_dx_wide_bf16.c). */
#include "kernels/device.h"
#include "tests/support/kernels_support.h"

extern pen_kernel pen_wide_bf16_attention, pen_wide_bf16_attention_dx, pen_wide_bf16_attention_full,
    pen_wide_bf16_attention_full_dx;

/* batch, sequence, heads, kv_heads, head_dim */
static const int64_t shapes[][5] = {
    {1, 1, 1, 1, 1},     {2, 3, 2, 1, 5},    {1, 17, 3, 3, 16},  {2, 50, 4, 2, 20},
    {1, 97, 2, 1, 33},   {1, 193, 2, 2, 64}, {1, 256, 2, 1, 32}, {1, 401, 1, 1, 8},
    {1, 145, 6, 2, 128}, {1, 60, 2, 2, 256},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

struct attention_case {
  size_t batch, sequence, heads, kv_heads, head_dim;
  double *q, *k, *v, *dout; /* inputs */
  const int32_t *starts;    /* starts of documents; null: one for each sequence */
  size_t window;            /* how many tokens a query sees at most */
  int full;                 /* ATTENTION_FULL: it sees all keys */
  size_t keys;              /* of a sequence */
  const int32_t *mask;      /* 0 for hidden keys; null: none is */
  double cap;               /* of scores; 0: none */
  double *o, *lse, *dq, *dk, *dv;
  double *o_size, *dq_size, *dk_size, *dv_size; /* sums of the magnitudes of the terms */
};

static size_t q_at(const struct attention_case *p, size_t b, size_t t, size_t h) {
  return ((b * p->sequence + t) * p->heads + h) * p->head_dim;
}

static size_t k_at(const struct attention_case *p, size_t b, size_t t, size_t h) {
  return ((b * p->keys + t) * p->kv_heads + h / (p->heads / p->kv_heads)) * p->head_dim;
}

/* The first key that a query sees. */
static size_t first_key(const struct attention_case *p, size_t b, size_t t) {
  const size_t start = p->starts ? (size_t)p->starts[b * p->sequence + t] : 0;
  return t + 1 > start + p->window ? t + 1 - p->window : start;
}

/* Past the last key that a query sees. */
static size_t past_key(const struct attention_case *p, size_t t) {
  return p->full ? p->keys : t + 1;
}

static int is_shown(const struct attention_case *p, size_t b, size_t key) {
  return !p->mask || p->mask[b * p->keys + key];
}

static void add(double *sum, double *size, double part) { *sum += part, *size += fabs(part); }

static double dot(const double *a, const double *b, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}

/* Probabilities of a query, and the derivatives of the cap; returns its log-sum-exp. */
static double chances(const struct attention_case *p, size_t b, size_t t, size_t h, double *chance,
                      double *slope) {
  double most = -INFINITY, sum = 0;
  const size_t first = first_key(p, b, t), past = past_key(p, t);
  for (size_t j = first; j < past; j++) {
    const double score = dot(p->q + q_at(p, b, t, h), p->k + k_at(p, b, j, h), p->head_dim) /
                         sqrt((double)p->head_dim),
                 turned = p->cap > 0 ? tanh(score / p->cap) : 0;
    slope[j] = 1 - turned * turned;
    chance[j] = !is_shown(p, b, j) ? -INFINITY : p->cap > 0 ? p->cap * turned : score;
    most = fmax(most, chance[j]);
  }
  for (size_t j = first; j < past; j++)
    sum += chance[j] = is_shown(p, b, j) ? exp(chance[j] - most) : 0;
  for (size_t j = first; j < past && sum > 0; j++) chance[j] /= sum;
  return sum > 0 ? most + log(sum) : 0;
}

static void forward(struct attention_case *p) {
  double chance[512], slope[512];
  for (size_t i = 0; i < p->batch * p->sequence * p->heads; i++) {
    const size_t h = i % p->heads, t = i / p->heads % p->sequence, b = i / p->heads / p->sequence;
    double *o = p->o + q_at(p, b, t, h);
    p->lse[(b * p->heads + h) * p->sequence + t] = chances(p, b, t, h, chance, slope);
    double *size = p->o_size + q_at(p, b, t, h);
    memset(o, 0, p->head_dim * sizeof *o);
    memset(size, 0, p->head_dim * sizeof *size);
    for (size_t j = first_key(p, b, t); j < past_key(p, t); j++)
      for (size_t d = 0; d < p->head_dim; d++)
        add(&o[d], &size[d], chance[j] * p->v[k_at(p, b, j, h) + d]);
  }
}

/* The closed form of the gradient; a test below checks it against finite differences of forward().
 */
static void backward(struct attention_case *p) {
  double chance[512], slope[512];
  for (size_t i = 0; i < p->batch * p->sequence * p->heads; i++) {
    const size_t h = i % p->heads, t = i / p->heads % p->sequence, b = i / p->heads / p->sequence,
                 at = q_at(p, b, t, h);
    chances(p, b, t, h, chance, slope);
    const double delta = dot(p->dout + at, p->o + at, p->head_dim);
    for (size_t j = first_key(p, b, t); j < past_key(p, t); j++) {
      const size_t key = k_at(p, b, j, h);
      const double ds = slope[j] * chance[j] *
                        (dot(p->dout + at, p->v + key, p->head_dim) - delta) /
                        sqrt((double)p->head_dim);
      for (size_t d = 0; d < p->head_dim; d++) {
        add(&p->dq[at + d], &p->dq_size[at + d], ds * p->k[key + d]);
        add(&p->dk[key + d], &p->dk_size[key + d], ds * p->q[at + d]);
        add(&p->dv[key + d], &p->dv_size[key + d], chance[j] * p->dout[at + d]);
      }
    }
  }
}

static double *zeros(size_t count) { return memset(doubles(count), 0, count * sizeof(double)); }

static struct attention_case pose(const int64_t *shape, size_t keys, const float *q, const float *k,
                                  const float *v, const float *dout) {
  struct attention_case p = {(size_t)shape[0],          (size_t)shape[1], (size_t)shape[2],
                             (size_t)shape[3],          (size_t)shape[4], .keys = keys,
                             .window = (size_t)shape[1]};
  const size_t q_count = p.batch * p.sequence * p.heads * p.head_dim,
               k_count = p.batch * keys * p.kv_heads * p.head_dim;
  p.q = widened(q, q_count), p.k = widened(k, k_count), p.v = widened(v, k_count),
  p.dout = widened(dout, q_count);
  p.o = doubles(q_count), p.lse = doubles(p.batch * p.heads * p.sequence);
  p.dq = zeros(q_count), p.dk = zeros(k_count), p.dv = zeros(k_count);
  p.o_size = doubles(q_count), p.dq_size = zeros(q_count), p.dk_size = zeros(k_count),
  p.dv_size = zeros(k_count);
  return p;
}

/* Documents of about `length` tokens, some of one token; 0: no starts. Sequences differ. */
static int32_t *some_starts(size_t batch, size_t sequence, size_t length) {
  int32_t *starts = bytes_at(batch * sequence * sizeof *starts, 0);
  uint64_t state = length;
  for (size_t b = 0; b < batch; b++)
    for (size_t t = 0, start = 0, left = 0; t < sequence; t++, left--) {
      if (left == 0) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        start = t;
        left = state >> 63 ? 1 : 1 + (state >> 33) % (2 * length);
      }
      starts[b * sequence + t] = (int32_t)start;
    }
  return starts;
}

/* Keys that are shown, at least one of each sequence but the second, which shows none. */
static int32_t *some_mask(size_t batch, size_t keys) {
  int32_t *mask = bytes_at(batch * keys * sizeof *mask, 0);
  for (size_t i = 0; i < batch * keys; i++)
    mask[i] = i / keys != 1 && (i % keys * 7 % 11 < 5 || i % keys < keys / 9);
  return mask;
}

/* What a check has besides its shape. `sharpness` scales q, so that the softmax is flat or nearly
 * one-hot; documents have about `length` tokens; 0: one for each sequence. */
struct variant {
  float sharpness;
  size_t length;
  int64_t window;
  double cap;
  int64_t keys; /* of ATTENTION_FULL; 0: it is ATTENTION */
  int masks;
};

/* Poses the case of a variant, whose integers are those of the calls. */
static void vary(struct attention_case *p, const struct variant *as, const int32_t *integers) {
  p->window = as->keys ? (size_t)as->keys + p->sequence : (size_t)as->window;
  p->full = as->keys > 0;
  p->cap = as->cap;
  *(p->full ? &p->mask : &p->starts) = integers;
}

static int32_t *integers_of(const int64_t *s, const struct variant *as) {
  if (as->keys) return as->masks ? some_mask((size_t)s[0], (size_t)as->keys) : NULL;
  return as->length ? some_starts((size_t)s[0], (size_t)s[1], as->length) : NULL;
}

/* The calls of both directions, of any dtype. */
static struct pen_call forward_call(const int64_t *s, const struct variant *as, void *q, void *k,
                                    void *v, void *integers, void *o, void *lse) {
  return (struct pen_call){.operand = {q, k, v, integers, o, lse},
                           .dim = {s[0], s[1], s[2], s[3], s[4], as->keys ? as->keys : as->window},
                           .real = {as->cap}};
}

static struct pen_call backward_call(const struct pen_call *of, void *dout) {
  void *const *p = of->operand;
  struct pen_call call = *of;
  const void *const operand[] = {dout, p[0], p[1], p[2], p[4], p[5], p[3], p[0], p[1], p[2]};
  memcpy(call.operand, operand, sizeof operand);
  return call;
}

/* Runs both ops on a shape. */
static void check(const int64_t *s, const struct variant *as) {
  const size_t rows = (size_t)(s[0] * s[1]), q_count = rows * (size_t)(s[2] * s[4]),
               keys = (size_t)(as->keys ? as->keys : s[1]),
               k_count = (size_t)s[0] * keys * (size_t)(s[3] * s[4]);
  const size_t lse_count = rows * (size_t)s[2];
  float *q = random_floats(q_count, 1), *k = random_floats(k_count, 2),
        *v = random_floats(k_count, 3);
  float *dout = random_floats(q_count, 4), *o = floats(q_count), *lse = floats(lse_count);
  for (size_t i = 0; i < q_count; i++) q[i] *= as->sharpness;
  struct attention_case p = pose(s, keys, q, k, v, dout);
  int32_t *integers = integers_of(s, as);
  vary(&p, as, integers);
  forward(&p);
  backward(&p);
  struct pen_call call = forward_call(s, as, q, k, v, integers, o, lse);
  run(p.full ? PEN_OP_ATTENTION_FULL : PEN_OP_ATTENTION, &call);
  const double tolerance = 1e-6 * (1 + (double)as->sharpness);
  assert_near("o", o, p.o, q_count, tolerance, 1);
  assert_near("lse", lse, p.lse, lse_count, tolerance, 1);
  struct pen_call back = backward_call(&call, dout);
  run(p.full ? PEN_OP_ATTENTION_FULL_DX : PEN_OP_ATTENTION_DX, &back);
  assert_near("dq", q, p.dq, q_count, 4 * tolerance, 1);
  assert_near("dk", k, p.dk, k_count, 4 * tolerance, 1);
  assert_near("dv", v, p.dv, k_count, 4 * tolerance, 1);
}

static void matches_the_formula(void **state) {
  for (int s = 0; s < SHAPES; s++) {
    check(shapes[s], &(struct variant){1, 0, shapes[s][1], 0, 0, 0});
    free_tensors(state);
    check(shapes[s], &(struct variant){20, 0, shapes[s][1], 0, 0, 0});
    free_tensors(state);
  }
}

/* Not the shortest shapes: with documents of one token the gradients of q and k are 0, for which
 * there is no relative error. */
static void documents_do_not_see_each_other(void **state) {
  for (int s = 2; s < SHAPES; s++)
    for (size_t length = 2; length < 400; length = 3 * length + 2) {
      check(shapes[s], &(struct variant){1, length, shapes[s][1], 0, 0, 0});
      free_tensors(state);
      check(shapes[s], &(struct variant){20, length, shapes[s][1], 0, 0, 0});
      free_tensors(state);
    }
}

/* Windows smaller than a tile, of some tiles or blocks, of all but one token, and longer than a
 * sequence; without documents, and with documents shorter and longer than the window. Not of one
 * token, for the same reason. */
static void windows_hide_earlier_tokens(void **state) {
  for (int s = 2; s < SHAPES; s++) {
    const int64_t sequence = shapes[s][1],
                  windows[] = {2, 5, 17, 100, sequence - 1, sequence, 2 * sequence};
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
      for (size_t length = 0; length < 100; length = 6 * length + 4) {
        check(shapes[s], &(struct variant){1, length, windows[w], 0, 0, 0});
        free_tensors(state);
      }
  }
}

/* Caps that scores reach, with and without windows and documents. */
static void caps_bend_scores(void **state) {
  for (int s = 1; s < SHAPES; s++)
    for (int n = 0; n < 4; n++) {
      const struct variant as = {
          n % 2 ? 20 : 4, n == 2 ? 40 : 0, n == 3 ? 17 : shapes[s][1], n % 2 ? 30 : 1.25, 0, 0};
      check(shapes[s], &as);
      free_tensors(state);
    }
}

/* How many keys ATTENTION_FULL has of a shape: as many as queries, fewer, and more. */
static int64_t keys_of(int s, int n) {
  return n == 0 ? shapes[s][1] : n == 1 ? shapes[s][1] / 2 + 1 : shapes[s][1] + 37;
}

static void full_attention_sees_all_keys(void **state) {
  for (int s = 2; s < SHAPES; s++)
    for (int n = 0; n < 6; n++) {
      check(shapes[s], &(struct variant){1, 0, 0, n == 4 ? 2 : 0, keys_of(s, n % 3), n > 2});
      free_tensors(state);
    }
}

/* What hidden keys and values are does not change a bit. */
static void hidden_keys_are_not_read(void **state) {
  enum { SEQUENCE = 40, KEYS = 133, WIDTH = 24 };
  (void)state;
  int32_t *mask = some_mask(1, KEYS);
  float *q = random_floats(SEQUENCE * WIDTH, 1), *k = random_floats(KEYS * WIDTH, 2),
        *v = random_floats(KEYS * WIDTH, 3), *o[2], *lse = floats(SEQUENCE);
  const struct variant as = {1, 0, 0, 5, KEYS, 1};
  const int64_t shape[] = {1, SEQUENCE, 1, 1, WIDTH};
  for (int n = 0; n < 2; n++) {
    o[n] = floats(SEQUENCE * WIDTH);
    struct pen_call call = forward_call(shape, &as, q, k, v, mask, o[n], lse);
    run(PEN_OP_ATTENTION_FULL, &call);
    for (size_t i = 0; i < KEYS * WIDTH; i++)
      if (!mask[i / WIDTH]) k[i] = 3, v[i] = 1e9f;
  }
  assert_same_bits("o", o[0], o[1], SEQUENCE * WIDTH * sizeof(float));
}

/* A query that sees itself alone has its value. */
static void a_window_of_one_token_is_its_value(void **state) {
  (void)state;
  enum { SEQUENCE = 130, WIDTH = 24 };
  float *q = random_floats(SEQUENCE * WIDTH, 1), *k = random_floats(SEQUENCE * WIDTH, 2);
  float *v = random_floats(SEQUENCE * WIDTH, 3), *o = floats(SEQUENCE * WIDTH);
  struct pen_call call = {.operand = {q, k, v, NULL, o, floats(SEQUENCE)},
                          .dim = {1, SEQUENCE, 1, 1, WIDTH, 1}};
  run(PEN_OP_ATTENTION, &call);
  assert_same_bits("o", o, v, SEQUENCE * WIDTH * sizeof *o);
}

/* One document for each sequence, with or without starts: the same bits. */
static void one_document_needs_no_starts(void **state) {
  for (int s = 0; s < SHAPES; s++) {
    const int64_t *d = shapes[s];
    const size_t rows = (size_t)(d[0] * d[1]), q_count = rows * (size_t)(d[2] * d[4]),
                 k_count = rows * (size_t)(d[3] * d[4]);
    int32_t *starts = memset(bytes_at(rows * sizeof *starts, 0), 0, rows * sizeof *starts);
    float *q = random_floats(q_count, 1), *k = random_floats(k_count, 2),
          *v = random_floats(k_count, 3), *dout = random_floats(q_count, 4);
    float *o[2], *lse[2], *dq[2], *dk[2], *dv[2];
    for (int said = 0; said < 2; said++) {
      o[said] = floats(q_count), lse[said] = floats(rows * (size_t)d[2]);
      dq[said] = floats(q_count), dk[said] = floats(k_count), dv[said] = floats(k_count);
      int32_t *given = said ? starts : NULL;
      struct pen_call call = {.operand = {q, k, v, given, o[said], lse[said]},
                              .dim = {d[0], d[1], d[2], d[3], d[4], d[1]}};
      struct pen_call back = {
          .operand = {dout, q, k, v, o[said], lse[said], given, dq[said], dk[said], dv[said]},
          .dim = {d[0], d[1], d[2], d[3], d[4], d[1]}};
      run(PEN_OP_ATTENTION, &call);
      run(PEN_OP_ATTENTION_DX, &back);
    }
    assert_same_bits("o", o[0], o[1], q_count * sizeof(float));
    assert_same_bits("lse", lse[0], lse[1], rows * (size_t)d[2] * sizeof(float));
    assert_same_bits("dq", dq[0], dq[1], q_count * sizeof(float));
    assert_same_bits("dk", dk[0], dk[1], k_count * sizeof(float));
    assert_same_bits("dv", dv[0], dv[1], k_count * sizeof(float));
    free_tensors(state);
  }
}

/* ---- bf16 ---- */

/* The kernels under test, and whether they round p and ds to bf16. */
struct implementation {
  pen_kernel *forward, *backward, *full_forward, *full_backward;
  int rounds;
};

/* With a workspace of the size in ops.def, filled with NaN; checks that nothing is written after
 * it. */
static void run_way(pen_kernel *kernel, enum pen_op_kind kind, struct pen_call *call) {
  enum { BEHIND = 4096 };
  const size_t bytes = pen_cpu.workspace_bytes(kind, PEN_BF16, call->dim);
  unsigned char *space = call->workspace =
      memset(bytes_at(bytes + BEHIND, 0), 0xff, bytes + BEHIND);
  kernel(call);
  for (size_t i = 0; i < BEHIND; i++) assert_int_equal(space[bytes + i], 0xff);
}

/* Rounding to bf16 changes a number by at most 2^-8: the result, and if p and ds are rounded, each
 * term of the sum, so the sum of magnitudes. The f32 sum has an error of `tolerance` of the
 * maximum, as in f32, and p of 6e-6, since its exponential is approximate. */
static void assert_near_bf16(const char *what, const uint16_t *actual, const double *expected,
                             const double *size, int rounds, size_t count, double tolerance) {
  double most = 0;
  for (size_t i = 0; i < count; i++) most = fmax(most, fabs(expected[i]));
  for (size_t i = 0; i < count; i++) {
    const double allowed = tolerance * (fabs(expected[i]) + most) + 0x1p-8 * fabs(expected[i]) +
                           (rounds ? (0x1p-8 + 2e-5) * size[i] : 0);
    if (!(fabs((double)float_of(actual[i]) - expected[i]) <= allowed))
      fail_msg("%s[%zu] is %.9g, expected %.9g within %.2g", what, i, (double)float_of(actual[i]),
               expected[i], allowed);
  }
}

/* check() in bf16. delta uses the stored o. */
static void check_implementation(const struct implementation *implementation, const int64_t *s,
                                 const struct variant *as) {
  const size_t rows = (size_t)(s[0] * s[1]), q_count = rows * (size_t)(s[2] * s[4]),
               keys = (size_t)(as->keys ? as->keys : s[1]),
               k_count = (size_t)s[0] * keys * (size_t)(s[3] * s[4]);
  const size_t lse_count = rows * (size_t)s[2];
  float *sharp = random_floats(q_count, 1), *lse = floats(lse_count);
  for (size_t i = 0; i < q_count; i++) sharp[i] *= as->sharpness;
  uint16_t *q = halves(sharp, q_count), *k = halves(random_floats(k_count, 2), k_count),
           *v = halves(random_floats(k_count, 3), k_count);
  uint16_t *dout = halves(random_floats(q_count, 4), q_count),
           *o = bytes_at(q_count * sizeof *o, 0);
  struct attention_case p = pose(s, keys, floats_of(q, q_count), floats_of(k, k_count),
                                 floats_of(v, k_count), floats_of(dout, q_count));
  int32_t *integers = integers_of(s, as);
  vary(&p, as, integers);
  forward(&p);
  struct pen_call call = forward_call(s, as, q, k, v, integers, o, lse);
  if (p.full)
    run_way(implementation->full_forward, PEN_OP_ATTENTION_FULL, &call);
  else
    run_way(implementation->forward, PEN_OP_ATTENTION, &call);
  const double tolerance = 1e-6 * (1 + (double)as->sharpness);
  assert_near_bf16("o", o, p.o, p.o_size, implementation->rounds, q_count, tolerance);
  for (size_t i = 0; i < lse_count; i++)
    if (!(fabs((double)lse[i] - p.lse[i]) <=
          tolerance * (1 + fabs(p.lse[i])) + 4e-6 * implementation->rounds))
      fail_msg("lse[%zu] is %.9g, expected %.9g", i, (double)lse[i], p.lse[i]);
  for (size_t i = 0; i < q_count; i++) p.o[i] = (double)float_of(o[i]);
  backward(&p);
  struct pen_call back = backward_call(&call, dout);
  if (p.full)
    run_way(implementation->full_backward, PEN_OP_ATTENTION_FULL_DX, &back);
  else
    run_way(implementation->backward, PEN_OP_ATTENTION_DX, &back);
  assert_near_bf16("dq", q, p.dq, p.dq_size, implementation->rounds, q_count, 4 * tolerance);
  assert_near_bf16("dk", k, p.dk, p.dk_size, implementation->rounds, k_count, 4 * tolerance);
  assert_near_bf16("dv", v, p.dv, p.dv_size, implementation->rounds, k_count, 4 * tolerance);
}

static void check_bf16(const struct implementation *implementation, void **state) {
  for (int s = 0; s < SHAPES; s++)
    for (size_t length = 0; length < 100; length = s < 2 ? 100 : 8 * length + 3)
      for (float sharpness = 1; sharpness <= (length ? 1 : 20); sharpness += 19) {
        check_implementation(implementation, shapes[s],
                             &(struct variant){sharpness, length, shapes[s][1], 0, 0, 0});
        free_tensors(state);
      }
  for (int s = 2; s < SHAPES; s++)
    for (int64_t window = 2; window < 2 * shapes[s][1]; window = 3 * window + 1)
      for (size_t length = 0; length < 100; length = 20 * length + 25) {
        check_implementation(implementation, shapes[s],
                             &(struct variant){1, length, window, 0, 0, 0});
        free_tensors(state);
      }
}

static void check_variants_bf16(const struct implementation *implementation, void **state) {
  for (int s = 2; s < SHAPES; s++)
    for (int n = 0; n < 6; n++) {
      const struct variant full = {1, 0, 0, n == 4 ? 2 : 0, keys_of(s, n % 3), n > 2},
                           capped = {n % 2 ? 20 : 4,
                                     n == 2 ? 40 : 0,
                                     shapes[s][1],
                                     1.25 + 20 * (n % 2),
                                     0,
                                     0};
      check_implementation(implementation, shapes[s], &full);
      if (n < 3) check_implementation(implementation, shapes[s], &capped);
      free_tensors(state);
    }
}

static struct implementation implementation_of_set(const char *set) {
  return (struct implementation){
      pen_kernel_of(PEN_OP_ATTENTION, PEN_BF16), pen_kernel_of(PEN_OP_ATTENTION_DX, PEN_BF16),
      pen_kernel_of(PEN_OP_ATTENTION_FULL, PEN_BF16),
      pen_kernel_of(PEN_OP_ATTENTION_FULL_DX, PEN_BF16), !strcmp(set, "avx512bf16")};
}

static const struct implementation portable_pairs = {
    pen_wide_bf16_attention, pen_wide_bf16_attention_dx, pen_wide_bf16_attention_full,
    pen_wide_bf16_attention_full_dx, 1};

static void bf16_matches_the_formula(void **state) {
  const struct implementation implementation = implementation_of_set(*state);
  check_bf16(&implementation, state);
  if (!strcmp(*state, "baseline")) check_bf16(&portable_pairs, state);
}

static void variants_in_bf16_match_the_formula(void **state) {
  const struct implementation implementation = implementation_of_set(*state);
  check_variants_bf16(&implementation, state);
  if (!strcmp(*state, "baseline")) check_variants_bf16(&portable_pairs, state);
}

static double weighted_sum(const void *context) {
  struct attention_case p = *(const struct attention_case *)context;
  forward(&p);
  return dot(p.o, p.dout, p.batch * p.sequence * p.heads * p.head_dim);
}

static void formula_agrees_with_finite_differences(void **state) {
  const int64_t shape[] = {1, 6, 4, 2, 5};
  for (int n = 0; n < 3; n++) {
    const struct variant as = {1, 0, 4, n ? 0.7 : 0, n == 2 ? 7 : 0, 1};
    const size_t keys = as.keys ? 7 : 6, q_count = 6 * 4 * 5, k_count = keys * 2 * 5;
    struct attention_case p =
        pose(shape, keys, random_floats(q_count, 1), random_floats(k_count, 2),
             random_floats(k_count, 3), random_floats(q_count, 4));
    vary(&p, &as, integers_of(shape, &as));
    forward(&p);
    backward(&p);
    double *inputs[] = {p.q, p.k, p.v}, *gradients[] = {p.dq, p.dk, p.dv};
    for (int i = 0; i < 3; i++) {
      const size_t count = i ? k_count : q_count;
      double *expected = doubles(count);
      differences(weighted_sum, &p, inputs[i], count, expected);
      for (size_t j = 0; j < count; j++) assert_true(fabs(expected[j] - gradients[i][j]) < 1e-9);
    }
    free_tensors(state);
  }
}

/* Later tokens of the sequence do not change the bits of a query. */
static void later_tokens_are_not_seen(void **state) {
  for (size_t cut = 1; cut < 130; cut += 43) {
    enum { SEQUENCE = 130, WIDTH = 24 };
    float *q = random_floats(SEQUENCE * WIDTH, 1), *k = random_floats(SEQUENCE * WIDTH, 2);
    float *v = random_floats(SEQUENCE * WIDTH, 3), *first = floats(SEQUENCE * WIDTH),
          *second = floats(SEQUENCE * WIDTH);
    struct pen_call call = {.operand = {q, k, v, NULL, first, floats(SEQUENCE)},
                            .dim = {1, SEQUENCE, 1, 1, WIDTH, SEQUENCE}};
    run(PEN_OP_ATTENTION, &call);
    spread(k + cut * WIDTH, (SEQUENCE - cut) * WIDTH, 9);
    spread(v + cut * WIDTH, (SEQUENCE - cut) * WIDTH, 10);
    call.operand[4] = second;
    run(PEN_OP_ATTENTION, &call);
    assert_same_bits("o", first, second, cut * WIDTH * sizeof(float));
    free_tensors(state);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(matches_the_formula),
      cmocka_unit_test(documents_do_not_see_each_other),
      cmocka_unit_test(windows_hide_earlier_tokens),
      cmocka_unit_test(caps_bend_scores),
      cmocka_unit_test(full_attention_sees_all_keys),
      cmocka_unit_test(hidden_keys_are_not_read),
      cmocka_unit_test(a_window_of_one_token_is_its_value),
      cmocka_unit_test(one_document_needs_no_starts),
      cmocka_unit_test(bf16_matches_the_formula),
      cmocka_unit_test(variants_in_bf16_match_the_formula),
      cmocka_unit_test(formula_agrees_with_finite_differences),
      cmocka_unit_test(later_tokens_are_not_seen),
  };
  return RUN_ON_EVERY_SET(tests);
}
