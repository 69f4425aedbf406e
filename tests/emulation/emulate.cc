/* emulate.cc: runs the blocks of a launch on the host. emulate_streams.cc emulates streams. */
#include "tests/emulation/emulate.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <map>
#include <vector>

namespace emulated {

thread_place here;
thread_local bool device_chosen;

namespace {

enum {
  THREADS_MAX = 1024,
  STACK_BYTES = 64 << 10,
  SHARED_BYTES_MAX = 227 << 10,
  SHARED_BYTES_PLAIN = 48 << 10,
  PAGE = 4096
};
enum fiber_state { RUNS, WAITS_WARP, WAITS_BLOCK, DONE };

struct copy {
  void *to;
  const void *from;
  size_t bytes, there;
  int group;
};

struct fiber {
  ucontext_t context; /* to enter the fiber the first time; after that setjmp and longjmp switch,
                         without a system call */
  jmp_buf left;
  bool entered;
  uint3 index;
  fiber_state now;
  unsigned turn; /* exchanges so far: selects one of two sets of slots */
  int group;     /* the group of copies that is open */
  std::vector<copy> copies;
};

fiber fibers[THREADS_MAX];
jmp_buf scheduler;
unsigned current, thread_count;
unsigned char slots[THREADS_MAX / LANES][2][LANES * SLOT_BYTES];
int any; /* of __syncthreads_or */
int any_result;
const std::function<void()> *body_now;
const char *name_now;
unsigned char *shared_now;
bool copies_at_once;
std::map<const void *, size_t> granted; /* shared memory beyond 48 KiB */

unsigned char *map_guarded(size_t bytes, size_t alignment) {
  const size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
  unsigned char *block = (unsigned char *)mmap(NULL, whole + PAGE, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED || mprotect(block + whole, PAGE, PROT_NONE) != 0) fail("no memory");
  return block + whole - (bytes + alignment - 1) / alignment * alignment;
}

void pause(fiber_state why) {
  fiber &self = fibers[current];
  self.now = why;
  if (_setjmp(self.left) == 0) _longjmp(scheduler, 1);
}

/* The loop of a fiber: the same thread of one block after another. */
void enter() {
  for (;;) {
    (*body_now)();
    pause(DONE);
  }
}

void prepare(fiber &f, unsigned char *stack) {
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = stack;
  f.context.uc_stack.ss_size = STACK_BYTES;
  makecontext(&f.context, enter, 0);
}

/* Runs a fiber until it waits or is done. */
void resume(fiber &f) {
  here.thread = f.index;
  if (_setjmp(scheduler) != 0) return;
  if (f.entered) _longjmp(f.left, 1);
  f.entered = true;
  setcontext(&f.context);
}

/* If every thread of [from, past) waits for this, or is done, they continue; returns whether. */
bool release(unsigned from, unsigned past, fiber_state what) {
  bool some = false;
  for (unsigned t = from; t < past; t++) {
    if (fibers[t].now != what && fibers[t].now != DONE) return false;
    some |= fibers[t].now == what;
  }
  for (unsigned t = from; t < past && some; t++)
    if (fibers[t].now == what) fibers[t].now = RUNS;
  return some;
}

/* The i-th of `count` items in the order of this launch. */
unsigned in_order(unsigned i, unsigned count, unsigned launch_number) {
  if (launch_number % 3 == 0) return i;
  if (launch_number % 3 == 1) return count - 1 - i;
  unsigned step = 7919; /* a prime: it reaches all items unless it divides count */
  while (count % step == 0) step++;
  return (unsigned)(((uint64_t)i * step + launch_number) % count);
}

/* Runs one warp as far as it can without the others: what they must not see yet, or must have read
 * already, is then visible or overwritten. */
void run_warp(unsigned first, unsigned launch_number) {
  const unsigned past = first + LANES < thread_count ? first + LANES : thread_count;
  do {
    for (unsigned i = 0; i < past - first; i++) {
      const unsigned t = first + in_order(i, past - first, launch_number);
      if (fibers[t].now != RUNS) continue;
      current = t;
      resume(fibers[t]);
    }
  } while (release(first, past, WAITS_WARP));
}

void run_block(unsigned launch_number) {
  static unsigned char *stacks = map_guarded((size_t)THREADS_MAX * STACK_BYTES, PAGE);
  for (unsigned t = 0; t < thread_count; t++) {
    fiber &f = fibers[t];
    if (!f.entered) prepare(f, stacks + (size_t)t * STACK_BYTES);
    f.index.x = t % here.threads.x, f.index.y = t / here.threads.x % here.threads.y,
    f.index.z = t / here.threads.x / here.threads.y;
    f.now = RUNS, f.turn = 0, f.group = 0;
    f.copies.clear();
  }
  any = 0;
  const unsigned warps = (thread_count + LANES - 1) / LANES;
  for (;;) {
    for (unsigned i = 0; i < warps; i++)
      run_warp(in_order(i, warps, launch_number) * LANES, launch_number);
    bool left = false;
    for (unsigned t = 0; t < thread_count; t++) left |= fibers[t].now != DONE;
    if (!left) break;
    if (!release(0, thread_count, WAITS_BLOCK))
      fail("threads wait for each other: some of a warp or block never come to a barrier");
    any_result = any, any = 0;
  }
  for (unsigned t = 0; t < thread_count; t++)
    if (!fibers[t].copies.empty()) fail("a thread ends with copies under way");
}

} // namespace

void fail(const char *what) {
  fprintf(stderr, "Bail out! %s: %s\n", name_now ? name_now : "emulation", what);
  abort();
}

unsigned char *shared_memory() { return shared_now; }

void wait_block() { pause(WAITS_BLOCK); }

int wait_block_or(int value) {
  any |= value;
  pause(WAITS_BLOCK);
  return any_result;
}

const unsigned char *exchange(const void *value, size_t bytes) {
  fiber &self = fibers[current];
  unsigned char *set = slots[current / LANES][self.turn++ % 2];
  if (bytes > SLOT_BYTES) fail("a value is too large for its slot");
  memcpy(set + current % LANES * SLOT_BYTES, value, bytes);
  pause(WAITS_WARP);
  return set;
}

void copy_later(void *to, const void *from, size_t bytes, size_t there) {
  if (copies_at_once) {
    memset(to, 0, bytes);
    memcpy(to, from, there);
    return;
  }
  fibers[current].copies.push_back({to, from, bytes, there, fibers[current].group});
}

void copies_commit() { fibers[current].group++; }

void copies_wait(int left) {
  fiber &self = fibers[current];
  std::vector<copy> still;
  for (const copy &c : self.copies)
    if (c.group >= self.group - left) {
      still.push_back(c);
    } else {
      memset(c.to, 0, c.bytes);
      memcpy(c.to, c.from, c.there);
    }
  self.copies = still;
}

void launch(const char *name, const void *kernel, dim3 blocks, dim3 threads, size_t shared_bytes,
            const std::function<void()> &body) {
  static unsigned launch_number;
  static unsigned char *shared_end =
      map_guarded(SHARED_BYTES_MAX, PAGE) + (SHARED_BYTES_MAX + PAGE - 1) / PAGE * PAGE;
  name_now = name, body_now = &body;
  copies_at_once = launch_number * 2654435761u >> 16 & 1;
  here.threads = threads, here.blocks = blocks;
  thread_count = threads.x * threads.y * threads.z;
  const unsigned block_count = blocks.x * blocks.y * blocks.z;
  if (thread_count == 0 || thread_count > THREADS_MAX || block_count == 0 || blocks.y > 65535 ||
      blocks.z > 65535)
    fail("a grid that no GPU takes");
  if (shared_bytes > SHARED_BYTES_PLAIN &&
      (granted.count(kernel) == 0 || granted[kernel] < shared_bytes))
    fail("more shared memory than was granted");
  shared_now = shared_end - (shared_bytes + 15) / 16 * 16;
  for (unsigned i = 0; i < block_count; i++) {
    const unsigned b = in_order(i, block_count, launch_number / 3);
    here.block.x = b % blocks.x, here.block.y = b / blocks.x % blocks.y,
    here.block.z = b / blocks.x / blocks.y;
    memset(shared_now, 0xff, (shared_bytes + 15) / 16 * 16);
    run_block(launch_number);
  }
  launch_number++;
  name_now = NULL;
}

} // namespace emulated

