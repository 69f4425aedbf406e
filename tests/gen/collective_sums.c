/* collective_sums.c: calls, bytes and exposed time of each rank's collectives, by hand for steps of
 * two ranks and two microbatches; what is exposed of one rank is its whole exchange; and the bytes
 * of a rank by kind are all that is placed. */
#include <math.h>
#include <stdio.h>

#include "gen/base/arena.h"
#include "gen/model/model.h"
#include "gen/timing/collective_sums.h"
#include "runtime/plan/memory_kinds.h"
#include "tests/support/plan_fixture.h"

struct summed {
  struct whole whole;
  struct pen_collective_sum *sum;
};

static struct summed sums_of(const char *text) {
  struct summed s = {make_whole_of(read_topology(text)), NULL};
  const struct whole *w = &s.whole;
  struct pen_graph **graph = pen_graphs_of(w->topology, &w->partition->stages, true);
  const struct pen_timing *timing = w->timing;
  s.sum =
      pen_collective_sums(w->plan, timing->whole ? timing->whole_order : w->order,
                          timing->whole ? timing->whole : timing, w->partition, w->training,
                          w->cost, pen_collective_costs(w->topology, w->partition, graph, w->cost));
  return s;
}

/* Two ranks of one stage with costs F 1, I 1, W 1. Without collectives and latency rank 0 runs F0
 * F1 from 0, B0 from 4 and B1 from 7 to 9, rank 1 all from 1 to 7. */
static const char *two_ranks(const char *model, const char *parallel, const char *costs) {
  return pen_text(
      "pipeline = { ranks = 2; microbatches = 2; schedule = \"1f1b\"; };\n"
      "model = { layers = 2; sequence = 8; %s };\n"
      "batch = { microbatch = 1; };\noptimizer = { learning_rate = 1e-3; steps = 10; };\n"
      "data_parallel = { %s };\ncluster = { device = \"cpu\"; };\n"
      "costs = { forward = 1; backward_input = 1; backward_weight = 1; %s };\n",
      model, parallel, costs);
}

#define MLP "family = \"mlp\"; hidden = 128;"
#define TIED                                                                                 \
  "family = \"llama\"; hidden = 32; heads = 4; ffn = 48; vocab = 64; tie_embeddings = true;" \
  " dtype = \"bf16\";"

/* One kind of a rank: calls, bytes, exposed. */
struct wanted_sum {
  uint32_t rank, kind, calls;
  uint64_t bytes;
  double exposed;
};

static void expect_rows(const char *text, double makespan, const struct wanted_sum *row,
                        size_t count) {
  struct summed s = sums_of(text);
  if (fabs(s.whole.timing->makespan - makespan) > 1e-12)
    fail_msg("makespan %g, not %g", s.whole.timing->makespan, makespan);
  for (uint32_t i = 0; i < 2 * PEN_COLLECTIVE_KINDS; i++) {
    struct wanted_sum wanted = {i / PEN_COLLECTIVE_KINDS, i % PEN_COLLECTIVE_KINDS, 0, 0, 0};
    for (size_t k = 0; k < count; k++)
      if (row[k].rank == wanted.rank && row[k].kind == wanted.kind) wanted = row[k];
    const struct pen_collective_sum *sum = &s.sum[i];
    if (sum->calls != wanted.calls || sum->bytes != wanted.bytes ||
        fabs(sum->exposed - wanted.exposed) > 1e-12)
      fail_msg("rank %u, kind %u: %u calls of %lu bytes, %g exposed", wanted.rank, wanted.kind,
               sum->calls, (unsigned long)sum->bytes, sum->exposed);
  }
  pen_free_all();
}

/* A stage has 3 x 128 x 128 f32: half of it is 98304 bytes. */
static void figures_of_small_steps(void **state) {
  (void)state;
  enum { HALF = 98304, W = PEN_KIND_weights, G = PEN_KIND_gradients, T = PEN_KIND_tied };
  /* Rank 0 reduces from 9 to 12 and gathers to 13; rank 1 from 7 to 8.5, while rank 0 computes. */
  expect_rows(two_ranks(MLP, "replicas = 2;", "reduce = (3, 0.5); gather = 1;"), 13,
              (struct wanted_sum[]){{0, G, 2, 2 * HALF, 4}, {1, G, 2, 2 * HALF, 0}}, 2);
  /* Rank 1 reduces from 7 to 12, of which 3 are after the last action, and gathers to 13. */
  expect_rows(two_ranks(MLP, "replicas = 2;", "reduce = (0, 5); gather = 1;"), 13,
              (struct wanted_sum[]){{0, G, 2, 2 * HALF, 1}, {1, G, 2, 2 * HALF, 4}}, 2);
  /* By bytes: a call takes 2, and ranks are as in the first step. */
  expect_rows(two_ranks(MLP, "replicas = 2;", "byte = 2.0345052083333332e-05;"), 13,
              (struct wanted_sum[]){{0, G, 2, 2 * HALF, 4}, {1, G, 2, 2 * HALF, 2}}, 2);
  /* Both all-gather their weights from 0 to 1; the input of rank 1 arrives at 2. All is 1 later. */
  expect_rows(
      two_ranks(MLP, "replicas = 2; shard = \"weights\";", "reduce = (3, 0.5); gather = 1;"), 13,
      (struct wanted_sum[]){
          {0, W, 1, HALF, 1}, {0, G, 1, HALF, 3}, {1, W, 1, HALF, 0}, {1, G, 1, HALF, 0}},
      4);
  /* Rank 1 all-gathers from 0 to 4; its input arrives at 1. */
  expect_rows(two_ranks(MLP, "replicas = 2; shard = \"weights\";", "reduce = 0; gather = (0, 4);"),
              12,
              (struct wanted_sum[]){
                  {0, W, 1, HALF, 0}, {0, G, 1, HALF, 0}, {1, W, 1, HALF, 3}, {1, G, 1, HALF, 0}},
              4);
  /* The moments sharded: the weights come after UPDATE. */
  expect_rows(two_ranks(MLP, "replicas = 2; shard = \"optimizer\";", "reduce = 3; gather = 1;"), 13,
              (struct wanted_sum[]){
                  {0, G, 1, HALF, 3}, {0, W, 1, HALF, 1}, {1, G, 1, HALF, 1}, {1, W, 1, HALF, 1}},
              4);
  /* Latency 0.5: rank 1 ends at 7.5, rank 0 at 10. The head's gradient arrives at 8; after the
   * norm, at 10, the value leaves and arrives at 10.5. 64 x 32 in f32, and in bf16. */
  expect_rows(two_ranks(TIED, "", "send = 0.5;"), 10.5,
              (struct wanted_sum[]){{0, T, 1, 4096, 0}, {1, T, 1, 8192, 0.5}}, 2);
  expect_rows(two_ranks(MLP, "", "send = 0.5;"), 10, NULL, 0);
}

