/* collective_cost.c: the bytes of collectives, by hand; their costs by the place of the members, by
 * default and where the topology gives them; and that no step and no bound gets them free. */
#include <math.h>
#include <stdio.h>

#include "gen/base/arena.h"
#include "gen/model/model.h"
#include "gen/partition/training.h"
#include "gen/timing/collective_bytes.h"
#include "gen/timing/collective_cost.h"
#include "gen/timing/collectives.h"
#include "gen/timing/cost.h"
#include "gen/timing/lower_bound.h"
#include "tests/support/plan_fixture.h"

/* ---- bytes ---- */

static void members_send_shards_to_each_other(void **state) {
  (void)state;
  const uint64_t shard[] = {10, 20, 0, 50};
  const uint32_t host[] = {0, 1, 0, 1};
  struct pen_sent_bytes sent[4];
  const struct pen_collective_group alone = {4, NULL}, two = {4, host};
  pen_collective_sent(PEN_FORM_ALL_GATHER, &alone, shard, sent);
  for (int m = 0; m < 4; m++) assert_true(sent[m].within == 3 * shard[m] && sent[m].between == 0);
  pen_collective_sent(PEN_FORM_REDUCE_SCATTER, &alone, shard, sent);
  for (int m = 0; m < 4; m++) assert_true(sent[m].within == 80 - shard[m] && sent[m].between == 0);
  pen_collective_sent(PEN_FORM_ALL_GATHER, &two, shard, sent);
  for (int m = 0; m < 4; m++)
    assert_true(sent[m].within == shard[m] && sent[m].between == 2 * shard[m]);
  /* Member 3 sends 50 to one member and 100 to two: 1 x 50 + 4 x 100. */
  assert_true(pen_collective_time(&two, sent, 1, 4) == 450);
  pen_collective_sent(PEN_FORM_REDUCE_SCATTER, &two, shard, sent);
  const struct pen_sent_bytes wanted[] = {{0, 70}, {50, 10}, {10, 70}, {20, 10}};
  for (int m = 0; m < 4; m++)
    assert_true(sent[m].within == wanted[m].within && sent[m].between == wanted[m].between);
  assert_true(pen_collective_time(&two, sent, 1, 4) == 290);
}

/* ---- costs ---- */

/* Two stages of one layer each: three weights of hidden x hidden, no others. Weights of 128 x 128
 * have 4 blocks of 4096 elements, those of 64 x 64 have one. */
static struct pen_topology *topology_of(unsigned hidden, unsigned replicas, const char *parallel,
                                        const char *model, const char *costs, const char *cluster) {
  return read_topology(
      pen_text("pipeline = { ranks = 2; microbatches = 2; schedule = \"1f1b\"; };\n"
               "model = { family = \"mlp\"; layers = 2; hidden = %u; sequence = 8; %s };\n"
               "batch = { microbatch = 1; };\noptimizer = { learning_rate = 1e-3; steps = 10; };\n"
               "data_parallel = { replicas = %u; %s };\ncosts = { %s };\ncluster = { %s };\n",
               hidden, model, replicas, parallel, costs, cluster));
}

/* The collectives' costs of a topology; `flop`: the cost of a flop of F, over both stages. */
static struct pen_collective_cost *costs_of(struct pen_topology *topology, double *flop) {
  struct pen_partition *partition = partition_topology(topology);
  struct pen_graph **graph = pen_graphs_of(topology, &partition->stages, true);
  struct pen_stage_cost *cost = pen_costs(topology, partition, graph);
  *flop =
      (cost[0].forward + cost[1].forward) / (pen_program_flops(&graph[0]->program[PEN_PROGRAM_F]) +
                                             pen_program_flops(&graph[1]->program[PEN_PROGRAM_F]));
  return pen_collective_costs(topology, partition, graph, cost);
}

static double cost_of(struct pen_topology *topology, uint32_t stage, int kind) {
  double flop;
  return pen_collective_cost_of(costs_of(topology, &flop), stage, kind);
}

