/* generate.h: the command generate: continues texts, token by token.
 *
 * A step reads the last tokens of one text and appends one: sampled from softmax(logits /
 * temperature) of the row of the last token, over the top_k most likely tokens; at temperature 0
 * the most likely. It runs the profile of the shortest sequence that holds the text, or else that
 * of the model's sequence (gen/lower/profiles.c). Texts are continued one after another. The
 * tokens depend only on seed, index of the text and position. */
#ifndef PEN_GENERATE_H
#define PEN_GENERATE_H

#include "runtime/base/options.h"
#include "runtime/commands/prompts.h"
#include "runtime/exec/op_hook.h"
#include "runtime/rank/run.h"

/* In the parent: allocates the texts. Fails (64). */
void pen_generate_open(const struct pen_plan *plan, const struct pen_options *options,
                       const struct pen_prompts *prompts);

/* What the command does in each rank. */
extern const struct pen_command_hooks pen_generate_hooks;

#endif
