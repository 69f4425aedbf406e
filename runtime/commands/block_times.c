/* block_times.c: runs the plans of the command measure (see block_times.h).
 *
 * On the CPU the clock is that of the thread, so that the time for which another program has the
 * core does not count; a call of it takes some of the time that is measured, which is subtracted.
 *
 * Each process is a rank of its own run: it has its own shared memory, and nobody to wait for. Of a
 * plan with tensor ranks as many are one run, in which they exchange nothing but the statistics of
 * a step: all slots hold ones. The replicas of a plan with collectives are one run, and wait for
 * each other. A process records when its actions ran in a ring that this process maps, too. Times
 * of first steps do not count, since memory is touched there for the first time. */
#define _GNU_SOURCE
#include "runtime/commands/block_times.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/check.h"
#include "runtime/comm/shared_control.h"
#include "runtime/data/windows.h"
#include "runtime/observe/trace.h"
#include "runtime/rank/rank.h"
#include "runtime/rank/run.h"

enum { STEPS_MAX = 64 };
static const double ms = 1e-6; /* of a nanosecond */

uint32_t pen_block_processes(const struct pen_plan *plan, const struct pen_busy_cores *cores) {
  const uint32_t run = pen_process_count(plan), runs = cores->count / run;
  return pen_group_size(plan, PEN_DATA) > 1 || runs == 0 ? run : run * runs;
}

static const struct pen_rank_program *actions_of(const struct pen_plan *plan) {
  return &plan->profiles[0].ranks[0];
}

void pen_block_times_open(struct pen_block_times *times, const struct pen_plan *plan,
                          uint32_t layers) {
  *times = (struct pen_block_times){.plan = plan, .layers = layers};
}

/* ---- one process ---- */

/* Windows of tokens that do not come from a file; of normals, none. */
static struct pen_data make_data(const struct pen_plan *plan, const struct pen_profile *profile,
                                 uint64_t seed) {
  struct pen_data data;
  pen_data_open(&data, plan, profile->sequence, NULL, 0, seed);
  if (plan->needs_tokens) {
    data.window_count = pen_data_step_windows(plan, profile);
    data.token_count = data.window_count * data.sequence + 1;
    data.token_bytes = sizeof(uint32_t);
    uint32_t *tokens = malloc(data.token_count * sizeof *tokens);
    pen_check(tokens != NULL, "no memory for tokens");
    uint64_t state = seed;
    for (uint64_t t = 0; t < data.token_count; t++) {
      state = state * 6364136223846793005u + 1442695040888963407u; /* Knuth, MMIX */
      tokens[t] = htole32((uint32_t)((state >> 33) % data.vocab));
    }
    data.tokens = (const unsigned char *)tokens;
  }
  return data;
}

/* `shared`: of all processes of the run; null: it has one. */
static _Noreturn void run_rank(const struct pen_plan *plan, const struct pen_shared *shared,
                               uint32_t global, const struct pen_options *options,
                               struct pen_trace *ring) {
  static struct pen_run run; /* it outlives this function's frame */
  static struct pen_options quiet;
  quiet = *options;
  quiet.quiet = true;
  run = (struct pen_run){.plan = plan,
                         .buckets = pen_buckets_of(plan, PEN_TRAIN),
                         .options = &quiet,
                         .local = pen_rank_set_all(plan),
                         .log_descriptor = -1,
                         .trace_descriptor = -1,
                         .steps = STEPS_MAX,
                         .measured = ring,
                         .alone = pen_group_size(plan, PEN_DATA) == 1};
  run.profile = run.buckets.profile[0];
  run.data = make_data(plan, run.profile, options->seed);
  if (shared != NULL) {
    run.shared = *shared;
  } else {
    pen_timed_shared_open(&run.shared, plan);
  }
  run.shared.local = run.local;
  pen_rank_main(&run, global);
}

struct processes {
  const struct pen_plan *plan;
  const struct pen_busy_cores *cores;
  const struct pen_options *options;
  const struct pen_shared *shared; /* [count / run]; null: each process has its own */
  struct pen_trace *rings;         /* [count]; replicas share the first */
  uint32_t count, run;             /* processes, and those of a run */
  uint32_t layers;                 /* of the deployment's model */
};

/* In a process that waits for no other. */
static void open_other_layers(struct pen_trace *ring, const struct processes *all) {
  static struct pen_other_layers others; /* it outlives this function's frame */
  pen_other_layers_open(&others, all->plan, all->layers, all->count);
  ring->others = &others;
}

static void run_process(void *context, uint32_t index) {
  const struct processes *all = context;
  const bool alone = pen_group_size(all->plan, PEN_DATA) == 1;
  if (alone) {
    open_other_layers(&all->rings[index], all);
  }
  run_rank(all->plan, all->shared == NULL ? NULL : &all->shared[index / all->run], index % all->run,
           all->options, &all->rings[alone ? index : 0]);
}

/* ---- all processes ---- */

static size_t ring_bytes(const struct pen_plan *plan) {
  return (size_t)actions_of(plan)->action_count * STEPS_MAX * sizeof(struct pen_trace_event);
}

