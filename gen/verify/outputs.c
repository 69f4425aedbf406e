/* outputs.c: the values that a step keeps to its end (plan.def, `outputs`).
 *
 * They have memory of their own, of each microbatch, in the persistent part of the arena, which
 * overlaps nothing else (persistent.c). A frame has the place of its microbatch. So it remains to
 * check that each row is the one tensor of base RESULT at its place, that F of the last stage
 * writes it and nothing else does, and that rows do not overlap: then what F has made of a
 * microbatch is there when the step ends. */
#include <string.h>

#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"
#include "runtime/plan/plan.h"

#define PROBLEM(b, ...) pen_problem_note((b)->checked->problem, (b)->rank, PEN_NONE, __VA_ARGS__)

static bool has_losses(const struct pen_rank_context *b) {
  return (b->profile->kind == PEN_TRAIN || b->profile->kind == PEN_EVAL) &&
         b->checked->rank_of[b->plan->stage_count - 1] == b->rank;
}

/* The place of a row, of microbatch 0, is after that of the row before. */
static bool check_place(const struct pen_rank_context *b, uint32_t n) {
  const struct pen_plan *plan = b->plan;
  const struct pen_output *row = &plan->outputs[n];
  const uint64_t first = n ? plan->outputs[n - 1].offset + plan->outputs[n - 1].bytes
                           : plan->output_offset,
                 rows = (uint64_t)plan->microbatch * row->rows;
  if (row->offset < first || row->bytes > plan->output_stride ||
      row->offset - plan->output_offset > plan->output_stride - row->bytes)
    return PROBLEM(b, "kept: %s, at %llu, overlaps another output, or another microbatch's",
                   row->name, (unsigned long long)row->offset);
  return ((row->rows == plan->sequence || row->rows == 1) &&
          row->bytes == rows * row->width * pen_dtype_bytes(row->dtype)) ||
         PROBLEM(b, "kept: %s has %llu bytes, but %llu rows of %llu elements", row->name,
                 (unsigned long long)row->bytes, (unsigned long long)rows,
                 (unsigned long long)row->width);
}

/* What follows the last point of a name. */
static const char *last_part(const char *name) {
  const char *point = strrchr(name, '.');
  return point ? point + 1 : name;
}

/* The tensor of a row. */
static bool find_tensor(const struct pen_rank_context *b, const struct pen_output *row,
                        uint32_t *tensor) {
  for (*tensor = 0; *tensor < b->tables->tensor_count; ++*tensor) {
    const struct pen_tensor *t = &b->tables->tensors[*tensor];
    if (t->base == PEN_BASE_RESULT && t->offset == row->offset - b->plan->output_offset &&
        t->bytes == row->bytes && t->dtype == row->dtype &&
        strcmp(last_part(t->name), last_part(row->name)) == 0)
      return true;
  }
  return PROBLEM(b, "kept: %s has no tensor in %s", row->name, b->profile->name);
}

/* How many ops of a program write a tensor. */
static uint32_t writers(const struct pen_rank_program *tables, const struct pen_program *program,
                        uint32_t tensor) {
  uint32_t count = 0;
  for (uint32_t i = program->first_op; i < program->first_op + program->op_count; i++) {
    const struct pen_op *op = &tables->ops[i];
    const struct pen_signature *signature = pen_signature_of(op->kind);
    for (int k = signature->input_count; k < signature->operand_count; k++)
      count += op->operand[k] == tensor;
    count += op->workspace == tensor;
  }
  return count;
}

static bool check_writers(const struct pen_rank_context *b, const struct pen_output *row,
                          uint32_t tensor) {
  const struct pen_rank_program *tables = b->tables;
  for (uint32_t p = 0; p < tables->program_count; p++) {
    const struct pen_program *program = &tables->programs[p];
    const bool makes = program->kind == PEN_F && program->stage + 1u == b->plan->stage_count;
    if (writers(tables, program, tensor) != makes)
      return PROBLEM(b, "kept: %s is written once, by F of the last stage, but not in %s",
                     row->name, b->profile->name);
  }
  return true;
}

bool pen_check_outputs_frame(const struct pen_rank_context *b, uint32_t index) {
  const struct pen_plan *plan = b->plan;
  const struct pen_action *action = &b->tables->actions[index];
  const uint64_t found = b->tables->frames[action->frame].base[PEN_BASE_RESULT],
                 wanted =
                     has_losses(b) && plan->output_count && action->stage + 1u == plan->stage_count
                         ? plan->output_offset + action->microbatch * plan->output_stride
                         : 0;
  return found == wanted ||
         pen_problem_note(b->checked->problem, b->rank, index,
                          "kept: the outputs of its microbatch are at %llu, not at %llu",
                          (unsigned long long)found, (unsigned long long)wanted);
}

bool pen_check_outputs(const struct pen_rank_context *b) {
  const struct pen_plan *plan = b->plan;
  const bool has = has_losses(b) && plan->output_count > 0;
  uint32_t found = 0, tensor = 0;
  for (uint32_t t = 0; t < b->tables->tensor_count; t++)
    found += b->tables->tensors[t].base == PEN_BASE_RESULT;
  if (found != (has ? plan->output_count : 0))
    return PROBLEM(b, "kept: %s keeps %u tensors of rank %u, but the plan has %u outputs",
                   b->profile->name, found, b->rank, plan->output_count);
  if (has && b->memory->output_bytes != plan->microbatch_count * plan->output_stride)
    return PROBLEM(b, "kept: the outputs have %llu bytes, not those of %u microbatches",
                   (unsigned long long)b->memory->output_bytes, plan->microbatch_count);
  if (has && b->profile->microbatch_count > plan->microbatch_count)
    return PROBLEM(b, "kept: %s has more microbatches than outputs", b->profile->name);
  for (uint32_t n = 0; n < plan->output_count && has; n++)
    if (!check_place(b, n) || !find_tensor(b, &plan->outputs[n], &tensor) ||
        !check_writers(b, &plan->outputs[n], tensor))
      return false;
  return true;
}
