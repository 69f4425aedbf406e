/* snapshot.c: copies, and the threads that write them (see snapshot.h).
 *
 * To the functions of checkpoint.h the copy is a plan of its own: the same weights at other places
 * of the arena. The threads meet at barriers of their own, in a second row of rank states. */
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
#include "runtime/storage/checkpoint_tensors.h"

enum { NICE = 5 }; /* the steps come first */

static struct {
  struct pen_plan plan;           /* the copy's */
  struct pen_shared shared;       /* with the threads' states in place of the ranks' */
  struct pen_transport *end;      /* the thread's */
  struct pen_stream_state *queue; /* null on the CPU */
  struct pen_arena_view there;    /* the copy, on a device */
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

/* The place of a part: as large as the largest shard where it is cut. */
static size_t part_bytes(const struct pen_plan *plan, uint32_t weight_index,
                         enum pen_checkpoint_tensor part) {
  uint64_t count = plan->weights[weight_index].count;
  return (pen_checkpoint_tensor_is_sharded(plan, weight_index, part)
              ? pen_shard_most(count, plan->replica_count)
              : count) *
         sizeof(float);
}

/* The rank's weights where the copy has them. */
static void place_copy(const struct pen_plan *plan, uint32_t rank) {
  struct pen_weight *weights = calloc(plan->weight_count + 1u, sizeof *weights);
  pen_check(weights != NULL, "no memory for %u weights", plan->weight_count);
  uint64_t offset = plan->memory[rank].snapshot_offset;
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    weights[i] = plan->weights[i];
    for (enum pen_checkpoint_tensor part = 0;
         part < PEN_CHECKPOINT_TENSORS && weights[i].rank == rank; part++) {
      if (pen_checkpoint_tensor_exists(&weights[i], part)) {
        *offset_of(&weights[i], part) = offset;
        offset += pen_aligned(part_bytes(plan, i, part));
      }
    }
  }
  pen_check(offset == plan->memory[rank].snapshot_offset + plan->memory[rank].snapshot_bytes,
            "the plan's snapshot has no room");
  snapshot.plan = *plan;
  snapshot.plan.weights = weights;
}

static void copy_part(const struct pen_transport *end, uint64_t to, uint64_t from, size_t bytes) {
  if (snapshot.queue == NULL) {
    memcpy(end->arena + to, end->arena + from, bytes);
  } else {
    snapshot.queue->device->copy(end->arena + to, end->arena + from, bytes, snapshot.queue->stream);
  }
}

static void copy(const struct pen_transport *end) {
  for (uint32_t i = 0; i < end->plan->weight_count; i++) {
    const struct pen_weight *from = &end->plan->weights[i], *to = &snapshot.plan.weights[i];
    for (enum pen_checkpoint_tensor part = 0;
         part < PEN_CHECKPOINT_TENSORS && from->rank == end->rank; part++) {
      if (pen_checkpoint_tensor_exists(from, part)) {
        copy_part(end, pen_checkpoint_arena_offset(to, part),
                  pen_checkpoint_arena_offset(from, part), part_bytes(end->plan, i, part));
      }
    }
  }
  if (snapshot.queue != NULL && snapshot.queue->copied != NULL) {
    snapshot.queue->device->event_record(snapshot.queue->copied, snapshot.queue->stream);
  }
}

/* What the thread looks at is the copy that was asked for. */
static void await_copy(void) {
  if (snapshot.queue != NULL && snapshot.queue->copied != NULL) {
    snapshot.queue->device->stream_wait_event(snapshot.queue->aside, snapshot.queue->copied);
  }
}

/* Runs wherever the parent may, not on the core of its rank, and after the ranks where all cores
 * are taken. */
static void step_aside(void) {
  cpu_set_t cores;
  if (sched_getaffinity(getppid(), sizeof cores, &cores) == 0) {
    sched_setaffinity(0, sizeof cores, &cores); /* a wish */
  }
  setpriority(PRIO_PROCESS, 0, NICE); /* of this thread alone, in Linux */
}

static void *write_on(void *unused) {
  (void)unused;
  const struct pen_control *control = snapshot.shared.control;
  int status;
  step_aside();
  if (snapshot.queue != NULL) {
    snapshot.queue->device->enter_thread();
  }
  for (uint32_t save = 1; pen_futex_counter_wait(&snapshot.asked, save, &control->abort_status, 0);
       save++) {
    await_copy();
    if (!pen_save_together(snapshot.end, &snapshot.saving, &status)) {
      break;
    }
    pen_futex_counter_increment(&snapshot.done);
  }
  return NULL; /* the run was aborted: the rank will know */
}

void pen_snapshot_open(const struct pen_transport *end, struct pen_stream_state *queue) {
  pthread_t thread;
  sigset_t all, before;
  snapshot.queue = queue;
  snapshot.there = (struct pen_arena_view){.look = pen_stream_look_aside, .context = queue};
  place_copy(end->plan, end->rank);
  snapshot.shared = *end->shared;
  snapshot.shared.ranks = end->shared->writers;
  snapshot.end =
      pen_shm_open(&snapshot.plan, end->profile, &snapshot.shared, end->global, end->arena);
  sigfillset(&all);
  pen_check(pthread_sigmask(SIG_SETMASK, &all, &before) == 0, "cannot hold signals back");
  pen_check(pthread_create(&thread, NULL, write_on, NULL) == 0,
            "cannot start the thread that writes checkpoints");
  pen_check(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0, "cannot take signals");
}

bool pen_snapshot_wait(const struct pen_transport *end) {
  uint32_t asked = atomic_load_explicit(&snapshot.asked.count, memory_order_relaxed);
  atomic_store_explicit(&end->self->phase, PEN_PHASE_SAVE, memory_order_relaxed);
  bool going =
      snapshot.end == NULL ||
      pen_futex_counter_wait(&snapshot.done, asked, &end->shared->control->abort_status, 0);
  atomic_store_explicit(&end->self->phase, PEN_PHASE_STEPS, memory_order_relaxed);
  return going;
}

bool pen_snapshot_save(const struct pen_transport *end, const struct pen_saving *saving) {
  if (!pen_snapshot_wait(end)) {
    return false;
  }
  copy(end);
  snapshot.saving = *saving;
  snapshot.saving.view = snapshot.queue == NULL ? NULL : &snapshot.there;
  pen_futex_counter_increment(&snapshot.asked);
  return true;
}
