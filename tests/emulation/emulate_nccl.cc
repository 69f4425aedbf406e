/* emulate_nccl.cc: an emulation of NCCL for tests: the functions that runtime/comm/nccl_api.c
 * calls, between processes of one host, over memory that they share. It has what the library's
 * guide promises, and no more: sends and receives of a pair match in order; a message up to a
 * buffer's size (NCCL_BUFFSIZE, at most 64 KiB) may be sent before its receive is called, a larger
 * one may not; calls that make communicators block until all ranks have called them. Calls are
 * enqueued on the streams of emulate_streams.cc. They can be captured if registered memory has been
 * used with that rank before. It does not show the library's speed, its errors, or a network.
 *
 * One-sided calls are those of NCCL 2.29 and later (nccl_one_sided.h declares them if <nccl.h> is
 * older), as the guide and the sources describe them: a window covers a whole allocation of
 * ncclMemAlloc, of one size on all ranks before 2.32; a put reads registered memory, writes, and
 * then raises a signal; calls that are not captured count signals; captured (from 2.30 on) each
 * signal is a flag: the next put waits until it was taken, and calls that are not captured do not
 * see it.
 *
 * The id names a file that all ranks map: a table of communicators, each with two rings of bytes
 * (one for each direction, for pairs), a board on which ranks write their colors and keys, and
 * memory for a sum. Environment variables: PEN_EMULATED_NCCL_TROUBLE=R,BYTES: for rank R every pair
 * reports a remote error after so many bytes, as if a connection broke.
 * PEN_EMULATED_NCCL_PEERS=FILE: so do all communicators of peers, once the file exists. A call that
 * aborts does not return while a graph exists that may use the communicator.
 * PEN_EMULATED_NCCL_VERSION is the version that the library reports. PEN_EMULATED_NCCL_NO_WINDOW=R:
 * rank R gets no window, nor do the other ranks of its pairs. PEN_EMULATED_NCCL_NO_CAPTURE=R:
 * captured calls of rank R fail. PEN_EMULATED_NCCL_NO_SIGNAL=R: one-sided calls of rank R fail.
 * PEN_EMULATED_NCCL_NO_REGISTER=R: it registers no memory. PEN_EMULATED_NCCL_SILENT=R: messages of
 * rank R are never sent. PEN_EMULATED_NCCL_ABSENT=R: rank R never joins the others. */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <fcntl.h>
#include <nccl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/emulation/emulate.h"
#include "tests/emulation/nccl_one_sided.h"

enum {
  RANKS_MAX = 16,
  PEERS_MAX = 4,
  AREAS_MAX = 128,
  RING_BYTES = 1 << 16,
  SUM_MAX = 4096,
  PATIENCE_S = 60
};

/* One direction of a pair: bytes written and read since the start. */
struct ring {
  std::atomic<uint64_t> put, taken;
  unsigned char bytes[RING_BYTES];
};

/* Signals to one rank of a pair. */
struct signals {
  std::atomic<uint64_t> count; /* of calls that are not captured, since the start */
  std::atomic<uint32_t> flag;  /* of captured calls: 1: raised and not taken */
};

/* Memory that a rank has opened to others. */
struct opened {
  cudaIpcMemHandle_t name;
  size_t bytes;
  bool none;
};

/* What the ranks of one communicator share. */
struct area {
  struct signals signals[2]; /* to rank 0, to rank 1 */
  struct opened opened[2];
  std::atomic<uint64_t> bytes_put;
  std::atomic<uint32_t> windows[2];         /* requested by a rank */
  std::atomic<uint64_t> key;                /* the split that made it; 0: free */
  struct ring ring[PEERS_MAX][PEERS_MAX];   /* [from][to] */
  std::atomic<uint32_t> arrived[RANKS_MAX]; /* splits and sums that a rank has called */
  int colour[2][RANKS_MAX], order[2][RANKS_MAX];
  std::atomic<uint32_t> summed[RANKS_MAX];
  double part[2][RANKS_MAX][SUM_MAX];
};

struct world {
  struct area area[AREAS_MAX];
};

