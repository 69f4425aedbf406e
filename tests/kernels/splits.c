/* splits.c: the ops of split weights against those of whole ones: the same bits where only the
 * weight is split, and almost the same where a sum is. */
#include "tests/support/kernels_support.h"

enum { ROWS = 12, WIDTH = 37, VOCAB = 2311, SPLITS = 4, SPLIT = (VOCAB + SPLITS - 1) / SPLITS };

/* The rows of a split of the vocabulary. */
static int64_t split_rows(int k) { return k + 1 < SPLITS ? SPLIT : VOCAB - k * SPLIT; }

static int32_t *some_tokens(void) {
  int32_t *tokens = bytes_at(ROWS * sizeof *tokens, 0);
  for (int r = 0; r < ROWS; r++) tokens[r] = r * 397 % VOCAB;
  return tokens;
}

static void embedding_rows_are_copied(void **state) {
  (void)state;
  int32_t *tokens = some_tokens();
  float *table = random_floats(VOCAB * WIDTH, 1), *whole = floats(ROWS * WIDTH),
        *y = floats(ROWS * WIDTH);
  for (int k = 0; k < SPLITS; k++) {
    struct pen_call call = {.operand = {tokens, table + k * SPLIT * WIDTH, k ? y : NULL, y},
                            .dim = {ROWS, WIDTH, split_rows(k), k * SPLIT, VOCAB}};
    run(PEN_OP_EMBEDDING, &call);
  }
  run(PEN_OP_EMBEDDING, &(struct pen_call){.operand = {tokens, table, NULL, whole},
                                           .dim = {ROWS, WIDTH, VOCAB, 0, VOCAB}});
  assert_same_bits("y", y, whole, ROWS * WIDTH * sizeof *y);
}

static void embedding_gradients_are_those_of_the_whole(void **state) {
  (void)state;
  int32_t *tokens = some_tokens();
  tokens[3] = tokens[0];
  float *dy = random_floats(ROWS * WIDTH, 1), *whole = random_floats(VOCAB * WIDTH, 2),
        *dtable = copy_of(whole, VOCAB * WIDTH);
  for (int k = 0; k < SPLITS; k++)
    run(PEN_OP_EMBEDDING_DW, &(struct pen_call){.operand = {dy, tokens, dtable + k * SPLIT * WIDTH},
                                                .dim = {ROWS, WIDTH, split_rows(k), k * SPLIT}});
  run(PEN_OP_EMBEDDING_DW,
      &(struct pen_call){.operand = {dy, tokens, whole}, .dim = {ROWS, WIDTH, VOCAB}});
  assert_same_bits("dtable", dtable, whole, VOCAB * WIDTH * sizeof *whole);
}

