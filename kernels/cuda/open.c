/* open.c: pen_cuda, the CUDA backend as a struct pen_device: opens a GPU, and gives operations and
 * memory. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/head_loss.h"

static int open_number; /* of the GPU that is open */

/* Returns whether there is no error so far. */
static int note_or_pass(const char *what, cudaError_t result) {
  pen_cuda_note(what, result);
  return pen_cuda_error() == NULL;
}

/* CUDA says of a machine without a driver, too, that its driver is too old. The numbers of drivers
 * are NVIDIA's: CUDA Compatibility, "Minor Version Compatibility". */
static void note_old_driver(void) {
  const char *const needed = CUDART_VERSION >= 14000 ? "a newer one"
                             : CUDART_VERSION >= 13000
                                 ? "R580 or later (R525 if built with CUDA 12)"
                                 : "R525 or later";
  int version = 0;
  char why[160] = "there is no NVIDIA driver";
  if (cudaDriverGetVersion(&version) == cudaSuccess && version != 0)
    snprintf(why, sizeof why,
             "the driver is of CUDA %d.%d; this program, of CUDA %d.%d, needs %s, or "
             "cuda-compat-%d-%d on a data-centre GPU",
             version / 1000, version / 10 % 100, CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100,
             needed, CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100);
  pen_cuda_note_text("looking for a GPU", why);
}

/* The first CUDA call of the process: the driver reads the variable then. Streams that share a
 * hardware queue would wait for each other's semaphores (streams.c). A value that the user sets is
 * kept. */
static int count_devices(int *count) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const cudaError_t result = cudaGetDeviceCount(count);
  if (result == cudaErrorInsufficientDriver) note_old_driver();
  return note_or_pass("looking for a GPU", result);
}

static int device_count(void) {
  int count = 0;
  return count_devices(&count) ? count : 0;
}

static int select_device(int number) {
  int count = 0;
  if (!count_devices(&count)) return 0;
  char what[40];
  snprintf(what, sizeof what, "opening GPU %d of %d", number, count);
  if (number < 0 || number >= count) pen_cuda_note_text(what, "there is no such GPU");
  open_number = number;
  return note_or_pass(what, cudaSuccess) && note_or_pass(what, cudaSetDevice(number));
}

/* A new thread uses GPU 0 until it selects another. */
static void enter_thread(void) {
  pen_cuda_note("selecting the GPU in another thread", cudaSetDevice(open_number));
}

static const char *open_cuda(int number) {
  static char line[480];
  pen_cuda_replace_error("");
  if (!select_device(number)) return NULL;
  pen_cuda_chip_open(number);
  if (pen_cuda_error() != NULL) return NULL;
  pen_cuda_rmsnorm_dx_open();
  pen_cuda_layernorm_dx_open();
  pen_cuda_attention_open();
  pen_cuda_attention_dx_open();
  pen_cuda_attention_bf16_open();
  pen_cuda_attention_dx_bf16_open();
  pen_cuda_streams_open(number);
  const char *products = pen_cuda_product_open(), *attention = pen_cuda_library_open();
  if (pen_cuda_error() != NULL) return NULL;
  snprintf(line, sizeof line,
           "GPU %d, compute capability %d.%d, %d processors; matrix products: %s%s", number,
           pen_cuda_chip.capability / 10, pen_cuda_chip.capability % 10, pen_cuda_chip.processors,
           products, attention);
  return line;
}

/* Each op has one row in ops.def. */
enum {
#define PEN_CUDA_ROW(kind, workspace) ROW_OF_##kind,
#include "kernels/cuda/ops.def"
  ROWS,
  KERNELS = 0
#define PEN_OP(kind, dims, reals, signature, flops, meaning) +(ROW_OF_##kind < ROWS)
#include "kernels/ops.def"
};
_Static_assert(ROWS == KERNELS, "a row of cuda/ops.def is of no PEN_OP");