static struct pen_trace *open_rings(const struct pen_plan *plan, uint32_t count) {
  struct pen_trace *rings = pen_timed_memory(count * sizeof *rings);
  for (uint32_t i = 0; i < count; i++) {
    rings[i] = (struct pen_trace){.events = pen_timed_memory(ring_bytes(plan)),
                                  .capacity = (uint64_t)actions_of(plan)->action_count * STEPS_MAX,
                                  .descriptor = -1,
                                  .of_processor = pen_device_row(plan->device)->on_host};
  }
  return rings;
}

static void close_rings(struct pen_trace *rings, const struct pen_plan *plan, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    munmap(rings[i].events, ring_bytes(plan));
  }
  munmap(rings, count * sizeof *rings);
}

/* Makes room for the samples of one more run. */
static void grow(struct pen_block_times *times, uint32_t processes) {
  const uint32_t rows = actions_of(times->plan)->action_count,
                 capacity = times->capacity + processes * STEPS_MAX;
  uint64_t *samples = pen_allocate((size_t)rows * capacity, sizeof *samples, "measured times");
  for (uint32_t row = 0; row < rows && times->count > 0; row++) {
    memcpy(samples + (size_t)row * capacity, times->sample_ns + (size_t)row * times->capacity,
           times->count * sizeof *samples);
  }
  free(times->sample_ns);
  times->sample_ns = samples;
  times->capacity = capacity;
}

/* What the ring's clock measures where nothing happens. */
static uint64_t empty_ns(const struct pen_trace *ring) {
  uint64_t least_ns = UINT64_MAX;
  for (int i = 0; i < 100; i++) {
    const uint64_t start_ns = pen_trace_now_ns(ring), past_ns = pen_trace_now_ns(ring);
    least_ns = past_ns - start_ns < least_ns ? past_ns - start_ns : least_ns;
  }
  return least_ns;
}

static void add_samples(struct pen_block_times *times, const struct pen_trace *ring) {
  const uint64_t clock_ns = empty_ns(ring);
  const uint64_t rows = actions_of(times->plan)->action_count, steps = ring->count / rows;
  for (uint64_t step = steps > 1 ? 1 : 0; step < steps; step++) {
    for (uint64_t row = 0; row < rows; row++) {
      const struct pen_trace_event *event = &ring->events[step * rows + row];
      const uint64_t length_ns = event->end_ns - event->start_ns;
      times->sample_ns[row * times->capacity + times->count] =
          length_ns > clock_ns ? length_ns - clock_ns : 0;
    }
    times->count++;
  }
}

void pen_block_times_run(struct pen_block_times *times, struct pen_busy_cores *cores,
                         const struct pen_options *options, double seconds) {
  const struct pen_plan *plan = times->plan;
  static struct pen_shared shared[PEN_TIMED_PROCESSES_MAX];
  struct processes all = {.plan = plan,
                          .cores = cores,
                          .options = options,
                          .layers = times->layers,
                          .count = pen_block_processes(plan, cores),
                          .run = pen_process_count(plan)};
  pen_assert(all.count <= PEN_TIMED_PROCESSES_MAX); /* gen/pipeline/measure_plans.c */
  const uint32_t opened = all.run > 1 ? all.count / all.run : 0;
  all.rings = open_rings(plan, all.count);
  for (uint32_t i = 0; i < opened; i++) {
    pen_timed_shared_open(&shared[i], plan);
    all.shared = shared;
  }
  pen_timed_ranks_run(all.count, cores, seconds, run_process, &all);
  for (uint32_t i = 0; i < opened; i++) {
    pen_shared_close(&shared[i]);
  }
  grow(times, all.count);
  for (uint32_t i = 0; i < all.count; i++) {
    add_samples(times, &all.rings[i]);
  }
  close_rings(all.rings, plan, all.count);
}

/* ---- quantiles ---- */

/* The quantile of each action of a kind and stage; the mean of several such actions. */
static double quantile_ms(struct pen_block_times *times, int kind, uint32_t stage,
                          double quantile) {
  const struct pen_rank_program *program = actions_of(times->plan);
  double sum_ns = 0;
  uint32_t found = 0;
  for (uint32_t row = 0; row < program->action_count && times->count > 0; row++) {
    const struct pen_action *action = &program->actions[row];
    uint64_t *sample_ns = times->sample_ns + (size_t)row * times->capacity;
    if (action->kind == kind && (!pen_kind_has_stage(kind) || action->stage == stage)) {
      sum_ns += pen_timed_quantile_ns(sample_ns, times->count, quantile);
      found++;
    }
  }
  return found == 0 ? 0 : sum_ns / found * ms;
}

double pen_block_times_ms(struct pen_block_times *times, int kind, uint32_t stage) {
  return quantile_ms(times, kind, stage, 0.5);
}

double pen_block_times_collective_ms(struct pen_block_times *times, int kind, uint32_t stage) {
  return quantile_ms(times, kind, stage, 0.25);
}
