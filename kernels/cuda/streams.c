/* streams.c: the CUDA backend's events, semaphores, graphs, and memory shared between processes.
 *
 * Semaphores use the driver's stream memory operations (cuStreamWriteValue32, cuStreamWaitValue32,
 * and both in a batch, cuStreamBatchMemOp, whose operations are executed in order: CUDA Driver API,
 * "Stream Memory Operations"): the wait occupies no processor, the write follows all earlier work
 * of the stream, and all can be captured; a batch is one node. They are looked up at run time,
 * because a build machine need not have the driver's library. Since CUDA 13.1 the write does not
 * reach another GPU's memory (NVIDIA/nccl#2052): a remote semaphore is set by copying a 1 from
 * local memory. A GPU that may observe remote writes, data and then a semaphore, out of order
 * flushes them at the wait (cuda.h, CU_STREAM_WAIT_VALUE_FLUSH). */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

_Static_assert(sizeof(cudaIpcMemHandle_t) == PEN_SHARED_NAME_BYTES, "an IPC handle has this size");

enum {
  DRIVER_VERSION = 12000, /* the version of all signatures */
  BATCH_MOST = 127        /* semaphores: a batch has fewer than 256 operations (cuda.h) */
};

typedef CUresult memory_operation(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                  unsigned flags);
static memory_operation *write_value, *wait_value;
static CUresult (*run_batch)(CUstream stream, unsigned count, CUstreamBatchMemOpParams *operations,
                             unsigned flags);
static CUresult (*name_of)(CUresult result, const char **text);
static CUresult (*meaning_of)(CUresult result, const char **text);
static unsigned wait_flags;
static uint32_t *one; /* on the GPU: the value 1 */

/* *call, a pointer to a function, becomes the driver's function of that name. */
static void find_call(const char *name, void *call) {
  void *found = NULL;
  enum cudaDriverEntryPointQueryResult result;
  pen_cuda_note(name, cudaGetDriverEntryPointByVersion(name, &found, DRIVER_VERSION,
                                                       cudaEnableDefault, &result));
  if (found == NULL) pen_cuda_note_text(name, "the driver does not have it");
  memcpy(call, &found, sizeof found);
}

void pen_cuda_streams_open(int number) {
  int flushes = 0;
  pen_cuda_note("querying the GPU",
                cudaDeviceGetAttribute(&flushes, cudaDevAttrCanFlushRemoteWrites, number));
  wait_flags = CU_STREAM_WAIT_VALUE_EQ | (flushes ? CU_STREAM_WAIT_VALUE_FLUSH : 0);
  find_call("cuStreamWriteValue32", &write_value);
  find_call("cuStreamWaitValue32", &wait_value);
  find_call("cuStreamBatchMemOp", &run_batch);
  find_call("cuGetErrorName", &name_of);
  find_call("cuGetErrorString", &meaning_of);
  const uint32_t value = 1;
  void *made = NULL;
  pen_cuda_note("memory for a semaphore", cudaMalloc(&made, sizeof *one));
  pen_cuda_note("writing a semaphore",
                cudaMemcpy(made, &value, sizeof *one, cudaMemcpyHostToDevice));
  pen_cuda_note("writing a semaphore", cudaDeviceSynchronize());
  one = made;
}

/* A driver that is older than the error does not know its name. */
static void note_driver(const char *what, CUresult result) {
  char why[160];
  const char *name = NULL, *meaning = NULL;
  if (result == CUDA_SUCCESS) return;
  (void)name_of(result, &name), (void)meaning_of(result, &meaning);
  snprintf(why, sizeof why, "%s (%s, %d)", meaning == NULL ? "unknown" : meaning,
           name == NULL ? "a driver error" : name, (int)result);
  pen_cuda_note_text(what, why);
}

void pen_cuda_signal(uint32_t *semaphore, uint32_t value, void *stream) {
  note_driver("writing a semaphore", write_value(stream, (CUdeviceptr)(uintptr_t)semaphore, value,
                                                 CU_STREAM_WRITE_VALUE_DEFAULT));
}

void pen_cuda_wait_value(uint32_t *semaphore, uint32_t value, void *stream) {
  note_driver("waiting for a semaphore",
              wait_value(stream, (CUdeviceptr)(uintptr_t)semaphore, value, wait_flags));
}

