/* device_ops.c: functions of the CUDA backend that are no operation of ops.def: sums of squares,
 * optimizers, normals, memory, events and graphs. Skips without a GPU; kernels.c explains the
 * tolerances.
 *
 *     device_ops [--only PATTERN | --skip PATTERN]
 *
 * PATTERN is of the names of tests, as the shell's. */
#include "kernels/cuda/cuda.h"
#include "kernels/head_loss.h"
#include "tests/gpu/device.h"
#include "tests/gpu/two_ranks.h"

#include <fnmatch.h>
#include <time.h>

static const size_t counts[] = {1, 3, 15, 16, 17, 100, 4095, 4096, 4097, 20000, 70001};
enum { COUNTS = sizeof counts / sizeof *counts };

/* More tensors than one launch takes, of all sizes, some without elements. Each begins on 16 bytes,
 * and others' elements are between them. */
enum { LISTED = 160 };
struct listed {
  size_t first[LISTED], count[LISTED], total;
};

static struct listed many_tensors(void) {
  struct listed l = {.total = 0};
  for (size_t i = 0; i < LISTED; i++) {
    l.count[i] = i % 9 == 4 ? 0 : i % 7 == 0 ? counts[i / 7 % COUNTS] : i * 37 % 301;
    l.first[i] = l.total;
    l.total += (l.count[i] + 3) / 4 * 4 + 4;
  }
  return l;
}

/* The CPU's bits, each at its index, with a workspace of just the blocks. */
static void check_norms(void (*measure)(double *, const struct pen_norm_tensor *, size_t, void *,
                                        void *),
                        double (*expected)(const float *, size_t), const float *x,
                        const struct listed *l) {
  struct pen_norm_tensor tensors[LISTED];
  double norms[LISTED], *over = there(sizeof norms);
  const float *x_over = sent(x, l->total * sizeof *x);
  size_t blocks = 0;
  for (size_t i = 0; i < LISTED; i++) {
    tensors[i] = (struct pen_norm_tensor){x_over + l->first[i], l->count[i], LISTED - 1 - i};
    blocks += (l->count[i] + PEN_NORM_BLOCK - 1) / PEN_NORM_BLOCK;
  }
  measure(over, tensors, LISTED, there(blocks * sizeof(double)), stream);
  fetch(norms, over, sizeof norms);
  for (size_t i = 0; i < LISTED; i++) {
    const double here = expected(x + l->first[i], l->count[i]), made = norms[LISTED - 1 - i];
    if (isnan(here) ? !isnan(made) : memcmp(&here, &made, sizeof here) != 0)
      fail_msg("tensor %zu, %zu elements: %.17g, not %.17g", i, l->count[i], made, here);
  }
}

static void sums_of_squares(void **state) {
  (void)state;
  const struct listed l = many_tensors();
  check_norms(pen_cuda.sum_squares, pen_sum_squares, random_floats(l.total, 3), &l);
}

/* NaN propagates. */
static void greatest_magnitudes(void **state) {
  (void)state;
  const struct listed l = many_tensors();
  float *x = random_floats(l.total, 5);
  for (size_t i = 0; i < LISTED; i++)
    if (i % 3 > 0 && l.count[i] > 0)
      x[l.first[i] + l.count[i] / (i % 3 + 1)] = i % 3 == 1 ? -123 : -NAN;
  check_norms(pen_cuda.max_abs, pen_max_abs, x, &l);
}

static void a_norm_of_nothing_is_0(void **state) {
  (void)state;
  const struct pen_norm_tensor nothing = {NULL, 0, 0};
  double *norm = there(sizeof *norm), actual = 1;
  pen_cuda.sum_squares(norm, &nothing, 0, NULL, stream);
  pen_cuda.sum_squares(norm, &nothing, 1, NULL, stream);
  fetch(&actual, norm, sizeof actual);
  assert_true(actual == 0);
}

static const struct pen_adamw settings = {.learning_rate = 1e-3,
                                          .beta1 = 0.9,
                                          .beta2 = 0.95,
                                          .epsilon = 1e-8,
                                          .weight_decay = 0.1,
                                          .gradient_scale = 0.37,
                                          .updates = 7};

/* AdamW's list over such arrays; every second tensor has a copy, and some are only zeroed. */
static void list_updates(struct pen_adamw_tensor tensors[LISTED], const struct listed *l,
                         float *const x[4], uint16_t *copy) {
  for (size_t i = 0; i < LISTED; i++) {
    const size_t at = l->first[i];
    tensors[i] = i % 11 == 10
                     ? (struct pen_adamw_tensor){.gradient = x[1] + at, .count = l->count[i]}
                     : (struct pen_adamw_tensor){.parameter = x[0] + at,
                                                 .gradient = x[1] + at,
                                                 .exp_avg = x[2] + at,
                                                 .exp_avg_sq = x[3] + at,
                                                 .copy = i % 2 ? copy + at : NULL,
                                                 .count = l->count[i],
                                                 .weight_decay = 0.1 * (double)(i % 3),
                                                 .rate = i % 4 ? 0.3 * (double)(i % 4) : 1,
                                                 .lag = i % 7};
  }
}

