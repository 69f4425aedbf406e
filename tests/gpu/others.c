/* others.c: what of the CUDA backend is no operation of ops.def: sums of squares, AdamW, normals, memory; and the kernels over bf16,
 * which no plan names yet. Skips without a GPU; see kernels.c, also for the tolerances. */
#include "kernels/cuda/cuda.h"
#include "tests/gpu/device.h"

static const size_t counts[] = { 1, 3, 15, 16, 17, 100, 4095, 4096, 4097, 20000, 70001 };
enum { COUNTS = sizeof counts / sizeof *counts };

/* The CPU's bits; and a tensor cut at a block's bound has the bits of the whole. */
static void sums_of_squares(void **state) {
  for (int n = 0; n < COUNTS; n++) {
    const size_t count = counts[n];
    const float *x = random_floats(count, count);
    const double expected = pen_sum_squares(x, count);
    double *sum_there = there(sizeof *sum_there), actual;
    pen_cuda.sum_squares(sum_there, sent(x, count * sizeof *x), count, there(((count - 1) / PEN_NORM_BLOCK + 1) * sizeof(double)), stream);
    fetch(&actual, sum_there, sizeof actual);
    assert_same_bits("sum of squares", &actual, &expected, sizeof actual);
    tidy(state);
  }
}

static void a_sum_of_nothing_is_0(void **state) {
  (void)state;
  double *sum = there(sizeof *sum), actual = 1;
  pen_cuda.sum_squares(sum, NULL, 0, there(8), stream);
  fetch(&actual, sum, sizeof actual);
  assert_true(actual == 0);
}

static const struct pen_adamw settings = { .learning_rate = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1,
                                           .gradient_scale = 0.37, .correction1 = 1 - 0.9 * 0.9, .correction2 = 1 - 0.95 * 0.95 };

/* The bits of a CPU that fuses multiply-adds; within rounding of one that does not. */
static void adamw(void **state) {
  const char *fuses = pen_kernels_open(1);
  const int same = strncmp(fuses, "baseline", 8) != 0;
  for (int n = 0; n < COUNTS; n++) {
    const size_t count = counts[n], bytes = count * sizeof(float);
    float *here[4];
    void *over[4];
    for (size_t i = 0; i < 4; i++) {
      here[i] = random_floats(count, i + 1);
      for (size_t k = 0; i == 3 && k < count; k++)
        here[i][k] = fabsf(here[i][k]); /* a second moment */
      over[i] = sent(here[i], bytes);
    }
    pen_cuda.adamw_step(over[0], over[1], over[2], over[3], count, sent(&settings, sizeof settings), settings.weight_decay, stream);
    pen_adamw_step(here[0], here[1], here[2], here[3], count, &settings);
    for (size_t i = 0; i < 4; i++) {
      float *actual = floats(count);
      fetch(actual, over[i], bytes);
      if (same)
        assert_same_bits("adamw", actual, here[i], bytes);
      else
        assert_near("adamw", actual, widened(here[i], count), count, 1e-6, 1);
    }
    tidy(state);
  }
}