/* ---- the runtime's calls about the device ---- */
using namespace emulated;

extern "C" {

cudaError_t cudaDriverGetVersion(int *version) {
  const char *const other = getenv("PEN_EMULATED_DRIVER"); /* the version of an older driver */
  return *version = other == NULL ? CUDART_VERSION : atoi(other), cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
  int version;
  if (cudaDriverGetVersion(&version), version < CUDART_VERSION) return cudaErrorInsufficientDriver;
  return *count = 1, cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return device_chosen = true, cudaSuccess; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess                         ? "no error"
         : error == cudaErrorECCUncorrectable         ? "uncorrectable ECC error encountered"
         : error == cudaErrorStreamCaptureInvalidated ? why_refused()
                                                      : "an error";
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr what, int) {
  const char *const shared = getenv("PEN_EMULATED_SHARED"); /* a block's bytes */
  *value = what == cudaDevAttrComputeCapabilityMajor ? 9
           : what == cudaDevAttrMultiProcessorCount  ? 132
           : what == cudaDevAttrMaxSharedMemoryPerBlockOptin
               ? (shared ? atoi(shared) : (int)SHARED_BYTES_MAX)
           : what == cudaDevAttrCanFlushRemoteWrites ? 1
                                                     : 0;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute what, int value) {
  if (what != cudaFuncAttributeMaxDynamicSharedMemorySize || value > SHARED_BYTES_MAX)
    return cudaErrorInvalidValue;
  granted[kernel] = (size_t)value;
  return cudaSuccess;
}
}
