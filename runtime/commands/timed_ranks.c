/* timed_ranks.c: processes that are ranks of a small plan (see timed_ranks.h). */
#include "runtime/commands/timed_ranks.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/child.h"

enum { LINE_BYTES = 64 };

/* ---- processes ---- */

void pen_busy_cores_open(struct pen_busy_cores *cores, const struct pen_plan *plan) {
  static struct pen_plan bound;
  bound = *plan;
  bound.tensor_ranks = 1; /* there may be fewer cores */
  bound.bind = PEN_BIND_CORE;
  const struct pen_rank_set all = pen_rank_set_all(&bound);
  pen_binding_open(&cores->binding, &bound, &all);
  const uint32_t count = cores->binding.allowed_count / plan->threads_per_rank;
  cores->count = !pen_device_row(plan->device)->on_host || count == 0 ? 1
                 : count < PEN_TIMED_PROCESSES_MAX                    ? count
                                                                      : PEN_TIMED_PROCESSES_MAX;
}

static void start_all(pid_t *pids, uint32_t count, const struct pen_busy_cores *cores,
                      void (*run)(void *context, uint32_t rank), void *context) {
  const pid_t parent = getpid();
  sigset_t stop, before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM); /* it waits until the rank handles it */
  pen_check(sigprocmask(SIG_BLOCK, &stop, &before) == 0, "cannot block a signal");
  for (uint32_t r = 0; r < count; r++) {
    pids[r] = fork();
    pen_check(pids[r] >= 0, "cannot start a process");
    if (pids[r] == 0) {
      pen_child_end_with(parent);
      if (cores != NULL && count > 1 && count <= cores->count) {
        const struct pen_cores own = pen_binding_cores(&cores->binding, r);
        pen_binding_apply(&own);
      }
      run(context, r);
      _exit(0);
    }
  }
  pen_check(sigprocmask(SIG_SETMASK, &before, NULL) == 0, "cannot unblock a signal");
}

/* Whether the process, 0 if none is left, has exited now. */
static bool has_exited(pid_t *pid) {
  int status = 0;
  if (*pid == 0 || waitpid(*pid, &status, WNOHANG) != *pid) {
    return false;
  }
  if (status != 0) { /* it has said why; the others end with this process */
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : PEN_EXIT_LOST);
  }
  *pid = 0;
  return true;
}

void pen_timed_ranks_run(uint32_t count, const struct pen_busy_cores *cores, double seconds,
                         void (*run)(void *context, uint32_t rank), void *context) {
  const struct timespec poll = {.tv_nsec = 2 * 1000 * 1000};
  pid_t pids[PEN_TIMED_PROCESSES_MAX];
  pen_assert(count <= PEN_TIMED_PROCESSES_MAX);
  start_all(pids, count, cores, run, context);
  const uint64_t start_ns = pen_now_ns();
  bool asked = false;
  for (uint32_t left = count; left > 0; nanosleep(&poll, NULL)) {
    const bool asks = !asked && (double)(pen_now_ns() - start_ns) >= seconds * 1e9;
    for (uint32_t r = 0; r < count; r++) {
      left -= has_exited(&pids[r]);
      if (asks && pids[r] != 0) {
        kill(pids[r], SIGTERM);
      }
    }
    asked = asked || asks;
  }
}

/* ---- what they share ---- */

void *pen_timed_memory(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pen_check(memory != MAP_FAILED, "no memory for %zu bytes of measured times", bytes);
  return memory;
}

void pen_timed_shared_open(struct pen_shared *shared, const struct pen_plan *plan) {
  pen_shared_open(shared, plan);
  snprintf(shared->address, sizeof shared->address, "127.0.0.1");
  shared->control->spin_ns = PEN_TIMED_SPIN_NS;
}

struct pen_transport *pen_timed_transport_open(const struct pen_plan *plan,
                                               struct pen_shared *shared,
                                               struct pen_endpoint *endpoint, uint32_t rank) {
  *endpoint =
      pen_endpoint_of(plan, shared, rank, shared->memory + shared->receive_region_offset[rank]);
  struct pen_transport *transport = pen_transport_open(
      &(struct pen_transport_config){.endpoint = endpoint, .profile = plan->profiles});
  if (transport->ops->export_handles != NULL) {
    transport->ops->export_handles(transport);
  }
  pen_endpoint_barrier(endpoint);
  if (transport->ops->connect != NULL) {
    transport->ops->connect(transport);
  }
  pen_endpoint_barrier(endpoint);
  return transport;
}

/* ---- times ---- */

void pen_timed_write(unsigned char *to, uint64_t bytes, uint64_t round) {
  memset(to, (int)(round & 0xff), bytes);
}

void pen_timed_read(const unsigned char *from, uint64_t bytes) {
  unsigned sum = 0;
  for (uint64_t at = 0; at < bytes; at += LINE_BYTES) {
    sum += from[at];
  }
  __asm__ volatile("" : : "r"(sum));
}

static int compare_times(const void *a, const void *b) {
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

double pen_timed_quantile_ns(uint64_t *took_ns, size_t count, double quantile) {
  qsort(took_ns, count, sizeof *took_ns, compare_times);
  return (double)took_ns[(size_t)((double)(count - 1) * quantile)];
}
