/* narrow.cu: pen_f32_to_bf16(): f32 to bf16: copies of weights, biases of products over bf16.
 * Launch: element-wise (device.cuh). Moves 6 bytes an element. */
#include "kernels/cuda/to_bf16.cuh"

namespace {

struct narrow {
  const float *from;
  bf16 *to;
  template <int N>
  __device__ void run(int64_t i) const {
    store_narrow(to + i, load<N>(from + i));
  }
};

} /* namespace */

void pen_cuda_f32_to_bf16(uint16_t *to, const float *from, size_t count, void *stream) {
  const narrow op = {from, to};
  launch_each<float>(op, (int64_t)count, stream);
}
