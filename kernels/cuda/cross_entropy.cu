/* cross_entropy.cu: CROSS_ENTROPY with its gradient: loss = sum over rows of -log
 * softmax(logits)[target], dlogits = scale (softmax - one-hot), which may replace the logits. An
 * ignored target adds nothing and has a zero gradient; a target that is neither ignored nor a token
 * makes the loss NaN (the runtime checks targets).
 *
 * Launch: a block of 1024 threads for each row, 256 if the vocabulary is at most 4096; then one
 * block that adds the losses of rows. Sums: a thread keeps a maximum and a sum of e^(x - maximum)
 * in f32 (online softmax: Milakov and Gimelshein 2018), the sums of threads are added in f64, the
 * losses of rows in f64 in rising order. Workspace: an f64 for each row. Traffic: an element three
 * times with the gradient.
 */
#include <float.h>
#include <math.h>

#include "kernels/cuda/logit_rows.cuh"
#include "kernels/cuda/serial_sum.cuh"

namespace {

template <class T, int B>
__global__ void __launch_bounds__(B)
    row_loss(double *losses, const T *logits, T *dlogits, const int32_t *targets,
             const double *share, int vocab) {
  const int64_t row = blockIdx.x, at = row * vocab;
  const double scale = *share;
  const int target = targets[row];
  const span s = span_of<WIDE<T>>(at, vocab);
  if (target < 0 || target >= vocab) { /* uniform in the block */
    nothing<T> none = {dlogits + at};
    if (dlogits) over_row<B, WIDE<T>>(s, none);
    if (threadIdx.x == 0) losses[row] = target == PEN_IGNORED_TARGET ? 0.0 : nan("");
    return;
  }
  const float wanted = widen(logits[at + target]); /* before any write: dlogits may be logits */
  soft_sum<T> soft = {logits + at, -FLT_MAX, 0};   /* finite, so that a logit of -infinity adds 0 */
  over_row<B, WIDE<T>>(s, soft);
  const float most = block_maximum<B>(soft.most);
  const double sum = block_sum<B>((double)soft.sum * (double)expf(soft.most - most));
  if (dlogits) {
    logit_gradient<T> g = {logits + at,          dlogits + at, most,
                           (float)(scale / sum), target,       (float)scale};
    over_row<B, WIDE<T>>(s, g);
  }
  if (threadIdx.x == 0) losses[row] = log(sum) + ((double)most - (double)wanted);
}

template <class T>
void cross_entropy_of(const struct pen_call *call) {
  double *losses = (double *)call->workspace;
  const int64_t rows = call->dim[0];
  const int vocab = (int)call->dim[1], threads = row_threads(vocab);
  const auto kernel = threads > THREADS ? row_loss<T, ROW_THREADS> : row_loss<T, THREADS>;
  PEN_LAUNCH(kernel, dim3((unsigned)rows), dim3((unsigned)threads), 0, call->stream, losses,
             (const T *)call->operand[0], (T *)call->operand[4], (const int32_t *)call->operand[1],
             (const double *)call->operand[2], vocab);
  PEN_LAUNCH(serial_sum<double>, dim3(1), dim3(THREADS), 0, call->stream,
             (double *)call->operand[3], losses, rows);
}

} /* namespace */

PEN_CUDA_BOTH(cross_entropy)
