/* dispatch.cu: DISPATCH and SUM_CHOICES. Launch: a thread for each 16 bytes of a row, or for each
 * element. Sums: the slots of a row in rising order, then a, as on CPUs. A row whose routes are not
 * numbers of experts becomes NaN. Workspace of SUM_CHOICES: the slot of each pair. */
#include <math.h>

#include "kernels/cuda/slots.cuh"

namespace {

template <class T>
void dispatch_of(const struct pen_call *call) {
  launch_move<T>((T *)call->operand[2], (const T *)call->operand[0], call->dim[2], call->dim[1],
                 slice_of(call, 2), call->stream);
}

/* `a` may be null, or y. */
template <class T>
struct slot_sums {
  T *y;
  const T *slots, *a;
  const int32_t *slot, *expert;
  slice_rows slice;
  int choices, experts;
};

template <class T, int N>
__global__ void __launch_bounds__(THREADS) sum_slots(slot_sums<T> s, int64_t count, int vectors) {
  const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (thread >= count) return;
  const int i = (int)(thread / vectors);
  const int64_t column = (thread - (int64_t)i * vectors) * N, row = s.slice.row(i),
                width = (int64_t)vectors * N;
  lanes<N> sum = {}, addend = {};
  for (int c = 0; c < s.choices; c++) {
    const int32_t expert = s.expert[row * s.choices + c];
    const bool is_one = expert >= 0 && expert < s.experts;
    lanes<N> term = {};
    if (is_one) term = load<N>(s.slots + s.slot[i * s.choices + c] * width + column);
#pragma unroll
    for (int k = 0; k < N; k++) sum.v[k] = (c ? sum.v[k] : 0.0f) + (is_one ? term.v[k] : NAN);
  }
  if (s.a) addend = load<N>(s.a + row * width + column);
#pragma unroll
  for (int k = 0; k < N && s.a; k++) sum.v[k] += addend.v[k];
  store(s.y + row * width + column, sum);
}

template <class T>
void sum_choices_of(const struct pen_call *call) {
  const slice_rows slice = slice_of(call, 2);
  const int64_t width = call->dim[1], choices = call->dim[3], experts = call->dim[6];
  const size_t bytes = (size_t)(call->dim[0] * width) * sizeof(T);
  const int32_t *const expert = (const int32_t *)call->operand[1];
  int32_t *const slot = (int32_t *)call->workspace;
  const T *const a = (const T *)call->operand[2];
  T *const y = (T *)call->operand[3];
  launch_list({NULL, NULL, slot}, expert, slice, choices, experts, call->stream);
  if (slice.part < slice.rows && !a)
    pen_cuda_note("clearing rows", cudaMemsetAsync(y, 0, bytes, (cudaStream_t)call->stream));
  else if (slice.part < slice.rows && a != y)
    pen_cuda_copy(y, a, bytes, call->stream);
  const slot_sums<T> sums = {
      y, (const T *)call->operand[0], a, slot, expert, slice, (int)choices, (int)experts};
  const int n = is_wide<T>(width) ? WIDE<T> : 1;
  const auto kernel = n > 1 ? sum_slots<T, WIDE<T>> : sum_slots<T, 1>;
  const int64_t count = slice.part * width / n;
  PEN_LAUNCH(kernel, dim3((unsigned)ceiling(count, THREADS)), dim3(THREADS), 0, call->stream, sums,
             count, (int)(width / n));
}

} /* namespace */

PEN_CUDA_BOTH(dispatch)
PEN_CUDA_BOTH(sum_choices)