struct ncclComm {
  struct world *world;
  struct area *area;
  int rank, count, world_rank;
  uint32_t splits, sums;
  uint64_t taken;            /* signals waited for, of calls that are not captured */
  unsigned char *peer, *own; /* windows of a pair; null: none */
  size_t receive_bytes;
  std::map<unsigned char *, size_t> enrolled; /* memory and its bytes */
  std::set<std::pair<unsigned char *, int>>
      known; /* of that, what has been used with a rank; -1: with all */
};

struct emulated_id {
  int process, file;
};

enum { COMMUNICATOR_BYTES = 1 << 20 }; /* of the device's memory */

static double seconds() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A rank that waits longer than a minute for others to call never continues. */
template <class CONDITION>
static bool wait_for(CONDITION condition) {
  const double end = seconds() + PATIENCE_S;
  for (unsigned looks = 0; !condition(); looks++) {
    if (seconds() > end) return false;
    emulated::rest(looks);
  }
  return true;
}

/* The entry for a key: the first rank that asks takes a free one. */
static struct area *find_area(struct world *world, uint64_t key) {
  for (struct area &area : world->area) {
    uint64_t seen = 0;
    if (area.key.compare_exchange_strong(seen, key) || seen == key) return &area;
  }
  return NULL;
}

static size_t bytes_of(ncclDataType_t type) {
  return type == ncclInt8 ? 1 : type == ncclFloat64 ? 8 : 0;
}

extern "C" {

const char *ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess       ? "no error"
         : result == ncclRemoteError ? "remote process exited or there was a network error"
                                     : "an error";
}
const char *ncclGetLastError(ncclComm_t) { return ""; }

static int said(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text == NULL ? otherwise : atoi(text);
}

ncclResult_t ncclGetVersion(int *version) {
  return *version = said("PEN_EMULATED_NCCL_VERSION", NCCL_VERSION_CODE), ncclSuccess;
}

static int version() {
  int number;
  ncclGetVersion(&number);
  return number;
}

/* Whether a call of the library may be captured; if it is not captured, no graph may be running
 * (NCCL_GRAPH_MIXING_SUPPORT=0). */
static bool refuses(ncclComm_t comm, cudaStream_t stream, int since) {
  if (!emulated::is_captured(stream)) return emulated::replays();
  const bool refused =
      version() < since || said("PEN_EMULATED_NCCL_NO_CAPTURE", -1) == comm->world_rank;
  if (refused) emulated::refuse_capture();
  return refused;
}

/* The same for one-sided calls. */
static bool refuses_one_sided(ncclComm_t comm, cudaStream_t stream) {
  return said("PEN_EMULATED_NCCL_NO_SIGNAL", -1) == comm->world_rank ||
         refuses(comm, stream, 23000);
}

/* Allocations of ncclMemAlloc. */
static std::map<void *, size_t> &blocks() {
  static std::map<void *, size_t> map;
  return map;
}

ncclResult_t ncclMemAlloc(void **made, size_t bytes) {
  const cudaError_t result = cudaMalloc(made, bytes);
  if (result == cudaSuccess) blocks()[*made] = bytes;
  return result == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  const struct emulated_id name = {getpid(), memfd_create("emulated nccl", MFD_CLOEXEC)};
  memset(id, 0, sizeof *id);
  memcpy(id, &name, sizeof name);
  return name.file >= 0 && ftruncate(name.file, sizeof(struct world)) == 0 ? ncclSuccess
                                                                           : ncclSystemError;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *made, int count, ncclUniqueId id, int rank,
                                    ncclConfig_t *) {
  struct emulated_id name;
  char path[64];
  memcpy(&name, &id, sizeof name);
  snprintf(path, sizeof path, "/proc/%d/fd/%d", name.process, name.file);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0 || rank < 0 || rank >= count || count > RANKS_MAX) return ncclInvalidArgument;
  struct world *world =
      (struct world *)mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (world == MAP_FAILED) return ncclSystemError;
  while (said("PEN_EMULATED_NCCL_ABSENT", -1) == rank) pause();
  struct area *area = find_area(world, 1);
  emulated::hold(COMMUNICATOR_BYTES);
  *made = new ncclComm{world, area, rank, count, rank, 0, 0, 0, NULL, NULL, 0, {}, {}};
  area->arrived[rank]++;
  const bool all = wait_for([&] {
    return std::all_of(area->arrived, area->arrived + count, [](auto &a) { return a > 0; });
  });
  return all ? ncclSuccess : ncclSystemError;
}

