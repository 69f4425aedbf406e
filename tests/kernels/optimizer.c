/* optimizer.c: pen_sum_arrays() and its order, pen_sum_squares() and its blocks, pen_max_abs(),
 * pen_adamw_step(), pen_sgd_step() and the step of Muon against f64. */
#include "tests/support/kernels_support.h"

#include <float.h>

#include "kernels/adamw_correction.h"
#include "kernels/device.h"

static const size_t counts[] = {0, 1, 5, 16, 4095, 4096, 4097, 3 * 4096, 5 * 4096 + 77};
enum { COUNTS = sizeof counts / sizeof *counts };

static void squares_are_summed(void **state) {
  for (int c = 0; c < COUNTS; c++) {
    float *x = random_floats(counts[c] + 1, 1);
    double expected = 0;
    for (size_t i = 0; i < counts[c]; i++) expected += (double)x[i] * (double)x[i];
    assert_true(fabs(pen_sum_squares(x, counts[c]) - expected) <= 1e-13 * expected);
    free_tensors(state);
  }
}

/* A shard's owner sums its blocks; the blocks' sums, added in rising order, are the whole tensor's
 * sum to the bit. */
static void sums_of_blocks_add_to_the_sum(void **state) {
  (void)state;
  const size_t count = 5 * PEN_NORM_BLOCK + 77;
  float *x = random_floats(count, 1);
  double sum = 0;
  for (size_t i = 0; i < count; i += PEN_NORM_BLOCK)
    sum += pen_sum_squares(x + i, count - i < PEN_NORM_BLOCK ? count - i : PEN_NORM_BLOCK);
  const double whole = pen_sum_squares(x, count);
  assert_same_bits("sum", &sum, &whole, sizeof sum);
}

static void sum_of_squares_does_not_depend_on_address_or_instruction_set(void **state) {
  const size_t count = 2 * PEN_NORM_BLOCK + 1001;
  float *x = random_floats(count, 1), *moved = bytes_at(count * sizeof(float), 5);
  memcpy(moved, x, count * sizeof *x);
  const double here = pen_sum_squares(x, count), there = pen_sum_squares(moved, count);
  assert_same_bits("sum", &here, &there, sizeof here);
  setenv("PEN_ISA", "baseline", 1);
  pen_kernels_open();
  const double plain = pen_sum_squares(x, count);
  open_set(state);
  assert_same_bits("sum", &here, &plain, sizeof here);
}

static void sum_of_squares_propagates_nan(void **state) {
  (void)state;
  float *x = random_floats(5000, 1);
  x[4999] = NAN;
  assert_true(isnan(pen_sum_squares(x, 5000)));
  x[4999] = INFINITY;
  assert_true(isinf(pen_sum_squares(x, 5000)));
  x[4999] = 3e38f;
  assert_true(isfinite(pen_sum_squares(x, 5000)));
}

static void max_abs_finds_the_maximum(void **state) {
  for (int c = 0; c < COUNTS; c++) {
    float *x = random_floats(counts[c] + 1, 1);
    double expected = 0;
    for (size_t i = 0; i < counts[c]; i++) expected = fmax(expected, fabs((double)x[i]));
    assert_true(pen_max_abs(x, counts[c]) - expected == 0);
    if (counts[c] != 0) {
      x[counts[c] / 2] = -1000;
      assert_true(pen_max_abs(x, counts[c]) - 1000 == 0);
      x[counts[c] - 1] = -INFINITY;
      assert_true(isinf(pen_max_abs(x, counts[c])));
      x[0] = -NAN;
      assert_true(isnan(pen_max_abs(x, counts[c])));
    }
    free_tensors(state);
  }
}

/* One after the other in f32, also where the sum takes the place of one of them, and after its end
 * nothing is written. */
