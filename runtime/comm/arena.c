/* arena.c: reserves a rank's memory and makes it resident (see arena.h). */
#define _GNU_SOURCE
#include "runtime/comm/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "runtime/base/check.h"

enum { HUGE_BYTES = 2 << 20 };

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Makes pages resident and writable without a change. Before Linux 5.14 by atomic additions of
 * zero, since a peer's region may be in use. */
static void touch(unsigned char *from, size_t bytes) {
  if (bytes == 0 || madvise(from, bytes, MADV_POPULATE_WRITE) == 0) {
    return;
  }
  pen_check(errno == EINVAL, "no memory for %zu bytes of the arena", bytes);
  for (size_t at = 0; at < bytes; at += PEN_PAGE_BYTES) {
    __atomic_fetch_add(from + at, 0, __ATOMIC_RELAXED);
  }
}

/* Reserves an address range that is aligned to a huge page. */
static unsigned char *reserve(size_t bytes) {
  unsigned char *memory =
      mmap(NULL, bytes + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  pen_check(memory != MAP_FAILED, "cannot reserve %zu bytes of addresses for the arena", bytes);
  return memory + (-(uintptr_t)memory & (HUGE_BYTES - 1));
}

unsigned char *pen_arena_open(const struct pen_plan *plan, uint32_t global,
                              const struct pen_shared *shared) {
  const uint32_t rank = pen_table_rank(plan, global);
  size_t region_bytes = pen_shared_bytes(plan, rank);
  size_t bytes =
      plan->memory[rank].arena_bytes > region_bytes ? plan->memory[rank].arena_bytes : region_bytes;
  pen_check(bytes < SIZE_MAX / 2, "an arena of %zu bytes is more than this machine can address",
            bytes);
  bytes = (bytes + PEN_PAGE_BYTES - 1) / PEN_PAGE_BYTES * PEN_PAGE_BYTES;
  unsigned char *arena = reserve(bytes);
  if (region_bytes != 0) {
    void *at = mmap(arena, region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                    shared->descriptor, (off_t)shared->receive_region_offset[global]);
    pen_check(at == arena, "cannot map %zu bytes of shared memory", region_bytes);
  }
  if (bytes > region_bytes) {
    void *at = mmap(arena + region_bytes, bytes - region_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    pen_check(at == arena + region_bytes, "cannot map %zu bytes for the arena",
              bytes - region_bytes);
    madvise(arena + region_bytes, bytes - region_bytes,
            MADV_HUGEPAGE); /* may fail: it is only slower then */
  }
  touch(arena, region_bytes);
  touch(arena + region_bytes, bytes - region_bytes);
  return arena;
}

static void touch_peer(const struct pen_plan *plan, uint32_t global,
                       const struct pen_shared *shared) {
  if (pen_is_local(shared, global)) {
    touch(shared->memory + shared->receive_region_offset[global],
          pen_shared_bytes(plan, pen_table_rank(plan, global)));
  }
}

static void touch_group(const struct pen_plan *plan, uint32_t global, int group,
                        const struct pen_shared *shared) {
  for (uint32_t m = 0; m < pen_group_size(plan, group); m++) {
    const uint32_t member = pen_group_process(plan, global, group, m);
    if (member != global) {
      touch_peer(plan, member, shared);
    }
  }
}

void pen_arena_reach_peers(const struct pen_plan *plan, const struct pen_profile *profile,
                           uint32_t global, const struct pen_shared *shared) {
  for (uint32_t c = 0; c < profile->channel_count; c++) {
    const struct pen_channel *channel = &profile->channels[c];
    if (channel->from_rank == pen_table_rank(plan, global)) {
      touch_peer(plan, pen_group_process(plan, global, PEN_PIPELINE, channel->to_rank), shared);
    }
  }
  touch_group(plan, global, PEN_DATA, shared);
  touch_group(plan, global, PEN_TENSOR, shared);
}