/* The bits of a CPU that fuses multiply-adds; within rounding of other CPUs. The copies are the
 * rounded parameters, and nothing else changes. */
static void adamw(void **state) {
  (void)state;
  const int same = strncmp(pen_kernels_open(), "baseline", 8) != 0;
  const struct listed l = many_tensors();
  const size_t bytes = l.total * sizeof(float), copy_bytes = l.total * sizeof(uint16_t);
  struct pen_adamw_tensor tensors[LISTED];
  float *here[4], *over[4], *actual = floats(l.total);
  uint16_t *copy = bytes_at(copy_bytes, 0), *copy_over = sent(copy, copy_bytes),
           *copy_back = bytes_at(copy_bytes, 0);
  for (size_t a = 0; a < 4; a++) here[a] = random_floats(l.total, a + 1);
  for (size_t k = 0; k < l.total; k++) here[3][k] = fabsf(here[3][k]); /* a second moment */
  for (size_t i = 0; i < LISTED; i++)
    for (size_t k = 3; k < l.count[i]; k += 97) /* these elements are unchanged */
      here[1][l.first[i] + k] = k % 2 ? NAN : -INFINITY;
  for (size_t a = 0; a < 4; a++) over[a] = sent(here[a], bytes);
  list_updates(tensors, &l, over, copy_over);
  pen_cuda.adamw_step(tensors, LISTED, sent(&settings, sizeof settings), stream);
  list_updates(tensors, &l, here, copy);
  for (size_t i = 0; i < LISTED; i++) {
    struct pen_adamw own = settings;
    own.weight_decay = tensors[i].weight_decay;
    own.learning_rate = settings.learning_rate * tensors[i].rate;
    own.updates = settings.updates - tensors[i].lag;
    if (tensors[i].parameter != NULL)
      pen_adamw_step(tensors[i].parameter, tensors[i].gradient, tensors[i].exp_avg,
                     tensors[i].exp_avg_sq, l.count[i], &own);
    memset(tensors[i].gradient, 0, l.count[i] * sizeof(float));
  }
  for (size_t a = 4; a-- > 0;) {
    fetch(actual, over[a], bytes);
    if (same)
      assert_same_bits("adamw", actual, here[a], bytes);
    else
      assert_near("adamw", actual, widened(here[a], l.total), l.total, 1e-6, 1);
  }
  for (size_t i = 0; i < LISTED; i++)
    if (tensors[i].copy != NULL) pen_f32_to_bf16(tensors[i].copy, actual + l.first[i], l.count[i]);
  fetch(copy_back, copy_over, copy_bytes);
  assert_same_bits("copies", copy_back, copy, copy_bytes);
}

/* The CPU's bits: added in order, whichever array receives the sum. */
static void summed(void **state) {
  enum { ARRAYS = 5 };
  for (int n = 0; n < COUNTS; n++) {
    const size_t count = counts[n], bytes = count * sizeof(float), own = (size_t)n % ARRAYS;
    const float *here[ARRAYS];
    float *over[ARRAYS], *expected = floats(count), *actual = floats(count);
    for (size_t a = 0; a < ARRAYS; a++)
      over[a] = sent(here[a] = random_floats(count, 7 * a + 1), bytes);
    pen_sum_arrays(expected, here, ARRAYS, count);
    pen_cuda.sum_arrays(over[own], (const float *const *)over, ARRAYS, count, stream);
    fetch(actual, over[own], bytes);
    assert_same_bits("sum of arrays", actual, expected, bytes);
    tidy(state);
  }
}

/* The CPU's bits, for all kinds of numbers. */
static void narrowed(void **state) {
  (void)state;
  enum { COUNT = 1 << 14 };
  uint32_t *bits = bytes_at(COUNT * sizeof *bits, 0);
  uint16_t *expected = bytes_at(COUNT * sizeof *expected, 0),
           *actual = bytes_at(COUNT * sizeof *actual, 0), *over = there(COUNT * sizeof *over);
  for (uint32_t i = 0; i < COUNT; i++)
    bits[i] =
        i * 0x40011u + (i % 3) * 0x7fffu; /* each exponent, both signs, ties, infinities and NaN */
  pen_cuda.f32_to_bf16(over, sent(bits, COUNT * sizeof *bits), COUNT - 3, stream);
  fetch(actual, over, COUNT * sizeof *actual);
  pen_f32_to_bf16(expected, (const float *)bits, COUNT - 3);
  assert_same_bits("narrow", actual, expected, (COUNT - 3) * sizeof *actual);
}