static pen_kernel *kernel_of(enum pen_op_kind kind, enum pen_dtype dtype) {
  static pen_kernel *const kernels[PEN_OP_COUNT][PEN_DTYPES] = {
#define PEN_CUDA(kind, name, workspace) [PEN_OP_##kind] = {pen_cuda_##name, pen_cuda_##name##_bf16},
#define PEN_CUDA_F32(kind, name, workspace) [PEN_OP_##kind] = {pen_cuda_##name},
#define PEN_CUDA_PRODUCT(kind, ...) \
  [PEN_OP_##kind] = {pen_cuda_product, pen_cuda_product, [PEN_BF16_PARTIAL] = pen_cuda_product},
#define PEN_CUDA_HEAD(kind, workspace) [PEN_OP_##kind] = {pen_head_loss, pen_head_loss},
#include "kernels/cuda/ops.def"
  };
  assert(kind >= 0 && kind < PEN_OP_COUNT && dtype < PEN_DTYPES && dtype != PEN_I32 &&
         dtype != PEN_F64);
  const struct pen_cuda_library *const library = pen_cuda_library_of(kind, dtype);
  return library != NULL ? library->run : kernels[kind][dtype];
}

/* Notes an error if a block of the op needs more shared memory than this GPU has: before the run,
 * not at the first launch. */
static void check_shared_memory(enum pen_op_kind kind, enum pen_dtype dtype,
                                const int64_t dim[PEN_DIMS_MAX]) {
  static const struct {
    const char *name;
    size_t (*of[2])(const int64_t *);
  } rules[PEN_OP_COUNT] = {
      [PEN_OP_ATTENTION] = {"ATTENTION",
                            {pen_cuda_attention_shared, pen_cuda_attention_bf16_shared}},
      [PEN_OP_ATTENTION_DX] = {"ATTENTION_DX",
                               {pen_cuda_attention_dx_shared, pen_cuda_attention_dx_bf16_shared}},
      [PEN_OP_ATTENTION_FULL] = {"ATTENTION_FULL",
                                 {pen_cuda_attention_shared, pen_cuda_attention_bf16_shared}},
      [PEN_OP_ATTENTION_FULL_DX] = {"ATTENTION_FULL_DX",
                                    {pen_cuda_attention_dx_shared,
                                     pen_cuda_attention_dx_bf16_shared}},
      [PEN_OP_ATTENTION_QKV] = {"ATTENTION_QKV",
                                {pen_cuda_attention_shared, pen_cuda_attention_bf16_shared}},
      [PEN_OP_ATTENTION_QKV_DX] = {"ATTENTION_QKV_DX",
                                   {pen_cuda_attention_dx_shared,
                                    pen_cuda_attention_dx_bf16_shared}},
      [PEN_OP_ATTENTION_CACHED] = {"ATTENTION_CACHED",
                                   {pen_cuda_attention_cached_shared,
                                    pen_cuda_attention_cached_bf16_shared}},
      [PEN_OP_ATTENTION_CACHED_QKV] = {"ATTENTION_CACHED_QKV",
                                       {pen_cuda_attention_cached_shared,
                                        pen_cuda_attention_cached_bf16_shared}},
      [PEN_OP_RMSNORM_DX] = {"RMSNORM_DX",
                             {pen_cuda_rmsnorm_dx_shared, pen_cuda_rmsnorm_dx_shared}},
      [PEN_OP_LAYERNORM_DX] = {"LAYERNORM_DX",
                               {pen_cuda_layernorm_dx_shared, pen_cuda_layernorm_dx_shared}},
  };
  const size_t bytes = rules[kind].name == NULL ? 0 : rules[kind].of[dtype != PEN_F32](dim);
  char why[120];
  snprintf(why, sizeof why,
           "each of its blocks needs %zu bytes of shared memory, and this GPU allows %zu", bytes,
           pen_cuda_chip.shared_bytes);
  if (bytes > pen_cuda_chip.shared_bytes) pen_cuda_note_text(rules[kind].name, why);
}

/* Likewise, if the sequences are more than a grid has blocks in its third dimension. */
static void check_grid(enum pen_op_kind kind, const int64_t dim[PEN_DIMS_MAX]) {
  enum { GRID_Z_MAX = 65535 };
  char why[80];
  const int attends = kind == PEN_OP_ATTENTION || kind == PEN_OP_ATTENTION_DX ||
                      kind == PEN_OP_ATTENTION_FULL || kind == PEN_OP_ATTENTION_FULL_DX ||
                      kind == PEN_OP_ATTENTION_QKV || kind == PEN_OP_ATTENTION_QKV_DX;
  if (!attends || dim[0] <= GRID_Z_MAX) return;
  snprintf(why, sizeof why, "%lld sequences in a microbatch, and a grid allows %d",
           (long long)dim[0], GRID_Z_MAX);
  pen_cuda_note_text("ATTENTION", why);
}

static void *prepare(enum pen_op_kind kind, enum pen_dtype dtype, const int64_t dim[PEN_DIMS_MAX],
                     const double real[PEN_REALS_MAX]) {
  (void)real;
  const struct pen_cuda_library *const library = pen_cuda_library_of(kind, dtype);
  check_grid(kind, dim);
  check_shared_memory(kind, dtype, dim);
  if (library != NULL) return library->prepare(kind, dim);
  if (kernel_of(kind, dtype) == pen_cuda_newton_schulz) return pen_cuda_newton_schulz_prepare(dim);
  if (kernel_of(kind, dtype) == pen_head_loss)
    return pen_head_loss_prepare(&pen_cuda, kind, dtype, dim);
  return kernel_of(kind, dtype) == pen_cuda_product ? pen_cuda_product_prepare(kind, dtype, dim)
                                                    : NULL;
}

static size_t workspace_bytes(enum pen_op_kind kind, enum pen_dtype dtype,
                              const int64_t dim[PEN_DIMS_MAX]) {
  static const char *const formulas[PEN_OP_COUNT] = {
#define PEN_CUDA_ROW(kind, workspace) [PEN_OP_##kind] = workspace,
#include "kernels/cuda/ops.def"
  };
  return pen_workspace_bytes(formulas[kind], kind, dtype, dim);
}

static void *allocate(size_t bytes) {
  void *block = NULL;
  char what[60];
  snprintf(what, sizeof what, "%zu bytes of the GPU's memory", bytes);
  pen_cuda_note(what, cudaMalloc(&block, bytes));
  return block;
}

static void release(void *memory) { pen_cuda_note("freeing the GPU's memory", cudaFree(memory)); }

static void *stream_create(void) {
  cudaStream_t stream = NULL;
  pen_cuda_note("creating a stream", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

static void copy_in(void *to, const void *from, size_t bytes, void *stream) {
  pen_cuda_note("a copy to the GPU",
                cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
}

static void copy_out(void *to, const void *from, size_t bytes, void *stream) {
  pen_cuda_note("a copy from the GPU",
                cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream));
}

static void zero(void *memory, size_t bytes, void *stream) {
  pen_cuda_note("clearing the GPU's memory", cudaMemsetAsync(memory, 0, bytes, stream));
}

static void stream_synchronize(void *stream) {
  pen_cuda_note("waiting for the GPU", cudaStreamSynchronize(stream));
}

const struct pen_device pen_cuda = {
    .name = "cuda",
    .asynchronous = true,
    .count = device_count,
    .open = open_cuda,
    .enter_thread = enter_thread,
    .error = pen_cuda_error,
    .kernel_of = kernel_of,
    .prepare = prepare,
    .workspace_bytes = workspace_bytes,
    .allocate = allocate,
    .release = release,
    .allocate_host = pen_cuda_allocate_host,
    .copy = pen_cuda_copy,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .zero = zero,
    .sum_squares = pen_cuda_sum_squares,
    .max_abs = pen_cuda_max_abs,
    .sum_doubles = pen_cuda_sum_doubles,
    .sum_arrays = pen_cuda_sum_arrays,
    .adamw_step = pen_cuda_adamw_step,
    .sgd_step = pen_cuda_sgd_step,
    .balance_step = pen_cuda_balance_step,
    .choices_step = pen_cuda_choices_step,
    .muon_momentum = pen_cuda_muon_momentum,
    .muon_orthogonalize = pen_cuda_muon_orthogonalize,
    .muon_apply = pen_cuda_muon_apply,
    .clip_scale = pen_cuda_clip_scale,
    .f32_to_bf16 = pen_cuda_f32_to_bf16,
    .normal = pen_cuda_normal,
    .stream_create = stream_create,
    .stream_synchronize = stream_synchronize,
    .event_create = pen_cuda_event_create,
    .event_record = pen_cuda_event_record,
    .stream_wait_event = pen_cuda_stream_wait_event,
    .event_query = pen_cuda_event_query,
    .signal = pen_cuda_signal,
    .signal_remote = pen_cuda_signal_remote,
    .wait_value = pen_cuda_wait_value,
    .take = pen_cuda_take,
    .capture_begin = pen_cuda_capture_begin,
    .capture_end = pen_cuda_capture_end,
    .graph_launch = pen_cuda_graph_launch,
    .graph_destroy = pen_cuda_graph_destroy,
    .graph_figures = pen_cuda_graph_figures,
    .graph_write = pen_cuda_graph_write,
    .export_memory = pen_cuda_export_memory,
    .import_memory = pen_cuda_import_memory,
};
