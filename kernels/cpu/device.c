/* device.c: pen_cpu, the CPU as a struct pen_device: its memory is the host's, and a call is
 * complete when it returns. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/device.h"
#include "kernels/head_loss.h"

static const char *error_text;

static int device_count(void) { return 1; }

static const char *open_cpu(int number) {
  const char *line = number == 0 ? pen_kernels_open() : NULL;
  if (line == NULL)
    error_text =
        number == 0 ? "no memory for the buffers of matrix products" : "the CPU is device 0";
  return line;
}

static const char *last_error(void) { return error_text; }

static size_t workspace_bytes(enum pen_op_kind kind, enum pen_dtype dtype,
                              const int64_t dim[PEN_DIMS_MAX]) {
  static const char *const formulas[PEN_OP_COUNT] = {
#define PEN_CPU_ROW(kind, threads, workspace) [PEN_OP_##kind] = workspace,
#include "kernels/cpu/ops.def"
  };
  return pen_workspace_bytes(formulas[kind], kind, dtype, dim);
}

static void *allocate(size_t bytes) {
  void *block = NULL;
  return posix_memalign(&block, 256, bytes) == 0 ? block : NULL;
}

/* Streams and events have no state: a call is complete when it returns. */
static void *handle_create(void) {
  static char handle;
  return &handle;
}

static void copy(void *to, const void *from, size_t bytes, void *stream) {
  (void)stream;
  memcpy(to, from, bytes);
}

static void zero(void *memory, size_t bytes, void *stream) {
  (void)stream;
  memset(memory, 0, bytes);
}

static void stream_synchronize(void *stream) { (void)stream; }

static void event_record(void *event, void *stream) { (void)event, (void)stream; }

static void stream_wait_event(void *stream, void *event) { (void)stream, (void)event; }

static void sum_squares(double *norms, const struct pen_norm_tensor *tensors, size_t tensor_count,
                        void *workspace, void *stream) {
  (void)workspace, (void)stream;
  for (const struct pen_norm_tensor *t = tensors; t < tensors + tensor_count; t++)
    norms[t->index] = pen_sum_squares(t->x, t->count);
}

static void sum_doubles(double *sum, const double *x, size_t count, void *stream) {
  (void)stream;
  double total = 0;
  for (size_t i = 0; i < count; i++) total += x[i];
  *sum = total;
}

static void max_abs(double *norms, const struct pen_norm_tensor *tensors, size_t tensor_count,
                    void *workspace, void *stream) {
  (void)workspace, (void)stream;
  for (const struct pen_norm_tensor *t = tensors; t < tensors + tensor_count; t++)
    norms[t->index] = pen_max_abs(t->x, t->count);
}

static void adamw_step(const struct pen_adamw_tensor *tensors, size_t tensor_count,
                       const struct pen_adamw *settings, void *stream) {
  (void)stream;
  struct pen_adamw own = *settings;
  for (const struct pen_adamw_tensor *t = tensors; t < tensors + tensor_count; t++) {
    own.weight_decay = t->weight_decay;
    own.learning_rate = settings->learning_rate * t->rate;
    own.updates = settings->updates - t->lag;
    if (t->parameter != NULL && !isnan(own.gradient_scale))
      pen_adamw_step(t->parameter, t->gradient, t->exp_avg, t->exp_avg_sq, t->count, &own);
    else
      memset(t->gradient, 0, t->count * sizeof *t->gradient);
    if (t->copy != NULL) pen_f32_to_bf16(t->copy, t->parameter, t->count);
  }
}

static void balance_step(const struct pen_adamw_tensor *tensors, size_t tensor_count,
                         const struct pen_adamw *settings, void *stream) {
  (void)stream;
  for (const struct pen_adamw_tensor *t = tensors; t < tensors + tensor_count; t++) {
    double sum = 0;
    for (size_t i = 0; i < t->count; i++) sum += (double)t->gradient[i];
    for (size_t i = 0; i < t->count && !isnan(settings->gradient_scale); i++) {
      const double over = (double)t->gradient[i] * (double)t->count - sum;
      t->parameter[i] += (float)(over < 0 ? t->rate : over > 0 ? -t->rate : 0);
    }
    memset(t->gradient, 0, t->count * sizeof *t->gradient);
  }
}

