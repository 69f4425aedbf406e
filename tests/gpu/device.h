/* device.h: what the tests of the CUDA backend share: opening it or skipping, device memory, and
 * running an op on the device. */
#ifndef PEN_TESTS_GPU_DEVICE_H
#define PEN_TESTS_GPU_DEVICE_H

#include "tests/support/kernels_signature.h"

#ifdef PEN_EMULATED
enum { EMULATED = 1 };
#else
enum { EMULATED = 0 };
#endif

/* Are large cases run? Not in the emulation, nor with a sanitizer. */
static inline int runs_large(void) { return !EMULATED && getenv("PEN_GPU_SMALL") == NULL; }

static void *there_blocks[TENSORS_MAX];
static size_t there_count;
static void *stream;

/* Opens both devices; without a GPU prints a TAP skip and returns 0. */
static inline int open_devices(void) {
  unsetenv("PEN_ISA");
  if (pen_cpu.open(0) == NULL || pen_cuda.open(0) == NULL ||
      (stream = pen_cuda.stream_create()) == NULL) {
    printf("1..0 # SKIP %s\n", pen_cuda.error() == NULL ? pen_cpu.error() : pen_cuda.error());
    return 0;
  }
  return 1;
}

static void assert_well(const char *what) {
  if (pen_cuda.error() != NULL) fail_msg("%s: %s", what, pen_cuda.error());
}

static inline void *there(size_t bytes) {
  assert_true(there_count < TENSORS_MAX);
  void *block = pen_cuda.allocate(bytes ? bytes : 1);
  assert_well("memory");
  return there_blocks[there_count++] = block;
}

static inline void *sent(const void *here, size_t bytes) {
  void *block = there(bytes);
  pen_cuda.copy_in(block, here, bytes, stream);
  pen_cuda.stream_synchronize(stream);
  return block;
}

static inline void fetch(void *here, const void *there, size_t bytes) {
  pen_cuda.copy_out(here, there, bytes, stream);
  pen_cuda.stream_synchronize(stream);
  assert_well("a copy");
}

static inline void release_all(void) {
  while (there_count) pen_cuda.release(there_blocks[--there_count]);
}

static inline int tidy(void **state) {
  release_all();
  return free_tensors(state);
}

/* Runs an op on the device, with a workspace of exactly the size that the backend requires, filled
 * with large numbers; checks that nothing is written after it. */
static inline void run_there(enum pen_dtype dtype, enum pen_op_kind kind, struct pen_call *call) {
  enum { BEHIND = 256 };
  unsigned char behind[BEHIND];
  const size_t kept = EMULATED || runs_large() ? BEHIND : 0; /* a sanitizer sees the end */
  memset(behind, 0x5a, BEHIND);
  const size_t bytes = pen_cuda.workspace_bytes(kind, dtype, call->dim);
  call->workspace = bytes ? there(bytes + kept) : NULL;
  if (bytes) pen_cuda.copy_in((char *)call->workspace + bytes, behind, kept, stream);
  call->stream = stream;
  call->prepared = pen_cuda.prepare(kind, dtype, call->dim, call->real);
  assert_well(op_rows[kind].name);
  pen_cuda.kernel_of(kind, dtype)(call);
  pen_cuda.stream_synchronize(stream);
  assert_well(op_rows[kind].name);
  if (bytes) fetch(behind, (char *)call->workspace + bytes, kept);
  for (int i = 0; i < BEHIND; i++) assert_int_equal(behind[i], 0x5a);
}

/* A bf16. */
static inline float expanded(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float y;
  memcpy(&y, &bits, sizeof y);
  return y;
}

static inline int any_nan(const void *values, const struct operand *o) {
  for (size_t k = 0; k < o->count; k++)
    if (o->element_bytes == sizeof(double)  ? isnan(((const double *)values)[k])
        : o->element_bytes == sizeof(float) ? isnan(((const float *)values)[k])
                                            : isnan(expanded(((const uint16_t *)values)[k])))
      return 1;
  return 0;
}

#endif