static void normals(void **state) {
  const uint32_t key[2] = {0x12345678, 0x9abcdef0};
  const uint64_t firsts[] = {0, 1, 2, 3, 4, 1001, 0xffffffffull * 4 + 3, 1ull << 40};
  for (size_t f = 0; f < sizeof firsts / sizeof *firsts; f++)
    for (int n = 0; n < COUNTS - 1; n++) {
      const size_t bytes = counts[n] * sizeof(float);
      float *expected = floats(counts[n]), *actual = floats(counts[n]);
      void *over = there(bytes);
      pen_cuda.normal(over, counts[n], firsts[f], key, 0.02, stream);
      fetch(actual, over, bytes);
      pen_normal(expected, counts[n], firsts[f], key, 0.02);
      assert_same_bits("normals", actual, expected, bytes);
      tidy(state);
    }
}

static void memory(void **state) {
  (void)state;
  enum { COUNT = 1000 };
  float *x = random_floats(COUNT, 1), *y = floats(COUNT), *over = sent(x, COUNT * sizeof *x);
  pen_cuda.zero(over + 16, 16 * sizeof *x, stream);
  fetch(y, over, COUNT * sizeof *x);
  memset(x + 16, 0, 16 * sizeof *x);
  assert_same_bits("copies", y, x, COUNT * sizeof *x);
}

/* A shape that a kernel does not support gives an error message, and nothing is launched. */
static void what_is_not_taken_is_said(void **state) {
  (void)state;
  struct pen_call call = {.dim = {1, 4, 1, 1, 12}, .stream = stream};
  assert_null(pen_cuda.error());
  pen_cuda_attention_bf16(&call);
  assert_non_null(pen_cuda.error());
  assert_non_null(strstr(pen_cuda.error(), "head_dim"));
  assert_non_null(pen_cuda.open(0)); /* resets the error */
  const int64_t many[PEN_DIMS_MAX] = {65536, 4, 1, 1, 8};
  pen_cuda.prepare(PEN_OP_ATTENTION, PEN_F32, many, call.real);
  assert_non_null(pen_cuda.error());
  assert_non_null(strstr(pen_cuda.error(), "65536 sequences"));
  assert_non_null(pen_cuda.open(0));
  assert_null(pen_cuda.error());
}

/* The gradient scale for UPDATE, with the bits of runtime/comm/step_stats.c, whose rule is repeated
 * here; also with a norm that is not finite, and with a step that the host skips. Padding between
 * parts of the statistics must not be read. */
static void settled(void **state) {
  (void)state;
  const double clips[] = {0, 0.5, 1e9};
  const size_t counts[] = {1, 7, 1500};
  for (int n = 0; n < 3 * 3 * 2 * 2 * 2 * 2; n++) {
    const int greatest = n & 1, infinite = n >> 1 & 1, skipped = n / 72;
    const double clip = clips[n / 4 % 3];
    const size_t count = counts[n / 12 % 3], parts = n / 36 % 2 == 0 ? 1 : 3, stride = count + 5;
    const struct pen_adamw base = {1e-3, 0.9, 0.95, 1e-8, 0.1, skipped ? NAN : 77, 1234};
    double *board = doubles(parts * stride), sum = 0, most = 0;
    for (size_t i = 0; i < parts * stride; i++)
      board[i] = i % stride >= count          ? (double)NAN
                 : infinite && i == count / 2 ? INFINITY
                                              : (double)((i * 2654435761u) % 1000) / 3000;
    for (size_t i = 0; i < parts * count; i++) {
      const double entry = board[(i / parts + i % parts) % parts * stride + i / parts];
      sum += entry;
      most = fmax(most, entry);
    }
    const double norm = greatest ? most : sqrt(sum), scale = clip / (norm + 1e-6);
    struct pen_adamw made = {.updates = (uint64_t)n}, expected = base,
                     *over = sent(&made, sizeof made);
    expected.gradient_scale = skipped     ? NAN
                              : clip == 0 ? 1
                              : infinite  ? NAN
                              : scale > 1 ? 1
                                          : scale;
    expected.updates = made.updates + !isnan(expected.gradient_scale);
    pen_cuda.clip_scale(over, sent(&base, sizeof base), sent(board, parts * stride * sizeof *board),
                        count, parts, stride, clip, greatest, stream);
    fetch(&made, over, sizeof made);
    if (isnan(expected.gradient_scale)) {
      assert_true(isnan(made.gradient_scale));
      made.gradient_scale = expected.gradient_scale;
    }
    assert_same_bits("settings", &made, &expected, sizeof expected);
    release_all();
  }
}