/* Ranks write their colors to one of two boards, alternating: no rank is two splits ahead before
 * all have read this board. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t *made, ncclConfig_t *) {
  struct area *area = comm->area;
  const uint32_t turn = ++comm->splits;
  int *colours = area->colour[turn % 2], *orders = area->order[turn % 2];
  *made = NULL;
  colours[comm->rank] = colour;
  orders[comm->rank] = key;
  area->arrived[comm->rank]++;
  if (!wait_for([&] {
        return std::all_of(area->arrived, area->arrived + comm->count,
                           [=](auto &a) { return a >= turn + 1; });
      }))
    return ncclSystemError;
  if (colour == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  int before = 0, count = 0;
  for (int r = 0; r < comm->count; r++) {
    count += colours[r] == colour;
    before += colours[r] == colour && (orders[r] < key || (orders[r] == key && r < comm->rank));
  }
  struct area *own = find_area(comm->world, (uint64_t)(area - comm->world->area + 1) << 48 |
                                                (uint64_t)turn << 32 | (uint32_t)(colour + 1));
  if (own == NULL) return ncclInternalError;
  emulated::hold(COMMUNICATOR_BYTES);
  *made = new ncclComm{comm->world, own, before, count, comm->world_rank, 0, 0, 0, NULL,
                       NULL,        0,   {},     {}};
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void *at, size_t bytes, void **handle) {
  *handle = at;
  if (comm == NULL || at == NULL || bytes == 0 ||
      said("PEN_EMULATED_NCCL_NO_REGISTER", -1) == comm->world_rank)
    return ncclInvalidArgument;
  comm->enrolled[(unsigned char *)at] = bytes;
  return ncclSuccess;
}

/* Registered memory is announced to the other side at its first use with it, which must not be in a
 * capture. */
static bool is_told(ncclComm_t comm, const void *at, size_t bytes, int peer, cudaStream_t stream) {
  const unsigned char *first = (const unsigned char *)at;
  for (const auto &block : comm->enrolled) {
    const std::pair<unsigned char *, int> use(block.first, peer);
    if (first < block.first || first + bytes > block.first + block.second) continue;
    if (emulated::is_captured(stream) && comm->known.count(use) == 0)
      return emulated::refuse_capture(), false;
    comm->known.insert(use);
  }
  return true;
}

static uint64_t ring_bytes() {
  static const char *text = getenv("NCCL_BUFFSIZE");
  return text != NULL && atoi(text) > 0 && atoi(text) < RING_BYTES ? (uint64_t)atoi(text)
                                                                   : (uint64_t)RING_BYTES;
}

/* A message in transfer. */
struct transfer {
  struct ring *ring;
  unsigned char *at;
  uint64_t bytes, done;
};

/* Moves what can be moved between the ring and the message; true when the message is complete. */
static bool move(struct transfer *t, bool puts) {
  const uint64_t ring = ring_bytes();
  for (uint64_t room; t->done < t->bytes; t->done += room) {
    const uint64_t put = t->ring->put, taken = t->ring->taken, place = (puts ? put : taken) % ring;
    room = std::min({puts ? ring - (put - taken) : put - taken, t->bytes - t->done, ring - place});
    if (room == 0) return false;
    if (puts)
      memcpy(t->ring->bytes + place, t->at + t->done, room), t->ring->put = put + room;
    else
      memcpy(t->at + t->done, t->ring->bytes + place, room), t->ring->taken = taken + room;
  }
  return true;
}

/* Sends and receives of a group, which progress together. */
static int group_depth;
struct grouped {
  struct transfer transfer;
  bool puts;
};
static std::vector<struct grouped> group;
static cudaStream_t group_stream;

/* Each replay of a graph begins at 0; the counts are reset when all messages are complete. Of two
 * messages of a ring the first is first. */
static void enqueue_group(std::vector<struct grouped> transfers, cudaStream_t stream) {
  const std::shared_ptr<std::vector<struct grouped>> run(
      new std::vector<struct grouped>(std::move(transfers)));
  emulated::enqueue_poll((void *)stream, [=] {
    bool all = true;
    for (size_t i = 0; i < run->size(); i++) {
      struct grouped &g = (*run)[i];
      bool first = true;
      for (size_t k = 0; k < i; k++)
        first = first && ((*run)[k].transfer.ring != g.transfer.ring || (*run)[k].puts != g.puts ||
                          (*run)[k].transfer.done == (*run)[k].transfer.bytes);
      all = first && move(&g.transfer, g.puts) && all;
    }
    for (struct grouped &g : *run) g.transfer.done = all ? 0 : g.transfer.done;
    return all;
  });
}