/* dx has the bits of RMSNORM_DX; dgain is (r0 + r1) + (r2 + r3), of runs of both sequences. */
static void norms_sum_runs(void **state) {
  (void)state;
  enum {
    BATCH = 2,
    SEQUENCE = 8,
    RUNS = 4,
    RUN = SEQUENCE / RUNS,
    COUNT = BATCH * SEQUENCE * WIDTH
  };
  float *dy = random_floats(COUNT, 1), *x = random_floats(COUNT, 2),
        *gain = random_floats(WIDTH, 3), *rstd = random_floats(BATCH * SEQUENCE, 4),
        *dx = floats(COUNT), *whole = floats(COUNT), *dgain = floats(WIDTH),
        *of_all = floats(WIDTH), *of_run = floats(RUNS * BATCH * WIDTH);
  run(PEN_OP_RMSNORM_DX, &(struct pen_call){.operand = {dy, x, gain, rstd, NULL, dx, dgain},
                                            .dim = {BATCH * SEQUENCE, WIDTH, SEQUENCE, RUNS}});
  run(PEN_OP_RMSNORM_DX, &(struct pen_call){.operand = {dy, x, gain, rstd, NULL, whole, of_all},
                                            .dim = {BATCH * SEQUENCE, WIDTH}});
  assert_same_bits("dx", dx, whole, COUNT * sizeof *dx);
  for (int b = 0; b < BATCH; b++)
    for (int r = 0; r < RUNS; r++) {
      const int first = b * SEQUENCE + r * RUN;
      run(PEN_OP_RMSNORM_DX,
          &(struct pen_call){.operand = {dy + first * WIDTH, x + first * WIDTH, gain, rstd + first,
                                         NULL, whole, of_run + (r * BATCH + b) * WIDTH},
                             .dim = {RUN, WIDTH}});
    }
  for (int i = 0; i < WIDTH; i++) {
    float sum[RUNS];
    for (int r = 0; r < RUNS; r++)
      sum[r] = of_run[r * BATCH * WIDTH + i] + of_run[(r * BATCH + 1) * WIDTH + i];
    of_all[i] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
  assert_same_bits("dgain", dgain, of_all, WIDTH * sizeof *dgain);
}

/* Of documents that begin within a sequence, a position has rows in several runs. */
static void positions_and_biases_sum_runs(void **state) {
  (void)state;
  enum { BATCH = 2, SEQUENCE = 8, RUNS = 4, COUNT = BATCH * SEQUENCE * WIDTH };
  float *dy = random_floats(COUNT, 1), *dtable = random_floats(SEQUENCE * WIDTH, 2),
        *dbias = random_floats(WIDTH, 3), *table = copy_of(dtable, SEQUENCE * WIDTH),
        *bias = copy_of(dbias, WIDTH);
  int32_t *starts = bytes_at(BATCH * SEQUENCE * sizeof *starts, 0);
  for (int r = 0; r < BATCH * SEQUENCE; r++) starts[r] = r % SEQUENCE < 3 ? 0 : 3;
  for (int i = 0; i < WIDTH; i++) {
    float of_bias[RUNS] = {0};
    for (int p = 0; p < SEQUENCE; p++) {
      float sum[RUNS] = {0};
      for (int r = 0; r < BATCH * SEQUENCE; r++)
        if (r % SEQUENCE - starts[r] == p)
          sum[r % SEQUENCE / (SEQUENCE / RUNS)] += dy[r * WIDTH + i];
      table[p * WIDTH + i] += (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
    for (int run = 0; run < RUNS; run++)
      for (int b = 0; b < BATCH; b++) {
        const float *at = dy + (b * SEQUENCE + run * (SEQUENCE / RUNS)) * WIDTH + i;
        of_bias[run] += at[0] + at[WIDTH];
      }
    bias[i] += (of_bias[0] + of_bias[1]) + (of_bias[2] + of_bias[3]);
  }
  run(PEN_OP_POSITION_DW,
      &(struct pen_call){.operand = {dy, starts, dtable},
                         .dim = {BATCH * SEQUENCE, WIDTH, SEQUENCE, SEQUENCE, RUNS}});
  assert_same_bits("dtable", dtable, table, SEQUENCE * WIDTH * sizeof *table);
  run(PEN_OP_BIAS_DW,
      &(struct pen_call){.operand = {dy, dbias}, .dim = {BATCH * SEQUENCE, WIDTH, SEQUENCE, RUNS}});
  assert_same_bits("dbias", dbias, bias, WIDTH * sizeof *bias);
}

/* y = ((a + b) + addend) + bias */
static void partial_sums_are_rounded_once(void **state) {
  (void)state;
  enum { COUNT = 2 * 3 * WIDTH };
  float *a = random_floats(COUNT, 1), *b = random_floats(COUNT, 2),
        *addend = random_floats(COUNT, 3), *bias = random_floats(WIDTH, 4), *y = floats(COUNT),
        *expected = floats(COUNT);
  for (int i = 0; i < COUNT; i++) expected[i] = ((a[i] + b[i]) + addend[i]) + bias[i % WIDTH];
  run(PEN_OP_SUM_PARTIALS,
      &(struct pen_call){.operand = {a, b, addend, bias, y}, .dim = {6, WIDTH}});
  assert_same_bits("y", y, expected, COUNT * sizeof *y);
  run(PEN_OP_SUM_PARTIALS,
      &(struct pen_call){.operand = {a, b, addend, bias, addend}, .dim = {6, WIDTH}});
  assert_same_bits("y in place of the addend", addend, expected, COUNT * sizeof *y);
}

/* What tensor ranks have embedded is chosen by token; maxima are those of all. */
static void tensor_ranks_are_joined(void **state) {
  (void)state;
  enum { TENSOR_RANKS = 2, TENSOR_RANK = VOCAB / TENSOR_RANKS };
  const int32_t *tokens = some_tokens();
  float *x[TENSOR_RANKS], *y = floats(ROWS * WIDTH), *expected = floats(ROWS * WIDTH);
  for (int m = 0; m < TENSOR_RANKS; m++) x[m] = random_floats(ROWS * WIDTH, (uint32_t)m + 1);
  for (int r = 0; r < ROWS; r++)
    memcpy(expected + r * WIDTH,
           x[tokens[r] / TENSOR_RANK < TENSOR_RANKS ? tokens[r] / TENSOR_RANK : 1] + r * WIDTH,
           WIDTH * sizeof *y);
  for (int m = 0; m < TENSOR_RANKS; m++)
    run(PEN_OP_EMBEDDING_SELECT,
        &(struct pen_call){
            .operand = {(void *)(uintptr_t)tokens, x[m], m ? y : NULL, y},
            .dim = {ROWS, WIDTH, m ? VOCAB - TENSOR_RANK : TENSOR_RANK, m * TENSOR_RANK}});
  assert_same_bits("rows", y, expected, ROWS * WIDTH * sizeof *y);
  for (int i = 0; i < ROWS * WIDTH; i++) expected[i] = x[1][i] > x[0][i] ? x[1][i] : x[0][i];
  run(PEN_OP_MAXIMUM, &(struct pen_call){.operand = {x[0], x[1], x[0]}, .dim = {ROWS * WIDTH}});
  assert_same_bits("maxima", x[0], expected, ROWS * WIDTH * sizeof *y);
}

/* Of each sequence the positions that a tensor rank holds. */
static void runs_are_copied(void **state) {
  (void)state;
  int32_t x[] = {0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15}, y[6] = {0};
  const int32_t expected[] = {3, 4, 5, 13, 14, 15};
  run(PEN_OP_SLICE_SEQUENCE, &(struct pen_call){.operand = {x, y}, .dim = {2, 6, 3, 3}});
  assert_memory_equal(y, expected, sizeof y);
}

/* Loss and gradient of a vocabulary in splits, against CROSS_ENTROPY. */
static void losses_of_splits_add_up(void **state) {
  (void)state;
  int32_t *targets = some_tokens();
  targets[5] = PEN_IGNORED_TARGET;
  float *logits = random_floats(ROWS * VOCAB, 1), *dwhole = floats(ROWS * VOCAB),
        *maximum = floats(ROWS), *split[SPLITS], *dsplit[SPLITS];
  double *share = doubles(1), *loss = doubles(1), *sum = doubles(ROWS), *own = doubles(ROWS),
         all = 0;
  *share = 1.0 / 11;
  for (int k = 0; k < SPLITS; k++) {
    const size_t vocab = (size_t)split_rows(k);
    split[k] = floats(ROWS * vocab);
    dsplit[k] = floats(ROWS * vocab);
    for (size_t r = 0; r < ROWS; r++)
      memcpy(split[k] + r * vocab, logits + r * VOCAB + k * SPLIT, vocab * sizeof(float));
    run(PEN_OP_LOGITS_MAXIMUM,
        &(struct pen_call){.operand = {split[k], k ? maximum : NULL, maximum},
                           .dim = {ROWS, (int64_t)vocab}});
  }
  for (int k = 0; k < SPLITS; k++) {
    run(PEN_OP_LOGITS_SUM, &(struct pen_call){.operand = {split[k], maximum, k ? own : sum},
                                              .dim = {ROWS, split_rows(k)}});
    if (k) run(PEN_OP_SUM_ADD, &(struct pen_call){.operand = {sum, own, sum}, .dim = {ROWS}});
  }
  for (int k = 0; k < SPLITS; k++) {
    run(PEN_OP_CROSS_ENTROPY_COLUMNS,
        &(struct pen_call){.operand = {split[k], targets, share, maximum, sum, loss, dsplit[k]},
                           .dim = {ROWS, split_rows(k), k * SPLIT, VOCAB}});
    all += *loss;
  }
  run(PEN_OP_CROSS_ENTROPY,
      &(struct pen_call){.operand = {logits, targets, share, loss, dwhole}, .dim = {ROWS, VOCAB}});
  assert_true(fabs(all - *loss) <= 1e-6 * *loss && *loss > 1);
  for (int k = 0; k < SPLITS; k++)
    for (int r = 0; r < ROWS; r++)
      for (int i = 0; i < split_rows(k); i++) {
        const float wanted = dwhole[r * VOCAB + k * SPLIT + i];
        assert_true(fabsf(dsplit[k][r * split_rows(k) + i] - wanted) <=
                    2e-6f * fabsf(wanted) + 1e-9f);
      }
}

/* The head by chunks of rows. */
enum { HEAD_ROWS = 70, HEAD_WIDTH = 24, HEAD_VOCAB = 150, CHUNK = 32 };

/* A split of the head, and what the ops of its logits make, chunk by chunk. */
struct split_of_head {
  int64_t vocab, first;
  float *w, *logits, *dlogits, *dx, *dw;
  double loss;
};

static struct split_of_head head_of(int k) {
  const int64_t most = (HEAD_VOCAB + SPLITS - 1) / SPLITS, first = k * most,
                vocab = k + 1 < SPLITS ? most : HEAD_VOCAB - first;
  const size_t weights = (size_t)vocab * HEAD_WIDTH, logits = (size_t)vocab * HEAD_ROWS;
  struct split_of_head split = {.vocab = vocab,
                                .first = first,
                                .w = random_floats(weights, 10 + (unsigned)k),
                                .logits = floats(logits),
                                .dlogits = floats(logits),
                                .dx = floats(HEAD_ROWS * HEAD_WIDTH),
                                .dw = floats(weights)};
  memset(split.dw, 0, weights * sizeof *split.dw);
  return split;
}

/* What all splits of the head share. */
struct head_of_splits {
  struct split_of_head split[SPLITS];
  float *x, *maximum;
  double *sum[SPLITS], share;
  int32_t *targets;
};

#define CALL(kind, dims, ...)                                         \
  do {                                                                \
    struct pen_call made = {.operand = {__VA_ARGS__}, .dim = {dims}}; \
    run(kind, &made);                                                 \
  } while (0)
#define DIMS(...) __VA_ARGS__

/* Logits, their maximum over all splits, and the sums of exponentials, by the ops of splits. */
static void run_logits(struct head_of_splits *h) {
  for (int k = 0; k < SPLITS; k++)
    for (int64_t r = 0; r < HEAD_ROWS; r += CHUNK) {
      struct split_of_head *p = &h->split[k];
      const int64_t rows = HEAD_ROWS - r < CHUNK ? HEAD_ROWS - r : CHUNK;
      float *logits = p->logits + r * p->vocab, *most = h->maximum + r;
      CALL(PEN_OP_LINEAR, DIMS(rows, HEAD_WIDTH, p->vocab, SPLITS), h->x + r * HEAD_WIDTH, p->w,
           NULL, logits);
      CALL(PEN_OP_LOGITS_MAXIMUM, DIMS(rows, p->vocab), logits, k ? most : NULL, most);
    }
  for (int k = 0; k < SPLITS; k++)
    CALL(PEN_OP_LOGITS_SUM, DIMS(HEAD_ROWS, h->split[k].vocab), h->split[k].logits, h->maximum,
         h->sum[k]);
}

/* Loss and gradients of a split, given the sum of all exponentials. */
static void run_split(const struct head_of_splits *h, struct split_of_head *p, double *sum) {
  double *loss = doubles(1);
  for (int64_t r = 0; r < HEAD_ROWS; r += CHUNK) {
    const int64_t rows = HEAD_ROWS - r < CHUNK ? HEAD_ROWS - r : CHUNK;
    float *logits = p->logits + r * p->vocab, *dlogits = p->dlogits + r * p->vocab,
          *x = h->x + r * HEAD_WIDTH;
    CALL(PEN_OP_CROSS_ENTROPY_COLUMNS, DIMS(rows, p->vocab, p->first, HEAD_VOCAB), logits,
         h->targets + r, (void *)&h->share, h->maximum + r, sum + r, loss, dlogits);
    CALL(PEN_OP_LINEAR_DX, DIMS(rows, HEAD_WIDTH, p->vocab), dlogits, p->w, NULL,
         p->dx + r * HEAD_WIDTH);
    CALL(PEN_OP_LINEAR_DW, DIMS(rows, HEAD_WIDTH, p->vocab), dlogits, x, p->dw);
    p->loss += *loss;
  }
}

static struct head_of_splits random_head(void) {
  struct head_of_splits h = {.x = random_floats(HEAD_ROWS * HEAD_WIDTH, 1),
                             .maximum = floats(HEAD_ROWS),
                             .targets = bytes_at(HEAD_ROWS * sizeof *h.targets, 0),
                             .share = 1.0 / 61};
  for (int r = 0; r < HEAD_ROWS; r++)
    h.targets[r] = r % 9 == 4 ? PEN_IGNORED_TARGET : r * 37 % HEAD_VOCAB;
  for (int k = 0; k < SPLITS; k++) {
    h.split[k] = head_of(k);
    h.sum[k] = doubles(HEAD_ROWS);
  }
  return h;
}

/* HEAD_LOSS_COLUMNS, _DW and _B of a split. */
static void assert_head_split(const struct head_of_splits *h, const struct split_of_head *p,
                              double *sum) {
  const size_t weights = (size_t)p->vocab * HEAD_WIDTH;
  float *dx = floats(HEAD_ROWS * HEAD_WIDTH), *dw = floats(weights);
  double *loss = doubles(1), share = h->share;
  for (int both = 0; both < 2; both++) {
    memset(dw, 0, weights * sizeof *dw);
    memset(dx, 0, HEAD_ROWS * HEAD_WIDTH * sizeof *dx);
    CALL(both ? PEN_OP_HEAD_LOSS_COLUMNS_B : PEN_OP_HEAD_LOSS_COLUMNS,
         DIMS(HEAD_ROWS, HEAD_WIDTH, p->vocab, CHUNK, p->first, HEAD_VOCAB), h->x, p->w, h->targets,
         &share, h->maximum, sum, loss, dx, both ? dw : NULL);
    if (!both)
      CALL(PEN_OP_HEAD_LOSS_COLUMNS_DW,
           DIMS(HEAD_ROWS, HEAD_WIDTH, p->vocab, CHUNK, p->first, HEAD_VOCAB), h->x, p->w,
           h->targets, &share, h->maximum, sum, dw);
    assert_same_bits("loss", loss, &p->loss, sizeof *loss);
    assert_same_bits("dx", dx, p->dx, HEAD_ROWS * HEAD_WIDTH * sizeof *dx);
    assert_same_bits("dw", dw, p->dw, weights * sizeof *dw);
  }
}

static void heads_by_chunks_are_those_of_logits(void **state) {
  (void)state;
  struct head_of_splits h = random_head();
  float *maximum = floats(HEAD_ROWS);
  double *sum = doubles(HEAD_ROWS);
  run_logits(&h);
  for (int k = 0; k < SPLITS; k++)
    CALL(PEN_OP_HEAD_MAXIMUM, DIMS(HEAD_ROWS, HEAD_WIDTH, h.split[k].vocab, CHUNK), h.x,
         h.split[k].w, k ? maximum : NULL, maximum);
  assert_same_bits("maximum", maximum, h.maximum, HEAD_ROWS * sizeof *maximum);
  for (int k = 0; k < SPLITS; k++) {
    CALL(PEN_OP_HEAD_SUM, DIMS(HEAD_ROWS, HEAD_WIDTH, h.split[k].vocab, CHUNK), h.x, h.split[k].w,
         maximum, sum);
    assert_same_bits("sum", sum, h.sum[k], HEAD_ROWS * sizeof *sum);
    if (k) CALL(PEN_OP_SUM_ADD, DIMS(HEAD_ROWS), h.sum[0], h.sum[k], h.sum[0]);
  }
  for (int k = 0; k < SPLITS; k++) {
    run_split(&h, &h.split[k], h.sum[0]);
    assert_true(h.split[k].loss > 0);
    assert_head_split(&h, &h.split[k], h.sum[0]);
  }
}

static void logits_are_joined(void **state) {
  (void)state;
  float *logits = random_floats(ROWS * VOCAB, 1), *y = floats(ROWS * VOCAB);
  for (int k = 0; k < SPLITS; k++) {
    const size_t vocab = (size_t)split_rows(k);
    float *split = floats(ROWS * vocab);
    for (size_t r = 0; r < ROWS; r++)
      memcpy(split + r * vocab, logits + r * VOCAB + k * SPLIT, vocab * sizeof(float));
    struct pen_call call = {.operand = {split, k ? y : NULL, y},
                            .dim = {ROWS, (int64_t)vocab, k * SPLIT, VOCAB}};
    run(PEN_OP_LOGITS_JOIN, &call);
    for (size_t i = k * SPLIT + vocab; i < VOCAB; i++) assert_true(y[i] == 0.0f);
  }
  assert_same_bits("y", y, logits, ROWS * VOCAB * sizeof *y);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(embedding_rows_are_copied),
      cmocka_unit_test(embedding_gradients_are_those_of_the_whole),
      cmocka_unit_test(norms_sum_runs),
      cmocka_unit_test(positions_and_biases_sum_runs),
      cmocka_unit_test(partial_sums_are_rounded_once),
      cmocka_unit_test(losses_of_splits_add_up),
      cmocka_unit_test(heads_by_chunks_are_those_of_logits),
      cmocka_unit_test(logits_are_joined),
      cmocka_unit_test(tensor_ranks_are_joined),
      cmocka_unit_test(runs_are_copied),
  };
  return RUN_ON_EVERY_SET(tests);
}
