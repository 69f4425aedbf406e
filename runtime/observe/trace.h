/* trace.h: --trace FILE: when each row ran, as a Chrome trace (chrome://tracing, ui.perfetto.dev):
 * one JSON file, a process a rank. Each rank notes its rows in a ring that is made before the seal,
 * which keeps the last ones, and writes them when it leaves; the parent writes the head before and
 * the tail after, so that the file is whole however the run ends. */
#ifndef PEN_TRACE_H
#define PEN_TRACE_H

#include <stdint.h>

#include "runtime/plan/plan.h"

struct pen_trace_event {
  uint64_t start_ns, end_ns;
  uint32_t row;
};

/* One rank's ring. */
struct pen_trace {
  struct pen_trace_event *events;
  uint64_t capacity, count; /* count rises on; the last `capacity` are kept */
  int descriptor;
};

/* The parent: makes the file and writes its head, which tells the clock's zero in CLOCK_MONOTONIC;
 * fails (73, 74) when it cannot. Returns its descriptor. */
int pen_trace_create(const char *path, const struct pen_plan *plan, uint64_t zero_ns);
/* The parent, when every rank has left. */
void pen_trace_finish(int descriptor);

/* A rank: room for as many rows as `steps` steps run, at most PEN_TRACE_EVENTS_MAX. Allocates. */
enum { PEN_TRACE_EVENTS_MAX = 1 << 19 };
struct pen_trace *pen_trace_open(int descriptor, const struct pen_rank_program *program,
                                 uint64_t steps);

/* A rank: makes a ring's memory present, before the first row is timed. */
void pen_trace_touch(struct pen_trace *trace, int descriptor);

static inline void pen_trace_add(struct pen_trace *trace, uint32_t row, uint64_t start_ns,
                                 uint64_t end_ns) {
  trace->events[trace->count++ % trace->capacity] =
      (struct pen_trace_event){.start_ns = start_ns, .end_ns = end_ns, .row = row};
}

/* A rank, when it leaves: appends its events, in microseconds from zero_ns. */
void pen_trace_write(const struct pen_trace *trace, const struct pen_rank_program *program,
                     uint32_t rank, uint64_t zero_ns);

#endif
