/* emulate.h: CUDA's language for a host compiler, so that the kernels of kernels/cuda run on the
 * CPU, thread by thread.
 *
 * Each thread of a block is a fiber. It runs until it waits for its warp or its block; when all
 * threads that still run wait for the same, they continue. A warp runs ahead of the others as far
 * as barriers let it. Blocks, warps and threads run in an order that changes from launch to launch
 * (rising, falling, mixed), so that a missing barrier, or a sum without a fixed order, shows as
 * other numbers. Shared memory is filled with invalid values before each block and ends at a guard
 * page, as do the device's allocations; asynchronous copies are made when they are waited for, or
 * else at once. Not emulated: timing, memory order within a warp, the rounding of the hardware's
 * special functions. */
#ifndef PEN_EMULATE_H
#define PEN_EMULATE_H

#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <functional>
#include <tuple>

#include <cuda_runtime_api.h>
#include <vector_functions.h>

#undef __global__
#undef __device__
#undef __shared__
#undef __launch_bounds__
#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)

namespace emulated {
extern struct thread_place { /* of the current thread */
  uint3 thread, block;
  dim3 threads, blocks;
} here;
enum { LANES = 32, SLOT_BYTES = 32 };
extern thread_local bool device_chosen; /* by this thread: another thread's device would be GPU 0 */

/* Enqueues work of that name on a stream: emulate_streams.cc. */
void enqueue(void *stream, std::function<void()> body, const char *name);
/* Work that is tried again until it returns that it is done. */
void enqueue_poll(void *stream, std::function<bool()> poll, const char *name = "nccl");
/* Whether work on the stream is captured; and makes that graph invalid, which has a reason. */
bool is_captured(void *stream);
void refuse_capture(const char *why = "an error");
const char *why_refused(); /* of the last capture that was refused */
/* Work on the stream runs code that is known by these bytes. Code is loaded at its first use, which
 * may wait for the device: a capture is refused then. */
void use_code(void *stream, const char *name, const void *code, size_t bytes);
bool is_refused(const char *what); /* PEN_EMULATED_NO_GRAPH */
bool is_own(const void *at);       /* in an allocation of this process; in pinned memory */
bool is_pinned(const void *at);
void hold(size_t bytes); /* of the device's memory, for something that is no allocation */
bool replays();          /* a graph is running */
/* Whether a graph can be replayed. */
bool has_graph();
void launch(const char *name, const void *kernel, dim3 blocks, dim3 threads, size_t shared_bytes,
            const std::function<void()> &body);
unsigned char *shared_memory();
void wait_block();
int wait_block_or(int value);
/* Gives this lane's value to its warp, waits, and points to the values of all lanes: lane i's at [i
 * * SLOT_BYTES]. */
const unsigned char *exchange(const void *value, size_t bytes);
void copy_later(void *to, const void *from, size_t bytes, size_t there);
void copies_commit();
void copies_wait(int left);
[[noreturn]] void fail(const char *what);

/* Between two looks at what another process is to write: leaves it the core. Many processes that
 * only yield take minutes for what two cores do in a second. */
inline void rest(unsigned looks) {
  if (looks < 10)
    sched_yield();
  else
    usleep(50);
}

template <class T>
T of_lane(T value, unsigned lane) {
  T other;
  memcpy(&other, exchange(&value, sizeof value) + lane * SLOT_BYTES, sizeof other);
  return other;
}

inline unsigned lane() {
  return (here.thread.x + here.threads.x * (here.thread.y + here.threads.y * here.thread.z)) %
         LANES;
}
} // namespace emulated

