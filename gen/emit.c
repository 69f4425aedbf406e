/* emit.c: the plan as C: tables made to be read, the same bytes for the same input.
 *
 * The tables are written to memory first, since the digest on top of the plan covers them: SHA-256 over the settled settings, the
 * generator's version and the tables' text. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <nettle/sha2.h>

#include "gen/emit.h"
#include "gen/signature.h"

static const char *const action_kinds[] = {
#define PEN_ACTION(kind, text, printed, meaning) "PEN_" #kind,
#include "runtime/actions.def"
};

static const char *const bases[] = {
#define PEN_BASE(name, text, meaning) "PEN_BASE_" #name,
#include "runtime/bases.def"
};

static const char *const dtypes[] = {"PEN_F32", "PEN_BF16", "PEN_I32", "PEN_F64"};

/* An index, or PEN_NONE by name. */
static const char *index_text(char text[16], uint32_t index) {
  if (index == PEN_NONE) return "PEN_NONE";
  snprintf(text, 16, "%" PRIu32, index);
  return text;
}

/* An offset, or UINT64_MAX by name. */
static const char *offset_text(char text[24], uint64_t offset) {
  if (offset == UINT64_MAX) return "UINT64_MAX";
  snprintf(text, 24, "%" PRIu64, offset);
  return text;
}

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

static void write_actions(FILE *out, const char *prefix, const struct pen_rank_program *rank) {
  fprintf(out, "static const struct pen_action %s_actions[] = {\n", prefix);
  for (uint32_t i = 0; i < rank->action_count; i++) {
    const struct pen_action *a = &rank->actions[i];
    char name[32], program[16], frame[16], message[16];
    fprintf(out, "  [%" PRIu32 "] = {%s, %s, %u, %" PRIu32 ", %s, %s, %s}, /* %s%s */\n", i, action_kinds[a->kind],
            a->overlaps ? "true" : "false", a->stage, a->microbatch, index_text(program, a->program), index_text(frame, a->frame),
            index_text(message, a->message), pen_action_text(name, a->kind, a->stage, a->microbatch), a->overlaps ? "|" : "");
  }
  fputs("};\n", out);
}

static void write_programs(FILE *out, const char *prefix, const struct pen_rank_program *rank) {
  fprintf(out, "static const struct pen_program %s_programs[] = {\n", prefix);
  for (uint32_t i = 0; i < rank->program_count; i++) {
    const struct pen_program *p = &rank->programs[i];
    fprintf(out, "  [%" PRIu32 "] = {%u, %s, %" PRIu32 ", %" PRIu32 ", %" PRIu32 "},%s\n", i, p->stage, action_kinds[p->kind],
            p->first_op, p->op_count, p->again_count, p->again_count ? " /* begins with F again */" : "");
  }
  fputs("};\n", out);
}

static void write_tensors(FILE *out, const char *prefix, const struct pen_rank_program *rank) {
  fprintf(out, "static const struct pen_tensor %s_tensors[] = {\n", prefix);
  for (uint32_t i = 0; i < rank->tensor_count; i++) {
    const struct pen_tensor *t = &rank->tensors[i];
    fprintf(out, "  [%" PRIu32 "] = {\"%s\", %s, %s, %" PRIu64 ", %" PRIu64 "},\n", i, t->name, dtypes[t->dtype], bases[t->base],
            t->offset, t->bytes);
  }
  fputs("};\n", out);
}

