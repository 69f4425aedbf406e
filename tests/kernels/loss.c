/* loss.c: CROSS_ENTROPY, LOGP with their gradients, SUM_LOSS, ADD_LOSS, GROUP_SUM and HEAD_LOSS
 * against f64; ignored targets. */
#include "kernels/head_loss.h"
#include "tests/support/kernels_support.h"

static const size_t shapes[][2] = {{1, 1}, {1, 2}, {3, 7}, {2, 16}, {4, 257}, {2, 5003}, {2, 2048}};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static double one = 1;

struct loss_case {
  size_t rows, vocab;
  double *logits;
  const int32_t *targets;
};

static double cross_entropy(const void *context) {
  const struct loss_case *p = context;
  double loss = 0;
  for (size_t r = 0; r < p->rows; r++) {
    const double *x = p->logits + r * p->vocab;
    double most = x[0], sum = 0;
    for (size_t i = 0; i < p->vocab; i++) most = fmax(most, x[i]);
    for (size_t i = 0; i < p->vocab; i++) sum += exp(x[i] - most);
    if (p->targets[r] != PEN_IGNORED_TARGET) loss += log(sum) + most - x[p->targets[r]];
  }
  return loss;
}

static int32_t *some_targets(size_t rows, size_t vocab) {
  int32_t *targets = bytes_at(rows * sizeof *targets, 0);
  for (size_t r = 0; r < rows; r++)
    targets[r] = r % 3 == 1 ? PEN_IGNORED_TARGET : (int32_t)((r * 7 + 1) % vocab);
  return targets;
}

static void check(size_t rows, size_t vocab, double scale) {
  const size_t count = rows * vocab;
  float *logits = random_floats(count, 1), *dlogits = floats(count);
  for (size_t i = 0; i < count; i++) logits[i] *= 15;
  int32_t *targets = some_targets(rows, vocab);
  double *loss = doubles(1), *expected = doubles(count);
  struct loss_case p = {rows, vocab, widened(logits, count), targets};
  struct pen_call call = {.operand = {logits, targets, &scale, loss, dlogits},
                          .dim = {(int64_t)rows, (int64_t)vocab}};
  run(PEN_OP_CROSS_ENTROPY, &call);
  const double wanted = cross_entropy(&p);
  assert_true(fabs(*loss - wanted) <= 1e-6 * fmax(1, fabs(wanted)));
  if (count < 3000) {
    differences(cross_entropy, &p, p.logits, count, expected);
    for (size_t i = 0; i < count; i++) expected[i] *= scale;
    assert_near("dlogits", dlogits, expected, count, 1e-6, 1);
  }
  const double with_gradient = *loss; /* and without the gradient, for evaluation */
  call.operand[4] = NULL;
  run(PEN_OP_CROSS_ENTROPY, &call);
  assert_same_bits("loss", loss, &with_gradient, sizeof *loss);
}

static void cross_entropy_and_gradient(void **state) {
  for (int s = 0; s < SHAPES; s++) {
    check(shapes[s][0], shapes[s][1], 1);
    check(shapes[s][0], shapes[s][1], 1.0 / 1024);
    free_tensors(state);
  }
}

/* The gradient of a row sums to zero: softmax and one-hot both sum to one. */
static void gradient_sums_to_zero(void **state) {
  (void)state;
  enum { VOCAB = 32003 };
  float *logits = random_floats(VOCAB, 1);
  int32_t *target = bytes_at(sizeof *target, 0);
  *target = VOCAB - 1;
  struct pen_call call = {.operand = {logits, target, &one, doubles(1), logits}, .dim = {1, VOCAB}};
  run(PEN_OP_CROSS_ENTROPY, &call);
  double sum = 0;
  for (int i = 0; i < VOCAB; i++) sum += (double)logits[i];
  assert_true(fabs(sum) < 1e-6);
}

