/* bench_figures.c: from the rounds of a bench to its figures: medians, sums, ratios (see bench.h).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/bench.h"

static int compare(const void *a, const void *b) {
  const double *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

double bench_median(double *values, size_t count) {
  qsort(values, count, sizeof *values, compare);
  return count == 0 ? NAN : (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* The value at a path of keys parted by dots, null where there is none. Borrowed. */
static const json_t *at(const json_t *object, const char *path) {
  while (object != NULL && *path != 0) {
    size_t bytes = strcspn(path, ".");
    object = json_object_getn(object, path, bytes);
    path += bytes + (path[bytes] == '.');
  }
  return object;
}

double bench_number(const json_t *object, const char *path) {
  const json_t *value = at(object, path);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

bool bench_is_sharded(const json_t *info) {
  const char *shard = json_string_value(json_object_get(info, "shard"));
  return shard != NULL && strcmp(shard, "none") != 0;
}

bool bench_is_bf16(const json_t *info) {
  const char *dtype = json_string_value(json_object_get(info, "dtype"));
  return dtype != NULL && strcmp(dtype, "bf16") == 0;
}

double bench_replicas(const json_t *info) { return bench_number(info, "replicas"); }

static double sum_of(const json_t *array) {
  double sum = 0;
  size_t i;
  const json_t *value;
  json_array_foreach(array, i, value) { sum += json_number_value(value); }
  return array == NULL ? NAN : sum;
}

/* What is asked of each round: the number at a path, or the sum of the array there. Median over the
 * rounds that have it. */
static double over_rounds(const json_t *rounds, const char *path) {
  double values[BENCH_ROUNDS_MAX];
  size_t count = 0, i;
  const json_t *round;
  json_array_foreach(rounds, i, round) {
    const json_t *value = at(round, path);
    if (value != NULL && count < BENCH_ROUNDS_MAX) {
      values[count++] = json_is_array(value) ? sum_of(value) : json_number_value(value);
    }
  }
  return bench_median(values, count);
}

/* A number that could not be had is left out. */
static void put(json_t *figures, const char *key, double value) {
  if (isfinite(value)) {
    json_object_set_new(figures, key, json_real(value));
  }
}

static double get(const json_t *figures, const char *key) { return bench_number(figures, key); }

/* ---- the figures ---- */

static void speed(json_t *figures, const json_t *rounds) {
  double tokens =
      bench_number(figures, "info.microbatches") * bench_number(figures, "info.microbatch") *
      bench_number(figures, "info.sequence") * bench_replicas(json_object_get(figures, "info"));
  put(figures, "step_ms", over_rounds(rounds, "ours.step_ms_median"));
  put(figures, "tokens_per_step", tokens);
  put(figures, "tokens_per_s", tokens / get(figures, "step_ms") * 1e3);
  put(figures, "peer_step_ms", over_rounds(rounds, "peer.step_ms.median"));
  put(figures, "peer_tokens_per_s", tokens / get(figures, "peer_step_ms") * 1e3);
  put(figures, "tokens_per_s_ratio",
      get(figures, "tokens_per_s") / get(figures, "peer_tokens_per_s"));
}

/* The share of the ranks' time in which the plan has them at work, if work takes what its cost
 * model says. */
static double planned_utilisation(const json_t *report) {
  double busy = 0;
  size_t i;
  const json_t *rank;
  json_array_foreach(json_object_get(report, "rank"), i, rank) {
    busy += bench_number(rank, "busy");
  }
  return busy /
         (bench_number(report, "span") * (double)json_array_size(json_object_get(report, "rank")));
}

static void peak(json_t *figures, const json_t *products) {
  const json_t *info = json_object_get(figures, "info");
  bool alone = bench_number(info, "ranks") * bench_replicas(info) == 1, bf16 = bench_is_bf16(info);
  double attainable = over_rounds(products, alone  ? "one_process.gflop_per_s"
                                            : bf16 ? "two_processes_bf16.gflop_per_s"
                                                   : "two_processes.gflop_per_s");
  double product_flop = over_rounds(products, "one_process.product_flop_per_step");
  double attention_flop = over_rounds(products, "one_process.attention_flop_per_step");
  double used = product_flop / get(figures, "step_ms") / 1e6;
  put(figures, "product_gflop_per_s", used);
  put(figures, "attainable_product_gflop_per_s", attainable);
  put(figures, "fraction_of_product_peak", used / attainable);
  put(figures, "fraction_with_attention", used / attainable * (1 + attention_flop / product_flop));
  put(figures, "peer_fraction_of_product_peak",
      product_flop / get(figures, "peer_step_ms") / 1e6 / attainable);
  put(figures, "planned_bubble", bench_number(figures, "report.bubble"));
  put(figures, "planned_utilisation", planned_utilisation(json_object_get(figures, "report")));
  put(figures, "fraction_within_utilisation",
      used / attainable / get(figures, "planned_utilisation"));
}

static void memory(json_t *figures, const json_t *rounds) {
  double planned = 0;
  size_t r;
  const json_t *rank;
  json_array_foreach(at(figures, "info.rank"), r, rank) {
    planned += bench_number(rank, "arena_bytes");
  }
  put(figures, "planned_bytes", planned * bench_replicas(json_object_get(figures, "info")));
  put(figures, "peak_resident_bytes", over_rounds(rounds, "ours.rank_peak_resident_bytes"));
  put(figures, "launcher_peak_resident_bytes",
      over_rounds(rounds, "ours.launcher_peak_resident_bytes"));
  put(figures, "peer_peak_resident_bytes", over_rounds(rounds, "peer.peak_rss_mib") * 1048576);
  put(figures, "peak_resident_ratio",
      get(figures, "peak_resident_bytes") / get(figures, "peer_peak_resident_bytes"));
}

/* How quiet the machine was while these were measured. */
static void quiet(json_t *figures, const json_t *rounds) {
  put(figures, "others_share", over_rounds(rounds, "ours.others_share"));
  put(figures, "peer_others_share", over_rounds(rounds, "peer.others_share"));
}

static void dispatch(json_t *figures, const json_t *rounds) {
  put(figures, "dispatch_of_an_action_ns", over_rounds(rounds, "dispatch.row_ns"));
  put(figures, "dispatch_of_an_operation_ns", over_rounds(rounds, "dispatch.operation_ns"));
}

static void starts(json_t *figures, const json_t *rounds) {
  put(figures, "exec_to_first_action_s", over_rounds(rounds, "start.exec_to_first_action_s"));
  put(figures, "exec_to_first_action_after_idle_s",
      over_rounds(rounds, "start.exec_to_first_action_after_idle_s"));
  put(figures, "exec_to_first_step_end_s", over_rounds(rounds, "start.exec_to_first_step_end_s"));
  put(figures, "peer_launch_to_first_step_end_s",
      over_rounds(rounds, "peer.launch_to_first_step_s"));
}

/* The largest |ours - theirs| / |theirs| over all steps of all rounds. */
static void losses(json_t *figures, const json_t *rounds) {
  double largest = NAN;
  size_t r, i;
  const json_t *round, *loss;
  json_array_foreach(rounds, r, round) {
    const json_t *theirs = at(round, "peer.losses");
    json_array_foreach(at(round, "ours.losses"), i, loss) {
      double other = json_number_value(json_array_get(theirs, i));
      if (i < json_array_size(theirs)) {
        largest = fmax(largest, fabs(json_number_value(loss) - other) / fabs(other));
      }
    }
  }
  put(figures, "largest_relative_loss_difference", largest);
}

static void plan_figures(json_t *figures, const json_t *products) {
  const json_t *rounds = json_object_get(figures, "rounds");
  speed(figures, rounds);
  peak(figures, products);
  dispatch(figures, rounds);
  memory(figures, rounds);
  starts(figures, rounds);
  quiet(figures, rounds);
  losses(figures, rounds);
}

static void hop_figures(json_t *hop) {
  const json_t *rounds = json_object_get(hop, "rounds");
  put(hop, "median_ns", over_rounds(rounds, "hop_median_ns"));
  put(hop, "p99_ns", over_rounds(rounds, "hop_p99_ns"));
  put(hop, "asleep_median_ns", over_rounds(rounds, "hop_asleep_median_ns"));
}

/* How much faster a plan X_bf16 is than X, the same in f32. */
static void over_f32(json_t *plans) {
  static const char ending[] = "_bf16";
  const char *name;
  json_t *figures;
  json_object_foreach(plans, name, figures) {
    size_t bytes = strlen(name), ends = sizeof ending - 1;
    if (bytes > ends && strcmp(name + bytes - ends, ending) == 0) {
      const json_t *twin = json_object_getn(plans, name, bytes - ends);
      put(figures, "tokens_per_s_over_f32",
          get(figures, "tokens_per_s") / get(twin, "tokens_per_s"));
    }
  }
}

void bench_figures(json_t *document) {
  json_t *plans = json_object_get(document, "plans");
  for (int p = 0; p < BENCH_PLANS; p++) {
    plan_figures(json_object_get(plans, bench_plans[p]), at(document, "matrix_products.rounds"));
  }
  over_f32(plans);
  hop_figures(json_object_get(document, "hop"));
}
