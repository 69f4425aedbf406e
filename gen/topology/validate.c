/* settle.c: defaults that depend on other settings, and all that settings demand of each other. */
#include "gen/topology/validate.h"

#include <string.h>

#include "gen/model/graph.h"
#include "gen/schedule/schedule.h"
#include "gen/topology/settings.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/topology/topology.h"

const char *pen_device_auto = "cpu";

enum { ACTIONS_MAX = 100000000 };
#define ELEMENTS_MAX                                                          \
  (1LL << 40) /* of one tensor: sums over tensors and layers then fit 64 bits \
               */

/* ---- tables ---- */

const char pen_schedule_names[] =
#define PEN_SCHEDULE(key, function, name, ...) " " name
#include "gen/topology/schedules.def"
    ;
const char pen_family_names[] =
#define PEN_FAMILY(name, needs_tokens, rotary, ties, loss, meaning) " " #name
#include "gen/families/families.def"
    ;

static const struct family {
  const char *name;
  bool needs_tokens, rotary, ties;
  const char *loss;
} families[] = {
#define PEN_FAMILY(name, needs_tokens, rotary, ties, loss, meaning) \
  {#name, needs_tokens, rotary, ties, loss},
#include "gen/families/families.def"
};

static const struct pen_schedule *schedule_of(const struct pen_topology *topology) {
  const struct pen_schedule *schedule = pen_schedule_of(topology->pipeline_schedule);
  if (!schedule)
    pen_topology_fail(topology, "pipeline.schedule", "%s",
                      pen_setting_quoted(pen_schedule_names + 1));
  return schedule;
}

static const struct family *family_of(const struct pen_topology *topology) {
  for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
    if (!strcmp(families[i].name, topology->model_family)) return &families[i];
  }
  pen_topology_fail(topology, "model.family", "this version allows %s",
                    pen_setting_quoted(pen_family_names + 1));
}

/* ---- what is missing ---- */

static bool has(const struct pen_topology *topology, const char *path) {
  return topology->origin[pen_setting_find_path(path) - pen_settings].where != NULL;
}

static const char *allowed(const char *path) {
  if (!strcmp(path, "pipeline.schedule")) return pen_setting_quoted(pen_schedule_names + 1);
  if (!strcmp(path, "model.family")) return pen_setting_quoted(pen_family_names + 1);
  return pen_setting_allowed(pen_setting_find_path(path));
}

/* `paths` are parted by blanks; `why` begins what is said of them. */
static void require(const struct pen_topology *topology, const char *paths, const char *why) {
  while (*paths) {
    size_t bytes = strcspn(paths, " ");
    const char *path = pen_text("%.*s", (int)bytes, paths);
    if (!has(topology, path))
      pen_stop(PEN_EXIT_TOPOLOGY, "%s: %s: missing; %s%s", topology->path, path, why,
               allowed(path));
    paths += bytes + (paths[bytes] == ' ');
  }
}

/* A file may give forwards alone. Any of these letters in it is a backward, or an error that csv.c
 * finds. */
static void take_schedule(struct pen_topology *topology, const struct pen_schedule *schedule) {
  topology->trains = schedule->trains;
  if (schedule->given != PEN_GIVEN_BY_FILE) return;
  require(topology, "pipeline.schedule_file",
          pen_text("schedule %s needs it: the path of a CSV, ", schedule->name));
  pen_topology_take_schedule_file(topology);
  topology->trains = false;
  for (size_t i = 0; i < topology->schedule_bytes; i++)
    topology->trains |= strchr("BIW", topology->schedule_text[i]) != NULL;
}

static void require_all(struct pen_topology *topology) {
  require(topology,
          "pipeline.ranks pipeline.microbatches pipeline.schedule model.family batch.microbatch",
          "");
  take_schedule(topology, schedule_of(topology));
  const struct family *family = family_of(topology);
  require(topology, "model.layers model.hidden model.sequence", "");
  if (family->needs_tokens)
    require(topology, "model.heads model.ffn model.vocab",
            pen_text("family %s needs it: ", family->name));
  if (topology->trains) require(topology, "optimizer.learning_rate optimizer.steps", "");
}

/* ---- pipeline ---- */

