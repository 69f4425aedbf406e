/* measure_costs.c: the command measure (see measure_costs.h).
 *
 * Each plan of the binary that has every block as a stage is run several times, alternately with
 * the others, so that a clock that changes is shared by all of them. A block costs what the actions
 * of its stage take, as medians; recomputation what I and B take longer than without it. */
#include "runtime/commands/measure_costs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json_members.h"
#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/output.h"
#include "runtime/commands/block_times.h"
#include "runtime/commands/exchange_times.h"
#include "runtime/commands/files.h"
#include "runtime/commands/message_times.h"
#include "runtime/commands/peak_rate.h"
#include "runtime/plan/experts.h"
#include "runtime/storage/tensor_splits.h"

enum { TURNS = 3, VERSION = 2 };

struct costs {
  const struct pen_plan *plan;
  const struct pen_options *options;
  struct pen_busy_cores cores;
  struct pen_block_times *times; /* [plan->measured_count]: pairs without recomputation, and with;
                                    the last one: of replicas */
};

/* ---- what is measured ---- */

/* Whether all processes have memory for a plan. */
static bool fits(const struct costs *costs, const struct pen_plan *plan) {
  const double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
  return (double)plan->memory[0].arena_bytes * pen_block_processes(plan, &costs->cores) <
         0.8 * machine;
}

/* Fails where no microbatch can be measured; names those that cannot. */
static uint32_t open_times(struct costs *costs) {
  const struct pen_plan *measured = costs->plan->measured;
  uint32_t count = 0;
  for (uint32_t m = 0; m < costs->plan->measured_count; m++) {
    const bool fitting = fits(costs, &measured[m]);
    pen_block_times_open(&costs->times[m], fitting ? &measured[m] : NULL,
                         costs->plan->deployed_layers);
    count += fitting;
    if (!fitting && m % 2 == 0 && pen_group_size(&measured[m], PEN_DATA) == 1) {
      pen_say(costs->plan->name,
              "microbatches of %" PRIu32 " are not measured: %" PRIu32 " ranks of %" PRIu64
              " MiB do not fit in memory",
              measured[m].microbatch, pen_block_processes(&measured[m], &costs->cores),
              measured[m].memory[0].arena_bytes >> 20);
    }
  }
  if (count == 0) {
    pen_fail(PEN_EXIT_SYSTEM, "measure: no memory for the blocks");
  }
  return count;
}

static void measure_blocks(struct costs *costs) {
  const uint32_t count = open_times(costs);
  for (int turn = 0; turn < TURNS; turn++) {
    for (uint32_t m = 0; m < costs->plan->measured_count; m++) {
      if (costs->times[m].plan != NULL) {
        pen_block_times_run(&costs->times[m], &costs->cores, costs->options,
                            costs->options->seconds / TURNS / count);
      }
    }
  }
}

/* ---- the file ---- */

/* The parameters of a stage that its first tensor rank has. */
static uint64_t stage_parameters(const struct pen_plan *plan, uint32_t stage) {
  uint64_t count = 0;
  for (uint32_t w = 0; w < plan->weight_count; w++) {
    const struct pen_weight *weight = &plan->weights[w];
    const bool counts = weight->stage == stage && pen_first_tensor_rank(plan, weight) == 0 &&
                        pen_is_of_model(weight);
    count += counts ? weight->count : 0;
  }
  return count;
}

/* The experts of a token in a stage, or in any; 0: it has none. */
static int64_t choices_of(const struct pen_plan *plan, uint32_t stage) {
  const struct pen_op *op = pen_experts_of(&plan->profiles[0].ranks[0], stage);
  return op == NULL ? 0 : op->dim[2];
}

static json_t *ms_json(double value) { return json_real(value > 0 ? value : 0); }

/* `with` recomputes, unless it did not fit. */
static json_t *block_json(struct pen_block_times *without, struct pen_block_times *with,
                          uint32_t stage, const char *routes) {
  static const struct {
    const char *key;
    int kind;
  } columns[] = {{"forward", PEN_F},
                 {"backward_input", PEN_I},
                 {"backward_weight", PEN_W},
                 {"backward", PEN_B}};
  const struct pen_plan *plan = without->plan;
  double more = 0;
  json_t *object = PEN_JSON({"block", json_string(plan->profiles[0].stages[stage].first_block)},
                            {"microbatch", json_integer(plan->microbatch)},
                            {"tensor", json_integer(pen_group_size(plan, PEN_TENSOR))},
                            {"partials", json_integer(pen_splits_of(plan))},
                            {"parameters", pen_json_integer(stage_parameters(plan, stage))},
                            {"routes", routes == NULL ? NULL : json_string(routes)});
  for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
    const int kind = columns[c].kind;
    const double value = pen_block_times_ms(without, kind, stage);
    json_object_set_new(object, columns[c].key, ms_json(value));
    if ((kind == PEN_I || kind == PEN_B) && with->plan != NULL) {
      more += (pen_block_times_ms(with, kind, stage) - value) / 2;
    }
  }
  json_object_set_new(object, "recompute", ms_json(more));
  return object;
}

