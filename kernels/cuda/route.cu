/* route.cu: ROUTE, ROUTE_DX, COUNT_CHOICES, ADD_CHOICES and ROUTER_LOSS. Launch: a warp for each
 * row, whose scores are in shared memory; ROUTER_LOSS: before it a thread for each expert of a run,
 * after it a block that adds the losses of rows. Sums: a lane adds every 32nd in rising order, then
 * warp_sum; over choices they rise. A route that is no number of an expert makes the row's gradient
 * NaN. */
#include <math.h>

#include "kernels/cuda/serial_sum.cuh"

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

/* All sigmoids of a row may be 0. Other sums stay as they are. */
__device__ inline float least_sum(bool sigmoid) { return sigmoid ? 1e-20f : 0.0f; }

/* Whether a score comes before another that has a lower number: what is no number is least. */
__device__ inline bool is_better(float score, float best) {
  return score > best || (isnan(best) && !isnan(score));
}

/* Of which kind the scores are, and what is chosen (kernels/ops.def). */
struct routing {
  int experts, choices;
  bool normalizes, sigmoid;
  int groups, best_groups;
  float scale;
  static routing of(const struct pen_call *call) {
    const int64_t *const dim = call->dim;
    return {(int)dim[1], (int)dim[2], dim[3] != 0,         dim[4] != 0,
            (int)dim[5], (int)dim[6], (float)call->real[0]};
  }
  /* Of a row: scores, and sums of groups, which are at most half as many: at most 48 KiB a block.
   */
  __host__ __device__ int floats() const { return experts + groups; }
  size_t shared_bytes() const { return (size_t)(ROWS * floats()) * sizeof(float); }
};

/* What experts, or groups, are chosen by. */
struct chosen_by {
  const float *score, *bias; /* the second may be null */
  __device__ float operator[](int i) const { return bias ? score[i] + bias[i] : score[i]; }
  __device__ chosen_by from(int i) const { return {score + i, bias ? bias + i : NULL}; }
};

__device__ inline void make_scores(const routing &of, float *score, const float *logits) {
  if (!of.sigmoid) {
    softmax(score, logits, of.experts);
    return;
  }
  for (int i = (int)threadIdx.x % WARP; i < of.experts; i += WARP)
    score[i] = 1.0f / (1.0f + expf(-logits[i]));
  __syncwarp();
}

/* The number of the best of those that no lane has taken, in all lanes. Bit i of `taken` is of the
 * lane's i-th. */
