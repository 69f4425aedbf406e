/* prompt_stream.h: the prompts of generate --stream: lines of standard input, token ids separated
 * by spaces, as they come; blank lines are passed over.
 *
 * One rank reads them. It publishes a part of a line where it publishes tokens that it has drawn,
 * in steps that have no text: so all ranks get it, on any hosts. */
#ifndef PEN_PROMPT_STREAM_H
#define PEN_PROMPT_STREAM_H

#include <stdatomic.h>
#include <stdint.h>

#include "runtime/comm/shared_control.h"
#include "runtime/commands/prompts.h"

enum { PEN_STREAM_TOKENS_MAX = 1 << 17 }; /* of a line */

enum pen_prompt_part {
  PEN_PROMPT_PART,  /* more of the line follows */
  PEN_PROMPT_WHOLE, /* the prompt is the line */
  PEN_PROMPT_NONE   /* no line follows */
};

/* Allocates, in the parent: one prompt, for now of as many tokens 0 as a line may have. */
struct pen_prompts pen_prompt_stream_open(void);

/* In the rank that reads: waits for the next ids, and writes them to part [PEN_PROMPTS_MAX]. A stop
 * or an abort of the run ends the wait as the end of the input does. Fails: 65 on a line that is no
 * list of ids below vocab, or is too long; 66 if the input cannot be read. Calls no allocator. */
void pen_prompt_stream_read(const struct pen_shared *shared, uint32_t vocab,
                            _Atomic uint32_t *part);

/* In each rank: adds the ids of a part to the prompt. Past the end of a shorter prompt `kept`
 * counts tokens that an earlier one had. */
enum pen_prompt_part pen_prompt_stream_take(const _Atomic uint32_t *part);

#endif