/* The bits of a CPU that fuses multiply-adds, without momentum, with it and by Nesterov. */
static void sgd(void **state) {
  (void)state;
  const int same = strncmp(pen_kernels_open(), "baseline", 8) != 0;
  const struct listed l = many_tensors();
  const size_t bytes = l.total * sizeof(float), copy_bytes = l.total * sizeof(uint16_t);
  struct pen_adamw_tensor tensors[LISTED];
  float *here[4], *over[4], *actual = floats(l.total);
  uint16_t *copy = bytes_at(copy_bytes, 0), *copy_over = sent(copy, copy_bytes),
           *copy_back = bytes_at(copy_bytes, 0);
  for (size_t a = 0; a < 4; a++) here[a] = random_floats(l.total, a + 1);
  for (size_t i = 0; i < LISTED; i++)
    for (size_t k = 3; k < l.count[i]; k += 97) /* these elements are unchanged */
      here[1][l.first[i] + k] = k % 2 ? NAN : -INFINITY;
  for (size_t a = 0; a < 4; a++) over[a] = sent(here[a], bytes);
  for (int turn = 0; turn < 2; turn++) {
    size_t count = 0;
    list_updates(tensors, &l, turn ? here : over, turn ? copy : copy_over);
    for (size_t i = 0; i < LISTED; i++) {
      struct pen_adamw_tensor *t = &tensors[count];
      if (tensors[i].parameter == NULL) continue;
      *t = tensors[i];
      t->momentum = i % 3 ? 0.9 : 0;
      t->nesterov = i % 3 == 2;
      if (i % 3 == 0) t->exp_avg = NULL;
      count++;
    }
    if (turn)
      pen_cpu.sgd_step(tensors, count, &settings, NULL);
    else
      pen_cuda.sgd_step(tensors, count, sent(&settings, sizeof settings), stream);
  }
  for (size_t a = 0; a < 4; a++) {
    fetch(actual, over[a], bytes);
    if (same)
      assert_same_bits("sgd", actual, here[a], bytes);
    else
      assert_near("sgd", actual, widened(here[a], l.total), l.total, 1e-6, 1);
  }
  fetch(copy_back, copy_over, copy_bytes);
  if (same) assert_same_bits("copies", copy_back, copy, copy_bytes);
}

/* Biases of routers, whose gradients are counts, and counts that a step leaves to the next. */
static void update_counted(pen_optimizer_step *here_step, pen_optimizer_step *over_step) {
  enum { COUNT = 300, FIRST = 8, ARRAYS = 3 };
  float here[ARRAYS][COUNT], actual[COUNT];
  for (int i = 0; i < COUNT; i++) {
    here[0][i] = 0.125f * (float)(i % 5);
    here[1][i] = (float)(i * 7 % 13);
    here[2][i] = 2;
  }
  for (int skipped = 0; skipped < 2; skipped++) {
    const struct pen_adamw settings = {.gradient_scale = skipped ? (double)NAN : 0.5};
    const float before = here[0][1];
    float *over[ARRAYS];
    for (int a = 0; a < ARRAYS; a++) over[a] = sent(here[a], sizeof here[a]);
    for (int turn = 0; turn < 2; turn++) {
      float *const p = turn ? here[0] : over[0], *const g = turn ? here[1] : over[1],
                   *const m = turn ? here[2] : over[2];
      const struct pen_adamw_tensor tensors[] = {
          {.parameter = p, .gradient = g, .exp_avg = m, .count = FIRST, .rate = 1e-3},
          {.parameter = p + FIRST,
           .gradient = g + FIRST,
           .exp_avg = m + FIRST,
           .count = COUNT - FIRST,
           .rate = 0.5}};
      if (turn)
        here_step(tensors, 2, &settings, NULL);
      else
        over_step(tensors, 2, sent(&settings, sizeof settings), stream);
    }
    for (int a = 0; a < ARRAYS; a++) {
      fetch(actual, over[a], sizeof actual);
      assert_same_bits("what is counted", actual, here[a], sizeof actual);
    }
    assert_true((here[0][1] > before || here[0][1] < before) == !skipped);
    assert_true(here[1][1] >= 0 && here[1][1] <= 0);
    for (int i = 0; i < COUNT; i++) here[1][i] = (float)(i * 5 % 17);
  }
}

static void balance(void **state) {
  (void)state;
  update_counted(pen_cpu.balance_step, pen_cuda.balance_step);
  update_counted(pen_cpu.choices_step, pen_cuda.choices_step);
}

/* Matrices of Muon, some of them of parts or transposed, one in pieces; another is of another rank.
 */
static const struct {
  size_t rows, columns;
  uint8_t parts, pieces; /* of rows */
} matrices[] = {{8, 12, 1, 1},   {70, 33, 1, 1}, {5, 21, 3, 1},   {0, 7, 1, 1},
                {64, 192, 3, 1}, {1, 1, 1, 1},   {72, 120, 3, 2}, {9, 4, 2, 1}};
