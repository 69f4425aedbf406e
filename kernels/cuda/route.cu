/* route.cu: ROUTE and ROUTE_DX. Launch: a warp for each row, whose scores are in shared memory.
 * Sums: a lane adds every 32nd in rising order, then warp_sum; over choices they rise. A route that
 * is no number of an expert makes the row's gradient NaN. */
#include <math.h>

#include "kernels/cuda/device.cuh"

namespace {

enum { ROWS = THREADS / WARP /* of a block */ };

/* score[i] = e^(x[i] - the greatest) over their sum; for all lanes. */
__device__ inline void softmax(float *score, const float *x, int count) {
  const int lane = (int)threadIdx.x % WARP;
  float most = x[0], sum = 0;
  for (int i = lane; i < count; i += WARP) most = fmaxf(most, x[i]);
  most = warp_maximum(most);
  for (int i = lane; i < count; i += WARP) {
    score[i] = expf(x[i] - most);
    sum += score[i];
  }
  sum = warp_sum(sum);
  for (int i = lane; i < count; i += WARP) score[i] = score[i] / sum;
  __syncwarp();
}

/* Whether a score comes before another that has a lower number: what is no number is least. */
__device__ inline bool is_better(float score, float best) {
  return score > best || (isnan(best) && !isnan(score));
}

/* The number of the best of those that no lane has taken, in all lanes. Bit i of `taken` is of the
 * lane's i-th. */
__device__ inline int choose_next(const float *score, uint32_t taken, int count) {
  const int lane = (int)threadIdx.x % WARP;
  int best = count;
  for (int i = lane, bit = 0; i < count; i += WARP, bit++)
    if (!(taken >> bit & 1) && (best == count || is_better(score[i], score[best]))) best = i;
#pragma unroll
  for (int apart = WARP / 2; apart; apart /= 2) {
    const int other = __shfl_xor_sync(0xffffffffu, best, apart);
    const int low = other < best ? other : best, high = other < best ? best : other;
    best = high < count && is_better(score[high], score[low]) ? high : low;
  }
  return best;
}

__global__ void __launch_bounds__(THREADS)
    choose(int32_t *expert, float *weight, const float *logits, int64_t rows, int experts,
           int choices, bool normalizes) {
  PEN_SHARED(memory);
  const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
  const int64_t row = (int64_t)blockIdx.x * ROWS + warp;
  if (row >= rows) return; /* uniform in a warp */
  float *const score = (float *)memory + warp * experts, sum = 0;
  uint32_t taken = 0;
  softmax(score, logits + row * experts, experts);
  for (int c = 0; c < choices; c++) {
    const int next = choose_next(score, taken, experts);
    if (next % WARP == lane) taken |= 1u << next / WARP;
    if (next % WARP == lane) sum += score[next];
  }
  sum = warp_sum(sum);
  for (int base = 0, bit = 0, c = 0; base < experts; base += WARP, bit++) {
    const unsigned chosen = __ballot_sync(0xffffffffu, taken >> bit & 1);
    const int64_t at = row * choices + c + __popc(chosen & ((1u << lane) - 1));
    if (taken >> bit & 1) {
      expert[at] = base + lane;
      weight[at] = normalizes ? score[base + lane] / sum : score[base + lane];
    }
    c += __popc(chosen);
  }
}

/* See kernels/cpu/vector/router.c. */
__global__ void __launch_bounds__(THREADS)
    differentiate(float *dlogits, const float *dweight, const float *logits, const int32_t *expert,
                  int64_t rows, int experts, int choices, bool normalizes) {
  PEN_SHARED(memory);
  const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
  const int64_t row = (int64_t)blockIdx.x * ROWS + warp;
  if (row >= rows) return; /* uniform in a warp */
  float *const score = (float *)memory + warp * experts, sum = 0, mean = 0, pull = 0;
  dweight += row * choices, expert += row * choices, dlogits += row * experts;
  bool damaged = false;
  for (int c = 0; c < choices; c++) damaged |= expert[c] < 0 || expert[c] >= experts;
  for (int i = lane; i < experts && damaged; i += WARP) dlogits[i] = NAN;
  if (damaged) return; /* uniform in a warp */
  softmax(score, logits + row * experts, experts);
  for (int c = 0; c < choices; c++) {
    sum += score[expert[c]];
    mean += dweight[c] * score[expert[c]];
  }
  const float scale = normalizes ? 1.0f / sum : 1.0f, offset = normalizes ? mean / sum : 0.0f;
  for (int c = 0; c < choices; c++) pull += (dweight[c] - offset) * scale * score[expert[c]];
  for (int i = lane; i < experts; i += WARP) dlogits[i] = score[i] * -pull;
  for (int c = 0; c < choices; c++)
    if (expert[c] % WARP == lane)
      dlogits[expert[c]] = score[expert[c]] * ((dweight[c] - offset) * scale - pull);
}

} /* namespace */

void pen_cuda_route(const struct pen_call *call) {
  const int64_t rows = call->dim[0], experts = call->dim[1];
  PEN_LAUNCH(choose, dim3((unsigned)ceiling(rows, ROWS)), dim3(THREADS),
             (size_t)experts * ROWS * sizeof(float), call->stream, (int32_t *)call->operand[1],
             (float *)call->operand[2], (const float *)call->operand[0], rows, (int)experts,
             (int)call->dim[2], call->dim[3] != 0);
}

void pen_cuda_route_dx(const struct pen_call *call) {
  const int64_t rows = call->dim[0], experts = call->dim[1];
  PEN_LAUNCH(differentiate, dim3((unsigned)ceiling(rows, ROWS)), dim3(THREADS),
             (size_t)experts * ROWS * sizeof(float), call->stream, (float *)call->operand[3],
             (const float *)call->operand[0], (const float *)call->operand[1],
             (const int32_t *)call->operand[2], rows, (int)experts, (int)call->dim[2],
             call->dim[3] != 0);
}
