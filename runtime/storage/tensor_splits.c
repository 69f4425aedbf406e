/* tensor_splits.c: copies splits of tensors (see tensor_splits.h). */
#include "runtime/storage/tensor_splits.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"

struct pen_tensor_run pen_first_run(const struct pen_weight *weight, uint64_t first,
                                    uint64_t count) {
  const uint64_t run = weight->run_count / pen_tensor_count(weight), left = run - first % run;
  return (struct pen_tensor_run){first, pen_tensor_element(weight, first),
                                 left < count ? left : count};
}

uint32_t pen_splits_of(const struct pen_plan *plan) {
  uint32_t most = 1; /* all tensors that are split have as many splits */
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    most = plan->weights[i].split_count > most ? plan->weights[i].split_count : most;
  }
  return most;
}

bool pen_has_splits(const struct pen_plan *plan) { return pen_splits_of(plan) > 1; }

uint32_t pen_first_token(const struct pen_plan *plan, uint32_t tensor_rank) {
  const uint32_t splits = pen_splits_of(plan), rows = (plan->vocab + splits - 1) / splits,
                 first = rows * pen_local_split_count(plan, splits) * tensor_rank;
  return first < plan->vocab ? first : plan->vocab;
}

float *pen_tensor_destination(struct pen_whole_tensor *whole, const struct pen_weight *weight,
                              float *to, bool *known) {
  *known = false;
  if (weight->split_count == 1) {
    return to;
  }
  *known = whole->name != NULL && strcmp(whole->name, weight->tensor) == 0;
  if (!*known) {
    pen_whole_tensor_free(whole);
    whole->name = weight->tensor;
    whole->values = malloc((size_t)pen_tensor_elements(weight) * sizeof *whole->values);
    if (whole->values == NULL) {
      pen_fail(PEN_EXIT_SYSTEM, "tensor %s: out of memory", weight->tensor);
    }
  }
  return whole->values;
}

void pen_tensor_read(const struct pen_whole_tensor *whole, const struct pen_weight *weight,
                     float *to) {
  uint64_t first = 0;
  while (weight->split_count > 1 && first < weight->count) {
    const struct pen_tensor_run run = pen_first_run(weight, first, weight->count - first);
    memcpy(to + run.element, whole->values + run.tensor_element, run.count * sizeof *to);
    first += run.count;
  }
}

void pen_whole_tensor_free(struct pen_whole_tensor *whole) {
  free(whole->values);
  *whole = (struct pen_whole_tensor){0};
}
