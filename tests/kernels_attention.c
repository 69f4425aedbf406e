/* kernels_attention.c: ATTENTION and ATTENTION_DX against the plain formula in f64, and the formula's own differences. */
#include "tests/kernels_support.h"

/* batch, sequence, heads, kv_heads, head_dim */
static const int64_t shapes[][5] = {
  { 1, 1, 1, 1, 1 },    { 2, 3, 2, 1, 5 },    { 1, 17, 3, 3, 16 }, { 2, 50, 4, 2, 20 },   { 1, 97, 2, 1, 33 },
  { 1, 193, 2, 2, 64 }, { 1, 256, 2, 1, 32 }, { 1, 401, 1, 1, 8 }, { 1, 145, 6, 2, 128 }, { 1, 60, 2, 2, 256 },
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

struct problem {
  size_t batch, sequence, heads, kv_heads, head_dim;
  double *q, *k, *v, *dout; /* in */
  const int32_t *starts;    /* of documents; null: one a sequence */
  double *o, *lse, *dq, *dk, *dv;
};

static size_t q_at(const struct problem *p, size_t b, size_t t, size_t h) {
  return ((b * p->sequence + t) * p->heads + h) * p->head_dim;
}

static size_t k_at(const struct problem *p, size_t b, size_t t, size_t h) {
  return ((b * p->sequence + t) * p->kv_heads + h / (p->heads / p->kv_heads)) * p->head_dim;
}

/* The first key that a query may see. */
static size_t first_key(const struct problem *p, size_t b, size_t t) {
  return p->starts ? (size_t)p->starts[b * p->sequence + t] : 0;
}

static double dot(const double *a, const double *b, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++)
    sum += a[i] * b[i];
  return sum;
}

/* Probabilities of one query, and its log-sum-exp. */
static double chances(const struct problem *p, size_t b, size_t t, size_t h, double *chance) {
  double most = -INFINITY, sum = 0;
  const size_t first = first_key(p, b, t);
  for (size_t j = first; j <= t; j++) {
    chance[j] = dot(p->q + q_at(p, b, t, h), p->k + k_at(p, b, j, h), p->head_dim) / sqrt((double)p->head_dim);
    most = fmax(most, chance[j]);
  }
  for (size_t j = first; j <= t; j++)
    sum += chance[j] = exp(chance[j] - most);
  for (size_t j = first; j <= t; j++)
    chance[j] /= sum;
  return most + log(sum);
}

static void forward(struct problem *p) {
  double chance[512];
  for (size_t i = 0; i < p->batch * p->sequence * p->heads; i++) {
    const size_t h = i % p->heads, t = i / p->heads % p->sequence, b = i / p->heads / p->sequence;
    double *o = p->o + q_at(p, b, t, h);
    p->lse[(b * p->heads + h) * p->sequence + t] = chances(p, b, t, h, chance);
    memset(o, 0, p->head_dim * sizeof *o);
    for (size_t j = first_key(p, b, t); j <= t; j++)
      for (size_t d = 0; d < p->head_dim; d++)
        o[d] += chance[j] * p->v[k_at(p, b, j, h) + d];
  }
}

/* The closed form of the gradient; differences_agree() below holds it against differences of forward(). */
static void backward(struct problem *p) {
  double chance[512];
  for (size_t i = 0; i < p->batch * p->sequence * p->heads; i++) {
    const size_t h = i % p->heads, t = i / p->heads % p->sequence, b = i / p->heads / p->sequence, at = q_at(p, b, t, h);
    chances(p, b, t, h, chance);
    const double delta = dot(p->dout + at, p->o + at, p->head_dim);
    for (size_t j = first_key(p, b, t); j <= t; j++) {
      const size_t key = k_at(p, b, j, h);
      const double ds = chance[j] * (dot(p->dout + at, p->v + key, p->head_dim) - delta) / sqrt((double)p->head_dim);
      for (size_t d = 0; d < p->head_dim; d++) {
        p->dq[at + d] += ds * p->k[key + d];
        p->dk[key + d] += ds * p->q[at + d];
        p->dv[key + d] += chance[j] * p->dout[at + d];
      }
    }
  }
}

static double *zeros(size_t count) { return memset(doubles(count), 0, count * sizeof(double)); }

static struct problem pose(const int64_t *shape, const float *q, const float *k, const float *v, const float *dout) {
  struct problem p = { (size_t)shape[0], (size_t)shape[1], (size_t)shape[2], (size_t)shape[3], (size_t)shape[4],
                       .q = NULL };
  const size_t q_count = p.batch * p.sequence * p.heads * p.head_dim, k_count = q_count / p.heads * p.kv_heads;
  p.q = widened(q, q_count), p.k = widened(k, k_count), p.v = widened(v, k_count), p.dout = widened(dout, q_count);
  p.o = doubles(q_count), p.lse = doubles(p.batch * p.heads * p.sequence);
  p.dq = zeros(q_count), p.dk = zeros(k_count), p.dv = zeros(k_count);
  return p;
}

/* Documents of about `length` tokens, some of one alone; 0: no bounds. Sequences differ. */
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