/* One op, its operands named in the comment. */
static void write_op(FILE *out, uint32_t index, const struct pen_op *op) {
  const struct pen_signature *signature = pen_signature_of(op->kind);
  char text[16];
  fprintf(out, "  [%" PRIu32 "] = {PEN_OP_%s, {", index, signature->kind);
  for (size_t k = 0; k < PEN_OPERANDS_MAX; k++) fprintf(out, "%s%s", k ? ", " : "", index_text(text, op->operand[k]));
  fprintf(out, "}, %s, {", index_text(text, op->workspace));
  for (size_t k = 0; k < PEN_DIMS_MAX; k++) fprintf(out, "%s%" PRId64, k ? ", " : "", op->dim[k]);
  fputs("}, {", out);
  for (size_t k = 0; k < PEN_REALS_MAX; k++) fprintf(out, "%s%.17g", k ? ", " : "", op->real[k]);
  fputs("}}, /*", out);
  for (uint32_t k = 0; k < signature->operand_count; k++)
    fprintf(out, "%s %s", k == signature->input_count ? " ->" : "", signature->operand[k].name);
  fputs(" */\n", out);
}

static void write_ops(FILE *out, const char *prefix, const struct pen_rank_program *rank) {
  fprintf(out, "static const struct pen_op %s_ops[] = {\n", prefix);
  for (uint32_t i = 0; i < rank->op_count; i++) write_op(out, i, &rank->ops[i]);
  fputs("};\n", out);
}

static void write_frames(FILE *out, const char *prefix, const struct pen_rank_program *rank) {
  fprintf(out, "static const struct pen_frame %s_frames[] = {\n", prefix);
  for (uint32_t i = 0; i < rank->frame_count; i++) {
    fprintf(out, "  [%" PRIu32 "] = {{", i);
    for (size_t b = 0; b < PEN_BASES; b++) fprintf(out, "%s%" PRIu64, b ? ", " : "", rank->frames[i].base[b]);
    fputs("}},\n", out);
  }
  fputs("};\n", out);
}

static void write_messages(FILE *out, const struct pen_profile *profile) {
  fprintf(out, "static const struct pen_message %s_messages[] = {\n", profile->name);
  for (uint32_t i = 0; i < profile->message_count; i++) {
    const struct pen_message *m = &profile->messages[i];
    char name[32], credit[16];
    fprintf(out, "  [%" PRIu32 "] = {%s, %u, %" PRIu32 ", %" PRIu32 ", %" PRIu32 ", %s, %" PRIu64 ", %" PRIu64 ", %" PRIu64
            "}, /* %s */\n", i, action_kinds[m->kind], m->stage, m->microbatch, m->channel, m->sequence,
            index_text(credit, m->credit), m->source_offset, m->target_offset, m->bytes,
            pen_action_text(name, m->kind, m->stage, m->microbatch));
  }
  if (!profile->message_count) fputs("  [0] = {0}, /* none */\n", out);
  fprintf(out, "};\nstatic const struct pen_channel %s_channels[] = {\n", profile->name);
  for (uint32_t i = 0; i < profile->channel_count; i++) {
    const struct pen_channel *c = &profile->channels[i];
    fprintf(out, "  [%" PRIu32 "] = {%" PRIu32 ", %" PRIu32 ", %" PRIu32 ", %" PRIu32 "},\n", i, c->from_rank, c->to_rank,
            c->message_count, c->credit_count);
  }
  if (!profile->channel_count) fputs("  [0] = {0}, /* none */\n", out);
  fputs("};\n", out);
}

static void write_stages(FILE *out, const struct pen_plan *plan, const struct pen_profile *profile) {
  fprintf(out, "static const struct pen_stage %s_stages[] = {\n", profile->name);
  for (uint32_t i = 0; i < plan->stage_count; i++) {
    const struct pen_stage *s = &profile->stages[i];
    char a[16], b[16], c[16], d[16];
    fprintf(out, "  [%" PRIu32 "] = {%" PRIu32 ", %" PRIu32 ", %" PRIu32 ", %s, %s, %s, %s, %s, \"%s\"},\n", i, s->rank,
            s->first_layer, s->past_last_layer, index_text(a, s->input), index_text(b, s->output), index_text(c, s->output_gradient),
            index_text(d, s->input_gradient), s->recomputes ? "true" : "false", s->first_block);
  }
  fputs("};\n", out);
}

