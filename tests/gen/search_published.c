/* search_published.c: the schedule search against the results of papers. */
#include <math.h>
#include <stdio.h>

#include "gen/partition/training.h"
#include "gen/search/search.h"
#include "tests/support/search_cases.h"

/* Zero Bubble (arXiv 2401.10241), costs of table 9 as in zb_table5.csv; the limit in microbatches
 * is that many times p. `most` is the bubble that we reach; the paper's heuristic gives .0719,
 * .0827 and .0029. */
static const struct {
  const char *model;
  uint32_t microbatches;
  double limit, weight, most;
} published[] = {{"1.5B", 24, 1.5, 0.366, 0.05237},
                 {"1.5B", 32, 1.25, 0.366, 0.07348},
                 {"6.2B", 24, 2, 0.432, 0.00124}};

/* A row of zb_table5.csv. heuristic: the bubbles of the paper's own search, at limits of p and 2 p.
 */
struct row {
  char model[16];
  unsigned ranks, microbatches;
  struct pen_stage_cost cost;
  double heuristic[2];
};

static bool next_row(FILE *file, struct row *row) {
  char line[256];
  while (fgets(line, sizeof line, file))
    if (sscanf(line, "%15[^,],%u,%u,%lf,%lf,%lf,%lf,%*u,%*f,%*f,%*f,%*f,%lf,%lf", row->model,
               &row->ranks, &row->microbatches, &row->cost.forward, &row->cost.backward_input,
               &row->cost.backward_weight, &row->cost.send, &row->heuristic[0],
               &row->heuristic[1]) == 9)
      return true;
  return false;
}

static FILE *open_rows(void) {
  const char *path = tests_path("golden/zb_table5.csv");
  FILE *file = fopen(path, "r");
  if (!file) fail_msg("%s is missing", path);
  return file;
}

/* The bubble that the search reaches; the limit in parts of p. SEARCH_SECONDS in the environment
 * asks for more work. */
static double searched_bubble(const struct row *row, double limit, double weight, uint64_t seconds,
                              double *bound) {
  const char *more = getenv("SEARCH_SECONDS");
  struct pen_partition *partition = make_partition(row->ranks, 1, row->microbatches, false);
  struct pen_stage_cost *cost = pen_new(row->ranks, sizeof *cost);
  for (uint32_t stage = 0; stage < row->ranks; stage++) cost[stage] = row->cost;
  struct pen_topology *topology =
      search_topology(PEN_OBJECTIVE_SPAN, limit * row->ranks, 1, weight);
  struct pen_search *search =
      search_placed(topology, partition, cost, false, more ? strtoull(more, NULL, 10) : seconds, 0);
  struct pen_timing *timing = pen_simulate(search->order, partition, &pen_training_none, cost, -1);
  *bound = fmax(0, 1 - timing->work / search->lower_bound);
  print_message("# %s m=%u at %g p: bubble %.5f, bound %.5f\n", row->model, row->microbatches,
                limit, timing->bubble, *bound);
  return timing->bubble;
}

static void published_cases_are_beaten(void **state) {
  (void)state;
  FILE *file = open_rows();
  struct row row = {.ranks = 0};
  unsigned found = 0;
  while (next_row(file, &row))
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
      if (strcmp(published[i].model, row.model) || published[i].microbatches != row.microbatches)
        continue;
      double bound,
          bubble = searched_bubble(&row, published[i].limit, published[i].weight, 2, &bound);
      if (bubble > published[i].most)
        fail_msg("%s: bubble %.5f, wanted %.5f", row.model, bubble, published[i].most);
      if (published[i].limit < 2 && bubble > bound + 1e-6)
        fail_msg("%s: bubble %.6f, the bound is %.6f", row.model, bubble, bound);
      found++;
    }
  fclose(file);
  assert_int_equal(found, sizeof published / sizeof *published);
}

/* The paper's own search, to its four decimals, is never better, with the least work that ours may
 * do; at a limit of p ours is the best there is: it meets its bound. */
static void no_row_of_the_table_is_better(void **state) {
  (void)state;
  FILE *file = open_rows();
  struct row row = {.ranks = 0};
  unsigned compared = 0;
  while (next_row(file, &row)) {
    bool small = !strcmp(row.model, "1.5B");
    if (!small && strcmp(row.model, "6.2B"))
      continue; /* the paper gives no live_weight of the others */
    for (int limit = 1; limit <= 2; limit++, compared++) {
      double bound, bubble = searched_bubble(&row, limit, small ? 0.366 : 0.432, 0, &bound);
      if (limit == 1 && bubble > bound + 1e-6)
        fail_msg("at a limit of p the bound is %.6f, found %.6f", bound, bubble);
      if (bubble > row.heuristic[limit - 1] + 0.00005)
        fail_msg("published %.4f", row.heuristic[limit - 1]);
    }
    pen_free_all();
  }
  fclose(file);
  assert_int_equal(compared, 12);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(published_cases_are_beaten),
      cmocka_unit_test(no_row_of_the_table_is_better),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