/* Settings that the schedule's row fixes: given, they must agree with it. */
static void settle_row(struct pen_topology *t, const struct pen_schedule *schedule) {
  if (schedule->warmup && t->has_pipeline_warmup && t->pipeline_warmup != schedule->warmup)
    pen_topology_fail(t, "pipeline.warmup", "%u, with the schedule %s", schedule->warmup,
                      schedule->name);
  if (schedule->warmup && schedule->split == PEN_SPLIT_ALWAYS && t->has_pipeline_zero_bubble &&
      !t->pipeline_zero_bubble)
    pen_topology_fail(t, "pipeline.zero_bubble", "true, with the schedule %s", schedule->name);
  t->pipeline_warmup = pen_schedule_warmup(schedule, t, (uint32_t)t->pipeline_stages_per_rank);
}

static void settle_pipeline(struct pen_topology *t) {
  const struct pen_schedule *schedule = schedule_of(t);
  uint32_t stages = (uint32_t)t->pipeline_stages_per_rank;
  if (stages < schedule->stages_minimum || stages > schedule->stages_maximum) {
    const char *range =
        schedule->stages_minimum == schedule->stages_maximum
            ? pen_text("%u", schedule->stages_minimum)
            : pen_text("%u to %u", schedule->stages_minimum, schedule->stages_maximum);
    pen_topology_fail(t, "pipeline.stages_per_rank", "%s, with the schedule %s", range,
                      schedule->name);
  }
  bool by_file = schedule->given == PEN_GIVEN_BY_FILE;
  if (!t->has_pipeline_placement)
    t->pipeline_placement = by_file ? pen_topology_placement_of_file(t) : schedule->placement;
  if (schedule->strict && strcmp(t->pipeline_placement, schedule->placement))
    pen_topology_fail(t, "pipeline.placement", "\"%s\", with the schedule %s", schedule->placement,
                      schedule->name);
  settle_row(t, schedule);
}

/* Messages between ranks: neighbouring stages on one rank hand over in place. */
static int64_t boundary_count(const struct pen_topology *t) {
  int64_t ranks = t->pipeline_ranks, turns = t->pipeline_stages_per_rank - 1,
          stages = ranks * (turns + 1);
  if (ranks == 1) return 0;
  return stages - 1 - (strcmp(t->pipeline_placement, "v") ? 0 : turns);
}

/* Products of settings that are in bounds by themselves; all fit 64 bits. */
static void check_actions(const struct pen_topology *t) {
  const struct pen_schedule *schedule = schedule_of(t);
  bool trains = t->trains, split = pen_schedule_splits(schedule, t);
  int64_t kinds = !trains ? 1 : split ? 3 : 2, transfers = trains ? 4 : 2;
  int64_t stages = t->pipeline_ranks * t->pipeline_stages_per_rank;
  int64_t actions = t->pipeline_microbatches * (stages * kinds + boundary_count(t) * transfers);
  if (actions > ACTIONS_MAX)
    pen_topology_fail(t, "pipeline.microbatches",
                      "at most %d actions; %lld ranks x %lld stages and these would make %lld",
                      ACTIONS_MAX, (long long)t->pipeline_ranks,
                      (long long)t->pipeline_stages_per_rank, (long long)actions);
  if (stages > UINT16_MAX) /* struct pen_action's stage */
    pen_topology_fail(t, "pipeline.stages_per_rank",
                      "at most %d stages in all; %lld ranks would have %lld", UINT16_MAX,
                      (long long)t->pipeline_ranks, (long long)stages);
  int64_t ranks = t->pipeline_ranks, microbatches = t->pipeline_microbatches,
          slots = microbatches + ranks - 1;
  if (microbatches < ranks)
    pen_topology_warn(t, "pipeline.microbatches",
                      "fewer than the %lld ranks; the bubble (P-1)/(m+P-1) is %lld/%lld = %.3f",
                      (long long)ranks, (long long)(ranks - 1), (long long)slots,
                      (double)(ranks - 1) / (double)slots);
}

/* ---- model ---- */

static void unset_llama3(struct pen_topology *t) {
  t->model_rope_low_freq_factor = t->model_rope_high_freq_factor = 0;
  t->model_rope_original_sequence = 0;
}

