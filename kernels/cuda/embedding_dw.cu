/* embedding_dw.cu: EMBEDDING_DW: dtable[tokens[r]] += dy[r], rows in rising order, without atomics
 * and with the bits of the CPU. The table begins with the row of token
 * `first`; rows with tokens that it does not have, or with the padding token, are left out.
 *
 * A block has a row and a run of columns. If an earlier row has the same token, the block returns.
 * Otherwise it scans the rows from its own on, a block's width at a time, lists those with the
 * token in rising order, and adds them. Launch: rows x runs of 256 times the columns of 16 bytes
 * (256 columns if rows are not multiples of 16 bytes). Reads each token rows/2 times at worst, from
 * the second-level cache: 1 GB for 16 Ki rows; tokens of text repeat, and most blocks return after
 * the first scan.
 */
#include "kernels/cuda/device.cuh"

namespace {

/* Does a row before `row` have the token? The same result in all threads. */
__device__ inline bool seen_before(const int32_t *tokens, int row, int token) {
  for (int base = 0; base < row; base += 4 * THREADS) {
    bool found = false;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int other = base + k * THREADS + (int)threadIdx.x;
      found |= other < row && tokens[other] == token;
    }
    if (__syncthreads_or(found)) return true;
  }
  return false;
}

/* Lists the rows of [base, base + THREADS) with the token, rising; returns their number. */
__device__ inline int list_rows(int *list, const int32_t *tokens, int rows, int base, int token) {
  __shared__ int of_warp[THREADS / WARP];
  const int row = base + (int)threadIdx.x, warp = (int)threadIdx.x / WARP,
            lane = (int)threadIdx.x % WARP;
  const bool match = row < rows && tokens[row] == token;
  const unsigned matches = __ballot_sync(0xffffffffu, match);
  if (lane == 0) of_warp[warp] = __popc(matches);
  __syncthreads();
  int before = 0, all = 0;
#pragma unroll
  for (int w = 0; w < THREADS / WARP; w++) {
    before += w < warp ? of_warp[w] : 0;
    all += of_warp[w];
  }
  if (match) list[before + __popc(matches & ((1u << lane) - 1))] = row;
  __syncthreads();
  return all;
}

template <class T, int N>
__global__ void __launch_bounds__(THREADS)
    gather_rows(float *dtable, const T *dy, const int32_t *tokens, int rows, int width, int vocab,
                int first, int padding) {
  __shared__ int list[THREADS];
  const int owner = (int)blockIdx.x, token = tokens[owner], place = token - first;
  if (place < 0 || place >= vocab || token + 1 == padding || seen_before(tokens, owner, token))
    return;
  const int column = ((int)blockIdx.y * THREADS + (int)threadIdx.x) * N;
  const bool works = column < width;
  float *to = dtable + (int64_t)place * width + column;
  lanes<N> sum = {};
  if (works) sum = load<N>(to);
  for (int base = owner; base < rows; base += THREADS) {
    const int count = list_rows(list, tokens, rows, base, token);
#pragma unroll 4
    for (int m = 0; m < count; m++) {
      if (!works) continue;
      const lanes<N> d = load<N>(dy + (int64_t)list[m] * width + column);
#pragma unroll
      for (int k = 0; k < N; k++) sum.v[k] += d.v[k];
    }
    __syncthreads(); /* the list is overwritten next */
  }
  if (works) store(to, sum);
}

template <class T>
void embedding_dw_of(const struct pen_call *call) {
  const int rows = (int)call->dim[0], width = (int)call->dim[1], vocab = (int)call->dim[2];
  const dim3 grid((unsigned)rows,
                  (unsigned)ceiling(width, is_wide<T>(width) ? WIDE<T> * THREADS : THREADS));
  const auto kernel = is_wide<T>(width) ? gather_rows<T, WIDE<T>> : gather_rows<T, 1>;
  PEN_LAUNCH(kernel, grid, dim3(THREADS), 0, call->stream, (float *)call->operand[2],
             (const T *)call->operand[0], (const int32_t *)call->operand[1], rows, width, vocab,
             (int)call->dim[3], (int)call->dim[4]);
}

} /* namespace */

PEN_CUDA_BOTH(embedding_dw)