static ncclResult_t transfer_on(ncclComm_t comm, const void *at, size_t bytes, int peer, bool puts,
                                cudaStream_t stream) {
  if (comm->count > PEERS_MAX || peer < 0 || peer >= comm->count || peer == comm->rank ||
      bytes == 0 || (!group.empty() && group_stream != stream))
    return ncclInvalidArgument;
  if (refuses(comm, stream, 0) || !is_told(comm, at, bytes, peer, stream)) return ncclInvalidUsage;
  if (puts && said("PEN_EMULATED_NCCL_SILENT", -1) == comm->world_rank) {
    emulated::enqueue_poll((void *)stream, [] { return false; });
    return ncclSuccess;
  }
  struct ring *ring =
      puts ? &comm->area->ring[comm->rank][peer] : &comm->area->ring[peer][comm->rank];
  group.push_back({{ring, (unsigned char *)at, bytes, 0}, puts});
  group_stream = stream;
  if (group_depth == 0) enqueue_group(std::move(group), stream), group.clear();
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() { return group_depth++, ncclSuccess; }

ncclResult_t ncclGroupEnd() {
  if (--group_depth == 0 && !group.empty())
    enqueue_group(std::move(group), group_stream), group.clear();
  return ncclSuccess;
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return transfer_on(comm, from, count * bytes_of(type), peer, true, stream);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return transfer_on(comm, to, count * bytes_of(type), peer, false, stream);
}

/* ---- one-sided calls ---- */

/* Both ranks of a pair open whole allocations to each other. */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *at, size_t bytes, ncclWindow_t *made,
                                    int flags) {
  const auto block = blocks().find(at);
  *made = NULL;
  if (version() < 22900 || comm->count != 2 || block == blocks().end() || block->second != bytes ||
      flags != NCCL_WIN_COLL_SYMMETRIC)
    return ncclInvalidArgument;
  struct opened *mine = &comm->area->opened[comm->rank],
                *other = &comm->area->opened[1 - comm->rank];
  mine->none = said("PEN_EMULATED_NCCL_NO_WINDOW", -1) == comm->world_rank;
  mine->bytes = bytes;
  if (cudaIpcGetMemHandle(&mine->name, at) != cudaSuccess) return ncclUnhandledCudaError;
  comm->area->windows[comm->rank]++;
  if (!wait_for([&] { return comm->area->windows[1 - comm->rank] > 0; })) return ncclSystemError;
  if (mine->none || other->none) return ncclSuccess;
  if (other->bytes != bytes && version() < 23200) return ncclInvalidArgument;
  if (cudaIpcOpenMemHandle((void **)&comm->peer, other->name, 0) != cudaSuccess)
    return ncclUnhandledCudaError;
  comm->own = (unsigned char *)at;
  comm->receive_bytes = bytes;
  *made = (ncclWindow_t)comm;
  return ncclSuccess;
}

/* Raises the peer's signal; false: a flag that was raised has not been taken yet. */
static bool raise_signal(ncclComm_t comm, bool captured) {
  struct signals *signals = &comm->area->signals[1 - comm->rank];
  if (!captured) return signals->count++, true;
  uint32_t lowered = 0;
  return signals->flag.compare_exchange_strong(lowered, 1);
}

/* A put is copied in pieces, from its source as it is at that time; a raised flag delays its start.
 */
