/* texts.h: the texts that generate continues: --samples of each prompt, in the order of the
 * prompts.
 *
 * All ranks have the same texts after a step. One of them prints: a text of --prompt token by
 * token, as soon as the texts before it have ended; of --stream likewise, but only the ids that are
 * drawn; of --prompts FILE a JSON line for each text that has ended, in order: {"prompt": ...,
 * "text": ...}, with --stop also "finish_reason". */
#ifndef PEN_TEXTS_H
#define PEN_TEXTS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/text_writer.h"
#include "runtime/commands/prompts.h"

struct pen_text {
  const struct pen_prompt *prompt;
  uint32_t *token; /* [capacity]: the prompt's, then those that were sampled */
  uint64_t written, capacity;
  uint64_t key, number; /* of its draws, see pen_uniform() */
  bool ended;           /* stopped, or full */
  bool stopped;         /* by one of --stop, or by the end-of-text token, its last */
};

struct pen_text_list {
  const struct pen_options *options;
  const struct pen_prompts *prompts;
  uint32_t vocab;
  uint32_t *stop; /* [stop_count]: the ids of --stop */
  uint64_t stop_count;
  struct pen_text *text; /* [count] */
  uint64_t count;
  uint64_t shown_count, shown_tokens; /* texts printed whole; tokens printed of the next one */
};

/* Allocates the texts; of --stream they have ended until they begin anew. Fails (64) if memory does
 * not hold them, or if --stop is no list of ids. */
struct pen_text_list pen_texts_open(const struct pen_plan *plan, const struct pen_options *options,
                                    const struct pen_prompts *prompts);

/* Appends a sampled token; PEN_NONE ends the text without one. */
void pen_text_append(const struct pen_text_list *texts, struct pen_text *text, uint32_t token);

/* Begins all texts anew, from what the prompts and the options of draws are now: no more and no
 * longer ones than at first. */
void pen_texts_restart(struct pen_text_list *texts);

/* Write the prompt of a text, and what continues it, as JSON strings. The tokens of the
 * continuation are not read again. */
void pen_text_write_prompt(struct pen_writer *out, const struct pen_text *text);
void pen_text_write_continuation(const struct pen_text_list *texts, struct pen_writer *out,
                                 const struct pen_text *text);

/* Prints what can be printed by now. Fails (74). */
void pen_texts_show(struct pen_text_list *texts);

/* After the last step: ends a line that was begun, if a signal stopped the run. */
void pen_texts_close(struct pen_text_list *texts);

#endif
