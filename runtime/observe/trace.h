/* trace.h: --trace FILE: when each action ran, as a Chrome trace (chrome://tracing,
 * ui.perfetto.dev): one JSON file, a process a rank. Each rank records its actions in a ring,
 * allocated before pen_seal(), which keeps the last ones, and writes them when it exits. The parent
 * writes the head before and the tail after, so that the file is complete however the run ends. */
#ifndef PEN_TRACE_H
#define PEN_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "runtime/observe/other_layers.h"
#include "runtime/plan/plan.h"

struct pen_trace_event {
  uint64_t start_ns, end_ns;
  uint32_t row;
};

/* One rank's ring. */
struct pen_trace {
  struct pen_trace_event *events;
  uint64_t capacity, count; /* count: of all events; the last `capacity` are kept */
  int descriptor;
  bool of_processor;                     /* times are those that the thread has had a core */
  const struct pen_other_layers *others; /* null: nothing is read between actions */
};

/* In the parent: creates the file and writes its head: the clock's zero in CLOCK_MONOTONIC, and the
 * plan with its predicted times (plan_summary.h). Fails (73, 74). Returns the descriptor. */
int pen_trace_create(const char *path, const struct pen_plan *plan,
                     const struct pen_profile *profile, uint64_t zero_ns);
/* In the parent, after all ranks have exited. */
void pen_trace_finish(int descriptor);

/* In a rank: a ring for the actions of `steps` steps, at most PEN_TRACE_EVENTS_MAX. Allocates. */
enum { PEN_TRACE_EVENTS_MAX = 1 << 19 };
struct pen_trace *pen_trace_open(int descriptor, const struct pen_rank_program *program,
                                 uint64_t steps);

/* In a rank: touches the ring's memory, before the first action is timed. */
void pen_trace_touch(struct pen_trace *trace);

/* The ring's clock. */
static inline uint64_t pen_trace_now_ns(const struct pen_trace *trace) {
  struct timespec now;
  clock_gettime(trace->of_processor ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void pen_trace_add(struct pen_trace *trace, uint32_t row, uint64_t start_ns,
                                 uint64_t end_ns) {
  trace->events[trace->count++ % trace->capacity] =
      (struct pen_trace_event){.start_ns = start_ns, .end_ns = end_ns, .row = row};
}

/* In a rank, before it exits: appends its events, in microseconds from zero_ns. */
void pen_trace_write(const struct pen_trace *trace, const struct pen_rank_program *program,
                     uint32_t rank, uint64_t zero_ns);

#endif