enum { MATRICES = sizeof matrices / sizeof *matrices, MATRIX_MOST = 64 * 192, TENSORS_MOST = 16 };

/* Each in an own array of x and copies; every second one has a copy. */
static size_t list_matrices(struct pen_adamw_tensor tensors[TENSORS_MOST], float *const x[3],
                            uint16_t *copies) {
  size_t count = 0;
  for (size_t i = 0; i < MATRICES; i++)
    for (size_t piece = 0; piece < matrices[i].pieces; piece++) {
      const size_t rows = matrices[i].rows / matrices[i].pieces,
                   elements = rows * matrices[i].columns, at = i * MATRIX_MOST + piece * elements;
      tensors[count++] = (struct pen_adamw_tensor){.parameter = x[0] + at,
                                                   .gradient = x[1] + at,
                                                   .exp_avg = x[2] + at,
                                                   .copy = i % 2 ? NULL : copies + at,
                                                   .count = elements,
                                                   .weight_decay = 0.1 * (double)(i % 3),
                                                   .rate = i % 3 ? 7 : 1,
                                                   .momentum = 0.9,
                                                   .nesterov = i % 4 != 1,
                                                   .parts = matrices[i].parts,
                                                   .steps = 5,
                                                   .rows = rows,
                                                   .pieces = matrices[i].pieces,
                                                   .first_row = piece * rows,
                                                   .matrix_rows = matrices[i].rows,
                                                   .matrix_columns = matrices[i].columns};
    }
  return count;
}

/* The workspace that the device wants for any of them, prepared. */
static size_t prepare_matrices(const struct pen_device *device) {
  size_t most = 0;
  for (size_t i = 0; i < MATRICES; i++) {
    const size_t rows = matrices[i].rows, columns = matrices[i].columns / matrices[i].parts;
    const int64_t dim[PEN_DIMS_MAX] = {(int64_t)(rows < columns ? rows : columns),
                                       (int64_t)(rows < columns ? columns : rows), 5};
    if (rows == 0) continue;
    device->prepare(PEN_OP_NEWTON_SCHULZ, PEN_F32, dim, (const double[PEN_REALS_MAX]){0});
    const size_t bytes = pen_aligned(rows * columns * sizeof(float)) +
                         device->workspace_bytes(PEN_OP_NEWTON_SCHULZ, PEN_F32, dim);
    most = bytes > most ? bytes : most;
  }
  return most;
}

static void muon_step(const struct pen_device *device, struct pen_adamw_tensor *tensors,
                      size_t count, void *workspace, const struct pen_adamw *settings_there) {
  device->muon_momentum(tensors, count, settings_there, stream);
  for (size_t i = 0; i < count; i += tensors[i].pieces) {
    tensors[i].workspace = workspace;
    if (tensors[i].count > 0)
      device->muon_orthogonalize(&tensors[i], tensors[i].pieces, settings_there, stream);
  }
  device->muon_apply(tensors, count, settings_there, stream);
}

/* Two steps as on the CPU, the second one captured and replayed; then one with a scale of NaN,
 * which leaves all but the gradient. Momentum has the CPU's bits, parameters those of other
 * products. What is not finite counts as 0. */
