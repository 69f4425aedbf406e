/* gated.cuh: activations y = x g(x), element-wise, and their gradient dx = dy y'(x); and the gated
 * linear units y = x g(x) up with their gradients dx, dup. A gate G has float gate(float), which is
 * g, and float slope(float), which is that of x g(x). dx may be x, dup may be up. Launch:
 * element-wise (device.cuh); where x and up are the halves of rows (the ops _FUSED) a row has
 * blocks of its own, and elements are taken one by one if a half is not a multiple of 16 bytes.
 * Traffic: an element twice forward, three times backward; of linear units three and five times. */
#ifndef PEN_CUDA_GATED_CUH
#define PEN_CUDA_GATED_CUH

#include "kernels/cuda/device.cuh"

template <class G, class T>
struct gated {
  const T *x;
  T *y;
  template <int N>
  __device__ void run(int64_t i) const {
    lanes<N> a = load<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; k++) a.v[k] *= G::gate(a.v[k]);
    store(y + i, a);
  }
};

template <class G, class T>
struct gated_dx {
  const T *dy, *x;
  T *dx;
  template <int N>
  __device__ void run(int64_t i) const {
    const lanes<N> d = load<N>(dy + i);
    lanes<N> a = load<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; k++) a.v[k] = d.v[k] * G::slope(a.v[k]);
    store(dx + i, a);
  }
};

/* Linear units have run(i, j): for element i of y, dy and element j of x, up, dx, dup. */
template <class G, class T>
struct linear_unit {
  const T *x, *up;
  T *y;
  template <int N>
  __device__ void run(int64_t i, int64_t j) const {
    lanes<N> a = load<N>(x + j);
    const lanes<N> u = load<N>(up + j);
#pragma unroll
    for (int k = 0; k < N; k++) a.v[k] = a.v[k] * G::gate(a.v[k]) * u.v[k];
    store(y + i, a);
  }
  template <int N>
  __device__ void run(int64_t i) const {
    run<N>(i, i);
  }
};

template <class G, class T>
struct linear_unit_dx {
  const T *dy, *x, *up;
  T *dx, *dup;
  template <int N>
  __device__ void run(int64_t i, int64_t j) const {
    const lanes<N> d = load<N>(dy + i);
    lanes<N> a = load<N>(x + j), u = load<N>(up + j);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const float v = a.v[k];
      a.v[k] = d.v[k] * u.v[k] * G::slope(v);
      u.v[k] = d.v[k] * (v * G::gate(v));
    }
    store(dx + j, a);
    store(dup + j, u);
  }
  template <int N>
  __device__ void run(int64_t i) const {
    run<N>(i, i);
  }
};

/* A linear unit of rows [x, up], each `width` wide; `blocks` a row. */
template <class OP, int N>
__global__ void __launch_bounds__(THREADS) each_of_rows(OP op, int64_t width, unsigned blocks) {
  const unsigned row = blockIdx.x / blocks;
  const int64_t column = ((int64_t)(blockIdx.x - row * blocks) * THREADS + threadIdx.x) * N;
  if (column < width) op.template run<N>(row * width + column, 2 * row * width + column);
}

template <class T, class OP>
static void launch_rows(const OP &op, const struct pen_call *call) {
  const int64_t rows = call->dim[0], width = call->dim[1];
  const bool wide = is_wide<T>(width);
  const auto kernel = wide ? each_of_rows<OP, WIDE<T>> : each_of_rows<OP, 1>;
  const int64_t blocks = ceiling(width, wide ? WIDE<T> * THREADS : THREADS);
  PEN_LAUNCH(kernel, dim3((unsigned)(rows * blocks)), dim3(THREADS), 0, call->stream, op, width,
             (unsigned)blocks);
}

/* y, of rows of x and up side by side; DX: OP of dy, x, up, dx, dup. */
template <class G, class T>
static void unit_rows(const struct pen_call *call) {
  const T *const x = (const T *)call->operand[0];
  launch_rows<T>(linear_unit<G, T>{x, x + call->dim[1], (T *)call->operand[1]}, call);
}

template <class DX, class T>
static void unit_rows_dx(const struct pen_call *call) {
  const T *const x = (const T *)call->operand[1];
  T *const dx = (T *)call->operand[2];
  launch_rows<T>(DX{(const T *)call->operand[0], x, x + call->dim[1], dx, dx + call->dim[1]}, call);
}

template <class G, class T>
static void unit_each(const struct pen_call *call) {
  const linear_unit<G, T> op = {(const T *)call->operand[0], (const T *)call->operand[1],
                                (T *)call->operand[2]};
  launch_each<T>(op, call->dim[0], call->stream);
}

template <class G, class T>
static void unit_each_dx(const struct pen_call *call) {
  const linear_unit_dx<G, T> op = {(const T *)call->operand[0], (const T *)call->operand[1],
                                   (const T *)call->operand[2], (T *)call->operand[3],
                                   (T *)call->operand[4]};
  launch_each<T>(op, call->dim[0], call->stream);
}

template <class G, class T>
static void gate_each(const struct pen_call *call) {
  const gated<G, T> op = {(const T *)call->operand[0], (T *)call->operand[1]};
  launch_each<T>(op, call->dim[0], call->stream);
}

template <class G, class T>
static void gate_each_dx(const struct pen_call *call) {
  const gated_dx<G, T> op = {(const T *)call->operand[0], (const T *)call->operand[1],
                             (T *)call->operand[2]};
  launch_each<T>(op, call->dim[0], call->stream);
}

#endif