static void unset_scaling(struct pen_topology *t) {
  t->model_rope_scaling = NULL;
  t->model_rope_factor = 0;
  unset_llama3(t);
}

/* What the kind of stretching does not use has no value, and does not enter the model's digest;
 * plain positions have none of it. */
static void settle_rope(struct pen_topology *t) {
  const char *kind = t->model_rope_scaling;
  if (!kind || !strcmp(kind, "none")) {
    const struct {
      bool given;
      const char *name;
    } needs_kind[] = {{t->has_model_rope_factor, "factor"},
                      {t->has_model_rope_original_sequence, "original_sequence"},
                      {t->has_model_rope_low_freq_factor, "low_freq_factor"},
                      {t->has_model_rope_high_freq_factor, "high_freq_factor"}};
    for (size_t i = 0; i < sizeof needs_kind / sizeof *needs_kind; i++)
      if (!kind && needs_kind[i].given)
        require(t, "model.rope_scaling", pen_text("model.rope_%s needs it: ", needs_kind[i].name));
    unset_scaling(t);
    return;
  }
  require(t, "model.rope_factor", pen_text("model.rope_scaling = \"%s\" needs it: ", kind));
  if (!strcmp(kind, "linear")) {
    unset_llama3(t);
    return;
  }
  require(t, "model.rope_original_sequence", "model.rope_scaling = \"llama3\" needs it: ");
  if (!t->has_model_rope_low_freq_factor) t->model_rope_low_freq_factor = 1;
  if (!t->has_model_rope_high_freq_factor) t->model_rope_high_freq_factor = 4;
  if (t->model_rope_high_freq_factor <= t->model_rope_low_freq_factor)
    pen_topology_fail(t, "model.rope_high_freq_factor", "above model.rope_low_freq_factor = %g",
                      t->model_rope_low_freq_factor);
}

static void settle_attention(struct pen_topology *t) {
  bool rotary = family_of(t)->rotary;
  long long heads = t->model_heads, hidden = t->model_hidden;
  if (!t->has_model_kv_heads) t->model_kv_heads = heads;
  if (heads % t->model_kv_heads)
    pen_topology_fail(t, "model.kv_heads", "a divisor of model.heads = %lld", heads);
  if (!t->has_model_head_dim) {
    if (hidden % heads)
      pen_topology_fail(t, "model.heads",
                        "a divisor of model.hidden = %lld, unless model.head_dim is given", hidden);
    t->model_head_dim = hidden / heads;
    if (rotary && t->model_head_dim % 2)
      pen_topology_fail(t, "model.heads",
                        "model.hidden/model.heads = %lld must be even, for rotary positions",
                        (long long)t->model_head_dim);
  }
  if (rotary && t->model_head_dim % 2)
    pen_topology_fail(t, "model.head_dim", "an even number, for rotary positions");
  if (t->model_rope_theta == 0) pen_topology_fail(t, "model.rope_theta", "a finite number above 0");
  if (rotary)
    settle_rope(t);
  else
    unset_scaling(t);
}

/* What the family has a default for. */
static void settle_family(struct pen_topology *t) {
  const struct family *family = family_of(t);
  if (!t->has_model_loss) t->model_loss = family->loss;
  if (!t->has_model_tie_embeddings) t->model_tie_embeddings = family->ties;
  if (!strcmp(t->model_loss, "cross_entropy") && !family->needs_tokens)
    pen_topology_fail(t, "model.loss", "\"%s\"; family %s has no targets", family->loss,
                      family->name);
}

/* No tensor so large that sizes could overflow. */
static void check_elements(const struct pen_topology *t) {
  bool tokens = family_of(t)->needs_tokens;
  int64_t rows = t->batch_microbatch * t->model_sequence, widest = t->model_hidden, elements;
  if (tokens && t->model_ffn > widest) widest = t->model_ffn;
  if (tokens && t->model_vocab > widest) widest = t->model_vocab;
  if (tokens && t->model_heads * t->model_head_dim > widest)
    widest = t->model_heads * t->model_head_dim;
  if (__builtin_mul_overflow(rows, widest, &elements) || elements > ELEMENTS_MAX)
    pen_topology_fail(t, "batch.microbatch",
                      "at most 2^40 elements a tensor; x model.sequence = %lld x %lld wide is more",
                      (long long)t->model_sequence, (long long)widest);
  if (__builtin_mul_overflow(t->model_hidden, widest, &elements) || elements > ELEMENTS_MAX)
    pen_topology_fail(t, "model.hidden", "at most 2^40 elements a tensor; x %lld wide is more",
                      (long long)widest);
}

