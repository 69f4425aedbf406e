/* gelu.cu: GELU and GELU_DX, exact (Hendrycks and Gimpel 2016): y = x Phi(x), dx = dy (Phi(x) + x
 * phi(x)). Phi(x) = erfc(-x/sqrt 2)/2; erfc instead of erf keeps the precision of the left tail.
 * Launch: gated.cuh. */
#include "kernels/cuda/gated.cuh"

namespace {

struct normal {
  __device__ static float gate(float x) { return 0.5f * erfcf(x * -0.707106781f); }
  __device__ static float slope(float x) {
    const float density = 0.398942280f * expf(-0.5f * x * x);
    return gate(x) + x * density;
  }
};

template <class T>
void gelu_of(const struct pen_call *call) {
  gate_each<normal, T>(call);
}
template <class T>
void gelu_dx_of(const struct pen_call *call) {
  gate_each_dx<normal, T>(call);
}

} /* namespace */

PEN_CUDA_BOTH(gelu)
PEN_CUDA_BOTH(gelu_dx)
