/* tensor_ranks.c: do the tensor ranks of a rank have what their ops need?
 *
 * All tensor ranks run the ops of one table. A tensor rank after the first has other splits, of
 * which the last may have fewer rows of the vocabulary, and so other dims in some ops (plan.h,
 * tensor_rank_dim). What the first tensor rank's programs were proved to read and write at which
 * bytes holds for the others if their tensors are at most as large; that they use them alike is
 * checked here: all ops that name a tensor have the same bytes of it. What they compute is checked
 * by gradients.c, with the context that is made here, for every tensor rank whose dims differ; the
 * others run the same ops on other splits. */
#include "gen/verify/tensor_ranks.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"
#include "gen/verify/internal.h"

/* ---- weights ---- */

/* What is wrong with the place of a weight of a later tensor rank; null: nothing. */
static const char *place_problem(const struct pen_weight *first, const struct pen_weight *own) {
  if (own->rank != first->rank || own->frozen != first->frozen ||
      own->value_sharded != first->value_sharded || own->bf16_sharded != first->bf16_sharded ||
      own->gradient_sharded != first->gradient_sharded)
    return "is of another kind";
  if (own->count > first->count) return "is larger";
  if (own->value_offset != first->value_offset || own->bf16_offset != first->bf16_offset ||
      own->gradient_offset != first->gradient_offset ||
      own->exp_avg_offset != first->exp_avg_offset ||
      own->exp_avg_sq_offset != first->exp_avg_sq_offset)
    return "is in another place";
  return NULL;
}

static bool check_places(const struct pen_plan *plan, struct pen_problem *problem) {
  for (uint32_t index = 0; index < plan->weight_count; index++) {
    const struct pen_weight *own = &plan->weights[index];
    const uint32_t splits = own->split_count, tensor_rank = pen_first_tensor_rank(plan, own);
    if (splits > 1 && splits % pen_group_size(plan, PEN_TENSOR))
      return pen_problem_note(problem, PEN_NONE, PEN_NONE,
                              "%s is one of %u splits, which %u tensor ranks cannot share",
                              own->name, splits, pen_group_size(plan, PEN_TENSOR));
    if (tensor_rank == 0) continue;
    const struct pen_weight *first = &plan->weights[pen_first_tensor_rank_weight(plan, index)];
    const char *wrong = place_problem(first, own);
    if (wrong)
      return pen_problem_note(problem, own->rank, PEN_NONE, "%s %s than %s of tensor rank 0",
                              own->name, wrong, first->name);
  }
  return true;
}

bool pen_check_tensor_ranks(const struct pen_plan *plan, struct pen_problem *problem) {
  const uint32_t ranks = pen_group_size(plan, PEN_TENSOR);
  if (ranks == 0 || ranks & (ranks - 1))
    return pen_problem_note(problem, PEN_NONE, PEN_NONE, "%u tensor ranks: not a power of two",
                            ranks);
  for (uint32_t index = 0; index < plan->weight_count; index++)
    if (plan->weights[index].split_count == 0 ||
        plan->weights[index].split >= plan->weights[index].split_count ||
        plan->weights[index].split > index)
      return pen_problem_note(problem, PEN_NONE, PEN_NONE, "counted: %s is not one of its splits",
                              plan->weights[index].name);
  for (uint32_t n = 0; n < plan->tensor_rank_dim_count; n++) {
    const struct pen_tensor_rank_dim *dim = &plan->tensor_rank_dims[n];
    if (dim->tensor_rank == 0 || dim->tensor_rank >= ranks || dim->rank >= plan->rank_count ||
        dim->profile >= plan->profile_count)
      return pen_problem_note(problem, PEN_NONE, PEN_NONE,
                              "dims of tensor rank %u of rank %u in profile %u: there is none",
                              dim->tensor_rank, dim->rank, dim->profile);
  }
  return check_places(plan, problem);
}

/* ---- ops ---- */

/* Ops by vocabulary, or of the tensor rank's own tokens, begin elsewhere for each tensor rank. */
static bool has_first(const struct pen_rank_context *b) {
  for (uint32_t index = 0; index < b->tables->op_count; index++)
    if (pen_signature_dim(pen_signature_of(b->tables->ops[index].kind), "first") >= 0) return true;
  return false;
}

bool pen_tensor_rank_differs(const struct pen_rank_context *first, uint32_t tensor_rank) {
  const uint32_t profile = (uint32_t)(first->profile - first->plan->profiles);
  for (uint32_t n = 0; n < first->plan->tensor_rank_dim_count; n++) {
    const struct pen_tensor_rank_dim *dim = &first->plan->tensor_rank_dims[n];
    if (dim->profile == profile && dim->rank == first->rank && dim->tensor_rank == tensor_rank)
      return true;
  }
  return has_first(first);
}

/* The dims that may be another for a tensor rank: those by vocabulary. */
static bool may_differ(const char *name) {
  static const char *const names[] = {"vocab", "first", "out", "count", "kept"};
  for (size_t n = 0; n < sizeof names / sizeof *names; n++)
    if (!strcmp(name, names[n])) return true;
  return false;
}

