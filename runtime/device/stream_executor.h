/* stream_executor.h: the steps of a rank on an asynchronous device.
 *
 *   the host, in step k  writes inputs, learning rate and bias corrections to the pinned staging
 *                        memory k mod 2; enqueues their copy to the device, the actions, the copy
 * of the statistics to pinned memory k mod 2, an event; then waits for the event of step k-1, and
 * publishes that step's statistics (endpoint.h) the actions          are captured once, and then
 * launched as one graph; what cannot be captured is enqueued action by action, and then the host
 * waits for step k itself two counters         in pinned memory are written after each action, one
 * by the compute stream, one by the stream that sends messages: progress.h */
#ifndef PEN_STREAM_EXECUTOR_H
#define PEN_STREAM_EXECUTOR_H

#include "runtime/device/device.h"

extern const struct pen_executor pen_stream_executor;

/* Connects the transport, and makes the graph of a step. When all ranks are open, before the seal.
 */
void pen_stream_connect(struct pen_vm *vm);

#endif
