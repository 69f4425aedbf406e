/* tensor_list.cuh: one launch over several tensors. As in PyTorch's multi_tensor_apply, what
 * belongs to them is passed as launch arguments, of which there are 4 KiB: that needs no device
 * memory, and a graph keeps it. A longer list takes several launches. */
#ifndef PEN_CUDA_TENSOR_LIST_CUH
#define PEN_CUDA_TENSOR_LIST_CUH

#include "kernels/cuda/device.cuh"

enum { LAUNCH_ARGUMENT_BYTES = 4096, OTHER_ARGUMENT_BYTES = 16 };

/* T: what a kernel is to know of a tensor. Each tensor has some thread blocks, or none. */
template <class T>
struct tensor_list {
  enum {
    MOST = (LAUNCH_ARGUMENT_BYTES - OTHER_ARGUMENT_BYTES - 8 /* count, padding */) /
           (int)(sizeof(T) + sizeof(uint32_t))
  };
  T tensor[MOST];
  uint32_t past[MOST]; /* the thread blocks of this tensor and those before it */
  int count;

  uint32_t blocks() const { return count ? past[count - 1] : 0; }
  bool is_full() const { return count == MOST; }
  void add(const T &added, int64_t thread_blocks) {
    static_assert(sizeof *this <= LAUNCH_ARGUMENT_BYTES - OTHER_ARGUMENT_BYTES, "one launch");
    const uint32_t before = blocks();
    tensor[count] = added;
    past[count++] = before + (uint32_t)thread_blocks;
  }

  /* The tensor of this thread block, and the block's number among those of the tensor. */
  __device__ const T &own(int64_t *block) const {
    int low = 0, high = count - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (past[middle] > blockIdx.x)
        high = middle;
      else
        low = middle + 1;
    }
    *block = blockIdx.x - (low ? past[low - 1] : 0);
    return tensor[low];
  }
};

#endif
