/* bench.c: speed of the CUDA backend: bytes a second of memory-bound kernels, relative to a copy
 * measured in the same run; operations a second of products and attention.
 *
 *     bench [WORD]...
 *
 * measures the rows whose "name shape" contains a WORD, whatever the case; all without one. One
 * line for each measurement: name, shape, microseconds, rate, share of the copy's rate; shapes of a
 * model of tests/gpu end in its name. Median of the launches in 60 ms, at least five, after two
 * others; the host does not wait between them (bench_time.h). A product has a second line:
 * bench_products.h. Operands alternate among sets that exceed the second-level cache. Values are
 * random: tensor cores are faster on zeros. What tells most comes first: the program may be ended
 * at any time. Skips without a GPU. With small sizes only (device.h), rates have no meaning.
 */
#include "kernels/cuda/cuda.h"
#include "tests/gpu/bench_products.h"
#include "tests/gpu/device.h"

enum { CACHE_BYTES = 256 << 20 };

/* The size, or at most 64 if large sizes are not run. */
static int64_t sized(int64_t size) { return runs_large() || size < 64 ? size : 64; }

static double window_us(double us) { return runs_large() ? us : 0; }

static double median_seconds(work *do_work, void *context) {
  return seconds_of(do_work, context, stream, window_us(WINDOW_US));
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
  if (!is_chosen("copy", "1 GiB")) return;
  const size_t bytes = runs_large() ? 1ull << 30 : 1 << 16;
  struct copying c = {there(bytes), there(bytes), bytes};
  const double seconds = median_seconds(copy_once, &c);
  note_copy_rate(2 * (double)c.bytes / seconds);
  print_rate("copy", "1 GiB", seconds, 2 * (double)c.bytes, 0);
  release_all();
}

/* ---- an op ---- */
struct bench_case {
  enum pen_op_kind kind;
  int64_t dim[PEN_DIMS_MAX];
  double real[PEN_REALS_MAX];
  double bytes_factor; /* of dim[0]*dim[1]*dim[2] with absent dims 1: bytes that must move */
};

static const struct bench_case subjects[] = {
    {PEN_OP_ADD, {1 << 25}, {0}, 12},
    {PEN_OP_ACCUMULATE, {1 << 25}, {0}, 12},
    {PEN_OP_SCALE, {1 << 25}, {1.5}, 8},
    {PEN_OP_SWIGLU, {1 << 25}, {0}, 12},
    {PEN_OP_SWIGLU_DX, {1 << 25}, {0}, 20},
    {PEN_OP_GELU, {1 << 25}, {0}, 8},
    {PEN_OP_GELU_DX, {1 << 25}, {0}, 12},
    {PEN_OP_RMSNORM, {32768, 768}, {1e-5}, 8},
    {PEN_OP_RMSNORM, {16384, 2048}, {1e-5}, 8},
    {PEN_OP_RMSNORM_DX, {32768, 768}, {1e-5}, 16},
    {PEN_OP_RMSNORM_DX, {16384, 2048}, {1e-5}, 16},
    {PEN_OP_GELU_TANH, {1 << 25}, {0}, 8},
    {PEN_OP_LAYERNORM, {32768, 768}, {1e-5}, 8},
    {PEN_OP_LAYERNORM_DX, {32768, 768}, {1e-5}, 16},
    {PEN_OP_BIAS_DW, {32768, 768}, {0}, 4},
    {PEN_OP_CROSS_ENTROPY, {2048, 32000}, {1e-3}, 12},
    {PEN_OP_CROSS_ENTROPY, {2048, 50257}, {1e-3}, 12},
    {PEN_OP_EMBEDDING, {32768, 768, 50257, 0, 50257}, {0}, 8 / 50257.0},
    {PEN_OP_EMBEDDING_DW, {8192, 768, 50257}, {0}, 12 / 50257.0},
};

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

/* Does a case run in this dtype? Tables of embeddings are f32. */
static bool is_run(const struct bench_case *subject, enum pen_dtype dtype) {
  return dtype == PEN_F32 ||
         (pen_cuda.kernel_of(subject->kind, dtype) != NULL && subject->kind != PEN_OP_EMBEDDING &&
          subject->kind != PEN_OP_EMBEDDING_DW);
}

/* Documents of their own are absent; so is what a product adds to. */
static bool is_absent(enum pen_op_kind kind, const struct operand *o) {
  return strcmp(o->name, "starts") == 0 ||
         (pen_cuda.kernel_of(kind, PEN_F32) == pen_cuda_product && o->optional && !o->output);
}

