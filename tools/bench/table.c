/* bench_table.c: prints a bench's document as one table, a column a plan, and beside it what was
 * aimed at (see bench.h). */
#include <math.h>
#include <stdio.h>

#include "tools/bench/bench.h"

enum { COLUMN = 16 };

/* One line: a figure of every plan, multiplied by `scale`. */
static const struct row {
  const char *label, *key;
  double scale;
  int decimals;
  const char *target;
} rows[] = {
    {"tokens/s", "tokens_per_s", 1, 0, ""},
    {"  peer", "peer_tokens_per_s", 1, 0, ""},
    {"  ratio", "tokens_per_s_ratio", 1, 2, "1.5 (1f1b), 1.6 (zbv), 1.7 (bf16)"},
    {"  over f32", "tokens_per_s_over_f32", 1, 2, "1.6"},
    {"step, ms", "step_ms", 1, 1, ""},
    {"  peer", "peer_step_ms", 1, 1, ""},
    {"matrix products, GFLOP/s", "product_gflop_per_s", 1, 1, ""},
    {"  attainable here", "attainable_product_gflop_per_s", 1, 1, ""},
    {"  fraction of it, %", "fraction_of_product_peak", 100, 1, ""},
    {"  peer's fraction, %", "peer_fraction_of_product_peak", 100, 1, ""},
    {"  attention counted too, %", "fraction_with_attention", 100, 1, ""},
    {"planned bubble, %", "planned_bubble", 100, 1, ""},
    {"planned utilisation, %", "planned_utilisation", 100, 1, ""},
    {"  fraction of the peak within it, %", "fraction_within_utilisation", 100, 1, ""},
    {"dispatch of an action, ns", "dispatch_of_an_action_ns", 1, 1, "200"},
    {"  of an operation in it, ns", "dispatch_of_an_operation_ns", 1, 2, ""},
    {"planned memory of all ranks, MiB", "planned_bytes", 0x1p-20, 1, ""},
    {"peak resident of all ranks, MiB", "peak_resident_bytes", 0x1p-20, 1, ""},
    {"  peer", "peer_peak_resident_bytes", 0x1p-20, 1, ""},
    {"  ratio", "peak_resident_ratio", 1, 3, "0.25"},
    {"exec to first action, s", "exec_to_first_action_s", 1, 4, "0.15"},
    {"  after idle, s", "exec_to_first_action_after_idle_s", 1, 4, ""},
    {"exec to end of first step, s", "exec_to_first_step_end_s", 1, 2, ""},
    {"  peer", "peer_launch_to_first_step_end_s", 1, 2, ""},
    {"others' share of the cores, %", "others_share", 100, 1, "0"},
    {"  while the peer ran", "peer_others_share", 100, 1, "0"},
    {"largest relative difference of losses", "largest_relative_loss_difference", 1, -1,
     "1e-4 (f32)"},
};

/* One line of what depends on no plan. */
static const struct row whole_rows[] = {
    {"hop of 4 KiB, both spinning, us", "hop.median_ns", 1e-3, 2, "3"},
    {"  99th percentile, us", "hop.p99_ns", 1e-3, 2, ""},
    {"  both asleep before, us", "hop.asleep_median_ns", 1e-3, 2, ""},
};

static void print_value(const struct row *row, const json_t *object) {
  double value = bench_number(object, row->key) * row->scale;
  if (isnan(value)) {
    printf(" %*s", COLUMN, "-");
  } else if (row->decimals < 0) {
    printf(" %*.1e", COLUMN, value);
  } else {
    printf(" %*.*f", COLUMN, row->decimals, value);
  }
}

/* A row that no plan has (the peer's, without a peer) is not printed. */
static bool is_known(const struct row *row, const json_t *plans) {
  bool known = false;
  for (int p = 0; p < BENCH_PLANS; p++) {
    known |= !isnan(bench_number(json_object_get(plans, bench_plans[p]), row->key));
  }
  return known;
}

void bench_table(const json_t *document) {
  const json_t *plans = json_object_get(document, "plans");
  printf("%-38s", "");
  for (int p = 0; p < BENCH_PLANS; p++) {
    printf(" %*s", COLUMN, bench_plans[p]);
  }
  printf("  target\n");
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    if (is_known(&rows[r], plans)) {
      printf("%-38s", rows[r].label);
      for (int p = 0; p < BENCH_PLANS; p++) {
        print_value(&rows[r], json_object_get(plans, bench_plans[p]));
      }
      printf("  %s\n", rows[r].target);
    }
  }
  for (size_t r = 0; r < sizeof whole_rows / sizeof *whole_rows; r++) {
    printf("%-38s", whole_rows[r].label);
    print_value(&whole_rows[r], document);
    printf("%*s  %s\n", (BENCH_PLANS - 1) * (COLUMN + 1), "", whole_rows[r].target);
  }
}
