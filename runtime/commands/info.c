/* info.c: prints a plan's identity and its bytes by kind and rank. */
#include "runtime/commands/info.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "runtime/base/check.h"
#include "runtime/base/text_writer.h"
#include "runtime/data/bucket.h"
#include "runtime/data/named_inputs.h"
#include "runtime/plan/experts.h"
#include "runtime/plan/memory_kinds.h"
#include "runtime/storage/memory_checkpoint.h"
#include "runtime/supervise/binding.h"

/* Columns of the plan's table of memory, as the JSON form reports them besides the bytes by kind;
 * the last where there is such memory, on a device. */
static const struct column {
  const char *name;
  size_t offset;
} columns[] = {
#define COLUMN(field) \
  { #field, offsetof(struct pen_rank_memory, field) }
    COLUMN(arena_bytes),    COLUMN(receive_bytes),    COLUMN(weight_bytes),   COLUMN(bf16_bytes),
    COLUMN(gradient_bytes), COLUMN(moment_bytes),     COLUMN(snapshot_bytes), COLUMN(cache_bytes),
    COLUMN(constant_bytes), COLUMN(activation_bytes), COLUMN(live_bytes),     COLUMN(pinned_bytes),
#undef COLUMN
};
enum { COLUMN_COUNT = sizeof columns / sizeof columns[0] };

static const char *const sharding_names[] = {
    [PEN_SHARD_NONE] = "none",
    [PEN_SHARD_OPTIMIZER] = "optimizer",
    [PEN_SHARD_GRADIENTS] = "gradients",
    [PEN_SHARD_WEIGHTS] = "weights",
};

static uint64_t value_of(const struct pen_rank_memory *memory, const struct column *column) {
  uint64_t value;
  memcpy(&value, (const char *)memory + column->offset, sizeof value);
  return value;
}

static unsigned column_count(const struct pen_plan *plan) {
  return plan->memory[0].pinned_bytes > 0 ? COLUMN_COUNT : COLUMN_COUNT - 1;
}

/* The weights of the model, of which `parameters` receives the elements. */
static uint32_t count_weights(const struct pen_plan *plan, uint64_t *parameters) {
  uint32_t count = 0;
  *parameters = 0;
  for (uint32_t w = 0; w < plan->weight_count; w++) {
    const bool is_of_model = pen_is_of_model(&plan->weights[w]);
    *parameters += is_of_model ? plan->weights[w].count : 0;
    count += is_of_model;
  }
  return count;
}

static void json_text(struct pen_writer *out, const char *name, const char *value) {
  pen_writer_print(out, "\"%s\":", name);
  pen_writer_json(out, value);
  pen_writer_text(out, ",");
}

static void json_digest(struct pen_writer *out, const char *name,
                        const uint8_t digest[PEN_DIGEST_BYTES]) {
  char digits[2 * PEN_DIGEST_BYTES + 1];
  pen_hex_text(digits, digest, PEN_DIGEST_BYTES);
  pen_writer_print(out, "\"%s\":\"%s\",", name, digits);
}

static void json_shapes(struct pen_writer *out, const struct pen_plan *plan) {
  struct pen_buckets buckets = pen_buckets_of(plan, plan->profiles[0].kind);
  pen_writer_text(out, "\"shapes\":[");
  for (uint32_t s = 0; s < buckets.count; s++) {
    pen_writer_print(out, "%s{\"sequence\":%u,\"microbatches\":%u}", s == 0 ? "" : ",",
                     buckets.profile[s]->sequence, buckets.profile[s]->microbatch_count);
  }
  pen_writer_text(out, "],");
}

static void json_inputs(struct pen_writer *out, const struct pen_plan *plan) {
  static const char *const dtypes[PEN_INPUT_DTYPES] = {
#define PEN_INPUT_DTYPE(name, text, also, ids, values) text,
#include "runtime/plan/inputs.def"
  };
  pen_writer_text(out, "\"inputs\":[");
  for (uint32_t i = 0; i < plan->input_count; i++) {
    const struct pen_input *input = &plan->inputs[i];
    pen_writer_text(out, i == 0 ? "{" : ",{");
    json_text(out, "name", input->name);
    json_text(out, "dtype", dtypes[input->dtype]);
    pen_writer_text(out, "\"sample\":[");
    for (uint32_t n = 0; n < input->dim_count; n++) {
      pen_writer_print(out, "%s%" PRIu64, n == 0 ? "" : ",",
                       input->dim[n] == 0 ? plan->sequence : input->dim[n]);
    }
    pen_writer_text(out, "]}");
  }
  pen_writer_text(out, "],");
}

/* An op of a layer of experts of training, or null. */
static const struct pen_op *find_experts(const struct pen_plan *plan) {
  const struct pen_op *op = NULL;
  for (uint32_t rank = 0; rank < plan->rank_count && op == NULL; rank++) {
    op = pen_experts_of(&plan->profiles[0].ranks[rank], PEN_NONE);
  }
  return op;
}

static void json_experts(struct pen_writer *out, const struct pen_plan *plan) {
  const struct pen_op *op = find_experts(plan);
  if (op != NULL) {
    pen_writer_print(out,
                     "\"experts\":{\"experts\":%" PRId64 ",\"per_token\":%" PRId64
                     ",\"rows\":%" PRId64 ",\"segment_rows\":%.9g},",
                     op->dim[5], op->dim[2], op->dim[1],
                     (double)(op->dim[1] * op->dim[2]) / (double)op->dim[5]);
  }
}

static void print_experts(const struct pen_plan *plan) {
  const struct pen_op *op = find_experts(plan);
  if (op != NULL) {
    printf("%-14s%" PRId64 ", %" PRId64 " a token; slices of %" PRId64
           " tokens, %.6g rows an expert on average\n",
           "experts", op->dim[5], op->dim[2], op->dim[1],
           (double)(op->dim[1] * op->dim[2]) / (double)op->dim[5]);
  }
}

static void json_hosts(struct pen_writer *out, const struct pen_plan *plan) {
  pen_writer_text(out, "\"hosts\":[");
  for (uint32_t h = 0; h < pen_host_and_spare_count(plan); h++) {
    pen_writer_text(out, h == plan->host_count ? "],\"spares\":[" : h == 0 ? "" : ",");
    pen_writer_json(out, plan->hosts[h]);
  }
  pen_writer_text(out, plan->spare_count > 0 ? "]," : "],\"spares\":[],");
}

/* Of train --recover-every, in memory of its command and, with several hosts, of the next host's.
 */
static uint64_t recovery_bytes(const struct pen_plan *plan, uint32_t rank) {
  const uint32_t copies =
      plan->host_count < 2 ? PEN_MEMORY_COPIES : PEN_MIRRORED_COPIES + PEN_MEMORY_COPIES;
  return copies * (uint64_t)pen_memory_checkpoint_bytes(plan, rank);
}

/* Of the rank with the most. */
static uint64_t most_arena_bytes(const struct pen_plan *plan) {
  uint64_t most = 0;
  for (uint32_t r = 0; r < plan->rank_count; r++) {
    most = plan->memory[r].arena_bytes > most ? plan->memory[r].arena_bytes : most;
  }
  return most;
}

/* The hosts that the ranks of a fallback need. */
static uint32_t host_count(const struct pen_plan *plan) {
  return plan->host_count == 0 ? 1 : plan->host_count;
}

static void json_fallbacks(struct pen_writer *out, const struct pen_plan *plan) {
  pen_writer_text(out, "\"fallbacks\":[");
  for (uint32_t f = 0; f < plan->fallback_count; f++) {
    const struct pen_plan *fallback = &plan->fallbacks[f];
    pen_writer_print(out, "%s{\"ranks\":%u,\"stages_per_rank\":%u,", f == 0 ? "" : ",",
                     fallback->rank_count, fallback->stages_per_rank);
    json_text(out, "schedule", fallback->schedule);
    pen_writer_print(
        out, "\"hosts\":%u,\"makespan\":%.9g,\"tensor_ranks\":%u,\"arena_bytes\":%" PRIu64 "}",
        host_count(fallback), fallback->forecast.makespan, pen_group_size(fallback, PEN_TENSOR),
        most_arena_bytes(fallback));
  }
  pen_writer_text(out, "],");
}

static void json_kinds(struct pen_writer *out, const struct pen_plan *plan, uint32_t rank) {
  pen_writer_text(out, "\"bytes\":{");
  for (int kind = 0; kind < PEN_MEMORY_KINDS; kind++) {
    pen_writer_print(out, "%s\"%s\":%" PRIu64, kind == 0 ? "" : ",",
                     pen_memory_kind_name((enum pen_memory_kind)kind),
                     pen_memory_kind_bytes(plan, rank, (enum pen_memory_kind)kind));
  }
  pen_writer_text(out, "}");
}

/* Global ranks of replica 0. */
static void json_ranks(struct pen_writer *out, const struct pen_plan *plan) {
  pen_writer_text(out, "\"rank\":[");
  for (uint32_t global = 0; global < pen_replica_process_count(plan); global++) {
    const uint32_t r = pen_table_rank(plan, global);
    pen_writer_print(out, "%s{\"rank\":%u,", global == 0 ? "" : ",", global);
    for (unsigned c = 0; c < column_count(plan); c++) {
      pen_writer_print(out, "\"%s\":%" PRIu64 ",", columns[c].name,
                       value_of(&plan->memory[r], &columns[c]));
    }
    pen_writer_print(out,
                     "\"actions\":%u,\"recovery_bytes\":%" PRIu64
                     ",\"receive_slots\":%u,\"pipeline_rank\":%u,\"tensor_rank\":%u,",
                     plan->profiles[0].ranks[r].action_count, recovery_bytes(plan, r),
                     plan->memory[r].receive_slots, r, pen_group_member(plan, global, PEN_TENSOR));
    json_kinds(out, plan, r);
    pen_writer_text(out, "}");
  }
  pen_writer_text(out, "]");
}

static void print_json(const struct pen_plan *plan, const char *kernels) {
  static struct pen_writer out;
  pen_writer_open(&out, STDOUT_FILENO);
  pen_writer_text(&out, "{");
  json_text(&out, "name", plan->name);
  json_text(&out, "version", plan->version);
  json_text(&out, "family", plan->family);
  json_text(&out, "dtype", plan->dtype == PEN_BF16 ? "bf16" : "f32");
  json_text(&out, "schedule", plan->schedule);
  json_text(&out, "device", pen_device_row(plan->device)->text);
  json_text(&out, "transport", pen_transport_row(plan->transport)->text);
  json_text(&out, "kernels", kernels);
  json_digest(&out, "digest", plan->digest);
  json_digest(&out, "model_digest", plan->model_digest);
  pen_writer_print(&out,
                   "\"ranks\":%u,\"tensor_ranks\":%u,\"stages_per_rank\":%u,\"stages\":%u,"
                   "\"microbatches\":%u,\"microbatch\":%u,\"sequence\":%u,\"vocab\":%u,",
                   plan->rank_count, pen_group_size(plan, PEN_TENSOR), plan->stages_per_rank,
                   plan->stage_count, plan->microbatch_count, plan->microbatch, plan->sequence,
                   plan->vocab);
  uint64_t parameters;
  const uint32_t weights = count_weights(plan, &parameters);
  pen_writer_print(&out,
                   "\"layers\":%u,\"threads_per_rank\":%u,\"weights\":%u,\"parameters\":%" PRIu64
                   ",\"replicas\":%u,",
                   plan->layers, plan->threads_per_rank, weights, parameters,
                   pen_group_size(plan, PEN_DATA));
  json_text(&out, "shard", sharding_names[plan->sharding]);
  json_text(&out, "unit", plan->forecast.unit);
  pen_writer_print(&out, "\"makespan\":%.9g,\"exchanging\":%.9g,\"exposed\":%.9g,",
                   plan->forecast.makespan, plan->forecast.exchanging, plan->forecast.exposed);
  pen_writer_text(&out, plan->only_measures ? "\"only_measures\":true," : "");
  json_experts(&out, plan);
  json_hosts(&out, plan);
  json_fallbacks(&out, plan);
  json_shapes(&out, plan);
  if (plan->input_count > 0) {
    json_inputs(&out, plan);
  }
  json_ranks(&out, plan);
  pen_writer_text(&out, "}\n");
  if (pen_writer_flush(&out) != 0) {
    pen_fail(PEN_EXIT_CANNOT_WRITE, "cannot write to standard output");
  }
}

static void print_digest(const char *name, const uint8_t digest[PEN_DIGEST_BYTES]) {
  char text[2 * PEN_DIGEST_BYTES + 1];
  pen_hex_text(text, digest, PEN_DIGEST_BYTES);
  printf("%-14s%s\n", name, text);
}

/* What the generator expects of a step, and what of it is the replicas' exchange. */
static void print_forecast(const struct pen_plan *plan) {
  const struct pen_forecast *forecast = &plan->forecast;
  printf("%-14smakespan %.6g (%s)\n", "predicted", forecast->makespan, forecast->unit);
  if (pen_group_size(plan, PEN_DATA) > 1) {
    printf(
        "%-14s%u, shard %s: the exchange takes a rank up to %.6g, and makes the step %.6g longer\n",
        "replicas", pen_group_size(plan, PEN_DATA), sharding_names[plan->sharding],
        forecast->exchanging, forecast->exposed);
  }
}

/* The host on which generate reads prompts of --stream and prints; null: it has no hosts, or does
 * not generate. */
static const char *text_host(const struct pen_plan *plan) {
  const struct pen_buckets buckets = pen_buckets_of_generation(plan);
  return plan->host_count == 0 || buckets.count == 0
             ? NULL
             : plan->hosts[pen_rank_host(plan, pen_last_stage_process(plan, buckets.profile[0]))];
}

/* "hosts" and their names, "spares" and "texts"; penstock-launch reads these lines. */
static void print_hosts(const struct pen_plan *plan) {
  if (plan->host_count == 0) {
    return;
  }
  printf("%-13s", "hosts");
  for (uint32_t h = 0; h < pen_host_and_spare_count(plan); h++) {
    printf("%s %s", h == plan->host_count ? "\nspares       " : "", plan->hosts[h]);
  }
  printf("\n");
  if (text_host(plan) != NULL) {
    printf("%-14s%s\n", "texts", text_host(plan));
  }
}

static void print_fallbacks(const struct pen_plan *plan) {
  for (uint32_t f = 0; f < plan->fallback_count; f++) {
    const struct pen_plan *fallback = &plan->fallbacks[f];
    const uint32_t ranks = pen_group_size(fallback, PEN_TENSOR);
    char members[32] = "";
    if (ranks > 1) {
      snprintf(members, sizeof members, " and %u tensor ranks", ranks);
    }
    printf("fallback %-5u%s, %u ranks of %u stages%s on %u hosts, makespan %.6g, up to %" PRIu64
           " bytes a rank\n",
           f + 1, fallback->schedule, fallback->rank_count, fallback->stages_per_rank, members,
           host_count(fallback), fallback->forecast.makespan, most_arena_bytes(fallback));
  }
}

/* Whether a rank has bytes of a kind. */
static bool has_kind(const struct pen_plan *plan, enum pen_memory_kind kind) {
  for (uint32_t r = 0; r < plan->rank_count; r++) {
    if (pen_memory_kind_bytes(plan, r, kind) > 0) {
      return true;
    }
  }
  return false;
}

/* A line for each rank, with the kinds that some rank has. */
static void print_memory(const struct pen_plan *plan) {
  const bool pinned = plan->memory[0].pinned_bytes > 0;
  printf("\nbytes by %srank\n%6s %13s", pen_group_size(plan, PEN_TENSOR) > 1 ? "pipeline " : "",
         "rank", "arena");
  for (int kind = 0; kind < PEN_MEMORY_KINDS; kind++) {
    if (has_kind(plan, (enum pen_memory_kind)kind)) {
      printf(" %13s", pen_memory_kind_name((enum pen_memory_kind)kind));
    }
  }
  printf(" %13s", "live");
  if (pinned) {
    printf(" %13s", "pinned");
  }
  printf(" %6s\n", "slots");
  for (uint32_t r = 0; r < plan->rank_count; r++) {
    const struct pen_rank_memory *memory = &plan->memory[r];
    printf("%6u %13" PRIu64, r, memory->arena_bytes);
    for (int kind = 0; kind < PEN_MEMORY_KINDS; kind++) {
      if (has_kind(plan, (enum pen_memory_kind)kind)) {
        printf(" %13" PRIu64, pen_memory_kind_bytes(plan, r, (enum pen_memory_kind)kind));
      }
    }
    printf(" %13" PRIu64, memory->live_bytes);
    if (pinned) {
      printf(" %13" PRIu64, memory->pinned_bytes);
    }
    printf(" %6u\n", memory->receive_slots);
  }
}

static void print_text(const struct pen_plan *plan, const char *kernels) {
  printf("%-14s%s (penstock %s)%s\n", "plan", plan->name, plan->version,
         plan->only_measures ? ", for measure alone: a block of each kind" : "");
  printf("%-14s%s, %u ranks of %u stages, %u microbatches\n", "schedule", plan->schedule,
         plan->rank_count, plan->stages_per_rank, plan->microbatch_count);
  const uint32_t ranks = pen_group_size(plan, PEN_TENSOR);
  if (ranks > 1) {
    printf("%-14s%u of each rank, which share its layers\n", "tensor ranks", ranks);
  }
  uint64_t parameters;
  const uint32_t weights = count_weights(plan, &parameters);
  printf("%-14s%s, %s, %u layers, %" PRIu64 " parameters in %u tensors\n", "model", plan->family,
         plan->dtype == PEN_BF16 ? "bf16" : "f32", plan->layers, parameters, weights);
  printf("%-14s%u sequences of %u in a microbatch\n", "batch", plan->microbatch, plan->sequence);
  struct pen_buckets buckets = pen_buckets_of(plan, plan->profiles[0].kind);
  for (uint32_t s = 0; s < buckets.count && buckets.count > 1; s++) {
    printf("%-14s%u microbatches of sequences of %u\n", s == 0 ? "shapes" : "",
           buckets.profile[s]->microbatch_count, buckets.profile[s]->sequence);
  }
  for (uint32_t i = 0; i < plan->input_count; i++) {
    char wanted[2 * PEN_SHOWN_BYTES];
    printf("%-14s%s: %s\n", i == 0 ? "inputs" : "", plan->inputs[i].name,
           pen_named_wanted_text(wanted, &plan->inputs[i], plan->sequence));
  }
  printf("%-14s%s, transport %s, %u threads a rank\n", "device", pen_device_row(plan->device)->text,
         pen_transport_row(plan->transport)->text, plan->threads_per_rank);
  print_experts(plan);
  print_hosts(plan);
  print_forecast(plan);
  print_fallbacks(plan);
  printf("%-14s%s\n", "kernels", kernels);
  print_digest("digest", plan->digest);
  print_digest("model digest", plan->model_digest);
  print_memory(plan);
  uint64_t most = 0;
  for (uint32_t r = 0; r < plan->rank_count; r++) {
    most = recovery_bytes(plan, r) > most ? recovery_bytes(plan, r) : most;
  }
  printf("\ntrain --recover-every needs up to %" PRIu64 " bytes more for each rank\n", most);
}

/* "RANK HOST CORES" */
static void print_bindings(const struct pen_plan *plan) {
  static struct pen_binding binding;
  char own[256] = "?", text[PEN_CORES_TEXT_BYTES];
  bool lacks = false;
  gethostname(own, sizeof own - 1);
  for (uint32_t r = 0; r < pen_process_count(plan); r++) {
    const uint32_t host = pen_rank_host(plan, r);
    const struct pen_rank_set ranks =
        plan->host_count < 2 ? pen_rank_set_all(plan) : pen_rank_set_of(plan, host, PEN_NONE);
    lacks = pen_binding_open_for_enough(&binding, plan, &ranks) || lacks;
    const struct pen_cores cores = pen_binding_cores(&binding, r);
    printf("%u %s %s\n", r, plan->host_count < 2 ? own : plan->hosts[host],
           pen_binding_text(&cores, text));
  }
  if (lacks) {
    pen_warn(
        "this machine has fewer cores than the ranks need: these are those of one that has "
        "enough, numbered from 0");
  }
}

/* Of a device that is not the CPU its name alone: it need not be here. */
void pen_info(const struct pen_plan *plan, const struct pen_options *options) {
  if (options->bindings) {
    print_bindings(plan);
    return;
  }
  const struct pen_device_row *device = pen_device_row(plan->device);
  const char *kernels = device->on_host ? pen_kernels_open() : device->text;
  pen_check(kernels != NULL, "no memory for the buffers of matrix products");
  if (options->json) {
    print_json(plan, kernels);
  } else {
    print_text(plan, kernels);
  }
}
