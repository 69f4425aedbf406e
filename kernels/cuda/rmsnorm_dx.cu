/* rmsnorm_dx.cu: RMSNORM_DX: with g = gain + offset, dx = rstd (dy g - x rstd^2 mean(dy g x)) + a,
 * dgain = sum over rows, or a sum of runs, of dy x rstd. Launch, order of sums, workspace, and dx
 * in place of a: norm_dx.cuh. */
#include "kernels/cuda/norm_dx.cuh"

namespace {

/* The row sum is that of dy g x. */
struct rms {
  enum { ROW_SUMS = 1 };
  float rstd, offset;
  template <class E>
  static __device__ rms of(const norm_dx<E> &p, int64_t row) {
    return {p.rstd[row], p.offset};
  }
  __device__ void accumulate(float *row_sum, float *sum, float d, float x, float g) const {
    const float product = d * x;
    *row_sum = fmaf(product, g + offset, *row_sum);
    *sum = fmaf(product, rstd, *sum);
  }
  __device__ void finish_row(float *row_sum, int width) const {
    *row_sum = -rstd * rstd * rstd * (*row_sum / (float)width);
  }
  __device__ float element_dx(const float *row_sum, float d, float x, float g, float a) const {
    return fmaf(d * (g + offset), rstd, fmaf(x, *row_sum, a));
  }
};

template <class E, bool RUNS>
void differentiate(const struct pen_call *call) {
  float *to[] = {(float *)call->operand[6]};
  const norm_dx<E> p = {(E *)call->operand[5],
                        (float *)call->workspace,
                        (const E *)call->operand[0],
                        (const E *)call->operand[1],
                        (const float *)call->operand[2],
                        NULL,
                        (const float *)call->operand[3],
                        (const E *)call->operand[4],
                        {},
                        (int)call->dim[1],
                        (float)call->real[1]};
  norm_kernels<rms, E, RUNS>::launch(p, summed_rows::of(call->dim), to, call->stream);
}

template <class E>
void rmsnorm_dx_of(const struct pen_call *call) {
  (call->dim[3] > 0 ? differentiate<E, true> : differentiate<E, false>)(call);
}

template <class E>
void open() {
  norm_kernels<rms, E, false>::open("shared memory for RMSNORM_DX");
  norm_kernels<rms, E, true>::open("shared memory for RMSNORM_DX");
}

} /* namespace */

size_t pen_cuda_rmsnorm_dx_shared(const int64_t dim[PEN_DIMS_MAX]) {
  return norm_kernels<rms, bf16, false>::shared(dim[1]) + NORM_STATIC_BYTES;
}

void pen_cuda_rmsnorm_dx_open(void) {
  open<float>();
  open<bf16>();
}

PEN_CUDA_BOTH(rmsnorm_dx)
