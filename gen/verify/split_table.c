/* split_table.c: are the splits and stacks of weights in the plan's table as its contract says
 * (plan.h, "Splits", "Stacks")? The rule is "counted". */
#include "gen/verify/split_table.h"

#include <string.h>

uint32_t pen_split_count(const struct pen_plan *plan) {
  uint32_t most = 1;
  for (uint32_t w = 0; w < plan->weight_count; w++)
    if (plan->weights[w].split_count > most) most = plan->weights[w].split_count;
  return most;
}

/* What is wrong with a weight as the next split of its tensor; null: nothing. `splits`: of each
 * tensor that is split. */
static const char *split_problem(const struct pen_plan *plan, uint32_t index, uint32_t splits) {
  const struct pen_weight *weight = &plan->weights[index];
  const bool first = weight->split == 0, whole = weight->split_count == 1,
             last = weight->split + 1 == weight->split_count;
  const uint64_t elements = pen_tensor_elements(weight), stride = weight->run_stride;
  if (weight->split >= weight->split_count || (!whole && weight->split_count != splits))
    return "not one of its splits";
  if (whole && strcmp(weight->name, weight->tensor) != 0) return "not named like its tensor";
  if (stride == 0 || elements % stride || weight->run_count > stride || weight->run_count == 0 ||
      weight->run_count * (elements / stride) != weight->count)
    return "not made of equal runs of the elements of its tensor";
  if (first) return weight->run_first ? "not at the start of its tensor" : NULL;
  if (index == 0 || strcmp(weight[-1].tensor, weight->tensor) != 0 ||
      weight[-1].split + 1 != weight->split || weight[-1].stage != weight->stage ||
      weight[-1].run_stride != stride || weight[-1].frozen != weight->frozen ||
      memcmp(weight[-1].tensor_dim, weight->tensor_dim, sizeof weight->tensor_dim) != 0)
    return "not after the split before it";
  if (weight->run_first != weight[-1].run_first + weight[-1].run_count)
    return "not next to the split before it";
  return last && weight->run_first + weight->run_count != stride ? "not at the end of its tensor"
                                                                 : NULL;
}

/* The same of a weight as a stack, or none; `before`: how many more tensors than weights there are
 * before it. */
static const char *stack_problem(const struct pen_weight *weight, uint64_t before) {
  if (weight->stacked_before != before) return "not where the tensors before it end";
  const bool named = strchr(weight->tensor, '*') != NULL;
  if (weight->stack == 0) return named ? "named like a stack" : NULL;
  return named && weight->split_count == 1 && weight->dim_count == 2 &&
                 weight->dim[0] == weight->stack * weight->tensor_dim[0] &&
                 weight->dim[1] == weight->tensor_dim[1]
             ? NULL
             : "not a stack of the tensors that it names";
}

bool pen_check_split_table(const struct pen_plan *plan, struct pen_problem *problem) {
  const uint32_t splits = pen_split_count(plan);
  uint64_t stacked = 0;
  for (uint32_t index = 0; index < plan->weight_count; index++) {
    const struct pen_weight *weight = &plan->weights[index], *next = weight + 1;
    const char *wrong = split_problem(plan, index, splits);
    const bool ends = index + 1 == plan->weight_count || next->split != weight->split + 1;
    if (!wrong && weight->split + 1 < weight->split_count && ends)
      wrong = "not followed by the split after it";
    if (!wrong) wrong = stack_problem(weight, stacked);
    stacked += pen_tensor_count(weight) - 1;
    if (wrong)
      return pen_problem_note(problem, weight->rank, PEN_NONE, "counted: %s is %s", weight->name,
                              wrong);
  }
  return stacked == plan->stacked ||
         pen_problem_note(problem, PEN_NONE, PEN_NONE,
                          "counted: the stacks have %llu tensors beyond the weights, not %u",
                          (unsigned long long)stacked, plan->stacked);
}
