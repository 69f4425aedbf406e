/* muon.c: each matrix that Muon updates is whole in the memory of the process that updates it, all
 * of its tensor, or all of its splits, and there is a workspace for the largest. That nothing else
 * is in it is checked with what persists (persistent.c). */
#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"

/* Not if it is frozen, or if nothing trains. */
static bool is_updated(const struct pen_weight *weight) {
  return weight->optimizer == PEN_OPTIMIZER_MUON && weight->gradient_offset != UINT64_MAX;
}

/* Of each part a split has the same rows, all their columns, or the same columns of all rows: its
 * runs follow from them. (split_table.c checks that runs of splits are all of a tensor.) */
static bool is_piece(const struct pen_weight *weight) {
  const uint64_t columns = weight->tensor_dim[1], parts = weight->matrix_parts;
  if (weight->dim[1] == columns)
    return weight->run_stride == weight->tensor_dim[0] * columns &&
           weight->run_count == weight->dim[0] * columns && weight->run_first % columns == 0;
  return weight->dim[0] == weight->tensor_dim[0] && weight->run_stride == columns / parts &&
         weight->run_count == weight->dim[1] / parts;
}

/* What one step of a matrix has is alike in its splits. */
static bool is_of_matrix(const struct pen_weight *weight, const struct pen_weight *first) {
  return weight->optimizer == first->optimizer && weight->matrix_parts == first->matrix_parts &&
         weight->sole_owner == first->sole_owner && weight->rate == first->rate &&
         weight->weight_decay == first->weight_decay;
}

/* All splits of a matrix, from the first on. */
static bool check_splits(const struct pen_rank_context *b, const struct pen_weight *first) {
  if (first->split_count == 1 || first->split > 0) return true;
  for (const struct pen_weight *at = first; at < first + first->split_count; at++)
    if (!is_piece(at) || (at > first && !is_of_matrix(at, first)))
      return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                              "%s is not a piece of the matrix %s", at->name, at->tensor);
  return true;
}

/* The parts of a matrix have equally many columns; only Muon knows of parts. */
static bool check_matrix(const struct pen_rank_context *b, const struct pen_weight *weight) {
  const bool is_muon = weight->optimizer == PEN_OPTIMIZER_MUON, updated = is_updated(weight);
  if (!is_muon && weight->matrix_parts != 1)
    return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                            "%s has %u parts, but muon does not update it", weight->name,
                            weight->matrix_parts);
  const uint32_t members = pen_group_size(b->plan, PEN_SHARD);
  if (weight->sole_owner > (updated && members > 1 ? members : 0))
    return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                            "%s has the sole owner %u of %u", weight->name, weight->sole_owner,
                            members);
  if (!updated) return true;
  if (weight->dim_count != 2 || (members > 1 && !weight->sole_owner))
    return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                            "muon updates %s, which is not a whole matrix", weight->name);
  if (weight->matrix_parts == 0 || weight->dim[1] % weight->matrix_parts ||
      weight->tensor_dim[1] % weight->matrix_parts)
    return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                            "%s has %llu columns, which are not %u parts", weight->name,
                            (unsigned long long)weight->dim[1], weight->matrix_parts);
  return check_splits(b, weight);
}

/* All splits, if tensor ranks share them; a part of the matrix, whole; and the workspace of
 * NEWTON_SCHULZ. */
static uint64_t needed_bytes(const struct pen_plan *plan, const struct pen_weight *weight) {
  const int64_t rows = (int64_t)weight->tensor_dim[0],
                columns = (int64_t)(weight->tensor_dim[1] / weight->matrix_parts);
  int64_t dim[PEN_DIMS_MAX] = {rows, columns, plan->optimizer.ns_steps};
  if (rows > columns) dim[0] = columns, dim[1] = rows;
  const uint64_t bytes = pen_signature_workspace_bytes(
      pen_signature_of(PEN_OP_NEWTON_SCHULZ), plan->device, plan->threads_per_rank, PEN_F32, dim);
  const uint64_t splits = weight->split_count > 1 && pen_group_size(plan, PEN_TENSOR) > 1
                              ? weight->split_count * pen_aligned(weight->count * sizeof(float))
                              : 0;
  return splits + pen_aligned((uint64_t)(rows * columns) * 4) + bytes;
}

bool pen_check_muon(const struct pen_rank_context *b) {
  uint64_t needed = 0;
  for (uint32_t i = 0; i < b->own_weight_count; i++) {
    const struct pen_weight *weight = &b->plan->weights[b->own_weight[i]];
    if (!check_matrix(b, weight)) return false;
    if (!is_updated(weight)) continue;
    const uint64_t bytes = needed_bytes(b->plan, weight);
    if (bytes > needed) needed = bytes;
  }
  if (b->memory->muon_bytes != pen_aligned(needed) || (needed == 0 && b->memory->muon_offset != 0))
    return pen_problem_note(
        b->checked->problem, b->rank, PEN_NONE, "the workspace of UPDATE has %llu bytes, not %llu",
        (unsigned long long)b->memory->muon_bytes, (unsigned long long)pen_aligned(needed));
  return true;
}
