/* swiglu.cu: SWIGLU and SWIGLU_DX (Shazeer 2020). With s = sigmoid(gate):
 *     y = gate s up,   dup = dy gate s,   dgate = dy up s (1 + gate (1 - s)).
 * dgate may lie on gate, dup on up.
 * Launch: element-wise (device.cuh). Moves 12 bytes an element forward, 20 backward. */
#include "kernels/cuda/device.cuh"

namespace {

/* e^-x overflows to infinity for x below -88, and gives the right 0. */
__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

struct swiglu {
  const float *gate, *up;
  float *y;
  template <int N> __device__ void run(int64_t i) const {
    lanes<N> g = load<N>(gate + i);
    const lanes<N> u = load<N>(up + i);
#pragma unroll
    for (int k = 0; k < N; k++)
      g.v[k] = g.v[k] * sigmoid(g.v[k]) * u.v[k];
    store(y + i, g);
  }
};

struct swiglu_dx {
  const float *dy, *gate, *up;
  float *dgate, *dup;
  template <int N> __device__ void run(int64_t i) const {
    const lanes<N> d = load<N>(dy + i);
    lanes<N> g = load<N>(gate + i), u = load<N>(up + i);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const float s = sigmoid(g.v[k]), ds = d.v[k] * s, x = g.v[k];
      g.v[k] = ds * u.v[k] * (1.0f + x * (1.0f - s));
      u.v[k] = ds * x;
    }
    store(dgate + i, g);
    store(dup + i, u);
  }
};

} /* namespace */

void pen_cuda_swiglu(const struct pen_call *call) {
  const swiglu op = {(const float *)call->operand[0], (const float *)call->operand[1], (float *)call->operand[2]};
  launch_each(op, call->dim[0], call->stream);
}

void pen_cuda_swiglu_dx(const struct pen_call *call) {
  const swiglu_dx op = {(const float *)call->operand[0], (const float *)call->operand[1], (const float *)call->operand[2],
                        (float *)call->operand[3], (float *)call->operand[4]};
  launch_each(op, call->dim[0], call->stream);
}
