/* emit.c: the plan as C: tables made to be read, the same bytes for the same input. emit_tables.c
 * writes the tables themselves.
 *
 * The file, in order: a comment with the command that makes it, the SHA-256 of its input, the
 * simulated step and the bytes of every rank; the tables, by profile and rank; the headers of the
 * checkpoint's files; the list of profiles and `pen_plan`, by which the runtime finds all else; and
 * assertions of what must agree with the sources that it is compiled with: counts of rows, ops,
 * kinds and bases.
 *
 * The same input gives the same bytes on any machine: no date, no name of a host, no absolute path
 * (paths are by base name), nothing in the order of a hash table. Reals have 17 digits, which give
 * an f64 back exactly (IEEE 754-2019, section 5.12.2). In strings a question mark is written as its
 * number, for two of them could begin a trigraph (C17, 5.2.1.1). Fields that are left out are 0.
 * Whether the compiled tables are those that were verified, tests/gen/emit.c asks. */
#include <stdio.h>
#include <inttypes.h>

#include "gen/emit/plan_c.h"
#include "gen/base/arena.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

/* A C string literal, in pieces of one line each at most. */
static void write_string(FILE *out, const char *text) {
  fputs("\"", out);
  size_t column = 0;
  for (; *text; text++, column++) {
    if (*text == '"' || *text == '\\')
      fprintf(out, "\\%c", *text);
    else if (*text == '\n')
      fputs("\\n", out);
    else if ((unsigned char)*text < 32 || *text == '?')
      fprintf(out, "\\%03o", (unsigned char)*text);
    else
      fputc(*text, out);
    if (text[1] && (*text == '\n' || column > 110)) {
      fputs("\"\n    \"", out);
      column = 0;
    }
  }
  fputs("\"", out);
}

static void write_files(FILE *out, const struct pen_plan *plan) {
  fputs("\n/* ======== files ======== */\n\nstatic const char model_header[] =\n    ", out);
  write_string(out, plan->model_header);
  fputs(";\nstatic const char optimizer_header[] =\n    ", out);
  write_string(out, plan->optimizer_header);
  fputs(";\n", out);
}

static void write_bytes(FILE *out, const char *field, const uint8_t *bytes) {
  fprintf(out, "  .%s = {", field);
  for (size_t i = 0; i < PEN_DIGEST_BYTES; i++) fprintf(out, "%s0x%02x", i ? "," : "", bytes[i]);
  fputs("},\n", out);
}

static void write_optimizer(FILE *out, const struct pen_optimizer *o) {
  static const char *const decay[] = {
#define PEN_DECAY(name, text, meaning) "PEN_DECAY_" #name,
#include "runtime/plan/optimizer.def"
  };
  static const char *const norm[] = {
#define PEN_NORM_KIND(name, text, meaning) "PEN_NORM_" #name,
#include "runtime/plan/optimizer.def"
  };
  fprintf(out,
          "  .optimizer = {.learning_rate = %.17g, .minimum_ratio = %.17g, .beta1 = %.17g, .beta2 "
          "= %.17g,\n"
          "                .epsilon = %.17g, .clip_norm = %.17g,\n"
          "                .warmup_steps = %" PRIu64 ", .steps = %" PRIu64
          ", .decay_steps = %" PRIu64
          ",\n"
          "                .decay = %s, .norm = %s},\n",
          o->learning_rate, o->minimum_ratio, o->beta1, o->beta2, o->epsilon, o->clip_norm,
          o->warmup_steps, o->steps, o->decay_steps, decay[o->decay], norm[o->norm]);
}

static void write_forecast(FILE *out, const struct pen_emit_header *header) {
  const struct pen_timing *timing = header->timing;
  double exchanging = 0;
  for (uint32_t rank = 0; timing->whole && rank < timing->whole_order->rank_count; rank++)
    if (timing->exchanging[rank] > exchanging) exchanging = timing->exchanging[rank];
  fprintf(
      out,
      "  .forecast = {.unit = \"%s\", .makespan = %.9g, .exchanging = %.9g, .exposed = %.9g},\n",
      header->cost_unit, timing->makespan, exchanging, timing->exposed);
}