static void expect_cost(struct pen_topology *topology, uint32_t stage, int kind, double wanted) {
  double cost = cost_of(topology, stage, kind);
  if (fabs(cost - wanted) > 1e-9 * wanted)
    fail_msg("stage %u, kind %d: %.17g, not %.17g", stage, kind, cost, wanted);
}

#define CPU "device = \"cpu\";"
#define HOSTS "hosts = (\"a\", \"b\"); port = 7000;"
#define UNIT "byte = 1; byte_host = 4;"

/* A stage has 3 x 128 x 128 f32 = 196608 bytes; of two replicas each owns half. */
static void bytes_cost_by_host(void **state) {
  (void)state;
  const double half = 98304;
  static const int kinds[] = {PEN_REDUCE_SCATTER, PEN_ALL_GATHER_GRAD, PEN_ALL_GATHER_WEIGHT};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    const int kind = kinds[k];
    expect_cost(topology_of(128, 2, "", "", UNIT, CPU), 0, kind, half);
    expect_cost(topology_of(128, 2, "", "", UNIT, CPU HOSTS "mapping = \"cyclic\";"), 1, kind,
                half);
    expect_cost(topology_of(128, 2, "", "", UNIT, CPU HOSTS), 1, kind, 4 * half);
    /* Four replicas, two a host: a shard of 49152 bytes to one member here and to two there. */
    expect_cost(topology_of(128, 4, "", "", UNIT, CPU HOSTS), 0, kind, 49152 * (1 + 2 * 4));
    /* Three of a stage on one host: the fourth sends to all of them over the network. */
    expect_cost(topology_of(128, 4, "", "", UNIT, CPU HOSTS "mapping = [0, 0, 0, 1, 0, 1, 1, 1];"),
                1, kind, 49152 * 3 * 4);
  }
  expect_cost(topology_of(128, 2, "", "", "byte = 0; byte_host = 4;", CPU), 0, PEN_REDUCE_SCATTER,
              0);
}

/* With weights of one block each, weights 0 to 5 belong to replicas 1, 0, 1, 0, 1, 0: a replica
 * sends the shards of the other, and the call lasts as long as the longer takes. */
static void uneven_shards_count_as_they_are(void **state) {
  (void)state;
  double flop;
  const uint64_t weight = 64 * 64 * 4;
  struct pen_collective_cost *cost = costs_of(topology_of(64, 2, "", "", UNIT, CPU), &flop);
  const int reduce = pen_collective_index(PEN_REDUCE_SCATTER),
            gather = pen_collective_index(PEN_ALL_GATHER_GRAD);
  assert_true(cost[0].sent[reduce] == 2 * weight && cost[0].sent[gather] == weight);
  assert_true(cost[1].sent[reduce] == weight && cost[1].sent[gather] == 2 * weight);
  for (int stage = 0; stage < 2; stage++)
    assert_true(cost[stage].cost[reduce] == 2 * (double)weight &&
                cost[stage].cost[gather] == 2 * (double)weight);
}

/* What is gathered of weights depends on what is sharded and in which type programs read it. */
static void sharding_decides_what_is_gathered(void **state) {
  (void)state;
  const double half = 98304; /* in f32 */
  static const char bf16[] = "dtype = \"bf16\";", weights[] = "shard = \"weights\";",
                    optimizer[] = "shard = \"optimizer\";";
  expect_cost(topology_of(128, 2, optimizer, "", UNIT, CPU), 0, PEN_ALL_GATHER_WEIGHT, half);
  expect_cost(topology_of(128, 2, optimizer, bf16, UNIT, CPU), 0, PEN_ALL_GATHER_WEIGHT, half / 2);
  expect_cost(topology_of(128, 2, optimizer, "", UNIT, CPU), 0, PEN_UNSHARD, 0);
  expect_cost(topology_of(128, 2, weights, "", UNIT, CPU), 1, PEN_UNSHARD, half);
  expect_cost(topology_of(128, 2, weights, bf16, UNIT, CPU), 1, PEN_UNSHARD, half / 2);
  expect_cost(topology_of(128, 2, weights, bf16, UNIT, CPU), 1, PEN_REDUCE_SCATTER, half);
  expect_cost(topology_of(128, 2, weights, "", UNIT, CPU), 1, PEN_ALL_GATHER_WEIGHT, 0);
  /* A frozen weight is gathered, but has no gradient. */
  static const char frozen[] = "frozen = [\"w2.weight\"];";
  expect_cost(topology_of(128, 2, weights, frozen, UNIT, CPU), 0, PEN_UNSHARD, half);
  expect_cost(topology_of(128, 2, weights, frozen, UNIT, CPU), 0, PEN_REDUCE_SCATTER, half * 2 / 3);
}

