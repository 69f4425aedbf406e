/* cuda.h: what the files of the CUDA backend share with each other: the functions of the
 * operations, and the errors.
 *
 * One operation a file. A function here has an operation's type (kernels.h): it reads shapes from
 * call->dim, enqueues its kernels on call->stream and returns; nothing in it waits, allocates or
 * looks at a value. Grids and blocks follow from shapes alone, and no kernel adds floats
 * atomically: the bits of a result depend on values and shapes, and on the kind of device where a
 * library is asked. The launch rule, the order of the sums and the workspace stand on top of each
 * file.
 */
#ifndef PEN_CUDA_H
#define PEN_CUDA_H

#include <cuda_runtime_api.h>

#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every operation that has a kernel of ours, with the name of its function: those of f32 alone, and
 * those whose dtype may be bf16 too, which have a second function with _bf16 behind its name.
 * Products are in product.c. */
#define PEN_CUDA_OPS_F32(row) row(ROPE_TABLE, rope_table) row(ACCUMULATE, accumulate)
#define PEN_CUDA_OPS(row)                                                                          \
  row(RMSNORM, rmsnorm) row(RMSNORM_DX, rmsnorm_dx) row(LAYERNORM, layernorm)                      \
      row(LAYERNORM_DX, layernorm_dx) row(ROPE, rope) row(ROPE_DX, rope_dx)                        \
          row(ATTENTION, attention) row(ATTENTION_DX, attention_dx) row(SWIGLU, swiglu)            \
              row(SWIGLU_DX, swiglu_dx) row(GELU, gelu) row(GELU_DX, gelu_dx)                      \
                  row(GELU_TANH, gelu_tanh) row(GELU_TANH_DX, gelu_tanh_dx) row(SPLIT, split)      \
                      row(SPLIT_DX, split_dx) row(SCALE, scale) row(SCALE_DX, scale) row(ADD, add) \
                          row(BIAS_DW, bias_dw) row(EMBEDDING, embedding)                          \
                              row(EMBEDDING_DW, embedding_dw) row(POSITION, position)              \
                                  row(POSITION_DW, position_dw) row(CROSS_ENTROPY, cross_entropy)  \
                                      row(SUM_LOSS, sum_loss)
#define PEN_CUDA_DECLARE_F32(kind, name) pen_kernel pen_cuda_##name;
#define PEN_CUDA_DECLARE(kind, name) pen_kernel pen_cuda_##name, pen_cuda_##name##_bf16;
PEN_CUDA_OPS_F32(PEN_CUDA_DECLARE_F32)
PEN_CUDA_OPS(PEN_CUDA_DECLARE)
#undef PEN_CUDA_DECLARE_F32
#undef PEN_CUDA_DECLARE

/* Attention over bf16 wants a head_dim that is a multiple of 8, at most 128; over f32 one of at
 * most 256. */
size_t pen_cuda_attention_dx_bf16_workspace(const int64_t dim[PEN_DIMS_MAX]);

/* attention*.cu: what must be settled once, before the seal: the shared memory that the kernels may
 * have. */
void pen_cuda_attention_open(void);
void pen_cuda_attention_dx_open(void);
void pen_cuda_attention_bf16_open(void);
void pen_cuda_attention_dx_bf16_open(void);
void pen_cuda_rmsnorm_dx_open(void);
void pen_cuda_layernorm_dx_open(void);

/* The shared memory that a block of theirs has on this chip. More than it may have: prepare()
 * refuses the op. */
size_t pen_cuda_attention_shared(const int64_t dim[PEN_DIMS_MAX]);
size_t pen_cuda_attention_dx_shared(const int64_t dim[PEN_DIMS_MAX]);
size_t pen_cuda_attention_bf16_shared(const int64_t dim[PEN_DIMS_MAX]);
size_t pen_cuda_attention_dx_bf16_shared(const int64_t dim[PEN_DIMS_MAX]);
size_t pen_cuda_rmsnorm_dx_shared(const int64_t dim[PEN_DIMS_MAX]);
size_t pen_cuda_layernorm_dx_shared(const int64_t dim[PEN_DIMS_MAX]);

/* product.c. The products' workspace is one size for all shapes: what cuBLASLt is told to keep to;
 * a bias over bf16 adds its own bytes. */
enum { PEN_CUDA_PRODUCT_WORKSPACE_BYTES = (32 << 20) + 256 };
const char *pen_cuda_product_open(
    void); /* the library's name and version; null: noted as an error */
