/* experts.cu: EXPERTS and EXPERTS_DX. The rows of a slot are copied side by side, expert by expert,
 * and multiplied by grouped products (grouped_product.cuh). What is between two products is stored
 * in the op's dtype. Launch: products by a fixed number of blocks; a warp for each slot between
 * them. Sums: of dweight a lane adds every 32nd, then warp_sum.
 *
 * Workspace, for n = part choices slots, each part aligned to PEN_ALIGNMENT_BYTES:
 *
 *     x  [n][width]
 *     gate, up  [n][ffn]
 *     dy  [n][width], hidden  [n][ffn]: of the gradient alone
 *     first  [experts + 1], pair  [n]: the slots (slots.cuh) */
#include "kernels/cuda/exponential.cuh"
#include "kernels/cuda/grouped_product.cuh"
#include "kernels/cuda/slots.cuh"

namespace {

/* A call of EXPERTS or EXPERTS_DX, and its workspace. */
template <class T>
struct expert_call {
  slice_rows slice;
  int choices, experts, width, ffn;
  int64_t slots;
  const T *dy, *sent, *gate, *up, *down; /* dy: of the gradient, or null */
  const int32_t *expert;
  const float *weight;
  T *x, *rows_gate, *rows_up, *rows_dy, *hidden;
  slot_list list;
  void *stream;
  /* Which row of the slice a slot has; -1: the slot is of no expert. */
  __device__ int64_t row(int slot) const {
    return slot < list.first[experts] ? list.pair[slot] / choices : -1;
  }
  /* Where the weight of a slot is. */
  __device__ int64_t weight_at(int64_t slot) const {
    const int pair = list.pair[slot];
    return slice.row(pair / choices) * choices + pair % choices;
  }
};

char *place(char **at, size_t bytes) {
  char *const taken = *at;
  *at += pen_aligned(bytes);
  return taken;
}

template <class T>
expert_call<T> open_call(const struct pen_call *call, bool trains) {
  void *const *const operand = call->operand + trains;
  expert_call<T> l = {};
  l.slice = slice_of(call, 1);
  l.choices = (int)call->dim[2], l.experts = (int)call->dim[5];
  l.width = (int)call->dim[6], l.ffn = (int)call->dim[7];
  l.slots = call->dim[1] * l.choices;
  l.dy = trains ? (const T *)call->operand[0] : NULL;
  l.sent = (const T *)operand[0];
  l.expert = (const int32_t *)operand[1];
  l.weight = (const float *)operand[2];
  l.gate = (const T *)operand[3], l.up = (const T *)operand[4], l.down = (const T *)operand[5];
  const size_t of_width = (size_t)(l.slots * l.width) * sizeof(T),
               of_ffn = (size_t)(l.slots * l.ffn) * sizeof(T);
  char *at = (char *)call->workspace;
  l.x = (T *)place(&at, of_width);
  l.rows_gate = (T *)place(&at, of_ffn);
  l.rows_up = (T *)place(&at, of_ffn);
  l.rows_dy = (T *)place(&at, trains ? of_width : 0);
  l.hidden = (T *)place(&at, trains ? of_ffn : 0);
  l.list = {(int32_t *)place(&at, (size_t)(l.experts + 1) * sizeof(int32_t)), (int32_t *)at, NULL};
  l.stream = call->stream;
  launch_list(l.list, l.expert, l.slice, l.choices, l.experts, l.stream);
  return l;
}

/* gate = x gate^T, up = x up^T, of all slots. */
template <class T>
void multiply_in(const expert_call<T> &l) {
  launch_move<T>(l.x, l.sent, l.slots, l.width, l, l.stream);
  launch_slots<T, true>({l.list.first,
                         l.experts,
                         2,
                         1,
                         {l.x},
                         {l.gate, l.up},
                         {l.rows_gate, l.rows_up},
                         l.ffn,
                         l.width},
                        l.slots, l.stream);
}

/* gate = silu(gate) up times the weight. Launch: a warp for each slot. */
template <class T, int N>
__global__ void __launch_bounds__(THREADS) activate(expert_call<T> l) {
  const int64_t slot = (int64_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
  if (slot >= l.list.first[l.experts]) return; /* uniform in a warp */
  const float weight = l.weight[l.weight_at(slot)];
  T *const gate = l.rows_gate + slot * l.ffn;
  const T *const up = l.rows_up + slot * l.ffn;
  for (int j = (int)(threadIdx.x % WARP) * N; j < l.ffn; j += WARP * N) {
    lanes<N> g = load<N>(gate + j);
    const lanes<N> u = load<N>(up + j);
#pragma unroll
    for (int k = 0; k < N; k++) g.v[k] = g.v[k] * sigmoid<T>(g.v[k]) * u.v[k] * weight;
    store(gate + j, g);
  }
}

template <class T>
dim3 blocks_of_slots(const expert_call<T> &l) {
  return dim3((unsigned)ceiling(l.slots, THREADS / WARP));
}

template <class T>
void experts_of(const struct pen_call *call) {
  const expert_call<T> l = open_call<T>(call, false);
  const auto act = is_wide<T>(l.ffn) ? activate<T, WIDE<T>> : activate<T, 1>;
  multiply_in(l);
  PEN_LAUNCH(act, blocks_of_slots(l), dim3(THREADS), 0, l.stream, l);
  launch_slots<T, true>({l.list.first,
                         l.experts,
                         1,
                         1,
                         {l.rows_gate},
                         {l.down},
                         {(T *)call->operand[6]},
                         l.width,
                         l.ffn},
                        l.slots, l.stream);
}

/* Of each slot: gate becomes its gradient, up too, and hidden, the gradient of silu(gate) up times
 * the weight, becomes that. dweight = a + the gradient of the weight. Launch: a warp for each slot.
 */
template <class T, int N>
__global__ void __launch_bounds__(THREADS)
    differentiate(expert_call<T> l, float *dweight, const float *a) {
  const int64_t slot = (int64_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
  if (slot >= l.list.first[l.experts]) return; /* uniform in a warp */
  const int64_t at = l.weight_at(slot), row = slot * l.ffn;
  const float weight = l.weight[at];
  float sum = 0;
  for (int j = (int)(threadIdx.x % WARP) * N; j < l.ffn; j += WARP * N) {
    lanes<N> gate = load<N>(l.rows_gate + row + j), up = load<N>(l.rows_up + row + j),
             hidden = load<N>(l.hidden + row + j);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const float g = gate.v[k], u = up.v[k], d = hidden.v[k], s = sigmoid<T>(g), silu = g * s,
                  h = silu * u, dh = d * weight;
      sum = fmaf(d, h, sum);
      gate.v[k] = dh * u * s * fmaf(g, 1.0f - s, 1.0f);
      up.v[k] = dh * silu;
      hidden.v[k] = h * weight;
    }
    store(l.rows_gate + row + j, gate);
    store(l.rows_up + row + j, up);
    store(l.hidden + row + j, hidden);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % WARP == 0) dweight[at] = (a ? a[at] : 0.0f) + sum;
}

/* What dweight has in rows of other slices. */
void begin_dweight(float *dweight, const float *a, const struct pen_call *call) {
  const size_t bytes = (size_t)(call->dim[0] * call->dim[2]) * sizeof *dweight;
  if (!a)
    pen_cuda_note("clearing dweight",
                  cudaMemsetAsync(dweight, 0, bytes, (cudaStream_t)call->stream));
  else if (a != dweight)
    pen_cuda_copy(dweight, a, bytes, call->stream);
}

/* The gradient of x of all slots, and those of the weights. */
template <class T>
void multiply_back(const expert_call<T> &l, const struct pen_call *call) {
  void *const *const operand = call->operand;
  const int32_t *const first = l.list.first;
  launch_slots<T, false>({first,
                          l.experts,
                          1,
                          2,
                          {l.rows_gate, l.rows_up},
                          {l.gate, l.up},
                          {(T *)operand[9]},
                          l.width,
                          l.ffn},
                         l.slots, l.stream);
  const weight_sums<T> gate = {first, l.experts, l.rows_gate, l.x, (float *)operand[10],
                               l.ffn, l.width},
                       up = {first, l.experts, l.rows_up, l.x, (float *)operand[11],
                             l.ffn, l.width},
                       down = {first,   l.experts, l.rows_dy, l.hidden, (float *)operand[12],
                               l.width, l.ffn};
  launch_weights(gate, l.stream);
  launch_weights(up, l.stream);
  launch_weights(down, l.stream);
}

template <class T>
void experts_dx_of(const struct pen_call *call) {
  const expert_call<T> l = open_call<T>(call, true);
  const auto kernel = is_wide<T>(l.ffn) ? differentiate<T, WIDE<T>> : differentiate<T, 1>;
  const float *const a = (const float *)call->operand[7];
  float *const dweight = (float *)call->operand[8];
  begin_dweight(dweight, a, call);
  multiply_in(l);
  launch_move<T>(l.rows_dy, l.dy, l.slots, l.width, l, l.stream);
  launch_slots<T, false>(
      {l.list.first, l.experts, 1, 1, {l.rows_dy}, {l.down}, {l.hidden}, l.ffn, l.width}, l.slots,
      l.stream);
  PEN_LAUNCH(kernel, blocks_of_slots(l), dim3(THREADS), 0, l.stream, l, dweight, a);
  multiply_back(l, call);
}

} /* namespace */

PEN_CUDA_BOTH(experts)
PEN_CUDA_BOTH(experts_dx)