static void ignored_rows_add_nothing(void **state) {
  (void)state;
  float *logits = random_floats(3 * 20, 1);
  logits[25] = NAN;
  int32_t *targets = bytes_at(3 * sizeof *targets, 0);
  double *loss = doubles(1);
  for (int r = 0; r < 3; r++) targets[r] = PEN_IGNORED_TARGET;
  struct pen_call call = {.operand = {logits, targets, &one, loss, logits}, .dim = {3, 20}};
  run(PEN_OP_CROSS_ENTROPY, &call);
  assert_true(*loss == 0);
  for (int i = 0; i < 60; i++) assert_true(logits[i] == 0);
}

static void a_target_out_of_range_gives_nan(void **state) {
  (void)state;
  float *logits = random_floats(20, 1);
  int32_t *target = bytes_at(sizeof *target, 0);
  double *loss = doubles(1);
  *target = 20;
  struct pen_call call = {.operand = {logits, target, &one, loss, logits}, .dim = {1, 20}};
  run(PEN_OP_CROSS_ENTROPY, &call);
  assert_true(isnan(*loss));
}

static void sum_loss(void **state) {
  (void)state;
  enum { ROWS = 5, WIDTH = 13 };
  float *x = random_floats(ROWS * WIDTH, 1);
  double *loss = doubles(1), expected = 0;
  for (int i = 0; i < ROWS * WIDTH; i++) expected += (double)x[i];
  struct pen_call call = {.operand = {x, NULL, loss, NULL}, .dim = {ROWS, WIDTH}, .real = {0.25}};
  double share = 0.5;
  float *dx = bytes_at(ROWS * WIDTH * sizeof *dx, 0);
  run(PEN_OP_SUM_LOSS, &call);
  assert_true(*loss == expected);
  call.operand[1] = &share;
  call.operand[3] = dx;
  run(PEN_OP_SUM_LOSS, &call);
  assert_true(*loss == expected); /* not scaled */
  for (int i = 0; i < ROWS * WIDTH; i++) assert_true(dx[i] == 0.125f);
  call.operand[1] = NULL;
  call.operand[3] = x;
  run(PEN_OP_SUM_LOSS, &call);
  assert_true(*loss == expected);
  for (int i = 0; i < ROWS * WIDTH; i++) assert_true(x[i] == 0.25f);
}

static void add_loss(void **state) {
  (void)state;
  double loss = 3.0, share = 0.25, sum = 0.5, y = 0;
  run(PEN_OP_ADD_LOSS, &(struct pen_call){.operand = {&loss, &share, NULL, &y}});
  assert_true(y == 0.75);
  run(PEN_OP_ADD_LOSS, &(struct pen_call){.operand = {&loss, &share, &sum, &sum}});
  assert_true(sum == 1.25);
}

enum { LOGP_ROWS = 4, LOGP_VOCAB = 37, CHOICES = 3 };

/* The sum of d(logp) logp and of d(lse) lse in f64, of which LOGP_DX has the gradient. */
static double logp_sum(const float *logits, const int32_t *target, const float *dlogp,
                       const float *dlse) {
  double sum = 0;
  for (int r = 0; r < LOGP_ROWS; r++) {
    double total = 0;
    for (int i = 0; i < LOGP_VOCAB; i++) total += exp((double)logits[r * LOGP_VOCAB + i]);
    sum += (double)dlse[r] * log(total);
    for (int k = 0; k < CHOICES; k++) {
      const int32_t t = target[r * CHOICES + k];
      if (t != PEN_IGNORED_TARGET)
        sum += (double)dlogp[r * CHOICES + k] * ((double)logits[r * LOGP_VOCAB + t] - log(total));
    }
  }
  return sum;
}

/* Values against f64; the gradient against differences of f64. One target is ignored, one is there
 * twice. */