void pen_cuda_take(uint32_t *const *semaphores, size_t count, void *stream) {
  CUstreamBatchMemOpParams operations[2 * BATCH_MOST];
  for (size_t first = 0, batch; first < count; first += batch) {
    batch = count - first < BATCH_MOST ? count - first : BATCH_MOST;
    memset(operations, 0, 2 * batch * sizeof *operations);
    for (size_t i = 0; i < batch; i++) {
      const CUdeviceptr address = (CUdeviceptr)(uintptr_t)semaphores[first + i];
      operations[2 * i].waitValue = (struct CUstreamMemOpWaitValueParams_st){
          CU_STREAM_MEM_OP_WAIT_VALUE_32, address, {.value = 1}, wait_flags, 0};
      operations[2 * i + 1].writeValue = (struct CUstreamMemOpWriteValueParams_st){
          CU_STREAM_MEM_OP_WRITE_VALUE_32, address, {.value = 0}, CU_STREAM_WRITE_VALUE_DEFAULT, 0};
    }
    note_driver("taking semaphores", run_batch(stream, (unsigned)(2 * batch), operations, 0));
  }
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

/* In a capture a wait for an event adds an edge from what precedes the event, also where the stream
 * follows it anyway. Without such edges calls on one stream are one chain of nodes. */
struct cuda_event {
  cudaEvent_t event;
  void *stream; /* of the last record; null: none */
};

void *pen_cuda_event_create(void) {
  struct cuda_event *made = calloc(1, sizeof *made);
  if (made == NULL)
    pen_cuda_note_text("an event", "no memory");
  else
    pen_cuda_note("an event", cudaEventCreateWithFlags(&made->event, cudaEventDisableTiming));
  return made;
}

void pen_cuda_event_record(void *event, void *stream) {
  struct cuda_event *recorded = event;
  recorded->stream = stream;
  pen_cuda_note("recording an event", cudaEventRecord(recorded->event, stream));
}

void pen_cuda_stream_wait_event(void *stream, void *event) {
  const struct cuda_event *awaited = event;
  if (awaited->stream == stream) return;
  pen_cuda_note("waiting for an event",
                cudaStreamWaitEvent(stream, awaited->event, cudaEventWaitDefault));
}

int pen_cuda_event_query(void *event) {
  const cudaError_t result = cudaEventQuery(((const struct cuda_event *)event)->event);
  if (result == cudaErrorNotReady) {
    (void)cudaGetLastError(); /* so that a later launch does not report it */
    return 0;
  }
  pen_cuda_note("the GPU's work", result);
  return 1;
}

/* ---- graphs ---- */

struct cuda_graph {
  cudaGraph_t captured; /* kept for figures and drawings */
  cudaGraphExec_t ready;
  size_t bytes;
};

static char error_before[200]; /* the first error when the capture began */
static size_t free_before;     /* bytes of the GPU's memory, likewise */

static size_t free_bytes(void) {
  size_t bytes = 0, all = 0;
  pen_cuda_note("asking for free memory", cudaMemGetInfo(&bytes, &all));
  return bytes;
}

void pen_cuda_capture_begin(void *stream) {
  free_before = free_bytes();
  snprintf(error_before, sizeof error_before, "%s", pen_cuda_replace_error(""));
  pen_cuda_note("beginning a capture",
                cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

static void destroy(struct cuda_graph *graph) {
  if (graph->ready != NULL) pen_cuda_note("destroying a graph", cudaGraphExecDestroy(graph->ready));
  if (graph->captured != NULL)
    pen_cuda_note("destroying a captured graph", cudaGraphDestroy(graph->captured));
}

/* The upload is waited for: what it allocates is part of the graph's bytes. */
static void make_ready(struct cuda_graph *graph, void *stream) {
  pen_cuda_note("instantiating a graph", cudaGraphInstantiate(&graph->ready, graph->captured, 0));
  if (graph->ready == NULL) return;
  pen_cuda_note("uploading a graph", cudaGraphUpload(graph->ready, stream));
  pen_cuda_note("uploading a graph", cudaStreamSynchronize(stream));
  const size_t left = free_bytes();
  graph->bytes = left < free_before ? free_before - left : 0;
}

void *pen_cuda_capture_end(void *stream, const char **why) {
  struct cuda_graph made = {0}, *kept = malloc(sizeof *kept);
  if (kept == NULL) pen_cuda_note_text("a graph", "no memory");
  pen_cuda_note("ending a capture", cudaStreamEndCapture(stream, &made.captured));
  if (made.captured != NULL) make_ready(&made, stream);
  if (pen_cuda_error() != NULL) {
    destroy(&made);
    free(kept);
    kept = NULL;
  } else {
    *kept = made;
  }
  (void)cudaGetLastError(); /* a failed capture leaves its error set */
  *why = pen_cuda_replace_error(error_before);
  return kept;
}

void pen_cuda_graph_destroy(void *graph) {
  destroy(graph);
  free(graph);
}

void pen_cuda_graph_launch(void *graph, void *stream) {
  pen_cuda_note("launching a graph", cudaGraphLaunch(((struct cuda_graph *)graph)->ready, stream));
}

struct pen_graph_figures pen_cuda_graph_figures(const void *graph) {
  const struct cuda_graph *made = graph;
  struct pen_graph_figures figures = {.bytes = made->bytes};
  pen_cuda_note("counting the nodes of a graph",
                cudaGraphGetNodes(made->captured, NULL, &figures.nodes));
  return figures;
}

void pen_cuda_graph_write(const void *graph, const char *path) {
  pen_cuda_note(path, cudaGraphDebugDotPrint(((const struct cuda_graph *)graph)->captured, path,
                                             cudaGraphDebugDotFlagsVerbose));
}
