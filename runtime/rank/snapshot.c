/* snapshot.c: copies, and the threads that write them (see snapshot.h).
 *
 * For the functions that save a checkpoint the copy is a plan of its own: the same weights at other
 * offsets of the arena. The threads have barriers of their own, in a second array of rank states.
 */
#define _GNU_SOURCE
#include "runtime/plan/shard.h"
#include "runtime/rank/snapshot.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/device/stream_state.h"
#include "runtime/storage/checkpoint_tensors.h"

enum { NICE = 5 }; /* the steps come first */

static struct {
  struct pen_plan plan;           /* the copy's */
  struct pen_shared shared;       /* with the threads' states in place of the ranks' */
  struct pen_endpoint endpoint;   /* the thread's */
  struct pen_stream_state *state; /* null on the CPU */
  struct pen_arena_view view;     /* the copy, on a device */
  struct pen_saving saving;
  struct pen_futex_counter asked, done; /* saves */
} snapshot;

bool pen_snapshot_planned(const struct pen_plan *plan) {
  bool planned = false;
  for (uint32_t r = 0; r < plan->rank_count; r++) {
    planned = planned || plan->memory[r].snapshot_bytes != 0;
  }
  return planned;
}

static uint64_t *offset_of(struct pen_weight *weight, enum pen_checkpoint_tensor part) {
  uint64_t *const offsets[PEN_CHECKPOINT_TENSORS] = {&weight->value_offset, &weight->exp_avg_offset,
                                                     &weight->exp_avg_sq_offset};
  return offsets[part];
}

/* The bytes of a tensor in the copy: those of the largest shard where it is sharded. */
static size_t part_bytes(const struct pen_plan *plan, uint32_t weight_index,
                         enum pen_checkpoint_tensor part) {
  return (pen_checkpoint_tensor_is_sharded(plan, weight_index, part)
              ? pen_shard_most_of(plan, weight_index)
              : plan->weights[weight_index].count) *
         sizeof(float);
}

/* Gives the rank's weights their offsets in the copy. */
static void place_copy(const struct pen_plan *plan, uint32_t global) {
  struct pen_weight *weights =
      pen_allocate(plan->weight_count + 1u, sizeof *weights, "%u weights", plan->weight_count);
  const struct pen_rank_memory *memory = &plan->memory[pen_table_rank(plan, global)];
  uint64_t offset = memory->snapshot_offset;
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    weights[i] = plan->weights[i];
    for (enum pen_checkpoint_tensor part = 0;
         part < PEN_CHECKPOINT_TENSORS && pen_has_weight(plan, &weights[i], global); part++) {
      if (pen_checkpoint_tensor_exists(&weights[i], part)) {
        *offset_of(&weights[i], part) = offset;
        offset += pen_aligned(part_bytes(plan, pen_first_tensor_rank_weight(plan, i), part));
      }
    }
  }
  pen_check(offset == memory->snapshot_offset + memory->snapshot_bytes,
            "the plan's snapshot buffer is too small");
  snapshot.plan = *plan;
  snapshot.plan.weights = weights;
}

static void copy_tensor(const struct pen_endpoint *endpoint, uint64_t to, uint64_t from,
                        size_t bytes) {
  if (snapshot.state == NULL) {
    memcpy(endpoint->arena + to, endpoint->arena + from, bytes);
  } else {
    snapshot.state->device->copy(endpoint->arena + to, endpoint->arena + from, bytes,
                                 snapshot.state->streams.compute);
  }
}

