/* gelu_tanh.cu: GELU_TANH and GELU_TANH_DX (Hendrycks and Gimpel 2016; GPT-2's gelu_new): y = x s, dx = dy (s + x s (1 - s) 2u'), with
 * s = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). Past 16 the gate is 0 or 1 to the last bit, and x^3 never overflows. Launch: gated.cuh. */
#include "kernels/cuda/gated.cuh"

namespace {

struct sigmoid {
  /* sigmoid(2u); (2u)' goes to *slope. A NaN comes through: neither comparison holds. */
  __device__ static float open(float x, float *slope) {
    x = x > 16.0f ? 16.0f : x < -16.0f ? -16.0f : x;
    const float square = x * x;
    const float twice = x * fmaf(square, 0.0713548163f, 1.5957691216f);
    *slope = fmaf(square, 0.2140644490f, 1.5957691216f);
    return 1.0f / (1.0f + expf(-twice));
  }
  __device__ static float gate(float x) {
    float slope;
    return open(x, &slope);
  }
  __device__ static float slope(float x) {
    float inner;
    const float s = open(x, &inner);
    return fmaf(x * s, (1.0f - s) * inner, s);
  }
};

template <class T> void gelu_tanh_of(const struct pen_call *call) { gate_each<sigmoid, T>(call); }
template <class T> void gelu_tanh_dx_of(const struct pen_call *call) { gate_each_dx<sigmoid, T>(call); }

} /* namespace */

PEN_CUDA_BOTH(gelu_tanh)
PEN_CUDA_BOTH(gelu_tanh_dx)
