/* cuda.h: the CUDA backend: the operations of ops.def, and struct pen_device (device.h), for NVIDIA
 * GPUs of compute capability 8.0 and later.
 *
 * In: calls with shapes, device addresses and a stream. Out: kernels enqueued on the stream, and
 * pen_cuda in device.h. Nothing outside of this folder includes this header, except tests.
 *
 * One file has one operation. Its function reads shapes from call->dim, enqueues kernels on
 * call->stream and returns; it does not wait, allocate or read values. Grids and blocks depend on
 * shapes alone, and no kernel uses atomic floating-point additions: the bits of a result depend on
 * values and shapes, and for matrix products also on the library and the kind of GPU. The comment
 * at the top of each file gives the launch configuration, the order of sums and the workspace. An
 * error is noted (error.c), and pen_cuda.error() returns it. */
#ifndef PEN_CUDA_H
#define PEN_CUDA_H

#include <cuda_runtime_api.h>

#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kernels of ops.def. Matrix products are in product.c. */
#define PEN_CUDA(kind, name, workspace) pen_kernel pen_cuda_##name, pen_cuda_##name##_bf16;
#define PEN_CUDA_F32(kind, name, workspace) pen_kernel pen_cuda_##name;
#include "kernels/cuda/ops.def"

/* Set the shared memory limit of the kernels, those of runs included; once, before the seal. */
void pen_cuda_attention_open(void);
void pen_cuda_attention_dx_open(void);
void pen_cuda_attention_bf16_open(void);
void pen_cuda_attention_dx_bf16_open(void);
void pen_cuda_rmsnorm_dx_open(void);
void pen_cuda_layernorm_dx_open(void);

/* Bytes of shared memory that a block needs on this GPU. If the GPU has less, prepare() notes an
 * error. */
size_t pen_cuda_attention_shared(const int64_t dim[PEN_DIMS_MAX]);
size_t pen_cuda_attention_dx_shared(const int64_t dim[PEN_DIMS_MAX]);
size_t pen_cuda_attention_bf16_shared(const int64_t dim[PEN_DIMS_MAX]);
size_t pen_cuda_attention_cached_shared(const int64_t dim[PEN_DIMS_MAX]);
size_t pen_cuda_attention_cached_bf16_shared(const int64_t dim[PEN_DIMS_MAX]);
size_t pen_cuda_attention_dx_bf16_shared(const int64_t dim[PEN_DIMS_MAX]);
size_t pen_cuda_rmsnorm_dx_shared(const int64_t dim[PEN_DIMS_MAX]);
size_t pen_cuda_layernorm_dx_shared(const int64_t dim[PEN_DIMS_MAX]);

/* product.c. The workspace has one size for all shapes, the limit given to cuBLASLt; a bias in bf16
 * adds its own bytes. */
enum { PEN_CUDA_PRODUCT_WORKSPACE_BYTES = (32 << 20) + 256 };
/* Opens cuBLASLt. Returns its name and version, static storage; null: an error was noted. */
const char *pen_cuda_product_open(void);
/* Prepares a product for these dims; null: an error was noted. Weight gradients are f32 in either
 * dtype. */
void *pen_cuda_product_prepare(enum pen_op_kind kind, enum pen_dtype dtype,
                               const int64_t dim[PEN_DIMS_MAX]);
pen_kernel pen_cuda_product; /* any prepared product */

/* newton_schulz.cu. Prepares the products for these dims, or finds what was prepared for them;
 * null: an error was noted. */
void *pen_cuda_newton_schulz_prepare(const int64_t dim[PEN_DIMS_MAX]);
/* NEWTON_SCHULZ of the matrix at the beginning of call->workspace, without operands. Returns where
 * in the workspace y is. */
float *pen_cuda_newton_schulz_there(const struct pen_call *call);

/* Functions of struct pen_device that are no operations. */
void pen_cuda_sum_doubles(double *sum, const double *x, size_t count, void *stream);
void pen_cuda_sum_squares(double *norms, const struct pen_norm_tensor *tensors, size_t tensor_count,
                          void *workspace, void *stream);
void pen_cuda_max_abs(double *norms, const struct pen_norm_tensor *tensors, size_t tensor_count,
                      void *workspace, void *stream);
