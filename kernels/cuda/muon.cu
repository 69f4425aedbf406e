/* muon.cu: pen_muon_step(): the momentum of all matrices in one launch, with the bits of a CPU that
 * fuses multiply-adds; then of each part of each matrix, one after the other, NEWTON_SCHULZ and the
 * update. The settings are in device memory, so that a captured step reads new ones at each replay;
 * a scale of NaN skips the step: u is 0, and parameters stay. With a bf16 copy, the new parameters
 * are also rounded into it.
 *
 * Launch of the momentum: a block for each RUN elements of a tensor; of what moves a part to the
 * workspace and back: a block for each TILE x TILE of its elements, by shared memory, since a part
 * with more rows than columns is transposed. Workspace: that of NEWTON_SCHULZ; the part is at its
 * beginning.
 * Traffic beside NEWTON_SCHULZ: 40 bytes an element, 42 with a copy. */
#include "kernels/cuda/tensor_list.cuh"
#include "kernels/cuda/to_bf16.cuh"

namespace {

const int64_t RUN = 16 * 4 * THREADS;
enum { TILE = WARP };

/* Elements i .. i+N-1 of a tensor: g becomes u, which counts as 0 where it is not finite. */
template <int N>
__device__ inline void add_momentum(const struct pen_adamw_tensor &t, int64_t i, float scale) {
  const float momentum = (float)t.momentum;
  lanes<N> u = load<N>(t.gradient + i), b = load<N>(t.exp_avg + i);
#pragma unroll
  for (int k = 0; k < N; k++) {
    const float g = __fmul_rn(u.v[k], scale), sum = __fmaf_rn(b.v[k], momentum, g),
                step = t.nesterov ? __fmaf_rn(sum, momentum, g) : sum;
    const bool good = isfinite(step);
    u.v[k] = good ? step : 0.0f;
    b.v[k] = good ? sum : b.v[k];
  }
  store(t.gradient + i, u);
  store(t.exp_avg + i, b);
}

/* With a scale of NaN no step is finite. */
__global__ void __launch_bounds__(THREADS)
    muon_momentum(const tensor_list<pen_adamw_tensor> list, const struct pen_adamw *settings) {
  int64_t run;
  const struct pen_adamw_tensor tensor = list.own(&run);
  const float scale = (float)settings->gradient_scale;
  const int64_t count = (int64_t)tensor.count, past = (run + 1) * RUN;
  for (int64_t i = run * RUN + threadIdx.x * 4; i < past && i < count; i += THREADS * 4) {
    if (i + 4 <= count)
      add_momentum<4>(tensor, i, scale);
    else
      for (int64_t k = i; k < count; k++) add_momentum<1>(tensor, k, scale);
  }
}

/* A part of a matrix, whose rows are `row` elements apart, and in the workspace are without gaps. A
 * block has the tile at (first_row, first_column). */
struct matrix_part {
  int64_t rows, columns, row;
  bool transposed; /* in the workspace */

  int64_t tiles() const { return ceiling(rows, TILE) * ceiling(columns, TILE); }
  __device__ int64_t first_row() const { return blockIdx.x / tiles_across() * TILE; }
  __device__ int64_t first_column() const { return blockIdx.x % tiles_across() * TILE; }
  __device__ int64_t tiles_across() const { return (columns + TILE - 1) / TILE; }
  __device__ int64_t index(int r, int c) const {
    return (first_row() + r) * row + first_column() + c;
  }
  __device__ int64_t index_there(int r, int c) const {
    return transposed ? (first_column() + c) * rows + first_row() + r
                      : (first_row() + r) * columns + first_column() + c;
  }

