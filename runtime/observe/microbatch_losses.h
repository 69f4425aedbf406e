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
  uint64_t *targets; /* [PEN_STEP_STATS_DEPTH][replica_count][loss_count]: of steps that are not yet
                        reported; null: losses are not logged */
  uint32_t counts[PEN_STEP_STATS_DEPTH]; /* microbatches of a replica in these */
  char *line;                            /* for a line of the log */
  size_t line_bytes;                     /* `before` and the text of the losses */
};

/* `before`: bytes of the line that the losses are added to. Fails (71). */
void pen_microbatch_losses_open(struct pen_microbatch_losses *losses, const struct pen_plan *plan,
                                size_t before);

/* Before a step is reported: counts the targets of its microbatches, `count` a replica. Does
 * nothing if losses are not logged. */
void pen_microbatch_losses_count(struct pen_microbatch_losses *losses, uint64_t step,
                                 const struct pen_data *data, uint32_t count);

/* Writes `,"microbatch_losses":[2.5,null,...]` after the first `used` bytes of the line: means over
 * the targets of a microbatch (null: it has none), or sums where the model's loss is one. Returns
 * the bytes used. */
size_t pen_microbatch_losses_add(struct pen_microbatch_losses *losses, size_t used, uint64_t step,
                                 const double *stats);

#endif
