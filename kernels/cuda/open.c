/* open.c: the CUDA backend behind kernels.h: opens a GPU, hands out its operations and its memory,
 * keeps the first error. */
#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/head_loss.h"

enum { CAPABILITY_MIN = 80 }; /* bf16 products, copies beside the work */

struct pen_cuda_chip pen_cuda_chip;
static int opened; /* its number */

/* The first error. Any thread may find it, and others ask meanwhile: it is there once it is whole.
 */
enum { NO_ERROR, ERROR_COMES, ERROR_THERE };
static char error_text[200];
static atomic_int error_state;

void pen_cuda_note_text(const char *what, const char *why) {
  int none = NO_ERROR;
  if (atomic_compare_exchange_strong(&error_state, &none, ERROR_COMES)) {
    snprintf(error_text, sizeof error_text, "%s: %s", what, why);
    atomic_store(&error_state, ERROR_THERE);
  }
}

void pen_cuda_note(const char *what, cudaError_t error) {
  if (error != cudaSuccess) pen_cuda_note_text(what, cudaGetErrorString(error));
}

void pen_cuda_grant(const char *what, const void *kernel, size_t shared_bytes) {
  if (shared_bytes <= pen_cuda_chip.shared_bytes)
    pen_cuda_note(what, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             (int)shared_bytes));
}

static const char *error(void) {
  return atomic_load(&error_state) == ERROR_THERE ? error_text : NULL;
}

/* True when all is well so far. */
static int well(const char *what, cudaError_t result) {
  pen_cuda_note(what, result);
  return error() == NULL;
}

const char *pen_cuda_forget(const char *kept) {
  static char text[sizeof error_text];
  snprintf(text, sizeof text, "%s", error() == NULL ? "" : error_text);
  snprintf(error_text, sizeof error_text, "%s", kept);
  atomic_store(&error_state, kept[0] == '\0' ? NO_ERROR : ERROR_THERE);
  return text;
}

/* The first call that reaches the driver, which asks then how it is to load code, and how many
 * queues a process has. All code is to be on the GPU before the seal; and streams that shared a
 * queue would wait for each other's words (order.c). Whoever has said otherwise is heard. */
static int count_devices(int *count) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  return well("looking for a GPU", cudaGetDeviceCount(count));
}

static int device_count(void) {
  int count = 0;
  return count_devices(&count) ? count : 0;
}

static int find(int number) {
  int count = 0;
  if (!count_devices(&count)) return 0;
  char wanted[40];
  snprintf(wanted, sizeof wanted, "opening GPU %d of %d", number, count);
  if (number < 0 || number >= count) pen_cuda_note_text(wanted, "there is no such GPU");
  opened = number;
  return well(wanted, cudaSuccess) && well(wanted, cudaSetDevice(number));
}

/* A thread begins at GPU 0. */
static void enter_thread(void) {
  pen_cuda_note("going over to the GPU that is open", cudaSetDevice(opened));
}

/* What a kernel must know of the chip, and whether it is one that the kernels were built for. */
static int measure(int number, int *capability) {
  int major = 0, minor = 0, shared_bytes = 0;
  if (!well("asking the GPU",
            cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, number)) ||
      !well("asking the GPU",
            cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, number)) ||
      !well("asking the GPU", cudaDeviceGetAttribute(&pen_cuda_chip.processors,
                                                     cudaDevAttrMultiProcessorCount, number)) ||
      !well("asking the GPU",
            cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, number)))
    return 0;
  pen_cuda_chip.shared_bytes = (size_t)shared_bytes;
  *capability = 10 * major + minor;
  if (*capability < CAPABILITY_MIN)
    pen_cuda_note_text("asking the GPU", "it is older than compute capability 8.0");
  return error() == NULL;
}

static const char *open_cuda(int number) {
  static char line[120];
  int capability = 0;
  pen_cuda_forget("");
  if (!find(number) || !measure(number, &capability)) return NULL;
  pen_cuda_rmsnorm_dx_open();
  pen_cuda_layernorm_dx_open();
  pen_cuda_attention_open();
  pen_cuda_attention_dx_open();
  pen_cuda_attention_bf16_open();
  pen_cuda_attention_dx_bf16_open();
  pen_cuda_streams_open(number);
  const char *products = pen_cuda_product_open();
  if (error() != NULL) return NULL;
  snprintf(line, sizeof line,
           "GPU %d, compute capability %d.%d, %d processors; matrix products: %s", number,
           capability / 10, capability % 10, pen_cuda_chip.processors, products);
  return line;
}

static pen_kernel *kernel_of(enum pen_op_kind kind, enum pen_dtype dtype) {
  static pen_kernel *const kernels[PEN_OP_COUNT][2] = {
      [PEN_OP_HEAD_LOSS] = {pen_head_loss, pen_head_loss},
      [PEN_OP_HEAD_LOSS_DW] = {pen_head_loss, pen_head_loss},
      [PEN_OP_HEAD_LOSS_B] = {pen_head_loss, pen_head_loss},
#define PEN_CUDA_ENTRY_F32(kind, name) [PEN_OP_##kind] = {pen_cuda_##name, NULL},
#define PEN_CUDA_ENTRY(kind, name) [PEN_OP_##kind] = {pen_cuda_##name, pen_cuda_##name##_bf16},
      PEN_CUDA_OPS_F32(PEN_CUDA_ENTRY_F32) PEN_CUDA_OPS(PEN_CUDA_ENTRY)
#undef PEN_CUDA_ENTRY_F32
#undef PEN_CUDA_ENTRY
  };
  assert(kind >= 0 && kind < PEN_OP_COUNT && (dtype == PEN_F32 || dtype == PEN_BF16));
  return pen_cuda_is_product(kind) ? pen_cuda_product : kernels[kind][dtype == PEN_BF16];
}

