/* gelu_tanh.cu: GELU_TANH, GELU_TANH_DX, and with a second factor GEGLU, GEGLU_DX, GEGLU_FUSED
 * (Hendrycks and Gimpel 2016; GPT-2's gelu_new): y = x s, dx = dy (s + x s (1 - s) 2u'), with s =
 * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). Beyond 16 the gate is exactly 0 or 1; the limit
 * keeps x^3 finite. Launch: gated.cuh.
 *
 * Why it is not an epilogue of the previous product (cuBLASLt's GELU_AUX_BIAS, and DGELU after
 * AFFINE_DX), unlike the bias (product.c):
 *   - NVIDIA documents neither the formula (tanh or erf) nor its accuracy.
 *   - The epilogue uses the f32 sum, and stores it rounded to bf16 for the backward: y and dx would
 * use different x. Here both use the stored x, as on the CPU, against which results are checked.
 *   - The algorithm exists only for some shapes and versions of the library; without it, this
 * kernel would give other numbers for the same plan.
 *   - A plan that only evaluates would have to store what only the backward needs, or use another
 *     algorithm than training, with other bits.
 * It would save reading x once and, in the backward, writing and reading dy: 6 bytes an element, an
 * estimated 2 to 3% of a step of GPT-2-124M.
 */
#include "kernels/cuda/exponential.cuh"
#include "kernels/cuda/gated.cuh"

namespace {

template <class T>
struct tanh_gate {
  /* sigmoid(2u); *slope = (2u)'. NaN is kept: both comparisons are false. */
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

template <class T>
void geglu_of(const struct pen_call *call) {
  unit_each<tanh_gate<T>, T>(call);
}
template <class T>
void geglu_dx_of(const struct pen_call *call) {
  unit_each_dx<tanh_gate<T>, T>(call);
}

template <class T>
void geglu_fused_of(const struct pen_call *call) {
  unit_rows<tanh_gate<T>, T>(call);
}
template <class T>
void geglu_fused_dx_of(const struct pen_call *call) {
  unit_rows_dx<linear_unit_dx<tanh_gate<T>, T>, T>(call);
}

} /* namespace */

PEN_CUDA_BOTH(gelu_tanh)
PEN_CUDA_BOTH(gelu_tanh_dx)
PEN_CUDA_BOTH(geglu)
PEN_CUDA_BOTH(geglu_dx)
PEN_CUDA_BOTH(geglu_fused)
PEN_CUDA_BOTH(geglu_fused_dx)