static void muon(void **state) {
  (void)state;
  enum { ALL = MATRICES * MATRIX_MOST, BYTES = ALL * sizeof(float) };
  const int same = strncmp(pen_kernels_open(), "baseline", 8) != 0;
  struct pen_adamw_tensor tensors[TENSORS_MOST], expected[TENSORS_MOST];
  struct pen_adamw own = settings;
  float *here[3], *over[3], *actual = floats(ALL), *gradient = random_floats(ALL, 2);
  uint16_t *copy = bytes_at(ALL * sizeof *copy, 0), *rounded = bytes_at(ALL * sizeof *rounded, 0),
           *copy_over = there(ALL * sizeof *copy);
  void *const workspace = bytes_at(prepare_matrices(&pen_cpu), 0), *const workspace_over = there(
                                                                       prepare_matrices(&pen_cuda));
  gradient[5] = NAN, gradient[MATRIX_MOST + 3] = -INFINITY;
  for (size_t a = 0; a < 3; a++)
    over[a] = sent(here[a] = a == 1 ? gradient : random_floats(ALL, a + 1), BYTES);
  const size_t count = list_matrices(tensors, over, copy_over);
  list_matrices(expected, here, copy);
  struct pen_adamw *settings_over = sent(&settings, sizeof settings);
  for (int step = 0; step < 3; step++) {
    const char *why = NULL;
    gradient = random_floats(ALL, 20 + (uint64_t)step);
    if (step > 0) memcpy(here[1], gradient, BYTES);
    if (step > 0) pen_cuda.copy_in(over[1], gradient, BYTES, stream);
    if (step == 2) own.gradient_scale = (double)NAN;
    pen_cuda.copy_in(settings_over, &own, sizeof own, stream);
    pen_cuda.stream_synchronize(stream);
    if (step == 1) pen_cuda.capture_begin(stream);
    muon_step(&pen_cuda, tensors, count, workspace_over, settings_over);
    if (step == 1) {
      void *graph = pen_cuda.capture_end(stream, &why);
      if (graph == NULL) fail_msg("not captured: %s", why);
      pen_cuda.graph_launch(graph, stream);
      pen_cuda.stream_synchronize(stream);
      pen_cuda.graph_destroy(graph);
    }
    muon_step(&pen_cpu, expected, count, workspace, &own);
    assert_well("muon");
  }
  fetch(copy, copy_over, ALL * sizeof *copy);
  for (size_t a = 3; a-- > 0;) {
    fetch(actual, over[a], BYTES);
    for (size_t i = 0; i < count; i++) {
      const size_t at = (size_t)(tensors[i].parameter - over[0]), elements = tensors[i].count;
      if (a == 0 || !same)
        assert_near("muon", actual + at, widened(here[a] + at, elements), elements, 1e-5, 1);
      else
        assert_same_bits("muon", actual + at, here[a] + at, elements * sizeof(float));
      pen_f32_to_bf16(rounded, actual + at, elements);
      if (a == 0 && tensors[i].copy != NULL)
        assert_same_bits("copies", copy + at, rounded, elements * sizeof *copy);
    }
  }
}

/* A skipped step: parameters and moments are unchanged, the gradient becomes zero. */
static void a_skipped_step(void **state) {
  (void)state;
  enum { COUNT = 4097 };
  const struct pen_adamw settings = {1e-3, 0.9, 0.95, 1e-8, 0.1, NAN, 0};
  float *x[4], *over[4], *back = floats(COUNT), *zeros = floats(COUNT);
  memset(zeros, 0, COUNT * sizeof *zeros);
  for (int i = 0; i < 4; i++)
    over[i] = sent(x[i] = random_floats(COUNT, (uint64_t)i + 1), COUNT * sizeof(float));
  const struct pen_adamw_tensor tensor = {.parameter = over[0],
                                          .gradient = over[1],
                                          .exp_avg = over[2],
                                          .exp_avg_sq = over[3],
                                          .count = COUNT,
                                          .weight_decay = 0.1,
                                          .rate = 1};
  pen_cuda.adamw_step(&tensor, 1, sent(&settings, sizeof settings), stream);
  for (int i = 0; i < 4; i++) {
    fetch(back, over[i], COUNT * sizeof *back);
    assert_same_bits("what stays", back, i == 1 ? zeros : x[i], COUNT * sizeof *back);
  }
}

/* The bytes that products, and ops that call others, take; 0 for all others, which kernels.c runs.
 */
static size_t bytes_taken(enum pen_op_kind kind, enum pen_dtype dtype, const int64_t *dim) {
  enum { OUT = 2 };
  if (pen_is_head_loss(kind)) return pen_head_loss_workspace(&pen_cuda, kind, dtype, dim);
  if (pen_cuda.kernel_of(kind, dtype) != pen_cuda_product) return 0;
  const bool rounds_bias = dtype == PEN_BF16 && strstr(op_rows[kind].signature, " bias[") != NULL;
  return PEN_CUDA_PRODUCT_WORKSPACE_BYTES + (rounds_bias ? (size_t)dim[OUT] * sizeof(uint16_t) : 0);
}

/* The generator reserves at least what an op needs. */
static void workspaces_are_reserved(void **state) {
  (void)state;
  static const int64_t dims[][PEN_DIMS_MAX] = {{1, 1, 1, 1, 1, 1},
                                               {3, 5, 7, 1, 6, 1},
                                               {513, 40, 12, 2, 64, 1},
                                               {1024, 768, 3072, 4, 96, 1},
                                               {16384, 50257, 2, 1, 128, 1}};
  const size_t cases = sizeof dims / sizeof *dims;
  for (int n = 0; n < PEN_OP_COUNT; n++)
    for (size_t d = 0; d < 2 * cases; d++) {
      const enum pen_op_kind kind = (enum pen_op_kind)n;
      const enum pen_dtype dtype = d < cases ? PEN_F32 : PEN_BF16;
      const size_t wanted = bytes_taken(kind, dtype, dims[d % cases]),
                   reserved = pen_cuda.workspace_bytes(kind, dtype, dims[d % cases]);
      if (wanted > reserved)
        fail_msg("%s, case %zu: wants %zu bytes, has %zu", op_rows[n].name, d, wanted, reserved);
    }
}

