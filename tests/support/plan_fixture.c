/* plan_fixture.c: generates a finished plan from the text of a topology. */
#include "gen/model/model.h"
#include "gen/timing/collective_cost.h"
#include "tests/support/plan_fixture.h"

struct pen_topology *read_topology_with(const char *text, const char *const *set, size_t count) {
  char path[] = "/tmp/penstock-test-XXXXXX";
  int file = mkstemp(path);
  assert_true(file >= 0);
  assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
  close(file);
  struct pen_topology *topology = pen_topology_read(path, set, count);
  unlink(path);
  return topology;
}

struct pen_topology *read_topology(const char *text) {
  return read_topology_with(text, NULL, 0);
}

/* A further sequence length, as gen/layout/draft.c makes it, except that it has the costs of the
 * first. */
static struct pen_bucket make_bucket(const struct whole *w, size_t index) {
  struct pen_topology *topology = pen_topology_of_shape(w->topology, index);
  struct pen_partition *partition = pen_new(1, sizeof *partition);
  *partition = *w->partition;
  partition->microbatch_count = (uint32_t)topology->pipeline_microbatches;
  struct pen_graph **eval = pen_graphs_of(topology, &partition->stages, false),
                   **own =
                       topology->trains ? pen_graphs_of(topology, &partition->stages, true) : eval;
  const struct pen_training *training = pen_training_of(topology, partition, own);
  struct pen_order *order = pen_compose(topology, partition);
  struct pen_timing *timing = pen_simulate(order, partition, training, w->cost, -1);
  return (struct pen_bucket){topology,
                             partition,
                             training,
                             own,
                             eval,
                             topology->trains
                                 ? pen_lower(order, partition, training, timing, PEN_TRAIN)
                                 : pen_lower_forward(order, partition, training, PEN_EVAL)};
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
  int kind = w.topology->trains ? PEN_TRAIN : PEN_EVAL;
  w.order = pen_compose(w.topology, w.partition);
  w.timing = pen_simulate_step(w.order, w.partition, w.training, w.cost,
                               pen_collective_costs(w.topology, w.partition, train, w.cost), -1,
                               kind, false);
  struct pen_lowered *lowered = pen_lower(w.order, w.partition, w.training, w.timing, kind);
  size_t count = 1 + w.topology->shapes_sequence.count;
  struct pen_bucket *bucket = pen_new(count, sizeof *bucket);
  bucket[0] = (struct pen_bucket){w.topology, w.partition, w.training, train, eval, lowered};
  for (size_t i = 1; i < count; i++) bucket[i] = make_bucket(&w, i - 1);
  struct pen_profile_inputs profiles = pen_profiles_of(bucket, count);
  w.plan = pen_layout(w.topology, w.partition, profiles.profile, profiles.count);
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
      strstr(more, "/* nccl */")  ? "transport = \"nccl\";"
      : strstr(more, "/* ofi */") ? "transport = \"ofi\";"
                                  : "");
}
