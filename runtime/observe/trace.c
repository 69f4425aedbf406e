/* trace.c: writes --trace FILE (see trace.h). */
#include "runtime/observe/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/comm/action_text.h"
#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/output.h"
#include "runtime/observe/plan_summary.h"

enum { EVENT_BYTES_MAX = 256, BUFFER_BYTES = 64 * 1024 };

static const char *file; /* of the command line */

/* Ranks append to one file at once: a split is written whole, or the run ends saying so. */
static void put(int descriptor, const char *text, size_t bytes) {
  if (pen_output_write(descriptor, text, bytes) != 0) {
    pen_fail(PEN_EXIT_CANNOT_WRITE, "--trace %s: cannot write: %s", file, strerror(errno));
  }
}

int pen_trace_create(const char *path, const struct pen_plan *plan,
                     const struct pen_profile *profile, uint64_t zero_ns) {
  int descriptor = pen_file_open_output(path, O_TRUNC | O_APPEND);
  file = path;
  if (descriptor < 0) {
    pen_fail(PEN_EXIT_CANNOT_CREATE, "--trace %s: %s", path, strerror(errno));
  }
  char text[EVENT_BYTES_MAX];
  int bytes = snprintf(text, sizeof text,
                       "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"zero_monotonic_ns\":\"%" PRIu64
                       "\",\"plan\":\n",
                       zero_ns);
  put(descriptor, text, (size_t)bytes);
  char *planned = pen_planned_step(plan, profile);
  put(descriptor, planned, strlen(planned));
  free(planned);
  static const char events[] = "},\"traceEvents\":[\n";
  put(descriptor, events, sizeof events - 1);
  for (uint32_t r = 0; r < pen_process_count(plan); r++) {
    bytes = snprintf(text, sizeof text,
                     "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":0,\"args\":{"
                     "\"name\":\"rank %u\"}},\n",
                     r, r);
    put(descriptor, text, (size_t)bytes);
  }
  return descriptor;
}

/* The last event has no comma: the parent adds one that says nothing. */
void pen_trace_finish(int descriptor) {
  static const char tail[] =
      "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{\"sort_index\":"
      "0}}\n]}\n";
  put(descriptor, tail, sizeof tail - 1);
  if (close(descriptor) != 0) {
    pen_fail(PEN_EXIT_CANNOT_WRITE, "--trace %s: %s", file, strerror(errno));
  }
}

struct pen_trace *pen_trace_open(int descriptor, const struct pen_rank_program *program,
                                 uint64_t steps) {
  struct pen_trace *trace = malloc(sizeof *trace);
  uint64_t capacity = PEN_TRACE_EVENTS_MAX;
  if (program->action_count != 0 && steps < capacity / program->action_count) {
    capacity = steps * program->action_count;
  }
  capacity += capacity == 0;
  pen_check(trace != NULL, "no memory for the trace");
  *trace = (struct pen_trace){.events = malloc(capacity * sizeof *trace->events),
                              .capacity = capacity,
                              .descriptor = descriptor};
  pen_check(trace->events != NULL, "no memory for %" PRIu64 " events of the trace", capacity);
  pen_trace_touch(trace);
  return trace;
}

void pen_trace_touch(struct pen_trace *trace) {
  memset(trace->events, 0, trace->capacity * sizeof *trace->events);
}

void pen_trace_write(const struct pen_trace *trace, const struct pen_rank_program *program,
                     uint32_t rank, uint64_t zero_ns) {
  static char buffer[BUFFER_BYTES];
  size_t used = 0;
  uint64_t first = trace->count > trace->capacity ? trace->count - trace->capacity : 0;
  for (uint64_t i = first; i < trace->count; i++) {
    const struct pen_trace_event *event = &trace->events[i % trace->capacity];
    const struct pen_action *action = &program->actions[event->row];
    char name[64];
    used += (size_t)snprintf(
        buffer + used, sizeof buffer - used,
        "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%u,\"tid\":0,\"ts\":%.3f,\"dur\":%."
        "3f},\n",
        pen_action_name(name, sizeof name, action), pen_action_kind_text(action->kind), rank,
        (double)(event->start_ns - zero_ns) / 1e3, (double)(event->end_ns - event->start_ns) / 1e3);
    if (used > sizeof buffer - EVENT_BYTES_MAX || i + 1 == trace->count) {
      put(trace->descriptor, buffer, used);
      used = 0;
    }
  }
}
