/* add.cu: ADD: y = x + z; y may be x. Launch: element-wise (device.cuh). Traffic: an element three
 * times. */
#include "kernels/cuda/device.cuh"

namespace {

template <class T>
struct add {
  const T *x, *z;
  T *y;
  template <int N>
  __device__ void run(int64_t i) const {
    lanes<N> a = load<N>(x + i);
    const lanes<N> b = load<N>(z + i);
#pragma unroll
    for (int k = 0; k < N; k++) a.v[k] += b.v[k];
    store(y + i, a);
  }
};

template <class T>
void add_of(const struct pen_call *call) {
  const add<T> op = {(const T *)call->operand[0], (const T *)call->operand[1],
                     (T *)call->operand[2]};
  launch_each<T>(op, call->dim[0], call->stream);
}

} /* namespace */

PEN_CUDA_BOTH(add)