static void arrays_are_added_in_order(void **state) {
  for (int c = 0; c < COUNTS; c++)
    for (size_t own = 0; own < 4; own++) {
      const float *x[4];
      float *expected = random_floats(counts[c] + 1, 1), *y = NULL;
      for (size_t k = 0; k < 4; k++) {
        float *values = random_floats(counts[c] + 1, k + 1);
        for (size_t i = 0; i <= counts[c]; i++) values[i] *= k % 2 ? 1e-3f : 1;
        for (size_t i = 0; i < counts[c]; i++)
          expected[i] = k ? expected[i] + values[i] : values[i];
        if (k == own) y = values;
        x[k] = values;
      }
      expected[counts[c]] = y[counts[c]];
      pen_sum_arrays(y, x, 4, counts[c]);
      assert_same_bits("sum", y, expected, (counts[c] + 1) * sizeof *y);
      free_tensors(state);
    }
}

static const struct pen_adamw settings = {
    .learning_rate = 3e-3,
    .beta1 = 0.9,
    .beta2 = 0.95,
    .epsilon = 1e-8,
    .weight_decay = 0.1,
    .gradient_scale = 0.37,
    .updates = 3,
};

struct optimizer_tensors {
  float *p, *g, *m, *v;
};

static struct optimizer_tensors fresh(size_t count) {
  struct optimizer_tensors s = {random_floats(count, 1), random_floats(count, 2),
                                random_floats(count, 3), random_floats(count, 4)};
  for (size_t i = 0; i < count; i++) s.v[i] = fabsf(s.v[i]);
  return s;
}

static void adamw_matches_the_formula(void **state) {
  for (int c = 0; c < COUNTS; c++) {
    const size_t n = counts[c] + 1;
    const struct optimizer_tensors old = fresh(n), new = fresh(n);
    double *expected[3] = {doubles(n), doubles(n), doubles(n)};
    for (size_t i = 0; i < n; i++) {
      const double g = (double)old.g[i] * settings.gradient_scale;
      const double m = settings.beta1 * (double)old.m[i] + (1 - settings.beta1) * g;
      const double v = settings.beta2 * (double)old.v[i] + (1 - settings.beta2) * g * g;
      const double step =
          m / (1 - 0.9 * 0.9 * 0.9) / (sqrt(v / (1 - 0.95 * 0.95 * 0.95)) + settings.epsilon);
      expected[0][i] = (double)old.p[i] * (1 - settings.learning_rate * settings.weight_decay) -
                       settings.learning_rate * step;
      expected[1][i] = m;
      expected[2][i] = v;
    }
    pen_adamw_step(new.p, new.g, new.m, new.v, n, &settings);
    assert_near("p", new.p, expected[0], n, 3e-7, 1e-2);
    assert_near("m", new.m, expected[1], n, 3e-7, 1);
    assert_near("v", new.v, expected[2], n, 5e-7, 0);
    for (size_t i = 0; i < n; i++) assert_true(new.g[i] == 0);
    free_tensors(state);
  }
}

/* Within the rounding of the power, after any number of updates. */
static void corrections_are_of_the_power(void **state) {
  (void)state;
  static const double betas[] = {0, 0.5, 0.9, 0.95, 0.999, 0.99999};
  for (size_t i = 0; i < sizeof betas / sizeof *betas; i++)
    for (uint64_t n = 1; n < 10000000; n += 1 + n / 7) {
      const double expected = (double)(1 - powl((long double)betas[i], (long double)n));
      assert_true(fabs(pen_adamw_correction(betas[i], n) - expected) <= DBL_EPSILON);
    }
  assert_true(pen_adamw_correction(0.5, 3) == 0.875);
  assert_true(pen_adamw_correction(0.9, UINT64_MAX) == 1);
}

static void adamw_may_be_split_anywhere(void **state) {
  const size_t n = 1003;
  for (size_t cut = 1; cut < n; cut += 67) {
    const struct optimizer_tensors whole = fresh(n), cuts = fresh(n);
    pen_adamw_step(whole.p, whole.g, whole.m, whole.v, n, &settings);
    pen_adamw_step(cuts.p, cuts.g, cuts.m, cuts.v, cut, &settings);
    pen_adamw_step(cuts.p + cut, cuts.g + cut, cuts.m + cut, cuts.v + cut, n - cut, &settings);
    assert_same_bits("p", whole.p, cuts.p, n * sizeof(float));
    assert_same_bits("m", whole.m, cuts.m, n * sizeof(float));
    assert_same_bits("v", whole.v, cuts.v, n * sizeof(float));
    free_tensors(state);
  }
}

