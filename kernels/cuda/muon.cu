/* muon.cu: the step of Muon (kernels.h). The momentum, with the bits of a CPU that fuses
 * multiply-adds, and the update are over many tensors, element by element; between them, of each
 * part of a matrix, one after the other, its pieces are packed, NEWTON_SCHULZ computes, and they
 * are unpacked. The settings are in device memory, so that a captured step reads new ones at each
 * replay; a scale of NaN skips the step: u is 0, and parameters stay. With a bf16 copy, the new
 * parameters are also rounded into it.
 *
 * Launch: as update.cuh says; of what packs and unpacks a piece a block for each TILE x TILE of its
 * elements, by shared memory, since a part with more rows than columns is transposed. Workspace:
 * that of NEWTON_SCHULZ, which begins with the part. Traffic beside the products: 44 bytes an
 * element, 46 with a copy. */
#include "kernels/cuda/update.cuh"

namespace {

enum { TILE = WARP };

/* ---- momentum ---- */

/* g becomes u, which counts as 0 where it is not finite. With a scale of NaN it is nowhere. */
struct momentum_update {
  const struct pen_adamw_tensor &t;
  float scale, momentum;
  template <int N>
  __device__ inline void at(int64_t i) const;
};

template <int N>
__device__ inline void momentum_update::at(int64_t i) const {
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

__global__ void __launch_bounds__(THREADS)
    muon_momentum(const update_list list, const struct pen_adamw *settings) {
  int64_t run;
  const struct pen_adamw_tensor tensor = list.own(&run);
  each_element(tensor, run,
               momentum_update{tensor, (float)settings->gradient_scale, (float)tensor.momentum});
}

/* ---- packing ---- */

/* What a part of a matrix has of a piece: in the piece its rows are `row` elements apart; in the
 * part, which is without gaps, it begins at (first_row, first_column). A block has the tile at
 * (tile_row, tile_column) of the piece. */
struct packed_piece {
  int64_t rows, columns, row, first_row, first_column, part_rows, part_columns;

  __host__ __device__ bool transposed() const { return part_rows > part_columns; }
  int64_t tiles() const { return ceiling(rows, TILE) * ceiling(columns, TILE); }
  __device__ int64_t tiles_across() const { return (columns + TILE - 1) / TILE; }
  __device__ int64_t tile_row() const { return blockIdx.x / tiles_across() * TILE; }
  __device__ int64_t tile_column() const { return blockIdx.x % tiles_across() * TILE; }
  __device__ int64_t index(int r, int c) const {
    return (tile_row() + r) * row + tile_column() + c;
  }
  __device__ int64_t index_packed(int r, int c) const {
    const int64_t at_row = first_row + tile_row() + r, at_column = first_column + tile_column() + c;
    return transposed() ? at_column * part_rows + at_row : at_row * part_columns + at_column;
  }

  /* Calls visit(r, c) for each element of the tile: a warp has a row, or a column. */
  template <class F>
  __device__ void each_of_tile(bool by_columns, F visit) const {
    const int lane = (int)threadIdx.x % TILE;
    for (int k = (int)threadIdx.x / TILE; k < TILE; k += THREADS / TILE) {
      const int r = by_columns ? lane : k, c = by_columns ? k : lane;
      if (tile_row() + r < rows && tile_column() + c < columns) visit(r, c);
    }
  }
};

__global__ void __launch_bounds__(THREADS)
    pack_piece(float *x, const float *u, const packed_piece p) {
  __shared__ float tile[TILE][TILE + 1];
  p.each_of_tile(false, [&](int r, int c) { tile[r][c] = u[p.index(r, c)]; });
  __syncthreads();
  p.each_of_tile(p.transposed(), [&](int r, int c) { x[p.index_packed(r, c)] = tile[r][c]; });
}

__global__ void __launch_bounds__(THREADS)
    unpack_piece(float *u, const float *x, const packed_piece p) {
  __shared__ float tile[TILE][TILE + 1];
  p.each_of_tile(p.transposed(), [&](int r, int c) { tile[r][c] = x[p.index_packed(r, c)]; });
  __syncthreads();
  p.each_of_tile(false, [&](int r, int c) { u[p.index(r, c)] = tile[r][c]; });
}

packed_piece packed_piece_of(const struct pen_adamw_tensor &t) {
  const int64_t row = (int64_t)(t.count / t.rows);
  return {(int64_t)t.rows,
          row / t.parts,
          row,
          (int64_t)t.first_row,
          (int64_t)t.first_column,
          (int64_t)t.matrix_rows,
          (int64_t)t.matrix_columns / t.parts};
}

/* ---- update ---- */

/* g, which is X, becomes 0. */
struct muon_update {
  const struct pen_adamw_tensor &t;
  float keep, rate;
  bool skips;
  template <int N>
  __device__ inline void at(int64_t i) const;
};

template <int N>
__device__ inline void muon_update::at(int64_t i) const {
  const lanes<N> x = load<N>(t.gradient + i);
  store(t.gradient + i, lanes<N>{});
  if (skips) return;
  lanes<N> p = load<N>(t.parameter + i);
#pragma unroll
  for (int k = 0; k < N; k++) p.v[k] = __fmaf_rn(x.v[k], rate, __fmul_rn(p.v[k], keep));
  store(t.parameter + i, p);
  if (t.copy) store_narrow(t.copy + i, p);
}

__device__ inline muon_update muon_update_of(const struct pen_adamw *s,
                                             const struct pen_adamw_tensor &t) {
  const size_t columns = t.matrix_columns / t.parts,
               most = t.matrix_rows > columns ? t.matrix_rows : columns;
  const double learning_rate = __dmul_rn(s->learning_rate, t.rate),
               factor = __dmul_rn(__dmul_rn(-learning_rate, .2), sqrt((double)most));
  return {t, (float)__dadd_rn(1, -__dmul_rn(learning_rate, t.weight_decay)), (float)factor,
          (bool)isnan(s->gradient_scale)};
}

__global__ void __launch_bounds__(THREADS)
    muon_apply(const update_list list, const struct pen_adamw *settings) {
  int64_t run;
  const struct pen_adamw_tensor tensor = list.own(&run);
  each_element(tensor, run, muon_update_of(settings, tensor));
}

} /* namespace */

void pen_cuda_muon_momentum(const struct pen_adamw_tensor *tensors, size_t tensor_count,
                            const struct pen_adamw *settings, void *stream) {
  each_list(tensors, tensor_count, [&](const update_list &list) {
    PEN_LAUNCH(muon_momentum, dim3(list.blocks()), dim3(THREADS), 0, stream, list, settings);
  });
}

void pen_cuda_muon_orthogonalize(const struct pen_adamw_tensor *pieces, size_t piece_count,
                                 const struct pen_adamw *settings, void *stream) {
  (void)settings;
  float *const x = (float *)pieces->workspace;
  const packed_piece first = packed_piece_of(*pieces);
  struct pen_call call = {};
  call.dim[0] = first.transposed() ? first.part_columns : first.part_rows;
  call.dim[1] = first.transposed() ? first.part_rows : first.part_columns;
  call.dim[2] = pieces->steps;
  call.prepared = pen_cuda_newton_schulz_prepare(call.dim);
  call.workspace = x;
  call.stream = stream;
  for (int part = 0; part < pieces->parts; part++) {
    for (size_t i = 0; i < piece_count; i++) {
      const packed_piece p = packed_piece_of(pieces[i]);
      PEN_LAUNCH(pack_piece, dim3((unsigned)p.tiles()), dim3(THREADS), 0, stream, x,
                 pieces[i].gradient + part * p.columns, p);
    }
    const float *made = pen_cuda_newton_schulz_there(&call);
    for (size_t i = 0; i < piece_count; i++) {
      const packed_piece p = packed_piece_of(pieces[i]);
      PEN_LAUNCH(unpack_piece, dim3((unsigned)p.tiles()), dim3(THREADS), 0, stream,
                 pieces[i].gradient + part * p.columns, made, p);
    }
  }
}

void pen_cuda_muon_apply(const struct pen_adamw_tensor *tensors, size_t tensor_count,
                         const struct pen_adamw *settings, void *stream) {
  each_list(tensors, tensor_count, [&](const update_list &list) {
    PEN_LAUNCH(muon_apply, dim3(list.blocks()), dim3(THREADS), 0, stream, list, settings);
  });
}
