/* chip.c: the limits of the GPU that is open. */
#include "kernels/cuda/cuda.h"

enum { CAPABILITY_MIN = 80 }; /* bf16 tensor cores, asynchronous copies to shared memory */

struct pen_cuda_chip pen_cuda_chip;

static int attribute(int number, enum cudaDeviceAttr which) {
  int value = 0;
  pen_cuda_note("querying the GPU", cudaDeviceGetAttribute(&value, which, number));
  return value;
}

void pen_cuda_chip_open(int number) {
  pen_cuda_chip.capability = 10 * attribute(number, cudaDevAttrComputeCapabilityMajor) +
                             attribute(number, cudaDevAttrComputeCapabilityMinor);
  pen_cuda_chip.processors = attribute(number, cudaDevAttrMultiProcessorCount);
  pen_cuda_chip.shared_bytes = (size_t)attribute(number, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  if (pen_cuda_chip.capability < CAPABILITY_MIN)
    pen_cuda_note_text("querying the GPU", "it is older than compute capability 8.0");
}

void pen_cuda_allow_shared(const char *what, const void *kernel, size_t shared_bytes) {
  if (shared_bytes <= pen_cuda_chip.shared_bytes)
    pen_cuda_note(what, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             (int)shared_bytes));
}
