/* sum_arrays.cu: pen_sum_arrays(): y = x[0] + x[1] + ..., for each element in that order, for
 * gradients of replicas. Arrays may be in the memory of other GPUs. The addresses are launch
 * arguments. Launch: element-wise (device.cuh). Traffic: 4 bytes an element for each array, and 4.
 */
#include "kernels/cuda/device.cuh"

namespace {

struct sum_arrays {
  float *y;
  int arrays;
  const float *x[PEN_DEVICE_ARRAYS_MAX];
  template <int N>
  __device__ void run(int64_t i) const {
    lanes<N> sum = load<N>(x[0] + i);
    for (int a = 1; a < arrays; a++) {
      const lanes<N> next = load<N>(x[a] + i);
#pragma unroll
      for (int k = 0; k < N; k++) sum.v[k] += next.v[k];
    }
    store(y + i, sum);
  }
};

} /* namespace */

void pen_cuda_sum_arrays(float *y, const float *const *x, size_t arrays, size_t count,
                         void *stream) {
  sum_arrays op = {y, (int)arrays, {}};
  if (arrays == 0 || arrays > PEN_DEVICE_ARRAYS_MAX) {
    pen_cuda_note_text("adding up arrays", "there are too many");
    return;
  }
  for (size_t a = 0; a < arrays; a++) op.x[a] = x[a];
  launch_each<float>(op, (int64_t)count, stream);
}
