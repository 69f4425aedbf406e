/* slots.cuh: the rows of a slice and the order of its slots (kernels/ops.def, "mixtures of
 * experts"), on the device. Numbers that are no experts have no slots: what reads and writes by
 * slots stays within its memory, whatever the routes are. */
#ifndef PEN_CUDA_SLOTS_CUH
#define PEN_CUDA_SLOTS_CUH

#include "kernels/cuda/device.cuh"

/* Rows of a microbatch, of which a slice has the `slice`-th part of each run. */
struct slice_rows {
  int rows, part, runs, slice;
  /* The row that is number i of the slice. */
  __device__ int64_t row(int i) const {
    const int run = part / runs;
    return (int64_t)(i / run) * (rows / runs) + slice * run + i % run;
  }
};

/* part, choices, runs, slice: call->dim from that one on. */
static inline slice_rows slice_of(const struct pen_call *call, int part) {
  const int64_t *const dim = call->dim + part;
  return {(int)call->dim[0], (int)dim[0], (int)dim[2], (int)dim[3]};
}

/* Slots of a slice in the order of the experts. */
struct slot_list {
  int32_t *first; /* [experts + 1]: the first slot of each expert; null: not listed */
  int32_t *pair;  /* [part * choices]: of a slot, the slice's row times choices, plus its choice */
  int32_t *slot;  /* [part * choices]: the slot of a pair; first, pair and slot may be null */
};

/* Lists the slots of an expert. Launch: a block for each. Reads each route twice. */
static __global__ void __launch_bounds__(THREADS)
    list_slots(slot_list to, const int32_t *expert, slice_rows s, int choices, int experts) {
  __shared__ int of_warp[THREADS / WARP];
  const int e = (int)blockIdx.x, count = s.part * choices, lane = (int)threadIdx.x % WARP,
            warp = (int)threadIdx.x / WARP;
  int at = 0;
  for (int p = (int)threadIdx.x; p < count; p += THREADS) {
    const int chosen = expert[s.row(p / choices) * choices + p % choices];
    at += chosen >= 0 && chosen < e;
  }
  at = block_sum<THREADS>(at);
  if (to.first && threadIdx.x == 0) to.first[e] = at;
  for (int base = 0; base < count; base += THREADS) {
    const int p = base + (int)threadIdx.x;
    const bool match = p < count && expert[s.row(p / choices) * choices + p % choices] == e;
    const unsigned matches = __ballot_sync(0xffffffffu, match);
    __syncthreads(); /* of_warp may still be read */
    if (lane == 0) of_warp[warp] = __popc(matches);
    __syncthreads();
    int own = at + __popc(matches & ((1u << lane) - 1));
    for (int w = 0; w < THREADS / WARP; w++) {
      own += w < warp ? of_warp[w] : 0;
      at += of_warp[w];
    }
    if (match && to.pair) to.pair[own] = p;
    if (match && to.slot) to.slot[p] = own;
  }
  if (to.first && e == experts - 1 && threadIdx.x == 0) to.first[experts] = at;
}

static inline void launch_list(const slot_list &to, const int32_t *expert, const slice_rows &s,
                               int64_t choices, int64_t experts, void *stream) {
  PEN_LAUNCH(list_slots, dim3((unsigned)experts), dim3(THREADS), 0, stream, to, expert, s,
             (int)choices, (int)experts);
}

/* Copies row i from where `map` says, of `vectors` times N elements; below 0: not at all. Launch: a
 * thread for each 16 bytes, or for each element. */
template <class T, int N, class MAP>
__global__ void __launch_bounds__(THREADS)
    move_rows(T *to, const T *from, int64_t count, int vectors, MAP map) {
  const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= count) return;
  const int64_t row = i / vectors, source = map.row((int)row);
  if (source < 0) return;
  store(to + i * N, load<N>(from + (source * vectors + (i - row * vectors)) * N));
}

template <class T, class MAP>
static inline void launch_move(T *to, const T *from, int64_t rows, int64_t width, const MAP &map,
                               void *stream) {
  const int n = is_wide<T>(width) ? WIDE<T> : 1;
  const auto kernel = n > 1 ? move_rows<T, WIDE<T>, MAP> : move_rows<T, 1, MAP>;
  const int64_t count = rows * width / n;
  PEN_LAUNCH(kernel, dim3((unsigned)ceiling(count, THREADS)), dim3(THREADS), 0, stream, to, from,
             count, (int)(width / n), map);
}

#endif
