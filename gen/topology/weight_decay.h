/* weight_decay.h: the weight decay of each tensor. */
#ifndef PEN_WEIGHT_DECAY_H
#define PEN_WEIGHT_DECAY_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

/* The weight decay of a tensor; `matrix`: it has two dimensions. */
double pen_weight_decay_of(const struct pen_topology *topology, const char *name, bool matrix);

/* Fails (78) on a group of optimizer.weight_decay_groups that is not "ENDING=DECAY". */
void pen_weight_decay_check_groups(const struct pen_topology *topology);

/* Fails (78) on a group that matches none of the weights. */
void pen_weight_decay_check_names(const struct pen_topology *topology,
                                  const struct pen_weight *weights, uint32_t count);

#endif
