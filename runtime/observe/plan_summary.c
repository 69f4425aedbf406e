/* plan_summary.c: the plan of a run in its log (see plan_summary.h). */
#include "runtime/observe/plan_summary.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/check.h"
#include "runtime/base/text_writer.h"
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
  fputs("\"bytes\":{", out);
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

char *pen_plan_summary(const struct pen_plan *plan) {
  char *text = NULL, digest[2 * PEN_DIGEST_BYTES + 1];
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  pen_check(out != NULL, "no memory for the plan in --log");
  pen_hex_text(digest, plan->digest, PEN_DIGEST_BYTES);
  fprintf(out,
          "{\"name\":\"%s\",\"digest\":\"%s\",\"schedule\":\"%s\",\"ranks\":%" PRIu32
          ",\"stages_per_rank\":%" PRIu32 ",\"microbatches\":%" PRIu32 ",\"replicas\":%" PRIu32
          ",\"unit\":\"%s\",\"makespan\":%.9g,",
          plan->name, digest, plan->schedule, plan->rank_count, plan->stages_per_rank,
          plan->microbatch_count, plan->replica_count, plan->forecast.unit,
          plan->forecast.makespan);
  write_bytes(out, plan);
  fputs("}", out);
  const bool complete = fclose(out) == 0;
  pen_check(complete && text != NULL, "no memory for the plan in --log");
  return text;
}