static void write_hosts(FILE *out, const struct pen_plan *plan) {
  fputs("  .hosts = (const char *const[]){", out);
  for (uint32_t h = 0; h < plan->host_count; h++)
    fprintf(out, "%s\"%s\"", h ? ", " : "", plan->hosts[h]);
  fprintf(out, "},\n  .host_count = %" PRIu32 ", .ranks_per_host = %" PRIu32 ", .port = %u,\n",
          plan->host_count, plan->ranks_per_host, (unsigned)plan->port);
}

static void write_plan(FILE *out, const struct pen_plan *plan,
                       const struct pen_emit_header *header) {
  static const char *const sharding[] = {"PEN_SHARD_NONE", "PEN_SHARD_OPTIMIZER",
                                         "PEN_SHARD_WEIGHTS"};
  static const char *const kind[] = {
#define PEN_PROFILE_KIND(name, meaning) "PEN_" #name,
#include "runtime/plan/profiles.def"
  };
  fputs("\n/* ======== the plan ======== */\n\nstatic const struct pen_profile profiles[] = {\n",
        out);
  for (uint32_t i = 0; i < plan->profile_count; i++) {
    const struct pen_profile *p = &plan->profiles[i];
    fprintf(out,
            "  {\"%s\", %s, %s_stages, %s_messages, %s_channels, %s_ranks, %" PRIu32 ", %" PRIu32
            ", %" PRIu32 ", %" PRIu32 "},\n",
            p->name, kind[p->kind], p->name, p->name, p->name, p->name, p->message_count,
            p->channel_count, p->microbatch_count, p->sequence);
  }
  fputs("};\n\nconst struct pen_plan pen_plan = {\n", out);
  fputs("  .name = ", out);
  write_string(out, plan->name);
  fprintf(out, ", .schedule = \"%s\", .family = \"%s\", .version = \"%s\",\n", plan->schedule,
          plan->family, plan->version);
  fprintf(out, "  .device = \"%s\", .transport = \"%s\",\n", plan->device, plan->transport);
  if (plan->host_count) write_hosts(out, plan);
  write_bytes(out, "digest", plan->digest);
  write_bytes(out, "model_digest", plan->model_digest);
  fprintf(out,
          "  .rank_count = %" PRIu32 ", .stages_per_rank = %" PRIu32 ", .stage_count = %" PRIu32
          ", .microbatch_count = %" PRIu32 ",\n  .replica_count = %" PRIu32 ", .sharding = %s,\n",
          plan->rank_count, plan->stages_per_rank, plan->stage_count, plan->microbatch_count,
          plan->replica_count, sharding[plan->sharding]);
  fprintf(out,
          "  .microbatch = %" PRIu32 ", .sequence = %" PRIu32 ", .vocab = %" PRIu32
          ", .layers = %" PRIu32 ", .threads_per_rank = %" PRIu32
          ", .dtype = %s,\n"
          "  .needs_tokens = %s, .packed = %s, .loss_is_mean = %s, .loss_count = %" PRIu32
          ", .loss_offset = %" PRIu64 ",\n",
          plan->microbatch, plan->sequence, plan->vocab, plan->layers, plan->threads_per_rank,
          plan->dtype == PEN_BF16 ? "PEN_BF16" : "PEN_F32", plan->needs_tokens ? "true" : "false",
          plan->packed ? "true" : "false", plan->loss_is_mean ? "true" : "false", plan->loss_count,
          plan->loss_offset);
  write_optimizer(out, &plan->optimizer);
  write_forecast(out, header);
  if (plan->tie_count) fprintf(out, "  .ties = ties, .tie_count = %" PRIu32 ",\n", plan->tie_count);
  fprintf(out,
          "  .weights = weights, .weight_count = %" PRIu32
          ", .memory = memory,\n  .feeds = feeds, .staged_input_count = %" PRIu32
          ", .profiles = profiles, .profile_count = %" PRIu32
          ",\n  .model_header = model_header, .optimizer_header = optimizer_header,\n  "
          ".model_file_bytes = %" PRIu64 ", .optimizer_file_bytes = %" PRIu64
          ",\n  .config_json =\n    ",
          plan->weight_count, plan->staged_input_count, plan->profile_count, plan->model_file_bytes,
          plan->optimizer_file_bytes);
  write_string(out, plan->config_json);
  fputs(",\n  .settings =\n    ", out);
  write_string(out, plan->settings);
  fputs(",\n};\n\n", out);
}

