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

/* A plan and what it was made from; `order`, `timing` and `lowered` are of its first profile. */
struct whole {
  struct pen_topology *topology;
  struct pen_partition *partition;
  struct pen_stage_cost *cost;
  struct pen_order *order;
  struct pen_timing *timing;
  struct pen_lowered *lowered;
  struct pen_plan *plan;
};

/* All passes on a topology's text but verify; both profiles, or eval alone when the schedule does not train. */
static inline struct whole make_whole_of(struct pen_topology *topology) {
  struct whole w = {.topology = topology};
  w.partition = pen_partition(w.topology);
  struct pen_graph **train = graphs_of(w.topology, w.partition, true), **eval = graphs_of(w.topology, w.partition, false);
  w.cost = pen_costs(w.topology, w.partition, train);
  struct pen_order *forward = pen_compose_forward(w.partition);
  bool trains = w.topology->trains;
  w.order = trains ? pen_compose(w.topology, w.partition) : forward;
  w.timing = pen_simulate(w.order, w.partition, w.cost, -1);
  w.lowered = pen_lower(w.order, w.partition, w.timing, trains ? PEN_TRAIN : PEN_EVAL, trains && w.topology->optimizer_clip_norm > 0);
  struct pen_profile_input profile[] = {
      {"train", PEN_TRAIN, w.lowered, train},
      {"eval", PEN_EVAL, pen_lower_forward(forward, w.partition), eval},
  };
  if (!trains) profile[1].lowered = w.lowered;
  w.plan = trains ? pen_layout(w.topology, w.partition, profile, 2) : pen_layout(w.topology, w.partition, profile + 1, 1);
  return w;
}

static inline struct whole make_whole(const char *text) { return make_whole_of(read_topology(text)); }

static inline struct pen_plan *make_plan(const char *text) { return make_whole(text).plan; }

/* Topology text for tests: mlp or llama, small; with the words "no clip" and "tied" as comments in `more`, such a one. */
static inline const char *topology_text(const char *family, const char *schedule, unsigned ranks, unsigned stages, unsigned microbatches,
                                        const char *more) {
  return pen_text("pipeline = { ranks = %u; stages_per_rank = %u; microbatches = %u; schedule = \"%s\"; %s };\n"
                  "model = { family = \"%s\"; layers = %u; hidden = 32; heads = 4; kv_heads = 2; ffn = 48; vocab = 64; sequence = 8; %s };\n"
                  "batch = { microbatch = 2; };\noptimizer = { learning_rate = 1e-3; steps = 10; clip_norm = %s; };\n",
                  ranks, stages, microbatches, schedule, more, family, ranks * stages,
                  strstr(more, "/* tied */") ? "tie_embeddings = true;" : "", strstr(more, "/* no clip */") ? "0" : "1.0");
}

#endif