/* ---- shapes ---- */

enum { SHAPES_MAX = 16 };

/* Shapes in rising order of their sequences, without that of model.sequence. */
static void sort_shapes(struct pen_topology *t) {
  int64_t *sequence = t->shapes_sequence.value, *microbatches = t->shapes_microbatches.value;
  size_t count = 0;
  for (size_t i = 0; i < t->shapes_sequence.count; i++) {
    int64_t s = sequence[i], m = microbatches[i];
    if (s == t->model_sequence) continue;
    size_t at = count++;
    for (; at && sequence[at - 1] > s; at--) {
      sequence[at] = sequence[at - 1];
      microbatches[at] = microbatches[at - 1];
    }
    sequence[at] = s;
    microbatches[at] = m;
  }
  t->shapes_sequence.count = t->shapes_microbatches.count = count;
}

static void check_shape(const struct pen_topology *t, size_t index) {
  long long sequence = t->shapes_sequence.value[index],
            microbatches = t->shapes_microbatches.value[index];
  if (sequence > t->model_sequence)
    pen_topology_fail(t, "shapes.sequence", "at most model.sequence = %lld; one is %lld",
                      (long long)t->model_sequence, sequence);
  if (sequence == t->model_sequence && microbatches != t->pipeline_microbatches)
    pen_topology_fail(
        t, "shapes.microbatches",
        "pipeline.microbatches = %lld for sequences of model.sequence = %lld; it is %lld",
        (long long)t->pipeline_microbatches, sequence, microbatches);
  for (size_t i = 0; i < index; i++)
    if (t->shapes_sequence.value[i] == sequence)
      pen_topology_fail(t, "shapes.sequence", "shapes of different sequences; two have %lld",
                        sequence);
}

static void settle_shapes(struct pen_topology *t) {
  t->sequence = t->model_sequence;
  if (!has(t, "shapes.sequence") && !has(t, "shapes.microbatches")) return;
  const struct pen_schedule *schedule = schedule_of(t);
  size_t count = t->shapes_sequence.count;
  if (count != t->shapes_microbatches.count)
    pen_topology_fail(t, "shapes.microbatches", "as many as shapes.sequence has, which are %zu",
                      count);
  if (count > SHAPES_MAX) pen_topology_fail(t, "shapes.sequence", "at most %d shapes", SHAPES_MAX);
  if (!family_of(t)->needs_tokens)
    pen_topology_fail(t, "shapes.sequence", "none, with family %s, which reads no windows",
                      t->model_family);
  if (schedule->given == PEN_GIVEN_BY_FILE || schedule->given == PEN_GIVEN_BY_SEARCH)
    pen_topology_fail(t, "shapes.sequence", "none, with schedule %s: it is of one shape alone",
                      schedule->name);
  for (size_t i = 0; i < count; i++) check_shape(t, i);
  sort_shapes(t);
}

/* ---- the rest ---- */

/* A run that is shorter than its warm-up, as one that was shortened to be tried, has no decay. */
static void cut_warmup(struct pen_topology *t) {
  if (t->trains)
    pen_topology_warn(
        t, "optimizer.warmup_steps",
        "longer than optimizer.steps = %lld, which end at %.3g of optimizer.learning_rate",
        (long long)t->optimizer_steps,
        (double)t->optimizer_steps / (double)t->optimizer_warmup_steps);
  t->optimizer_decay_steps = 0;
}

static void settle_optimizer(struct pen_topology *t) {
  int64_t left = t->optimizer_steps - t->optimizer_warmup_steps,
          tenth = (t->optimizer_steps + 9) / 10;
  if (left < 0)
    cut_warmup(t);
  else if (!t->has_optimizer_decay_steps && strcmp(t->optimizer_decay, "wsd") == 0)
    t->optimizer_decay_steps = tenth < left ? tenth : left;
  else if (t->trains && t->has_optimizer_decay_steps && t->optimizer_decay_steps > left)
    pen_topology_fail(t, "optimizer.decay_steps",
                      "at most optimizer.steps - optimizer.warmup_steps = %lld", (long long)left);
  pen_weight_decay_check_groups(t);
}

