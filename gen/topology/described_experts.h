/* described_experts.h: the mixtures of experts of a description: its ops MOE. */
#ifndef PEN_DESCRIBED_EXPERTS_H
#define PEN_DESCRIBED_EXPERTS_H

#include <stdbool.h>

struct pen_description; /* description.h */

/* Of all ops MOE of a description; 0 where it has none. */
struct pen_described_router {
  long long experts, ffn, choices, groups, best_groups;
  double scale; /* 0: the op does not say */
  bool normalizes, is_sigmoid, has_bias;
};

/* Finds the layers that have experts. Ends the generator (78), with the file, the unit and the op,
 * where an op MOE is in no layer, is not the only one of its unit, has sizes or attributes that no
 * router has, or others than the first. What does not match the row is said when ops are matched
 * (gen/families/described_shapes.c). */
struct pen_described_router pen_described_router_of(struct pen_description *description);

#endif
