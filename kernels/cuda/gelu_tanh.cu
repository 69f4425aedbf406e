/* gelu_tanh.cu: GELU_TANH and GELU_TANH_DX (Hendrycks and Gimpel 2016; GPT-2's gelu_new): y = x s, dx = dy (s + x s (1 - s) 2u'), with
 * s = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). Past 16 the gate is 0 or 1 to the last bit, and x^3 never overflows. dx may lie on x.
 * Launch: element-wise (device.cuh). Moves an element twice forward, three times backward. */
#include "kernels/cuda/device.cuh"

namespace {

struct gate {
  float open, slope; /* sigmoid(2u), (2u)' */
};

/* A NaN comes through: neither comparison holds. */
__device__ inline gate gate_of(float x) {
  x = x > 16.0f ? 16.0f : x < -16.0f ? -16.0f : x;
  const float square = x * x;
  const float twice = x * fmaf(square, 0.0713548163f, 1.5957691216f);
  return {1.0f / (1.0f + expf(-twice)), fmaf(square, 0.2140644490f, 1.5957691216f)};
}

template <class T> struct gelu_tanh {
  const T *x;
  T *y;
  template <int N> __device__ void run(int64_t i) const {
    lanes<N> a = load<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; k++)
      a.v[k] *= gate_of(a.v[k]).open;
    store(y + i, a);
  }
};

template <class T> struct gelu_tanh_dx {
  const T *dy, *x;
  T *dx;
  template <int N> __device__ void run(int64_t i) const {
    const lanes<N> d = load<N>(dy + i);
    lanes<N> a = load<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const gate g = gate_of(a.v[k]);
      a.v[k] = d.v[k] * fmaf(a.v[k] * g.open, (1.0f - g.open) * g.slope, g.open);
    }
    store(dx + i, a);
  }
};

template <class T> void gelu_tanh_of(const struct pen_call *call) {
  const gelu_tanh<T> op = {(const T *)call->operand[0], (T *)call->operand[1]};
  launch_each<T>(op, call->dim[0], call->stream);
}

template <class T> void gelu_tanh_dx_of(const struct pen_call *call) {
  const gelu_tanh_dx<T> op = {(const T *)call->operand[0], (const T *)call->operand[1], (T *)call->operand[2]};
  launch_each<T>(op, call->dim[0], call->stream);
}

} /* namespace */

PEN_CUDA_BOTH(gelu_tanh)
PEN_CUDA_BOTH(gelu_tanh_dx)
