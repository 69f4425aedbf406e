/* affine.c: AFFINE, AFFINE_DX, AFFINE_DW and BIAS_DW against f64 sums; BIAS, SPLIT, SPLIT_DX,
 * POSITION and POSITION_DW bit by bit. */
#include "tests/support/kernels_support.h"

static const size_t shapes[][3] = {{1, 1, 1},   {1, 17, 5},   {3, 1, 4},
                                   {33, 7, 65}, {64, 96, 48}, {130, 70, 59}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* y = x w + bias + a and its gradients by the chain rule, element by element. */
struct reference {
  double *y, *dx, *dw, *dbias;
};

static struct reference reference_of(const size_t *dim, const float *x, const float *w,
                                     const float *bias, const float *dy) {
  const size_t rows = dim[0], in = dim[1], out = dim[2];
  struct reference f = {doubles(rows * out), doubles(rows * in), doubles(in * out), doubles(out)};
  memset(f.dx, 0, rows * in * sizeof *f.dx);
  memset(f.dw, 0, in * out * sizeof *f.dw);
  memset(f.dbias, 0, out * sizeof *f.dbias);
  for (size_t r = 0; r < rows; r++)
    for (size_t o = 0; o < out; o++) {
      const double d = (double)dy[r * out + o];
      double sum = (double)bias[o];
      for (size_t i = 0; i < in; i++) {
        sum += (double)x[r * in + i] * (double)w[i * out + o];
        f.dx[r * in + i] += d * (double)w[i * out + o];
        f.dw[i * out + o] += d * (double)x[r * in + i];
      }
      f.y[r * out + o] = sum;
      f.dbias[o] += d;
    }
  return f;
}

static void add(double *sum, const float *x, size_t count) {
  for (size_t i = 0; i < count; i++) sum[i] += (double)x[i];
}

/* Without an addend, with a separate one, with the output as addend. */
static void products_match_sums(void **state) {
  for (int s = 0; s < SHAPES; s++)
    for (int with = 0; with < 3; with++) {
      const size_t rows = shapes[s][0], in = shapes[s][1], out = shapes[s][2];
      const int64_t dim[3] = {(int64_t)rows, (int64_t)in, (int64_t)out};
      float *x = random_floats(rows * in, 1), *w = random_floats(in * out, 2),
            *bias = random_floats(out, 3);
      float *dy = random_floats(rows * out, 4), *a = random_floats(rows * out, 5),
            *b = random_floats(rows * in, 6);
      float *y = with == 2 ? copy_of(a, rows * out) : floats(rows * out),
            *dx = with == 2 ? copy_of(b, rows * in) : floats(rows * in);
      struct reference f = reference_of(shapes[s], x, w, bias, dy);
      struct pen_call forward = {.operand = {x, w, bias,
                                             with == 0   ? NULL
                                             : with == 1 ? a
                                                         : y,
                                             y},
                                 .dim = {dim[0], dim[1], dim[2]}};
      struct pen_call back = {.operand = {dy, w,
                                          with == 0   ? NULL
                                          : with == 1 ? b
                                                      : dx,
                                          dx},
                              .dim = {dim[0], dim[1], dim[2]}};
      run(PEN_OP_AFFINE, &forward);
      run(PEN_OP_AFFINE_DX, &back);
      if (with) {
        add(f.y, a, rows * out);
        add(f.dx, b, rows * in);
      }
      assert_near("y", y, f.y, rows * out, 2e-6, 1);
      assert_near("dx", dx, f.dx, rows * in, 2e-6, 1);
      free_tensors(state);
    }
}

static void weight_gradients_accumulate(void **state) {
  for (int s = 0; s < SHAPES; s++) {
    const size_t rows = shapes[s][0], in = shapes[s][1], out = shapes[s][2];
    float *x = random_floats(rows * in, 1), *dy = random_floats(rows * out, 4);
    float *start = random_floats(in * out, 5), *start_bias = random_floats(out, 6);
    float *dw = copy_of(start, in * out), *dbias = copy_of(start_bias, out);
    struct reference f = reference_of(shapes[s], x, start, start_bias, dy);
    struct pen_call weight = {.operand = {dy, x, dw},
                              .dim = {(int64_t)rows, (int64_t)in, (int64_t)out}};
    struct pen_call bias = {.operand = {dy, dbias}, .dim = {(int64_t)rows, (int64_t)out}};
    run(PEN_OP_AFFINE_DW, &weight);
    run(PEN_OP_BIAS_DW, &bias);
    add(f.dw, start, in * out);
    add(f.dbias, start_bias, out);
    assert_near("dw", dw, f.dw, in * out, 2e-6, 1);
    assert_near("dbias", dbias, f.dbias, out, 4e-6, 1);
    free_tensors(state);
  }
}

enum { ROWS = 12, WIDTH = 19, SEQUENCE = 4 };

static void biases_are_added_to_every_row(void **state) {
  (void)state;
  float *x = random_floats(ROWS * WIDTH, 1), *bias = random_floats(WIDTH, 2),
        *y = floats(ROWS * WIDTH);
  struct pen_call call = {.operand = {x, bias, y}, .dim = {ROWS, WIDTH}};
  run(PEN_OP_BIAS, &call);
  for (int r = 0; r < ROWS; r++)
    for (int i = 0; i < WIDTH; i++) assert_true(y[r * WIDTH + i] == x[r * WIDTH + i] + bias[i]);
}

static void split_and_its_gradient_copy_parts(void **state) {
  (void)state;
  float *x = random_floats(ROWS * 3 * WIDTH, 1), *joined = floats(ROWS * 3 * WIDTH), *part[3];
  for (int p = 0; p < 3; p++) part[p] = floats(ROWS * WIDTH);
  struct pen_call split = {.operand = {x, part[0], part[1], part[2]}, .dim = {ROWS, WIDTH}};
  struct pen_call join = {.operand = {part[0], part[1], part[2], joined}, .dim = {ROWS, WIDTH}};
  run(PEN_OP_SPLIT, &split);
  for (int r = 0; r < ROWS; r++)
    for (int p = 0; p < 3; p++)
      assert_same_bits("part", part[p] + r * WIDTH, x + (3 * r + p) * WIDTH, WIDTH * sizeof *x);
  run(PEN_OP_SPLIT_DX, &join);
  assert_same_bits("joined", joined, x, ROWS * 3 * WIDTH * sizeof *x);
}

/* Each block of a row has the columns of two or three parts. */
static void unequal_parts_are_split_and_joined(void **state) {
  enum { GROUPS = 3, MOST = 8 };
  static const int64_t width[] = {2, 5, 1};
  (void)state;
  for (int parts = 2; parts <= 3; parts++) {
    const int64_t all = parts == 2 ? 7 : MOST;
    const size_t count = (size_t)(ROWS * GROUPS * all);
    float *x = random_floats(count, 1), *joined = floats(count), *part[3];
    struct pen_call split = {.operand = {x}, .dim = {ROWS, GROUPS, all, 2, 5, 1}}, join = split;
    for (int p = 0; p < parts; p++)
      part[p] = split.operand[1 + p] = join.operand[p] = floats((size_t)(ROWS * GROUPS * width[p]));
    join.operand[parts] = joined;
    run(parts == 2 ? PEN_OP_SPLIT_2 : PEN_OP_SPLIT_3, &split);
    for (int64_t block = 0; block < ROWS * GROUPS; block++)
      for (int64_t p = 0, at = 0; p < parts; at += width[p++])
        assert_same_bits("part", part[p] + block * width[p], x + block * all + at,
                         (size_t)width[p] * sizeof *x);
    run(parts == 2 ? PEN_OP_JOIN_2 : PEN_OP_JOIN_3, &join);
    assert_same_bits("joined", joined, x, count * sizeof *x);
  }
}

/* Each sequence has the same positions, or positions restart at each document, of two tokens;
 * gradients are added in rising order of rows. The table may have more positions than a sequence,
 * and rows before the first one. */
static void check_positions(int packed, int offset) {
  enum { POSITIONS = SEQUENCE + 2 };
  int32_t starts[ROWS], *given = packed ? starts : NULL;
  for (int r = 0; r < ROWS; r++) starts[r] = r % SEQUENCE / 2 * 2;
  float *x = random_floats(ROWS * WIDTH, 1), *table = random_floats(POSITIONS * WIDTH, 2),
        *y = floats(ROWS * WIDTH);
  float *dtable = random_floats(POSITIONS * WIDTH, 3),
        *expected = copy_of(dtable, POSITIONS * WIDTH);
  struct pen_call forward = {
      .operand = {x, table, given, y},
      .dim = {ROWS, WIDTH, SEQUENCE, POSITIONS, 0, ROWS, SEQUENCE, 0, offset}};
  struct pen_call back = {.operand = {x, given, dtable},
                          .dim = {ROWS, WIDTH, SEQUENCE, POSITIONS, 0, offset}};
  run(PEN_OP_POSITION, &forward);
  run(PEN_OP_POSITION_DW, &back);
  for (int r = 0; r < ROWS; r++)
    for (int i = 0; i < WIDTH; i++) {
      const int at = (offset + r % SEQUENCE - (packed ? starts[r] : 0)) * WIDTH + i;
      assert_true(y[r * WIDTH + i] == x[r * WIDTH + i] + table[at]);
      expected[at] += x[r * WIDTH + i];
    }
  assert_same_bits("dtable", dtable, expected, POSITIONS * WIDTH * sizeof *dtable);
}

static void positions_repeat_in_each_sequence(void **state) {
  (void)state;
  check_positions(0, 0);
  check_positions(0, 2);
}

static void positions_restart_at_documents(void **state) {
  (void)state;
  check_positions(1, 0);
  check_positions(1, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_match_sums),
      cmocka_unit_test(weight_gradients_accumulate),
      cmocka_unit_test(biases_are_added_to_every_row),
      cmocka_unit_test(split_and_its_gradient_copy_parts),
      cmocka_unit_test(unequal_parts_are_split_and_joined),
      cmocka_unit_test(positions_repeat_in_each_sequence),
      cmocka_unit_test(positions_restart_at_documents),
  };
  return RUN_ON_EVERY_SET(tests);
}
