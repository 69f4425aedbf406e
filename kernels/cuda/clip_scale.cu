/* clip_scale.cu: the gradient scale of AdamW from the step statistics: min(1, clip_norm/(norm +
 * 1e-6)), with the bits of runtime/comm/step_stats.c: f64, entries by weight, the shards of a
 * weight in rising order, each operation rounded once. And the number of updates, which counts no
 * step that is skipped. Launch: one block; one thread adds what the block has loaded. An addition
 * takes some 16 cycles. */
#include "kernels/cuda/device.cuh"

namespace {

/* NaN if the norm is not finite: AdamW then keeps weights and moments. */
__device__ inline double scale_of(double norm, double clip_norm) {
  if (clip_norm == 0) return 1;
  const double scale = __ddiv_rn(clip_norm, __dadd_rn(norm, 1e-6));
  return !isfinite(norm) ? nan("") : scale > 1 ? 1 : scale;
}

__global__ void __launch_bounds__(THREADS)
    compute_clip_scale(struct pen_adamw *settings, const struct pen_adamw *base,
                       const double *stats, int64_t count, int64_t parts, int64_t stride,
                       double clip_norm, int infinity_norm) {
  __shared__ double tile[THREADS];
  double sum = 0, most = 0;
  for (int64_t from = 0; from < count * parts; from += THREADS) {
    const int loaded = count * parts - from < THREADS ? (int)(count * parts - from) : THREADS;
    const int64_t mine = from + threadIdx.x, entry = mine / parts;
    if ((int)threadIdx.x < loaded)
      tile[threadIdx.x] = stats[(entry + mine) % parts * stride + entry];
    __syncthreads();
    for (int i = 0; i < loaded && threadIdx.x == 0; i++) {
      sum = __dadd_rn(sum, tile[i]);
      most = tile[i] > most ? tile[i] : most;
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  struct pen_adamw made = *base;
  if (!isnan(made.gradient_scale)) /* NaN: the host has skipped the step */
    made.gradient_scale = scale_of(!infinity_norm ? __dsqrt_rn(sum)
                                   : isnan(sum)   ? sum
                                                  : most,
                                   clip_norm);
  made.updates = settings->updates + !isnan(made.gradient_scale);
  *settings = made;
}

} /* namespace */

void pen_cuda_clip_scale(struct pen_adamw *settings, const struct pen_adamw *base,
                         const double *stats, size_t count, size_t parts, size_t stride,
                         double clip_norm, int infinity_norm, void *stream) {
  PEN_LAUNCH(compute_clip_scale, dim3(1), dim3(THREADS), 0, stream, settings, base, stats,
             (int64_t)(clip_norm == 0 ? 0 : count), (int64_t)parts, (int64_t)stride, clip_norm,
             infinity_norm);
}