/* Of a plan with twice as many experts a token only the blocks that have them. */
static json_t *blocks_json(const struct costs *costs) {
  json_t *blocks = json_array();
  const int64_t deployed = choices_of(&costs->plan->measured[0], PEN_NONE);
  for (uint32_t m = 0; m + 1 < costs->plan->measured_count; m += 2) {
    const struct pen_plan *plan = costs->times[m].plan;
    for (uint32_t stage = 0; plan != NULL && stage < plan->stage_count; stage++) {
      const int64_t choices = choices_of(plan, stage);
      const char *routes = choices == 0 ? NULL : choices == deployed ? "balanced" : "doubled";
      if (choices != 0 || choices_of(plan, PEN_NONE) == deployed) {
        json_array_append_new(blocks,
                              block_json(&costs->times[m], &costs->times[m + 1], stage, routes));
      }
    }
  }
  return blocks;
}

/* Milliseconds of an element that is updated, in UPDATE and in NORM: means over the plans. */
static json_t *optimizer_json(const struct costs *costs) {
  double update = 0, norm = 0;
  uint32_t count = 0;
  for (uint32_t m = 0; m < costs->plan->measured_count; m++) {
    const struct pen_plan *plan = costs->times[m].plan;
    uint64_t elements = 0;
    for (uint32_t w = 0; plan != NULL && w < plan->weight_count; w++) {
      const struct pen_weight *weight = &plan->weights[w];
      elements += weight->frozen || pen_first_tensor_rank(plan, weight) != 0 ? 0 : weight->count;
    }
    if (elements > 0 && pen_group_size(plan, PEN_DATA) == 1) {
      update += pen_block_times_ms(&costs->times[m], PEN_UPDATE, 0) / (double)elements;
      norm += pen_block_times_ms(&costs->times[m], PEN_NORM, 0) / (double)elements;
      count++;
    }
  }
  return PEN_JSON({"ms_per_element", ms_json(count == 0 ? 0 : update / count)},
                  {"norm_ms_per_element", ms_json(count == 0 ? 0 : norm / count)});
}

/* Whether the binary has a transport between ranks of its own device, which is the CPU: what stays
 * on one host is in every binary. */
static bool has_transport(const struct pen_plan *plan, int transport) {
  return transport != PEN_TRANSPORT_AUTO && pen_device_row(plan->device)->on_host &&
         pen_transport_row(transport)->device == plan->device &&
         (!pen_transport_row(transport)->between_hosts ||
          pen_transport_row(plan->transport)->between == transport);
}

static json_t *messages_json(const struct costs *costs) {
  json_t *messages = json_array();
  for (int t = 0; t < PEN_TRANSPORTS; t++) {
    double ms[PEN_MESSAGE_SIZES];
    if (!has_transport(costs->plan, t)) {
      continue;
    }
    pen_message_times(t, &costs->cores, ms);
    for (uint32_t size = 0; size < PEN_MESSAGE_SIZES; size++) {
      PEN_JSON_APPEND(messages, {"transport", json_string(pen_transport_row(t)->text)},
                      {"bytes", pen_json_integer(PEN_MESSAGE_BYTES_MIN << 2 * size)},
                      {"ms", ms_json(ms[size])});
    }
  }
  return messages;
}

static void add_collective(json_t *collectives, const char *kind, uint32_t ranks, uint64_t bytes,
                           double took_ms) {
  PEN_JSON_APPEND(collectives, {"kind", json_string(kind)}, {"ranks", json_integer(ranks)},
                  {"bytes", pen_json_integer(bytes)}, {"ms", ms_json(took_ms)});
}

/* Exchanges of each number of tensor ranks whose blocks were measured; of the bytes of a tensor
 * rank's part. */
