/* device.h: a device as the runtime uses it: memory, streams, events, copies and kernels.
 *
 * There are two: the CPU (pen_cpu), whose calls are complete when they return, and CUDA (pen_cuda),
 * whose calls are enqueued on a stream: they neither wait nor allocate, so that a step can be
 * captured as a graph. An error of an enqueued call shows in error() at the latest after
 * stream_synchronize(). Operands and workspaces are in the device's memory; on the CPU that is the
 * host's. */
#ifndef PEN_KERNELS_DEVICE_H
#define PEN_KERNELS_DEVICE_H

#include <stdbool.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor of sum_squares() and max_abs(): its norm becomes norms[index]. */
struct pen_norm_tensor {
  const float *x;
  size_t count, index;
};

/* A tensor of adamw_step(). `copy`, or null, becomes the parameters as bf16, with
 * pen_f32_to_bf16()'s bits. parameter null: only the gradient becomes zero. `lag`: how many fewer
 * updates it has had than settings->updates. */
struct pen_adamw_tensor {
  float *parameter, *gradient, *exp_avg, *exp_avg_sq;
  uint16_t *copy;
  size_t count;
  double weight_decay;
  double rate; /* a factor of settings->learning_rate */
  uint64_t lag;
  double momentum; /* of sgd_step() and muon_momentum(), as the next */
  bool nesterov;
  uint8_t optimizer;    /* which function is to be called; these read neither it nor the next */
  uint32_t weight;      /* which weight of the plan */
  uint8_t parts, steps; /* of Muon, as all that follow: see struct pen_muon */
  size_t rows;          /* of this tensor */
  void *workspace;      /* of muon_orthogonalize() */
  /* How many pieces its matrix has, which follow each other, where this one is in each part, and
   * the size of the matrix. */
  size_t pieces, first_row, first_column, matrix_rows, matrix_columns;
};

/* UPDATE on each of the tensors; no two overlap. The settings, except those of a tensor, are on
 * the device, the list is in host memory and read before the call returns. With a gradient_scale of
 * NaN parameters and moments stay as they are. */
typedef void pen_optimizer_step(const struct pen_adamw_tensor *tensors, size_t tensor_count,
                                const struct pen_adamw *settings, void *stream);

/* What a graph consists of, and how much of the device's memory became less free with it. */
struct pen_graph_figures {
  size_t nodes, bytes;
};

struct pen_device {
  const char *name;  /* "cpu", "cuda" */
  bool asynchronous; /* its calls are enqueued, and its memory is not the host's */

  /* ---- opening; before the seal ---- */
  int (*count)(void); /* of such devices in this machine; 0: none, and error() says why */
  /* Opens the device of that number, once a process. Returns one line that says what was chosen,
   * static storage; null when there is no such device, and error() then says why. Allocates. */
  const char *(*open)(int number);
  void (*enter_thread)(void); /* first call of a thread that did not open the device */
  /* The first error since open(), static storage; null: none. */
  const char *(*error)(void);

  /* ---- operations (kernels.h) ---- */
  pen_kernel *(*kernel_of)(enum pen_op_kind kind, enum pen_dtype dtype); /* as pen_kernel_of() */
  void *(*prepare)(enum pen_op_kind kind, enum pen_dtype dtype, const int64_t dim[PEN_DIMS_MAX],
                   const double real[PEN_REALS_MAX]); /* as pen_kernels_prepare() */
  /* The bytes that call->workspace must have; after open(). */
  size_t (*workspace_bytes)(enum pen_op_kind kind, enum pen_dtype dtype,
                            const int64_t dim[PEN_DIMS_MAX]);

  /* ---- memory; before the seal ---- */
  void *(*allocate)(size_t bytes); /* on the device, 256-byte aligned; null: see error() */
  void (*release)(void *memory);
  void *(*allocate_host)(
      size_t bytes); /* pinned host memory, device-accessible; null: see error() */