/* Its element stays as it was, and the others do not notice. */
static void a_gradient_of_nan_changes_nothing(void **state) {
  const float spoilt[] = {NAN, -NAN, INFINITY, -INFINITY, 1e20f}; /* the last cannot be squared */
  for (size_t kind = 0; kind < sizeof spoilt / sizeof *spoilt; kind++)
    for (size_t at = 0; at < 37; at++) {
      const struct optimizer_tensors old = fresh(37), good = fresh(37), s = fresh(37);
      s.g[at] = spoilt[kind];
      pen_adamw_step(good.p, good.g, good.m, good.v, 37, &settings);
      pen_adamw_step(s.p, s.g, s.m, s.v, 37, &settings);
      good.p[at] = old.p[at], good.m[at] = old.m[at], good.v[at] = old.v[at];
      assert_same_bits("p", s.p, good.p, 37 * sizeof(float));
      assert_same_bits("m", s.m, good.m, 37 * sizeof(float));
      assert_same_bits("v", s.v, good.v, 37 * sizeof(float));
      assert_same_bits("g", s.g, good.g, 37 * sizeof(float));
      free_tensors(state);
    }
}

static void epsilon_0_never_divides_by_0(void **state) {
  struct pen_adamw without = settings;
  without.epsilon = 0;
  for (size_t at = 0; at < 37; at++) {
    const struct optimizer_tensors old = fresh(37), good = fresh(37), s = fresh(37);
    s.g[at] = s.v[at] = 0;
    pen_adamw_step(good.p, good.g, good.m, good.v, 37, &without);
    pen_adamw_step(s.p, s.g, s.m, s.v, 37, &without);
    good.p[at] = old.p[at], good.m[at] = old.m[at], good.v[at] = 0;
    assert_same_bits("p", s.p, good.p, 37 * sizeof(float));
    assert_same_bits("m", s.m, good.m, 37 * sizeof(float));
    assert_same_bits("v", s.v, good.v, 37 * sizeof(float));
    free_tensors(state);
  }
}

/* Ten steps: each of momentum 0, which has no buffer, .9, and that by Nesterov. */
static void sgd_matches_the_formula(void **state) {
  static const struct pen_sgd kinds[] = {
      {3e-2, 0, 0.1, 0.37, false}, {3e-2, 0.9, 0.1, 0.37, false}, {3e-2, 0.9, 0, 1, true}};
  enum { N = 1003, STEPS = 10 };
  for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
    const struct pen_sgd *s = &kinds[kind];
    const struct optimizer_tensors t = fresh(N);
    double *p = doubles(N), *b = doubles(N);
    for (size_t i = 0; i < N; i++) p[i] = (double)t.p[i], b[i] = 0, t.m[i] = 0;
    for (unsigned step = 0; step < STEPS; step++) {
      const float *g = random_floats(N, 10 + step);
      memcpy(t.g, g, N * sizeof *g);
      for (size_t i = 0; i < N; i++) {
        const double scaled = (double)g[i] * s->gradient_scale;
        b[i] = s->momentum * b[i] + scaled;
        p[i] = p[i] * (1 - s->learning_rate * s->weight_decay) -
               s->learning_rate * (s->nesterov ? scaled + s->momentum * b[i] : b[i]);
      }
      pen_sgd_step(t.p, t.g, s->momentum > 0 ? t.m : NULL, 500, s);
      pen_sgd_step(t.p + 500, t.g + 500, s->momentum > 0 ? t.m + 500 : NULL, N - 500, s);
      for (size_t i = 0; i < N; i++) assert_true(t.g[i] == 0);
    }
    assert_near("p", t.p, p, N, 1e-5, 1e-2);
    if (s->momentum > 0) assert_near("b", t.m, b, N, 1e-5, 1e-2);
    free_tensors(state);
  }
}