  /* Calls visit(r, c) for each element of the tile: a warp has a row, or a column. */
  template <class F>
  __device__ void each_element(bool by_columns, F visit) const {
    const int lane = (int)threadIdx.x % TILE;
    for (int k = (int)threadIdx.x / TILE; k < TILE; k += THREADS / TILE) {
      const int r = by_columns ? lane : k, c = by_columns ? k : lane;
      if (first_row() + r < rows && first_column() + c < columns) visit(r, c);
    }
  }
};

__global__ void __launch_bounds__(THREADS)
    load_part(float *x, const float *u, const matrix_part p) {
  __shared__ float tile[TILE][TILE + 1];
  p.each_element(false, [&](int r, int c) { tile[r][c] = u[p.index(r, c)]; });
  __syncthreads();
  p.each_element(p.transposed, [&](int r, int c) { x[p.index_there(r, c)] = tile[r][c]; });
}

/* p = keep p + rate x, and u, which is where the gradient was, becomes 0. */
__global__ void __launch_bounds__(THREADS)
    apply_part(const pen_adamw_tensor t, int64_t first, const float *x, const matrix_part p,
               const struct pen_adamw *settings, double factor) {
  __shared__ float tile[TILE][TILE + 1];
  const double learning_rate = __dmul_rn(settings->learning_rate, t.rate);
  const float keep = (float)__dadd_rn(1, -__dmul_rn(learning_rate, t.weight_decay)),
              rate = (float)__dmul_rn(__dmul_rn(-learning_rate, .2), factor);
  const bool skips = isnan(settings->gradient_scale);
  p.each_element(p.transposed, [&](int r, int c) { tile[r][c] = x[p.index_there(r, c)]; });
  __syncthreads();
  p.each_element(false, [&](int r, int c) {
    const int64_t i = first + p.index(r, c);
    t.gradient[i] = 0;
    if (skips) return;
    const lanes<1> value = {__fmaf_rn(tile[r][c], rate, __fmul_rn(t.parameter[i], keep))};
    store(t.parameter + i, value);
    if (t.copy) store_narrow(t.copy + i, value);
  });
}

/* As pen_muon_step() after the momentum. */
void update_matrix(const struct pen_adamw_tensor &t, const struct pen_adamw *settings,
                   void *stream) {
  const int64_t row = (int64_t)(t.count / t.rows);
  matrix_part p = {(int64_t)t.rows, row / t.parts, row, false};
  p.transposed = p.rows > p.columns;
  const dim3 blocks((unsigned)p.tiles());
  struct pen_call call = {};
  call.dim[0] = p.transposed ? p.columns : p.rows;
  call.dim[1] = p.transposed ? p.rows : p.columns;
  call.dim[2] = t.steps;
  call.prepared = pen_cuda_newton_schulz_prepare(call.dim);
  call.workspace = t.workspace;
  call.stream = stream;
  for (int64_t first = 0; first < row; first += p.columns) {
    PEN_LAUNCH(load_part, blocks, dim3(THREADS), 0, stream, (float *)t.workspace,
               t.gradient + first, p);
    const float *x = pen_cuda_newton_schulz_there(&call);
    PEN_LAUNCH(apply_part, blocks, dim3(THREADS), 0, stream, t, first, x, p, settings,
               sqrt((double)call.dim[1]));
  }
}

} /* namespace */

void pen_cuda_muon_step(const struct pen_adamw_tensor *tensors, size_t tensor_count,
                        const struct pen_adamw *settings, void *stream) {
  tensor_list<pen_adamw_tensor> list = {};
  for (size_t i = 0; i < tensor_count; i++) {
    list.add(tensors[i], ceiling((int64_t)tensors[i].count, RUN));
    if (!list.is_full() && i + 1 < tensor_count) continue;
    if (list.blocks() > 0)
      PEN_LAUNCH(muon_momentum, dim3(list.blocks()), dim3(THREADS), 0, stream, list, settings);
    list.count = 0;
  }
  for (size_t i = 0; i < tensor_count; i++)
    if (tensors[i].count > 0) /* else another data rank has all of it */
      update_matrix(tensors[i], settings, stream);
}