pen_optimizer_step pen_cuda_adamw_step, pen_cuda_sgd_step, pen_cuda_balance_step,
    pen_cuda_choices_step, pen_cuda_muon_momentum, pen_cuda_muon_orthogonalize, pen_cuda_muon_apply;
void pen_cuda_f32_to_bf16(uint16_t *to, const float *from, size_t count, void *stream);
void pen_cuda_sum_arrays(float *y, const float *const *x, size_t arrays, size_t count,
                         void *stream);
void pen_cuda_clip_scale(struct pen_adamw *settings, const struct pen_adamw *base,
                         const double *stats, size_t count, size_t parts, size_t stride,
                         double clip_norm, int infinity_norm, void *stream);
void pen_cuda_normal(float *y, size_t count, uint64_t first, const uint32_t key[2],
                     double deviation, void *stream);

/* library.c: a library whose kernels take the place of ours for some operations. */
struct pen_cuda_library {
  /* Opens it for the GPU that is open. Returns its name and version, static storage; null: *why,
   * static storage, says why our kernels run. */
  const char *(*open)(const char **why);
  bool (*takes_op)(enum pen_op_kind kind);
  /* As those of struct pen_device. */
  void *(*prepare)(enum pen_op_kind kind, const int64_t dim[PEN_DIMS_MAX]);
  size_t (*workspace_bytes)(enum pen_op_kind kind, const int64_t dim[PEN_DIMS_MAX]);
  pen_kernel *run; /* any prepared op; calls ours where the library has no kernel for the call */
};
/* Returns what the line of the device says of it, static storage: "" in a program without a
 * library. PEN_ATTENTION=own keeps ours. */
const char *pen_cuda_library_open(void);
/* The library that runs an op; null: our kernel does. */
const struct pen_cuda_library *pen_cuda_library_of(enum pen_op_kind kind, enum pen_dtype dtype);

/* streams.c: see struct pen_device. */
void pen_cuda_streams_open(int number); /* looks up the driver's stream memory operations */
void *pen_cuda_allocate_host(size_t bytes);
void pen_cuda_copy(void *to, const void *from, size_t bytes, void *stream);
void *pen_cuda_event_create(void);
void pen_cuda_event_record(void *event, void *stream);
void pen_cuda_stream_wait_event(void *stream, void *event);
int pen_cuda_event_query(void *event);
void pen_cuda_signal(uint32_t *semaphore, uint32_t value, void *stream);
void pen_cuda_signal_remote(uint32_t *semaphore, void *stream);
void pen_cuda_wait_value(uint32_t *semaphore, uint32_t value, void *stream);
void pen_cuda_take(uint32_t *const *semaphores, size_t count, void *stream);
void pen_cuda_capture_begin(void *stream);
void *pen_cuda_capture_end(void *stream, const char **why);
void pen_cuda_graph_launch(void *graph, void *stream);
void pen_cuda_graph_destroy(void *graph);
struct pen_graph_figures pen_cuda_graph_figures(const void *graph);
void pen_cuda_graph_write(const void *graph, const char *path);
int pen_cuda_export_memory(void *memory, unsigned char handle[PEN_SHARED_NAME_BYTES]);
void *pen_cuda_import_memory(const unsigned char handle[PEN_SHARED_NAME_BYTES]);

/* error.c: the first error, as "what: why"; later ones are dropped. Any thread may call these. */
void pen_cuda_note(const char *what, cudaError_t error); /* does nothing on cudaSuccess */
void pen_cuda_note_text(const char *what, const char *why);
const char *pen_cuda_error(void); /* static storage; null: none */
/* Replaces the error by `text` ("": none) and returns the previous one, static storage. Only while
 * no other thread calls CUDA. */
const char *pen_cuda_replace_error(const char *text);

/* chip.c: the GPU that is open. Kernels may take limits from it, never the order of a sum. */
extern struct pen_cuda_chip {
  int capability; /* 10 * major + minor */
  int processors;
  size_t shared_bytes; /* the most that a block may have */
} pen_cuda_chip;
void pen_cuda_chip_open(
    int number); /* fills pen_cuda_chip; notes an error for a GPU that is too old */
/* Lets a kernel use more dynamic shared memory than the default of 48 KiB. No effect if the GPU has
 * less than `shared_bytes`. */
void pen_cuda_allow_shared(const char *what, const void *kernel, size_t shared_bytes);

#ifdef __cplusplus
}
#endif

#endif
