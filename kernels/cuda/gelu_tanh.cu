/* gelu_tanh.cu: GELU_TANH and GELU_TANH_DX (Hendrycks and Gimpel 2016; GPT-2's gelu_new): y = x s,
 * dx = dy (s + x s (1 - s) 2u'), with s = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). Past 16
 * the gate is 0 or 1 to the last bit, and x^3 never overflows. Launch: gated.cuh.
 *
 * Why it is no epilogue of the product before it (cuBLASLt's GELU_AUX_BIAS, and DGELU behind
 * AFFINE_DX), as the bias is (product.c):
 *   - NVIDIA says "GELU" and no formula: who ports it takes it for tanh here and for erf there
 * (oneAPI's SYCLomatic). Nor is an accuracy said.
 *   - The epilogue takes the f32 sum, and keeps it rounded to bf16 for backward: y would be of
 * another x than dx. Here both are of the x that is kept, as on the CPU, whose results these are
 * held against.
 *   - Whether there is such an algorithm depends on shape and version of the library; where there
 * is none, this kernel would give the same plan other numbers.
 *   - A plan that only evaluates would have to write what backward keeps, or choose another
 * algorithm than training, with other bits. It would save reading x once and, backward, writing and
 * reading dy: 6 bytes of each element, by estimate 2 to 3% of GPT-2-124M's step. */
#include "kernels/cuda/exponential.cuh"
#include "kernels/cuda/gated.cuh"

namespace {

template <class T>
struct tanh_gate {
  /* sigmoid(2u); (2u)' goes to *slope. A NaN comes through: neither comparison holds. */
  __device__ static float open(float x, float *slope) {
    x = x > 16.0f ? 16.0f : x < -16.0f ? -16.0f : x;
    const float square = x * x;
    const float twice = x * fmaf(square, 0.0713548163f, 1.5957691216f);
    *slope = fmaf(square, 0.2140644490f, 1.5957691216f);
    return sigmoid<T>(twice);
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

template <class T>
void gelu_tanh_of(const struct pen_call *call) {
  gate_each<tanh_gate<T>, T>(call);
}
template <class T>
void gelu_tanh_dx_of(const struct pen_call *call) {
  gate_each_dx<tanh_gate<T>, T>(call);
}

} /* namespace */

PEN_CUDA_BOTH(gelu_tanh)
PEN_CUDA_BOTH(gelu_tanh_dx)
