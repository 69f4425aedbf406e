/* timed_ranks.c: processes that send each other something, by turns (see timed_ranks.h). */
#include "runtime/commands/timed_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/child.h"

enum { LINE_BYTES = 64 };
static const uint64_t spin_ns = 100 * 1000;

void *pen_timed_memory(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pen_check(memory != MAP_FAILED, "no memory for %zu bytes of measured times", bytes);
  return memory;
}

static pid_t start_rank(uint32_t rank, uint32_t count, const struct pen_busy_cores *cores,
                        void (*run)(void *context, uint32_t rank), void *context) {
  const pid_t parent = getpid(), pid = fork();
  pen_check(pid >= 0, "cannot start a process");
  if (pid == 0) {
    pen_child_end_with(parent);
    if (cores->count >= count) {
      const struct pen_cores own = pen_binding_cores(&cores->binding, rank);
      pen_binding_apply(&own);
    }
    run(context, rank);
    _exit(0);
  }
  return pid;
}

void pen_timed_ranks_run(uint32_t count, const struct pen_busy_cores *cores,
                         void (*run)(void *context, uint32_t rank), void *context) {
  pid_t *pids = calloc(count, sizeof *pids);
  pen_check(pids != NULL, "no memory for %u processes", count);
  for (uint32_t r = 0; r < count; r++) {
    pids[r] = start_rank(r, count, cores, run, context);
  }
  for (uint32_t r = 0; r < count; r++) {
    int status = 0;
    pen_check(waitpid(pids[r], &status, 0) == pids[r], "lost a process");
    if (status != 0) { /* it has said why; the others end with this process */
      exit(WIFEXITED(status) ? WEXITSTATUS(status) : PEN_EXIT_LOST);
    }
  }
  free(pids);
}

struct pen_transport *pen_timed_transport_open(const struct pen_plan *plan,
                                               struct pen_shared *shared,
                                               struct pen_endpoint *endpoint, uint32_t rank) {
  unsigned char *arena = shared->memory + shared->receive_region_offset[rank];
  snprintf(shared->address, sizeof shared->address, "127.0.0.1");
  shared->control->spin_ns = spin_ns;
  *endpoint = pen_endpoint_of(plan, shared, rank, arena);
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

static int compare_lengths(const void *a, const void *b) {
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

double pen_timed_quartile_ms(uint64_t *took_ns, size_t count) {
  qsort(took_ns, count, sizeof *took_ns, compare_lengths);
  return (double)took_ns[count / 4] * 1e-6;
}
