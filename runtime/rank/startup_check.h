/* startup_check.h: what the ranks of a deployment must agree on at the start where several commands
 * have started them: the checkpoint, the options that decide on steps, and the kernels. Ranks of
 * one command have these from their parent. */
#ifndef PEN_STARTUP_CHECK_H
#define PEN_STARTUP_CHECK_H

#include "runtime/rank/run.h"
#include "runtime/comm/endpoint.h"

/* Writes to the rank's state what it starts from, and the line of pen_kernels_open(), or "" where
 * it computes on a device. Before pen_endpoint_compare_plans(). May allocate. */
void pen_startup_publish(const struct pen_run *run, struct pen_rank_state *self,
                         const char *kernels);

/* After it: fails where another rank has published something else, and prints which ranks and what:
 * PEN_EXIT_DATA where checkpoints differ, PEN_EXIT_USAGE where options or kernels do, since other
 * kernels compute other bits. */
void pen_startup_check(const struct pen_run *run, const struct pen_endpoint *endpoint);

#endif
