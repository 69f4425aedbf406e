/* plan_c.c: the C file of a plan.
 *
 * In order: a comment with the command line, the SHA-256 of the input, the predicted step and the
 * bytes of every rank; the tables (tables_c.c); the headers of the checkpoint files; the profiles
 * and `pen_plan`, from which the runtime finds all else; and assertions on the sources that compile
 * it: counts of rows, op kinds, action kinds and bases.
 *
 * The same input gives the same bytes on any machine: there is no date, no host name, no absolute
 * path, and nothing in the order of a hash table. Fields that are not written are 0.
 * tests/gen/emit.c checks that the compiled tables equal those that were verified. */
#include <inttypes.h>
#include <stdio.h>

#include "gen/base/arena.h"
#include "gen/base/escape.h"
#include "gen/emit/emit.h"
#include "gen/emit/internal.h"

/* ---- the profiles and pen_plan ---- */

static void write_profiles(struct pen_c_writer *writer, const struct pen_plan *plan) {
  pen_write_text(writer, "static const struct pen_profile ");
  pen_write_name(writer, NULL, "profiles[] = {\n");
  for (uint32_t i = 0; i < plan->profile_count; i++) {
    const char *name = pen_text("%s%s", writer->prefix, plan->profiles[i].name);
    pen_write_text(writer, "  {");
    pen_write_fields(writer, &pen_schemas[PEN_SCHEMA_PROFILE], &plan->profiles[i]);
    pen_write_text(writer, pen_text(",\n    .stages = %s_stages, .messages = %s_messages, "
                                    ".channels = %s_channels, .ranks = %s_ranks},\n",
                                    name, name, name, name));
  }
  pen_write_text(writer, "};");
  pen_write_line_end(writer);
}

static void write_string_field(struct pen_c_writer *writer, const char *field, const char *text) {
  pen_write_text(writer, pen_text("  .%s =\n    ", field));
  pen_write_string(writer, text);
  pen_write_text(writer, ",\n");
}

static void write_digest(struct pen_c_writer *writer, const struct pen_plan *plan) {
  pen_write_text(writer, "  .digest = {");
  for (size_t i = 0; i < PEN_DIGEST_BYTES; i++)
    pen_write_text(writer, pen_text("%s0x%02x", i ? "," : "", plan->digest[i]));
  pen_write_text(writer, "},\n");
}

/* The simulated start and end of each F, I, W and B, in the order of the lists. */
static void write_times(struct pen_c_writer *writer, const struct pen_plan *plan,
                        const struct pen_timing *timing) {
  pen_write_text(writer, "    .times = (const double *const[]){\n");
  for (uint32_t rank = 0; rank < plan->rank_count; rank++) {
    const struct pen_rank_program *program = &plan->profiles[0].ranks[rank];
    uint32_t index = 0;
    pen_write_text(writer, "      (const double[]){");
    for (uint32_t row = 0; row < program->action_count; row++) {
      if (program->actions[row].kind > PEN_W) continue;
      char text[64];
      snprintf(text, sizeof text, "%s%.7g,%.7g", index ? "," : "", timing->start[rank][index],
               timing->end[rank][index]);
      pen_write_text(writer, text);
      index++;
    }
    pen_write_text(writer, "},\n");
  }
  pen_write_text(writer, "    }");
}

static void write_forecast(struct pen_c_writer *writer, const struct pen_plan *plan,
                           const struct pen_emit_header *header) {
  const struct pen_timing *timing = header->timing;
  double exchanging = 0;
  for (uint32_t rank = 0; timing->whole && rank < timing->whole_order->rank_count; rank++)
    if (timing->exchanging[rank] > exchanging) exchanging = timing->exchanging[rank];
  pen_write_text(writer,
                 pen_text("  .forecast = {.unit = \"%s\", .makespan = %.9g, .exchanging = "
                          "%.9g, .exposed = %.9g,\n    .busy = (const double[]){",
                          header->cost_unit, timing->makespan, exchanging, timing->exposed));
  for (uint32_t rank = 0; timing->busy && rank < plan->rank_count; rank++)
    pen_write_text(writer, pen_text("%s%.6g", rank ? ", " : "", timing->busy[rank]));
  pen_write_text(writer, "},\n");
  if (header->peak_tflops > 0)
    pen_write_text(writer, pen_text("    .flops = %.9g, .peak_tflops = %.9g,\n", header->flops,
                                    header->peak_tflops));
  if (timing->start) write_times(writer, plan, timing);
  pen_write_text(writer, "},\n");
}

static void write_hosts(struct pen_c_writer *writer, const struct pen_plan *plan) {
  pen_write_text(writer, "  .hosts = (const char *const[]){");
  for (uint32_t h = 0; h < plan->host_count + plan->spare_count; h++) {
    if (h) pen_write_text(writer, ", ");
    pen_write_string(writer, plan->hosts[h]);
  }
  pen_write_text(writer, "},\n");
}