static void write_profile(FILE *out, const struct pen_plan *plan, const struct pen_profile *profile) {
  fprintf(out, "\n/* ======== profile %s ======== */\n\n", profile->name);
  write_stages(out, plan, profile);
  write_messages(out, profile);
  for (uint32_t r = 0; r < plan->rank_count; r++) {
    const char *prefix = pen_text("%s_rank%u", profile->name, r);
    fprintf(out, "\n/* -- rank %" PRIu32 " -- */\n", r);
    write_actions(out, prefix, &profile->ranks[r]);
    write_programs(out, prefix, &profile->ranks[r]);
    write_ops(out, prefix, &profile->ranks[r]);
    write_tensors(out, prefix, &profile->ranks[r]);
    write_frames(out, prefix, &profile->ranks[r]);
  }
  fprintf(out, "\nstatic const struct pen_rank_program %s_ranks[] = {\n", profile->name);
  for (uint32_t r = 0; r < plan->rank_count; r++) {
    const struct pen_rank_program *rank = &profile->ranks[r];
    const char *p = pen_text("%s_rank%u", profile->name, r);
    fprintf(out, "  [%" PRIu32 "] = {%s_actions, %s_programs, %s_ops, %s_tensors, %s_frames, %" PRIu32 ", %" PRIu32 ", %" PRIu32
            ", %" PRIu32 ", %" PRIu32 ", %" PRIu32 ", %" PRIu32 "},\n", r, p, p, p, p, p, rank->action_count,
            rank->program_count, rank->op_count, rank->tensor_count, rank->frame_count, rank->start_first_op, rank->start_op_count);
  }
  fputs("};\n", out);
}

static void write_weights(FILE *out, const struct pen_plan *plan) {
  fputs("/* ======== weights, in model order ======== */\n\nstatic const struct pen_weight weights[] = {\n", out);
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    const struct pen_weight *w = &plan->weights[i];
    static const char *const initial[] = {"PEN_INITIAL_NORMAL", "PEN_INITIAL_ONES", "PEN_INITIAL_ZEROS"};
    char a[24], b[24], c[24], d[24], e[24];
    fprintf(out, "  [%" PRIu32 "] = {\"%s\", %" PRIu32 ", %" PRIu32 ", %" PRIu32 ", {%" PRIu64 ", %" PRIu64 "}, %" PRIu64
            ", %s, %.17g, %s, %s,\n    %" PRIu64 ", %s, %s, %s, %" PRIu64 ", %s, %s},\n", i, w->name, w->stage, w->rank,
            w->dim_count, w->dim[0], w->dim[1], w->count, initial[w->initial], w->deviation, w->frozen ? "true" : "false",
            w->decays ? "true" : "false", w->value_offset, offset_text(a, w->gradient_offset), offset_text(b, w->exp_avg_offset),
            offset_text(c, w->exp_avg_sq_offset), w->value_file, offset_text(d, w->exp_avg_file), offset_text(e, w->exp_avg_sq_file));
  }
  fputs("};\n", out);
}

static void write_memory(FILE *out, const struct pen_plan *plan) {
  fputs("\nstatic const struct pen_rank_memory memory[] = {\n", out);
  for (uint32_t r = 0; r < plan->rank_count; r++) {
    const struct pen_rank_memory *m = &plan->memory[r];
    fprintf(out, "  [%" PRIu32 "] = {%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
            ", %" PRIu64 ", %" PRIu32 "},\n", r, m->arena_bytes, m->window_bytes, m->persistent_end, m->weight_bytes, m->gradient_bytes,
            m->moment_bytes, m->constant_bytes, m->activation_bytes, m->live_bytes, m->receive_slots);
  }
  fputs("};\n", out);
}