static void write_assertions(FILE *out, const struct pen_plan *plan) {
  fprintf(out, "_Static_assert(sizeof weights / sizeof *weights == %" PRIu32 ", \"weights\");\n",
          plan->weight_count);
  fprintf(out,
          "_Static_assert(sizeof memory / sizeof *memory == %" PRIu32 ", \"one arena a rank\");\n",
          plan->rank_count);
  fprintf(out,
          "_Static_assert(PEN_BASES == %d && PEN_OPERANDS_MAX == %d, \"the runtime that this plan "
          "was made for\");\n",
          PEN_BASES, PEN_OPERANDS_MAX);
  fprintf(
      out,
      "_Static_assert(PEN_OP_COUNT == %d && PEN_ACTION_KINDS == %d, \"the same .def lists\");\n",
      PEN_OP_COUNT, PEN_ACTION_KINDS);
  for (uint32_t i = 0; i < plan->profile_count; i++)
    for (uint32_t r = 0; r < plan->rank_count; r++) {
      const char *p = pen_text("%s_rank%u_actions", plan->profiles[i].name, r);
      fprintf(out, "_Static_assert(sizeof %s / sizeof *%s == %" PRIu32 ", \"rows\");\n", p, p,
              plan->profiles[i].ranks[r].action_count);
    }
}

void pen_emit_c(FILE *out, const struct pen_plan *plan, const struct pen_emit_header *header) {
  fprintf(out,
          "/* %s: a plan. Generated; change the topology, not this file.\n *\n *   %s\n *   input "
          "SHA-256 ",
          plan->name, header->command);
  fprintf(out,
          "%s\n *\n * %" PRIu32 " ranks x %" PRIu32 " stages, %" PRIu32
          " microbatches, schedule %s\n",
          pen_hex(header->source_digest, PEN_DIGEST_BYTES), plan->rank_count, plan->stages_per_rank,
          plan->microbatch_count, plan->schedule);
  fprintf(out,
          " * predicted (%s): makespan %.6g, span %.6g, bubble %.4f, gap to the lower bound %.4f\n",
          header->cost_unit, header->timing->makespan, header->timing->span, header->timing->bubble,
          header->timing->gap);
  if (header->timing->exchange)
    fprintf(out, " * %" PRIu32 " replicas: their exchange adds %.6g\n", plan->replica_count,
            header->timing->exposed);
  for (uint32_t r = 0; r < plan->rank_count; r++)
    fprintf(out, " * rank %" PRIu32 ": %" PRIu64 " bytes placed, %" PRIu64 " live at the peak\n", r,
            plan->memory[r].arena_bytes, plan->memory[r].live_bytes);
  fputs(
      " */\n#include \"runtime/plan/plan.h\"\n\n"
      "#pragma GCC diagnostic ignored \"-Wmissing-field-initializers\" /* what is left out is 0 "
      "*/\n\n",
      out);
  pen_emit_tables(out, plan);
  write_files(out, plan);
  write_plan(out, plan, header);
  write_assertions(out, plan);
}
