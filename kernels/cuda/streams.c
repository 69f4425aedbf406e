/* order.c: the CUDA backend's order between calls: events, words that streams write and wait for,
 * graphs, memory of other processes.
 *
 * Own words are the driver's stream memory operations (cuStreamWriteValue32, cuStreamWaitValue32:
 * CUDA Driver API, "Stream Memory Operations"): the wait occupies no processor, the write comes
 * behind all that was before it on the stream, and both can be captured. They are looked up at run
 * time, since a build machine need not have the driver's library. Since CUDA 13.1 the write does
 * not reach another GPU's memory (NVIDIA/nccl#2052), so that a word there is copied to, from a 1 in
 * own memory. A GPU that may see what came from elsewhere, a message and then its word, in another
 * order is told to flush at the wait (cuda.h, CU_STREAM_WAIT_VALUE_FLUSH). */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

_Static_assert(sizeof(cudaIpcMemHandle_t) == PEN_SHARED_NAME_BYTES,
               "a block's name between processes");

enum { DRIVER_VERSION = 12000 }; /* whose signatures the two have */

typedef CUresult word_call(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned flags);
static word_call *write_word, *wait_word;
static unsigned wait_flags;
static uint32_t *one; /* on the GPU */

static word_call *find_call(const char *name) {
  void *found = NULL;
  enum cudaDriverEntryPointQueryResult result;
  pen_cuda_note(name, cudaGetDriverEntryPointByVersion(name, &found, DRIVER_VERSION,
                                                       cudaEnableDefault, &result));
  if (found == NULL) pen_cuda_note_text(name, "the driver does not have it");
  word_call *call;
  memcpy(&call, &found, sizeof call);
  return call;
}

void pen_cuda_streams_open(int number) {
  int flushes = 0;
  pen_cuda_note("asking the GPU",
                cudaDeviceGetAttribute(&flushes, cudaDevAttrCanFlushRemoteWrites, number));
  wait_flags = CU_STREAM_WAIT_VALUE_EQ | (flushes ? CU_STREAM_WAIT_VALUE_FLUSH : 0);
  write_word = find_call("cuStreamWriteValue32");
  wait_word = find_call("cuStreamWaitValue32");
  const uint32_t value = 1;
  void *made = NULL;
  pen_cuda_note("memory for a word", cudaMalloc(&made, sizeof *one));
  pen_cuda_note("writing a word", cudaMemcpy(made, &value, sizeof *one, cudaMemcpyHostToDevice));
  pen_cuda_note("writing a word", cudaDeviceSynchronize());
  one = made;
}

static void note_word(const char *what, CUresult result) {
  char why[40];
  snprintf(why, sizeof why, "CUDA driver error %d", (int)result);
  if (result != CUDA_SUCCESS) pen_cuda_note_text(what, why);
}

void pen_cuda_signal(uint32_t *semaphore, uint32_t value, void *stream) {
  note_word("writing a word", write_word(stream, (CUdeviceptr)(uintptr_t)semaphore, value,
                                         CU_STREAM_WRITE_VALUE_DEFAULT));
}

void pen_cuda_wait_value(uint32_t *semaphore, uint32_t value, void *stream) {
  note_word("waiting for a word",
            wait_word(stream, (CUdeviceptr)(uintptr_t)semaphore, value, wait_flags));
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
  pen_cuda_note("naming memory for other processes", result);
  memcpy(name, &handle, sizeof handle);
  return result == cudaSuccess;
}

void *pen_cuda_import_memory(const unsigned char name[PEN_SHARED_NAME_BYTES]) {
  cudaIpcMemHandle_t handle;
  void *block = NULL;
  memcpy(&handle, name, sizeof handle);
  pen_cuda_note("opening another process's memory",
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
  pen_cuda_note("following an event", cudaStreamWaitEvent(stream, event, cudaEventWaitDefault));
}

int pen_cuda_event_query(void *event) {
  const cudaError_t result = cudaEventQuery(event);
  if (result == cudaErrorNotReady) {
    (void)cudaGetLastError(); /* no error that a launch after it should find */
    return 0;
  }
  pen_cuda_note("the GPU's work", result);
  return 1;
}

/* ---- graphs ---- */

static char before[200]; /* the first error, as it was when capturing began */

void pen_cuda_capture_begin(void *stream) {
  snprintf(before, sizeof before, "%s", pen_cuda_forget(""));
  pen_cuda_note("capturing", cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

void *pen_cuda_capture_end(void *stream, const char **why) {
  cudaGraph_t graph = NULL;
  cudaGraphExec_t ready = NULL;
  pen_cuda_note("ending a capture", cudaStreamEndCapture(stream, &graph));
  if (graph != NULL) pen_cuda_note("making a graph", cudaGraphInstantiate(&ready, graph, 0));
  if (ready != NULL) pen_cuda_note("loading a graph", cudaGraphUpload(ready, stream));
  if (graph != NULL) pen_cuda_note("dropping a graph's outline", cudaGraphDestroy(graph));
  cudaGetLastError(); /* a capture that failed leaves its error behind */
  *why = pen_cuda_forget(before);
  if (**why != '\0' && ready != NULL) {
    cudaGraphExecDestroy(ready);
    ready = NULL;
  }
  return ready;
}

void pen_cuda_graph_destroy(void *graph) {
  pen_cuda_note("dropping a graph", cudaGraphExecDestroy(graph));
}

void pen_cuda_graph_launch(void *graph, void *stream) {
  pen_cuda_note("a step", cudaGraphLaunch(graph, stream));
}
