/* scale.cu: SCALE: y = factor x; y may be x. Launch: element-wise (device.cuh).
 * Traffic: an element twice. */
#include "kernels/cuda/device.cuh"

namespace {

template <class T>
struct scale {
  const T *x;
  T *y;
  float factor;
  template <int N>
  __device__ void run(int64_t i) const {
    lanes<N> a = load<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; k++) a.v[k] *= factor;
    store(y + i, a);
  }
};

template <class T>
void scale_of(const struct pen_call *call) {
  const scale<T> op = {(const T *)call->operand[0], (T *)call->operand[1], (float)call->real[0]};
  launch_each<T>(op, call->dim[0], call->stream);
}

} /* namespace */

PEN_CUDA_BOTH(scale)
