/* balance.cu: pen_cuda_balance_step() and pen_cuda_choices_step(): what updates the bias of a
 * router and its counts of choices, with the bits of the CPU (kernels/device.h). A scale of NaN
 * skips the step. Launch: a block for each tensor, which has at most RUN elements; of balance each
 * thread adds all of them, which are whole numbers. */
#include "kernels/cuda/update.cuh"

namespace {

__global__ void __launch_bounds__(THREADS)
    balance(const update_list list, const struct pen_adamw *settings) {
  int64_t run;
  const struct pen_adamw_tensor t = list.own(&run);
  const int64_t count = (int64_t)t.count;
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += (double)t.gradient[i];
  __syncthreads(); /* all have read what becomes zero */
  for (int64_t i = threadIdx.x; i < count; i += THREADS) {
    const double over = (double)t.gradient[i] * (double)count - sum;
    if (!isnan(settings->gradient_scale))
      t.parameter[i] += (float)(over < 0 ? t.rate : over > 0 ? -t.rate : 0);
    t.gradient[i] = 0;
  }
}

__global__ void __launch_bounds__(THREADS)
    keep_choices(const update_list list, const struct pen_adamw *settings) {
  int64_t run;
  const struct pen_adamw_tensor t = list.own(&run);
  for (int64_t i = threadIdx.x; i < (int64_t)t.count; i += THREADS) {
    if (!isnan(settings->gradient_scale)) t.parameter[i] = t.exp_avg[i] = t.gradient[i];
    t.gradient[i] = 0;
  }
}

} /* namespace */

void pen_cuda_balance_step(const struct pen_adamw_tensor *tensors, size_t tensor_count,
                           const struct pen_adamw *settings, void *stream) {
  each_list(tensors, tensor_count, [&](const update_list &list) {
    PEN_LAUNCH(balance, dim3(list.blocks()), dim3(THREADS), 0, stream, list, settings);
  });
}

void pen_cuda_choices_step(const struct pen_adamw_tensor *tensors, size_t tensor_count,
                           const struct pen_adamw *settings, void *stream) {
  each_list(tensors, tensor_count, [&](const update_list &list) {
    PEN_LAUNCH(keep_choices, dim3(list.blocks()), dim3(THREADS), 0, stream, list, settings);
  });
}
