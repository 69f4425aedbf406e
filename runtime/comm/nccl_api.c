/* nccl_api.c: NCCL's functions for nccl_api.h. Compiles with NCCL 2.19 (ncclMemAlloc) or later;
 * with 2.29 or later it has the one-sided calls. Those are weak symbols: a binary with them also
 * starts with an older library, and nccl.c checks the version before it calls them. */
#include "runtime/comm/nccl_api.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(ncclUniqueId) == PEN_NCCL_ID_BYTES, "what open() takes");

static char error_text[300];
static size_t free_before;  /* bytes of the device in use when the first communicator was opened */
static size_t rounded_away; /* bytes that allocate() has added to the sizes requested */

static int check_result(const char *what, ncclComm_t communicator, ncclResult_t result) {
  if (result != ncclSuccess && result != ncclInProgress && error_text[0] == '\0') {
    const char *more = ncclGetLastError(communicator);
    snprintf(error_text, sizeof error_text, "%s: %s%s%.200s", what, ncclGetErrorString(result),
             more[0] == '\0' ? "" : ": ", more);
  }
  return error_text[0] == '\0';
}

static const char *error(void) { return error_text[0] == '\0' ? NULL : error_text; }

static const char *clear_error(void) {
  static char last[sizeof error_text];
  memcpy(last, error_text, sizeof last);
  error_text[0] = '\0';
  return last[0] == '\0' ? NULL : last;
}

static int version(void) {
  int number = 0;
  check_result("asking for its version", NULL, ncclGetVersion(&number));
  return number;
}

static void make_id(unsigned char id[PEN_NCCL_ID_BYTES]) {
  ncclUniqueId made;
  memset(&made, 0, sizeof made);
  check_result("making an id", NULL, ncclGetUniqueId(&made));
  memcpy(id, &made, sizeof made);
}

static size_t free_bytes(void) {
  size_t left = 0, all = 0;
  return cudaMemGetInfo(&left, &all) == cudaSuccess ? left : 0;
}

/* The graphs of a communicator never run concurrently with other graphs or with calls that are not
 * captured. So NCCL need not order them among each other, which it does by events that it adds to
 * each graph, and which has caused deadlocks with several communicators (User Guide, "Using NCCL
 * with CUDA Graphs", NCCL_GRAPH_MIXING_SUPPORT). From 2.29 on this is set in the configuration,
 * before in the environment. */
static ncclConfig_t configuration(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
#if NCCL_VERSION_CODE >= 22900 && !defined PEN_NCCL_OLD_CONFIG
  config.graphUsageMode = 1;
#endif
  return config;
}

enum { CONFIGURED_VERSION = 22900 };

static void *open_all(const unsigned char id[PEN_NCCL_ID_BYTES], int rank_count, int rank) {
  ncclConfig_t config = configuration();
  ncclComm_t made = NULL;
  ncclUniqueId unique;
  memcpy(&unique, id, sizeof unique);
  free_before = free_bytes();
  if (version() < CONFIGURED_VERSION) {
    setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0);
  }
  return check_result("joining all ranks", NULL,
                      ncclCommInitRankConfig(&made, rank_count, unique, rank, &config))
             ? made
             : NULL;
}

static void *split(void *all, int color, int key, int blocks) {
  ncclConfig_t config = configuration();
  ncclComm_t made = NULL;
  config.splitShare = 0; /* a slow pair does not block the others */
  if (blocks != 0) {
    config.maxCTAs = blocks;
  }
  check_result("splitting off ranks", all,
               ncclCommSplit(all, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &made, &config));
  return made;
}

static void *allocate(size_t bytes) {
  void *made = NULL;
  char what[60];
  snprintf(what, sizeof what, "%zu bytes of memory", bytes);
  const size_t before = free_bytes();
  if (!check_result(what, NULL, ncclMemAlloc(&made, bytes))) {
    return NULL;
  }
  const size_t now = free_bytes();
  rounded_away += before > now + bytes ? before - now - bytes : 0;
  return made;
}

static void register_buffer(void *communicator, void *memory, size_t bytes) {
  void *handle = NULL; /* kept until the process ends */
  check_result("registering memory", communicator,
               ncclCommRegister(communicator, memory, bytes, &handle));
}

