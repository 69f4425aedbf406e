/* update.cuh: what the optimizers share: launches over the elements of many tensors, a thread block
 * for each RUN elements of a tensor. */
#ifndef PEN_CUDA_UPDATE_CUH
#define PEN_CUDA_UPDATE_CUH

#include "kernels/cuda/tensor_list.cuh"
#include "kernels/cuda/to_bf16.cuh"

namespace {

const int64_t RUN = 16 * 4 * THREADS;

typedef tensor_list<pen_adamw_tensor> update_list;

/* Calls update.at<N>(i) for elements i .. i+N-1 of a run of the tensor, N being 4, and at the
 * tensor's end 1. */
template <class Update>
__device__ inline void each_element(const struct pen_adamw_tensor &tensor, int64_t run,
                                    const Update &update) {
  const int64_t count = (int64_t)tensor.count, past = (run + 1) * RUN;
  for (int64_t i = run * RUN + threadIdx.x * 4; i < past && i < count; i += THREADS * 4) {
    if (i + 4 <= count)
      update.template at<4>(i);
    else
      for (int64_t k = i; k < count; k++) update.template at<1>(k);
  }
}

/* Calls launch(list) for as many tensors as fit into the arguments of a launch, until all are
 * launched. */
template <class Launch>
void each_list(const struct pen_adamw_tensor *tensors, size_t tensor_count, const Launch &launch) {
  update_list list = {};
  for (size_t i = 0; i < tensor_count; i++) {
    list.add(tensors[i], ceiling((int64_t)tensors[i].count, RUN));
    if (!list.is_full() && i + 1 < tensor_count) continue;
    if (list.blocks() > 0) launch(list);
    list.count = 0;
  }
}

} /* namespace */

#endif
