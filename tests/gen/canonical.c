/* canonical.c: the resolved settings as text: equal for equal settings, however they are written.
 */
#include <stdio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gen/base/arena.h"
#include "gen/pipeline/output.h"
#include "gen/topology/topology.h"

static char folder[] = "/tmp/penstock-canonical-XXXXXX";

static const char *write_text(const char *name, const char *text) {
  const char *path = pen_text("%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  assert_int_equal(fclose(file), 0);
  return path;
}

static const char *read_text(const char *path) {
  char *text = pen_new(1 << 16, 1);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  assert_true(fread(text, 1, (1 << 16) - 1, file) > 0);
  fclose(file);
  return text;
}

/* Settles a text with overrides that end in null. */
static const struct pen_topology *settle(const char *text, ...) {
  const char *override[8];
  size_t count = 0;
  va_list list;
  va_start(list, text);
  while ((override[count] = va_arg(list, const char *))) count++;
  va_end(list);
  return pen_topology_read(write_text("t.cfg", text), override, count);
}

static const char base[] =
    "pipeline = { ranks = 2; microbatches = 4; schedule = \"1f1b\"; };\n"
    "model = { family = \"llama\"; layers = 4; hidden = 32; heads = 4; ffn = 48; vocab = 64; "
    "sequence = 8; };\n"
    "batch = { microbatch = 2; };\n"
    "optimizer = { learning_rate = 1e-3; steps = 3; };\n";

static void assert_same(const struct pen_topology *topology) {
  assert_string_equal(pen_topology_canonical(topology), pen_topology_canonical(settle(base, NULL)));
}

/* Reviewed by a person: every line follows from the file or from the defaults of contracts.md
 * section 8. */
static void text_has_resolved_values(void **state) {
  (void)state;
  assert_string_equal(
      pen_topology_canonical(
          settle(base, "cluster.device=cpu", NULL)), /* as configure found it, otherwise */
      "pipeline.ranks = 2\npipeline.stages_per_rank = 1\npipeline.microbatches = "
      "4\npipeline.schedule = \"1f1b\"\n"
      "pipeline.zero_bubble = false\npipeline.warmup = 1\npipeline.placement = \"loop\"\n"
      "pipeline.objective = \"makespan\"\n"
      "model.family = \"llama\"\nmodel.layers = 4\nmodel.hidden = 32\nmodel.heads = "
      "4\nmodel.kv_heads = 4\n"
      "model.head_dim = 8\nmodel.ffn = 48\nmodel.vocab = 64\nmodel.sequence = 8\nmodel.rope_theta "
      "= 10000\n"
      "model.norm_epsilon = 1.0000000000000001e-05\nmodel.tie_embeddings = false\nmodel.dtype = "
      "\"f32\"\n"
      "model.loss = \"cross_entropy\"\nmodel.loss_rows = 0\nmodel.frozen = []\nbatch.microbatch = "
      "2\nbatch.loss_group = 1\nbatch.packed = false\n"
      "partition.virtual_pre = 0\npartition.virtual_post = 0\npartition.balance = \"time\"\n"
      "partition.unit = \"block\"\n"
      "data_parallel.replicas = 1\ndata_parallel.shard = \"none\"\n"
      "data_parallel.unit = \"stage\"\ndata_parallel.reduce = \"step\"\n"
      "data_parallel.shard_ranks = 1\ndata_parallel.reshard = \"step\"\n"
      "tensor_parallel.ranks = 1\ntensor_parallel.sequence = true\n"
      "tensor_parallel.splits = 1\n"
      "optimizer.name = \"adamw\"\noptimizer.learning_rate = 0.001\noptimizer.warmup_steps = 0\n"
      "optimizer.decay = \"constant\"\noptimizer.steps = 3\noptimizer.minimum_ratio = "
      "0.10000000000000001\n"
      "optimizer.beta1 = 0.90000000000000002\noptimizer.beta2 = "
      "0.94999999999999996\noptimizer.epsilon = 1e-08\n"
      "optimizer.weight_decay = 0.10000000000000001\noptimizer.weight_decay_groups = "
      "[]\noptimizer.groups = []\noptimizer.clip_norm = 1\n"
      "optimizer.norm = \"2\"\n"
      "cluster.device = \"cpu\"\ncluster.transport = \"shm\"\ncluster.hosts = [\"localhost\"]\n"
      "cluster.spares = []\n"
      "cluster.mapping = \"block\"\ncluster.bind = \"auto\"\n"
      "cluster.ranks_per_host = 2\ncluster.threads_per_rank = 1\ncluster.interface = \"\"\n"
      "costs.live_backward = 1\n"
      "memory.limit_mib = 0\nmemory.recompute = [\"none\", \"none\"]\nmemory.snapshot = false\n"
      "memory.audit = false\n"

      "generate.prompts = 1\n"
      "generate.microbatches = 2\n");
}

/* What the log alone shows is no part of it. */
static void peak_does_not_matter(void **state) {
  (void)state;
  assert_same(settle(base, "cluster.peak_tflops=3", NULL));
}

static void notation_does_not_matter(void **state) {
  (void)state;
  assert_same(
      settle("# the same in another order, notation and layout\n"
             "optimizer : { steps : 0x3 learning_rate : .001 };\n"
             "batch = { /* sequences */ microbatch = +2L };\n"
             "model = { sequence = 8, vocab = 64, ffn = 48, heads = 04, hidden = 32, layers = 4\n"
             "  family = \"lla\" \"\\x6da\"; } // on two\n"
             "pipeline = { schedule = \"1f1b\"; microbatches = 4; ranks = 2; zero_bubble = FALSE }",
             NULL));
}

/* Groups in a file, or texts of another notation, and in another order of what they set. */
static void notation_of_groups_does_not_matter(void **state) {
  (void)state;
  static const char in_file[] =
      "pipeline = { ranks = 2; microbatches = 4; schedule = \"1f1b\"; };\n"
      "model = { family = \"llama\"; layers = 4; hidden = 32; heads = 4; ffn = 48; vocab = 64; "
      "sequence = 8; };\n"
      "batch = { microbatch = 2; };\n"
      "optimizer = { learning_rate = 1e-3; steps = 3; groups = (\n"
      "  { name = \"sgd\"; endings = [\"norm.weight\", \"bias\"]; rate = 5e-1; },\n"
      "  \"lm_head.weight: weight_decay=0\"); };\n";
  const char *text = pen_topology_canonical(settle(in_file, NULL));
  assert_non_null(strstr(text,
                         "optimizer.groups = [\"norm.weight bias: rate=0.5 name=sgd\", "
                         "\"lm_head.weight: weight_decay=0\"]\n"));
  assert_string_equal(
      text, pen_topology_canonical(
                settle(base,
                       "optimizer.groups=[ norm.weight  bias:name=sgd rate=0.50,lm_head.weight: "
                       "weight_decay=0.0]",
                       NULL)));
}

static void overrides_do_not_matter(void **state) {
  (void)state;
  assert_same(settle(base, "pipeline.ranks=4", "pipeline.ranks=2", "optimizer.learning_rate=0.0010",
                     "model.frozen=()", NULL));
}

/* A default that is written out settles to the same text. */
static void written_defaults_do_not_matter(void **state) {
  (void)state;
  assert_same(settle(base, "model.kv_heads=4", "model.head_dim=8", "pipeline.warmup=1",
                     "pipeline.placement=loop", "cluster.device=auto",
                     "memory.recompute=[none,none]", "optimizer.clip_norm=1", NULL));
}

static void includes_do_not_matter(void **state) {
  (void)state;
  write_text("part.cfg", base);
  const struct pen_topology *topology = settle("\n@include \"part.cfg\"\n", NULL);
  assert_same(topology);
  topology = settle("\n@include \"part.cfg\"\n", NULL);
  assert_int_equal(topology->sources.count, 2);
}

static void each_setting_is_in_the_text(void **state) {
  (void)state;
  static const char *const override[] = {
      "pipeline.ranks=1",
      "pipeline.microbatches=5",
      "pipeline.schedule=gpipe",
      "pipeline.zero_bubble=true",
      "pipeline.warmup=2",
      "model.layers=5",
      "model.hidden=64",
      "model.heads=2",
      "model.kv_heads=2",
      "model.head_dim=4",
      "model.ffn=49",
      "model.vocab=65",
      "model.sequence=9",
      "model.rope_theta=10001",
      "model.norm_epsilon=0",
      "model.loss_rows=32",
      "model.frozen=[lm_head.weight]",
      "batch.microbatch=3",
      "batch.packed=true",
      "partition.virtual_pre=1",
      "partition.virtual_post=1",
      "partition.layers=[2,2]",
      "partition.before=[lm_head]",
      "partition.balance=time",
      "partition.unit=block",
      "optimizer.learning_rate=0.0010000000000000002",
      "optimizer.warmup_steps=1",
      "optimizer.decay=linear",
      "optimizer.steps=4",
      "optimizer.minimum_ratio=0",
      "optimizer.beta1=0",
      "optimizer.beta2=0",
      "optimizer.epsilon=0",
      "optimizer.weight_decay=0",
      "optimizer.clip_norm=0",
      "optimizer.decay_steps=1",
      "optimizer.norm=inf",
      "optimizer.weight_decay_groups=[lm_head.weight=0]",
      "optimizer.groups=[lm_head.weight: rate=2]",
      "cluster.hosts=[other]",
      "cluster.threads_per_rank=2",
      "cluster.port=1",
      "costs.forward=1",
      "costs.backward_input=1",
      "costs.backward_weight=1",
      "costs.send=0",
      "costs.overlap=0",
      "memory.limit_mib=1",
      "memory.recompute=full",
      "memory.snapshot=true",
      "memory.audit=true",
      "generate.prompts=8",
  };
  const char *same = pen_topology_canonical(settle(base, NULL));
  for (size_t i = 0; i < sizeof override / sizeof *override; i++) {
    const char *text = pen_topology_canonical(settle(base, override[i], NULL));
    if (!strcmp(text, same)) fail_msg("%s does not enter the text", override[i]);
  }
}

static void costs_spread_over_stages(void **state) {
  (void)state;
  const char *one = pen_topology_canonical(settle(base, "costs.forward=1.5", NULL));
  assert_string_equal(one, pen_topology_canonical(settle(base, "costs.forward=[1.5,15e-1]", NULL)));
  assert_non_null(strstr(one, "costs.forward = [1.5, 1.5]\n"));
  assert_true(settle(base, NULL)->costs_overlap < 0);
}

/* Settings that the kind of positions does not use are not part of the text, even if a file sets
 * them. */
static void scaled_positions_are_in_the_text(void **state) {
  (void)state;
#define STRETCHED \
  "model.rope_factor=8", "model.rope_original_sequence=64", "model.rope_low_freq_factor=2"
  assert_same(settle(base, STRETCHED, "model.rope_scaling=none", NULL));
  const char *plain = pen_topology_canonical(settle(base, NULL));
  const char *linear = pen_topology_canonical(
      settle(base, "model.rope_factor=8", "model.rope_scaling=linear", NULL));
  const char *llama3 =
      pen_topology_canonical(settle(base, STRETCHED, "model.rope_scaling=llama3", NULL));
  assert_string_equal(
      linear, pen_topology_canonical(settle(base, STRETCHED, "model.rope_scaling=linear", NULL)));
  assert_null(strstr(plain, "rope_s"));
  assert_non_null(strstr(linear,
                         "model.rope_theta = 10000\nmodel.rope_scaling = "
                         "\"linear\"\nmodel.rope_factor = 8\nmodel.norm_epsilon"));
  assert_non_null(strstr(
      llama3,
      "model.rope_factor = 8\nmodel.rope_original_sequence = 64\nmodel.rope_low_freq_factor = 2\n"
      "model.rope_high_freq_factor = 4\nmodel.norm_epsilon"));
  assert_non_null(strstr(
      pen_topology_canonical(settle(base, STRETCHED, "model.rope_scaling=yarn",
                                    "model.rope_truncate=true", "model.rope_mscale=0.5", NULL)),
      "model.rope_factor = 8\nmodel.rope_original_sequence = 64\nmodel.rope_beta_fast = 32\n"
      "model.rope_beta_slow = 1\nmodel.rope_mscale = 0.5\nmodel.norm_epsilon"));
  assert_non_null(strstr(pen_topology_canonical(settle(base, STRETCHED, "model.rope_scaling=yarn",
                                                       "model.rope_truncate=false", NULL)),
                         "model.rope_truncate = false\nmodel.norm_epsilon"));
  assert_non_null(
      strstr(pen_topology_canonical(settle(base, "model.mlp_bias=true", NULL)), "model.mlp_bias"));
#undef STRETCHED
}

/* Reading back the text gives the text: nothing is lost in it. */
static void text_reads_back(void **state) {
  (void)state;
  const char *text = pen_topology_canonical(
      settle(base, "model.frozen=[\"a \\\"b\\\\\",\"c,d\"]", "costs.send=1e-7", NULL));
  char *file = pen_new(2 * strlen(text) + 1, 1);
  const char *group = "";
  for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
    int name = (int)strcspn(line, "."), length = (int)strcspn(line, "\n");
    if (strncmp(group, line, (size_t)name + 1))
      sprintf(file + strlen(file), "%s%.*s = {\n", *group ? "};\n" : "", name, line);
    sprintf(file + strlen(file), "%.*s;\n", length - name - 1, line + name + 1);
    group = line;
  }
  strcat(file, "};\n");
  assert_string_equal(pen_topology_canonical(settle(file, NULL)), text);
}

