/* to_bf16.cu: pen_f32_to_bf16(), for bf16 copies of weights and biases of bf16 products; TO_BF16,
 * TO_F32. Launch: element-wise (device.cuh). Traffic: 6 bytes an element. */
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

struct to_f32 {
  const bf16 *from;
  float *to;
  template <int N>
  __device__ void run(int64_t i) const {
    store(to + i, load<N>(from + i));
  }
};

} /* namespace */

void pen_cuda_f32_to_bf16(uint16_t *to, const float *from, size_t count, void *stream) {
  const to_bf16 op = {from, to};
  launch_each<float>(op, (int64_t)count, stream);
}

void pen_cuda_to_bf16(const struct pen_call *call) {
  pen_cuda_f32_to_bf16((uint16_t *)call->operand[1], (const float *)call->operand[0],
                       (size_t)call->dim[0], call->stream);
}

void pen_cuda_to_f32(const struct pen_call *call) {
  const to_f32 op = {(const bf16 *)call->operand[0], (float *)call->operand[1]};
  launch_each<bf16>(op, call->dim[0], call->stream);
}
