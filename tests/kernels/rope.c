/* rope.c: ROPE_TABLE, ROPE, and ROPE_DX as its inverse. */
#include "tests/support/kernels_support.h"

static float *make_table(int64_t sequence, int64_t half, double theta) {
  float *table = floats((size_t)(2 * sequence * half));
  struct pen_call call = {.operand = {table}, .dim = {sequence, half}, .real = {theta}};
  run(PEN_OP_ROPE_TABLE, &call);
  return table;
}

static void table_holds_cosines_and_sines(void **state) {
  (void)state;
  const int64_t sequence = 300, half = 9;
  const float *table = make_table(sequence, half, 10000);
  for (int64_t t = 0; t < sequence; t++)
    for (int64_t i = 0; i < half; i++) {
      const double angle = (double)t * pow(10000, -(double)i / (double)half);
      assert_true(fabs((double)table[2 * t * half + i] - cos(angle)) < 1e-7);
      assert_true(fabs((double)table[(2 * t + 1) * half + i] - sin(angle)) < 1e-7);
    }
}

/* A frequency whose wavelength is long, or between long and short, as Llama 3 scales it. */
static double stretched(double frequency, double factor, double original, double low, double high) {
  const double fits = original * frequency / (2 * M_PI), share = (fits - low) / (high - low);
  return fits > high  ? frequency
         : fits < low ? frequency / factor
                      : (1 - share) * frequency / factor + share * frequency;
}

static void long_wavelengths_are_scaled(void **state) {
  const int64_t sequence = 300, half = 32;
  for (int kind = 0; kind < 3;
       kind++) { /* all; the long ones, of a sequence of 64; and with other bounds */
    const double factor = kind == 2 ? 32 : 8, original = kind == 0 ? 0 : 64,
                 low = kind == 2 ? 0.5 : 1, high = kind == 2 ? 2 : 4;
    struct pen_call call = {.operand = {floats((size_t)(2 * sequence * half))},
                            .dim = {sequence, half},
                            .real = {10000, factor}};
    if (kind != 0)
      call.real[2] = original / (2 * M_PI * (high - low)), call.real[3] = low / (high - low);
    run(PEN_OP_ROPE_TABLE, &call);
    const float *table = call.operand[0];
    int64_t as_they_were = 0, in_full = 0;
    for (int64_t i = 0; i < half; i++) {
      const double plain = pow(10000, -(double)i / (double)half),
                   wanted =
                       kind == 0 ? plain / factor : stretched(plain, factor, original, low, high);
      as_they_were += wanted >= plain;
      in_full += wanted <= plain / factor;
      for (int64_t t = 0; t < sequence; t++) {
        assert_true(fabs((double)table[2 * t * half + i] - cos((double)t * wanted)) < 1e-7);
        assert_true(fabs((double)table[(2 * t + 1) * half + i] - sin((double)t * wanted)) < 1e-7);
      }
    }
    assert_true(kind == 0 ? in_full == half
                          : in_full > 0 && as_they_were > 0 && in_full + as_they_were < half);
    free_tensors(state);
  }
}

/* Pairs of a head up to one keep their frequency, from another on they have the whole factor, with
 * a ramp between the two; and the table is scaled (Peng et al. 2023). */
static void a_ramp_over_the_pairs_is_scaled(void **state) {
  const int64_t sequence = 300, half = 32;
  const double bounds[][2] = {{3, 17}, {0, 31}, {4.25, 11.5}, {9, 9.001}}, factor = 4, scale = 1.25;
  for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++) {
    const double first = bounds[b][0], last = bounds[b][1];
    struct pen_call call = {
        .operand = {floats((size_t)(2 * sequence * half))},
        .dim = {sequence, half},
        .real = {10000, factor, 0, -last / (last - first), 1 / (last - first), scale}};
    run(PEN_OP_ROPE_TABLE, &call);
    const float *table = call.operand[0];
    for (int64_t i = 0; i < half; i++) {
      const double plain = pow(10000, -(double)i / (double)half),
                   share = fmin(fmax(((double)i - first) / (last - first), 0), 1),
                   wanted = plain / factor * share + plain * (1 - share);
      for (int64_t t = 0; t < sequence; t++) {
        const double angle = (double)t * wanted;
        assert_true(fabs((double)table[2 * t * half + i] - scale * cos(angle)) < 1.3e-7);
        assert_true(fabs((double)table[(2 * t + 1) * half + i] - scale * sin(angle)) < 1.3e-7);
      }
    }
    free_tensors(state);
  }
}