/* Memory of the host is reached by shm, memory of GPUs by the others. */
static void settle_device(struct pen_topology *t) {
  if (!strcmp(t->cluster_device, "auto")) t->cluster_device = pen_device_auto;
  bool cuda = !strcmp(t->cluster_device, "cuda");
  if (!strcmp(t->cluster_transport, "auto"))
    t->cluster_transport = !cuda ? "shm" : t->cluster_hosts.count > 1 ? "nccl" : "ipc";
  if (cuda == !strcmp(t->cluster_transport, "shm"))
    pen_topology_fail(
        t, "cluster.transport",
        cuda ? "\"ipc\" or \"nccl\", with the device cuda" : "\"shm\", with the device cpu");
}

enum { LOSS_ROWS_ON_GPU = 2048 }; /* enough for the products' full rate */
enum {
  GRID_MOST = 65535
}; /* blocks that a launch may have along y and z (CUDA C++ Programming Guide, "Compute
      Capabilities") */

/* What the kernels of attention on a GPU take. */
static void check_heads_on_gpu(const struct pen_topology *t) {
  if (strcmp(t->cluster_device, "cuda") || !family_of(t)->needs_tokens) return;
  if (!strcmp(t->model_dtype, "bf16") && (t->model_head_dim % 8 || t->model_head_dim > 128))
    pen_topology_fail(
        t, "model.head_dim",
        "a multiple of 8, at most 128, with model.dtype = \"bf16\" and cluster.device = \"cuda\"");
  if (t->model_head_dim > 256)
    pen_topology_fail(t, "model.head_dim", "at most 256, with cluster.device = \"cuda\"");
  /* Sequences count along a grid's third side; along its second, blocks of at least 32 of their
   * tokens, which cannot be too many. */
  if (t->batch_microbatch > GRID_MOST)
    pen_topology_fail(t, "batch.microbatch", "at most %d, with cluster.device = \"cuda\"",
                      GRID_MOST);
}

enum {
  FAST_ROW = 8
}; /* elements of bf16 in 16 bytes, as which tensor cores' operands are best aligned (cuBLAS
      Library, "Tensor Core Usage") */

/* Lengths of the rows of what products over bf16 read and write; those of heads are multiples as it
 * is. */
static void warn_of_rows_on_gpu(const struct pen_topology *t) {
  const struct {
    const char *setting;
    int64_t length;
  } rows[] = {{"model.hidden", t->model_hidden},
              {"model.ffn", t->model_ffn},
              {"model.vocab", t->model_vocab}};
  if (strcmp(t->cluster_device, "cuda") || strcmp(t->model_dtype, "bf16") ||
      !family_of(t)->needs_tokens)
    return;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].length % FAST_ROW)
      pen_topology_warn(t, rows[i].setting,
                        "no multiple of %d: products of such rows over bf16 are slower on a GPU",
                        FAST_ROW);
}