static void copy_weights(const struct pen_endpoint *endpoint) {
  for (uint32_t i = 0; i < endpoint->plan->weight_count; i++) {
    const struct pen_weight *from = &endpoint->plan->weights[i], *to = &snapshot.plan.weights[i];
    for (enum pen_checkpoint_tensor part = 0;
         part < PEN_CHECKPOINT_TENSORS && pen_has_weight(endpoint->plan, from, endpoint->global);
         part++) {
      if (pen_checkpoint_tensor_exists(from, part)) {
        copy_tensor(endpoint, pen_checkpoint_arena_offset(to, part),
                    pen_checkpoint_arena_offset(from, part), part_bytes(endpoint->plan, i, part));
      }
    }
  }
  if (snapshot.state != NULL && snapshot.state->snapshot_copied != NULL) {
    snapshot.state->device->event_record(snapshot.state->snapshot_copied,
                                         snapshot.state->streams.compute);
  }
}

/* What the thread reads is the copy of the save that was requested. */
static void wait_for_copy(void) {
  if (snapshot.state != NULL && snapshot.state->snapshot_copied != NULL) {
    snapshot.state->device->stream_wait_event(snapshot.state->snapshot_stream,
                                              snapshot.state->snapshot_copied);
  }
}

/* Runs wherever the parent may, not on the core of its rank, and after the ranks where all cores
 * are taken. */
static void lower_priority(void) {
  cpu_set_t cores;
  if (sched_getaffinity(getppid(), sizeof cores, &cores) == 0) {
    sched_setaffinity(0, sizeof cores, &cores); /* best effort */
  }
  setpriority(PRIO_PROCESS, 0, NICE); /* of this thread alone, in Linux */
}

static void *write_snapshots(void *unused) {
  (void)unused;
  const struct pen_control *control = snapshot.shared.control;
  int status;
  lower_priority();
  if (snapshot.state != NULL) {
    snapshot.state->device->enter_thread();
  }
  for (uint32_t save = 1; pen_futex_counter_wait(&snapshot.asked, save, &control->abort_status, 0);
       save++) {
    wait_for_copy();
    if (!pen_save_together(&snapshot.endpoint, &snapshot.saving, &status)) {
      break;
    }
    pen_futex_counter_increment(&snapshot.done);
  }
  return NULL; /* the run was aborted: the rank exits */
}

void pen_snapshot_open(const struct pen_endpoint *endpoint, struct pen_stream_state *state) {
  pthread_t thread;
  sigset_t all, before;
  snapshot.state = state;
  snapshot.view = (struct pen_arena_view){.look = pen_stream_read_snapshot, .context = state};
  place_copy(endpoint->plan, endpoint->global);
  snapshot.shared = *endpoint->shared;
  snapshot.shared.ranks = endpoint->shared->writers;
  snapshot.endpoint =
      pen_endpoint_of(&snapshot.plan, &snapshot.shared, endpoint->global, endpoint->arena);
  sigfillset(&all);
  pen_check(pthread_sigmask(SIG_SETMASK, &all, &before) == 0, "cannot block signals");
  pen_check(pthread_create(&thread, NULL, write_snapshots, NULL) == 0,
            "cannot start the thread that writes checkpoints");
  pen_check(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0, "cannot unblock signals");
}

bool pen_snapshot_wait(const struct pen_endpoint *endpoint) {
  uint32_t asked = atomic_load_explicit(&snapshot.asked.count, memory_order_relaxed);
  atomic_store_explicit(&endpoint->self->phase, PEN_PHASE_SAVE, memory_order_relaxed);
  bool going =
      snapshot.plan.weights == NULL ||
      pen_futex_counter_wait(&snapshot.done, asked, &endpoint->shared->control->abort_status, 0);
  atomic_store_explicit(&endpoint->self->phase, PEN_PHASE_STEPS, memory_order_relaxed);
  return going;
}

bool pen_snapshot_save(const struct pen_endpoint *endpoint, const struct pen_saving *saving) {
  if (!pen_snapshot_wait(endpoint)) {
    return false;
  }
  copy_weights(endpoint);
  snapshot.saving = *saving;
  snapshot.saving.view = snapshot.state == NULL ? NULL : &snapshot.view;
  pen_futex_counter_increment(&snapshot.asked);
  return true;
}
