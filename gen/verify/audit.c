/* audit.c: the memory in which an audit recomputes an op holds the outputs of each op of the rank's
 * programs, and a run of elements of UPDATE; a plan without memory.audit has none. That nothing
 * else is there is checked with what persists (persistent.c). */
#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"

static uint64_t output_bytes(const struct pen_rank_context *b, const struct pen_op *op) {
  uint64_t bytes = 0;
  for (size_t k = pen_signature_of(op->kind)->input_count; k < PEN_OPERANDS_MAX; k++)
    if (op->operand[k] != PEN_NONE) bytes += pen_aligned(b->tables->tensors[op->operand[k]].bytes);
  return bytes;
}

bool pen_check_audit_memory(const struct pen_rank_context *b) {
  const uint64_t has = b->memory->audit_bytes;
  if (!b->plan->audits)
    return has == 0 || pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                                        "it has %llu bytes for audits, but memory.audit is false",
                                        (unsigned long long)has);
  if (has < PEN_AUDIT_BYTES_LEAST)
    return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                            "its audit memory has %llu bytes, fewer than %d",
                            (unsigned long long)has, PEN_AUDIT_BYTES_LEAST);
  for (uint32_t n = 0; n < b->tables->program_count && b->checked->profile_kind == PEN_TRAIN; n++) {
    const struct pen_program *program = &b->tables->programs[n];
    for (uint32_t i = 0; i < program->op_count; i++) {
      const uint64_t wanted = output_bytes(b, &b->tables->ops[program->first_op + i]);
      if (wanted > has)
        return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                                "op %u has %llu bytes of outputs, but the audit memory %llu",
                                program->first_op + i, (unsigned long long)wanted,
                                (unsigned long long)has);
    }
  }
  return true;
}