static void defaults_follow_the_device(void **state) {
  (void)state;
  static const struct {
    const char *costs, *cluster;
    double flops; /* of a byte */
  } rows[] = {
      {"", CPU, 10},
      {"", CPU HOSTS, 10},
      {"", "device = \"cuda\";", 2000},
      {"", "device = \"cuda\";" HOSTS, 8000},
      {"forward = 3; backward_input = 3; backward_weight = 3;", CPU, 10},
      {"forward = 3; backward_input = 3; backward_weight = 3;", "device = \"cuda\";", 2000},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double flop;
    struct pen_collective_cost *cost =
        costs_of(topology_of(128, 2, "", "", rows[i].costs, rows[i].cluster), &flop);
    double wanted = rows[i].flops * flop * 98304;
    assert_true(wanted > 0 && fabs(cost[1].cost[0] - wanted) <= 1e-9 * wanted);
  }
}

static void given_costs_of_a_stage_override(void **state) {
  (void)state;
  static const char given[] = UNIT "reduce = (7, 8); gather = 5;";
  for (uint32_t stage = 0; stage < 2; stage++) {
    expect_cost(topology_of(128, 2, "", "", given, CPU), stage, PEN_REDUCE_SCATTER, 7 + stage);
    for (int kind = PEN_ALL_GATHER_GRAD; kind <= PEN_UNSHARD; kind++)
      expect_cost(topology_of(128, 2, "", "", given, CPU), stage, kind, 5);
  }
  double flop;
  assert_null(costs_of(topology_of(128, 1, "", "", given, CPU), &flop));
}

/* A stage is one unit: F and I gather it, W sums it; B does both. */
static void given_costs_are_shared_among_units(void **state) {
  (void)state;
  static const char given[] = UNIT "reduce = (7, 8); gather = 5;";
  static const char unit[] = "shard = \"weights\"; unit = \"layer\";";
  double flop;
  struct pen_collective_cost *cost = costs_of(topology_of(128, 2, unit, "", given, CPU), &flop),
                             *bytes = costs_of(topology_of(128, 2, unit, "", UNIT, CPU), &flop);
  for (uint32_t stage = 0; stage < 2; stage++) {
    const struct pen_collectives_within(*within)[PEN_WITHIN] = cost[stage].within;
    const double reduce = 7 + stage;
    assert_true(fabs(within[PEN_PROGRAM_F][PEN_WITHIN_WEIGHTS].cost - 5) < 1e-9);
    /* Stage 0 needs no gradient of its input, and so not the first of its three weights. */
    assert_true(fabs(within[PEN_PROGRAM_I][PEN_WITHIN_WEIGHTS].cost - (stage ? 5 : 5. * 2 / 3)) <
                1e-9);
    assert_true(fabs(within[PEN_PROGRAM_W][PEN_WITHIN_GRADIENTS].cost - reduce) < 1e-9);
    assert_true(fabs(within[PEN_PROGRAM_B][PEN_WITHIN_GRADIENTS].cost - reduce) < 1e-9);
    assert_int_equal(within[PEN_PROGRAM_B][PEN_WITHIN_WEIGHTS].calls, 1);
    /* Without given costs: what a member sends at the cost of a byte, as for a stage. */
    within = bytes[stage].within;
    assert_true(fabs(within[PEN_PROGRAM_F][PEN_WITHIN_WEIGHTS].cost - 98304) < 1e-6);
    assert_int_equal(within[PEN_PROGRAM_W][PEN_WITHIN_GRADIENTS].sent, 98304);
  }
}

/* ---- step, bounds and search ---- */

