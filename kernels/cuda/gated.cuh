/* gated.cuh: activations y = x g(x), element-wise, and their gradient dx = dy y'(x); and the gated
 * linear units y = x g(x) up with their gradients dx, dup. A gate G has float gate(float), which is
 * g, and float slope(float), which is that of x g(x). dx may be x, dup may be up. Launch:
 * element-wise (device.cuh). Traffic: an element twice forward, three times backward; of linear
 * units three and five times. */
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

template <class G, class T>
struct linear_unit {
  const T *x, *up;
  T *y;
  template <int N>
  __device__ void run(int64_t i) const {
    lanes<N> a = load<N>(x + i);
    const lanes<N> u = load<N>(up + i);
#pragma unroll
    for (int k = 0; k < N; k++) a.v[k] = a.v[k] * G::gate(a.v[k]) * u.v[k];
    store(y + i, a);
  }
};

template <class G, class T>
struct linear_unit_dx {
  const T *dy, *x, *up;
  T *dx, *dup;
  template <int N>
  __device__ void run(int64_t i) const {
    const lanes<N> d = load<N>(dy + i);
    lanes<N> a = load<N>(x + i), u = load<N>(up + i);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const float v = a.v[k];
      a.v[k] = d.v[k] * u.v[k] * G::slope(v);
      u.v[k] = d.v[k] * (v * G::gate(v));
    }
    store(dx + i, a);
    store(dup + i, u);
  }
};

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
