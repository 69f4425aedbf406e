/* prompts.h: the prompts of generate: the one of --prompt, those of the file of --prompts, or those
 * of --stream (prompt_stream.h).
 *
 * A file has a JSON object with a string `prompt` on each line, and maybe a whole number `seed`;
 * other members are ignored, and so are empty lines. Models with a vocabulary of at most
 * PEN_BYTE_VOCAB read the bytes of a prompt, others token numbers separated by spaces. */
#ifndef PEN_PROMPTS_H
#define PEN_PROMPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/options.h"
#include "runtime/plan/plan.h"

enum { PEN_BYTE_VOCAB = 256 };

struct pen_prompt {
  const char *text; /* as given, UTF-8 if it comes from a file */
  size_t bytes;
  uint32_t *token; /* [token_count] at least one */
  uint64_t token_count;
  uint64_t kept; /* of --stream: its first tokens are those of the prompt before; else 0 */
  bool has_seed; /* its texts are those of --prompt with this --seed */
  uint64_t seed;
};

struct pen_prompts {
  const struct pen_prompt *prompt; /* [count] in the order of the file */
  uint64_t count;
};

/* Reads them, for the whole run. Fails: 64 on a prompt of --prompt, or if not exactly one of the
 * options is given; 66 if the file cannot be read; 65 on a line of it, or if it has none. */
struct pen_prompts pen_prompts_read(const struct pen_plan *plan, const struct pen_options *options);

/* A checksum of the tokens and seeds of all prompts. */
uint32_t pen_prompts_checksum(const struct pen_prompts *prompts);

#endif
