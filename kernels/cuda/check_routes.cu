/* check_routes.cu: pen_cuda_check_routes(): whether routes are damaged (kernels/device.h). Launch:
 * a thread for each row. Nothing is written where they are not, so that pinned memory costs
 * nothing; kernels of one stream follow each other, and threads of one write the same tag. */
#include "kernels/cuda/device.cuh"

namespace {

__global__ void __launch_bounds__(THREADS)
    check(volatile uint64_t *found, uint64_t tag, const int32_t *expert, int64_t rows, int choices,
          int experts) {
  const int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (row >= rows) return;
  int last = -1;
  bool damaged = false;
  for (int c = 0; c < choices; c++) {
    const int chosen = expert[row * choices + c];
    damaged |= chosen <= last || chosen >= experts;
    last = chosen;
  }
  if (damaged && *found == 0) *found = tag;
}

} /* namespace */

void pen_cuda_check_routes(uint64_t *found, uint64_t tag, const int32_t *expert, int64_t rows,
                           int64_t choices, int64_t experts, void *stream) {
  PEN_LAUNCH(check, dim3((unsigned)ceiling(rows, THREADS)), dim3(THREADS), 0, stream, found, tag,
             expert, rows, (int)choices, (int)experts);
}