static void write_numbers_field(struct pen_c_writer *writer, const char *name,
                                const uint32_t *number, uint32_t count) {
  pen_write_text(writer, pen_text("  .%s = (const uint32_t[]){", name));
  for (uint32_t i = 0; i < count; i++)
    pen_write_text(writer, pen_text("%s%u", i ? ", " : "", number[i]));
  pen_write_text(writer, "},\n");
}

/* A pointer to a table of the plan. */
static void write_pointer(struct pen_c_writer *writer, const char *name) {
  pen_write_text(writer, pen_text("  .%s = ", name));
  pen_write_name(writer, NULL, name);
  pen_write_text(writer, ",\n");
}

static void write_plan(struct pen_c_writer *writer, const struct pen_plan *plan,
                       const struct pen_emit_header *header) {
  write_string_field(writer, "name", plan->name);
  write_digest(writer, plan);
  pen_write_text(writer, "  ");
  pen_write_fields(writer, &pen_schemas[PEN_SCHEMA_PLAN], plan);
  pen_write_text(writer, ",\n  .optimizer = {");
  pen_write_fields(writer, &pen_schemas[PEN_SCHEMA_OPTIMIZER], &plan->optimizer);
  pen_write_text(writer, "},\n");
  write_forecast(writer, plan, header);
  if (plan->host_count) {
    write_hosts(writer, plan);
    write_numbers_field(writer, "rank_hosts", plan->rank_hosts, pen_process_count(plan));
  }
  if (plan->core_count) write_numbers_field(writer, "cores", plan->cores, plan->core_count);
  write_pointer(writer, "weights");
  write_pointer(writer, "memory");
  write_pointer(writer, "profiles");
  if (plan->tie_count) write_pointer(writer, "ties");
  if (plan->staged_input_count) write_pointer(writer, "staged_inputs");
  if (plan->tensor_rank_dim_count) write_pointer(writer, "tensor_rank_dims");
  if (plan->output_count) write_pointer(writer, "outputs");
  if (plan->pointwise_count) {
    write_pointer(writer, "pointwise");
    pen_write_text(writer, pen_text("  .pointwise_count = %" PRIu32 ",\n", plan->pointwise_count));
  }
  write_string_field(writer, "model_header", plan->model_header);
  write_string_field(writer, "optimizer_header", plan->optimizer_header);
  write_string_field(writer, "config_json", plan->config_json);
  write_string_field(writer, "settings", plan->settings);
  if (plan->input_count) {
    write_pointer(writer, "inputs");
    pen_write_text(writer, pen_text("  .input_count = %" PRIu32 ",\n", plan->input_count));
  }
  if (plan->share_count) {
    write_pointer(writer, "shares");
    pen_write_text(writer, pen_text("  .share_count = %" PRIu32 ",\n", plan->share_count));
  }
  if (plan->loss_of_microbatch) pen_write_text(writer, "  .loss_of_microbatch = true,\n");
  if (plan->no_texts) write_string_field(writer, "no_texts", plan->no_texts);
  if (plan->router_loss_count) {
    write_pointer(writer, "router_losses");
    pen_write_text(writer,
                   pen_text("  .router_loss_count = %" PRIu32 ",\n", plan->router_loss_count));
  }
  if (plan->router_count) {
    write_pointer(writer, "routers");
    pen_write_text(writer, pen_text("  .router_count = %" PRIu32 ",\n", plan->router_count));
  }
  if (plan->fallback_count)
    pen_write_text(writer, pen_text("  .fallbacks = fallbacks, .fallback_count = %" PRIu32 ",\n",
                                    plan->fallback_count));
  if (plan->measured_count)
    pen_write_text(writer, pen_text("  .measured = measured, .measured_count = %" PRIu32
                                    ", .deployed_layers = %" PRIu32 ",\n",
                                    plan->measured_count, plan->deployed_layers));
  if (plan->only_measures) pen_write_text(writer, "  .only_measures = true,\n");
}

/* Plans beside the main one: "fallback1", "fallback2", ... */
struct more_plans {
  const char *name, *array; /* "fallback", "fallbacks" */
  const struct pen_plan *plan;
  const struct pen_emit_header *header;
  uint32_t count;
};

/* Before a plan that names plans which follow it. */
static void declare_more_plans(struct pen_c_writer *writer, const struct more_plans *more) {
  pen_write_text(writer, pen_text("static const struct pen_plan %s[%" PRIu32 "];\n", more->array,
                                  more->count));
}

static void write_more_plans(struct pen_c_writer *writer, const struct more_plans *more) {
  for (uint32_t i = 0; i < more->count; i++) {
    writer->prefix = pen_text("%s%" PRIu32 "_", more->name, i + 1);
    pen_write_text(writer,
                   pen_text("/* ======== %s %" PRIu32 " ======== */\n\n", more->name, i + 1));
    pen_emit_tables(writer, &more->plan[i]);
    pen_write_text(writer, "\n");
    write_profiles(writer, &more->plan[i]);
  }
  pen_write_text(writer, pen_text("\nstatic const struct pen_plan %s[] = {\n", more->array));
  for (uint32_t i = 0; i < more->count; i++) {
    writer->prefix = pen_text("%s%" PRIu32 "_", more->name, i + 1);
    pen_write_text(writer, pen_text("[%" PRIu32 "] = {\n", i));
    write_plan(writer, &more->plan[i], &more->header[i]);
    pen_write_text(writer, "},\n");
  }
  pen_write_text(writer, "};");
  pen_write_line_end(writer);
  writer->prefix = "";
}

