/* sum_partials.cu: SUM_PARTIALS: y = (a + b) + addend + bias, rounded once; y may be the addend.
 * SUM_ADD: y = a + b in f64, and MAXIMUM: y = b where it is greater than a or no number, else a; y
 * may be a. Launch: a thread for each 16 bytes of y, or for each element of SUM_PARTIALS if rows
 * are not multiples of 16 bytes; the others element-wise (device.cuh). Traffic: an element of each
 * operand once. */
#include "kernels/cuda/device.cuh"

namespace {

template <class E>
struct partial_sums {
  E *y;
  const float *a, *b;
  const E *addend;
  const float *bias;
  int64_t units; /* threads */
  int width;
};

template <class E, int N>
__global__ void __launch_bounds__(THREADS) add_partials(partial_sums<E> p) {
  const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (thread >= p.units) return;
  const int64_t at = thread * N;
  lanes<N> sum = load<N>(p.a + at), other = load<N>(p.b + at);
#pragma unroll
  for (int k = 0; k < N; k++) sum.v[k] += other.v[k];
  if (p.addend) {
    other = load<N>(p.addend + at);
#pragma unroll
    for (int k = 0; k < N; k++) sum.v[k] += other.v[k];
  }
  if (p.bias) {
    other = load<N>(p.bias + at % p.width);
#pragma unroll
    for (int k = 0; k < N; k++) sum.v[k] += other.v[k];
  }
  store(p.y + at, sum);
}

template <class E>
void sum_partials_of(const struct pen_call *call) {
  const int64_t width = call->dim[1];
  const bool wide = is_wide<E>(width);
  const partial_sums<E> p = {(E *)call->operand[4],
                             (const float *)call->operand[0],
                             (const float *)call->operand[1],
                             (const E *)call->operand[2],
                             (const float *)call->operand[3],
                             call->dim[0] * width / (wide ? WIDE<E> : 1),
                             (int)width};
  const auto kernel = wide ? add_partials<E, WIDE<E>> : add_partials<E, 1>;
  PEN_LAUNCH(kernel, dim3((unsigned)ceiling(p.units, THREADS)), dim3(THREADS), 0, call->stream, p);
}

/* `of` makes an element from two. */
template <class T, class OF>
struct of_two {
  const T *a, *b;
  T *y;
  template <int N>
  __device__ void run(int64_t i) const {
    T made[N];
#pragma unroll
    for (int k = 0; k < N; k++) made[k] = OF::of(a[i + k], b[i + k]);
#pragma unroll
    for (int k = 0; k < N; k++) y[i + k] = made[k];
  }
};

struct sum {
  static __device__ double of(double a, double b) { return a + b; }
};

struct greater {
  static __device__ float of(float a, float b) { return b > a || isnan(b) ? b : a; }
};

template <class T, class OF>
void launch_two(const struct pen_call *call) {
  const of_two<T, OF> op = {(const T *)call->operand[0], (const T *)call->operand[1],
                            (T *)call->operand[2]};
  launch_each<T>(op, call->dim[0], call->stream);
}

} /* namespace */

void pen_cuda_sum_add(const struct pen_call *call) { launch_two<double, sum>(call); }
void pen_cuda_maximum(const struct pen_call *call) { launch_two<float, greater>(call); }

PEN_CUDA_BOTH(sum_partials)