static void send(void *communicator, const void *from, size_t bytes, int to, void *stream) {
  check_result("a send", communicator, ncclSend(from, bytes, ncclInt8, to, communicator, stream));
}

static void receive(void *communicator, void *to, size_t bytes, int from, void *stream) {
  check_result("a receive", communicator,
               ncclRecv(to, bytes, ncclInt8, from, communicator, stream));
}

static void group_begin(void) { check_result("beginning a group", NULL, ncclGroupStart()); }

static void group_end(void) { check_result("a group of sends and receives", NULL, ncclGroupEnd()); }

/* ---- one-sided calls: signal 0 of context 0, the only ones before 2.32 ---- */

#if NCCL_VERSION_CODE >= 22900
#pragma weak ncclCommWindowRegister
#pragma weak ncclPutSignal
#pragma weak ncclSignal
#pragma weak ncclWaitSignal

static void *open_window(void *communicator, void *memory, size_t bytes) {
  ncclWindow_t made = NULL; /* kept until the process ends */
  check_result("registering a window", communicator,
               ncclCommWindowRegister(communicator, memory, bytes, &made, NCCL_WIN_COLL_SYMMETRIC));
  return made;
}

static void put(void *communicator, const void *from, size_t bytes, int to, void *memory,
                size_t offset, void *stream) {
  check_result(
      "a put", communicator,
      ncclPutSignal(from, bytes, ncclInt8, to, memory, offset, 0, 0, 0, communicator, stream));
}

static void raise_signal(void *communicator, int to, void *stream) {
  check_result("a signal", communicator, ncclSignal(to, 0, 0, 0, communicator, stream));
}

static void wait_signal(void *communicator, int from, void *stream) {
  ncclWaitSignalDesc_t next = {.opCnt = 1, .peer = from};
  check_result("a wait for a signal", communicator, ncclWaitSignal(1, &next, communicator, stream));
}
#endif

static void sum(void *communicator, double *memory, size_t count, void *stream) {
  check_result("a sum over all ranks", communicator,
               ncclAllReduce(memory, memory, count, ncclFloat64, ncclSum, communicator, stream));
}

static int check_cuda(const char *what, cudaError_t result) {
  return check_result(what, NULL, result == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError);
}

static void sum_host(void *communicator, double *host, size_t count, void *stream) {
  void *memory = NULL;
  if (check_cuda("memory for a sum", cudaMalloc(&memory, count * sizeof *host))) {
    check_cuda("a copy",
               cudaMemcpyAsync(memory, host, count * sizeof *host, cudaMemcpyHostToDevice, stream));
    sum(communicator, memory, count, stream);
    check_cuda("a copy",
               cudaMemcpyAsync(host, memory, count * sizeof *host, cudaMemcpyDeviceToHost, stream));
    check_cuda("a sum", cudaStreamSynchronize(stream));
    check_cuda("memory for a sum", cudaFree(memory));
  }
}

static uint64_t memory_bytes(void) {
  const size_t now = free_bytes();
  return rounded_away + (now < free_before ? free_before - now : 0);
}

static const char *async_error(void *communicator) {
  ncclResult_t result = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(communicator, &result);
  result = asked == ncclSuccess ? result : asked;
  return result == ncclSuccess || result == ncclInProgress ? NULL : ncclGetErrorString(result);
}

static void abort_one(void *communicator) { ncclCommAbort(communicator); }

const struct pen_nccl_calls pen_nccl = {
    .version = version,
    .make_id = make_id,
    .open = open_all,
    .split = split,
    .allocate = allocate,
    .register_buffer = register_buffer,
    .send = send,
    .receive = receive,
    .group_begin = group_begin,
    .group_end = group_end,
#if NCCL_VERSION_CODE >= 22900
    .window = open_window,
    .put = put,
    .signal = raise_signal,
    .wait_signal = wait_signal,
#endif
    .sum = sum,
    .sum_host = sum_host,
    .memory_bytes = memory_bytes,
    .error = error,
    .clear_error = clear_error,
    .async_error = async_error,
    .abort = abort_one,
};