  /* ---- copies and arithmetic ---- */
  void (*copy)(void *to, const void *from, size_t bytes, void *stream);     /* on the device */
  void (*copy_in)(void *to, const void *from, size_t bytes, void *stream);  /* host to device */
  void (*copy_out)(void *to, const void *from, size_t bytes, void *stream); /* device to host */
  void (*zero)(void *memory, size_t bytes, void *stream);
  /* As pen_sum_squares() of each of the tensors, with its bits. `norms` are on the device, the list
   * is in host memory and read before the call returns. Workspace: 8 bytes for each block of
   * PEN_NORM_BLOCK of each tensor. */
  void (*sum_squares)(double *norms, const struct pen_norm_tensor *tensors, size_t tensor_count,
                      void *workspace, void *stream);
  /* As pen_max_abs(), likewise. */
  void (*max_abs)(double *norms, const struct pen_norm_tensor *tensors, size_t tensor_count,
                  void *workspace, void *stream);
  /* *sum = the sum of x[count], by rising index; all on the device. */
  void (*sum_doubles)(double *sum, const double *x, size_t count, void *stream);
  /* As pen_sum_arrays(), with its bits. The list x is in host memory; arrays <=
   * PEN_DEVICE_ARRAYS_MAX. */
  void (*sum_arrays)(float *y, const float *const *x, size_t arrays, size_t count, void *stream);
  pen_optimizer_step *adamw_step; /* as pen_adamw_step(), with its bits */
  pen_optimizer_step *sgd_step;   /* as pen_sgd_step() over exp_avg, with its bits */
  /* Of whole tensors: parameter += rate sign(mean of the gradient - gradient); in any case the
   * gradient becomes zero. The gradients are counts, whose sum f32 holds exactly. */
  pen_optimizer_step *balance_step;
  /* parameter = exp_avg = gradient, unless the step is skipped; in any case the gradient becomes
   * zero. */
  pen_optimizer_step *choices_step;
  /* The step of Muon (kernels.h): of pieces pen_muon_momentum() over exp_avg and pen_muon_apply(),
   * a tensor with a count of 0 being another process's; of one matrix, all its pieces,
   * pen_muon_orthogonalize(), whose NEWTON_SCHULZ was prepared. */
  pen_optimizer_step *muon_momentum, *muon_orthogonalize, *muon_apply;
  /* *settings = *base with the gradient_scale that clips the gradients to clip_norm: min(1,
   * clip_norm / (norm + 1e-6)), the norm being the root of the sum of the entries of `stats`, or
   * with `infinity_norm` their maximum; all on the device. Entry i of part p is stats[p * stride +
   * i]; they are added by rising i, those of one i from part i mod parts on. A norm that is not
   * finite, or a NaN in the base, gives NaN. clip_norm 0: scale 1, and `stats` is not read.
   * settings->updates is not the base's: it rises by one, unless the scale is NaN. */
  void (*clip_scale)(struct pen_adamw *settings, const struct pen_adamw *base, const double *stats,
                     size_t count, size_t parts, size_t stride, double clip_norm, int infinity_norm,
                     void *stream);
  void (*f32_to_bf16)(uint16_t *to, const float *from, size_t count, void *stream);
  void (*normal)(float *y, size_t count, uint64_t first, const uint32_t key[2], double deviation,
                 void *stream); /* as pen_normal(), with its bits; the key is in host memory */

  /* ---- streams and events; creation before the seal, null: see error() ---- */
  void *(*stream_create)(void); /* calls on one stream run in order */
  void (*stream_synchronize)(void *stream);
  void *(*event_create)(void);
  void (*event_record)(void *event, void *stream);
  /* Nothing, if the event was recorded last on the same stream. */
  void (*stream_wait_event)(void *stream, void *event);

  /* ---- for asynchronous devices only; null on the CPU ---- */
  int (*event_query)(
      void *event); /* 1: complete, or the device has failed (see error()); no wait */
  /* A semaphore is a u32 in the device's memory or in pinned memory. */
  void (*signal)(uint32_t *semaphore, uint32_t value,
                 void *stream); /* sets a local one after all that precedes on the stream */
  void (*signal_remote)(uint32_t *semaphore,
                        void *stream); /* sets one in imported memory to 1, likewise */
  void (*wait_value)(uint32_t *semaphore, uint32_t value,
                     void *stream); /* the stream waits for equality; no kernel spins */
  /* The stream waits for each of these local semaphores, in that order, to be 1, and sets it to 0.
   * The list is in host memory. */
  void (*take)(uint32_t *const *semaphores, size_t count, void *stream);
  /* From capture_begin() to capture_end() the calls on the stream, and on streams that wait for its
   * events, are recorded and not run. capture_end() returns the graph; null when the calls cannot
   * be captured: then *why is the reason (static storage) and error() is as it was before. Before
   * the seal, or in the first step: both may allocate. */
  void (*capture_begin)(void *stream);
  void *(*capture_end)(void *stream, const char **why);
  void (*graph_launch)(void *graph, void *stream);
  void (*graph_destroy)(void *graph);
  struct pen_graph_figures (*graph_figures)(const void *graph);
  /* Writes a graph to a file, in the DOT language of Graphviz. An error: see error(). */
  void (*graph_write)(const void *graph, const char *path);
  /* Memory that another process of this host may access: the handle of a block of allocate(), and
   * the block's address in this process. */
  int (*export_memory)(void *memory,
                       unsigned char handle[PEN_SHARED_NAME_BYTES]);         /* 0: see error() */
  void *(*import_memory)(const unsigned char handle[PEN_SHARED_NAME_BYTES]); /* null: see error() */
};

#ifdef __cplusplus
}
#endif

#endif
