/* adamw.cu: pen_adamw_step(): AdamW (Loshchilov and Hutter 2019) over f32 master weights, with the
 * bits of a CPU that fuses multiply-adds. The settings are in device memory, so that a captured
 * step reads new ones at each replay; a scale of NaN skips the step. With a bf16 copy, the new
 * parameters are also rounded into it, with the bits of pen_f32_to_bf16(). Launch: at most 4096
 * blocks, each over runs of 1024 elements. Traffic: 32 bytes an element, 34 with a copy.
 */
#include "kernels/cuda/to_bf16.cuh"

namespace {

const int64_t BLOCKS_MAX = 4096;

/* What is the same for all elements, computed once in f64 and rounded. */
struct factors {
  float scale, beta1, rest1, beta2, rest2, keep, rate, correction, epsilon;
};

__device__ inline factors factors_of(const struct pen_adamw *s, double weight_decay) {
  return {(float)s->gradient_scale,
          (float)s->beta1,
          (float)(1 - s->beta1),
          (float)s->beta2,
          (float)(1 - s->beta2),
          (float)__dadd_rn(1, -__dmul_rn(s->learning_rate, weight_decay)),
          (float)(-s->learning_rate / s->correction1),
          (float)(1 / s->correction2),
          (float)s->epsilon};
}

struct adamw_tensors {
  float *parameter, *gradient, *exp_avg, *exp_avg_sq;
  bf16 *copy; /* may be null */
  template <int N>
  __device__ void run(int64_t i, const factors &s) const {
    lanes<N> p = load<N>(parameter + i), m = load<N>(exp_avg + i), v = load<N>(exp_avg_sq + i);
    const lanes<N> gradients = load<N>(gradient + i);
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
    store(parameter + i, p);
    if (copy) store_narrow(copy + i, p);
    store(exp_avg + i, m);
    store(exp_avg_sq + i, v);
    store(gradient + i, lanes<N>{});
  }
};

__global__ void __launch_bounds__(THREADS)
    adamw(adamw_tensors op, int64_t count, const struct pen_adamw *settings, double weight_decay) {
  __shared__ factors shared;
  if (threadIdx.x == 0) shared = factors_of(settings, weight_decay);
  __syncthreads();
  const factors s = shared;
  const bool skips = isnan(s.scale);
  for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 4; i < count;
       i += (int64_t)gridDim.x * THREADS * 4) {
    if (skips)
      for (int64_t k = i; k < count && k < i + 4; k++) op.gradient[k] = 0;
    else if (i + 4 <= count)
      op.run<4>(i, s);
    else
      for (int64_t k = i; k < count; k++) op.run<1>(k, s);
  }
}

} /* namespace */

void pen_cuda_adamw_step(float *parameter, float *gradient, float *exp_avg, float *exp_avg_sq,
                         uint16_t *copy, size_t count, const struct pen_adamw *settings,
                         double weight_decay, void *stream) {
  if (count == 0) return;
  const int64_t blocks = ceiling((int64_t)count, 4 * THREADS);
  const adamw_tensors op = {parameter, gradient, exp_avg, exp_avg_sq, copy};
  PEN_LAUNCH(adamw, dim3((unsigned)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX)), dim3(THREADS), 0,
             stream, op, (int64_t)count, settings, weight_decay);
}
