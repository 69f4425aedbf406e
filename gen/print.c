/* print.c: --print=memory: a map of every rank's arena. */
#include <inttypes.h>
#include <string.h>

#include "gen/actions.h"
#include "gen/gen.h"
#include "gen/print.h"

static void print_part(FILE *out, const char *name, uint64_t bytes) {
  fprintf(out, "  %-12s %14" PRIu64 "  %10.2f MiB\n", name, bytes, (double)bytes / 1048576.0);
}

/* Bytes of each base's block for a stage: the end of its last tensor. */
static void block_bytes(const struct pen_rank_program *rank, const struct pen_program *program, uint64_t bytes[PEN_BASES]) {
  for (uint32_t i = program->first_op; i < program->first_op + program->op_count; i++)
    for (size_t k = 0; k <= PEN_OPERANDS_MAX; k++) {
      uint32_t index = k < PEN_OPERANDS_MAX ? rank->ops[i].operand[k] : rank->ops[i].workspace;
      if (index == PEN_NONE) continue;
      const struct pen_tensor *t = &rank->tensors[index];
      if (t->offset + t->bytes > bytes[t->base]) bytes[t->base] = t->offset + t->bytes;
    }
}

/* One line a compute row: which ranges of the arena its program touches. */
static void print_rows(FILE *out, const struct pen_rank_program *rank) {
  static const char *const names[] = {
#define PEN_BASE(name, text, meaning) text,
#include "runtime/bases.def"
  };
  for (uint32_t i = 0; i < rank->action_count; i++) {
    const struct pen_action *a = &rank->actions[i];
    char text[32];
    if (a->kind > PEN_W) continue;
    fprintf(out, "  %6" PRIu32 " %-10s", i, pen_action_text(text, a->kind, a->stage, a->microbatch));
    uint64_t bytes[PEN_BASES] = {0};
    block_bytes(rank, &rank->programs[a->program], bytes);
    for (size_t b = PEN_BASE_SCRATCH; b < PEN_BASES; b++)
      if (bytes[b])
        fprintf(out, " %s=%" PRIu64 "+%" PRIu64, names[b], rank->frames[a->frame].base[b], bytes[b]);
    fputc('\n', out);
  }
}

void pen_print_memory(FILE *out, const struct pen_plan *plan) {
  for (uint32_t r = 0; r < plan->rank_count; r++) {
    const struct pen_rank_memory *m = &plan->memory[r];
    fprintf(out, "rank %" PRIu32 ": %" PRIu64 " bytes placed, %" PRIu64 " live at the peak, ratio %.4f, %" PRIu32
            " receive slots\n", r, m->arena_bytes, m->live_bytes, (double)m->arena_bytes / (double)m->live_bytes, m->receive_slots);
    print_part(out, "window", m->window_bytes);
    print_part(out, "weights", m->weight_bytes);
    print_part(out, "gradients", m->gradient_bytes);
    print_part(out, "moments", m->moment_bytes);
    print_part(out, "constants", m->constant_bytes);
    print_part(out, "activations", m->activation_bytes);
    print_rows(out, &plan->profiles[0].ranks[r]);
  }
}