static void choices_step(const struct pen_adamw_tensor *tensors, size_t tensor_count,
                         const struct pen_adamw *settings, void *stream) {
  (void)stream;
  for (const struct pen_adamw_tensor *t = tensors; t < tensors + tensor_count; t++) {
    const size_t bytes = t->count * sizeof *t->gradient;
    if (!isnan(settings->gradient_scale)) {
      memcpy(t->parameter, t->gradient, bytes);
      memcpy(t->exp_avg, t->gradient, bytes);
    }
    memset(t->gradient, 0, bytes);
  }
}

static void sgd_step(const struct pen_adamw_tensor *tensors, size_t tensor_count,
                     const struct pen_adamw *settings, void *stream) {
  (void)stream;
  struct pen_sgd own = {.gradient_scale = settings->gradient_scale};
  for (const struct pen_adamw_tensor *t = tensors; t < tensors + tensor_count; t++) {
    own.momentum = t->momentum;
    own.nesterov = t->nesterov;
    own.learning_rate = settings->learning_rate * t->rate;
    own.weight_decay = t->weight_decay;
    if (!isnan(own.gradient_scale))
      pen_sgd_step(t->parameter, t->gradient, t->exp_avg, t->count, &own);
    else
      memset(t->gradient, 0, t->count * sizeof *t->gradient);
    if (t->copy != NULL) pen_f32_to_bf16(t->copy, t->parameter, t->count);
  }
}

enum { PIECES_MOST = 256 }; /* tensor_parallel.splits */

static struct pen_muon muon_of(const struct pen_adamw_tensor *t, const struct pen_adamw *settings) {
  return (struct pen_muon){.learning_rate = settings->learning_rate * t->rate,
                           .momentum = t->momentum,
                           .weight_decay = t->weight_decay,
                           .gradient_scale = settings->gradient_scale,
                           .nesterov = t->nesterov,
                           .rows = t->matrix_rows,
                           .columns = t->matrix_columns,
                           .parts = t->parts,
                           .steps = t->steps};
}

static struct pen_muon_piece piece_of(const struct pen_adamw_tensor *t) {
  return (struct pen_muon_piece){.parameter = t->parameter,
                                 .gradient = t->gradient,
                                 .buffer = t->exp_avg,
                                 .first_row = t->first_row,
                                 .rows = t->rows,
                                 .first_column = t->first_column,
                                 .columns = t->count / t->rows / t->parts};
}

static void muon_momentum(const struct pen_adamw_tensor *tensors, size_t tensor_count,
                          const struct pen_adamw *settings, void *stream) {
  (void)stream;
  for (const struct pen_adamw_tensor *t = tensors; t < tensors + tensor_count; t++) {
    if (t->count == 0 || isnan(settings->gradient_scale)) continue;
    const struct pen_muon own = muon_of(t, settings);
    const struct pen_muon_piece piece = piece_of(t);
    pen_muon_momentum(&piece, &own);
  }
}

static void muon_orthogonalize(const struct pen_adamw_tensor *tensors, size_t tensor_count,
                               const struct pen_adamw *settings, void *stream) {
  struct pen_muon_piece piece[PIECES_MOST];
  const struct pen_muon own = muon_of(tensors, settings);
  (void)stream;
  if (isnan(settings->gradient_scale)) return;
  for (size_t p = 0; p < tensor_count; p++) piece[p] = piece_of(&tensors[p]);
  pen_muon_orthogonalize(piece, tensor_count, &own, tensors->workspace);
}