static void logp(void **state) {
  (void)state;
  float *logits = random_floats(LOGP_ROWS * LOGP_VOCAB, 1),
        *dlogp = random_floats(LOGP_ROWS * CHOICES, 2), *dlse = random_floats(LOGP_ROWS, 3),
        *addend = random_floats(LOGP_ROWS * LOGP_VOCAB, 4),
        *made = bytes_at(LOGP_ROWS * CHOICES * sizeof *made, 0),
        *lse = bytes_at(LOGP_ROWS * sizeof *lse, 0),
        *log_sum = bytes_at(LOGP_ROWS * sizeof *lse, 0),
        *dx = bytes_at(LOGP_ROWS * LOGP_VOCAB * sizeof *dx, 0);
  int32_t *target = bytes_at(LOGP_ROWS * CHOICES * sizeof *target, 0);
  for (int n = 0; n < LOGP_ROWS * CHOICES; n++) target[n] = (n * 11 + 5) % LOGP_VOCAB;
  target[1] = PEN_IGNORED_TARGET;
  target[4] = target[3];
  struct pen_call forward = {.operand = {logits, target, made, lse, log_sum},
                             .dim = {LOGP_ROWS, LOGP_VOCAB, CHOICES}};
  run(PEN_OP_LOGP, &forward);
  assert_true(made[1] == 0.0f);
  for (int r = 0; r < LOGP_ROWS; r++) {
    double total = 0;
    for (int i = 0; i < LOGP_VOCAB; i++) total += exp((double)logits[r * LOGP_VOCAB + i]);
    assert_true(fabs((double)lse[r] - log(total)) < 1e-6 && lse[r] == log_sum[r]);
    const float own = logits[r * LOGP_VOCAB + target[r * CHOICES + 2]];
    assert_true(fabs((double)made[r * CHOICES + 2] - ((double)own - log(total))) < 1e-6);
  }
  run(PEN_OP_LOGP_DX,
      &(struct pen_call){.operand = {dlogp, dlse, logits, target, log_sum, addend, dx},
                         .dim = {LOGP_ROWS, LOGP_VOCAB, CHOICES}});
  for (int n = 0; n < LOGP_ROWS * LOGP_VOCAB; n++) {
    const float x = logits[n], step = 0x1p-7f;
    logits[n] = x + step;
    const double above = logp_sum(logits, target, dlogp, dlse);
    logits[n] = x - step;
    const double below = logp_sum(logits, target, dlogp, dlse);
    logits[n] = x;
    const double wanted = (above - below) / (2.0 * (double)step) + (double)addend[n];
    assert_true(fabs((double)dx[n] - wanted) < 1e-4);
  }
  run(PEN_OP_LOGP_DX, &(struct pen_call){.operand = {NULL, NULL, logits, target, log_sum, NULL, dx},
                                         .dim = {LOGP_ROWS, LOGP_VOCAB, CHOICES}});
  for (int n = 0; n < LOGP_ROWS * LOGP_VOCAB; n++) assert_true(dx[n] == 0.0f);
}

static void group_sum(void **state) {
  (void)state;
  enum { GROUPS = 3, RUN = 21 };
  float *x = random_floats(GROUPS * RUN, 1), *y = bytes_at(GROUPS * RUN * sizeof *y, 0);
  run(PEN_OP_GROUP_SUM, &(struct pen_call){.operand = {x, y}, .dim = {GROUPS, RUN}});
  for (int g = 0; g < GROUPS; g++) {
    double sum = 0;
    for (int i = 0; i < RUN; i++) sum += (double)x[g * RUN + i];
    for (int i = 0; i < RUN; i++) assert_true(fabs((double)y[g * RUN + i] - sum) < 1e-5);
  }
}

static const enum pen_op_kind head_kinds[] = {
    PEN_OP_HEAD_LOSS,         PEN_OP_HEAD_LOSS_DW,         PEN_OP_HEAD_LOSS_B,
    PEN_OP_TOKEN_LOGP,        PEN_OP_TOKEN_LOGP_DX,        PEN_OP_TOKEN_LOGP_DW,
    PEN_OP_TOKEN_LOGP_B,      PEN_OP_HEAD_MAXIMUM,         PEN_OP_HEAD_SUM,
    PEN_OP_HEAD_LOSS_COLUMNS, PEN_OP_HEAD_LOSS_COLUMNS_DW, PEN_OP_HEAD_LOSS_COLUMNS_B};

/* HEAD_LOSS_B has the bits of HEAD_LOSS and HEAD_LOSS_DW, also without the gradient of the input.
 */
