/* sum_loss.cu: SUM_LOSS: loss = sum of x in f64 in rising order, dx = scale; dx may be x. Also the
 * sum of a few f64, for HEAD_LOSS. Launch: one block that adds, then element-wise (device.cuh).
 * Used only by the mlp family of tests, so not optimized. */
#include "kernels/cuda/serial_sum.cuh"

namespace {

template <class T>
struct fill {
  T *dx;
  float value;
  template <int N>
  __device__ void run(int64_t i) const {
    lanes<N> a;
#pragma unroll
    for (int k = 0; k < N; k++) a.v[k] = value;
    store(dx + i, a);
  }
};

template <class T>
void sum_loss_of(const struct pen_call *call) {
  const int64_t count = call->dim[0] * call->dim[1];
  PEN_LAUNCH(serial_sum<T>, dim3(1), dim3(THREADS), 0, call->stream, (double *)call->operand[1],
             (const T *)call->operand[0], count);
  const fill<T> op = {(T *)call->operand[2], (float)call->real[0]};
  if (op.dx) launch_each<T>(op, count, call->stream);
}

} /* namespace */

void pen_cuda_sum_doubles(double *sum, const double *x, size_t count, void *stream) {
  PEN_LAUNCH(serial_sum<double>, dim3(1), dim3(THREADS), 0, stream, sum, x, (int64_t)count);
}

PEN_CUDA_BOTH(sum_loss)
