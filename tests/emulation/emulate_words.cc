/* emulate_words.cc: the driver's operations on words of memory, which streams write and wait for,
 * and the names of its errors, for kernels that emulate.cc runs on the host. A batch of operations
 * is one call of the stream, whose operations are executed in order. */
#include <cuda.h>

#include <memory>
#include <vector>

#include "tests/emulation/emulate.h"

namespace emulated {
namespace {

/* Since CUDA 13.1 words of another GPU are not written: here the allocations of other processes
 * take that role. */
bool may_write(CUstream s, CUdeviceptr word) {
  const void *at = (const void *)word;
  if (is_pinned(at) && is_captured(s) && is_refused("pinned")) refuse_capture();
  return word % sizeof(uint32_t) == 0 && (is_own(at) || is_pinned(at));
}

/* Without a flush the data before the word might not be visible yet after it. */
bool may_wait(CUdeviceptr word, unsigned flags) {
  return word % sizeof(uint32_t) == 0 &&
         flags == (CU_STREAM_WAIT_VALUE_EQ | CU_STREAM_WAIT_VALUE_FLUSH);
}

bool is_waiting(CUdeviceptr word, cuuint32_t value) {
  return __atomic_load_n((const uint32_t *)word, __ATOMIC_SEQ_CST) != value;
}

void write(CUdeviceptr word, cuuint32_t value) {
  __atomic_store_n((uint32_t *)word, value, __ATOMIC_SEQ_CST);
}

CUresult write_value(CUstream s, CUdeviceptr word, cuuint32_t value, unsigned) {
  if (!may_write(s, word)) return CUDA_ERROR_INVALID_VALUE;
  enqueue(
      s, [=] { write(word, value); }, "write");
  return CUDA_SUCCESS;
}

CUresult wait_value(CUstream s, CUdeviceptr word, cuuint32_t value, unsigned flags) {
  if (!may_wait(word, flags)) return CUDA_ERROR_INVALID_VALUE;
  enqueue_poll(
      s, [=] { return !is_waiting(word, value); }, "wait");
  return CUDA_SUCCESS;
}

/* Each replay of a graph begins with the first operation. */
CUresult run_batch(CUstream s, unsigned count, CUstreamBatchMemOpParams *given, unsigned flags) {
  const std::vector<CUstreamBatchMemOpParams> operations(given, given + count);
  bool right = count > 0 && count < 256 && flags == 0;
  for (const auto &each : operations)
    right = right && (each.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32
                          ? may_wait(each.waitValue.address, each.waitValue.flags)
                          : each.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 &&
                                may_write(s, each.writeValue.address));
  if (!right) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<size_t> done(new size_t(0));
  enqueue_poll(
      s,
      [=] {
        for (; *done < operations.size(); ++*done) {
          const auto &next = operations[*done];
          if (next.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32)
            write(next.writeValue.address, next.writeValue.value);
          else if (is_waiting(next.waitValue.address, next.waitValue.value))
            return false;
        }
        *done = 0;
        return true;
      },
      "batch");
  return CUDA_SUCCESS;
}

CUresult tell(CUresult result, const char *invalid, const char **text) {
  *text = result == CUDA_ERROR_INVALID_VALUE ? invalid : NULL;
  return *text == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult error_name(CUresult result, const char **text) {
  return tell(result, "CUDA_ERROR_INVALID_VALUE", text);
}
CUresult error_string(CUresult result, const char **text) {
  return tell(result, "invalid argument", text);
}

} // namespace
} // namespace emulated

using namespace emulated;

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **found, unsigned,
                                                        unsigned long long,
                                                        cudaDriverEntryPointQueryResult *result) {
  static const struct {
    const char *name;
    void *call;
  } driver[] = {{"cuStreamWriteValue32", (void *)write_value},
                {"cuStreamWaitValue32", (void *)wait_value},
                {"cuStreamBatchMemOp", (void *)run_batch},
                {"cuGetErrorName", (void *)error_name},
                {"cuGetErrorString", (void *)error_string}};
  *found = NULL;
  for (const auto &each : driver)
    if (strcmp(symbol, each.name) == 0) *found = each.call;
  *result = *found == NULL ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
