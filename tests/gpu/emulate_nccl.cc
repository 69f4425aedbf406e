/* emulate_nccl.cc: an emulation of NCCL, for tests alone: the functions that runtime/nccl_calls.c calls, between processes of one host,
 * over memory that they share. It has of the library what the library's guide promises, and no more: sends and receives of a pair match
 * in order; a message up to a buffer's size (NCCL_BUFFSIZE, at most 64 KiB) may leave before its receive is there, a larger one may not; calls
 * that make communicators block until all ranks have come. Calls are put on the streams of emulate_streams.cc, and can be captured. It says
 * nothing of the library's speed, of its bugs, or of a network.
 *
 * The id names a file that all ranks map: a table of communicators, each with two rings of bytes (one a direction, for pairs), a
 * board on which ranks tell each other colours and keys, and room for a sum. PEN_EMULATED_NCCL_TROUBLE=R,BYTES: to rank R of the whole every pair
 * reports a remote error once so many bytes have gone through it as stand behind R and a comma, as when a connection breaks. */
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
#include <memory>
#include <vector>

#include "tests/gpu/emulate.h"

enum { RANKS_MAX = 16, AREAS_MAX = 128, RING_BYTES = 1 << 16, SUM_MAX = 4096, PATIENCE_S = 60 };

/* One direction of a pair: bytes put and taken, ever. */
struct ring {
  std::atomic<uint64_t> put, taken;
  unsigned char bytes[RING_BYTES];
};

/* What the ranks of one communicator share. */
struct area {
  std::atomic<uint64_t> key; /* which split made it; 0: free */
  struct ring ring[2];       /* from rank 0 to 1, and back */
  std::atomic<uint32_t> arrived[RANKS_MAX]; /* splits and sums that a rank has come to */
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
};

struct name {
  int process, file;
};

static double seconds() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Whoever waits longer than a minute for others to call waits for ever. */
template <class CONDITION> static bool wait_for(CONDITION condition) {
  const double end = seconds() + PATIENCE_S;
  while (!condition()) {
    if (seconds() > end)
      return false;
    sched_yield();
  }
  return true;
}

/* The area that goes by a key: the first to come takes a free one. */
static struct area *find_area(struct world *world, uint64_t key) {
  for (struct area &area : world->area) {
    uint64_t seen = 0;
    if (area.key.compare_exchange_strong(seen, key) || seen == key)
      return &area;
  }
  return NULL;
}

static size_t bytes_of(ncclDataType_t type) { return type == ncclInt8 ? 1 : type == ncclFloat64 ? 8 : 0; }

extern "C" {

const char *ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : result == ncclRemoteError ? "remote process exited or there was a network error" : "an error";
}
const char *ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclGetVersion(int *version) { return *version = NCCL_VERSION_CODE, ncclSuccess; }

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  const struct name name = {getpid(), memfd_create("emulated nccl", MFD_CLOEXEC)};
  memset(id, 0, sizeof *id);
  memcpy(id, &name, sizeof name);
  return name.file >= 0 && ftruncate(name.file, sizeof(struct world)) == 0 ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *made, int count, ncclUniqueId id, int rank, ncclConfig_t *) {
  struct name name;
  char path[64];
  memcpy(&name, &id, sizeof name);
  snprintf(path, sizeof path, "/proc/%d/fd/%d", name.process, name.file);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0 || rank < 0 || rank >= count || count > RANKS_MAX)
    return ncclInvalidArgument;
  struct world *world = (struct world *)mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (world == MAP_FAILED)
    return ncclSystemError;
  struct area *area = find_area(world, 1);
  *made = new ncclComm{world, area, rank, count, rank, 0, 0};
  area->arrived[rank]++;
  const bool all = wait_for([&] { return std::all_of(area->arrived, area->arrived + count, [](auto &a) { return a > 0; }); });
  return all ? ncclSuccess : ncclSystemError;
}