/* Its element stays as it was, and the others do not notice. */
static void sgd_skips_what_is_not_finite(void **state) {
  static const struct pen_sgd s = {3e-2, 0.9, 0.1, 0.5, true};
  static const float spoilt[] = {NAN, -NAN, INFINITY, -INFINITY};
  for (size_t at = 0; at < 37; at++) {
    const struct optimizer_tensors old = fresh(37), good = fresh(37), bad = fresh(37);
    bad.g[at] = spoilt[at % 4];
    pen_sgd_step(good.p, good.g, good.m, 37, &s);
    pen_sgd_step(bad.p, bad.g, bad.m, 37, &s);
    good.p[at] = old.p[at], good.m[at] = old.m[at];
    assert_same_bits("p", bad.p, good.p, 37 * sizeof(float));
    assert_same_bits("b", bad.m, good.m, 37 * sizeof(float));
    assert_same_bits("g", bad.g, good.g, 37 * sizeof(float));
    free_tensors(state);
  }
}

/* ---- Muon ---- */

/* y[m,n] = x[m,k] z, z[k,n], or [n,k] if it is transposed. */
static void product(double *y, const double *x, const double *z, size_t m, size_t k, size_t n,
                    bool transposed) {
  for (size_t i = 0; i < m; i++)
    for (size_t j = 0; j < n; j++) {
      y[i * n + j] = 0;
      for (size_t l = 0; l < k; l++)
        y[i * n + j] += x[i * k + l] * (transposed ? z[j * k + l] : z[l * n + j]);
    }
}

/* Newton-Schulz iterations on x[m,n] as Jordan et al. 2024 have them, m at most n. */
static void orthogonalize(double *x, size_t m, size_t n, size_t steps) {
  double *a = doubles(m * m), *aa = doubles(m * m), *y = doubles(m * n), norm = 0;
  for (size_t i = 0; i < m * n; i++) norm += x[i] * x[i];
  for (size_t i = 0; i < m * n; i++) x[i] /= sqrt(norm) + 1e-7;
  for (size_t step = 0; step < steps; step++) {
    product(a, x, x, m, n, m, true);
    product(aa, a, a, m, m, m, false);
    for (size_t i = 0; i < m * m; i++) a[i] = -4.7750 * a[i] + 2.0315 * aa[i];
    product(y, a, x, m, m, n, false);
    for (size_t i = 0; i < m * n; i++) x[i] = 3.4445 * x[i] + y[i];
  }
}

/* Part `part` of the matrix p becomes that of the next step. */
static void update_part(double *p, const double *u, size_t part, const struct pen_muon *s) {
  const size_t columns = s->columns / s->parts, first = part * columns;
  const bool high = s->rows > columns;
  const size_t m = high ? columns : s->rows, n = high ? s->rows : columns;
  double *x = doubles(m * n);
  for (size_t r = 0; r < s->rows; r++)
    for (size_t c = 0; c < columns; c++)
      x[high ? c * n + r : r * n + c] = u[r * s->columns + first + c];
  orthogonalize(x, m, n, s->steps);
  for (size_t r = 0; r < s->rows; r++)
    for (size_t c = 0; c < columns; c++) {
      double *at = &p[r * s->columns + first + c];
      *at = *at * (1 - s->learning_rate * s->weight_decay) -
            s->learning_rate * .2 * sqrt((double)n) * x[high ? c * n + r : r * n + c];
    }
}

/* A step of a matrix that lies in these pieces. */
static void muon_step(const struct pen_muon_piece *piece, size_t count, const struct pen_muon *s) {
  const size_t columns = s->columns / s->parts, least = s->rows < columns ? s->rows : columns,
               most = s->rows < columns ? columns : s->rows;
  const int64_t dim[PEN_DIMS_MAX] = {(int64_t)least, (int64_t)most, (int64_t)s->steps};
  const size_t bytes = pen_aligned(s->rows * columns * sizeof(float)) +
                       pen_cpu.workspace_bytes(PEN_OP_NEWTON_SCHULZ, PEN_F32, dim);
  for (size_t i = 0; i < count; i++) pen_muon_momentum(&piece[i], s);
  pen_muon_orthogonalize(piece, count, s, bytes_at(bytes, 0));
  for (size_t i = 0; i < count; i++) pen_muon_apply(&piece[i], s);
}