/* Events, semaphores and graphs: what a captured step does when it is replayed, on two streams. */
static void a_graph(void **state) {
  (void)state;
  void *side = pen_cuda.stream_create(), *fork = pen_cuda.event_create(),
       *join = pen_cuda.event_create(), *done = pen_cuda.event_create();
  enum { COUNT = 1000 };
  float *here = pen_cuda.allocate_host(COUNT * sizeof *here),
        *back = pen_cuda.allocate_host(COUNT * sizeof *back);
  float *x = there(COUNT * sizeof *x), *y = there(COUNT * sizeof *y);
  enum { WORDS = 300 }; /* more than a batch has */
  uint32_t *word = there(WORDS * sizeof *word), *taken[WORDS];
  for (size_t i = 0; i < WORDS; i++) taken[i] = word + i;
  pen_cuda.zero(word, WORDS * sizeof *word, stream);
  const char *why = NULL;
  struct pen_call add = {.operand = {x, x, y}, .dim = {COUNT}, .stream = side};
  pen_cuda.kernel_of(PEN_OP_ADD, PEN_F32)(&add); /* loads it, which a capture may not */
  pen_cuda.stream_synchronize(side);
  assert_well("opening");
  pen_cuda.capture_begin(stream);
  pen_cuda.copy_in(x, here, COUNT * sizeof *x, stream);
  pen_cuda.event_record(fork, stream);
  pen_cuda.stream_wait_event(side, fork);
  pen_cuda.kernel_of(PEN_OP_ADD, PEN_F32)(&add);
  pen_cuda.signal(word, 3, side);
  pen_cuda.signal_remote(word + 1, side);
  pen_cuda.event_record(join, side);
  pen_cuda.stream_wait_event(stream, join);
  pen_cuda.wait_value(word, 3, stream);
  pen_cuda.signal(word, 1, stream);
  for (size_t i = 2; i < WORDS; i++) pen_cuda.signal(word + i, 1, stream);
  pen_cuda.take(taken, WORDS, stream);
  pen_cuda.copy_out(back, y, COUNT * sizeof *y, stream);
  void *graph = pen_cuda.capture_end(stream, &why);
  if (graph == NULL) fail_msg("not captured: %s", why);
  const struct pen_graph_figures figures = pen_cuda.graph_figures(graph);
  printf("# a graph of %zu nodes takes %zu bytes\n", figures.nodes, figures.bytes);
  assert_in_range(figures.nodes, WORDS, WORDS + 8); /* a batch is one node */
  uint32_t words[WORDS], zeros[WORDS] = {0};
  for (int turn = 1; turn <= 3; turn++) {
    for (int i = 0; i < COUNT; i++) here[i] = (float)(turn * i), back[i] = -1;
    pen_cuda.graph_launch(graph, stream);
    pen_cuda.event_record(done, stream);
    while (!pen_cuda.event_query(done)) continue;
    assert_well("a replay");
    for (int i = 0; i < COUNT; i++) assert_true(back[i] == (float)(2 * turn * i));
    fetch(words, word, sizeof words);
    assert_memory_equal(words, zeros, sizeof words);
  }
}

/* Here the word is not aligned. */
static void driver_errors_have_names(void **state) {
  (void)state;
  pen_cuda.signal((uint32_t *)((uintptr_t)there(8) + 1), 1, stream);
  assert_string_equal(pen_cuda.error(),
                      "writing a semaphore: invalid argument (CUDA_ERROR_INVALID_VALUE, 1)");
  pen_cuda_replace_error("");
}

/* A branch of a graph that waits for a semaphore holds up no other, also the one that is captured
 * after it and sets the semaphore. CUDA does not know of that order; if it runs the branches one
 * after the other, the test sets the semaphore, and fails. */
static void branches_of_a_graph(void **state) {
  (void)state;
  enum { PATIENCE_S = 5 };
  void *side = pen_cuda.stream_create(), *rescue = pen_cuda.stream_create(),
       *fork = pen_cuda.event_create(), *join = pen_cuda.event_create(),
       *done = pen_cuda.event_create();
  uint32_t *word = there(sizeof *word);
  const char *why = NULL;
  pen_cuda.zero(word, sizeof *word, stream);
  assert_well("opening");
  pen_cuda.capture_begin(stream);
  pen_cuda.event_record(fork, stream);
  pen_cuda.stream_wait_event(side, fork);
  pen_cuda.wait_value(word, 1, stream);
  pen_cuda.signal(word, 0, stream);
  pen_cuda.signal(word, 1, side);
  pen_cuda.event_record(join, side);
  pen_cuda.stream_wait_event(stream, join);
  void *graph = pen_cuda.capture_end(stream, &why);
  if (graph == NULL) fail_msg("not captured: %s", why);
  for (int turn = 0; turn < 3; turn++) {
    const time_t begin = time(NULL);
    int ended = 0;
    pen_cuda.graph_launch(graph, stream);
    pen_cuda.event_record(done, stream);
    while (!(ended = pen_cuda.event_query(done)) && time(NULL) - begin < PATIENCE_S) continue;
    if (!ended) {
      pen_cuda.signal(word, 1, rescue);
      pen_cuda.stream_synchronize(stream);
      fail_msg("a branch that waits holds up the branch that it waits for");
    }
    assert_well("a replay");
  }
}

