/* scale.cu: SCALE and SCALE_DX: y = factor x; y may lie on x.
 * Launch: element-wise (device.cuh). Moves 8 bytes an element. */
#include "kernels/cuda/device.cuh"

namespace {

struct scale {
  const float *x;
  float *y, factor;
  template <int N> __device__ void run(int64_t i) const {
    lanes<N> a = load<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; k++)
      a.v[k] *= factor;
    store(y + i, a);
  }
};

} /* namespace */

void pen_cuda_scale(const struct pen_call *call) {
  const scale op = {(const float *)call->operand[0], (float *)call->operand[1], (float)call->real[0]};
  launch_each(op, call->dim[0], call->stream);
}