/* Between hosts goes nccl alone; the first host listens. */
static void check_hosts(struct pen_topology *t) {
  static const char allowed[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:";
  for (size_t h = 0; h < t->cluster_hosts.count; h++)
    if (!*t->cluster_hosts.value[h] ||
        t->cluster_hosts.value[h][strspn(t->cluster_hosts.value[h], allowed)])
      pen_topology_fail(t, "cluster.hosts", "names or addresses of hosts");
  if (t->cluster_hosts.count < 2) return;
  if (strcmp(t->cluster_transport, "nccl"))
    pen_topology_fail(t, "cluster.hosts",
                      "one host, with cluster.transport = \"%s\": between hosts goes nccl alone, "
                      "with cluster.device = \"cuda\"",
                      t->cluster_transport);
  if (!t->has_cluster_port)
    pen_topology_fail(t, "cluster.port",
                      "a TCP port of the first host, where those of the others find it");
}

static void settle_cluster(struct pen_topology *t) {
  int64_t total = t->pipeline_ranks * t->data_parallel_replicas,
          hosts = (int64_t)t->cluster_hosts.count;
  if (hosts == 0) pen_topology_fail(t, "cluster.hosts", "a list of at least one host");
  if (t->has_cluster_ranks_per_host && t->cluster_ranks_per_host * hosts != total)
    pen_topology_fail(
        t, "cluster.ranks_per_host", "%lld ranks x replicas on %lld hosts make %s",
        (long long)total, (long long)hosts,
        total % hosts ? "no whole number a host" : pen_text("%lld", (long long)(total / hosts)));
  if (total % hosts)
    pen_topology_fail(t, "cluster.hosts", "as many hosts as divide the %lld ranks x replicas",
                      (long long)total);
  t->cluster_ranks_per_host = total / hosts;
  settle_device(t);
  check_hosts(t);
  check_heads_on_gpu(t);
  warn_of_rows_on_gpu(t);
  if (!t->has_memory_spare_slots) t->memory_spare_slots = -1; /* left to pen_place() */
  if (!t->has_model_loss_rows)
    t->model_loss_rows = strcmp(t->cluster_device, "cuda") ? 0 : LOSS_ROWS_ON_GPU;
  if (t->model_loss_rows % PEN_HEAD_CHUNK)
    pen_topology_fail(t, "model.loss_rows", "a multiple of %d", PEN_HEAD_CHUNK);
  if (t->data_parallel_replicas > PEN_DEVICE_ARRAYS_MAX && !strcmp(t->cluster_device, "cuda"))
    pen_topology_fail(t, "data_parallel.replicas", "at most %d, with cluster.device = \"cuda\"",
                      PEN_DEVICE_ARRAYS_MAX);
  if (t->cluster_threads_per_rank > 1 && !strcmp(t->cluster_device, "cpu"))
    pen_topology_warn(t, "cluster.threads_per_rank",
                      "the CPU kernels of this version use one thread a rank");
}

/* A list has one value a stage; what is written as one value is meant for all. */
static bool spread(size_t *count, void **values, bool for_all, size_t bytes, size_t stages) {
  if (!*values || *count == stages) return true;
  if (!for_all) return false;
  char *all = pen_new(stages, bytes);
  for (size_t i = 0; i < stages; i++) memcpy(all + i * bytes, *values, bytes);
  *values = all;
  *count = stages;
  return true;
}

static void spread_reals(const struct pen_topology *t, const char *path, struct pen_reals *list) {
  size_t stages = (size_t)(t->pipeline_ranks * t->pipeline_stages_per_rank);
  void *values = list->value;
  if (!spread(&list->count, &values, list->for_all, sizeof *list->value, stages))
    pen_topology_fail(t, path, "one number, or a list of %zu, one a stage", stages);
  list->value = values;
}

static void settle_lists(struct pen_topology *t) {
  spread_reals(t, "costs.forward", &t->costs_forward);
  spread_reals(t, "costs.backward_input", &t->costs_backward_input);
  spread_reals(t, "costs.backward_weight", &t->costs_backward_weight);
  spread_reals(t, "costs.send", &t->costs_send);
  spread_reals(t, "costs.reduce", &t->costs_reduce);
  spread_reals(t, "costs.gather", &t->costs_gather);
  size_t stages = (size_t)(t->pipeline_ranks * t->pipeline_stages_per_rank);
  struct pen_strings *recompute = &t->memory_recompute;
  void *values = recompute->value;
  if (!spread(&recompute->count, &values, recompute->for_all, sizeof *recompute->value, stages))
    pen_topology_fail(t, "memory.recompute", "one choice, or a list of %zu, one a stage", stages);
  recompute->value = values;
}

void pen_topology_validate(struct pen_topology *topology) {
  require_all(topology);
  pen_topology_check_built(topology);
  settle_pipeline(topology);
  if (family_of(topology)->needs_tokens) settle_attention(topology);
  settle_family(topology);
  settle_optimizer(topology);
  settle_shapes(topology);
  check_actions(topology);
  for (size_t i = 0; i < topology->shapes_sequence.count; i++)
    check_actions(pen_topology_of_shape(topology, i));
  check_elements(topology);
  settle_cluster(topology);
  settle_lists(topology);
}
