/* graph.h: the actions of a step on a device: captured once as a graph, or enqueued one by one.
 *
 *   marked    one graph, in which the counters of progress.h are written after each action
 *   unmarked  one graph without them
 *   serial    one graph of one chain: all is on the compute stream, in the order in which it is
 *             enqueued; with the counters
 *   plain     no graph; the same streams as marked
 *
 * The first is tried first, or that of PEN_GRAPH, then those after it. In the others than serial,
 * messages, the second of a pair a|b and collectives of single layers have branches of their own,
 * which wait for words that other ranks write: an order that CUDA does not know, and might not
 * keep to.
 *
 * Ranks need not choose the same, but where the transport asks that all capture or none. Serial
 * has the most waits: each call for all calls before it on its rank. In any other mode, and in
 * ranks of different modes, a call waits for some of these, and for the same calls of other ranks:
 * a semaphore or a pair of ranks has one stream on either side, and so the same order in all modes.
 * Hence all steps end where they do with each rank serial; and there they do because no plan has a
 * deadlock where each action is complete before the next (ipc.c), or where all that a rank sends
 * and receives is in one lane (nccl.c; gen/verify/deadlock.c): a computation between two messages
 * that also waits for the first delays no more than the second, which does so, too. */
#ifndef PEN_DEVICE_GRAPH_H
#define PEN_DEVICE_GRAPH_H

#include "runtime/device/device.h"

/* Runs every program, and all actions that are none, once over zeros, without the other ranks: code
 * is loaded when it is first used, which may wait for the device, and so must not come in a capture
 * or while streams wait for other ranks. The arena is all zero again afterwards, and no damaged
 * route is noted. Before weights are loaded. */
void pen_graph_warm(struct pen_vm *vm);

/* Captures the actions of a step in the first mode that works. Unless the run is quiet, rank 0 says
 * which it is, and what the graph takes; the other ranks do where modes were refused, and why. If
 * PEN_GRAPH_DOT names a file, rank 0 writes the graph of its first profile. Other ranks do the
 * same. */
void pen_graph_make(struct pen_vm *vm);

/* Whether a step is one graph; else its actions are enqueued one by one. */
bool pen_graph_is_used(const struct pen_vm *vm);

/* Enqueues the actions of a step. False: a rank was lost, and nothing more is to be enqueued. */
bool pen_graph_enqueue(struct pen_vm *vm);

#endif