/* The tables: everything but the plan itself. */
static char *tables_text(const struct pen_plan *plan) {
  char *text = NULL;
  size_t length = 0;
  FILE *out = open_memstream(&text, &length);
  if (!out) pen_stop(PEN_EXIT_TOPOLOGY, "penstock-gen: out of memory");
  write_weights(out, plan);
  write_memory(out, plan);
  for (uint32_t i = 0; i < plan->profile_count; i++) write_profile(out, plan, &plan->profiles[i]);
  fputs("\n/* ======== files ======== */\n\nstatic const char model_header[] =\n    ", out);
  write_string(out, plan->model_header);
  fputs(";\nstatic const char optimizer_header[] =\n    ", out);
  write_string(out, plan->optimizer_header);
  fputs(";\n", out);
  if (fclose(out)) pen_stop(PEN_EXIT_TOPOLOGY, "penstock-gen: out of memory");
  return text;
}

void pen_plan_digest(struct pen_plan *plan) {
  char *text = tables_text(plan);
  struct sha256_ctx hash;
  sha256_init(&hash);
  sha256_update(&hash, strlen(plan->settings), (const uint8_t *)plan->settings);
  sha256_update(&hash, strlen(plan->version) + 1, (const uint8_t *)plan->version);
  sha256_update(&hash, strlen(text), (const uint8_t *)text);
  sha256_digest(&hash, PEN_DIGEST_BYTES, plan->digest);
  free(text);
}

static void write_bytes(FILE *out, const char *field, const uint8_t *bytes) {
  fprintf(out, "  .%s = {", field);
  for (size_t i = 0; i < PEN_DIGEST_BYTES; i++) fprintf(out, "%s0x%02x", i ? "," : "", bytes[i]);
  fputs("},\n", out);
}

static void write_optimizer(FILE *out, const struct pen_optimizer *o) {
  static const char *const decay[] = {"PEN_DECAY_CONSTANT", "PEN_DECAY_LINEAR", "PEN_DECAY_COSINE"};
  fprintf(out, "  .optimizer = {.learning_rate = %.17g, .minimum_ratio = %.17g, .beta1 = %.17g, .beta2 = %.17g,\n"
               "                .epsilon = %.17g, .weight_decay = %.17g, .clip_norm = %.17g,\n"
               "                .warmup_steps = %" PRIu64 ", .steps = %" PRIu64 ", .decay = %s},\n",
          o->learning_rate, o->minimum_ratio, o->beta1, o->beta2, o->epsilon, o->weight_decay, o->clip_norm, o->warmup_steps,
          o->steps, decay[o->decay]);
}

static void write_plan(FILE *out, const struct pen_plan *plan) {
  fputs("\n/* ======== the plan ======== */\n\nstatic const struct pen_profile profiles[] = {\n", out);
  for (uint32_t i = 0; i < plan->profile_count; i++) {
    const struct pen_profile *p = &plan->profiles[i];
    fprintf(out, "  {\"%s\", %s, %s_stages, %s_messages, %s_channels, %s_ranks, %" PRIu32 ", %" PRIu32 "},\n", p->name,
            p->kind == PEN_TRAIN ? "PEN_TRAIN" : "PEN_EVAL", p->name, p->name, p->name, p->name, p->message_count,
            p->channel_count);
  }
  fputs("};\n\nconst struct pen_plan pen_plan = {\n", out);
  fprintf(out, "  .name = \"%s\", .schedule = \"%s\", .family = \"%s\", .version = \"%s\",\n", plan->name, plan->schedule,
          plan->family, plan->version);
  fprintf(out, "  .device = \"%s\", .transport = \"%s\",\n", plan->device, plan->transport);
  write_bytes(out, "digest", plan->digest);
  write_bytes(out, "model_digest", plan->model_digest);
  fprintf(out, "  .rank_count = %" PRIu32 ", .stages_per_rank = %" PRIu32 ", .stage_count = %" PRIu32
          ", .microbatch_count = %" PRIu32 ",\n  .microbatch = %" PRIu32 ", .sequence = %" PRIu32 ", .vocab = %" PRIu32
          ", .layers = %" PRIu32 ", .threads_per_rank = %" PRIu32 ",\n  .needs_tokens = %s, .loss_is_mean = %s, .loss_offset = %"
          PRIu64 ",\n", plan->rank_count, plan->stages_per_rank, plan->stage_count, plan->microbatch_count, plan->microbatch,
          plan->sequence, plan->vocab, plan->layers, plan->threads_per_rank, plan->needs_tokens ? "true" : "false",
          plan->loss_is_mean ? "true" : "false", plan->loss_offset);
  write_optimizer(out, &plan->optimizer);
  fprintf(out, "  .weights = weights, .weight_count = %" PRIu32 ", .memory = memory,\n  .profiles = profiles, .profile_count = %"
          PRIu32 ",\n  .model_header = model_header, .optimizer_header = optimizer_header,\n  .model_file_bytes = %" PRIu64
          ", .optimizer_file_bytes = %" PRIu64 ",\n  .config_json =\n    ", plan->weight_count, plan->profile_count,
          plan->model_file_bytes, plan->optimizer_file_bytes);
  write_string(out, plan->config_json);
  fputs(",\n  .settings =\n    ", out);
  write_string(out, plan->settings);
  fputs(",\n};\n\n", out);
}

