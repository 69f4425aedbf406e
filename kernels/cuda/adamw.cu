/* adamw.cu: pen_adamw_step(): AdamW (Loshchilov and Hutter 2019) over f32 master weights, with the
 * bits of a CPU that fuses multiply-adds. The settings are in device memory, so that a captured
 * step reads new ones at each replay; a scale of NaN skips the step. With a bf16 copy, the new
 * parameters are also rounded into it, with the bits of pen_f32_to_bf16(). Launch: as update.cuh
 * says. Traffic: 32 bytes an element, 34 with a copy.
 */
#include "kernels/adamw_correction.h"
#include "kernels/cuda/update.cuh"

namespace {

/* What is the same for all elements, computed once in f64 and rounded. */
struct factors {
  float scale, beta1, rest1, beta2, rest2, keep, rate, correction, epsilon;
};

__device__ inline factors factors_of(const struct pen_adamw *s, const struct pen_adamw_tensor &t,
                                     const double correction[2]) {
  const double learning_rate = __dmul_rn(s->learning_rate, t.rate);
  return {(float)s->gradient_scale,
          (float)s->beta1,
          (float)(1 - s->beta1),
          (float)s->beta2,
          (float)(1 - s->beta2),
          (float)__dadd_rn(1, -__dmul_rn(learning_rate, t.weight_decay)),
          (float)(-learning_rate / correction[0]),
          (float)(1 / correction[1]),
          (float)s->epsilon};
}

/* A step that is skipped leaves the gradient zero, too. */
struct adamw_update {
  const struct pen_adamw_tensor &t;
  factors s;
  bool skips;
  template <int N>
  __device__ inline void at(int64_t i) const;
};

template <int N>
__device__ inline void adamw_update::at(int64_t i) const {
  if (skips) {
    store(t.gradient + i, lanes<N>{});
    return;
  }
  lanes<N> p = load<N>(t.parameter + i), m = load<N>(t.exp_avg + i), v = load<N>(t.exp_avg_sq + i);
  const lanes<N> gradients = load<N>(t.gradient + i);
#pragma unroll
  for (int k = 0; k < N; k++) {
    const float g = __fmul_rn(gradients.v[k], s.scale);
    const float mean = __fmaf_rn(m.v[k], s.beta1, __fmul_rn(g, s.rest1));
    const float square = __fmaf_rn(v.v[k], s.beta2, __fmul_rn(__fmul_rn(g, g), s.rest2));
    const float divisor = __fadd_rn(__fsqrt_rn(__fmul_rn(square, s.correction)), s.epsilon);
    const float value = __fmaf_rn(__fdiv_rn(mean, divisor), s.rate, __fmul_rn(p.v[k], s.keep));
    /* false: g or its square is not finite, or all terms and epsilon are 0 */
    const bool good = square < INFINITY && divisor > 0;
    p.v[k] = good ? value : p.v[k];
    m.v[k] = good ? mean : m.v[k];
    v.v[k] = good ? square : v.v[k];
  }
  store(t.parameter + i, p);
  if (t.copy) store_narrow(t.copy + i, p);
  store(t.exp_avg + i, m);
  store(t.exp_avg_sq + i, v);
  store(t.gradient + i, lanes<N>{});
}

__global__ void __launch_bounds__(THREADS)
    adamw(const update_list list, const struct pen_adamw *settings) {
  __shared__ factors shared;
  __shared__ double correction[2];
  int64_t run;
  const struct pen_adamw_tensor tensor = list.own(&run);
  if (threadIdx.x < 2)
    correction[threadIdx.x] = pen_adamw_correction(threadIdx.x ? settings->beta2 : settings->beta1,
                                                   settings->updates - tensor.lag);
  __syncthreads();
  if (threadIdx.x == 0) shared = factors_of(settings, tensor, correction);
  __syncthreads();
  const bool skips = tensor.parameter == NULL || isnan(shared.scale);
  each_element(tensor, run, adamw_update{tensor, shared, skips});
}

} /* namespace */

void pen_cuda_adamw_step(const struct pen_adamw_tensor *tensors, size_t tensor_count,
                         const struct pen_adamw *settings, void *stream) {
  each_list(tensors, tensor_count, [&](const update_list &list) {
    PEN_LAUNCH(adamw, dim3(list.blocks()), dim3(THREADS), 0, stream, list, settings);
  });
}
