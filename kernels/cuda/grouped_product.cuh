/* grouped_product.cuh: products of the slots of experts (slots.cuh) by the experts' weights. The
 * rows of each expert are read from memory: a launch has a fixed number of blocks, which walk the
 * tiles of all experts. The bits of a row do not depend on the number of rows of its expert. */
#ifndef PEN_CUDA_GROUPED_PRODUCT_CUH
#define PEN_CUDA_GROUPED_PRODUCT_CUH

#include "kernels/cuda/tile_product.cuh"

/* The tiles of all experts: of each those of its columns, of these those of its rows. */
struct tile_walk {
  const int32_t *first; /* of slots.cuh */
  int experts;
  int e = 0;
  int64_t tile, before = 0; /* `before`: tiles of the experts before e */
  __device__ tile_walk(const int32_t *of, int count)
      : first(of), experts(count), tile(blockIdx.x) {}
  __device__ int slots() const { return first[e + 1] - first[e]; }
  /* Moves to the expert of the tile, which has tiles(slots) of them. Returns its number among
   * these; below 0: there is none. */
  template <class TILES>
  __device__ int64_t find(const TILES &tiles) {
    for (; e < experts; e++) {
      const int64_t count = tiles(slots());
      if (tile < before + count) return tile - before;
      before += count;
    }
    return -1;
  }
  __device__ void step() { tile += gridDim.x; }
};

/* result[g][slot,columns] = the sum over terms t of left[t][slot,depth] times the expert's matrix
 * of right[g + t]; of two groups, or of two terms. right: [experts][depth][columns], or transposed.
 */
template <class T>
struct grouped_product {
  const int32_t *first;
  int experts, groups, terms;
  const T *left[2], *right[2];
  T *result[2];
  int columns, depth;
};

template <class T, bool RIGHT_TRANSPOSED, bool WIDE_ROWS>
__global__ void __launch_bounds__(THREADS) multiply_slots(grouped_product<T> p) {
  typedef tile_sum<T, false, RIGHT_TRANSPOSED, WIDE_ROWS> tile;
  const int64_t of_expert = (int64_t)p.columns * p.depth;
  const int wide = (p.columns + tile::COLUMNS - 1) / tile::COLUMNS;
  tile_walk walk(p.first, p.experts);
  for (;; walk.step()) {
    const int64_t number = walk.find([&](int slots) {
      return (int64_t)((slots + tile::ROWS - 1) / tile::ROWS) * wide * p.groups;
    });
    if (number < 0) return;
    const int high = (walk.slots() + tile::ROWS - 1) / tile::ROWS,
              row = (int)(number % high) * tile::ROWS, at = (int)(number / high),
              column = at % wide * tile::COLUMNS, group = at / wide;
    const int rows = walk.slots() - row, columns = p.columns - column;
    const int64_t slot = p.first[walk.e] + row;
    tile sum;
    for (int t = 0; t < p.terms; t++)
      sum.add({p.left[t] + slot * p.depth, p.depth},
              {p.right[group + t] + walk.e * of_expert +
                   (RIGHT_TRANSPOSED ? (int64_t)column * p.depth : column),
               RIGHT_TRANSPOSED ? p.depth : p.columns},
              rows, columns, p.depth);
    T *const to = p.result[group] + slot * p.columns + column;
    sum.each([&](int r, int c, float value) {
      if (r < rows && c < columns) store(to + (int64_t)r * p.columns + c, lanes<1>{{value}});
    });
  }
}

template <class T, bool RIGHT_TRANSPOSED>
static inline void launch_slots(const grouped_product<T> &p, int64_t slots, void *stream) {
  typedef tile_sum<T, false, RIGHT_TRANSPOSED, true> tile;
  const bool wide = is_wide<T>(p.columns) && is_wide<T>(p.depth);
  const auto kernel =
      wide ? multiply_slots<T, RIGHT_TRANSPOSED, true> : multiply_slots<T, RIGHT_TRANSPOSED, false>;
  const int64_t tiles =
      (ceiling(slots, tile::ROWS) + p.experts) * ceiling(p.columns, tile::COLUMNS) * p.groups;
  PEN_LAUNCH(kernel, walking_blocks(tiles), dim3(THREADS), 0, stream, p);
}

/* sum[experts,rows,columns] += left[slot,rows]^T right[slot,columns] over the slots of the expert,
 * rising, from 0. */
template <class T>
struct weight_sums {
  const int32_t *first;
  int experts;
  const T *left, *right;
  float *sum;
  int rows, columns;
};

template <class T, bool WIDE_ROWS>
__global__ void __launch_bounds__(THREADS) add_weights(weight_sums<T> p) {
  typedef tile_sum<T, true, false, WIDE_ROWS> tile;
  const int high = (p.rows + tile::ROWS - 1) / tile::ROWS,
            wide = (p.columns + tile::COLUMNS - 1) / tile::COLUMNS;
  tile_walk walk(p.first, p.experts);
  for (;; walk.step()) {
    const int64_t number =
        walk.find([&](int slots) { return slots > 0 ? (int64_t)high * wide : 0; });
    if (number < 0) return;
    const int row = (int)(number % high) * tile::ROWS,
              column = (int)(number / high) * tile::COLUMNS, rows = p.rows - row,
              columns = p.columns - column;
    const int64_t slot = p.first[walk.e];
    tile sum;
    sum.add({p.left + slot * p.rows + row, p.rows},
            {p.right + slot * p.columns + column, p.columns}, rows, columns, walk.slots());
    float *const to = p.sum + ((int64_t)walk.e * p.rows + row) * p.columns + column;
    sum.each([&](int r, int c, float value) {
      if (r < rows && c < columns) to[(int64_t)r * p.columns + c] += value;
    });
  }
}

template <class T>
static inline void launch_weights(const weight_sums<T> &p, void *stream) {
  typedef tile_sum<T, true, false, true> tile;
  const bool wide = is_wide<T>(p.rows) && is_wide<T>(p.columns);
  const auto kernel = wide ? add_weights<T, true> : add_weights<T, false>;
  const int64_t tiles = p.experts * ceiling(p.rows, tile::ROWS) * ceiling(p.columns, tile::COLUMNS);
  if (p.sum) PEN_LAUNCH(kernel, walking_blocks(tiles), dim3(THREADS), 0, stream, p);
}

#endif