__device__ inline int choose_next(const chosen_by &score, uint32_t taken, int count) {
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

/* With the lane's bit of that number. */
__device__ inline uint32_t with_bit(uint32_t bits, int number) {
  return number % WARP == (int)threadIdx.x % WARP ? bits | 1u << number / WARP : bits;
}

/* The sum of the two greatest, by one lane. */
__device__ inline float sum_of_two(const chosen_by &score, int count) {
  int first = 0, second = -1;
  for (int i = 1; i < count; i++)
    if (is_better(score[i], score[first])) {
      second = first;
      first = i;
    } else if (second < 0 || is_better(score[i], score[second])) {
      second = i;
    }
  return score[first] + score[second];
}

/* The lane's bits of the experts of all groups but the best, by the sums of their two greatest. */
__device__ inline uint32_t barred(const routing &of, const chosen_by &choice, float *group) {
  const int lane = (int)threadIdx.x % WARP, size = of.experts / of.groups;
  uint32_t taken = 0, bars = 0;
  for (int g = lane; g < of.groups; g += WARP) group[g] = sum_of_two(choice.from(g * size), size);
  __syncwarp();
  for (int n = 0; n < of.best_groups; n++)
    taken = with_bit(taken, choose_next({group, NULL}, taken, of.groups));
  for (int g = 0; g < of.groups; g++) {
    const unsigned kept = __ballot_sync(0xffffffffu, taken >> g / WARP & 1) >> g % WARP & 1;
    for (int i = lane, bit = 0; i < of.experts && !kept; i += WARP, bit++)
      bars |= i / size == g ? 1u << bit : 0;
  }
  return bars;
}

/* 0, or no number if a logit or a bias is not finite: an expert that is not chosen hides none. */
__device__ inline float zero_if_finite(const float *logits, const float *bias, int experts) {
  float zero = 0;
  for (int i = (int)threadIdx.x % WARP; i < experts; i += WARP)
    zero += 0.0f * logits[i] + (bias ? 0.0f * bias[i] : 0.0f);
  return warp_sum(zero);
}

__global__ void __launch_bounds__(THREADS)
    choose(int32_t *expert, float *weight, const float *logits, const float *bias, int64_t rows,
           routing of) {
  PEN_SHARED(memory);
  const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, experts = of.experts;
  const int64_t row = (int64_t)blockIdx.x * ROWS + warp;
  if (row >= rows) return; /* uniform in a warp */
  float *const score = (float *)memory + warp * of.floats(), sum = 0;
  const chosen_by choice = {score, of.sigmoid ? bias : NULL};
  uint32_t taken = 0, bars = 0;
  const float zero = zero_if_finite(logits + row * experts, bias, experts);
  make_scores(of, score, logits + row * experts);
  if (of.groups > 1) bars = barred(of, choice, score + experts);
  for (int c = 0; c < of.choices; c++) {
    const int next = choose_next(choice, taken | bars, experts);
    if (next % WARP == lane) sum += score[next];
    taken = with_bit(taken, next);
  }
  sum = warp_sum(sum) + least_sum(of.sigmoid);
  for (int base = 0, bit = 0, c = 0; base < experts; base += WARP, bit++) {
    const unsigned chosen = __ballot_sync(0xffffffffu, taken >> bit & 1);
    const int64_t at = row * of.choices + c + __popc(chosen & ((1u << lane) - 1));
    if (taken >> bit & 1) {
      expert[at] = base + lane;
      weight[at] =
          (of.normalizes ? score[base + lane] / sum : score[base + lane]) * of.scale + zero;
    }
    c += __popc(chosen);
  }
}

/* See kernels/cpu/vector/router.c. */
__global__ void __launch_bounds__(THREADS)
    differentiate(float *dlogits, const float *dweight, const float *logits, const int32_t *expert,
                  const float *a, int64_t rows, routing of) {
  PEN_SHARED(memory);
  const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, experts = of.experts;
  const int64_t row = (int64_t)blockIdx.x * ROWS + warp;
  if (row >= rows) return; /* uniform in a warp */
  float *const score = (float *)memory + warp * of.floats(), sum = 0, mean = 0, pull = 0;
  dweight += row * of.choices, expert += row * of.choices, dlogits += row * experts;
  bool damaged = false;
  for (int c = 0; c < of.choices; c++) damaged |= expert[c] < 0 || expert[c] >= experts;
  for (int i = lane; i < experts && damaged; i += WARP) dlogits[i] = NAN;
  if (damaged) return; /* uniform in a warp */
  make_scores(of, score, logits + row * experts);
  for (int c = 0; c < of.choices; c++) {
    sum += score[expert[c]];
    mean += dweight[c] * score[expert[c]];
  }
  sum += least_sum(of.sigmoid);
  const float scale = (of.normalizes ? 1.0f / sum : 1.0f) * of.scale,
              offset = of.normalizes ? mean / sum : 0.0f;
  for (int c = 0; c < of.choices && !of.sigmoid; c++)
    pull += (dweight[c] - offset) * scale * score[expert[c]];
  for (int i = lane; i < experts; i += WARP) dlogits[i] = score[i] * -pull;
  for (int c = 0; c < of.choices; c++) {
    if (expert[c] % WARP != lane) continue;
    const float p = score[expert[c]], dp = (dweight[c] - offset) * scale;
    dlogits[expert[c]] = of.sigmoid ? p * (1.0f - p) * dp : p * (dp - pull);
  }
  for (int i = lane; a && i < experts; i += WARP) dlogits[i] += a[row * experts + i];
}

/* A warp for each expert. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    count(T *counts, const int32_t *expert, int64_t choices, int experts) {
  const int lane = (int)threadIdx.x % WARP;
  const int64_t own = (int64_t)blockIdx.x * ROWS + threadIdx.x / WARP;
  if (own >= experts) return; /* uniform in a warp */
  int sum = 0;
  for (int64_t i = lane; i < choices; i += WARP) sum += expert[i] == own;
  sum = warp_sum(sum);
  if (lane == 0) counts[own] += (T)sum;
}

/* ---- ROUTER_LOSS: see kernels/cpu/vector/router.c ---- */

struct router_rows {
  const float *logits;
  const int32_t *expert;
  const float *counts; /* may be null, as the next */
  float *dlogits;
  float *share;    /* [runs][experts]: f */
  double *aux, *z; /* [rows] */
  int64_t rows, run;
  int experts, choices;
  bool sigmoid;
  double aux_factor, z_factor; /* of a row */
};

__global__ void __launch_bounds__(THREADS) share_choices(router_rows l) {
  const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, run = at / l.experts;
  if (run >= l.rows / l.run) return;
  if (l.counts) {
    double sum = 0;
    for (int i = 0; i < l.experts; i++) sum += (double)l.counts[i];
    const float count = l.counts[at % l.experts];
    l.share[at] = sum <= 0 ? 1.0f : count * (float)((double)l.experts / sum);
    return;
  }
  const int32_t *const expert = l.expert + run * l.run * l.choices;
  int count = 0;
  for (int64_t i = 0; i < l.run * l.choices; i++) count += expert[i] == (int)(at % l.experts);
  l.share[at] = (float)count * (float)((double)l.experts / (double)(l.run * l.choices));
}