/* Puts a dim of the tensor rank into its ops. */
static bool set_dim(const struct pen_rank_context *own, struct pen_op *ops,
                    const struct pen_tensor_rank_dim *dim) {
  struct pen_problem *problem = own->checked->problem;
  if (dim->op >= own->tables->op_count)
    return pen_problem_note(problem, own->rank, PEN_NONE, "tensor rank %u has dims of op %u of %u",
                            dim->tensor_rank, dim->op, own->tables->op_count);
  const struct pen_signature *signature = pen_signature_of(ops[dim->op].kind);
  if (dim->dim >= signature->dim_count || !may_differ(signature->dim[dim->dim]) || dim->value < 0 ||
      pen_puts_values(ops[dim->op].kind))
    return pen_problem_note(problem, own->rank, PEN_NONE,
                            "op %u (%s): dim %u cannot be %lld for tensor rank %u", dim->op,
                            signature->kind, dim->dim, (long long)dim->value, dim->tensor_rank);
  ops[dim->op].dim[dim->dim] = dim->value;
  return true;
}

/* Bytes that a tensor rank keeps of a weight, its shard or its gradient; UINT64_MAX: it is none. */
static uint64_t weight_bytes(const struct pen_rank_context *own, uint32_t tensor) {
  const struct pen_plan *plan = own->plan;
  uint32_t number = own->weight[tensor];
  const uint8_t dtype = own->tables->tensors[tensor].dtype;
  if (number == PEN_NONE) return UINT64_MAX;
  if (number >= plan->weight_count) number = plan->ties[number - plan->weight_count].weight;
  const struct pen_weight *weight = &own->plan->weights[number];
  switch (own->use[tensor]) {
    case PEN_USE_WEIGHT: return weight->count * pen_dtype_bytes(dtype);
    case PEN_USE_SHARD: return pen_value_bytes(own->plan, number, dtype);
    case PEN_USE_GRADIENT: return pen_stored_bytes(own->plan, weight, weight->gradient_sharded);
    default: return UINT64_MAX;
  }
}

/* All ops have the same bytes of a tensor: `known` [tensor], 0: not known yet. */
static bool check_operand(const struct pen_rank_context *own, uint32_t index, int k,
                          uint64_t *known) {
  const struct pen_op *op = &own->tables->ops[index];
  const struct pen_signature *signature = pen_signature_of(op->kind);
  const uint32_t tensor = op->operand[k];
  const uint64_t bytes = pen_operand_bytes(&signature->operand[k], op->dtype, op->dim),
                 weight = weight_bytes(own, tensor);
  const struct pen_tensor *t = &own->tables->tensors[tensor];
  if (known[tensor] == 0) known[tensor] = weight == UINT64_MAX ? bytes : weight;
  return (bytes == known[tensor] && bytes <= t->bytes) ||
         pen_problem_note(
             own->checked->problem, own->rank, PEN_NONE,
             "op %u (%s): tensor rank %u has %llu bytes of %s, but %llu of %llu are used", index,
             signature->kind, own->tensor_rank, (unsigned long long)bytes, t->name,
             (unsigned long long)known[tensor], (unsigned long long)t->bytes);
}

static bool check_ops(const struct pen_rank_context *own) {
  uint64_t *known = pen_new((size_t)own->tables->tensor_count + 1, sizeof *known);
  bool fine = true;
  for (uint32_t index = 0; index < own->tables->op_count && fine; index++) {
    const struct pen_signature *signature = pen_signature_of(own->tables->ops[index].kind);
    for (int k = 0; k < signature->operand_count && fine; k++)
      if (own->tables->ops[index].operand[k] != PEN_NONE)
        fine = check_operand(own, index, k, known);
  }
  pen_free(known);
  return fine;
}

/* The weight, or the tie of a head's gradient, that a tensor is of for the tensor rank. */
static uint32_t weight_of_tensor_rank(const struct pen_plan *plan, uint32_t number,
                                      uint32_t tensor_rank) {
  if (number < plan->weight_count) return pen_local_weight(plan, number, tensor_rank);
  return number == PEN_NONE ? number : number + tensor_rank * pen_local_tie_count(plan);
}

bool pen_tensor_rank_context(const struct pen_rank_context *first, uint32_t tensor_rank,
                             struct pen_rank_context *own) {
  const struct pen_plan *plan = first->plan;
  const uint32_t profile = (uint32_t)(first->profile - plan->profiles),
                 tensors = first->tables->tensor_count;
  struct pen_rank_program *tables = pen_new(1, sizeof *tables);
  struct pen_op *ops = pen_new((size_t)first->tables->op_count + 1, sizeof *ops);
  uint32_t *own_weight = pen_new((size_t)first->own_weight_count + 1, sizeof *own_weight);
  *own = *first;
  *tables = *first->tables;
  if (tables->op_count) memcpy(ops, tables->ops, tables->op_count * sizeof *ops);
  tables->ops = ops;
  own->tables = tables;
  own->tensor_rank = tensor_rank;
  own->weight = pen_new((size_t)tensors + 1, sizeof *own->weight);
  for (uint32_t t = 0; t < tensors; t++)
    own->weight[t] = weight_of_tensor_rank(plan, first->weight[t], tensor_rank);
  for (uint32_t n = 0; n < first->own_weight_count; n++)
    own_weight[n] = pen_local_weight(plan, first->own_weight[n], tensor_rank);
  own->own_weight = own_weight;
  for (uint32_t n = 0; n < plan->tensor_rank_dim_count; n++) {
    const struct pen_tensor_rank_dim *dim = &plan->tensor_rank_dims[n];
    if (dim->profile == profile && dim->rank == first->rank && dim->tensor_rank == tensor_rank &&
        !set_dim(own, ops, dim))
      return false;
  }
  return check_ops(own);
}

void pen_tensor_rank_context_free(const struct pen_rank_context *own) {
  pen_free((void *)(uintptr_t)own->tables->ops);
  pen_free((void *)(uintptr_t)own->tables);
  pen_free((void *)(uintptr_t)own->own_weight);
  pen_free(own->weight);
}
