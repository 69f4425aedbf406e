/* pieces.c: the ops of split weights against those of whole ones: the same bits where only the
 * weight is split, and almost the same where a sum is. */
#include "tests/support/kernels_support.h"

enum { ROWS = 12, WIDTH = 37, VOCAB = 2311, PIECES = 4, PIECE = (VOCAB + PIECES - 1) / PIECES };

/* The rows of a piece of the vocabulary. */
static int64_t piece_rows(int k) { return k + 1 < PIECES ? PIECE : VOCAB - k * PIECE; }

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
  for (int k = 0; k < PIECES; k++) {
    struct pen_call call = {.operand = {tokens, table + k * PIECE * WIDTH, k ? y : NULL, y},
                            .dim = {ROWS, WIDTH, piece_rows(k), k * PIECE}};
    run(PEN_OP_EMBEDDING_ROWS, &call);
  }
  run(PEN_OP_EMBEDDING,
      &(struct pen_call){.operand = {tokens, table, whole}, .dim = {ROWS, WIDTH, VOCAB}});
  assert_same_bits("y", y, whole, ROWS * WIDTH * sizeof *y);
}

static void embedding_gradients_are_those_of_the_whole(void **state) {
  (void)state;
  int32_t *tokens = some_tokens();
  tokens[3] = tokens[0];
  float *dy = random_floats(ROWS * WIDTH, 1), *whole = random_floats(VOCAB * WIDTH, 2),
        *dtable = copy_of(whole, VOCAB * WIDTH);
  for (int k = 0; k < PIECES; k++)
    run(PEN_OP_EMBEDDING_ROWS_DW,
        &(struct pen_call){.operand = {dy, tokens, dtable + k * PIECE * WIDTH},
                           .dim = {ROWS, WIDTH, piece_rows(k), k * PIECE}});
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
  run(PEN_OP_RMSNORM_RUNS_DX, &(struct pen_call){.operand = {dy, x, gain, rstd, NULL, dx, dgain},
                                                 .dim = {BATCH, SEQUENCE, WIDTH, RUNS}});
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
  run(PEN_OP_POSITION_RUNS_DW,
      &(struct pen_call){.operand = {dy, starts, dtable},
                         .dim = {BATCH * SEQUENCE, WIDTH, SEQUENCE, SEQUENCE, RUNS}});
  assert_same_bits("dtable", dtable, table, SEQUENCE * WIDTH * sizeof *table);
  run(PEN_OP_BIAS_RUNS_DW,
      &(struct pen_call){.operand = {dy, dbias}, .dim = {BATCH, SEQUENCE, WIDTH, RUNS}});
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
      &(struct pen_call){.operand = {a, b, addend, bias, y}, .dim = {2, 3, WIDTH, 4}});
  assert_same_bits("y", y, expected, COUNT * sizeof *y);
  run(PEN_OP_SUM_PARTIALS,
      &(struct pen_call){.operand = {a, b, addend, bias, addend}, .dim = {2, 3, WIDTH, 4}});
  assert_same_bits("y in place of the addend", addend, expected, COUNT * sizeof *y);
}

/* What tensor ranks have embedded is chosen by token; maxima are those of all. */
static void members_are_joined(void **state) {
  (void)state;
  enum { MEMBERS = 2, MEMBER = VOCAB / MEMBERS };
  const int32_t *tokens = some_tokens();
  float *x[MEMBERS], *y = floats(ROWS * WIDTH), *expected = floats(ROWS * WIDTH);
  for (int m = 0; m < MEMBERS; m++) x[m] = random_floats(ROWS * WIDTH, (uint32_t)m + 1);
  for (int r = 0; r < ROWS; r++)
    memcpy(expected + r * WIDTH,
           x[tokens[r] / MEMBER < MEMBERS ? tokens[r] / MEMBER : 1] + r * WIDTH, WIDTH * sizeof *y);
  for (int m = 0; m < MEMBERS; m++)
    run(PEN_OP_EMBEDDING_SELECT,
        &(struct pen_call){.operand = {(void *)(uintptr_t)tokens, x[m], m ? y : NULL, y},
                           .dim = {ROWS, WIDTH, m ? VOCAB - MEMBER : MEMBER, m * MEMBER}});
  assert_same_bits("rows", y, expected, ROWS * WIDTH * sizeof *y);
  for (int i = 0; i < ROWS * WIDTH; i++) expected[i] = x[1][i] > x[0][i] ? x[1][i] : x[0][i];
  run(PEN_OP_MAXIMUM, &(struct pen_call){.operand = {x[0], x[1], x[0]}, .dim = {ROWS * WIDTH}});
  assert_same_bits("maxima", x[0], expected, ROWS * WIDTH * sizeof *y);
}

