/* graph.h: the actions of a step on a device: captured once as a graph, or enqueued one by one. */
#ifndef PEN_DEVICE_GRAPH_H
#define PEN_DEVICE_GRAPH_H

#include "runtime/device/device.h"

/* Runs every program, and all actions that are none, once over zeros, without the other ranks: code
 * is loaded when it is first used, which may wait for the device, and so must not come in a capture
 * or while streams wait for other ranks. The arena is all zero again afterwards. Before weights are
 * loaded. */
void pen_graph_warm(struct pen_vm *vm);

/* Captures the actions of a step: with progress signals where that is possible, else without; where
 * it is not, says why, and actions are enqueued one by one. Other ranks do the same. */
void pen_graph_make(struct pen_vm *vm);

/* Whether a step is one graph; else its actions are enqueued one by one. */
bool pen_graph_is_used(const struct pen_vm *vm);

/* Enqueues the actions of a step. False: a rank was lost, and nothing more is to be enqueued. */
bool pen_graph_enqueue(struct pen_vm *vm);

#endif