/* On one rank nothing hides a collective: what is exposed is all of it, and makes the step longer
 * by that. */
static void one_rank_hides_nothing(void **state) {
  (void)state;
  static const char *const shards[] = {"none\"", "optimizer\"", "weights\"",
                                       "weights\"; reshard = \"use\""};
  for (unsigned i = 0; i < 4; i++)
    for (unsigned stages = 1; stages <= 3; stages++) {
      struct summed s = sums_of(
          pen_text("pipeline = { ranks = 1; stages_per_rank = %u; microbatches = 3; schedule = "
                   "\"1f1b\"; };\nmodel = { family = \"mlp\"; layers = 6; hidden = 128; sequence = "
                   "8; };\nbatch = { microbatch = 1; };\noptimizer = { learning_rate = 1e-3; steps "
                   "= 10; };\ndata_parallel = { replicas = 3; shard = \"%s; };\n"
                   "cluster = { device = \"cpu\"; };\ncosts = { forward = 1; backward_input = 1; "
                   "backward_weight = 1; byte = 1; };\n",
                   stages, shards[i]));
      double exposed = 0;
      uint32_t unshards = 0;
      for (int kind = 0; kind < PEN_COLLECTIVE_KINDS; kind++) exposed += s.sum[kind].exposed;
      for (uint32_t a = 0; a < s.whole.plan->profiles[0].ranks[0].action_count; a++)
        unshards += s.whole.plan->profiles[0].ranks[0].actions[a].kind == PEN_UNSHARD;
      assert_true(exposed > 0 && exposed == s.whole.timing->exchanging[0]);
      assert_true(exposed == s.whole.timing->exposed);
      if (i >= 2) assert_int_equal(s.sum[PEN_KIND_weights].calls, unshards);
      if (i == 3 && stages > 1) assert_true(unshards > stages);
      pen_free_all();
    }
}

static void bytes_by_kind_are_all_that_is_placed(void **state) {
  (void)state;
  static const char *const more[] = {
      "",
      "/* tied */",
      "/* bf16 */ /* tied */",
      "/* cuda */",
      "/* cuda */ /* nccl */ /* bf16 */",
      "/* ofi */",
  };
  static const char *const groups[] = {
      "",
      "data_parallel = { replicas = 2; shard = \"optimizer\"; };",
      "data_parallel = { replicas = 2; shard = \"weights\"; };",
      "data_parallel = { replicas = 3; shard = \"weights\"; reshard = \"use\"; };",
      "memory = { snapshot = true; recompute = \"full\"; };",
  };
  for (unsigned m = 0; m < sizeof more / sizeof *more; m++)
    for (unsigned g = 0; g < sizeof groups / sizeof *groups; g++) {
      struct whole w = make_whole(
          pen_text("%s%s\n", topology_text("llama", "zero_bubble_v", 2, 2, 4, more[m]), groups[g]));
      for (uint32_t rank = 0; rank < 2; rank++) {
        uint64_t sum = 0;
        for (int kind = 0; kind < PEN_MEMORY_KINDS; kind++)
          sum += pen_memory_kind_bytes(w.plan, rank, (enum pen_memory_kind)kind);
        assert_int_equal(sum, w.plan->memory[rank].arena_bytes);
        uint64_t gathered = pen_memory_kind_bytes(w.plan, rank, PEN_MEMORY_gathered);
        assert_true(gathered <= w.plan->memory[rank].activation_bytes);
        assert_true((gathered > 0) == (w.plan->sharding == PEN_SHARD_WEIGHTS));
      }
      pen_free_all();
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(figures_of_small_steps),
      cmocka_unit_test(one_rank_hides_nothing),
      cmocka_unit_test(bytes_by_kind_are_all_that_is_placed),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
