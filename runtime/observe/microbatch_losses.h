/* microbatch_losses.h: train --log-microbatches: the loss of each microbatch of a step, replica
 * after replica, as a member of the log's line. It allocates when it is opened, before the seal. */
#ifndef PEN_MICROBATCH_LOSSES_H
#define PEN_MICROBATCH_LOSSES_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/comm/shared_control.h"
#include "runtime/data/token_file.h"
#include "runtime/plan/plan.h"

struct pen_microbatch_losses {
  const struct pen_plan *plan;
  uint64_t *targets; /* [PEN_STEP_STATS_DEPTH][data ranks][loss_count]: of steps that are not yet
                        reported; null: losses are not logged */
  uint32_t counts[PEN_STEP_STATS_DEPTH]; /* microbatches of a replica in these */
};

/* Fails (71). */
void pen_microbatch_losses_open(struct pen_microbatch_losses *losses, const struct pen_plan *plan);

/* The most bytes that their text takes. */
size_t pen_microbatch_losses_bytes(const struct pen_plan *plan);

/* Before a step is reported: counts the targets of its microbatches, `count` a replica. Does
 * nothing if losses are not logged. */
void pen_microbatch_losses_count(struct pen_microbatch_losses *losses, uint64_t step,
                                 const struct pen_data *data, uint32_t count);

/* Writes `,"microbatch_losses":[2.5,null,...]`: means over the targets of a microbatch (null: it
 * has none), or sums where the model's loss is one. Returns the bytes used. */
size_t pen_microbatch_losses_write(const struct pen_microbatch_losses *losses, char *text,
                                   size_t bytes, uint64_t step, const double *stats);

#endif
