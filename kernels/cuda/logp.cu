/* logp.cu: LOGP, log-probabilities of some tokens of each row, and its gradient.
 *
 * Launch: a block for each row, as CROSS_ENTROPY. Sums: as there. Traffic: an element once in LOGP,
 * three times in its gradient. */
#include <float.h>
#include <math.h>

#include "kernels/cuda/logit_rows.cuh"

namespace {

template <class T, int B>
__global__ void __launch_bounds__(B)
    row_logp(float *logp, float *lse, float *log_sums, const T *logits, const int32_t *targets,
             int vocab, int choices) {
  const int64_t row = blockIdx.x, at = row * vocab;
  const span s = span_of<WIDE<T>>(at, vocab);
  soft_sum<T> soft = {logits + at, -FLT_MAX, 0};
  over_row<B, WIDE<T>>(s, soft);
  const float most = block_maximum<B>(soft.most);
  const double sum = block_sum<B>((double)soft.sum * (double)expf(soft.most - most)),
               log_sum = log(sum) + (double)most;
  for (int k = (int)threadIdx.x; k < choices; k += B) {
    const int target = targets[row * choices + k];
    float value = target == PEN_IGNORED_TARGET ? 0.0f : nanf("");
    if (target >= 0 && target < vocab)
      value = (float)((double)widen(logits[at + target]) - log_sum);
    logp[row * choices + k] = value;
  }
  if (threadIdx.x == 0) lse[row] = log_sums[row] = (float)log_sum;
}

/* dx = factor e^(x - log_sum) + a, and the gradients of the choices at their targets. */
template <class T>
struct logp_gradient {
  const T *x, *a;
  T *dx;
  const float *dlogp;
  const int32_t *targets;
  int choices;
  float log_sum, factor;
  template <int N>
  __device__ void run(int i) {
    lanes<N> d = load<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; k++) {
      d.v[k] = exponential<T>(d.v[k] - log_sum) * factor;
      if (a) d.v[k] += widen(a[i + k]);
    }
    for (int c = 0; dlogp && c < choices; c++) {
#pragma unroll
      for (int k = 0; k < N; k++)
        if (targets[c] == i + k) d.v[k] += dlogp[c];
    }
    store(dx + i, d);
  }
};

template <class T, int B>
__global__ void __launch_bounds__(B)
    row_logp_dx(T *dlogits, const float *dlogp, const float *dlse, const T *logits,
                const int32_t *targets, const float *log_sums, const T *a, int vocab, int choices) {
  const int64_t row = blockIdx.x, at = row * vocab;
  const float *own = dlogp ? dlogp + row * choices : nullptr;
  float factor = dlse ? dlse[row] : 0.0f;
  for (int c = 0; own && c < choices; c++)
    if (targets[row * choices + c] != PEN_IGNORED_TARGET) factor -= own[c];
  logp_gradient<T> g = {
      logits + at, a ? a + at : nullptr, dlogits + at, own, targets + row * choices,
      choices,     log_sums[row],        factor};
  over_row<B, WIDE<T>>(span_of<WIDE<T>>(at, vocab), g);
}

template <class T>
void logp_of(const struct pen_call *call) {
  const int vocab = (int)call->dim[1], threads = row_threads(vocab);
  const auto kernel = threads > THREADS ? row_logp<T, ROW_THREADS> : row_logp<T, THREADS>;
  PEN_LAUNCH(kernel, dim3((unsigned)call->dim[0]), dim3((unsigned)threads), 0, call->stream,
             (float *)call->operand[2], (float *)call->operand[3], (float *)call->operand[4],
             (const T *)call->operand[0], (const int32_t *)call->operand[1], vocab,
             (int)call->dim[2]);
}

template <class T>
void logp_dx_of(const struct pen_call *call) {
  const int vocab = (int)call->dim[1], threads = row_threads(vocab);
  const auto kernel = threads > THREADS ? row_logp_dx<T, ROW_THREADS> : row_logp_dx<T, THREADS>;
  PEN_LAUNCH(kernel, dim3((unsigned)call->dim[0]), dim3((unsigned)threads), 0, call->stream,
             (T *)call->operand[6], (const float *)call->operand[0],
             (const float *)call->operand[1], (const T *)call->operand[2],
             (const int32_t *)call->operand[3], (const float *)call->operand[4],
             (const T *)call->operand[5], vocab, (int)call->dim[2]);
}

} /* namespace */

PEN_CUDA_BOTH(logp)
PEN_CUDA_BOTH(logp_dx)
