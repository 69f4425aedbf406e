/* whole.h: a finished plan from a topology's text, by the passes of gen/main.c, for tests that take plans apart. */
#ifndef PEN_TESTS_WHOLE_H
#define PEN_TESTS_WHOLE_H

#include <unistd.h>

#include "gen/cost.h"
#include "gen/layout.h"
#include "tests/plans.h"

/* Reads a topology from text, through a file that is removed again. */
static inline struct pen_topology *read_topology(const char *text) {
  char path[] = "/tmp/penstock-test-XXXXXX";
  int file = mkstemp(path);
  assert_true(file >= 0);
  assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
  close(file);
  struct pen_topology *topology = pen_topology_read(path, NULL, 0);
  unlink(path);
  return topology;
}

static inline struct pen_graph **graphs_of(const struct pen_topology *topology, const struct pen_partition *partition, bool training) {
  struct pen_graph **graph = pen_new(partition->stage_count, sizeof *graph);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) {
    graph[stage] = pen_model(topology, partition, stage, training);
    pen_derive(graph[stage]);
  }
  return graph;
}

/* The plan of a topology's text, not verified; both profiles, or eval alone when the schedule does not train. */
static inline struct pen_plan *make_plan(const char *text) {
  struct pen_topology *topology = read_topology(text);
  struct pen_partition *partition = pen_partition(topology);
  struct pen_graph **train = graphs_of(topology, partition, true), **eval = graphs_of(topology, partition, false);
  struct pen_stage_cost *cost = pen_costs(topology, partition, train);
  struct pen_order *order = pen_compose(topology, partition), *forward = pen_compose_forward(partition);
  bool trains = pen_schedule_of(topology->pipeline_schedule)->trains;
  struct pen_profile_input profile[] = {
      {"train", PEN_TRAIN,
       pen_lower(order, partition, pen_simulate(order, partition, cost, -1), cost, PEN_TRAIN, topology->optimizer_clip_norm > 0), train},
      {"eval", PEN_EVAL, pen_lower(forward, partition, pen_simulate(forward, partition, cost, -1), cost, PEN_EVAL, false), eval},
  };
  return trains ? pen_layout(topology, partition, profile, 2) : pen_layout(topology, partition, profile + 1, 1);
}

/* Topology text for tests: mlp or llama, small. */
static inline const char *topology_text(const char *family, const char *schedule, unsigned ranks, unsigned stages, unsigned microbatches,
                                        const char *more) {
  return pen_text("pipeline = { ranks = %u; stages_per_rank = %u; microbatches = %u; schedule = \"%s\"; %s };\n"
                  "model = { family = \"%s\"; layers = %u; hidden = 32; heads = 4; kv_heads = 2; ffn = 48; vocab = 64; sequence = 8; };\n"
                  "batch = { microbatch = 2; };\noptimizer = { learning_rate = 1e-3; steps = 10; clip_norm = %s; };\n",
                  ranks, stages, microbatches, schedule, more, family, ranks * stages, strstr(more, "/* no clip */") ? "0" : "1.0");
}

#endif