static void head_loss_b_equals_its_parts(void **state) {
  (void)state;
  enum { ROWS = 70, WIDTH = 24, VOCAB = 37, CHUNK = 32 };
  for (int form = 0; form < 4; form++) {
    const enum pen_dtype dtype = form & 1 ? PEN_BF16 : PEN_F32;
    const size_t bytes = dtype == PEN_BF16 ? sizeof(uint16_t) : sizeof(float);
    float *x = random_floats(ROWS * WIDTH, 1), *w = random_floats(VOCAB * WIDTH, 2);
    for (size_t i = 0; form & 1 && i < ROWS * WIDTH; i++) ((uint16_t *)x)[i] = half_of(x[i]);
    for (size_t i = 0; form & 1 && i < VOCAB * WIDTH; i++) ((uint16_t *)w)[i] = half_of(w[i]);
    double share = 0.01, *loss[2] = {doubles(1), doubles(1)};
    float *dw[2] = {random_floats(VOCAB * WIDTH, 3), random_floats(VOCAB * WIDTH, 3)};
    float *dx[2] = {form & 2 ? NULL : floats(ROWS * WIDTH), form & 2 ? NULL : floats(ROWS * WIDTH)};
    int32_t *targets = some_targets(ROWS, VOCAB);
    struct pen_call one_by_one[2] = {
        {.operand = {x, w, targets, &share, loss[0], dx[0]}, .dim = {ROWS, WIDTH, VOCAB, CHUNK}},
        {.operand = {x, w, targets, &share, dw[0]}, .dim = {ROWS, WIDTH, VOCAB, CHUNK}}};
    struct pen_call joined = {.operand = {x, w, targets, &share, loss[1], dx[1], dw[1]},
                              .dim = {ROWS, WIDTH, VOCAB, CHUNK}};
    run_as(dtype, PEN_OP_HEAD_LOSS, &one_by_one[0]);
    run_as(dtype, PEN_OP_HEAD_LOSS_DW, &one_by_one[1]);
    run_as(dtype, PEN_OP_HEAD_LOSS_B, &joined);
    assert_true(*loss[0] > 0);
    assert_same_bits("loss", loss[1], loss[0], sizeof(double));
    assert_same_bits("dw", dw[1], dw[0], VOCAB * WIDTH * sizeof(float));
    if (dx[0] != NULL) assert_same_bits("dx", dx[1], dx[0], ROWS * WIDTH * bytes);
  }
}

/* TOKEN_LOGP and its gradients are LINEAR, LOGP and theirs, but for the order of sums; B has the
 * bits of both gradients. */
static void token_logp(void **state) {
  (void)state;
  enum { ROWS = 70, WIDTH = 24, VOCAB = 37, CHUNK = 32 };
  const int64_t product[PEN_DIMS_MAX] = {ROWS, WIDTH, VOCAB}, loss[] = {ROWS, VOCAB, CHOICES},
                fused[] = {ROWS, WIDTH, VOCAB, CHUNK, CHOICES};
  float *x = random_floats(ROWS * WIDTH, 1), *w = random_floats(VOCAB * WIDTH, 2),
        *dlogp = random_floats(ROWS * CHOICES, 3), *dlse = random_floats(ROWS, 4),
        *addend = random_floats(ROWS * WIDTH, 5), *logits = floats(ROWS * VOCAB),
        *dlogits = floats(ROWS * VOCAB);
  float *logp[2], *lse[2], *log_sum[2], *dx[3], *dw[3];
  int32_t *target = some_targets(ROWS * CHOICES, VOCAB);
  for (int i = 0; i < 3; i++) {
    if (i < 2) logp[i] = floats(ROWS * CHOICES), lse[i] = floats(ROWS), log_sum[i] = floats(ROWS);
    dx[i] = floats(ROWS * WIDTH);
    dw[i] = random_floats(VOCAB * WIDTH, 6);
  }
#define CALL(kind, dims, ...)                         \
  do {                                                \
    struct pen_call one = {.operand = {__VA_ARGS__}}; \
    memcpy(one.dim, dims, sizeof dims);               \
    run(kind, &one);                                  \
  } while (0)
  CALL(PEN_OP_LINEAR, product, x, w, NULL, logits);
  CALL(PEN_OP_LOGP, loss, logits, target, logp[0], lse[0], log_sum[0]);
  CALL(PEN_OP_LOGP_DX, loss, dlogp, dlse, logits, target, log_sum[0], NULL, dlogits);
  CALL(PEN_OP_LINEAR_DX, product, dlogits, w, addend, dx[0]);
  CALL(PEN_OP_LINEAR_DW, product, dlogits, x, dw[0]);
  CALL(PEN_OP_TOKEN_LOGP, fused, x, w, target, logp[1], lse[1], log_sum[1]);
  CALL(PEN_OP_TOKEN_LOGP_DX, fused, x, w, target, log_sum[1], dlogp, dlse, addend, dx[1]);
  CALL(PEN_OP_TOKEN_LOGP_DW, fused, x, w, target, log_sum[1], dlogp, dlse, dw[1]);
  CALL(PEN_OP_TOKEN_LOGP_B, fused, x, w, target, log_sum[1], dlogp, dlse, addend, dx[2], dw[2]);
#undef CALL
  assert_near("logp", logp[1], widened(logp[0], ROWS * CHOICES), ROWS * CHOICES, 1e-5, 1);
  assert_near("lse", lse[1], widened(lse[0], ROWS), ROWS, 1e-5, 1);
  assert_near("dx", dx[1], widened(dx[0], ROWS * WIDTH), ROWS * WIDTH, 1e-5, 1);
  assert_near("dw", dw[1], widened(dw[0], VOCAB * WIDTH), VOCAB * WIDTH, 1e-5, 1);
  assert_same_bits("dx of B", dx[2], dx[1], ROWS * WIDTH * sizeof(float));
  assert_same_bits("dw of B", dw[2], dw[1], VOCAB * WIDTH * sizeof(float));
}

