/* sgd.cu: pen_sgd_step(): SGD with momentum over f32 master weights, with the bits of a CPU that
 * fuses multiply-adds. The settings are in device memory, so that a captured step reads new ones at
 * each replay; a scale of NaN skips the step. With a bf16 copy, the new parameters are also rounded
 * into it, with the bits of pen_f32_to_bf16(). Launch, for as many tensors as fit into the
 * arguments: a block for each RUN elements of a tensor. Traffic: 24 bytes an element, 16 without
 * momentum, 2 more with a copy.
 */
#include "kernels/cuda/tensor_list.cuh"
#include "kernels/cuda/to_bf16.cuh"

namespace {

const int64_t RUN = 16 * 4 * THREADS;

/* What is the same for all elements, computed once in f64 and rounded. */
struct sgd_factors {
  float scale, momentum, keep, rate;
};

__device__ inline sgd_factors sgd_factors_of(const struct pen_adamw *s,
                                             const struct pen_adamw_tensor &t) {
  const double learning_rate = __dmul_rn(s->learning_rate, t.rate);
  return {(float)s->gradient_scale, (float)t.momentum,
          (float)__dadd_rn(1, -__dmul_rn(learning_rate, t.weight_decay)), (float)-learning_rate};
}

/* Elements i .. i+N-1 of a tensor; a step that is skipped leaves the gradient zero, too. */
template <int N>
__device__ inline void update(const struct pen_adamw_tensor &t, int64_t i, const sgd_factors &s) {
  if (isnan(s.scale)) {
    store(t.gradient + i, lanes<N>{});
    return;
  }
  lanes<N> p = load<N>(t.parameter + i), b = t.exp_avg ? load<N>(t.exp_avg + i) : lanes<N>{};
  const lanes<N> gradients = load<N>(t.gradient + i);
#pragma unroll
  for (int k = 0; k < N; k++) {
    const float g = __fmul_rn(gradients.v[k], s.scale);
    const float sum = __fmaf_rn(b.v[k], s.momentum, g);
    const float step = t.nesterov ? __fmaf_rn(sum, s.momentum, g) : sum;
    const bool good = isfinite(step);
    p.v[k] = good ? __fmaf_rn(step, s.rate, __fmul_rn(p.v[k], s.keep)) : p.v[k];
    b.v[k] = good ? sum : b.v[k];
  }
  store(t.parameter + i, p);
  if (t.copy) store_narrow(t.copy + i, p);
  if (t.exp_avg) store(t.exp_avg + i, b);
  store(t.gradient + i, lanes<N>{});
}

__global__ void __launch_bounds__(THREADS)
    sgd(const tensor_list<pen_adamw_tensor> list, const struct pen_adamw *settings) {
  int64_t run;
  const struct pen_adamw_tensor tensor = list.own(&run);
  const sgd_factors s = sgd_factors_of(settings, tensor);
  const int64_t count = (int64_t)tensor.count, past = (run + 1) * RUN;
  for (int64_t i = run * RUN + threadIdx.x * 4; i < past && i < count; i += THREADS * 4) {
    if (i + 4 <= count)
      update<4>(tensor, i, s);
    else
      for (int64_t k = i; k < count; k++) update<1>(tensor, k, s);
  }
}

} /* namespace */

void pen_cuda_sgd_step(const struct pen_adamw_tensor *tensors, size_t tensor_count,
                       const struct pen_adamw *settings, void *stream) {
  tensor_list<pen_adamw_tensor> list = {};
  for (size_t i = 0; i < tensor_count; i++) {
    list.add(tensors[i], ceiling((int64_t)tensors[i].count, RUN));
    if (!list.is_full() && i + 1 < tensor_count) continue;
    if (list.blocks() > 0)
      PEN_LAUNCH(sgd, dim3(list.blocks()), dim3(THREADS), 0, stream, list, settings);
    list.count = 0;
  }
}
