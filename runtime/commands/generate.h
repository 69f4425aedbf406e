/* generate.h: the command generate: continues texts, token by token.
 *
 * A step reads tokens of one text or of several (generation_step.h) and appends one to each that it
 * has read to the end: sampled from the logits of the row of the last token (sample.h). A draw
 * depends on position, seed and index of the text alone; the index of a text whose prompt has its
 * own seed counts from its prompt's first. */
#ifndef PEN_GENERATE_H
#define PEN_GENERATE_H

#include "runtime/base/options.h"
#include "runtime/commands/prompts.h"
#include "runtime/exec/op_hook.h"
#include "runtime/rank/run.h"

/* In the parent: allocates the texts; adds the profiles over a cache to the run's, whose others are
 * of kind GENERATE, and limits its steps. Fails (64). */
void pen_generate_open(struct pen_run *run, const struct pen_options *options,
                       const struct pen_prompts *prompts);

/* What the command does in each rank. */
extern const struct pen_command_hooks pen_generate_hooks;

#endif