/* The workspace of HEAD_LOSS in ops.def is at least what its operations need, on shapes around the
 * block sizes of products. */
static void head_loss_workspace_suffices(void **state) {
  (void)state;
  static const int64_t edge[] = {1,   5,   16,  63,  96,  97,  256,  383,  384,  385,
                                 511, 512, 513, 760, 768, 769, 1025, 1536, 4099, 32000};
  static const int64_t chunk[] = {32, 96, 352, 384, 416, 512, 768, 2048};
  enum {
    EDGES = sizeof edge / sizeof *edge,
    CHUNKS = sizeof chunk / sizeof *chunk,
    FORMS = 4 * sizeof head_kinds / sizeof *head_kinds
  };
  for (int i = 0; i < EDGES * EDGES * CHUNKS * FORMS; i++) {
    const int64_t c = chunk[i / FORMS % CHUNKS], width = edge[i / FORMS / CHUNKS % EDGES],
                  vocab = edge[i / FORMS / CHUNKS / EDGES];
    const int64_t dim[PEN_DIMS_MAX] = {i & 1 ? 3 * c + 7 : c - 1, width, vocab, c};
    const enum pen_op_kind kind = head_kinds[i % FORMS / 4];
    const enum pen_dtype dtype = i & 2 ? PEN_BF16 : PEN_F32;
    const size_t placed = pen_cpu.workspace_bytes(kind, dtype, dim),
                 wanted = pen_head_loss_workspace(&pen_cpu, kind, dtype, dim);
    if (placed < wanted)
      fail_msg("%s, %s, rows %d, width %d, vocab %d, chunk %d: %zu bytes are placed, %zu wanted",
               op_rows[kind].name, dtype == PEN_BF16 ? "bf16" : "f32", (int)dim[0], (int)width,
               (int)vocab, (int)c, placed, wanted);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cross_entropy_and_gradient),
      cmocka_unit_test(gradient_sums_to_zero),
      cmocka_unit_test(ignored_rows_add_nothing),
      cmocka_unit_test(a_target_out_of_range_gives_nan),
      cmocka_unit_test(sum_loss),
      cmocka_unit_test(add_loss),
      cmocka_unit_test(logp),
      cmocka_unit_test(group_sum),
      cmocka_unit_test_teardown(head_loss_b_equals_its_parts, free_tensors),
      cmocka_unit_test_teardown(token_logp, free_tensors),
      cmocka_unit_test(head_loss_workspace_suffices),
  };
  return RUN_ON_EVERY_SET(tests);
}