static void normals(void **state) {
  const uint32_t key[2] = { 0x12345678, 0x9abcdef0 };
  const uint64_t firsts[] = { 0, 1, 2, 3, 4, 1001, 0xffffffffull * 4 + 3, 1ull << 40 };
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

/* ---- over bf16 ---- */
static uint16_t rounded(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float expanded(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float y;
  memcpy(&y, &bits, sizeof y);
  return y;
}

/* A tensor's numbers in f32 here, already rounded, and in bf16 there. */
struct pair {
  float *here;
  void *over;
  size_t count;
};

static struct pair numbers(size_t count, uint64_t seed) {
  struct pair p = { random_floats(count, seed), NULL, count };
  uint16_t *narrow = bytes_at(count * sizeof *narrow, 0);
  for (size_t i = 0; i < count; i++)
    p.here[i] = expanded(narrow[i] = rounded(p.here[i]));
  p.over = sent(narrow, count * sizeof *narrow);
  return p;
}

static void assert_close(const char *what, const int64_t *dim, const void *over, const float *expected, size_t count, double tolerance) {
  uint16_t *narrow = bytes_at(count * sizeof *narrow, 0);
  float *actual = floats(count);
  char name[80];
  fetch(narrow, over, count * sizeof *narrow);
  for (size_t i = 0; i < count; i++)
    actual[i] = expanded(narrow[i]);
  snprintf(name, sizeof name, "%s(%lld,%lld,%lld,%lld,%lld)", what, (long long)dim[0], (long long)dim[1], (long long)dim[2],
           (long long)dim[3], (long long)dim[4]);
  assert_near(name, actual, widened(expected, count), count, tolerance, 1);
}

static void run_bf16(pen_kernel *kernel, struct pen_call *call, size_t workspace_bytes) {
  call->workspace = workspace_bytes ? there(workspace_bytes) : NULL;
  call->stream = stream;
  kernel(call);
  pen_cuda.wait(stream);
  assert_well("bf16");
}

/* q, k, v, dout in; o, lse; then the gradients, apart or in q's, k's and v's places. */
static void check_attention(const int64_t *dim, int shared) {
  const size_t rows = (size_t)(dim[0] * dim[1]), q_count = rows * (size_t)(dim[2] * dim[4]), k_count = rows * (size_t)(dim[3] * dim[4]);
  const size_t lse_count = rows * (size_t)dim[2];
  const struct pair q = numbers(q_count, 1), k = numbers(k_count, 2), v = numbers(k_count, 3), dout = numbers(q_count, 4);
  float *o = floats(q_count), *lse = floats(lse_count), *lse_over = there(lse_count * sizeof *lse);
  struct pen_call ours = { .operand = { q.here, k.here, v.here, NULL, o, lse }, .dim = { dim[0], dim[1], dim[2], dim[3], dim[4] } };
  struct pen_call theirs = { .operand = { q.over, k.over, v.over, NULL, there(q_count * 2), lse_over }, .dim = { dim[0], dim[1], dim[2], dim[3], dim[4] } };
  run(PEN_OP_ATTENTION, &ours);
  run_bf16(pen_cuda_attention_bf16, &theirs, 0);
  assert_close("o", dim, theirs.operand[4], o, q_count, 1e-2);
  float *lse_actual = floats(lse_count);
  fetch(lse_actual, lse_over, lse_count * sizeof *lse);
  assert_near("lse", lse_actual, widened(lse, lse_count), lse_count, 1e-5, 1);

  float *dq = floats(q_count), *dk = floats(k_count), *dv = floats(k_count);
  struct pen_call back = { .operand = { dout.here, q.here, k.here, v.here, o, lse, NULL, dq, dk, dv }, .dim = { dim[0], dim[1], dim[2], dim[3], dim[4] } };
  struct pen_call back_there = { .operand = { dout.over, q.over, k.over, v.over, theirs.operand[4], lse_over, NULL, shared ? q.over : there(q_count * 2),
                                              shared ? k.over : there(k_count * 2), shared ? v.over : there(k_count * 2) },
                                 .dim = { dim[0], dim[1], dim[2], dim[3], dim[4] } };
  run(PEN_OP_ATTENTION_DX, &back);
  run_bf16(pen_cuda_attention_dx_bf16, &back_there, pen_cuda_attention_dx_bf16_workspace(dim));
  assert_close("dq", dim, back_there.operand[7], dq, q_count, 1e-2);
  assert_close("dk", dim, back_there.operand[8], dk, k_count, 1e-2);
  assert_close("dv", dim, back_there.operand[9], dv, k_count, 1e-2);
}

static void attention(void **state) {
  static const int64_t shapes[][5] = {
    { 1, 1, 1, 1, 8 },    { 2, 17, 2, 1, 16 },   { 1, 130, 4, 2, 32 }, { 1, 129, 1, 1, 40 }, { 1, 200, 2, 2, 64 },
    { 1, 70, 3, 1, 96 },  { 1, 150, 2, 1, 128 }, { 2, 64, 2, 2, 128 }, { 2, 1000, 8, 2, 64 }, { 1, 2048, 4, 4, 128 },
  };
  for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
    for (int shared = 0; shared < 2 && (runs_large() || shapes[n][1] <= 200); shared++) {
      check_attention(shapes[n], shared);
      tidy(state);
    }
}

static void products(void **state) {
  static const int64_t shapes[][3] = { { 8, 16, 24 }, { 300, 256, 128 }, { 64, 40, 200 } };
  for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
    for (int kind = PEN_OP_LINEAR; kind <= PEN_OP_LINEAR_DW; kind++) {
      const int64_t dim[PEN_DIMS_MAX] = { shapes[n][0], shapes[n][1], shapes[n][2] };
      const size_t x = (size_t)(dim[0] * dim[1]), w = (size_t)(dim[1] * dim[2]), y = (size_t)(dim[0] * dim[2]);
      const int is_dw = kind == PEN_OP_LINEAR_DW;
      const size_t counts_of[3][3] = { { x, w, y }, { y, w, x }, { y, x, w } }; /* inputs, output */
      const size_t *count = counts_of[kind - PEN_OP_LINEAR];
      const struct pair a = numbers(count[0], 1), b = numbers(count[1], 2), addend = numbers(count[2], 3);
      float *result = copy_of(addend.here, count[2]);
      struct pen_call ours = { .operand = { a.here, b.here, is_dw ? result : addend.here, result }, .dim = { dim[0], dim[1], dim[2] } };
      struct pen_call theirs = { .operand = { a.over, b.over, is_dw ? sent(result, count[2] * sizeof *result) : addend.over, there(count[2] * 2) },
                                 .dim = { dim[0], dim[1], dim[2] } };
      run((enum pen_op_kind)kind, &ours);
      theirs.prepared = pen_cuda.prepare((enum pen_op_kind)kind, PEN_BF16, dim, theirs.real);
      assert_well("preparing");
      run_bf16(pen_cuda.kernel_of((enum pen_op_kind)kind, PEN_BF16), &theirs, PEN_CUDA_PRODUCT_WORKSPACE_BYTES);
      float *actual = floats(count[2]);
      if (is_dw) { /* f32, so no rounding but of the sums */
        fetch(actual, theirs.operand[2], count[2] * sizeof *actual);
        assert_near("dw", actual, widened(result, count[2]), count[2], 1e-5, 1);
      } else {
        assert_close("product", dim, theirs.operand[3], result, count[2], 5e-3);
      }
      tidy(state);
    }
}

/* A shape that a kernel does not take is an error in words, and nothing is launched. */
static void what_is_not_taken_is_said(void **state) {
  (void)state;
  struct pen_call call = { .dim = { 1, 4, 1, 1, 12 }, .stream = stream };
  assert_null(pen_cuda.error());
  pen_cuda_attention_bf16(&call);
  assert_non_null(pen_cuda.error());
  assert_non_null(strstr(pen_cuda.error(), "head_dim"));
  assert_non_null(pen_cuda.open(0)); /* begins anew */
  assert_null(pen_cuda.error());
}

/* What UPDATE needs, with the bits of runtime/step.c, whose rule stands here again; and what a norm does that is not finite. */
static void settled(void **state) {
  (void)state;
  const double clips[] = { 0, 0.5, 1e9 };
  const size_t counts[] = { 1, 7, 1500 };
  for (int n = 0; n < 3 * 3 * 2 * 2; n++) {
    const int greatest = n & 1, infinite = n >> 1 & 1;
    const double clip = clips[n / 4 % 3];
    const size_t count = counts[n / 12];
    const struct pen_adamw base = { 1e-3, 0.9, 0.95, 1e-8, 0.1, 77, 0.1, 0.05 };
    double *board = doubles(count), sum = 0, most = 0;
    for (size_t i = 0; i < count; i++) {
      board[i] = infinite && i == count / 2 ? INFINITY : (double)((i * 2654435761u) % 1000) / 3000;
      sum += board[i];
      most = fmax(most, board[i]);
    }
    const double norm = greatest ? most : sqrt(sum), scale = clip / (norm + 1e-6);
    struct pen_adamw made, expected = base, *over = there(sizeof made);
    expected.gradient_scale = clip == 0 ? 1 : infinite ? NAN : scale > 1 ? 1 : scale;
    pen_cuda.settle(over, sent(&base, sizeof base), sent(board, count * sizeof *board), count, clip, greatest, stream);
    fetch(&made, over, sizeof made);
    if (isnan(expected.gradient_scale)) {
      assert_true(isnan(made.gradient_scale));
      made.gradient_scale = expected.gradient_scale;
    }
    assert_same_bits("settings", &made, &expected, sizeof expected);
    release_all();
  }
}

/* A step that is skipped: parameters and moments stay, the gradient becomes zero. */
static void a_skipped_step(void **state) {
  (void)state;
  enum { COUNT = 4097 };
  const struct pen_adamw settings = { 1e-3, 0.9, 0.95, 1e-8, 0.1, NAN, 0.1, 0.05 };
  float *x[4], *over[4], *back = floats(COUNT), *zeros = floats(COUNT);
  memset(zeros, 0, COUNT * sizeof *zeros);
  for (int i = 0; i < 4; i++)
    over[i] = sent(x[i] = random_floats(COUNT, (uint64_t)i + 1), COUNT * sizeof(float));
  pen_cuda.adamw_step(over[0], over[1], over[2], over[3], COUNT, sent(&settings, sizeof settings), 0.1, stream);
  for (int i = 0; i < 4; i++) {
    fetch(back, over[i], COUNT * sizeof *back);
    assert_same_bits("what stays", back, i == 1 ? zeros : x[i], COUNT * sizeof *back);
  }
}

/* As on the CPU, to the bit; a NaN anywhere comes through. */
static void greatest_magnitudes(void **state) {
  (void)state;
  const size_t counts[] = { 0, 1, 31, 4096, 4097, 20000 };
  for (int n = 0; n < 6; n++)
    for (int form = 0; form < 3; form++) {
      float *x = random_floats(counts[n] + 1, 5);
      if (form == 1)
        x[counts[n] / 2] = -123;
      if (form == 2)
        x[counts[n] / 3] = -NAN;
      double *over = there(sizeof *over), here = 0;
      pen_cuda.greatest_magnitude(over, sent(x, (counts[n] + 1) * sizeof *x), counts[n], there((counts[n] / PEN_NORM_BLOCK + 1) * 8), stream);
      fetch(&here, over, sizeof here);
      const double expected = pen_greatest_magnitude(x, counts[n]);
      assert_true(here == expected || (isnan(here) && isnan(expected)));
      release_all();
    }
}

/* What the generator reserves is at least what an op asks for. */
static void workspaces_are_reserved(void **state) {
  (void)state;
  static const char *const formulas[PEN_OP_COUNT] = {
#define PEN_CUDA_WORKSPACE(kind, text) [PEN_OP_##kind] = text,
#include "kernels/cuda/workspace.def"
  };
  static const int64_t dims[][PEN_DIMS_MAX] = { { 1, 1, 1, 1, 1, 1 }, { 3, 5, 7, 1, 6, 1 }, { 513, 40, 12, 2, 64, 1 },
                                                { 1024, 768, 3072, 4, 96, 1 }, { 16384, 50257, 2, 1, 128, 1 } };
  for (int kind = 0; kind < PEN_OP_COUNT; kind++)
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
      const size_t wanted = pen_cuda.workspace_bytes((enum pen_op_kind)kind, PEN_F32, dims[d]);
      const size_t reserved = formulas[kind] == NULL ? 0 : formula((enum pen_op_kind)kind, PEN_F32, dims[d], formulas[kind]);
      if (wanted > reserved || (wanted == 0) != (reserved == 0))
        fail_msg("%s, case %zu: wants %zu bytes, has %zu", op_rows[kind].name, d, wanted, reserved);
    }
}

/* Events, words and graphs: what a captured step does when it is replayed, on two streams. */
static void a_graph(void **state) {
  (void)state;
  const struct pen_order_calls *order = pen_cuda.order;
  void *side = pen_cuda.stream_open(), *fork = order->event_open(), *join = order->event_open(), *done = order->event_open();
  enum { COUNT = 1000 };
  float *here = order->pinned(COUNT * sizeof *here), *back = order->pinned(COUNT * sizeof *back);
  float *x = there(COUNT * sizeof *x), *y = there(COUNT * sizeof *y);
  uint32_t *word = there(sizeof *word);
  pen_cuda.zero(word, sizeof *word, stream);
  const char *why = NULL;
  struct pen_call add = { .operand = { x, x, y }, .dim = { COUNT }, .stream = side };
  assert_well("opening");
  order->capture(stream);
  pen_cuda.copy_in(x, here, COUNT * sizeof *x, stream);
  order->record(fork, stream);
  order->follow(side, fork);
  pen_cuda.kernel_of(PEN_OP_ADD, PEN_F32)(&add);
  order->mark(word, 3, side);
  order->record(join, side);
  order->await(word, 3, stream);
  order->mark(word, 0, stream);
  order->follow(stream, join);
  pen_cuda.copy_out(back, y, COUNT * sizeof *y, stream);
  void *graph = order->captured(stream, &why);
  if (graph == NULL)
    fail_msg("not captured: %s", why);
  for (int turn = 1; turn <= 3; turn++) {
    for (int i = 0; i < COUNT; i++)
      here[i] = (float)(turn * i), back[i] = -1;
    order->replay(graph, stream);
    order->record(done, stream);
    while (!order->reached(done))
      continue;
    assert_well("a replay");
    for (int i = 0; i < COUNT; i++)
      assert_true(back[i] == (float)(2 * turn * i));
  }
}

/* What cannot be captured is said, and leaves no error behind. */
static void no_graph(void **state) {
  (void)state;
  const char *why = NULL;
  pen_cuda.order->capture(stream);
  pen_cuda.wait(stream);
  assert_null(pen_cuda.order->captured(stream, &why));
  assert_non_null(why);
  assert_true(why[0] != '\0');
  assert_well("afterwards");
  const float one = 1;
  float other = 0;
  fetch(&other, sent(&one, sizeof one), sizeof other);
  assert_true(other == 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_teardown(sums_of_squares, tidy),
    cmocka_unit_test_teardown(a_sum_of_nothing_is_0, tidy),
    cmocka_unit_test_teardown(adamw, tidy),
    cmocka_unit_test_teardown(normals, tidy),
    cmocka_unit_test_teardown(memory, tidy),
    cmocka_unit_test_teardown(settled, tidy),
    cmocka_unit_test_teardown(a_skipped_step, tidy),
    cmocka_unit_test_teardown(greatest_magnitudes, tidy),
    cmocka_unit_test_teardown(workspaces_are_reserved, tidy),
    cmocka_unit_test_teardown(a_graph, tidy),
    cmocka_unit_test_teardown(no_graph, tidy),
    cmocka_unit_test_teardown(attention, tidy),
    cmocka_unit_test_teardown(products, tidy),
    cmocka_unit_test_teardown(what_is_not_taken_is_said, tidy),
  };
  if (!open_devices())
    return 0;
  return cmocka_run_group_tests_name("gpu others", tests, NULL, NULL);
}
