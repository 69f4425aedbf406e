/* kernels_support.c: tensors, comparisons and calls for the tests of the kernels. */
#include "tests/support/kernels_support.h"

#include "kernels/device.h"

static void *tensor_blocks[TENSORS_MAX];
static size_t tensor_count;

void *bytes_at(size_t bytes, size_t shift) {
  char *block = NULL;
  if (bytes > PTRDIFF_MAX / 2) abort(); /* an error of the test */
  assert_true(tensor_count < TENSORS_MAX);
  assert_int_equal(posix_memalign((void **)&block, 4096, shift * PEN_ALIGNMENT_BYTES + bytes), 0);
  memset(block, 0x7f,
         shift * PEN_ALIGNMENT_BYTES +
             bytes); /* large numbers, so that memory that is not written is noticed */
  tensor_blocks[tensor_count++] = block;
  return block + shift * PEN_ALIGNMENT_BYTES;
}

void free_last_tensor(void) { free(tensor_blocks[--tensor_count]); }

float *floats(size_t count) { return bytes_at(count * sizeof(float), 0); }

double *doubles(size_t count) { return bytes_at(count * sizeof(double), 0); }

void spread(float *x, size_t count, uint64_t seed) {
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (size_t i = 0; i < count; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    x[i] = (float)((double)(state >> 40) * 0x1p-23 - 1);
  }
}

float *random_floats(size_t count, uint64_t seed) {
  float *x = floats(count);
  spread(x, count, seed);
  return x;
}

float *copy_of(const float *x, size_t count) { return memcpy(floats(count), x, count * sizeof *x); }

double *widened(const float *x, size_t count) {
  double *y = doubles(count);
  for (size_t i = 0; i < count; i++) y[i] = (double)x[i];
  return y;
}

void assert_near(const char *what, const float *actual, const double *expected, size_t count,
                 double tolerance, double floor_share) {
  double most = 0;
  for (size_t i = 0; i < count; i++) most = fmax(most, fabs(expected[i]));
  for (size_t i = 0; i < count; i++) {
    const double allowed = tolerance * (fabs(expected[i]) + floor_share * most);
    if (!(fabs((double)actual[i] - expected[i]) <= allowed))
      fail_msg("%s[%zu] is %.9g, expected %.9g within %.2g", what, i, (double)actual[i],
               expected[i], allowed);
  }
}

void assert_same_bits(const char *what, const void *a, const void *b, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    if (((const unsigned char *)a)[i] != ((const unsigned char *)b)[i])
      fail_msg("%s differs at byte %zu of %zu", what, i, bytes);
}

void differences(double (*f)(const void *), const void *context, double *x, size_t count,
                 double *gradient) {
  const double step = 1e-5;
  for (size_t i = 0; i < count; i++) {
    const double kept = x[i];
    x[i] = kept + step;
    const double up = f(context);
    x[i] = kept - step;
    gradient[i] = (up - f(context)) / (2 * step);
    x[i] = kept;
  }
}

const struct op_columns op_rows[PEN_OP_COUNT] = {
#define PEN_OP(kind, dims, reals, signature, flops, meaning) \
  [PEN_OP_##kind] = {#kind, dims, signature},
#include "kernels/ops.def"
};

int64_t dim_value(enum pen_op_kind kind, const int64_t *dim, const char *name, size_t length) {
  const char *at = op_rows[kind].dims;
  for (int i = 0; *at; i++) {
    const size_t here = strcspn(at, " ");
    if (here == length && !strncmp(at, name, length)) return dim[i];
    at += here + strspn(at + here, " ");
  }
  fail_msg("%s has no dim %.*s", op_rows[kind].name, (int)length, name);
  return 0;
}

/* What is prepared is kept to the end, as in the runtime. */
static struct kept {
  struct kept *before;
  void *prepared;
} * all_kept;

static void *keep(void *prepared) {
  struct kept *kept = malloc(sizeof *kept);
  assert_non_null(kept);
  *kept = (struct kept){all_kept, prepared};
  all_kept = kept;
  return prepared;
}

void run_as(enum pen_dtype dtype, enum pen_op_kind kind, struct pen_call *call) {
  const size_t bytes = pen_cpu.workspace_bytes(kind, dtype, call->dim);
  call->workspace = bytes ? bytes_at(bytes, 0) : NULL;
  call->prepared = keep(pen_kernels_prepare(kind, dtype, call->dim, call->real));
  pen_kernel_of(kind, dtype)(call);
}

void run(enum pen_op_kind kind, struct pen_call *call) { run_as(PEN_F32, kind, call); }

float float_of(uint16_t half) {
  const uint32_t bits = (uint32_t)half << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

uint16_t half_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const uint16_t below = (uint16_t)(bits >> 16); /* towards zero */
  if (isnan(x)) return below | 0x40;
  if (isinf(x)) return below;
  const uint16_t above = below + 1; /* away from zero; past the greatest: an infinity, 2^128 */
  const double low = (double)float_of(below), high = isinf(float_of(above))
                                                         ? copysign(0x1p128, (double)x)
                                                         : (double)float_of(above);
  const double from_low = fabs((double)x - low), from_high = fabs(high - (double)x);
  return from_low < from_high || (from_low == from_high && !(below & 1)) ? below : above;
}

uint16_t *halves(const float *x, size_t count) {
  uint16_t *y = bytes_at(count * sizeof *y, 0);
  for (size_t i = 0; i < count; i++) y[i] = half_of(x[i]);
  return y;
}

float *floats_of(const uint16_t *x, size_t count) {
  float *y = floats(count);
  for (size_t i = 0; i < count; i++) y[i] = float_of(x[i]);
  return y;
}

int open_set(void **state) {
  setenv("PEN_ISA", *state, 1);
  pen_kernels_open();
  return 0;
}

int free_tensors(void **state) {
  (void)state;
  while (tensor_count) free(tensor_blocks[--tensor_count]);
  return 0;
}

/* Does this CPU support the instruction set? It is chosen if it is named. */
static int has_set(const char *name) {
  setenv("PEN_ISA", name, 1);
  return !strncmp(pen_kernels_open(), name, strlen(name));
}

int run_on_every_set(const struct CMUnitTest *tests, size_t count) {
  static char *const sets[] = {"baseline", "avx2", "avx512", "avx512bf16"};
  enum { SETS = sizeof sets / sizeof *sets };
  static char names[TENSORS_MAX][96];
  struct CMUnitTest all[SETS * count];
  size_t total = 0;
  memset(all, 0, sizeof all);
  for (size_t s = 0; s < SETS; s++)
    for (size_t i = 0; i < count && has_set(sets[s]); i++) {
      snprintf(names[total], sizeof names[total], "%s: %s", sets[s], tests[i].name);
      all[total] =
          (struct CMUnitTest){names[total], tests[i].test_func, open_set, free_tensors, sets[s]};
      total++;
    }
  return _cmocka_run_group_tests("kernels", all, total, NULL, NULL);
}
