/* weight_optimizer.h: the optimizer, the rate and the weight decay of each tensor. */
#ifndef PEN_WEIGHT_OPTIMIZER_H
#define PEN_WEIGHT_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

/* One of optimizer.groups: what it sets for the tensors whose names have one of the endings. */
struct pen_optimizer_group {
  struct pen_strings endings;
  double rate, weight_decay; /* below 0: not given */
  int name;                  /* enum pen_optimizer_kind; PEN_UNSET: not given */
};

/* Reads optimizer.groups into topology->optimizer_group, and makes its texts canonical. Fails (78)
 * on a text that is not "ENDING...: SETTING=VALUE...". */
void pen_optimizer_groups_read(struct pen_topology *topology);

/* Whether optimizer.name, or a group, chooses the optimizer. */
bool pen_optimizer_is_used(const struct pen_topology *topology, enum pen_optimizer_kind optimizer);

/* Whether a setting means something: false if it is one of an optimizer that no tensor has. */
bool pen_optimizer_has_setting(const struct pen_topology *topology,
                               const struct pen_setting *setting);

/* Sets the optimizer, rate, weight_decay and moment_count of a weight by its tensor's name, its
 * dim_count, whether it is frozen, and whether it is of a layer; matrix_parts is 1. Fails (78) on a
 * group that names muon for another tensor than a matrix of a layer. */
void pen_weight_optimizer_set(const struct pen_topology *topology, struct pen_weight *weight,
                              bool in_layer);

/* Fails (78) on a group of optimizer.weight_decay_groups that is not "ENDING=DECAY". */
void pen_weight_decay_check_groups(const struct pen_topology *topology);

/* Fails (78) on an ending of optimizer.groups or optimizer.weight_decay_groups that no weight has.
 */
void pen_weight_optimizer_check_names(const struct pen_topology *topology,
                                      const struct pen_weight *weights, uint32_t count);

/* Fails (78) if an ending, the first `bytes` of a text of the setting, is that of the names of some
 * tensors of a stack (plan.h, Stacks), but not of all. */
void pen_check_stack_ending(const struct pen_topology *topology, const char *setting,
                            const char *text, size_t bytes, const struct pen_weight *weights,
                            uint32_t count);

#endif
