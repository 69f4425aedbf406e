/* sum_loss.cu: SUM_LOSS: loss = sum of x in f64 in rising order, dx = scale; dx may lie on x.
 * Launch: one block that adds, then element-wise (device.cuh). For the mlp family of tests, so not made fast. */
#include "kernels/cuda/serial_sum.cuh"

namespace {

struct fill {
  float *dx, value;
  template <int N> __device__ void run(int64_t i) const {
    lanes<N> a;
#pragma unroll
    for (int k = 0; k < N; k++)
      a.v[k] = value;
    store(dx + i, a);
  }
};

} /* namespace */

void pen_cuda_sum_loss(const struct pen_call *call) {
  const int64_t count = call->dim[0] * call->dim[1];
  PEN_LAUNCH(serial_sum<float>, dim3(1), dim3(THREADS), 0, call->stream, (double *)call->operand[1], (const float *)call->operand[0],
             count);
  const fill op = {(float *)call->operand[2], (float)call->real[0]};
  if (op.dx)
    launch_each(op, count, call->stream);
}