/* Loss and gradient of a vocabulary in pieces, against CROSS_ENTROPY. */
static void losses_of_pieces_add_up(void **state) {
  (void)state;
  int32_t *targets = some_tokens();
  targets[5] = PEN_IGNORED_TARGET;
  float *logits = random_floats(ROWS * VOCAB, 1), *dwhole = floats(ROWS * VOCAB),
        *maximum = floats(ROWS), *piece[PIECES], *dpiece[PIECES];
  double *share = doubles(1), *loss = doubles(1), *sum = doubles(ROWS), *own = doubles(ROWS),
         all = 0;
  *share = 1.0 / 11;
  for (int k = 0; k < PIECES; k++) {
    const size_t vocab = (size_t)piece_rows(k);
    piece[k] = floats(ROWS * vocab);
    dpiece[k] = floats(ROWS * vocab);
    for (size_t r = 0; r < ROWS; r++)
      memcpy(piece[k] + r * vocab, logits + r * VOCAB + k * PIECE, vocab * sizeof(float));
    run(PEN_OP_LOGITS_MAXIMUM,
        &(struct pen_call){.operand = {piece[k], k ? maximum : NULL, maximum},
                           .dim = {ROWS, (int64_t)vocab}});
  }
  for (int k = 0; k < PIECES; k++) {
    run(PEN_OP_LOGITS_SUM, &(struct pen_call){.operand = {piece[k], maximum, k ? own : sum},
                                              .dim = {ROWS, piece_rows(k)}});
    if (k) run(PEN_OP_SUM_ADD, &(struct pen_call){.operand = {sum, own, sum}, .dim = {ROWS}});
  }
  for (int k = 0; k < PIECES; k++) {
    run(PEN_OP_CROSS_ENTROPY_COLUMNS,
        &(struct pen_call){.operand = {piece[k], targets, share, maximum, sum, loss, dpiece[k]},
                           .dim = {ROWS, piece_rows(k), k * PIECE, VOCAB}});
    all += *loss;
  }
  run(PEN_OP_CROSS_ENTROPY,
      &(struct pen_call){.operand = {logits, targets, share, loss, dwhole}, .dim = {ROWS, VOCAB}});
  assert_true(fabs(all - *loss) <= 1e-6 * *loss && *loss > 1);
  for (int k = 0; k < PIECES; k++)
    for (int r = 0; r < ROWS; r++)
      for (int i = 0; i < piece_rows(k); i++) {
        const float wanted = dwhole[r * VOCAB + k * PIECE + i];
        assert_true(fabsf(dpiece[k][r * piece_rows(k) + i] - wanted) <=
                    2e-6f * fabsf(wanted) + 1e-9f);
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(embedding_rows_are_copied),
      cmocka_unit_test(embedding_gradients_are_those_of_the_whole),
      cmocka_unit_test(norms_sum_runs),
      cmocka_unit_test(positions_and_biases_sum_runs),
      cmocka_unit_test(partial_sums_are_rounded_once),
      cmocka_unit_test(losses_of_pieces_add_up),
      cmocka_unit_test(members_are_joined),
  };
  return RUN_ON_EVERY_SET(tests);
}