/* As many calls as have operands that exceed the cache. */
static struct calls calls_of(enum pen_op_kind kind, enum pen_dtype dtype, const int64_t *dim,
                             const double *real) {
  const struct signature s = parse_signature_as(dtype, kind, dim);
  struct calls c = {.kernel = pen_cuda.kernel_of(kind, dtype)};
  size_t set_bytes = 0;
  for (size_t i = 0; i < s.count; i++) set_bytes += operand_bytes(&s.operand[i]);
  const size_t workspace_bytes = pen_cuda.workspace_bytes(kind, dtype, dim);
  void *workspace = workspace_bytes ? there(workspace_bytes) : NULL;
  for (; c.count == 0 ||
         (runs_large() && c.count < SETS_MAX && (size_t)c.count * set_bytes < CACHE_BYTES);
       c.count++) {
    struct pen_call *call = &c.call[c.count];
    memcpy(call->dim, dim, sizeof call->dim);
    memcpy(call->real, real, sizeof call->real);
    for (size_t i = 0; i < s.count; i++)
      if (!is_absent(kind, &s.operand[i])) call->operand[i] = filled(&s.operand[i], dim, i + 1);
    call->workspace = workspace;
    call->stream = stream;
    call->prepared = pen_cuda.prepare(kind, dtype, dim, real);
  }
  assert_well(op_rows[kind].name);
  return c;
}

/* The name of a row, and the dims that there are, with the name of a model, if any. */
struct bench_row {
  char name[40], shape[60];
};

static struct bench_row row_of(enum pen_op_kind kind, enum pen_dtype dtype, const int64_t *dim,
                               const char *model) {
  struct bench_row row = {.shape = ""};
  snprintf(row.name, sizeof row.name, "%s%s", op_rows[kind].name, dtype == PEN_BF16 ? " bf16" : "");
  for (int i = 0, at = 0; i < 3 && dim[i] > 0; i++)
    at += snprintf(row.shape + at, sizeof row.shape - (size_t)at, i == 0 ? "%lld" : " x %lld",
                   (long long)dim[i]);
  snprintf(row.shape + strlen(row.shape), sizeof row.shape - strlen(row.shape), "%s%s",
           model[0] == '\0' ? "" : " ", model);
  return row;
}

static void size_dims(int64_t *dim, const int64_t *from) {
  for (int i = 0; i < PEN_DIMS_MAX; i++) dim[i] = sized(from[i]);
}

static void bench_op(const struct bench_case *subject, enum pen_dtype dtype) {
  int64_t dim[PEN_DIMS_MAX];
  size_dims(dim, subject->dim);
  const struct bench_row row = row_of(subject->kind, dtype, dim, "");
  if (!is_chosen(row.name, row.shape)) return;
  struct calls c = calls_of(subject->kind, dtype, dim, subject->real);
  print_rate(row.name, row.shape, median_seconds(call_once, &c),
             bytes_of(subject, dtype, product_of(dim, 3)), 0);
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
  const char *const shape = "50257 x 768";
  const bool steps = is_chosen("adamw", shape), sums = is_chosen("sum of squares", shape);
  if (!steps && !sums) return;
  const struct pen_adamw settings = {1e-3, 0.9, 0.95, 1e-8, 0.1, 1, 1000};
  const size_t count = (size_t)(sized(50257) * sized(768));
  const struct operand floats_there = {.count = count, .element_bytes = sizeof(float)};
  float *tensor[4];
  for (size_t i = 0; i < 4; i++) tensor[i] = filled(&floats_there, NULL, i + 1);
  pen_cuda.zero(tensor[3], count * sizeof(float), stream);
  struct optimizing o = {.updated = {.parameter = tensor[0],
                                     .gradient = tensor[1],
                                     .exp_avg = tensor[2],
                                     .exp_avg_sq = tensor[3],
                                     .count = count,
                                     .weight_decay = 0.1,
                                     .rate = 1},
                         .measured = {tensor[0], count, 0},
                         .settings = sent(&settings, sizeof settings),
                         .sum = there(8),
                         .workspace = there((count / PEN_NORM_BLOCK + 1) * sizeof(double))};
  if (steps) print_rate("adamw", shape, median_seconds(adamw_once, &o), 32.0 * (double)count, 0);
  if (sums)
    print_rate("sum of squares", shape, median_seconds(squares_once, &o), 4.0 * (double)count, 0);
  tidy(NULL);
}

