/* slice_sequence.cu: SLICE_SEQUENCE: y[b,t] = x[b,first+t] for t below `run`, in i32. Launch:
 * element-wise (device.cuh). Traffic: an element twice. */
#include "kernels/cuda/device.cuh"

namespace {

struct copy_run {
  int32_t *y;
  const int32_t *x;
  int64_t sequence, of_run, first;
  template <int N>
  __device__ void run(int64_t i) const {
#pragma unroll
    for (int64_t k = i; k < i + N; k++) y[k] = x[k / of_run * sequence + first + k % of_run];
  }
};

} /* namespace */

void pen_cuda_slice_sequence(const struct pen_call *call) {
  const copy_run op = {(int32_t *)call->operand[1], (const int32_t *)call->operand[0], call->dim[1],
                       call->dim[2], call->dim[3]};
  launch_each<int32_t>(op, call->dim[0] * call->dim[2], call->stream);
}
