/* cross_entropy_columns.cu: CROSS_ENTROPY_COLUMNS: the loss of the rows whose target is in a split
 * of the vocabulary, and the gradient of the split's logits, which may replace them, given the
 * maximum of each row and the sum of its exponentials over all splits. Ignored and invalid targets:
 * as CROSS_ENTROPY.
 *
 * Launch: as CROSS_ENTROPY. Sums: the losses of rows, in f64 in rising order. Workspace: an f64 for
 * each row. Traffic: an element twice with the gradient.
 */
#include <math.h>

#include "kernels/cuda/logit_rows.cuh"
#include "kernels/cuda/serial_sum.cuh"

namespace {

template <class T>
struct split_of_logits {
  double *losses;
  const T *logits;
  T *dlogits; /* null: without the gradient */
  const int32_t *targets;
  const double *share;
  const float *maximum;
  const double *sum;
  int vocab, first, tokens;
};

template <class T, int B>
__global__ void __launch_bounds__(B) row_loss(split_of_logits<T> p) {
  const int64_t row = blockIdx.x, at = row * p.vocab;
  const int target = p.targets[row], place = target - p.first;
  const bool is_token = target >= 0 && target < p.tokens, own = place >= 0 && place < p.vocab;
  const float most = p.maximum[row];
  const double sum = p.sum[row], scale = *p.share;
  const span s = span_of<WIDE<T>>(at, p.vocab);
  if (threadIdx.x == 0)
    p.losses[row] = !is_token ? (target == PEN_IGNORED_TARGET ? 0.0 : nan(""))
                    : own     ? log(sum) + ((double)most - (double)widen(p.logits[at + place]))
                              : 0.0;
  if (!p.dlogits) return;
  __syncthreads(); /* dlogits may be logits */
  if (is_token) {
    logit_gradient<T> g = {p.logits + at,        p.dlogits + at,   most,
                           (float)(scale / sum), own ? place : -1, (float)scale};
    over_row<B, WIDE<T>>(s, g);
  } else {
    nothing<T> none = {p.dlogits + at};
    over_row<B, WIDE<T>>(s, none);
  }
}

template <class T>
void cross_entropy_columns_of(const struct pen_call *call) {
  const split_of_logits<T> p = {(double *)call->workspace,
                                (const T *)call->operand[0],
                                (T *)call->operand[6],
                                (const int32_t *)call->operand[1],
                                (const double *)call->operand[2],
                                (const float *)call->operand[3],
                                (const double *)call->operand[4],
                                (int)call->dim[1],
                                (int)call->dim[2],
                                (int)call->dim[3]};
  const int64_t rows = call->dim[0];
  const int threads = row_threads(p.vocab);
  const auto kernel = threads > THREADS ? row_loss<T, ROW_THREADS> : row_loss<T, THREADS>;
  PEN_LAUNCH(kernel, dim3((unsigned)rows), dim3((unsigned)threads), 0, call->stream, p);
  PEN_LAUNCH(serial_sum<double>, dim3(1), dim3(THREADS), 0, call->stream,
             (double *)call->operand[5], p.losses, rows);
}

} /* namespace */

PEN_CUDA_BOTH(cross_entropy_columns)