static void source_digest_covers_the_bytes(void **state) {
  (void)state;
  const struct pen_topology *a = settle(base, NULL), *again = settle(base, NULL);
  const struct pen_topology *comment = settle(pen_text("%s#", base), NULL),
                            *override = settle(base, "pipeline.ranks=2", NULL);
  assert_memory_equal(a->source_digest, again->source_digest, sizeof a->source_digest);
  assert_memory_not_equal(a->source_digest, comment->source_digest, sizeof a->source_digest);
  assert_memory_not_equal(a->source_digest, override->source_digest, sizeof a->source_digest);
}

static void dependencies_are_escaped(void **state) {
  (void)state;
  const char *part = write_text("a $b.cfg", base);
  const struct pen_topology *topology = settle("@include \"a $b.cfg\"", NULL);
  const char *path = pen_text("%s/d", folder);
  pen_output_dependencies(topology, "plan/x y.c", path);
  const char *escaped = pen_text("%s/a\\ $$b.cfg", folder), *whole = topology->path;
  assert_string_equal(read_text(path), pen_text("plan/x\\ y.c: %s %s\n\n%s:\n\n%s:\n", whole,
                                                escaped, whole, escaped));
  unlink(part);
}

static int make_folder(void **state) {
  (void)state;
  return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
  (void)state;
  unlink(pen_text("%s/t.cfg", folder));
  unlink(pen_text("%s/part.cfg", folder));
  unlink(pen_text("%s/d", folder));
  int status = rmdir(folder);
  pen_free_all();
  return status;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(text_has_resolved_values),
      cmocka_unit_test(peak_does_not_matter),
      cmocka_unit_test(notation_does_not_matter),
      cmocka_unit_test(notation_of_groups_does_not_matter),
      cmocka_unit_test(overrides_do_not_matter),
      cmocka_unit_test(written_defaults_do_not_matter),
      cmocka_unit_test(includes_do_not_matter),
      cmocka_unit_test(each_setting_is_in_the_text),
      cmocka_unit_test(costs_spread_over_stages),
      cmocka_unit_test(scaled_positions_are_in_the_text),
      cmocka_unit_test(text_reads_back),
      cmocka_unit_test(source_digest_covers_the_bytes),
      cmocka_unit_test(dependencies_are_escaped),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
