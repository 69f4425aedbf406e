/* router.cu: ROUTER_LOGITS and its gradients, in f32, by tiles (tile_product.cuh). Launch: a block
 * for each tile. Sums: one chain over the columns of x, the experts, or the rows. */
#include "kernels/cuda/tile_product.cuh"

namespace {

/* result[m,n] = left right + addend */
template <class L, class R, class S>
struct router_product {
  const L *left;
  const R *right;
  const S *addend; /* may be null, or the result */
  S *result;
  int m, n, k, left_row, right_row;
};

template <bool LEFT_TRANSPOSED, bool RIGHT_TRANSPOSED, class L, class R, class S>
__global__ void __launch_bounds__(THREADS) multiply_tile(router_product<L, R, S> p) {
  plain_sum<L, R, LEFT_TRANSPOSED, RIGHT_TRANSPOSED> sum;
  const int row = (int)blockIdx.x * sum.ROWS, column = (int)blockIdx.y * sum.COLUMNS;
  sum.add({p.left + (LEFT_TRANSPOSED ? row : (int64_t)row * p.left_row), p.left_row},
          {p.right + (RIGHT_TRANSPOSED ? (int64_t)column * p.right_row : column), p.right_row},
          p.m - row, p.n - column, p.k);
  sum.each([&](int r, int c, float value) {
    if (row + r >= p.m || column + c >= p.n) return;
    const int64_t at = (int64_t)(row + r) * p.n + column + c;
    store(p.result + at, lanes<1>{{p.addend ? value + widen(p.addend[at]) : value}});
  });
}

template <bool LEFT_TRANSPOSED, bool RIGHT_TRANSPOSED, class L, class R, class S>
void multiply(const router_product<L, R, S> &p, void *stream) {
  typedef plain_sum<L, R, LEFT_TRANSPOSED, RIGHT_TRANSPOSED> tile;
  const auto kernel = multiply_tile<LEFT_TRANSPOSED, RIGHT_TRANSPOSED, L, R, S>;
  PEN_LAUNCH(kernel,
             dim3((unsigned)ceiling(p.m, tile::ROWS), (unsigned)ceiling(p.n, tile::COLUMNS)),
             dim3(THREADS), 0, stream, p);
}

template <class T>
void router_logits_of(const struct pen_call *call) {
  const int rows = (int)call->dim[0], in = (int)call->dim[1], out = (int)call->dim[2];
  multiply<false, true, T, float, float>(
      {(const T *)call->operand[0], (const float *)call->operand[1], NULL,
       (float *)call->operand[2], rows, out, in, in, in},
      call->stream);
}

template <class T>
void router_logits_dx_of(const struct pen_call *call) {
  const int rows = (int)call->dim[0], in = (int)call->dim[1], out = (int)call->dim[2];
  multiply<false, false, float, float, T>(
      {(const float *)call->operand[0], (const float *)call->operand[1],
       (const T *)call->operand[2], (T *)call->operand[3], rows, in, out, out, in},
      call->stream);
}

template <class T>
void router_logits_dw_of(const struct pen_call *call) {
  const int rows = (int)call->dim[0], in = (int)call->dim[1], out = (int)call->dim[2];
  float *const dw = (float *)call->operand[2];
  multiply<true, false, float, T, float>(
      {(const float *)call->operand[0], (const T *)call->operand[1], dw, dw, out, in, rows, out,
       in},
      call->stream);
}

} /* namespace */

PEN_CUDA_BOTH(router_logits)
PEN_CUDA_BOTH(router_logits_dx)
PEN_CUDA_BOTH(router_logits_dw)