static void muon_step_of_whole(const struct optimizer_tensors *t, const struct pen_muon *s) {
  const struct pen_muon_piece whole = {t->p, t->g, t->m, 0, s->rows, 0, s->columns / s->parts};
  muon_step(&whole, 1, s);
}

/* Ten steps: wide, high and of several blocks, of three matrices, without momentum, by one
 * iteration. */
static void muon_matches_the_formula(void **state) {
  static const struct pen_muon kinds[] = {{3e-2, 0.95, 0.1, 0.37, true, 24, 40, 1, 5},
                                          {3e-2, 0.95, 0, 1, false, 104, 101, 1, 5},
                                          {3e-2, 0.9, 0.1, 0.37, true, 16, 48, 3, 5},
                                          {3e-2, 0.9, 0.1, 0.37, true, 32, 48, 3, 4},
                                          {3e-2, 0, 0.1, 0.37, false, 1, 33, 1, 1}};
  for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
    const struct pen_muon *s = &kinds[kind];
    const size_t count = s->rows * s->columns;
    const struct optimizer_tensors t = fresh(count);
    double *p = doubles(count), *b = doubles(count), *u = doubles(count);
    for (size_t i = 0; i < count; i++) p[i] = (double)t.p[i], b[i] = 0, t.m[i] = 0;
    for (unsigned step = 0; step < 10; step++) {
      const float *g = random_floats(count, 10 + step);
      memcpy(t.g, g, count * sizeof *g);
      for (size_t i = 0; i < count; i++) {
        const double scaled = (double)g[i] * s->gradient_scale;
        b[i] = s->momentum * b[i] + scaled;
        u[i] = s->nesterov ? scaled + s->momentum * b[i] : b[i];
      }
      for (size_t part = 0; part < s->parts; part++) update_part(p, u, part, s);
      muon_step_of_whole(&t, s);
      for (size_t i = 0; i < count; i++) assert_true(t.g[i] == 0);
    }
    assert_near("p", t.p, p, count, 1e-5, 1e-2);
    assert_near("b", t.m, b, count, 1e-5, 1e-2);
    free_tensors(state);
  }
}

/* Where element e of a piece is in the matrix. */
static size_t place_in_matrix(const struct pen_muon *s, const struct pen_muon_piece *piece,
                              size_t e) {
  const size_t row = piece->columns * s->parts, part = e % row / piece->columns;
  return (piece->first_row + e / row) * s->columns + part * (s->columns / s->parts) +
         piece->first_column + e % piece->columns;
}

enum { PIECES = 3 };

/* Cuts the rows, or the columns of each part, of a matrix into pieces of different sizes. */
static void cut_matrix(const struct pen_muon *s, bool by_rows, const struct optimizer_tensors *t,
                       struct pen_muon_piece piece[PIECES]) {
  const size_t columns = s->columns / s->parts, cut = by_rows ? s->rows : columns,
               bound[PIECES + 1] = {0, cut / 2, cut - 3, cut};
  for (size_t k = 0; k < PIECES; k++) {
    struct pen_muon_piece *at = &piece[k];
    const size_t count = bound[k + 1] - bound[k];
    *at = by_rows ? (struct pen_muon_piece){.first_row = bound[k], .rows = count}
                  : (struct pen_muon_piece){.first_column = bound[k], .columns = count};
    *(by_rows ? &at->columns : &at->rows) = by_rows ? columns : s->rows;
    const size_t elements = at->rows * at->columns * s->parts;
    const struct optimizer_tensors own = fresh(elements);
    at->parameter = own.p, at->gradient = own.g, at->buffer = own.m;
    for (size_t e = 0; e < elements; e++) {
      const size_t from = place_in_matrix(s, at, e);
      own.p[e] = t->p[from], own.g[e] = t->g[from], own.m[e] = t->m[from];
    }
  }
}