/* ---- the file ---- */

static void write_assertion(FILE *out, const char *table, uint32_t count, const char *text) {
  fprintf(out, "_Static_assert(sizeof %s / sizeof *%s == %" PRIu32 ", \"%s\");\n", table, table,
          count, text);
}

static void write_assertions(FILE *out, const struct pen_plan *plan, const char *prefix) {
  write_assertion(out, pen_text("%sweights", prefix), plan->weight_count, "weights");
  write_assertion(out, pen_text("%smemory", prefix), plan->rank_count, "ranks");
  for (uint32_t i = 0; i < plan->profile_count; i++)
    for (uint32_t r = 0; r < plan->rank_count; r++) {
      const char *actions = pen_text("%s%s_rank%u_actions", prefix, plan->profiles[i].name, r);
      write_assertion(out, actions, plan->profiles[i].ranks[r].action_count, "actions");
    }
}

static void write_list_assertions(FILE *out) {
  fprintf(out,
          "_Static_assert(PEN_BASES == %d && PEN_OPERANDS_MAX == %d, \"runtime/plan\");\n"
          "_Static_assert(PEN_OP_COUNT == %d && PEN_ACTION_KINDS == %d, \"the .def lists\");\n",
          PEN_BASES, PEN_OPERANDS_MAX, PEN_OP_COUNT, PEN_ACTION_KINDS);
}

static void write_file_comment(FILE *out, const struct pen_plan *plan,
                               const struct pen_emit_header *header) {
  const struct pen_timing *timing = header->timing;
  fprintf(out,
          "/* %s: a plan. Generated: change the topology, not this file.\n *\n *   %s\n"
          " *   input SHA-256 %s\n *\n",
          pen_comment_text(plan->name), pen_comment_text(header->command),
          pen_hex(header->source_digest, PEN_DIGEST_BYTES));
  fprintf(out,
          " * %" PRIu32 " ranks x %" PRIu32 " stages, %" PRIu32
          " microbatches, schedule %s\n"
          " * predicted (%s): makespan %.6g, span %.6g, bubble %.4f, idle %.4f, gap to the lower "
          "bound %.4f\n",
          plan->rank_count, plan->stages_per_rank, plan->microbatch_count, plan->schedule,
          header->cost_unit, timing->makespan, timing->span, timing->bubble, timing->idle_share,
          timing->gap);
  if (timing->collectives)
    fprintf(out, " * %" PRIu32 " replicas: their collectives add %.6g\n",
            pen_group_size(plan, PEN_DATA), timing->exposed);
  for (uint32_t f = 0; f < plan->fallback_count; f++)
    fprintf(out, " * fallback %" PRIu32 ": %" PRIu32 " ranks, schedule %s, makespan %.6g\n", f + 1,
            plan->fallbacks[f].rank_count, plan->fallbacks[f].schedule,
            header->fallbacks[f].timing->makespan);
  for (uint32_t r = 0; r < plan->rank_count; r++)
    fprintf(out, " * rank %" PRIu32 ": %" PRIu64 " bytes allocated, %" PRIu64 " live at the peak\n",
            r, plan->memory[r].arena_bytes, plan->memory[r].live_bytes);
  fputs(
      " */\n#include \"runtime/plan/plan.h\"\n\n"
      "#pragma GCC diagnostic ignored \"-Wmissing-field-initializers\" /* they are 0 */\n\n",
      out);
}

void pen_emit_c(FILE *out, const struct pen_plan *plan, const struct pen_emit_header *header) {
  struct pen_c_writer *writer = pen_new(1, sizeof *writer);
  writer->out = out;
  writer->prefix = "";
  write_file_comment(out, plan, header);
  const struct more_plans more[] = {
      {"fallback", "fallbacks", plan->fallbacks, header->fallbacks, plan->fallback_count},
      {"measured", "measured", plan->measured, header->measured, plan->measured_count},
  };
  for (size_t m = 0; m < sizeof more / sizeof *more; m++)
    if (more[m].count) declare_more_plans(writer, &more[m]);
  pen_emit_tables(writer, plan);
  pen_write_text(writer, "\n/* ======== the plan ======== */\n\n");
  write_profiles(writer, plan);
  pen_write_text(writer, "\nconst struct pen_plan pen_plan = {\n");
  write_plan(writer, plan, header);
  pen_write_text(writer, "};\n");
  pen_write_line_end(writer);
  for (size_t m = 0; m < sizeof more / sizeof *more; m++)
    if (more[m].count) write_more_plans(writer, &more[m]);
  write_assertions(out, plan, "");
  for (size_t m = 0; m < sizeof more / sizeof *more; m++)
    for (uint32_t i = 0; i < more[m].count; i++)
      write_assertions(out, &more[m].plan[i], pen_text("%s%" PRIu32 "_", more[m].name, i + 1));
  write_list_assertions(out);
}
