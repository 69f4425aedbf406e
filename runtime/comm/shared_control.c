/* shared_control.c: makes the memory that the ranks of one host share (see shared_control.h). */
#define _GNU_SOURCE
#include "runtime/comm/shared_control.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/plan/losses.h"

static size_t round_up(size_t bytes, size_t unit) {
  pen_check(bytes <= SIZE_MAX - unit, "a region of %zu bytes is more than this machine can address",
            bytes);
  return (bytes + unit - 1) / unit * unit;
}

/* Gives the next `bytes` of the area, on cache lines of their own. */
static size_t take(size_t *used, size_t bytes) {
  size_t offset = *used;
  *used = round_up(offset + bytes, PEN_FUTEX_COUNTER_BYTES);
  return offset;
}

size_t pen_shared_bytes(const struct pen_plan *plan, uint32_t rank) {
  const struct pen_rank_memory *memory = &plan->memory[rank];
  uint64_t bytes =
      memory->shared_bytes > memory->receive_bytes ? memory->shared_bytes : memory->receive_bytes;
  return round_up(bytes, PEN_PAGE_BYTES);
}

static int make_memory(size_t bytes) {
  int descriptor = memfd_create("penstock", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  pen_check(descriptor >= 0, "cannot make shared memory");
  pen_check(ftruncate(descriptor, (off_t)bytes) == 0, "cannot make %zu bytes of shared memory",
            bytes);
  pen_check(fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0,
            "cannot fix the size of shared memory");
  return descriptor;
}

/* Channels of the plan's profiles before one. */
static uint32_t channels_before(const struct pen_plan *plan, uint32_t profile) {
  uint32_t count = 0;
  for (uint32_t p = 0; p < profile; p++) {
    count += plan->profiles[p].channel_count;
  }
  return count;
}

void pen_shared_open(struct pen_shared *shared, const struct pen_plan *plan) {
  uint32_t channel_stride = channels_before(plan, plan->profile_count),
           channel_count = pen_pipeline_count(plan) * channel_stride;
  size_t used = 0;
  uint32_t process_count = pen_process_count(plan);
  size_t step_stats_count = pen_group_size(plan, PEN_DATA) * (size_t)pen_stats_entries(plan);
  size_t control_at = take(&used, sizeof(struct pen_control));
  size_t ranks_at = take(&used, process_count * sizeof(struct pen_rank_state));
  size_t writers_at = take(&used, process_count * sizeof(struct pen_rank_state));
  size_t arrivals_at = take(&used, channel_count * sizeof(struct pen_futex_counter));
  size_t credits_at = take(&used, channel_count * sizeof(struct pen_futex_counter));
  size_t begun_at = take(&used, channel_count * sizeof(struct pen_futex_counter));
  size_t bytes_there_at = take(&used, channel_count * sizeof(struct pen_futex_counter));
  size_t sampled_at = take(&used, PEN_SAMPLED_STEPS * PEN_PROMPTS_MAX * sizeof(uint32_t));
  size_t step_stats_at = take(&used, PEN_STEP_STATS_DEPTH * step_stats_count * sizeof(double));
  size_t checksums_at = take(&used, 3 * (size_t)pen_entry_count(plan) * PEN_CHECKSUM_BYTES);

  size_t *receive_region_offset =
      pen_allocate(process_count, sizeof *receive_region_offset, "%u ranks", process_count);
  used = round_up(used, PEN_PAGE_BYTES);
  for (uint32_t r = 0; r < process_count; r++) {
    size_t bytes = pen_shared_bytes(plan, pen_table_rank(plan, r));
    receive_region_offset[r] = used;
    pen_check(bytes <= SIZE_MAX / 2 - used,
              "the shared memory of %u ranks is more than this machine can address", process_count);
    used += bytes;
  }

  int descriptor = make_memory(used);
  unsigned char *memory = mmap(NULL, used, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  pen_check(memory != MAP_FAILED, "cannot map %zu bytes of shared memory", used);
  *shared = (struct pen_shared){
      .descriptor = descriptor,
      .memory = memory,
      .bytes = used,
      .control = (void *)(memory + control_at),
      .ranks = (void *)(memory + ranks_at),
      .writers = (void *)(memory + writers_at),
      .arrivals = (void *)(memory + arrivals_at),
      .credits = (void *)(memory + credits_at),
      .begun = (void *)(memory + begun_at),
      .bytes_there = (void *)(memory + bytes_there_at),
      .channel_count = channel_count,
      .channel_stride = channel_stride,
      .sampled = (void *)(memory + sampled_at),
      .step_stats = (void *)(memory + step_stats_at),
      .step_stats_count = step_stats_count,
      .checksums = memory + checksums_at,
      .receive_region_offset = receive_region_offset,
      .process_count = process_count,
      .changed = pen_host_and_spare_count(plan) > 1 ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1,
      .local = pen_rank_set_all(plan),
  };
  pen_check(pen_host_and_spare_count(plan) < 2 || shared->changed >= 0, "cannot make an eventfd");
  atomic_store(&shared->control->last_step, UINT64_MAX);
  atomic_store(&shared->control->last_evaluation_step, UINT64_MAX);
}

struct pen_shared pen_shared_of(const struct pen_shared *shared, const struct pen_plan *plan,
                                const struct pen_profile *profile) {
  uint32_t before = channels_before(plan, (uint32_t)(profile - plan->profiles));
  struct pen_shared own = *shared;
  own.arrivals += before;
  own.credits += before;
  own.begun += before;
  own.bytes_there += before;
  own.channel_count = profile->channel_count;
  return own;
}

void pen_shared_close(struct pen_shared *shared) {
  munmap(shared->memory, shared->bytes);
  close(shared->descriptor);
  if (shared->changed >= 0) {
    close(shared->changed);
  }
  free(shared->receive_region_offset);
}

void pen_shared_notify(const struct pen_shared *shared) {
  if (shared->changed >= 0) {
    const uint64_t one = 1;
    const ssize_t written = write(shared->changed, &one, sizeof one);
    (void)written; /* it fails only where the thread has not read 2^64 - 2 changes */
  }
}

bool pen_shared_abort(const struct pen_shared *shared, uint32_t status) {
  uint32_t none = 0;
  bool first = atomic_compare_exchange_strong(&shared->control->abort_status, &none, status);
  for (uint32_t c = 0; c < shared->channel_count; c++) {
    pen_futex_counter_wake(&shared->arrivals[c]);
    pen_futex_counter_wake(&shared->credits[c]);
    pen_futex_counter_wake(&shared->begun[c]);
  }
  for (uint32_t r = 0; r < shared->process_count; r++) {
    pen_futex_counter_wake(&shared->ranks[r].published);
    pen_futex_counter_wake(&shared->ranks[r].drawn);
    pen_futex_counter_wake(&shared->ranks[r].arrived);
    pen_futex_counter_wake(&shared->ranks[r].exchanged);
    pen_futex_counter_wake(&shared->ranks[r].tensor_exchanges);
    pen_futex_counter_wake(&shared->ranks[r].joined);
  }
  pen_futex_counter_wake(&shared->control->logged);
  pen_futex_counter_wake(&shared->control->decided);
  pen_futex_counter_wake(&shared->control->begun);
  pen_shared_notify(shared);
  return first;
}
