/* bench.c: speed of the CUDA backend: bytes a second of memory-bound kernels, relative to a copy
 * measured in the same run; operations a second of products and attention. One line for each
 * measurement: name, shape, microseconds, rate, share of the copy's rate. Median of the launches in
 * 60 ms, at least five, each between two events, after two warm-up launches. Operands alternate
 * among sets that exceed the second-level cache. Values are random: tensor cores are faster on
 * zeros. Skips without a GPU. With small sizes only (device.h), rates have no meaning.
 */
#include "kernels/cuda/cuda.h"
#include "tests/gpu/device.h"

enum { TIMES_MAX = 400, SETS_MAX = 16, CACHE_BYTES = 256 << 20, WORK_US = 60000 };

/* The size, or at most 64 if large sizes are not run. */
static int64_t sized(int64_t size) { return runs_large() || size < 64 ? size : 64; }

static double copy_rate; /* bytes a second, read and written */

static void give_up(const char *what) {
  printf("Bail out! %s: %s\n", what, pen_cuda.error() == NULL ? "an error" : pen_cuda.error());
  exit(1);
}

static int rising(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

typedef void work(void *context, int turn);

/* Median seconds of one call. */
static double seconds_of(work *do_work, void *context) {
  static cudaEvent_t before, after;
  static double times[TIMES_MAX];
  if (before == NULL &&
      (cudaEventCreate(&before) != cudaSuccess || cudaEventCreate(&after) != cudaSuccess))
    give_up("events");
  int count = 0;
  double total_us = 0;
  for (int turn = 0; count < TIMES_MAX && (count < 5 || (runs_large() && total_us < WORK_US));
       turn++) {
    float ms = 0;
    cudaEventRecord(before, stream);
    do_work(context, turn);
    cudaEventRecord(after, stream);
    if (cudaEventSynchronize(after) != cudaSuccess ||
        cudaEventElapsedTime(&ms, before, after) != cudaSuccess || pen_cuda.error() != NULL)
      give_up("a measurement");
    if (turn >= 2) {
      times[count++] = ms * 1e-3;
      total_us += ms * 1e3;
    }
  }
  qsort(times, (size_t)count, sizeof *times, rising);
  return times[count / 2];
}

static void print_rate(const char *name, const char *shape, double seconds, double bytes,
                       double operations) {
  printf("%-22s %-28s %10.1f us", name, shape, seconds * 1e6);
  if (bytes > 0)
    printf("  %7.1f GB/s  %5.1f%% of copy", bytes / seconds * 1e-9,
           100 * bytes / seconds / copy_rate);
  if (operations > 0) printf("  %7.1f TFLOP/s", operations / seconds * 1e-12);
  printf("\n");
  fflush(stdout);
}

/* ---- a copy ---- */
struct copying {
  void *from, *to;
  size_t bytes;
};

static void copy_once(void *context, int turn) {
  const struct copying *c = context;
  (void)turn;
  pen_cuda_note("a copy",
                cudaMemcpyAsync(c->to, c->from, c->bytes, cudaMemcpyDeviceToDevice, stream));
}

static void bench_copy(void) {
  const size_t bytes = runs_large() ? 1ull << 30 : 1 << 16;
  struct copying c = {there(bytes), there(bytes), bytes};
  const double seconds = seconds_of(copy_once, &c);
  copy_rate = 2 * (double)c.bytes / seconds;
  print_rate("copy", "1 GiB", seconds, 2 * (double)c.bytes, 0);
  release_all();
}

/* ---- an op ---- */
struct bench_case {
  enum pen_op_kind kind;
  int64_t dim[PEN_DIMS_MAX];
  double real[PEN_REALS_MAX];
  double bytes_factor; /* of dim[0]*dim[1]*dim[2] with absent dims 1: bytes that must move; 0: by
                          operations */
  double operations_factor;
};

static const struct bench_case subjects[] = {
    {PEN_OP_ADD, {1 << 25}, {0}, 12, 0},
    {PEN_OP_ACCUMULATE, {1 << 25}, {0}, 12, 0},
    {PEN_OP_SCALE, {1 << 25}, {1.5}, 8, 0},
    {PEN_OP_SWIGLU, {1 << 25}, {0}, 12, 0},
    {PEN_OP_SWIGLU_DX, {1 << 25}, {0}, 20, 0},
    {PEN_OP_GELU, {1 << 25}, {0}, 8, 0},
    {PEN_OP_GELU_DX, {1 << 25}, {0}, 12, 0},
    {PEN_OP_RMSNORM, {32768, 768}, {1e-5}, 8, 0},
    {PEN_OP_RMSNORM, {16384, 2048}, {1e-5}, 8, 0},
    {PEN_OP_RMSNORM_DX, {32768, 768}, {1e-5}, 16, 0},
    {PEN_OP_RMSNORM_DX, {16384, 2048}, {1e-5}, 16, 0},
    {PEN_OP_GELU_TANH, {1 << 25}, {0}, 8, 0},
    {PEN_OP_LAYERNORM, {32768, 768}, {1e-5}, 8, 0},
    {PEN_OP_LAYERNORM_DX, {32768, 768}, {1e-5}, 16, 0},
    {PEN_OP_BIAS_DW, {32768, 768}, {0}, 4, 0},
    {PEN_OP_CROSS_ENTROPY, {2048, 32000}, {1e-3}, 12, 0},
    {PEN_OP_CROSS_ENTROPY, {2048, 50257}, {1e-3}, 12, 0},
    {PEN_OP_EMBEDDING, {32768, 768, 50257}, {0}, 8 / 50257.0, 0},
    {PEN_OP_EMBEDDING_DW, {8192, 768, 50257}, {0}, 12 / 50257.0, 0},
    {PEN_OP_LINEAR, {8192, 768, 3072}, {0}, 0, 2},
    {PEN_OP_LINEAR_DX, {8192, 768, 3072}, {0}, 0, 2},
    {PEN_OP_LINEAR_DW, {8192, 768, 3072}, {0}, 0, 2},
};

struct calls {
  pen_kernel *kernel;
  struct pen_call call[SETS_MAX];
  int count;
};

static void call_once(void *context, int turn) {
  const struct calls *c = context;
  c->kernel(&c->call[turn % c->count]);
}

static double product_of(const int64_t *dim, int count) {
  double product = 1;
  for (int i = 0; i < count && dim[i] > 0; i++) product *= (double)dim[i];
  return product;
}

/* Fills device memory with random numbers; tokens for integer operands. */
static void *filled(const struct operand *o, const int64_t *dim, uint64_t seed) {
  void *over = there(operand_bytes(o));
  if (o->integer) {
    int32_t *tokens = bytes_at(operand_bytes(o), 0);
    const int64_t vocab = dim[2] > 0 ? dim[2] : dim[1];
    for (size_t i = 0; i < o->count; i++)
      tokens[i] = (int32_t)(i * 7919 % 1000 * i % (size_t)vocab);
    pen_cuda.copy_in(over, tokens, operand_bytes(o), stream);
  } else if (o->element_bytes != sizeof(double)) {
    const int narrow = o->element_bytes == sizeof(uint16_t);
    float *numbers = narrow ? pen_cuda.allocate(o->count * sizeof(float)) : over;
    pen_cuda.normal(numbers, o->count, seed << 40, (const uint32_t[]){1, 2}, 1.0, stream);
    if (narrow) pen_cuda.f32_to_bf16(over, numbers, o->count, stream);
    pen_cuda.stream_synchronize(stream);
    if (narrow) pen_cuda.release(numbers);
  }
  pen_cuda.stream_synchronize(stream);
  return over;
}

/* Bytes that must move; in bf16 those of activations are half. */
static double bytes_of(const struct bench_case *subject, enum pen_dtype dtype, double size) {
  return subject->bytes_factor * size * (dtype == PEN_BF16 ? 0.5 : 1);
}

/* Does a case run in this dtype? bf16 products have their own sizes; tables of embeddings are f32.
 */
static int is_run(const struct bench_case *subject, enum pen_dtype dtype) {
  return dtype == PEN_F32 ||
         (pen_cuda.kernel_of(subject->kind, dtype) != NULL && subject->operations_factor == 0 &&
          subject->kind != PEN_OP_EMBEDDING && subject->kind != PEN_OP_EMBEDDING_DW);
}

static void bench_op(const struct bench_case *subject, enum pen_dtype dtype) {
  int64_t dim[PEN_DIMS_MAX];
  for (int i = 0; i < PEN_DIMS_MAX; i++) dim[i] = sized(subject->dim[i]);
  const struct signature s = parse_signature_as(dtype, subject->kind, dim);
  struct calls c = {.kernel = pen_cuda.kernel_of(subject->kind, dtype)};
  size_t set_bytes = 0;
  for (size_t i = 0; i < s.count; i++) set_bytes += operand_bytes(&s.operand[i]);
  const size_t workspace_bytes = pen_cuda.workspace_bytes(subject->kind, dtype, dim);
  void *workspace = workspace_bytes ? there(workspace_bytes) : NULL;
  for (; c.count == 0 ||
         (runs_large() && c.count < SETS_MAX && (size_t)c.count * set_bytes < CACHE_BYTES);
       c.count++) {
    struct pen_call *call = &c.call[c.count];
    memcpy(call->dim, dim, sizeof call->dim);
    memcpy(call->real, subject->real, sizeof call->real);
    for (size_t i = 0; i < s.count; i++)
      if (strcmp(s.operand[i].name, "starts")) call->operand[i] = filled(&s.operand[i], dim, i + 1);
    call->workspace = workspace;
    call->stream = stream;
    call->prepared = pen_cuda.prepare(subject->kind, dtype, dim, subject->real);
  }
  char shape[60], name[40];
  snprintf(shape, sizeof shape, "%lld x %lld x %lld", (long long)dim[0], (long long)dim[1],
           (long long)dim[2]);
  snprintf(name, sizeof name, "%s%s", op_rows[subject->kind].name,
           dtype == PEN_BF16 ? " bf16" : "");
  const double size = product_of(dim, 3);
  print_rate(name, shape, seconds_of(call_once, &c), bytes_of(subject, dtype, size),
             subject->operations_factor * size);
  tidy(NULL);
}

/* ---- functions that are no op ---- */
struct optimizing {
  struct pen_adamw_tensor updated;
  struct pen_norm_tensor measured;
  struct pen_adamw *settings;
  double *sum, *workspace;
};

static void adamw_once(void *context, int turn) {
  const struct optimizing *o = context;
  (void)turn;
  pen_cuda.adamw_step(&o->updated, 1, o->settings, stream);
}

static void squares_once(void *context, int turn) {
  const struct optimizing *o = context;
  (void)turn;
  pen_cuda.sum_squares(o->sum, &o->measured, 1, o->workspace, stream);
}

static void bench_optimizer(void) {
  const struct pen_adamw settings = {1e-3, 0.9, 0.95, 1e-8, 0.1, 1, 0.1, 0.05};
  const size_t count = (size_t)(sized(50257) * sized(768));
  const struct operand floats_there = {.count = count, .element_bytes = sizeof(float)};
  float *tensor[4];
  for (size_t i = 0; i < 4; i++) tensor[i] = filled(&floats_there, NULL, i + 1);
  pen_cuda.zero(tensor[3], count * sizeof(float), stream);
  struct optimizing o = {.updated = {tensor[0], tensor[1], tensor[2], tensor[3], NULL, count, 0.1},
                         .measured = {tensor[0], count, 0},
                         .settings = sent(&settings, sizeof settings),
                         .sum = there(8),
                         .workspace = there((count / PEN_NORM_BLOCK + 1) * sizeof(double))};
  print_rate("adamw", "50257 x 768", seconds_of(adamw_once, &o), 32.0 * (double)count, 0);
  print_rate("sum of squares", "50257 x 768", seconds_of(squares_once, &o), 4.0 * (double)count, 0);
  tidy(NULL);
}

/* ---- bf16: products, attention ---- */
static void *narrow_numbers(size_t count, uint64_t seed) {
  uint16_t *values = bytes_at(count * sizeof *values, 0);
  uint64_t state = seed;
  for (size_t i = 0; i < count; i++) { /* sign, an exponent from 1/16 to 1, a fraction */
    state = state * 6364136223846793005u + 1442695040888963407u;
    values[i] =
        (uint16_t)((state >> 63) << 15 | (123 + (state >> 60 & 3)) << 7 | (state >> 40 & 0x7f));
  }
  return sent(values, count * sizeof *values);
}

static void bench_product_bf16(enum pen_op_kind kind, int64_t rows, int64_t in, int64_t out) {
  rows = sized(rows), in = sized(in), out = sized(out);
  struct calls c = {.kernel = pen_cuda.kernel_of(kind, PEN_BF16), .count = 1};
  struct pen_call *call = &c.call[0];
  const int64_t counts[3][4] = {{rows * in, out * in, 0, rows * out},
                                {rows * out, out * in, 0, rows * in},
                                {rows * out, rows * in, 2 * out * in, 0}};
  *call = (struct pen_call){.dim = {rows, in, out},
                            .workspace = there(PEN_CUDA_PRODUCT_WORKSPACE_BYTES),
                            .stream = stream};
  for (int i = 0; i < 4; i++)
    if (counts[kind - PEN_OP_LINEAR][i] > 0)
      call->operand[i] = narrow_numbers((size_t)counts[kind - PEN_OP_LINEAR][i], (uint64_t)i + 1);
  call->prepared = pen_cuda_product_prepare(kind, PEN_BF16, call->dim);
  char shape[60];
  snprintf(shape, sizeof shape, "%lld x %lld x %lld", (long long)rows, (long long)in,
           (long long)out);
  char name[40];
  snprintf(name, sizeof name, "%s bf16", op_rows[kind].name);
  print_rate(name, shape, seconds_of(call_once, &c), 0,
             2.0 * (double)rows * (double)in * (double)out);
  tidy(NULL);
}

/* Causal: half of the scores are counted, 2 products forward, 5 backward, as flash-attention's
 * benchmarks count. */
static void bench_attention_bf16(int64_t sequence, int64_t heads, int64_t kv_heads,
                                 int64_t head_dim) {
  const int64_t batch = runs_large() ? 16384 / sequence : 1;
  if (!runs_large()) sequence = 64, heads = kv_heads = 1;
  const size_t q = (size_t)(batch * sequence * heads * head_dim),
               k = (size_t)(batch * sequence * kv_heads * head_dim);
  const size_t lse = (size_t)(batch * sequence * heads);
  struct calls forward = {.kernel = pen_cuda_attention_bf16, .count = 1},
               backward = {.kernel = pen_cuda_attention_dx_bf16, .count = 1};
  struct pen_call call = {.dim = {batch, sequence, heads, kv_heads, head_dim, sequence},
                          .stream = stream};
  void *operand[] = {narrow_numbers(q, 1), narrow_numbers(k, 2), narrow_numbers(k, 3),
                     there(2 * q),         there(4 * lse),       narrow_numbers(q, 4),
                     there(2 * q),         there(2 * k),         there(2 * k)};
  memcpy(call.operand, operand, 3 * sizeof *operand);
  memcpy(call.operand + 4, operand + 3,
         2 * sizeof *operand); /* between the two: the starts of documents, which are absent */
  forward.call[0] = call;
  const int of[] = {5, 0, 1, 2, 3, 4, -1, 6, 7, 8};
  for (int i = 0; i < PEN_OPERANDS_MAX; i++) call.operand[i] = of[i] < 0 ? NULL : operand[of[i]];
  call.workspace = there(pen_cuda_attention_dx_bf16_workspace(call.dim));
  backward.call[0] = call;
  char shape[60];
  snprintf(shape, sizeof shape, "%lldx%lld h%lld/%lld d%lld", (long long)batch, (long long)sequence,
           (long long)heads, (long long)kv_heads, (long long)head_dim);
  const double scores = (double)batch * (double)heads * (double)sequence * (double)sequence / 2;
  print_rate("ATTENTION bf16", shape, seconds_of(call_once, &forward), 0,
             4 * scores * (double)head_dim);
  print_rate("ATTENTION_DX bf16", shape, seconds_of(call_once, &backward), 0,
             10 * scores * (double)head_dim);
  tidy(NULL);
}

int main(void) {
  if (!open_devices()) return 0;
  printf("# %s\n", pen_cuda.open(0));
  bench_copy();
  for (size_t i = 0; i < 2 * sizeof subjects / sizeof *subjects; i++)
    if (is_run(&subjects[i / 2], i % 2 ? PEN_BF16 : PEN_F32))
      bench_op(&subjects[i / 2], i % 2 ? PEN_BF16 : PEN_F32);
  bench_optimizer();
  for (int kind = PEN_OP_LINEAR; kind <= PEN_OP_LINEAR_DW; kind++) {
    bench_product_bf16((enum pen_op_kind)kind, 8192, 768, 3072);
    bench_product_bf16((enum pen_op_kind)kind, 8192, 8192, 8192);
  }
  for (int64_t sequence = 2048; sequence <= (runs_large() ? 16384 : 2048); sequence *= 2) {
    bench_attention_bf16(sequence, 12, 12, 64);
    bench_attention_bf16(sequence, 16, 4, 128);
  }
  return 0;
}