/* Runs both ops on one shape; `sharpness` scales q, so that softmax is flat or nearly one-hot; documents are `length` long. */
static void check(const int64_t *s, float sharpness, size_t length) {
  const size_t rows = (size_t)(s[0] * s[1]), q_count = rows * (size_t)(s[2] * s[4]), k_count = rows * (size_t)(s[3] * s[4]);
  const size_t lse_count = rows * (size_t)s[2];
  float *q = random_floats(q_count, 1), *k = random_floats(k_count, 2), *v = random_floats(k_count, 3);
  float *dout = random_floats(q_count, 4), *o = floats(q_count), *lse = floats(lse_count);
  for (size_t i = 0; i < q_count; i++)
    q[i] *= sharpness;
  struct problem p = pose(s, q, k, v, dout);
  int32_t *starts = length ? some_starts(p.batch, p.sequence, length) : NULL;
  p.starts = starts;
  forward(&p);
  backward(&p);
  struct pen_call call = { .operand = { q, k, v, starts, o, lse }, .dim = { s[0], s[1], s[2], s[3], s[4] } };
  run(PEN_OP_ATTENTION, &call);
  const double tolerance = 1e-6 * (1 + (double)sharpness);
  assert_near("o", o, p.o, q_count, tolerance, 1);
  assert_near("lse", lse, p.lse, lse_count, tolerance, 1);
  struct pen_call back = { .operand = { dout, q, k, v, o, lse, starts, q, k, v }, .dim = { s[0], s[1], s[2], s[3], s[4] } };
  run(PEN_OP_ATTENTION_DX, &back);
  assert_near("dq", q, p.dq, q_count, 4 * tolerance, 1);
  assert_near("dk", k, p.dk, k_count, 4 * tolerance, 1);
  assert_near("dv", v, p.dv, k_count, 4 * tolerance, 1);
}

static void matches_the_formula(void **state) {
  for (int s = 0; s < SHAPES; s++) {
    check(shapes[s], 1, 0);
    free_tensors(state);
    check(shapes[s], 20, 0);
    free_tensors(state);
  }
}

/* Not the shortest shapes: where every document is one token, gradients of q and k are nothing, which has no size to be near to. */
static void documents_keep_to_themselves(void **state) {
  for (int s = 2; s < SHAPES; s++)
    for (size_t length = 2; length < 400; length = 3 * length + 2) {
      check(shapes[s], 1, length);
      free_tensors(state);
      check(shapes[s], 20, length);
      free_tensors(state);
    }
}

/* One document a sequence, said or not: the same bits. */
static void one_document_needs_no_starts(void **state) {
  for (int s = 0; s < SHAPES; s++) {
    const int64_t *d = shapes[s];
    const size_t rows = (size_t)(d[0] * d[1]), q_count = rows * (size_t)(d[2] * d[4]), k_count = rows * (size_t)(d[3] * d[4]);
    int32_t *starts = memset(bytes_at(rows * sizeof *starts, 0), 0, rows * sizeof *starts);
    float *q = random_floats(q_count, 1), *k = random_floats(k_count, 2), *v = random_floats(k_count, 3), *dout = random_floats(q_count, 4);
    float *o[2], *lse[2], *dq[2], *dk[2], *dv[2];
    for (int said = 0; said < 2; said++) {
      o[said] = floats(q_count), lse[said] = floats(rows * (size_t)d[2]);
      dq[said] = floats(q_count), dk[said] = floats(k_count), dv[said] = floats(k_count);
      int32_t *given = said ? starts : NULL;
      struct pen_call call = { .operand = { q, k, v, given, o[said], lse[said] }, .dim = { d[0], d[1], d[2], d[3], d[4] } };
      struct pen_call back = { .operand = { dout, q, k, v, o[said], lse[said], given, dq[said], dk[said], dv[said] },
                               .dim = { d[0], d[1], d[2], d[3], d[4] } };
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

static double weighted_sum(const void *context) {
  struct problem p = *(const struct problem *)context;
  forward(&p);
  return dot(p.o, p.dout, p.batch * p.sequence * p.heads * p.head_dim);
}

static void reference_agrees_with_differences(void **state) {
  (void)state;
  const int64_t shape[] = { 1, 6, 4, 2, 5 };
  const size_t q_count = 6 * 4 * 5, k_count = 6 * 2 * 5;
  struct problem p = pose(shape, random_floats(q_count, 1), random_floats(k_count, 2), random_floats(k_count, 3),
                          random_floats(q_count, 4));
  forward(&p);
  backward(&p);
  double *inputs[] = { p.q, p.k, p.v }, *gradients[] = { p.dq, p.dk, p.dv };
  for (int i = 0; i < 3; i++) {
    const size_t count = i ? k_count : q_count;
    double *expected = doubles(count);
    differences(weighted_sum, &p, inputs[i], count, expected);
    for (size_t j = 0; j < count; j++)
      assert_true(fabs(expected[j] - gradients[i][j]) < 1e-9);
  }
}

/* What comes later in the sequence does not change a query's bits. */
static void the_future_is_not_seen(void **state) {
  for (size_t cut = 1; cut < 130; cut += 43) {
    enum { SEQUENCE = 130, WIDTH = 24 };
    float *q = random_floats(SEQUENCE * WIDTH, 1), *k = random_floats(SEQUENCE * WIDTH, 2);
    float *v = random_floats(SEQUENCE * WIDTH, 3), *first = floats(SEQUENCE * WIDTH), *second = floats(SEQUENCE * WIDTH);
    struct pen_call call = { .operand = { q, k, v, NULL, first, floats(SEQUENCE) }, .dim = { 1, SEQUENCE, 1, 1, WIDTH } };
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
    cmocka_unit_test(documents_keep_to_themselves),
    cmocka_unit_test(one_document_needs_no_starts),
    cmocka_unit_test(reference_agrees_with_differences),
    cmocka_unit_test(the_future_is_not_seen),
  };
  return RUN_ON_EVERY_SET(tests);
}
