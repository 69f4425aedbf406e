/* plan_summary.c: a plan as JSON (see plan_summary.h). */
#include "runtime/observe/plan_summary.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/check.h"
#include "runtime/base/text_writer.h"
#include "runtime/comm/action_text.h"
#include "runtime/plan/memory_kinds.h"

static uint64_t kind_bytes(const struct pen_plan *plan, enum pen_memory_kind kind) {
  uint64_t sum = 0;
  for (uint32_t rank = 0; rank < plan->rank_count; rank++) {
    sum += pen_memory_kind_bytes(plan, rank, kind);
  }
  return sum;
}

static void write_bytes(FILE *out, const struct pen_plan *plan) {
  const char *before_kind = "";
  fputs(",\"bytes\":{", out);
  for (enum pen_memory_kind kind = 0; kind < PEN_MEMORY_KINDS; kind++) {
    if (kind_bytes(plan, kind) == 0) {
      continue;
    }
    fprintf(out, "%s\"%s\":[", before_kind, pen_memory_kind_name(kind));
    for (uint32_t rank = 0; rank < plan->rank_count; rank++) {
      fprintf(out, "%s%" PRIu64, rank == 0 ? "" : ",", pen_memory_kind_bytes(plan, rank, kind));
    }
    fputs("]", out);
    before_kind = ",";
  }
  fputs("}", out);
}

/* A text in memory that is written like a file. */
struct text {
  FILE *out;
  char *bytes;
  size_t count;
};

/* Begins the object: what the plan is. */
static void open_object(struct text *text, const struct pen_plan *plan) {
  char digest[2 * PEN_DIGEST_BYTES + 1];
  text->out = open_memstream(&text->bytes, &text->count);
  pen_check(text->out != NULL, "no memory for the text of the plan");
  pen_hex_text(digest, plan->digest, PEN_DIGEST_BYTES);
  fprintf(text->out,
          "{\"name\":\"%s\",\"digest\":\"%s\",\"schedule\":\"%s\",\"ranks\":%" PRIu32
          ",\"stages_per_rank\":%" PRIu32 ",\"microbatches\":%" PRIu32 ",\"replicas\":%" PRIu32
          ",\"unit\":\"%s\",\"makespan\":%.9g",
          plan->name, digest, plan->schedule, plan->rank_count, plan->stages_per_rank,
          plan->microbatch_count, pen_group_size(plan, PEN_DATA), plan->forecast.unit,
          plan->forecast.makespan);
}

static char *close_object(struct text *text) {
  fputs("}", text->out);
  const bool complete = fclose(text->out) == 0;
  pen_check(complete && text->bytes != NULL, "no memory for the text of the plan");
  return text->bytes;
}

char *pen_plan_summary(const struct pen_plan *plan) {
  struct text text = {0};
  open_object(&text, plan);
  write_bytes(text.out, plan);
  return close_object(&text);
}

static void write_times(FILE *out, const struct pen_rank_program *program, const double *times) {
  char name[64];
  uint32_t index = 0;
  for (uint32_t row = 0; row < program->action_count; row++) {
    const struct pen_action *action = &program->actions[row];
    if (action->kind <= PEN_W) {
      fprintf(out, "%s[\"%s\",%.7g,%.7g]", index == 0 ? "[" : ",",
              pen_action_name(name, sizeof name, action), times[2 * index], times[2 * index + 1]);
      index++;
    }
  }
  fputs(index == 0 ? "[]" : "]", out);
}

char *pen_planned_step(const struct pen_plan *plan, const struct pen_profile *profile) {
  struct text text = {0};
  open_object(&text, plan);
  if (profile == &plan->profiles[0] && plan->forecast.times != NULL) {
    fputs(",\"times\":[", text.out);
    for (uint32_t rank = 0; rank < plan->rank_count; rank++) {
      fputs(rank == 0 ? "\n" : ",\n", text.out);
      write_times(text.out, &profile->ranks[rank], plan->forecast.times[rank]);
    }
    fputs("]", text.out);
  }
  return close_object(&text);
}
