/* sum_loss.cu: SUM_LOSS: loss = sum of x in f64 in rising order, dx = scale share; dx may be x.
 * Also the sum of a few f64, for HEAD_LOSS, and ADD_LOSS, a thread. Launch: one block that adds,
 * then element-wise (device.cuh). */
#include "kernels/cuda/serial_sum.cuh"

namespace {

template <class T>
struct fill {
  T *dx;
  double scale;
  const double *share; /* null: 1 */
  template <int N>
  __device__ void run(int64_t i) const {
    const float value = (float)(share ? scale * *share : scale);
    lanes<N> a;
#pragma unroll
    for (int k = 0; k < N; k++) a.v[k] = value;
    store(dx + i, a);
  }
};

template <class T>
void sum_loss_of(const struct pen_call *call) {
  const int64_t count = call->dim[0] * call->dim[1];
  PEN_LAUNCH(serial_sum<T>, dim3(1), dim3(THREADS), 0, call->stream, (double *)call->operand[2],
             (const T *)call->operand[0], count);
  const fill<T> op = {(T *)call->operand[3], call->real[0], (const double *)call->operand[1]};
  if (op.dx) launch_each<T>(op, count, call->stream);
}

__global__ void add_loss(double *y, const double *loss, const double *share, const double *a) {
  const double own = __dmul_rn(*share, *loss);
  *y = a ? __dadd_rn(own, *a) : own;
}

} /* namespace */

void pen_cuda_add_loss(const struct pen_call *call) {
  PEN_LAUNCH(add_loss, dim3(1), dim3(1), 0, call->stream, (double *)call->operand[3],
             (const double *)call->operand[0], (const double *)call->operand[1],
             (const double *)call->operand[2]);
}

void pen_cuda_sum_doubles(double *sum, const double *x, size_t count, void *stream) {
  PEN_LAUNCH(serial_sum<double>, dim3(1), dim3(THREADS), 0, stream, sum, x, (int64_t)count);
}

PEN_CUDA_BOTH(sum_loss)