ncclResult_t ncclPutSignal(const void *from, size_t count, ncclDataType_t type, int peer,
                           ncclWindow_t window, size_t offset, int signal, int context,
                           unsigned flags, ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * bytes_of(type), piece = bytes / 3 + 1;
  const unsigned char *source = (const unsigned char *)from;
  const bool captured = emulated::is_captured(stream);
  if (version() < 22900 || peer != 1 - comm->rank || (void *)window != (void *)comm ||
      signal != 0 || context != 0 || flags != 0 || bytes == 0 || source < comm->own ||
      source + bytes > comm->own + comm->receive_bytes ||
      offset + bytes > comm->area->opened[peer].bytes)
    return ncclInvalidArgument;
  if (refuses_one_sided(comm, stream)) return ncclInvalidUsage;
  const std::shared_ptr<size_t> done(new size_t(0));
  emulated::enqueue_poll((void *)stream, [=] {
    if (captured && *done == 0 && comm->area->signals[peer].flag != 0) return false;
    if (*done < bytes) {
      const size_t now = std::min(piece, bytes - *done);
      memcpy(comm->peer + offset + *done, source + *done, now);
      *done += now;
      return false;
    }
    comm->area->bytes_put += bytes;
    *done = 0;
    return raise_signal(comm, captured);
  });
  return ncclSuccess;
}

ncclResult_t ncclSignal(int peer, int signal, int context, unsigned flags, ncclComm_t comm,
                        cudaStream_t stream) {
  const bool captured = emulated::is_captured(stream);
  if (version() < 22900 || comm->count != 2 || peer != 1 - comm->rank || signal != 0 ||
      context != 0 || flags != 0)
    return ncclInvalidArgument;
  if (refuses_one_sided(comm, stream)) return ncclInvalidUsage;
  emulated::enqueue_poll((void *)stream, [=] { return raise_signal(comm, captured); });
  return ncclSuccess;
}

ncclResult_t ncclWaitSignal(int count, ncclWaitSignalDesc_t *wanted, ncclComm_t comm,
                            cudaStream_t stream) {
  const bool captured = emulated::is_captured(stream);
  if (version() < 22900 || comm->count != 2 || count != 1 || wanted->opCnt != 1 ||
      wanted->peer != 1 - comm->rank || wanted->sigIdx != 0 || wanted->ctx != 0)
    return ncclInvalidArgument;
  if (refuses_one_sided(comm, stream)) return ncclInvalidUsage;
  struct signals *signals = &comm->area->signals[comm->rank];
  const uint64_t needed = captured ? 0 : ++comm->taken;
  emulated::enqueue_poll((void *)stream, [=] {
    uint32_t raised = 1;
    return captured ? signals->flag.compare_exchange_strong(raised, 0) : signals->count >= needed;
  });
  return ncclSuccess;
}

/* The parts are on one of two boards, alternating, as in a split; each rank adds them all in rank
 * order. */
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclFloat64 || op != ncclSum || count > SUM_MAX) return ncclInvalidArgument;
  if (refuses(comm, stream, 0) || !is_told(comm, to, count * sizeof(double), -1, stream))
    return ncclInvalidUsage;
  const std::shared_ptr<bool> told(new bool(false));
  emulated::enqueue_poll((void *)stream, [=] {
    struct area *area = comm->area;
    if (!*told) {
      memcpy(area->part[(comm->sums + 1) % 2][comm->rank], from, count * sizeof(double));
      *told = true;
      area->summed[comm->rank] = ++comm->sums;
    }
    const uint32_t turn = comm->sums;
    if (!std::all_of(area->summed, area->summed + comm->count, [=](auto &s) { return s >= turn; }))
      return false;
    for (size_t i = 0; i < count; i++) {
      double sum = 0;
      for (int r = 0; r < comm->count; r++) sum += area->part[turn % 2][r][i];
      ((double *)to)[i] = sum;
    }
    *told = false;
    return true;
  });
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
  static const char *text = getenv("PEN_EMULATED_NCCL_TROUBLE");
  int rank = -1;
  unsigned long long bytes = 0;
  const bool troubled = text != NULL && sscanf(text, "%d,%llu", &rank, &bytes) == 2;
  const bool trouble = troubled && rank == comm->world_rank && comm->count == 2 &&
                       comm->area->ring[0][1].taken + comm->area->bytes_put > bytes;
  static const char *file = getenv("PEN_EMULATED_NCCL_PEERS");
  const bool peers_trouble =
      file != NULL && comm->area != comm->world->area && comm->count > 2 && access(file, F_OK) == 0;
  *result = trouble || peers_trouble ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t) {
  if (getenv("PEN_EMULATED_NCCL_TROUBLE") != NULL) fprintf(stderr, "# aborted\n");
  while (emulated::has_graph()) /* which may use the communicator: vllm-project/vllm#39846 */
    pause();
  return ncclSuccess;
}
}