static const int64_t shapes[][4] = {
    {1, 1, 1, 2}, {2, 5, 3, 6}, {1, 4, 2, 34}, {2, 3, 4, 64}, {1, 7, 1, 128}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void check_rotation(void **state, int packed) {
  for (int s = 0; s < SHAPES; s++) {
    const int64_t *d = shapes[s], half = d[3] / 2;
    const size_t count = (size_t)(d[0] * d[1] * d[2] * d[3]);
    float *x = random_floats(count, 1), *y = floats(count),
          *table = make_table(d[1] + 2, half, 10000);
    int32_t *starts = packed ? bytes_at((size_t)(d[0] * d[1]) * sizeof *starts, 0) : NULL;
    for (int64_t i = 0; packed && i < d[0] * d[1]; i++) starts[i] = (int32_t)(i % d[1] / 3 * 3);
    struct pen_call call = {.operand = {x, table, starts, y},
                            .dim = {d[0], d[1], d[2], d[3], d[1] + 2}};
    run(PEN_OP_ROPE, &call);
    double *expected = doubles(count);
    for (size_t i = 0; i < count; i += (size_t)d[3])
      for (int64_t k = 0; k < half; k++) {
        const int64_t row = (int64_t)i / (d[2] * d[3]), t = packed ? row % d[1] % 3 : row % d[1];
        const double angle = (double)t * pow(10000, -(double)k / (double)half);
        const double lo = (double)x[i + (size_t)k], hi = (double)x[i + (size_t)(k + half)];
        expected[i + (size_t)k] = lo * cos(angle) - hi * sin(angle);
        expected[i + (size_t)(k + half)] = hi * cos(angle) + lo * sin(angle);
      }
    assert_near("y", y, expected, count, 3e-7, 1);
    free_tensors(state);
  }
}

static void rotation_matches_the_formula(void **state) { check_rotation(state, 0); }

/* Documents of three tokens: positions restart at each. */
static void positions_restart_at_documents(void **state) { check_rotation(state, 1); }

/* The rotation is orthogonal: its gradient is its inverse, and restores a vector. */
static void gradient_is_the_inverse_rotation(void **state) {
  for (int s = 0; s < SHAPES; s++) {
    const int64_t *d = shapes[s];
    const size_t count = (size_t)(d[0] * d[1] * d[2] * d[3]);
    float *x = random_floats(count, 1), *y = copy_of(x, count),
          *table = make_table(d[1], d[3] / 2, 10000);
    struct pen_call call = {.operand = {y, table, NULL, y}, .dim = {d[0], d[1], d[2], d[3], d[1]}};
    run(PEN_OP_ROPE, &call);
    run(PEN_OP_ROPE_DX, &call);
    assert_near("x", y, widened(x, count), count, 3e-7, 1);
    free_tensors(state);
  }
}

/* The first elements of each head turn, by halves or by pairs; the others are as they were. The
 * gradient is the inverse, also where it is in place. */
static void check_part(const int64_t *d, int64_t rotated, int64_t pairs) {
  const int64_t half = rotated / 2;
  const size_t count = (size_t)(d[0] * d[1] * d[2] * d[3]);
  float *x = random_floats(count, 1), *y = floats(count), *table = make_table(d[1], half, 100);
  struct pen_call call = {.operand = {x, table, NULL, y},
                          .dim = {d[0], d[1], d[2], d[3], d[1], rotated, pairs}};
  run(PEN_OP_ROPE_PART, &call);
  double *expected = widened(x, count);
  for (size_t i = 0; i < count; i += (size_t)d[3])
    for (int64_t k = 0; k < half; k++) {
      const size_t low = i + (size_t)(pairs ? 2 * k : k), high = low + (size_t)(pairs ? 1 : half);
      const double angle = (double)((int64_t)i / (d[2] * d[3]) % d[1]) *
                           pow(100, -(double)k / (double)half),
                   lo = (double)x[low], hi = (double)x[high];
      expected[low] = lo * cos(angle) - hi * sin(angle);
      expected[high] = hi * cos(angle) + lo * sin(angle);
    }
  assert_near("y", y, expected, count, 3e-7, 1);
  call.operand[0] = y;
  run(PEN_OP_ROPE_PART_DX, &call);
  assert_near("x", y, widened(x, count), count, 3e-7, 1);
}

static void a_part_of_a_head_turns(void **state) {
  for (int s = 0; s < SHAPES; s++)
    for (int pairs = 0; pairs < 2; pairs++) {
      check_part(shapes[s], shapes[s][3], pairs);
      check_part(shapes[s], 2 * (shapes[s][3] / 8) + 2, pairs);
      free_tensors(state);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(table_holds_cosines_and_sines),
      cmocka_unit_test(long_wavelengths_are_scaled),
      cmocka_unit_test(a_ramp_over_the_pairs_is_scaled),
      cmocka_unit_test(rotation_matches_the_formula),
      cmocka_unit_test(positions_restart_at_documents),
      cmocka_unit_test(gradient_is_the_inverse_rotation),
      cmocka_unit_test(a_part_of_a_head_turns),
  };
  return RUN_ON_EVERY_SET(tests);
}