/* ---- products ---- */
struct product_case {
  const char *model;
  enum pen_op_kind kind; /* and its two gradients, which follow it in ops.def */
  enum pen_dtype dtype;
  int64_t dim[PEN_DIMS_MAX]; /* rows in out */
};

static const struct product_case products[] = {
    {"llama_1b", PEN_OP_LINEAR, PEN_BF16, {8192, 2048, 2048}},   /* q, and what attention gives */
    {"llama_1b", PEN_OP_LINEAR, PEN_BF16, {8192, 2048, 512}},    /* k, v */
    {"llama_1b", PEN_OP_LINEAR, PEN_BF16, {8192, 2048, 3072}},   /* q, k, v at once */
    {"llama_1b", PEN_OP_LINEAR, PEN_BF16, {8192, 2048, 8192}},   /* gate, up */
    {"llama_1b", PEN_OP_LINEAR, PEN_BF16, {8192, 2048, 16384}},  /* both at once */
    {"llama_1b", PEN_OP_LINEAR, PEN_BF16, {8192, 8192, 2048}},   /* down */
    {"llama_1b", PEN_OP_LINEAR, PEN_BF16, {2048, 2048, 128256}}, /* head, of a chunk of rows */
    {"gpt2_124m", PEN_OP_AFFINE, PEN_BF16, {16384, 768, 2304}},
    {"gpt2_124m", PEN_OP_AFFINE, PEN_BF16, {16384, 768, 768}},
    {"gpt2_124m", PEN_OP_AFFINE, PEN_BF16, {16384, 768, 3072}},
    {"gpt2_124m", PEN_OP_AFFINE, PEN_BF16, {16384, 3072, 768}},
    {"gpt2_124m", PEN_OP_LINEAR, PEN_BF16, {2048, 768, 50304}},
    {"", PEN_OP_LINEAR, PEN_BF16, {8192, 768, 3072}},
    {"", PEN_OP_LINEAR, PEN_BF16, {8192, 8192, 8192}},
    {"", PEN_OP_LINEAR, PEN_F32, {8192, 768, 3072}},
};

static const double no_reals[PEN_REALS_MAX];

static void bench_product(const struct product_case *of, int part) {
  enum { CANDIDATE_US = 8000 };
  const enum pen_op_kind kind = of->kind + (enum pen_op_kind)part;
  int64_t dim[PEN_DIMS_MAX];
  size_dims(dim, of->dim);
  const struct bench_row row = row_of(kind, of->dtype, dim, of->model);
  if (!is_chosen(row.name, row.shape)) return;
  struct calls c = calls_of(kind, of->dtype, dim, no_reals);
  print_rate(row.name, row.shape, median_seconds(call_once, &c), 0, 2 * product_of(dim, 3));
  print_algorithms(&c, stream, window_us(CANDIDATE_US));
  tidy(NULL);
}

/* One product for two seconds, in which the chip's clock falls. */
static void bench_sustained(void) {
  const int64_t dim[PEN_DIMS_MAX] = {sized(8192), sized(8192), sized(8192)};
  const struct bench_row row = row_of(PEN_OP_LINEAR, PEN_BF16, dim, "");
  if (!is_chosen("sustained", row.shape)) return;
  struct calls c = calls_of(PEN_OP_LINEAR, PEN_BF16, dim, no_reals);
  print_sustained(row.shape, &c, stream, 2 * product_of(dim, 3), runs_large() ? 0.1 : 0.001, 20);
  tidy(NULL);
}

/* ---- attention ---- */
struct attention_row {
  const char *model;
  int64_t batch, sequence, heads, kv_heads, head_dim;
};

static const struct attention_row attentions[] = {
    {"llama_1b", 4, 2048, 32, 8, 64}, {"gpt2_124m", 16, 1024, 12, 12, 64},
    {"", 8, 2048, 12, 12, 64},        {"", 8, 2048, 16, 4, 128},
    {"", 4, 4096, 12, 12, 64},        {"", 4, 4096, 16, 4, 128},
    {"", 2, 8192, 12, 12, 64},        {"", 2, 8192, 16, 4, 128},
    {"", 1, 16384, 12, 12, 64},       {"", 1, 16384, 16, 4, 128},
};

static void *narrow_numbers(size_t count, uint64_t seed) {
  const struct operand o = {.count = count, .element_bytes = sizeof(uint16_t)};
  return filled(&o, NULL, seed);
}

