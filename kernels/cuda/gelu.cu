/* gelu.cu: GELU and GELU_DX, exact (Hendrycks and Gimpel 2016): y = x Phi(x), dx = dy (Phi(x) + x phi(x)),
 * Phi(x) = erfc(-x/sqrt 2)/2: of erfc rather than erf, so that the left tail keeps its digits. dx may lie on x.
 * Launch: element-wise (device.cuh). Moves an element twice forward, three times backward. */
#include "kernels/cuda/device.cuh"

namespace {

__device__ inline float distribution(float x) { return 0.5f * erfcf(x * -0.707106781f); }

template <class T> struct gelu {
  const T *x;
  T *y;
  template <int N> __device__ void run(int64_t i) const {
    lanes<N> a = load<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; k++)
      a.v[k] *= distribution(a.v[k]);
    store(y + i, a);
  }
};

template <class T> struct gelu_dx {
  const T *dy, *x;
  T *dx;
  template <int N> __device__ void run(int64_t i) const {
    const lanes<N> d = load<N>(dy + i);
    lanes<N> a = load<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const float value = a.v[k], density = 0.398942280f * expf(-0.5f * value * value);
      a.v[k] = d.v[k] * (distribution(value) + value * density);
    }
    store(dx + i, a);
  }
};

template <class T> void gelu_of(const struct pen_call *call) {
  const gelu<T> op = {(const T *)call->operand[0], (T *)call->operand[1]};
  launch_each<T>(op, call->dim[0], call->stream);
}

template <class T> void gelu_dx_of(const struct pen_call *call) {
  const gelu_dx<T> op = {(const T *)call->operand[0], (const T *)call->operand[1], (T *)call->operand[2]};
  launch_each<T>(op, call->dim[0], call->stream);
}

} /* namespace */

PEN_CUDA_BOTH(gelu)
PEN_CUDA_BOTH(gelu_dx)
