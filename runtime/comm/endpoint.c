/* endpoint.c: what the hosts of all ranks do together, over shared memory (see endpoint.h). */
#include "runtime/comm/endpoint.h"

#include <string.h>

#include "runtime/base/check.h"

/* A process whose messages need it sleeps at most so long at a time. */
enum { PROGRESS_NS = 1000 * 1000 };

struct pen_endpoint pen_endpoint_of(const struct pen_plan *plan, const struct pen_shared *shared,
                                    uint32_t global, unsigned char *arena) {
  const struct pen_coordinates at = pen_coordinates_of(plan, global);
  return (struct pen_endpoint){
      .plan = plan,
      .shared = shared,
      .self = &shared->ranks[global],
      .arena = arena,
      .rank = at.in[PEN_PIPELINE],
      .replica = at.in[PEN_DATA],
      .tensor_rank = at.in[PEN_TENSOR],
      .global = global,
  };
}

static bool wait_with_progress(struct pen_endpoint *endpoint, struct pen_futex_counter *flag,
                               uint32_t needed) {
  const struct pen_control *control = endpoint->shared->control;
  uint64_t spin_ns = control->spin_ns;
  while (atomic_load_explicit(&control->abort_status, memory_order_relaxed) == 0) {
    endpoint->progress(endpoint->progress_context);
    if (pen_futex_counter_wait_for(flag, needed, spin_ns, PROGRESS_NS)) {
      return true;
    }
    spin_ns = 0;
  }
  return false;
}

bool pen_endpoint_wait(struct pen_endpoint *endpoint, struct pen_futex_counter *flag,
                       uint32_t needed, uint32_t peer) {
  if (__builtin_expect(pen_futex_counter_reached(flag, needed), 1)) {
    return true;
  }
  const struct pen_control *control = endpoint->shared->control;
  struct pen_rank_state *self = endpoint->self;
  const uint64_t start_ns = pen_now_ns();
  atomic_store_explicit(&self->awaited_counter, pen_awaited_counter(endpoint->shared, flag, needed),
                        memory_order_relaxed);
  atomic_store_explicit(&self->waits_for, peer + 1, memory_order_relaxed);
  const bool reached =
      endpoint->progress == NULL
          ? pen_futex_counter_wait(flag, needed, &control->abort_status, control->spin_ns)
          : wait_with_progress(endpoint, flag, needed);
  atomic_store_explicit(&self->waits_for, 0, memory_order_relaxed);
  atomic_store_explicit(&self->awaited_counter, 0, memory_order_relaxed);
  endpoint->waited_ns += pen_now_ns() - start_ns;
  return reached;
}

/* ---- the statistics of a step ---- */

double *pen_endpoint_step_stats(struct pen_endpoint *endpoint, uint64_t step) {
  return endpoint->shared->step_stats +
         step % PEN_STEP_STATS_DEPTH * endpoint->shared->step_stats_count;
}

void pen_endpoint_publish(struct pen_endpoint *endpoint, uint64_t step) {
  pen_assert(atomic_load_explicit(&endpoint->self->published.count, memory_order_relaxed) ==
             (uint32_t)step);
  pen_futex_counter_increment(&endpoint->self->published);
  pen_shared_notify(endpoint->shared);
}

bool pen_endpoint_gather(struct pen_endpoint *endpoint, uint64_t step) {
  struct pen_rank_state *ranks = endpoint->shared->ranks;
  bool going = true;
  for (uint32_t r = 0; r < endpoint->shared->process_count && going; r++) {
    going = pen_endpoint_wait(endpoint, &ranks[r].published, (uint32_t)(step + 1), r);
  }
  return going;
}

bool pen_endpoint_has_gathered(struct pen_endpoint *endpoint, uint64_t step) {
  bool all = true;
  for (uint32_t r = 0; r < endpoint->shared->process_count && all; r++) {
    all = pen_futex_counter_reached(&endpoint->shared->ranks[r].published, (uint32_t)(step + 1));
  }
  return all;
}

void pen_endpoint_log_read(struct pen_endpoint *endpoint) {
  pen_futex_counter_increment(&endpoint->shared->control->logged);
  pen_shared_notify(endpoint->shared);
}

bool pen_endpoint_wait_log(struct pen_endpoint *endpoint, uint64_t step) {
  return step < PEN_STEP_STATS_DEPTH ||
         pen_endpoint_wait(endpoint, &endpoint->shared->control->logged,
                           (uint32_t)(step - PEN_STEP_STATS_DEPTH + 1), 0);
}

void pen_endpoint_publish_timing(struct pen_endpoint *endpoint, uint64_t step) {
  endpoint->self->timing[step % PEN_TIMED_STEPS] = endpoint->timing;
  pen_futex_counter_increment(&endpoint->self->timed);
  pen_shared_notify(endpoint->shared);
}

/* ---- barriers ---- */

bool pen_endpoint_begin_step(struct pen_endpoint *endpoint, uint64_t step) {
  struct pen_futex_counter *begun = &endpoint->shared->control->begun;
  if (endpoint->global != 0) {
    return pen_endpoint_wait(endpoint, begun, (uint32_t)(step + 1), 0);
  }
  pen_futex_counter_increment(begun);
  pen_shared_notify(endpoint->shared);
  return true;
}

/* Every rank raises its own counter and waits for all: the n-th barrier is passed when all counters
 * are at n. */
bool pen_endpoint_barrier(struct pen_endpoint *endpoint) {
  struct pen_rank_state *ranks = endpoint->shared->ranks;
  pen_futex_counter_increment(&endpoint->self->arrived);
  pen_shared_notify(endpoint->shared);
  const uint32_t needed =
      atomic_load_explicit(&endpoint->self->arrived.count, memory_order_relaxed);
  bool going = true;
  for (uint32_t r = 0; r < endpoint->shared->process_count && going; r++) {
    going = pen_endpoint_wait(endpoint, &ranks[r].arrived, needed, r);
  }
  return going;
}

static void give_part(struct pen_rank_state *self, uint64_t offset, uint64_t bytes) {
  const uint64_t parts = atomic_load(&self->parts);
  self->part[parts % 2] = (struct pen_mailbox_part){
      offset, bytes < PEN_MAILBOX_PART_BYTES ? bytes : PEN_MAILBOX_PART_BYTES};
  atomic_store(&self->parts, parts + 1);
}

/* A barrier is passed when the others have arrived; the one after it, when they have got what was
 * given before it. */
bool pen_endpoint_give_all(struct pen_endpoint *endpoint, uint64_t offset, uint64_t bytes,
                           bool gives) {
  bool going = true;
  if (endpoint->plan->host_count < 2) {
    return true;
  }
  for (uint64_t at = 0; at < bytes && going; at += PEN_MAILBOX_PART_BYTES) {
    if (gives) {
      give_part(endpoint->self, offset + at, bytes - at);
    }
    going = pen_endpoint_barrier(endpoint);
  }
  return going && pen_endpoint_barrier(endpoint);
}

uint32_t pen_endpoint_compare_plans(struct pen_endpoint *endpoint, bool *aborted) {
  memcpy(endpoint->self->digest, endpoint->plan->digest, PEN_DIGEST_BYTES);
  *aborted = !pen_endpoint_barrier(endpoint);
  uint32_t other = PEN_NONE;
  for (uint32_t r = endpoint->shared->process_count; r-- > 0 && !*aborted;) {
    if (memcmp(endpoint->shared->ranks[r].digest, endpoint->plan->digest, PEN_DIGEST_BYTES) != 0) {
      other = r;
    }
  }
  return other;
}