/* With a scale of NaN the gradients become zero alone. */
static void muon_apply(const struct pen_adamw_tensor *tensors, size_t tensor_count,
                       const struct pen_adamw *settings, void *stream) {
  (void)stream;
  for (const struct pen_adamw_tensor *t = tensors; t < tensors + tensor_count; t++) {
    if (t->count == 0) continue; /* another data rank has all of it */
    const struct pen_muon own = muon_of(t, settings);
    const struct pen_muon_piece piece = piece_of(t);
    if (isnan(settings->gradient_scale))
      memset(t->gradient, 0, t->count * sizeof *t->gradient);
    else
      pen_muon_apply(&piece, &own);
    if (t->copy != NULL) pen_f32_to_bf16(t->copy, t->parameter, t->count);
  }
}

static void f32_to_bf16(uint16_t *to, const float *from, size_t count, void *stream) {
  (void)stream;
  pen_f32_to_bf16(to, from, count);
}

static void normal(float *y, size_t count, uint64_t first, const uint32_t key[2], double deviation,
                   void *stream) {
  (void)stream;
  pen_normal(y, count, first, key, deviation);
}

static double scale_of(double norm, double clip_norm) {
  const double scale = clip_norm / (norm + 1e-6);
  return !isfinite(norm) ? (double)NAN : scale > 1.0 ? 1.0 : scale;
}

static double norm_of(const double *stats, size_t count, size_t parts, size_t stride,
                      int infinity_norm) {
  double sum = 0.0, max = 0.0;
  for (size_t i = 0; i < count; i++) {
    for (size_t p = 0; p < parts; p++) {
      const double entry = stats[(i + p) % parts * stride + i];
      sum += entry;
      max = entry > max ? entry : max;
    }
  }
  return !infinity_norm ? sqrt(sum) : isnan(sum) ? sum : max;
}

static void clip_scale(struct pen_adamw *settings, const struct pen_adamw *base,
                       const double *stats, size_t count, size_t parts, size_t stride,
                       double clip_norm, int infinity_norm, void *stream) {
  (void)stream;
  const uint64_t updates = settings->updates;
  *settings = *base;
  if (!isnan(base->gradient_scale))
    settings->gradient_scale =
        clip_norm == 0.0 ? 1.0
                         : scale_of(norm_of(stats, count, parts, stride, infinity_norm), clip_norm);
  settings->updates = updates + !isnan(settings->gradient_scale);
}

static void sum_arrays(float *y, const float *const *x, size_t arrays, size_t count, void *stream) {
  (void)stream;
  pen_sum_arrays(y, x, arrays, count);
}

/* OpenBLAS, where it is used, has its buffer since pen_kernels_open(); other kernels need only
 * call->workspace. */
void *pen_kernels_prepare(enum pen_op_kind kind, enum pen_dtype dtype,
                          const int64_t dim[PEN_DIMS_MAX], const double real[PEN_REALS_MAX]) {
  (void)real;
  return pen_is_head_loss(kind) ? pen_head_loss_prepare(&pen_cpu, kind, dtype, dim)
                                : pen_cpu_prepare_product(kind, dtype, dim);
}

const struct pen_device pen_cpu = {
    .name = "cpu",
    .count = device_count,
    .open = open_cpu,
    .error = last_error,
    .kernel_of = pen_kernel_of,
    .prepare = pen_kernels_prepare,
    .workspace_bytes = workspace_bytes,
    .allocate = allocate,
    .release = free,
    .allocate_host = allocate,
    .copy = copy,
    .copy_in = copy,
    .copy_out = copy,
    .zero = zero,
    .sum_squares = sum_squares,
    .max_abs = max_abs,
    .sum_doubles = sum_doubles,
    .sum_arrays = sum_arrays,
    .adamw_step = adamw_step,
    .sgd_step = sgd_step,
    .balance_step = balance_step,
    .choices_step = choices_step,
    .muon_momentum = muon_momentum,
    .muon_orthogonalize = muon_orthogonalize,
    .muon_apply = muon_apply,
    .clip_scale = clip_scale,
    .f32_to_bf16 = f32_to_bf16,
    .normal = normal,
    .stream_create = handle_create,
    .stream_synchronize = stream_synchronize,
    .event_create = handle_create,
    .event_record = event_record,
    .stream_wait_event = stream_wait_event,
};