/* The losses of each row, before their factors, and their gradient. */
__global__ void __launch_bounds__(THREADS) row_losses(router_rows l) {
  PEN_SHARED(memory);
  const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, experts = l.experts;
  const int64_t row = (int64_t)blockIdx.x * ROWS + warp;
  if (row >= l.rows) return; /* uniform in a warp */
  float *const score = (float *)memory + warp * experts,
               *dlogits = l.dlogits ? l.dlogits + row * experts : NULL;
  const float *const logits = l.logits + row * experts, *const share =
                                                            l.share + row / l.run * experts;
  float most = logits[0], sum = 0, mean = 0;
  for (int i = lane; i < experts; i += WARP) most = fmaxf(most, logits[i]);
  most = warp_maximum(most);
  for (int i = lane; i < experts; i += WARP) sum += expf(logits[i] - most);
  const double log_sum = (double)most + log((double)warp_sum(sum));
  softmax(score, logits, experts);
  for (int i = lane; i < experts && dlogits; i += WARP)
    dlogits[i] = (float)(2 * l.z_factor * log_sum * (double)score[i]);
  sum = 0;
  for (int i = lane; i < experts; i += WARP) {
    if (l.sigmoid) score[i] = 1.0f / (1.0f + expf(-logits[i]));
    sum += score[i];
  }
  sum = warp_sum(sum) + least_sum(l.sigmoid);
  for (int i = lane; i < experts; i += WARP) {
    if (l.sigmoid) score[i] /= sum;
    mean += share[i] * score[i];
  }
  mean = warp_sum(mean);
  for (int i = lane; i < experts && dlogits; i += WARP) {
    const float s = score[i], slope = l.sigmoid ? s * (1.0f - s * sum) : s;
    dlogits[i] += (float)l.aux_factor * (share[i] - mean) * slope;
  }
  if (lane > 0) return;
  l.aux[row] = (double)mean * l.aux_factor;
  l.z[row] = log_sum * log_sum * l.z_factor;
}

} /* namespace */

void pen_cuda_route(const struct pen_call *call) {
  const routing of = routing::of(call);
  PEN_LAUNCH(choose, dim3((unsigned)ceiling(call->dim[0], ROWS)), dim3(THREADS), of.shared_bytes(),
             call->stream, (int32_t *)call->operand[2], (float *)call->operand[3],
             (const float *)call->operand[0], (const float *)call->operand[1], call->dim[0], of);
}

void pen_cuda_route_dx(const struct pen_call *call) {
  const routing of = routing::of(call);
  PEN_LAUNCH(differentiate, dim3((unsigned)ceiling(call->dim[0], ROWS)), dim3(THREADS),
             of.shared_bytes(), call->stream, (float *)call->operand[4],
             (const float *)call->operand[0], (const float *)call->operand[1],
             (const int32_t *)call->operand[2], (const float *)call->operand[3], call->dim[0], of);
}

template <typename T>
static void count_choices(const struct pen_call *call) {
  PEN_LAUNCH(count<T>, dim3((unsigned)ceiling(call->dim[1], ROWS)), dim3(THREADS), 0, call->stream,
             (T *)call->operand[1], (const int32_t *)call->operand[0], call->dim[0] * call->dim[2],
             (int)call->dim[1]);
}

void pen_cuda_count_choices(const struct pen_call *call) { count_choices<float>(call); }
void pen_cuda_add_choices(const struct pen_call *call) { count_choices<double>(call); }

void pen_cuda_router_loss(const struct pen_call *call) {
  const int64_t rows = call->dim[0], experts = call->dim[1], runs = call->dim[3];
  double *const aux = (double *)call->workspace, *const z = aux + rows;
  const router_rows l = {(const float *)call->operand[0],
                         (const int32_t *)call->operand[1],
                         (const float *)call->operand[2],
                         (float *)call->operand[5],
                         (float *)(z + rows),
                         aux,
                         z,
                         rows,
                         rows / runs,
                         (int)experts,
                         (int)call->dim[2],
                         call->dim[4] != 0,
                         call->real[0] / (double)rows,
                         call->real[1] / (double)rows};
  PEN_LAUNCH(share_choices, dim3((unsigned)ceiling(runs * experts, THREADS)), dim3(THREADS), 0,
             call->stream, l);
  PEN_LAUNCH(row_losses, dim3((unsigned)ceiling(rows, ROWS)), dim3(THREADS),
             (size_t)(ROWS * experts) * sizeof(float), call->stream, l);
  PEN_LAUNCH(serial_sum<double>, dim3(1), dim3(THREADS), 0, call->stream,
             (double *)call->operand[3], aux, rows);
  PEN_LAUNCH(serial_sum<double>, dim3(1), dim3(THREADS), 0, call->stream,
             (double *)call->operand[4], z, rows);
}