/* One rank, one stage, with everything at 1 and a collective at `given`: the step is known. */
static void a_step_pays_for_every_collective(void **state) {
  (void)state;
  static const struct {
    const char *parallel;
    double collectives;
  } rows[] = {{"", 2}, {"shard = \"optimizer\";", 2}, {"shard = \"weights\";", 2}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct whole w = make_whole_of(read_topology(
        pen_text("pipeline = { ranks = 1; microbatches = 3; schedule = \"1f1b\"; };\n"
                 "model = { family = \"mlp\"; layers = 2; hidden = 128; sequence = 8; };\n"
                 "batch = { microbatch = 1; };\noptimizer = { learning_rate = 1e-3; steps = 1; };\n"
                 "data_parallel = { replicas = 2; %s };\n"
                 "costs = { forward = 1; backward_input = 1; backward_weight = 1; byte = 1; };\n"
                 "cluster = { device = \"cpu\"; };\n",
                 rows[i].parallel)));
    double wanted = 9 + rows[i].collectives * 196608;
    if (w.timing->makespan != wanted || w.timing->lower_bound != wanted)
      fail_msg("row %zu: makespan %.17g, bound %.17g, not %.17g", i, w.timing->makespan,
               w.timing->lower_bound, wanted);
  }
}

/* The bound is below every schedule's step, and above the bound without collectives. */
static void the_bound_stays_below_every_step(void **state) {
  (void)state;
  static const char *const names[] = {"gpipe", "1f1b", "looped_bfs", "zero_bubble_v", "v_half"};
  static const char *const shards[] = {"none\"", "optimizer\"", "weights\"",
                                       "weights\"; reshard = \"use\""};
  unsigned tight = 0, plans = 0;
  for (unsigned n = 0; n < 5; n++)
    for (unsigned s = 0; s < 4; s++)
      for (unsigned byte = 0; byte < 5; byte++) {
        unsigned stages = n == 0 ? 1 : 2, ranks = 1 + (n + s + byte) % 3;
        struct whole w = make_whole_of(read_topology(pen_text(
            "pipeline = { ranks = %u; stages_per_rank = %u; microbatches = %u; schedule = \"%s\"; "
            "};\nmodel = { family = \"llama\"; layers = %u; hidden = 32; heads = 4; ffn = 48; "
            "vocab "
            "= 64; sequence = 8; tie_embeddings = %s; };\nbatch = { microbatch = 1; };\n"
            "optimizer = { learning_rate = 1e-3; steps = 1; };\n"
            "data_parallel = { replicas = 3; shard = \"%s; };\n"
            "costs = { forward = 1; backward_input = 1; backward_weight = 1; send = 0.25; "
            "byte = %g; };\ncluster = { device = \"cpu\"; };\n",
            ranks, stages, 2 * ranks, names[n], ranks * stages, byte % 2 ? "true" : "false",
            shards[s], 1e-6 * pow(10, byte))));
        const struct pen_timing *timing = w.timing;
        double alone = pen_bounds_of(w.order, w.partition, w.training, w.cost, NULL, -1, NULL)
                           .makespan.greatest;
        if (timing->lower_bound > timing->makespan || !(timing->lower_bound > alone))
          fail_msg("%s, %u ranks, shard %s: bound %g, without collectives %g, makespan %g",
                   names[n], ranks, shards[s], timing->lower_bound, alone, timing->makespan);
        tight += timing->lower_bound == timing->makespan;
        plans++;
        pen_free_all();
      }
  print_message("# %u of %u steps as short as their bound\n", tight, plans);
  assert_true(tight > 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(members_send_shards_to_each_other),
      cmocka_unit_test(bytes_cost_by_host),
      cmocka_unit_test(uneven_shards_count_as_they_are),
      cmocka_unit_test(sharding_decides_what_is_gathered),
      cmocka_unit_test(defaults_follow_the_device),
      cmocka_unit_test(given_costs_of_a_stage_override),
      cmocka_unit_test(given_costs_are_shared_among_units),
      cmocka_unit_test(a_step_pays_for_every_collective),
      cmocka_unit_test(the_bound_stays_below_every_step),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