/* A call of one of the two; -1 among its operands: an absent one. */
static struct calls attention_call(enum pen_op_kind kind, const int64_t *dim, void *const *operand,
                                   const int *of) {
  struct calls c = {.kernel = pen_cuda.kernel_of(kind, PEN_BF16), .count = 1};
  struct pen_call *call = &c.call[0];
  const size_t workspace_bytes = pen_cuda.workspace_bytes(kind, PEN_BF16, dim);
  memcpy(call->dim, dim, sizeof call->dim);
  for (int i = 0; i < PEN_OPERANDS_MAX; i++) call->operand[i] = of[i] < 0 ? NULL : operand[of[i]];
  call->workspace = workspace_bytes ? there(workspace_bytes) : NULL;
  call->stream = stream;
  call->prepared = pen_cuda.prepare(kind, PEN_BF16, dim, call->real);
  assert_well(op_rows[kind].name);
  return c;
}

/* The calls of both, on the same memory: results of the forward are operands of the backward. */
static void attention_calls(const int64_t *dim, struct calls *forward, struct calls *backward) {
  const size_t rows = (size_t)(dim[0] * dim[1] * dim[2]), q = rows * (size_t)dim[4],
               k = (size_t)(dim[0] * dim[1] * dim[3] * dim[4]);
  void *operand[] = {narrow_numbers(q, 1), narrow_numbers(k, 2), narrow_numbers(k, 3),
                     there(2 * q),         there(4 * rows),      narrow_numbers(q, 4),
                     there(2 * q),         there(2 * k),         there(2 * k)};
  *forward = attention_call(PEN_OP_ATTENTION, dim, operand,
                            (const int[PEN_OPERANDS_MAX]){0, 1, 2, -1, 3, 4, -1, -1, -1, -1});
  *backward = attention_call(PEN_OP_ATTENTION_DX, dim, operand,
                             (const int[PEN_OPERANDS_MAX]){5, 0, 1, 2, 3, 4, -1, 6, 7, 8});
  call_once(forward, 0);
  call_once(backward, 0);
}

/* Causal: half of the scores are counted, 2 products forward, 5 backward, as flash-attention's
 * benchmarks count. */
static void bench_attention(const struct attention_row *of) {
  const bool large = runs_large();
  const int64_t sequence = sized(of->sequence), heads = large ? of->heads : 1;
  const int64_t dim[PEN_DIMS_MAX] = {large ? of->batch : 1,    sequence,     heads,
                                     large ? of->kv_heads : 1, of->head_dim, sequence};
  char shape[60];
  snprintf(shape, sizeof shape, "%lldx%lld h%lld/%lld d%lld%s%s", (long long)dim[0],
           (long long)dim[1], (long long)dim[2], (long long)dim[3], (long long)dim[4],
           of->model[0] == '\0' ? "" : " ", of->model);
  const bool runs_forward = is_chosen("ATTENTION bf16", shape),
             runs_backward = is_chosen("ATTENTION_DX bf16", shape);
  if (!runs_forward && !runs_backward) return;
  struct calls forward, backward;
  attention_calls(dim, &forward, &backward);
  const double products_of_scores =
      product_of((int64_t[]){dim[0], heads, sequence, sequence, dim[4]}, 5);
  if (runs_forward)
    print_rate("ATTENTION bf16", shape, median_seconds(call_once, &forward), 0,
               2 * products_of_scores);
  if (runs_backward)
    print_rate("ATTENTION_DX bf16", shape, median_seconds(call_once, &backward), 0,
               5 * products_of_scores);
  tidy(NULL);
}

int main(int argc, char **argv) {
  choose_rows(argv + 1, argc - 1);
  if (!open_devices()) return 0;
  printf("# %s\n", pen_cuda.open(0));
  bench_copy();
  for (size_t i = 0; i < sizeof attentions / sizeof *attentions; i++)
    bench_attention(&attentions[i]);
  for (size_t i = 0; i < 3 * sizeof products / sizeof *products; i++)
    bench_product(&products[i / 3], (int)(i % 3));
  bench_sustained();
  for (size_t i = 0; i < 2 * sizeof subjects / sizeof *subjects; i++)
    if (is_run(&subjects[i / 2], i % 2 ? PEN_BF16 : PEN_F32))
      bench_op(&subjects[i / 2], i % 2 ? PEN_BF16 : PEN_F32);
  bench_optimizer();
  if (any_chosen()) return 0;
  fprintf(stderr, "bench: no row has one of these words\n");
  return 64;
}
