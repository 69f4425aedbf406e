/* plan_fixture.c: makes a finished plan from a topology's text. */
#include "tests/support/plan_fixture.h"

struct pen_topology *read_topology(const char *text) {
  char path[] = "/tmp/penstock-test-XXXXXX";
  int file = mkstemp(path);
  assert_true(file >= 0);
  assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
  close(file);
  struct pen_topology *topology = pen_topology_read(path, NULL, 0);
  unlink(path);
  return topology;
}

/* The profiles of a further shape, as gen/main.c makes them; returns how many. */
static size_t add_shape(struct pen_profile_input *profile, const struct whole *w, size_t index) {
  struct pen_topology *topology = pen_topology_of_shape(w->topology, index);
  struct pen_partition *partition = pen_new(1, sizeof *partition);
  *partition = *w->partition;
  partition->microbatch_count = (uint32_t)topology->pipeline_microbatches;
  struct pen_graph **train = pen_graphs_of(topology, &partition->stages, true);
  const struct pen_training *training = pen_training_of(topology, partition, train);
  struct pen_order *forward = pen_compose_forward(partition),
                   *order = topology->trains ? pen_compose(topology, partition) : forward;
  struct pen_timing *timing = pen_simulate(order, partition, training, w->cost, -1);
  size_t count = 0;
  if (topology->trains)
    profile[count++] =
        (struct pen_profile_input){pen_text("train_%zu", index),
                                   PEN_TRAIN,
                                   pen_lower(order, partition, training, timing, PEN_TRAIN),
                                   train,
                                   topology,
                                   partition};
  profile[count++] = (struct pen_profile_input){pen_text("eval_%zu", index),
                                                PEN_EVAL,
                                                pen_lower_forward(forward, partition, training),
                                                pen_graphs_of(topology, &partition->stages, false),
                                                topology,
                                                partition};
  return count;
}

struct whole make_whole_with(struct pen_topology *topology,
                             void (*change)(struct pen_graph *graph)) {
  struct whole w = {.topology = topology};
  w.partition = partition_topology(w.topology);
  struct pen_graph **train = pen_graphs_of(w.topology, &w.partition->stages, true),
                   **eval = pen_graphs_of(w.topology, &w.partition->stages, false);
  for (uint32_t stage = 0; change && stage < w.partition->stage_count; stage++) {
    change(train[stage]);
    change(eval[stage]);
  }
  w.training = pen_training_of(w.topology, w.partition, train);
  w.cost = pen_costs(w.topology, w.partition, train);
  struct pen_order *forward = pen_compose_forward(w.partition);
  bool trains = w.topology->trains;
  w.order = trains ? pen_compose(w.topology, w.partition) : forward;
  w.timing = pen_simulate_step(w.order, w.partition, w.training, w.cost,
                               pen_collective_costs(w.topology, w.partition, train, w.cost), -1,
                               trains ? PEN_TRAIN : PEN_EVAL, false);
  w.lowered = pen_lower(w.order, w.partition, w.training, w.timing, trains ? PEN_TRAIN : PEN_EVAL);
  size_t shapes = w.topology->shapes_sequence.count, count = 0;
  struct pen_profile_input *profile =
      pen_new(2 * (1 + shapes) + PEN_GENERATION_MAX, sizeof *profile);
  if (trains)
    profile[count++] = (struct pen_profile_input){"train", PEN_TRAIN, w.lowered, train, NULL, NULL};
  struct pen_lowered *eval_rows =
      trains ? pen_lower_forward(forward, w.partition, w.training) : w.lowered;
  profile[count++] = (struct pen_profile_input){"eval", PEN_EVAL, eval_rows, eval, NULL, NULL};
  for (size_t i = 0; i < shapes; i++) count += add_shape(&profile[count], &w, i);
  count += pen_generation(w.topology, w.partition, w.training, &profile[count]);
  w.plan = pen_layout(w.topology, w.partition, profile, count);
  return w;
}

struct whole make_whole_of(struct pen_topology *topology) {
  return make_whole_with(topology, NULL);
}

struct whole make_whole(const char *text) {
  return make_whole_of(read_topology(text));
}

struct pen_plan *make_plan(const char *text) {
  return make_whole(text).plan;
}

const char *topology_text(const char *family, const char *schedule, unsigned ranks, unsigned stages,
                          unsigned microbatches, const char *more) {
  return pen_text(
      "pipeline = { ranks = %u; stages_per_rank = %u; microbatches = %u; schedule = \"%s\"; %s };\n"
      "model = { family = \"%s\"; layers = %u; hidden = 32; heads = 4; kv_heads = 2; "
      "ffn = 48; vocab = 64; sequence = 8; %s dtype = \"%s\"; };\n"
      "batch = { microbatch = 2; };\noptimizer = { learning_rate = 1e-3; steps = 10; clip_norm = "
      "%s; };\n"
      "cluster = { device = \"%s\"; %s };\n",
      ranks, stages, microbatches, schedule, more, family, ranks * stages,
      strstr(more, "/* tied */") ? "tie_embeddings = true;" : "",
      strstr(more, "/* bf16 */") ? "bf16" : "f32", strstr(more, "/* no clip */") ? "0" : "1.0",
      strstr(more, "/* cuda */") ? "cuda" : "cpu",
      strstr(more, "/* nccl */") ? "transport = \"nccl\";" : "");
}