static void write_assertions(FILE *out, const struct pen_plan *plan) {
  fprintf(out, "_Static_assert(sizeof weights / sizeof *weights == %" PRIu32 ", \"weights\");\n", plan->weight_count);
  fprintf(out, "_Static_assert(sizeof memory / sizeof *memory == %" PRIu32 ", \"one arena a rank\");\n", plan->rank_count);
  fprintf(out, "_Static_assert(PEN_BASES == %d && PEN_OPERANDS_MAX == %d, \"the runtime that this plan was made for\");\n",
          PEN_BASES, PEN_OPERANDS_MAX);
  fprintf(out, "_Static_assert(PEN_OP_COUNT == %d && PEN_ACTION_KINDS == %d, \"the same .def lists\");\n", PEN_OP_COUNT,
          PEN_ACTION_KINDS);
  for (uint32_t i = 0; i < plan->profile_count; i++)
    for (uint32_t r = 0; r < plan->rank_count; r++) {
      const char *p = pen_text("%s_rank%u_actions", plan->profiles[i].name, r);
      fprintf(out, "_Static_assert(sizeof %s / sizeof *%s == %" PRIu32 ", \"rows\");\n", p, p,
              plan->profiles[i].ranks[r].action_count);
    }
}

void pen_emit_c(FILE *out, const struct pen_plan *plan, const struct pen_emit_header *header) {
  fprintf(out, "/* %s: a plan. Generated; change the topology, not this file.\n *\n *   %s\n *   input SHA-256 ", plan->name,
          header->command);
  for (size_t i = 0; i < PEN_DIGEST_BYTES; i++) fprintf(out, "%02x", header->source_digest[i]);
  fprintf(out, "\n *\n * %" PRIu32 " ranks x %" PRIu32 " stages, %" PRIu32 " microbatches, schedule %s\n", plan->rank_count,
          plan->stages_per_rank, plan->microbatch_count, plan->schedule);
  fprintf(out, " * predicted (%s): makespan %.6g, span %.6g, bubble %.4f, gap to the lower bound %.4f\n", header->cost_unit,
          header->timing->makespan, header->timing->span, header->timing->bubble, header->timing->gap);
  for (uint32_t r = 0; r < plan->rank_count; r++)
    fprintf(out, " * rank %" PRIu32 ": %" PRIu64 " bytes placed, %" PRIu64 " live at the peak\n", r, plan->memory[r].arena_bytes,
            plan->memory[r].live_bytes);
  fputs(" */\n#include \"runtime/plan.h\"\n\n", out);
  char *text = tables_text(plan);
  fputs(text, out);
  free(text);
  write_plan(out, plan);
  write_assertions(out, plan);
}
