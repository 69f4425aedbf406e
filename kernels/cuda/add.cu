/* add.cu: ADD: y = x + z; y may lie on x.
 * Launch: element-wise (device.cuh). Moves 12 bytes an element. */
#include "kernels/cuda/device.cuh"

namespace {

struct add {
  const float *x, *z;
  float *y;
  template <int N> __device__ void run(int64_t i) const {
    lanes<N> a = load<N>(x + i);
    const lanes<N> b = load<N>(z + i);
#pragma unroll
    for (int k = 0; k < N; k++)
      a.v[k] += b.v[k];
    store(y + i, a);
  }
};

} /* namespace */

void pen_cuda_add(const struct pen_call *call) {
  const add op = {(const float *)call->operand[0], (const float *)call->operand[1], (float *)call->operand[2]};
  launch_each(op, call->dim[0], call->stream);
}