static void muon_of_pieces_has_the_same_bits(void **state) {
  static const struct pen_muon kinds[] = {{3e-2, 0.95, 0.1, 0.37, true, 24, 40, 1, 5},
                                          {3e-2, 0.95, 0.1, 0.37, true, 57, 19, 1, 5},
                                          {3e-2, 0.9, 0.1, 0.37, false, 16, 51, 3, 4},
                                          {3e-2, 0.9, 0.1, 0.37, true, 32, 48, 3, 5}};
  for (size_t kind = 0; kind < 2 * sizeof kinds / sizeof *kinds; kind++) {
    const struct pen_muon *s = &kinds[kind / 2];
    const struct optimizer_tensors t = fresh(s->rows * s->columns);
    struct pen_muon_piece piece[PIECES];
    cut_matrix(s, kind % 2, &t, piece);
    muon_step_of_whole(&t, s);
    muon_step(piece, PIECES, s);
    for (size_t k = 0; k < PIECES; k++)
      for (size_t e = 0; e < piece[k].rows * piece[k].columns * s->parts; e++) {
        const size_t at = place_in_matrix(s, &piece[k], e);
        assert_true(piece[k].parameter[e] == t.p[at] && piece[k].buffer[e] == t.m[at] &&
                    piece[k].gradient[e] == 0);
      }
    free_tensors(state);
  }
}

/* Its element counts as 0, and keeps its momentum. A gradient of 0 leaves the decay alone. */
static void muon_takes_what_is_not_finite_for_0(void **state) {
  static const struct pen_muon s = {3e-2, 0.9, 0.1, 0.5, true, 8, 12, 1, 5};
  static const float spoilt[] = {NAN, INFINITY, -INFINITY};
  for (size_t at = 0; at < 96; at++) {
    const struct optimizer_tensors old = fresh(96), good = fresh(96), bad = fresh(96);
    good.g[at] = good.m[at] = 0;
    bad.g[at] = spoilt[at % 3];
    muon_step_of_whole(&good, &s);
    muon_step_of_whole(&bad, &s);
    good.m[at] = old.m[at];
    assert_same_bits("p", bad.p, good.p, 96 * sizeof(float));
    assert_same_bits("b", bad.m, good.m, 96 * sizeof(float));
    free_tensors(state);
  }
  const struct optimizer_tensors old = fresh(96), zero = fresh(96);
  for (size_t i = 0; i < 96; i++) zero.g[i] = zero.m[i] = 0;
  muon_step_of_whole(&zero, &s);
  for (size_t i = 0; i < 96; i++)
    assert_true(zero.p[i] == old.p[i] * (float)(1 - s.learning_rate * s.weight_decay));
  free_tensors(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(squares_are_summed),
      cmocka_unit_test(sums_of_blocks_add_to_the_sum),
      cmocka_unit_test(sum_of_squares_does_not_depend_on_address_or_instruction_set),
      cmocka_unit_test(sum_of_squares_propagates_nan),
      cmocka_unit_test(max_abs_finds_the_maximum),
      cmocka_unit_test(arrays_are_added_in_order),
      cmocka_unit_test(adamw_matches_the_formula),
      cmocka_unit_test(sgd_matches_the_formula),
      cmocka_unit_test(sgd_skips_what_is_not_finite),
      cmocka_unit_test(muon_matches_the_formula),
      cmocka_unit_test(muon_of_pieces_has_the_same_bits),
      cmocka_unit_test(muon_takes_what_is_not_finite_for_0),
      cmocka_unit_test(corrections_are_of_the_power),
      cmocka_unit_test(adamw_may_be_split_anywhere),
      cmocka_unit_test(a_gradient_of_nan_changes_nothing),
      cmocka_unit_test(epsilon_0_never_divides_by_0),
  };
  return RUN_ON_EVERY_SET(tests);
}