/* An op whose blocks want more shared memory than this GPU has is an error now, and not at its
 * first launch. */
static void check_shared(enum pen_op_kind kind, enum pen_dtype dtype,
                         const int64_t dim[PEN_DIMS_MAX]) {
  static const struct {
    const char *name;
    size_t (*of[2])(const int64_t *);
  } rules[PEN_OP_COUNT] = {
      [PEN_OP_ATTENTION] = {"ATTENTION",
                            {pen_cuda_attention_shared, pen_cuda_attention_bf16_shared}},
      [PEN_OP_ATTENTION_DX] = {"ATTENTION_DX",
                               {pen_cuda_attention_dx_shared, pen_cuda_attention_dx_bf16_shared}},
      [PEN_OP_RMSNORM_DX] = {"RMSNORM_DX",
                             {pen_cuda_rmsnorm_dx_shared, pen_cuda_rmsnorm_dx_shared}},
      [PEN_OP_LAYERNORM_DX] = {"LAYERNORM_DX",
                               {pen_cuda_layernorm_dx_shared, pen_cuda_layernorm_dx_shared}},
  };
  const size_t bytes = rules[kind].name == NULL ? 0 : rules[kind].of[dtype == PEN_BF16](dim);
  char why[120];
  snprintf(why, sizeof why,
           "each of its blocks wants %zu bytes of shared memory, and this GPU gives a block %zu",
           bytes, pen_cuda_chip.shared_bytes);
  if (bytes > pen_cuda_chip.shared_bytes) pen_cuda_note_text(rules[kind].name, why);
}

static void *prepare(enum pen_op_kind kind, enum pen_dtype dtype, const int64_t dim[PEN_DIMS_MAX],
                     const double real[PEN_REALS_MAX]) {
  (void)real;
  check_shared(kind, dtype, dim);
  if (pen_is_head_loss(kind)) return pen_head_loss_prepare(&pen_cuda, kind, dtype, dim);
  return pen_cuda_is_product(kind) ? pen_cuda_product_prepare(kind, dtype, dim) : NULL;
}

static size_t workspace_bytes(enum pen_op_kind kind, enum pen_dtype dtype,
                              const int64_t dim[PEN_DIMS_MAX]) {
  static size_t (*const rules[PEN_OP_COUNT])(const int64_t *) = {
      [PEN_OP_RMSNORM_DX] = pen_cuda_rmsnorm_dx_workspace,
      [PEN_OP_LAYERNORM_DX] = pen_cuda_layernorm_dx_workspace,
      [PEN_OP_BIAS_DW] = pen_cuda_bias_dw_workspace,
      [PEN_OP_ATTENTION_DX] = pen_cuda_attention_dx_workspace,
      [PEN_OP_CROSS_ENTROPY] = pen_cuda_cross_entropy_workspace,
  };
  if (pen_is_head_loss(kind)) return pen_head_loss_workspace(&pen_cuda, kind, dtype, dim);
  if (pen_cuda_is_product(kind)) return pen_cuda_product_workspace(kind, dtype, dim);
  if (kind == PEN_OP_ATTENTION_DX && dtype == PEN_BF16)
    return pen_cuda_attention_dx_bf16_workspace(dim);
  return rules[kind] ? rules[kind](dim) : 0;
}

static void *allocate(size_t bytes) {
  void *block = NULL;
  char what[60];
  snprintf(what, sizeof what, "%zu bytes of the GPU's memory", bytes);
  pen_cuda_note(what, cudaMalloc(&block, bytes));
  return block;
}

static void release(void *there) { pen_cuda_note("freeing the GPU's memory", cudaFree(there)); }

static void *stream_create(void) {
  cudaStream_t stream = NULL;
  pen_cuda_note("a stream", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

static void copy_in(void *there, const void *here, size_t bytes, void *stream) {
  pen_cuda_note("a copy to the GPU",
                cudaMemcpyAsync(there, here, bytes, cudaMemcpyHostToDevice, stream));
}

static void copy_out(void *here, const void *there, size_t bytes, void *stream) {
  pen_cuda_note("a copy from the GPU",
                cudaMemcpyAsync(here, there, bytes, cudaMemcpyDeviceToHost, stream));
}

static void zero(void *there, size_t bytes, void *stream) {
  pen_cuda_note("clearing the GPU's memory", cudaMemsetAsync(there, 0, bytes, stream));
}

static void synchronize(void *stream) {
  pen_cuda_note("waiting for the GPU", cudaStreamSynchronize(stream));
}

const struct pen_device pen_cuda = {
    .name = "cuda",
    .asynchronous = true,
    .count = device_count,
    .open = open_cuda,
    .enter_thread = enter_thread,
    .error = error,
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
    .clip_scale = pen_cuda_clip_scale,
    .f32_to_bf16 = pen_cuda_f32_to_bf16,
    .normal = pen_cuda_normal,
    .stream_create = stream_create,
    .stream_synchronize = synchronize,
    .event_create = pen_cuda_event_create,
    .event_record = pen_cuda_event_record,
    .stream_wait_event = pen_cuda_stream_wait_event,
    .event_query = pen_cuda_event_query,
    .signal = pen_cuda_signal,
    .signal_remote = pen_cuda_signal_remote,
    .wait_value = pen_cuda_wait_value,
    .capture_begin = pen_cuda_capture_begin,
    .capture_end = pen_cuda_capture_end,
    .graph_launch = pen_cuda_graph_launch,
    .graph_destroy = pen_cuda_graph_destroy,
    .export_memory = pen_cuda_export_memory,
    .import_memory = pen_cuda_import_memory,
};
