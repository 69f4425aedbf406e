/* experts.h: the settings of mixtures of experts, resolved. */
#ifndef PEN_EXPERTS_H
#define PEN_EXPERTS_H

#include "gen/topology/topology.h"

/* Sets expert_parallel.rows where the topology does not. */
void pen_experts_set_defaults(struct pen_topology *topology);
/* Ends the generator (78) where the settings contradict others, or the model has no experts. */
void pen_experts_validate(const struct pen_topology *topology);

/* Whether a layer has experts. */
bool pen_layer_has_experts(const struct pen_topology *topology, uint32_t layer);

/* Whether a token may go to twice as many experts. */
bool pen_experts_can_double(const struct pen_topology *topology);

/* Whether training adds losses of the routers to the model's; whether the balancing loss is of each
 * sequence, else of each microbatch; and, then, whether it is by the choices of the step before. */
bool pen_has_router_losses(const struct pen_topology *topology);
bool pen_balances_sequences(const struct pen_topology *topology);
bool pen_balances_steps(const struct pen_topology *topology);

/* The tokens of a slice of a microbatch of so many rows, which is divided into slices only in
 * training, or if they divide evenly. */
int64_t pen_slice_rows(const struct pen_topology *topology, int64_t rows);

#endif
