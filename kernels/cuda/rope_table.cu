/* rope_table.cu: ROPE_TABLE: table[t,0,i] = scale cos(t f_i), table[t,1,i] = scale sin of the
 * same, in f64 (Su et al. 2021; f_i, scale: rope_frequency.h). CUDA's pow, sin and cos may differ
 * from the C library's in the last bit of an f64; the rounded f32 rarely differs. Launch: a thread
 * for each angle; once at start. */
#include "kernels/cuda/device.cuh"
#include "kernels/rope_frequency.h"

namespace {

struct settings {
  double real[PEN_REALS_MAX];
};

__global__ void __launch_bounds__(THREADS)
    fill_table(float *table, int64_t count, int half, settings s) {
  const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (thread >= count) return;
  const int64_t t = thread / half;
  const int i = (int)(thread - t * half);
  const double angle = (double)t * pen_rope_frequency(s.real, i, half);
  const double scale = pen_rope_scale(s.real);
  table[t * 2 * half + i] = (float)(scale * cos(angle));
  table[t * 2 * half + half + i] = (float)(scale * sin(angle));
}

} /* namespace */

void pen_cuda_rope_table(const struct pen_call *call) {
  const int64_t count = call->dim[0] * call->dim[1];
  settings s;
  memcpy(s.real, call->real, sizeof s.real);
  PEN_LAUNCH(fill_table, dim3((unsigned)ceiling(count, THREADS)), dim3(THREADS), 0, call->stream,
             (float *)call->operand[0], count, (int)call->dim[1], s);
}
