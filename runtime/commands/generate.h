/* generate.h: the command generate, and the samples of train: continues texts, token by token.
 *
 * A step reads tokens of one text or of several (generation_step.h) and appends one to each that it
 * has read to the end: sampled from the logits of the row of the last token (sample.h). A draw
 * depends on position, seed and index of the text alone; the index of a text whose prompt has its
 * own seed counts from its prompt's first. */
#ifndef PEN_GENERATE_H
#define PEN_GENERATE_H

#include "runtime/base/options.h"
#include "runtime/commands/prompts.h"
#include "runtime/commands/texts.h"
#include "runtime/exec/op_hook.h"
#include "runtime/rank/run.h"

/* In the parent: allocates the texts. `buckets` are the run's of generation, which it keeps, as it
 * keeps options and prompts. Fails (64). */
void pen_generate_open(const struct pen_run *run, const struct pen_buckets *buckets,
                       const struct pen_options *options, const struct pen_prompts *prompts);

/* After it: the most steps that the texts take. */
uint64_t pen_generate_steps(void);

/* In a rank: the texts as they are now. */
const struct pen_text_list *pen_generated_texts(void);

/* What the command does in each rank; and what train --sample-every does, by run.h's rules of
 * samples. */
extern const struct pen_command_hooks pen_generate_hooks, pen_sample_hooks;

#endif
