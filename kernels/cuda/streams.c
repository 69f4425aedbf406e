/* streams.c: the CUDA backend's events, semaphores, graphs, and memory shared between processes.
 *
 * Semaphores use the driver's stream memory operations (cuStreamWriteValue32, cuStreamWaitValue32:
 * CUDA Driver API, "Stream Memory Operations"): the wait occupies no processor, the write follows
 * all earlier work of the stream, and both can be captured. They are looked up at run time, because
 * a build machine need not have the driver's library. Since CUDA 13.1 the write does not reach
 * another GPU's memory (NVIDIA/nccl#2052): a remote semaphore is set by copying a 1 from local
 * memory. A GPU that may observe remote writes, data and then a semaphore, out of order flushes
 * them at the wait (cuda.h, CU_STREAM_WAIT_VALUE_FLUSH). */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

_Static_assert(sizeof(cudaIpcMemHandle_t) == PEN_SHARED_NAME_BYTES, "an IPC handle has this size");

enum { DRIVER_VERSION = 12000 }; /* the version of both signatures */

typedef CUresult memory_operation(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                  unsigned flags);
static memory_operation *write_value, *wait_value;
static unsigned wait_flags;
static uint32_t *one; /* on the GPU: the value 1 */

static memory_operation *find_operation(const char *name) {
  void *found = NULL;
  enum cudaDriverEntryPointQueryResult result;
  pen_cuda_note(name, cudaGetDriverEntryPointByVersion(name, &found, DRIVER_VERSION,
                                                       cudaEnableDefault, &result));
  if (found == NULL) pen_cuda_note_text(name, "the driver does not have it");
  memory_operation *call;
  memcpy(&call, &found, sizeof call);
  return call;
}

void pen_cuda_streams_open(int number) {
  int flushes = 0;
  pen_cuda_note("querying the GPU",
                cudaDeviceGetAttribute(&flushes, cudaDevAttrCanFlushRemoteWrites, number));
  wait_flags = CU_STREAM_WAIT_VALUE_EQ | (flushes ? CU_STREAM_WAIT_VALUE_FLUSH : 0);
  write_value = find_operation("cuStreamWriteValue32");
  wait_value = find_operation("cuStreamWaitValue32");
  const uint32_t value = 1;
  void *made = NULL;
  pen_cuda_note("memory for a semaphore", cudaMalloc(&made, sizeof *one));
  pen_cuda_note("writing a semaphore",
                cudaMemcpy(made, &value, sizeof *one, cudaMemcpyHostToDevice));
  pen_cuda_note("writing a semaphore", cudaDeviceSynchronize());
  one = made;
}

static void note_driver(const char *what, CUresult result) {
  char why[40];
  snprintf(why, sizeof why, "CUDA driver error %d", (int)result);
  if (result != CUDA_SUCCESS) pen_cuda_note_text(what, why);
}

void pen_cuda_signal(uint32_t *semaphore, uint32_t value, void *stream) {
  note_driver("writing a semaphore", write_value(stream, (CUdeviceptr)(uintptr_t)semaphore, value,
                                                 CU_STREAM_WRITE_VALUE_DEFAULT));
}

void pen_cuda_wait_value(uint32_t *semaphore, uint32_t value, void *stream) {
  note_driver("waiting for a semaphore",
              wait_value(stream, (CUdeviceptr)(uintptr_t)semaphore, value, wait_flags));
}

/* ---- memory ---- */

void *pen_cuda_allocate_host(size_t bytes) {
  void *block = NULL;
  char what[60];
  snprintf(what, sizeof what, "%zu bytes of pinned memory", bytes);
  pen_cuda_note(what, cudaHostAlloc(&block, bytes, cudaHostAllocPortable));
  return block;
}

void pen_cuda_copy(void *to, const void *from, size_t bytes, void *stream) {
  pen_cuda_note("a copy on the GPU",
                cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

void pen_cuda_signal_remote(uint32_t *semaphore, void *stream) {
  pen_cuda_copy(semaphore, one, sizeof *one, stream);
}

int pen_cuda_export_memory(void *memory, unsigned char name[PEN_SHARED_NAME_BYTES]) {
  cudaIpcMemHandle_t handle;
  const cudaError_t result = cudaIpcGetMemHandle(&handle, memory);
  pen_cuda_note("exporting memory", result);
  memcpy(name, &handle, sizeof handle);
  return result == cudaSuccess;
}

void *pen_cuda_import_memory(const unsigned char name[PEN_SHARED_NAME_BYTES]) {
  cudaIpcMemHandle_t handle;
  void *block = NULL;
  memcpy(&handle, name, sizeof handle);
  pen_cuda_note("importing memory",
                cudaIpcOpenMemHandle(&block, handle, cudaIpcMemLazyEnablePeerAccess));
  return block;
}

/* ---- events ---- */

void *pen_cuda_event_create(void) {
  cudaEvent_t event = NULL;
  pen_cuda_note("an event", cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

void pen_cuda_event_record(void *event, void *stream) {
  pen_cuda_note("recording an event", cudaEventRecord(event, stream));
}

void pen_cuda_stream_wait_event(void *stream, void *event) {
  pen_cuda_note("waiting for an event", cudaStreamWaitEvent(stream, event, cudaEventWaitDefault));
}

int pen_cuda_event_query(void *event) {
  const cudaError_t result = cudaEventQuery(event);
  if (result == cudaErrorNotReady) {
    (void)cudaGetLastError(); /* so that a later launch does not report it */
    return 0;
  }
  pen_cuda_note("the GPU's work", result);
  return 1;
}

/* ---- graphs ---- */

static char error_before[200]; /* the first error when the capture began */

void pen_cuda_capture_begin(void *stream) {
  snprintf(error_before, sizeof error_before, "%s", pen_cuda_replace_error(""));
  pen_cuda_note("beginning a capture",
                cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

void *pen_cuda_capture_end(void *stream, const char **why) {
  cudaGraph_t graph = NULL;
  cudaGraphExec_t ready = NULL;
  pen_cuda_note("ending a capture", cudaStreamEndCapture(stream, &graph));
  if (graph != NULL) pen_cuda_note("instantiating a graph", cudaGraphInstantiate(&ready, graph, 0));
  if (ready != NULL) pen_cuda_note("uploading a graph", cudaGraphUpload(ready, stream));
  if (graph != NULL) pen_cuda_note("destroying a captured graph", cudaGraphDestroy(graph));
  (void)cudaGetLastError(); /* a failed capture leaves its error set */
  *why = pen_cuda_replace_error(error_before);
  if (**why != '\0' && ready != NULL) {
    cudaGraphExecDestroy(ready);
    ready = NULL;
  }
  return ready;
}

void pen_cuda_graph_destroy(void *graph) {
  pen_cuda_note("destroying a graph", cudaGraphExecDestroy(graph));
}

void pen_cuda_graph_launch(void *graph, void *stream) {
  pen_cuda_note("launching a graph", cudaGraphLaunch(graph, stream));
}
