/* to_bf16.cu: pen_f32_to_bf16(), for bf16 copies of weights and biases of bf16 products. Launch:
 * element-wise (device.cuh). Traffic: 6 bytes an element. */
#include "kernels/cuda/to_bf16.cuh"

namespace {

struct to_bf16 {
  const float *from;
  bf16 *to;
  template <int N>
  __device__ void run(int64_t i) const {
    store_narrow(to + i, load<N>(from + i));
  }
};

} /* namespace */

void pen_cuda_f32_to_bf16(uint16_t *to, const float *from, size_t count, void *stream) {
  const to_bf16 op = {from, to};
  launch_each<float>(op, (int64_t)count, stream);
}
