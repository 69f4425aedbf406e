/* measure.c: train --measure (see measure.h). */
#define _GNU_SOURCE
#include "runtime/observe/measure.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/text_writer.h"
#include "runtime/observe/json_output.h"
#include "runtime/storage/tensor_pieces.h"

enum { KINDS = PEN_W + 1 };
static const double ms = 1e-6; /* of a nanosecond */

/* A sum of durations. */
struct mean {
  double sum_ns;
  uint64_t count;
};

/* What is looked for, of one stage. */
struct stage_times {
  struct mean kind[KINDS], copy[2], latency; /* copy: of SEND_F, SEND_B */
};

struct work {
  const struct pen_measure *measure;
  uint64_t steps;             /* kept by every ring */
  uint64_t *length_ns;        /* [steps] from the first action's start to the last one's end */
  bool *is_counted;           /* [steps] */
  struct stage_times *stages; /* [stage_count] */
  uint32_t *send_index;       /* [message] on its sender's rank */
};

/* ---- the rings ---- */

static void *shared_memory(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pen_check(memory != MAP_FAILED, "no memory for %zu bytes of measured times", bytes);
  return memory;
}

void pen_measure_open(struct pen_measure *measure, const struct pen_plan *plan,
                      const struct pen_profile *profile, const char *path, uint64_t steps) {
  int descriptor = pen_file_open_output(path, 0);
  if (descriptor < 0) {
    pen_fail(PEN_EXIT_CANNOT_CREATE, "--measure %s: %s", path, strerror(errno));
  }
  *measure =
      (struct pen_measure){.plan = plan,
                           .profile = profile,
                           .path = path,
                           .descriptor = descriptor,
                           .rings = shared_memory(plan->rank_count * sizeof *measure->rings)};
  for (uint32_t r = 0; r < plan->rank_count; r++) {
    uint64_t rows = profile->ranks[r].action_count,
             fit = rows == 0 ? 1 : PEN_TRACE_EVENTS_MAX / rows;
    fit = fit == 0 ? 1 : fit;
    uint64_t capacity = rows * (steps < fit ? steps : fit) + (rows == 0); /* whole steps */
    measure->rings[r] =
        (struct pen_trace){.events = shared_memory(capacity * sizeof(struct pen_trace_event)),
                           .capacity = capacity,
                           .descriptor = -1};
  }
}

/* When a row of a rank ran, in the k-th step kept. */
static const struct pen_trace_event *event_of(const struct work *work, uint32_t rank, uint64_t step,
                                              uint32_t row) {
  const struct pen_trace *ring = &work->measure->rings[rank];
  uint64_t rows = work->measure->profile->ranks[rank].action_count,
           first = ring->count - work->steps * rows;
  return &ring->events[(first + step * rows + row) % ring->capacity];
}

static uint64_t steps_kept(const struct pen_measure *measure) {
  uint64_t steps = UINT64_MAX;
  for (uint32_t r = 0; r < measure->plan->rank_count; r++) {
    const struct pen_trace *ring = &measure->rings[r];
    uint64_t rows = measure->profile->ranks[r].action_count,
             kept = ring->count < ring->capacity ? ring->count : ring->capacity;
    if (rows != 0 && kept / rows < steps) {
      steps = kept / rows;
    }
  }
  return steps == UINT64_MAX ? 0 : steps;
}

/* ---- which steps ---- */

static void measure_steps(struct work *work) {
  const struct pen_measure *measure = work->measure;
  for (uint64_t step = 0; step < work->steps; step++) {
    uint64_t first_ns = UINT64_MAX, last_ns = 0;
    for (uint32_t r = 0; r < measure->plan->rank_count; r++) {
      for (uint32_t row = 0; row < measure->profile->ranks[r].action_count; row++) {
        if (measure->profile->ranks[r].actions[row].kind < KINDS) {
          const struct pen_trace_event *event = event_of(work, r, step, row);
          first_ns = event->start_ns < first_ns ? event->start_ns : first_ns;
          last_ns = event->end_ns > last_ns ? event->end_ns : last_ns;
        }
      }
    }
    work->length_ns[step] = last_ns - first_ns;
  }
}

