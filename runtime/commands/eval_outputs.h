/* eval_outputs.h: eval --outputs: the values that model.outputs names, of all steps, as a
 * safetensors file.
 *
 * Each output is a tensor of its name, (samples, tokens, width), of the dtype that the plan has. A
 * sample is a window: the samples are in the order of the cursor (docs/contracts.md section 9), so
 * that file has the same bytes however many ranks and replicas there are. */
#ifndef PEN_EVAL_OUTPUTS_H
#define PEN_EVAL_OUTPUTS_H

#include "runtime/rank/run.h"

/* In the parent, when run->steps is known: makes FILE.tmp, if this host has the ranks that write
 * it, and sets run->hooks. Without the option, does nothing. Fails (64, 73, 74). */
void pen_eval_outputs_open(struct pen_run *run);

/* In the parent, after the ranks: gives the file its name; or removes it, unless all steps were
 * made. Fails (74). */
void pen_eval_outputs_close(const struct pen_run *run);

#endif