/* What cannot be captured gives a reason, and leaves no error. */
static void no_graph(void **state) {
  (void)state;
  const char *why = NULL;
  pen_cuda.capture_begin(stream);
  pen_cuda.stream_synchronize(stream);
  assert_null(pen_cuda.capture_end(stream, &why));
  assert_non_null(why);
  assert_true(why[0] != '\0');
  assert_well("afterwards");
  const float one = 1;
  float other = 0;
  fetch(&other, sent(&one, sizeof one), sizeof other);
  assert_true(other == 1);
}

#ifdef PEN_EMULATED
/* The emulation refuses to capture code that was not used before: a GPU may wait for its streams to
 * load it. */
static void code_that_is_not_loaded(void **state) {
  (void)state;
  float *x = there(sizeof *x);
  const struct pen_call scale = {.operand = {x, x}, .dim = {1}, .real = {1}, .stream = stream};
  pen_kernel *const run = pen_cuda.kernel_of(PEN_OP_SCALE, PEN_F32);
  for (int is_loaded = 0; is_loaded <= 1; is_loaded++) {
    const char *why = NULL;
    pen_cuda.capture_begin(stream);
    run(&scale);
    void *graph = pen_cuda.capture_end(stream, &why);
    assert_int_equal(graph != NULL, is_loaded);
    assert_int_equal(strstr(why, "is first used, and so loaded, in a capture") == NULL, is_loaded);
    if (graph != NULL) pen_cuda.graph_destroy(graph);
    run(&scale);
    assert_well("outside of a capture");
  }
}
#endif

/* Keeps the tests that the options choose. Returns how many; 0: an option or a pattern is wrong. */
static size_t choose_tests(struct CMUnitTest *tests, size_t count, int argc, char **argv) {
  const bool only = argc == 3 && strcmp(argv[1], "--only") == 0,
             skip = argc == 3 && strcmp(argv[1], "--skip") == 0;
  size_t kept = 0;
  for (size_t i = 0; i < count && (argc == 1 || only || skip); i++)
    if (argc == 1 || (fnmatch(argv[2], tests[i].name, 0) == 0) == only) tests[kept++] = tests[i];
  if (kept == 0) fprintf(stderr, "usage: device_ops [--only PATTERN | --skip PATTERN] of tests\n");
  return kept;
}

int main(int argc, char **argv) {
  struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(sums_of_squares, tidy),
      cmocka_unit_test_teardown(greatest_magnitudes, tidy),
      cmocka_unit_test_teardown(a_norm_of_nothing_is_0, tidy),
      cmocka_unit_test_teardown(adamw, tidy),
      cmocka_unit_test_teardown(sgd, tidy),
      cmocka_unit_test_teardown(balance, tidy),
      cmocka_unit_test_teardown(muon, tidy),
      cmocka_unit_test_teardown(summed, tidy),
      cmocka_unit_test_teardown(narrowed, tidy),
      cmocka_unit_test_teardown(normals, tidy),
      cmocka_unit_test_teardown(memory, tidy),
      cmocka_unit_test_teardown(settled, tidy),
      cmocka_unit_test_teardown(a_skipped_step, tidy),
      cmocka_unit_test_teardown(workspaces_are_reserved, tidy),
      cmocka_unit_test_teardown(a_graph, tidy),
      cmocka_unit_test_teardown(driver_errors_have_names, tidy),
      cmocka_unit_test_teardown(branches_of_a_graph, tidy),
      cmocka_unit_test_teardown(no_graph, tidy),
#ifdef PEN_EMULATED
      cmocka_unit_test_teardown(code_that_is_not_loaded, tidy),
#endif
      cmocka_unit_test_teardown(what_is_not_taken_is_said, tidy),
      cmocka_unit_test(two_ranks_in_one_process_marked),
      cmocka_unit_test(two_ranks_in_one_process_serial),
      cmocka_unit_test(two_ranks_that_wait_for_each_other),
  };
  const size_t count = choose_tests(tests, sizeof tests / sizeof *tests, argc, argv);
  if (count == 0) return 64;
  if (!open_devices()) return 0;
  return _cmocka_run_group_tests("gpu others", tests, count, NULL, NULL);
}
