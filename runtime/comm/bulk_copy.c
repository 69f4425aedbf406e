/* bulk_copy.c: chooses between two ways to copy a large message (see bulk_copy.h). */
#include "runtime/comm/bulk_copy.h"

#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "runtime/base/futex_counter.h"

/* The way is chosen for so many copies in a row, the later half of which count: each way is slow
 * where the other one has left the lines. The first block is cached, the second one streamed; then
 * the faster way is used, but in the last block of each interval the slower one. */
enum { BLOCK_COPIES = 16, INTERVAL_BLOCKS = 64 };
enum { VECTOR_BYTES = 16, UNROLLED = 4 };

uint32_t pen_bulk_size_index(uint64_t bytes) {
  uint32_t index = 0;
  for (uint64_t size = bytes / PEN_BULK_BYTES_MIN; size > 1 && index < PEN_BULK_SIZES - 1;
       size /= 2) {
    index++;
  }
  return index;
}

enum pen_copy_way pen_copy_way_next(const struct pen_bulk_copy *copies) {
  const uint64_t block = copies->count / BLOCK_COPIES;
  if (block < PEN_COPY_WAY_COUNT) {
    return (enum pen_copy_way)block;
  }
  const bool trial = block % INTERVAL_BLOCKS == INTERVAL_BLOCKS - 1;
  return copies->streamed_is_faster != trial ? PEN_COPY_STREAMED : PEN_COPY_CACHED;
}

void pen_copy_way_add(struct pen_bulk_copy *copies, double ns_per_byte) {
  double *fastest = &copies->ns_per_byte[pen_copy_way_next(copies)];
  const uint64_t in_block = copies->count++ % BLOCK_COPIES;
  if (in_block == BLOCK_COPIES / 2 || (in_block > BLOCK_COPIES / 2 && ns_per_byte < *fastest)) {
    *fastest = ns_per_byte;
  }
  if (in_block == BLOCK_COPIES - 1) {
    copies->streamed_is_faster =
        copies->ns_per_byte[PEN_COPY_STREAMED] < copies->ns_per_byte[PEN_COPY_CACHED];
  }
}

#if defined(__x86_64__)
static void copy_streamed(unsigned char *to, const unsigned char *from, uint64_t bytes) {
  const uint64_t group = UNROLLED * VECTOR_BYTES, whole = bytes / group * group;
  for (uint64_t at = 0; at < whole; at += group) {
    __m128i line[UNROLLED];
    for (int i = 0; i < UNROLLED; i++) {
      line[i] = _mm_loadu_si128((const __m128i *)(const void *)(from + at) + i);
    }
    for (int i = 0; i < UNROLLED; i++) {
      _mm_stream_si128((__m128i *)(void *)(to + at) + i, line[i]);
    }
  }
  memcpy(to + whole, from + whole, bytes - whole);
  _mm_sfence(); /* no release orders non-temporal stores */
}
#endif

void pen_copy(void *to, const void *from, uint64_t bytes, enum pen_copy_way way) {
#if defined(__x86_64__)
  if (way == PEN_COPY_STREAMED && (uintptr_t)to % VECTOR_BYTES == 0) {
    copy_streamed(to, from, bytes);
    return;
  }
#endif
  (void)way;
  memcpy(to, from, bytes);
}

static void copy_parts(unsigned char *to, const unsigned char *from, uint64_t bytes,
                       enum pen_copy_way way, _Atomic uint32_t *there) {
  const uint64_t eighth = bytes / PEN_COPY_PARTS_MAX,
                 part = eighth < PEN_COPY_PART_BYTES_MIN ? PEN_COPY_PART_BYTES_MIN : eighth;
  for (uint64_t at = 0, end; at < bytes; at = end) {
    end = bytes - at < part ? bytes : at + part;
    pen_copy(to + at, from + at, end - at, way);
    atomic_store_explicit(there, (uint32_t)end, memory_order_release);
  }
}

void pen_copy_bulk(struct pen_bulk_copy *copies, void *to, const void *from, uint64_t bytes,
                   _Atomic uint32_t *there) {
  const enum pen_copy_way way = pen_copy_way_next(copies);
  const uint64_t start_ns = pen_now_ns();
  if (there == NULL) {
    pen_copy(to, from, bytes, way);
  } else {
    copy_parts(to, from, bytes, way, there);
  }
  pen_copy_way_add(copies, (double)(pen_now_ns() - start_ns) / (double)bytes);
}
