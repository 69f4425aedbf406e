/* accumulate.cu: ACCUMULATE: sum += x. Launch: element-wise (device.cuh). Traffic: 12 bytes an
 * element. */
#include "kernels/cuda/device.cuh"

namespace {

struct accumulate {
  const float *x;
  float *sum;
  template <int N>
  __device__ void run(int64_t i) const {
    lanes<N> s = load<N>(sum + i);
    const lanes<N> a = load<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; k++) s.v[k] += a.v[k];
    store(sum + i, s);
  }
};

} /* namespace */

void pen_cuda_accumulate(const struct pen_call *call) {
  const accumulate op = {(const float *)call->operand[0], (float *)call->operand[1]};
  launch_each<float>(op, call->dim[0], call->stream);
}
