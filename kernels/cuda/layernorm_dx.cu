/* layernorm_dx.cu: LAYERNORM_DX: with n = (x - mean) rstd: dx = rstd (dy gain - mean(dy gain) - n
 * mean(dy gain n)) + a, dgain = sum over rows of dy n, dbias = sum over rows of dy, or
 * sums of runs. Launch, order of sums, workspace, and dx in place
 * of a: norm_dx.cuh. */
#include "kernels/cuda/norm_dx.cuh"

namespace {

/* The row sums are those of dy gain, and of dy gain n. */
struct layer {
  enum { ROW_SUMS = 2 };
  float mean, rstd;
  template <class E>
  static __device__ layer of(const norm_dx<E> &p, int64_t row) {
    return {p.mean[row], p.rstd[row]};
  }
  __device__ void accumulate(float *row_sum, float *sum, float d, float x, float g) const {
    const float n = (x - mean) * rstd, product = d * g;
    row_sum[0] += product;
    row_sum[1] = fmaf(product, n, row_sum[1]);
    sum[0] = fmaf(d, n, sum[0]);
    sum[1] += d;
  }
  __device__ void finish_row(float *row_sum, int width) const {
    row_sum[0] /= (float)width, row_sum[1] /= (float)width;
  }
  __device__ float element_dx(const float *row_sum, float d, float x, float g, float a) const {
    const float n = (x - mean) * rstd;
    return fmaf(fmaf(n, -row_sum[1], d * g - row_sum[0]), rstd, a);
  }
};

template <class E, bool RUNS>
void differentiate(const struct pen_call *call) {
  float *to[] = {(float *)call->operand[7], (float *)call->operand[8]};
  const norm_dx<E> p = {(E *)call->operand[6],
                        (float *)call->workspace,
                        (const E *)call->operand[0],
                        (const E *)call->operand[1],
                        (const float *)call->operand[2],
                        (const float *)call->operand[3],
                        (const float *)call->operand[4],
                        (const E *)call->operand[5],
                        {},
                        (int)call->dim[1],
                        0};
  norm_kernels<layer, E, RUNS>::launch(p, summed_rows::of(call->dim), to, call->stream);
}

template <class E>
void layernorm_dx_of(const struct pen_call *call) {
  (call->dim[3] > 0 ? differentiate<E, true> : differentiate<E, false>)(call);
}

template <class E>
void open() {
  norm_kernels<layer, E, false>::open("shared memory for LAYERNORM_DX");
  norm_kernels<layer, E, true>::open("shared memory for LAYERNORM_DX");
}

} /* namespace */

size_t pen_cuda_layernorm_dx_shared(const int64_t dim[PEN_DIMS_MAX]) {
  return norm_kernels<layer, bf16, false>::shared(dim[1]) + NORM_STATIC_BYTES;
}

void pen_cuda_layernorm_dx_open(void) {
  open<float>();
  open<bf16>();
}

PEN_CUDA_BOTH(layernorm_dx)