static void add_exchanges(json_t *collectives, const struct costs *costs) {
  for (uint32_t m = 0; m < costs->plan->measured_count; m++) {
    const uint32_t tensor_ranks = pen_group_size(&costs->plan->measured[m], PEN_TENSOR);
    bool first = tensor_ranks > 1;
    for (uint32_t before = 0; before < m && first; before++) {
      first = pen_group_size(&costs->plan->measured[before], PEN_TENSOR) != tensor_ranks;
    }
    if (first) {
      double ms[PEN_EXCHANGE_SIZES];
      pen_exchange_times(tensor_ranks, &costs->cores, ms);
      for (uint32_t size = 0; size < PEN_EXCHANGE_SIZES; size++) {
        add_collective(collectives, "exchange", tensor_ranks, PEN_EXCHANGE_BYTES_MIN << 2 * size,
                       ms[size]);
      }
    }
  }
}

/* The gradients of each block, summed and gathered by the replicas; nothing where they did not fit,
 * or where the plan is for a device whose memory only its own ranks reach. */
static json_t *collectives_json(const struct costs *costs) {
  static const struct {
    const char *name;
    int kind;
  } kinds[] = {{"reduce_scatter", PEN_REDUCE_SCATTER}, {"all_gather", PEN_ALL_GATHER_GRAD}};
  json_t *collectives = json_array();
  struct pen_block_times *times = &costs->times[costs->plan->measured_count - 1];
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds && times->plan != NULL; k++) {
    for (uint32_t stage = 0; stage < times->plan->stage_count; stage++) {
      const double took_ms = pen_block_times_collective_ms(times, kinds[k].kind, stage);
      if (took_ms > 0) {
        add_collective(collectives, kinds[k].name, pen_group_size(times->plan, PEN_DATA),
                       stage_parameters(times->plan, stage) * sizeof(float), took_ms);
      }
    }
  }
  add_exchanges(collectives, costs);
  return collectives;
}

static json_t *costs_json(const struct costs *costs) {
  const struct pen_plan *plan = costs->plan;
  return PEN_JSON({"version", json_integer(VERSION)},
                  {"device", json_string(pen_device_row(plan->device)->text)},
                  {"dtype", json_string(plan->dtype == PEN_BF16 ? "bf16" : "f32")},
                  {"sequence", json_integer(plan->sequence)},
                  {"peak_tflops", json_real(pen_peak_tflops(plan, &costs->cores))},
                  {"blocks", blocks_json(costs)}, {"optimizer", optimizer_json(costs)},
                  {"messages", messages_json(costs)}, {"collectives", collectives_json(costs)});
}

/* Replaces the contents of the file, and closes it. */
static void write_json(int descriptor, const char *path, const json_t *object) {
  char *text = json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
  pen_check(text != NULL, "no memory for the measured costs");
  bool failed = ftruncate(descriptor, 0) != 0 && errno != EINVAL; /* EINVAL: a pipe, a device */
  failed = failed || pen_output_write(descriptor, text, strlen(text)) != 0 ||
           pen_output_write(descriptor, "\n", 1) != 0;
  if (close(descriptor) != 0 || failed) {
    pen_fail(PEN_EXIT_CANNOT_WRITE, "--output %s: %s", path, strerror(errno));
  }
  free(text);
}

/* The file of --output, until something is written; of this process, not of those that it starts.
 */
static struct {
  const char *path;
  pid_t process;
} unwritten;

/* At exit: removes the file that nothing was written to. */
static void remove_empty(void) {
  struct stat status;
  if (unwritten.process == getpid() && stat(unwritten.path, &status) == 0 &&
      S_ISREG(status.st_mode) && status.st_size == 0) {
    unlink(unwritten.path);
  }
}

int pen_measure_costs(const struct pen_plan *plan, const struct pen_options *options) {
  static struct costs costs;
  if (options->output == NULL) {
    pen_fail(PEN_EXIT_USAGE, "measure needs --output FILE: where to write the costs");
  }
  if (plan->measured_count == 0) {
    pen_fail(PEN_EXIT_USAGE,
             "measure: this binary has no plan for it: its schedule is %s; build one whose "
             "schedule trains, by make or with penstock-gen --blocks",
             plan->schedule);
  }
  pen_check_files_differ(options);
  const int descriptor = pen_file_open_output(options->output, 0);
  if (descriptor < 0) {
    pen_fail(PEN_EXIT_CANNOT_CREATE, "--output %s: %s", options->output, strerror(errno));
  }
  unwritten.path = options->output;
  unwritten.process = getpid();
  pen_check(atexit(remove_empty) == 0, "no memory for a function at exit");
  costs = (struct costs){.plan = plan, .options = options};
  costs.times = pen_allocate(plan->measured_count, sizeof *costs.times, "measured times");
  pen_busy_cores_open(&costs.cores, plan->measured);
  measure_blocks(&costs);
  json_t *object = costs_json(&costs);
  write_json(descriptor, options->output, object);
  json_decref(object);
  return 0;
}