/* Ranks tell their colours on one of two boards, by turns: nobody is at the next but one before all have read this. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t *made, ncclConfig_t *) {
  struct area *area = comm->area;
  const uint32_t turn = ++comm->splits;
  int *colours = area->colour[turn % 2], *orders = area->order[turn % 2];
  *made = NULL;
  colours[comm->rank] = colour;
  orders[comm->rank] = key;
  area->arrived[comm->rank]++;
  if (!wait_for([&] { return std::all_of(area->arrived, area->arrived + comm->count, [=](auto &a) { return a >= turn + 1; }); }))
    return ncclSystemError;
  if (colour == NCCL_SPLIT_NOCOLOR)
    return ncclSuccess;
  int before = 0, count = 0;
  for (int r = 0; r < comm->count; r++) {
    count += colours[r] == colour;
    before += colours[r] == colour && (orders[r] < key || (orders[r] == key && r < comm->rank));
  }
  struct area *own = find_area(comm->world, (uint64_t)(area - comm->world->area + 1) << 48 | (uint64_t)turn << 32 | (uint32_t)(colour + 1));
  if (own == NULL)
    return ncclInternalError;
  *made = new ncclComm{comm->world, own, before, count, comm->world_rank, 0, 0};
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void *at, size_t bytes, void **handle) {
  *handle = at;
  return comm != NULL && at != NULL && bytes > 0 ? ncclSuccess : ncclInvalidArgument;
}

static uint64_t ring_bytes() {
  static const char *text = getenv("NCCL_BUFFSIZE");
  return text != NULL && atoi(text) > 0 && atoi(text) < RING_BYTES ? (uint64_t)atoi(text) : (uint64_t)RING_BYTES;
}

/* A message under way. */
struct transfer {
  struct ring *ring;
  unsigned char *at;
  uint64_t bytes, done;
};

/* Moves what can be moved between the ring and the message; true when the message is through. */
static bool move(struct transfer *t, bool puts) {
  const uint64_t ring = ring_bytes();
  for (uint64_t room; t->done < t->bytes; t->done += room) {
    const uint64_t put = t->ring->put, taken = t->ring->taken, place = (puts ? put : taken) % ring;
    room = std::min({puts ? ring - (put - taken) : put - taken, t->bytes - t->done, ring - place});
    if (room == 0)
      return false;
    if (puts)
      memcpy(t->ring->bytes + place, t->at + t->done, room), t->ring->put = put + room;
    else
      memcpy(t->at + t->done, t->ring->bytes + place, room), t->ring->taken = taken + room;
  }
  return true;
}

static ncclResult_t transfer_on(ncclComm_t comm, const void *at, size_t bytes, int peer, bool puts, cudaStream_t stream) {
  if (comm->count != 2 || peer != 1 - comm->rank || bytes == 0)
    return ncclInvalidArgument;
  const struct transfer start = {&comm->area->ring[puts ? comm->rank : peer], (unsigned char *)at, bytes, 0};
  /* Each replay of a graph begins anew: the item's own copy of what is done starts at 0 and is set back when the message is through. */
  const std::shared_ptr<struct transfer> run(new struct transfer(start));
  emulated::enqueue_poll((void *)stream, [=] {
    const bool through = move(run.get(), puts);
    if (through)
      run->done = 0;
    return through;
  });
  return ncclSuccess;
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return transfer_on(comm, from, count * bytes_of(type), peer, true, stream);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return transfer_on(comm, to, count * bytes_of(type), peer, false, stream);
}

/* Parts lie on one of two boards, by turns, as in a split; each rank adds them all in rank order. */
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclFloat64 || op != ncclSum || count > SUM_MAX)
    return ncclInvalidArgument;
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
      for (int r = 0; r < comm->count; r++)
        sum += area->part[turn % 2][r][i];
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
  const bool trouble = troubled && rank == comm->world_rank && comm->count == 2 && comm->area->ring[0].taken > bytes;
  *result = trouble ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t) {
  if (getenv("PEN_EMULATED_NCCL_TROUBLE") != NULL)
    fprintf(stderr, "# aborted\n");
  return ncclSuccess;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *all) { return *left = (size_t)1 << 33, *all = (size_t)1 << 34, cudaSuccess; }

}
