/* gradient_norms.cu: pen_sum_squares() and pen_max_abs() of many tensors, with the bits of the CPU.
 *
 * Squares: f64 over blocks of PEN_NORM_BLOCK elements; in each, element i is added to sum i mod 16,
 * then the upper half is added to the lower; the sums of blocks in rising order. A square of an f32
 * is exact in f64, so that a fused multiply-add has the same bits. Magnitudes: without the sign
 * bit, floats are ordered as their bits, and NaN is above all: compares integers, and any order
 * gives the same bits.
 *
 * Launch, for as many tensors as fit into the arguments: 16 threads for each block of elements;
 * then a thread block for each tensor, over the results of its blocks. Workspace: an f64 for each
 * block of elements. */
#include "kernels/cuda/serial_sum.cuh"
#include "kernels/cuda/tensor_list.cuh"

namespace {

enum { LANES = 16 /* threads for a block of elements */ };

struct norm_tensor {
  const float *x;
  void *part; /* [blocks] */
  int64_t count;
  uint32_t blocks, index;
};

struct squares {
  typedef double value;
  static __device__ value with(value sum, float x) { return sum + (double)x * (double)x; }
  static __device__ value joined(value low, value high) { return low + high; }
  static __device__ double total(const value *part, int64_t blocks) {
    return serial_total(part, blocks);
  }
};

struct magnitudes {
  typedef uint32_t value;
  static __device__ value with(value most, float x) {
    return joined(most, __float_as_uint(x) & 0x7fffffffu);
  }
  static __device__ value joined(value a, value b) { return a > b ? a : b; }
  static __device__ double total(const value *part, int64_t blocks) {
    __shared__ value of_thread[THREADS];
    value most = 0;
    for (int64_t i = threadIdx.x; i < blocks; i += THREADS) most = joined(most, part[i]);
    of_thread[threadIdx.x] = most;
    __syncthreads();
    for (int i = 0; i < THREADS && threadIdx.x == 0; i++) most = joined(most, of_thread[i]);
    return (double)__uint_as_float(most);
  }
};

template <class NORM>
__global__ void __launch_bounds__(THREADS) norm_of_blocks(const tensor_list<norm_tensor> list) {
  int64_t run;
  const norm_tensor &own = list.own(&run);
  const int lane = (int)threadIdx.x % LANES;
  const int64_t block = run * (THREADS / LANES) + threadIdx.x / LANES;
  const int64_t whole = PEN_NORM_BLOCK, begin = block * whole;
  const int64_t left = own.count - begin < whole ? own.count - begin : whole; /* below 1: none */
  const float *x = own.x + begin;
  typename NORM::value norm = 0;
#pragma unroll 8
  for (int64_t i = lane; i < left; i += LANES) norm = NORM::with(norm, x[i]);
#pragma unroll
  for (int half = LANES / 2; half; half /= 2)
    norm = NORM::joined(norm, __shfl_down_sync(0xffffffffu, norm, (unsigned)half, LANES));
  if (lane == 0 && left > 0) ((typename NORM::value *)own.part)[block] = norm;
}

template <class NORM>
__global__ void __launch_bounds__(THREADS)
    norm_of_tensors(const tensor_list<norm_tensor> list, double *norms) {
  const norm_tensor &own = list.tensor[blockIdx.x];
  const double norm = NORM::total((const typename NORM::value *)own.part, own.blocks);
  if (threadIdx.x == 0) norms[own.index] = norm;
}

template <class NORM>
void measure(double *norms, const struct pen_norm_tensor *tensors, size_t tensor_count,
             void *workspace, void *stream) {
  double *part = (double *)workspace;
  tensor_list<norm_tensor> list = {};
  for (size_t i = 0; i < tensor_count; i++) {
    const int64_t count = (int64_t)tensors[i].count, blocks = ceiling(count, PEN_NORM_BLOCK);
    list.add({tensors[i].x, part, count, (uint32_t)blocks, (uint32_t)tensors[i].index},
             ceiling(blocks, THREADS / LANES));
    part += blocks;
    if (!list.is_full() && i + 1 < tensor_count) continue;
    if (list.blocks() > 0)
      PEN_LAUNCH(norm_of_blocks<NORM>, dim3(list.blocks()), dim3(THREADS), 0, stream, list);
    PEN_LAUNCH(norm_of_tensors<NORM>, dim3((unsigned)list.count), dim3(THREADS), 0, stream, list,
               norms);
    list.count = 0;
  }
}

} /* namespace */

void pen_cuda_sum_squares(double *norms, const struct pen_norm_tensor *tensors, size_t tensor_count,
                          void *workspace, void *stream) {
  measure<squares>(norms, tensors, tensor_count, workspace, stream);
}

void pen_cuda_max_abs(double *norms, const struct pen_norm_tensor *tensors, size_t tensor_count,
                      void *workspace, void *stream) {
  measure<magnitudes>(norms, tensors, tensor_count, workspace, stream);
}
