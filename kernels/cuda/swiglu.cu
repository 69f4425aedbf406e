/* swiglu.cu: SWIGLU, SWIGLU_DX, and the same of rows of gate and up, SWIGLU_FUSED (Shazeer 2020).
 * With s = sigmoid(gate): y = gate s up,   dup = dy gate s,   dgate = dy up s (1 + gate (1 - s)).
 * dgate may be gate, dup may be up. Forward it is a linear unit of gated.cuh; backward dy s is
 * computed first, which rounds otherwise than linear_unit_dx. Launch: gated.cuh.
 * Traffic: an element three times forward, five times backward. */
#include "kernels/cuda/exponential.cuh"
#include "kernels/cuda/gated.cuh"

namespace {

template <class T>
struct sigmoid_gate {
  __device__ static float gate(float x) { return sigmoid<T>(x); }
};

template <class T>
struct swiglu_dx {
  const T *dy, *gate, *up;
  T *dgate, *dup;
  template <int N>
  __device__ void run(int64_t i, int64_t j) const {
    const lanes<N> d = load<N>(dy + i);
    lanes<N> g = load<N>(gate + j), u = load<N>(up + j);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const float s = sigmoid<T>(g.v[k]), ds = d.v[k] * s, x = g.v[k];
      g.v[k] = ds * u.v[k] * (1.0f + x * (1.0f - s));
      u.v[k] = ds * x;
    }
    store(dgate + j, g);
    store(dup + j, u);
  }
  template <int N>
  __device__ void run(int64_t i) const {
    run<N>(i, i);
  }
};

template <class T>
void swiglu_of(const struct pen_call *call) {
  unit_each<sigmoid_gate<T>, T>(call);
}

template <class T>
void swiglu_dx_of(const struct pen_call *call) {
  const swiglu_dx<T> op = {(const T *)call->operand[0], (const T *)call->operand[1],
                           (const T *)call->operand[2], (T *)call->operand[3],
                           (T *)call->operand[4]};
  launch_each<T>(op, call->dim[0], call->stream);
}

template <class T>
void swiglu_fused_of(const struct pen_call *call) {
  unit_rows<sigmoid_gate<T>, T>(call);
}

template <class T>
void swiglu_fused_dx_of(const struct pen_call *call) {
  unit_rows_dx<swiglu_dx<T>, T>(call);
}

} /* namespace */

PEN_CUDA_BOTH(swiglu)
PEN_CUDA_BOTH(swiglu_dx)
PEN_CUDA_BOTH(swiglu_fused)
PEN_CUDA_BOTH(swiglu_fused_dx)