int pen_cuda_is_product(enum pen_op_kind kind);
size_t pen_cuda_product_workspace(enum pen_op_kind kind, enum pen_dtype dtype,
                                  const int64_t dim[PEN_DIMS_MAX]);
/* Null: noted as an error. Over bf16 the gradients of weights stay f32. */
void *pen_cuda_product_prepare(enum pen_op_kind kind, enum pen_dtype dtype,
                               const int64_t dim[PEN_DIMS_MAX]);
pen_kernel pen_cuda_product; /* of what was prepared */

/* The bytes of call->workspace, for ops that want some. */
size_t pen_cuda_rmsnorm_dx_workspace(const int64_t dim[PEN_DIMS_MAX]);
size_t pen_cuda_layernorm_dx_workspace(const int64_t dim[PEN_DIMS_MAX]);
size_t pen_cuda_bias_dw_workspace(const int64_t dim[PEN_DIMS_MAX]);
size_t pen_cuda_attention_dx_workspace(const int64_t dim[PEN_DIMS_MAX]);
size_t pen_cuda_cross_entropy_workspace(const int64_t dim[PEN_DIMS_MAX]);

/* What is no operation. */
void pen_cuda_sum_doubles(double *sum, const double *x, size_t count, void *stream);
void pen_cuda_sum_squares(double *sum, const float *x, size_t count, void *workspace, void *stream);
void pen_cuda_adamw_step(float *parameter, float *gradient, float *exp_avg, float *exp_avg_sq,
                         uint16_t *copy, size_t count, const struct pen_adamw *settings,
                         double weight_decay, void *stream);
void pen_cuda_f32_to_bf16(uint16_t *to, const float *from, size_t count, void *stream);
void pen_cuda_max_abs(double *greatest, const float *x, size_t count, void *workspace,
                      void *stream);
void pen_cuda_sum_arrays(float *y, const float *const *x, size_t arrays, size_t count,
                         void *stream);
void pen_cuda_clip_scale(struct pen_adamw *settings, const struct pen_adamw *base,
                         const double *board, size_t count, size_t parts, size_t stride,
                         double clip_norm, int greatest, void *stream);
void pen_cuda_normal(float *y, size_t count, uint64_t first, const uint32_t key[2],
                     double deviation, void *stream);

/* streams.c: see struct pen_device. */
void pen_cuda_streams_open(int number); /* finds the driver's stream memory operations */
void *pen_cuda_allocate_host(size_t bytes);
void pen_cuda_copy(void *to, const void *from, size_t bytes, void *stream);
void *pen_cuda_event_create(void);
void pen_cuda_event_record(void *event, void *stream);
void pen_cuda_stream_wait_event(void *stream, void *event);
int pen_cuda_event_query(void *event);
void pen_cuda_signal(uint32_t *semaphore, uint32_t value, void *stream);
void pen_cuda_signal_remote(uint32_t *semaphore, void *stream);
void pen_cuda_wait_value(uint32_t *semaphore, uint32_t value, void *stream);
void pen_cuda_capture_begin(void *stream);
void *pen_cuda_capture_end(void *stream, const char **why);
void pen_cuda_graph_launch(void *graph, void *stream);
void pen_cuda_graph_destroy(void *graph);
int pen_cuda_export_memory(void *memory, unsigned char handle[PEN_SHARED_NAME_BYTES]);
void *pen_cuda_import_memory(const unsigned char handle[PEN_SHARED_NAME_BYTES]);

/* open.c. Keeps the first error in words: what was done, and what CUDA says of it. */
void pen_cuda_note(const char *what, cudaError_t error);
void pen_cuda_note_text(const char *what, const char *why);
/* Puts another text in its place ("": none), and returns what it was, static storage. While one
 * thread alone makes calls. */
const char *pen_cuda_forget(const char *kept);
/* Lets a kernel have so much shared memory a block, past the 48 KiB that all may have. Where the
 * chip has less it stays as it is. */
void pen_cuda_grant(const char *what, const void *kernel, size_t shared_bytes);
extern struct pen_cuda_chip { /* of the device that is open; for limits, never for the order of a
                                 sum */
  int processors;
  size_t shared_bytes; /* that a block may have at most */
} pen_cuda_chip;

#ifdef __cplusplus
}
#endif

#endif
