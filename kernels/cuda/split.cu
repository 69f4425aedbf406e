/* split.cu: SPLIT and SPLIT_DX: the three parts of each row of x[rows,3,width], one tensor each, and back.
 * Launch: a thread for each four elements of x, or each element where width is not a multiple of 4. Moves 8 bytes an element. */
#include "kernels/cuda/device.cuh"

namespace {

struct parts {
  float *at[3];
};

template <int N, bool JOINS>
__global__ void __launch_bounds__(THREADS) move(float *x, parts part, int64_t count, int width) {
  const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (thread >= count)
    return;
  const int in_part = width / N;
  const int64_t row_part = thread / in_part, row = row_part / 3;
  float *other = part.at[row_part - row * 3] + row * width + (thread - row_part * in_part) * N;
  if (JOINS)
    store(x + thread * N, load<N>(other));
  else
    store(other, load<N>(x + thread * N));
}

template <bool JOINS> void launch(const struct pen_call *call, void *x, const parts &part) {
  const int width = (int)call->dim[1], n = width % 4 ? 1 : 4;
  const int64_t count = call->dim[0] * 3 * width / n;
  const dim3 grid((unsigned)ceiling(count, THREADS));
  const auto kernel = n == 4 ? move<4, JOINS> : move<1, JOINS>;
  PEN_LAUNCH(kernel, grid, dim3(THREADS), 0, call->stream, (float *)x, part, count, width);
}

} /* namespace */

void pen_cuda_split(const struct pen_call *call) {
  const parts part = {{(float *)call->operand[1], (float *)call->operand[2], (float *)call->operand[3]}};
  launch<false>(call, call->operand[0], part);
}

void pen_cuda_split_dx(const struct pen_call *call) {
  const parts part = {{(float *)call->operand[0], (float *)call->operand[1], (float *)call->operand[2]}};
  launch<true>(call, call->operand[3], part);
}
