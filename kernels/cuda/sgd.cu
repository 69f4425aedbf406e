/* sgd.cu: pen_sgd_step(): SGD with momentum over f32 master weights, with the bits of a CPU that
 * fuses multiply-adds. The settings are in device memory, so that a captured step reads new ones at
 * each replay; a scale of NaN skips the step. With a bf16 copy, the new parameters are also rounded
 * into it, with the bits of pen_f32_to_bf16(). Launch: as update.cuh says. Traffic: 24 bytes an
 * element, 16 without momentum, 2 more with a copy.
 */
#include "kernels/cuda/update.cuh"

namespace {

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

/* A step that is skipped leaves the gradient zero, too. */
struct sgd_update {
  const struct pen_adamw_tensor &t;
  sgd_factors s;
  template <int N>
  __device__ inline void at(int64_t i) const;
};

template <int N>
__device__ inline void sgd_update::at(int64_t i) const {
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
    sgd(const update_list list, const struct pen_adamw *settings) {
  int64_t run;
  const struct pen_adamw_tensor tensor = list.own(&run);
  each_element(tensor, run, sgd_update{tensor, sgd_factors_of(settings, tensor)});
}

} /* namespace */

void pen_cuda_sgd_step(const struct pen_adamw_tensor *tensors, size_t tensor_count,
                       const struct pen_adamw *settings, void *stream) {
  each_list(tensors, tensor_count, [&](const update_list &list) {
    PEN_LAUNCH(sgd, dim3(list.blocks()), dim3(THREADS), 0, stream, list, settings);
  });
}
