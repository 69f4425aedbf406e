/* audit.c: what memory.audit reserves (see audit.h).
 *
 * train --audit recomputes an action op by op, each immediately before the step itself runs it: the
 * inputs are still live then, also those in whose bytes the op, or a later one, puts its output. So
 * memory for the outputs of one op is enough. Accumulated outputs are among them: the audit adds to
 * a copy. */
#include "gen/layout/audit.h"
#include "gen/model/op_signature.h"
#include "gen/topology/topology.h"
#include "runtime/plan/audit_sum.h"

static uint64_t output_bytes(const struct pen_graph *graph, const struct pen_op *op) {
  uint64_t bytes = 0;
  for (size_t k = pen_signature_of(op->kind)->input_count; k < PEN_OPERANDS_MAX; k++)
    if (op->operand[k] != PEN_NONE) bytes += pen_aligned(graph->value[op->operand[k]].bytes);
  return bytes;
}

uint64_t pen_audit_bytes(const struct pen_partition *partition, struct pen_graph *const *graph,
                         uint32_t rank, const bool *runs) {
  uint64_t most = 0;
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    if (partition->rank_of[s] != rank || !graph[s]->training || !graph[s]->topology->memory_audit)
      continue;
    if (most < PEN_AUDIT_BYTES_LEAST) most = PEN_AUDIT_BYTES_LEAST;
    for (int p = 0; p < PEN_PROGRAMS; p++)
      for (size_t i = 0; (!runs || runs[p]) && i < graph[s]->program[p].count; i++) {
        uint64_t bytes = output_bytes(graph[s], &graph[s]->program[p].op[i]);
        if (bytes > most) most = bytes;
      }
  }
  return most;
}

uint64_t pen_value_bytes_passed(const struct pen_graph *graph, uint32_t value) {
  return pen_bytes_passed(graph->training && graph->topology->memory_audit,
                          graph->value[value].bytes);
}