#define threadIdx (emulated::here.thread)
#define blockIdx (emulated::here.block)
#define blockDim (emulated::here.threads)
#define gridDim (emulated::here.blocks)
#define PEN_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                 \
  do {                                                                                             \
    const auto pen_kernel_ = (kernel); /* arguments are copied now, as by a launch */              \
    const auto pen_arguments_ = std::make_tuple(__VA_ARGS__);                                      \
    const dim3 pen_grid_ = grid, pen_block_ = block;                                               \
    const size_t pen_shared_ = shared_bytes;                                                       \
    emulated::use_code(stream, #kernel, &pen_kernel_, sizeof pen_kernel_);                         \
    emulated::enqueue(                                                                             \
        stream,                                                                                    \
        [=] {                                                                                      \
          emulated::launch(#kernel, (const void *)pen_kernel_, pen_grid_, pen_block_, pen_shared_, \
                           [&] { std::apply(pen_kernel_, pen_arguments_); });                      \
        },                                                                                         \
        #kernel);                                                                                  \
  } while (0)
#define PEN_SHARED(name) unsigned char *const name = emulated::shared_memory()

inline void __syncthreads() { emulated::wait_block(); }
inline int __syncthreads_or(int value) { return emulated::wait_block_or(value); }
inline void __syncwarp() {
  const char nothing = 0;
  emulated::exchange(&nothing, 1);
}

template <class T>
T __shfl_xor_sync(unsigned, T value, int apart) {
  return emulated::of_lane(value, emulated::lane() ^ (unsigned)apart);
}

template <class T>
T __shfl_down_sync(unsigned, T value, unsigned apart, int width = 32) {
  const unsigned lane = emulated::lane(), from = lane % (unsigned)width + apart;
  return emulated::of_lane(value, from < (unsigned)width ? lane + apart : lane);
}

inline unsigned __ballot_sync(unsigned, int predicate) {
  const unsigned char *values = emulated::exchange(&predicate, sizeof predicate);
  unsigned ballot = 0;
  for (unsigned i = 0; i < emulated::LANES; i++) {
    int other;
    memcpy(&other, values + i * emulated::SLOT_BYTES, sizeof other);
    ballot |= (unsigned)(other != 0) << i;
  }
  return ballot;
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return sqrt(a); }

template <class TO, class FROM>
TO pen_bits(FROM from) {
  TO to;
  static_assert(sizeof to == sizeof from, "the same bits");
  memcpy(&to, &from, sizeof to);
  return to;
}
inline float __uint_as_float(uint32_t x) { return pen_bits<float>(x); }
inline uint32_t __float_as_uint(float x) { return pen_bits<uint32_t>(x); }
inline long long __double_as_longlong(double x) { return pen_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return pen_bits<double>(x); }

/* ---- device.cuh and mma.cuh for the host ---- */
inline uint32_t pen_round(float x) { /* to bf16, to nearest even */
  const uint32_t bits = pen_bits<uint32_t>(x);
  return isnan(x) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline uint32_t pack(float low, float high) { return pen_round(low) | pen_round(high) << 16; }
inline float power_of_two(float x) { return exp2f(x); }
inline float reciprocal(float x) { return 1.0f / x; }

/* Element `half` (0 low, 1 high) of register `number` of a lane's exchanged registers. */
inline float pen_element(const unsigned char *values, unsigned lane, unsigned number,
                         unsigned half) {
  uint32_t both;
  memcpy(&both, values + lane * emulated::SLOT_BYTES + number * sizeof both, sizeof both);
  return __uint_as_float(half ? both & 0xffff0000u : both << 16);
}

/* The fragments of mma.cuh in the other direction: which lane, register and half holds A (row, k)
 * and B (k, column). */
inline void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
  const uint32_t given[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const unsigned char *values = emulated::exchange(given, sizeof given);
  for (unsigned i = 0; i < 4; i++) {
    const unsigned row = emulated::lane() / 4 + i / 2 * 8,
                   column = emulated::lane() % 4 * 2 + i % 2;
    float sum = c[i];
    for (unsigned k = 0; k < 16; k++)
      sum += pen_element(values, row % 8 * 4 + k % 8 / 2, k / 8 * 2 + row / 8, k % 2) *
             pen_element(values, column * 4 + k % 8 / 2, 4 + k / 8, k % 2);
    c[i] = sum;
  }
}

inline void pen_load_squares(uint32_t r[4], const uint16_t *row, bool transposed) {
  if ((uintptr_t)row % 16 != 0) emulated::fail("ldmatrix: a row is not on 16 bytes");
  const unsigned char *values = emulated::exchange(&row, sizeof row);
  for (unsigned i = 0; i < 4; i++) {
    uint32_t element[2];
    for (unsigned j = 0; j < 2; j++) {
      const unsigned major = emulated::lane() / 4, minor = emulated::lane() % 4 * 2 + j;
      const uint16_t *from;
      memcpy(&from, values + (i * 8 + (transposed ? minor : major)) * emulated::SLOT_BYTES,
             sizeof from);
      element[j] = from[transposed ? major : minor];
    }
    r[i] = element[0] | element[1] << 16;
  }
}
inline void load_matrices(uint32_t r[4], const uint16_t *row) { pen_load_squares(r, row, false); }
inline void load_matrices_transposed(uint32_t r[4], const uint16_t *row) {
  pen_load_squares(r, row, true);
}

inline void copy_async(uint16_t *shared, const uint16_t *global, bool there) {
  if ((uintptr_t)shared % 16 != 0 || (uintptr_t)global % 16 != 0)
    emulated::fail("cp.async: an address is not on 16 bytes");
  emulated::copy_later(shared, global, 16, there ? 16 : 0);
}
inline void copies_commit() { emulated::copies_commit(); }
template <int LEFT>
void copies_wait() {
  emulated::copies_wait(LEFT);
}

#endif