static int compare_lengths(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* Marks the shortest quarter of the steps, one at least; returns their mean, in nanoseconds. */
static double choose_quiet(struct work *work) {
  uint64_t *sorted = calloc(work->steps, sizeof *sorted);
  pen_check(sorted != NULL, "no memory for the lengths of steps");
  memcpy(sorted, work->length_ns, work->steps * sizeof *sorted);
  qsort(sorted, work->steps, sizeof *sorted, compare_lengths);
  uint64_t longest_ns = sorted[(work->steps - 1) / 4];
  free(sorted);
  struct mean mean = {0};
  for (uint64_t step = 0; step < work->steps; step++) {
    work->is_counted[step] = work->length_ns[step] <= longest_ns;
    mean.sum_ns += work->is_counted[step] ? (double)work->length_ns[step] : 0;
    mean.count += work->is_counted[step];
  }
  return mean.sum_ns / (double)mean.count;
}

/* ---- what each row took ---- */

static void add(struct mean *mean, uint64_t from_ns, uint64_t to_ns) {
  mean->sum_ns += (double)(int64_t)(to_ns - from_ns);
  mean->count++;
}

static double mean_ms(const struct mean *mean) {
  return mean->count == 0 ? 0 : mean->sum_ns / (double)mean->count * ms;
}

static void find_send_rows(struct work *work) {
  const struct pen_profile *profile = work->measure->profile;
  for (uint32_t r = 0; r < work->measure->plan->rank_count; r++) {
    for (uint32_t row = 0; row < profile->ranks[r].action_count; row++) {
      const struct pen_action *action = &profile->ranks[r].actions[row];
      if (action->kind == PEN_SEND_F || action->kind == PEN_SEND_B) {
        work->send_index[action->message] = row;
      }
    }
  }
}

/* A wait that began before its message was there: how long after the copy's end it ended. */
static void add_latency(struct work *work, uint64_t step, uint32_t message_index,
                        const struct pen_trace_event *wait) {
  const struct pen_profile *profile = work->measure->profile;
  const struct pen_message *message = &profile->messages[message_index];
  uint32_t sender = profile->channels[message->channel].from_rank;
  const struct pen_trace_event *send =
      event_of(work, sender, step, work->send_index[message_index]);
  if (wait->start_ns < send->end_ns && wait->end_ns > send->start_ns) {
    uint64_t from_ns = send->end_ns < wait->end_ns
                           ? send->end_ns
                           : wait->end_ns; /* the flag rises within the row */
    add(&work->stages[message->stage].latency, from_ns, wait->end_ns);
  }
}

static void measure_row(struct work *work, uint64_t step, uint32_t rank, uint32_t row) {
  const struct pen_action *action = &work->measure->profile->ranks[rank].actions[row];
  const struct pen_trace_event *event = event_of(work, rank, step, row);
  struct stage_times *stage = &work->stages[action->stage];
  if (action->kind < KINDS) {
    add(&stage->kind[action->kind], event->start_ns, event->end_ns);
  } else if (action->kind == PEN_SEND_F || action->kind == PEN_SEND_B) {
    add(&stage->copy[action->kind == PEN_SEND_B], event->start_ns, event->end_ns);
  } else if (action->kind == PEN_WAIT_F || action->kind == PEN_WAIT_B) {
    add_latency(work, step, action->message, event);
  }
}

static void measure_rows(struct work *work) {
  find_send_rows(work);
  for (uint64_t step = 0; step < work->steps; step++) {
    for (uint32_t r = 0; r < work->measure->plan->rank_count && work->is_counted[step]; r++) {
      for (uint32_t row = 0; row < work->measure->profile->ranks[r].action_count; row++) {
        measure_row(work, step, r, row);
      }
    }
  }
}

/* ---- the file ---- */

uint64_t pen_stage_parameters(const struct pen_plan *plan, uint32_t stage) {
  uint64_t count = 0;
  for (uint32_t w = 0; w < plan->weight_count; w++) {
    const struct pen_weight *weight = &plan->weights[w];
    count += weight->stage == stage && pen_first_member(plan, weight) == 0 ? weight->count : 0;
  }
  return count;
}

static json_t *stage_json(const struct work *work, uint32_t index) {
  static const char *const names[KINDS] = {[PEN_F] = "forward",
                                           [PEN_B] = "backward",
                                           [PEN_I] = "backward_input",
                                           [PEN_W] = "backward_weight"};
  const struct stage_times *stage = &work->stages[index];
  int recompute = work->measure->profile->stages[index].recompute;
  json_t *object = json_object();
  json_object_set_new(object, "stage", json_integer(index));
  json_object_set_new(object, "parameters",
                      json_integer((json_int_t)pen_stage_parameters(work->measure->plan, index)));
  json_object_set_new(object, "recomputes", json_string(pen_recompute_text(recompute)));
  for (int kind = 0; kind < KINDS; kind++) {
    double copy = kind == PEN_W ? 0 : mean_ms(&stage->copy[kind != PEN_F]);
    if (stage->kind[kind].count != 0) {
      json_object_set_new(object, names[kind], json_real(mean_ms(&stage->kind[kind]) + copy));
    }
  }
  json_object_set_new(object, "send", json_real(mean_ms(&stage->latency)));
  return object;
}

static json_t *measured_json(const struct work *work, double step_ns) {
  const struct pen_plan *plan = work->measure->plan;
  char digest[2 * PEN_DIGEST_BYTES + 1];
  pen_hex_text(digest, plan->model_digest, PEN_DIGEST_BYTES);
  uint64_t counted = 0;
  for (uint64_t step = 0; step < work->steps; step++) {
    counted += work->is_counted[step];
  }
  json_t *object = json_object(), *stages = json_array();
  json_object_set_new(object, "name", json_string(plan->name));
  json_object_set_new(object, "schedule", json_string(plan->schedule));
  json_object_set_new(object, "device", json_string(pen_device_row(plan->device)->text));
  json_object_set_new(object, "model_digest", json_string(digest));
  json_object_set_new(object, "ranks", json_integer(plan->rank_count));
  json_object_set_new(object, "tensor", json_integer(plan->tensor_ranks));
  json_object_set_new(object, "partials", json_integer(pen_partials_of(plan)));
  json_object_set_new(object, "microbatches",
                      json_integer(work->measure->profile->microbatch_count));
  json_object_set_new(object, "microbatch", json_integer(plan->microbatch));
  json_object_set_new(object, "sequence", json_integer(work->measure->profile->sequence));
  json_object_set_new(object, "unit", json_string("ms"));
  json_object_set_new(object, "steps", json_integer((json_int_t)counted));
  json_object_set_new(object, "step", json_real(step_ns * ms));
  for (uint32_t stage = 0; stage < plan->stage_count; stage++) {
    json_array_append_new(stages, stage_json(work, stage));
  }
  json_object_set_new(object, "stages", stages);
  return object;
}

/* Nothing was measured: a file that we made goes. */
static void give_up(const struct pen_measure *measure) {
  struct stat status;
  if (fstat(measure->descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == 0) {
    unlink(measure->path);
  }
  close(measure->descriptor);
}

void pen_measure_write(struct pen_measure *measure, bool whole) {
  struct work work = {.measure = measure, .steps = whole ? steps_kept(measure) : 0};
  if (work.steps == 0) {
    give_up(measure);
    return;
  }
  work.length_ns = calloc(work.steps, sizeof *work.length_ns);
  work.is_counted = calloc(work.steps, sizeof *work.is_counted);
  work.stages = calloc(measure->plan->stage_count, sizeof *work.stages);
  work.send_index = calloc(measure->profile->message_count + 1u, sizeof *work.send_index);
  pen_check(work.length_ns != NULL && work.is_counted != NULL && work.stages != NULL &&
                work.send_index != NULL,
            "no memory for the measured costs");
  measure_steps(&work);
  double step_ns = choose_quiet(&work);
  measure_rows(&work);
  json_t *object = measured_json(&work, step_ns);
  pen_json_output(measure->descriptor, "--measure", measure->path, object);
  json_decref(object);
  free(work.length_ns);
  free(work.is_counted);
  free(work.stages);
  free(work.send_index);
}
