/* generation_step.h: which tokens a step of generate reads, and whose next token it gives.
 *
 * With a cache of keys and values (profiles of kind CACHED) a text has a slot of the cache from its
 * first token to its last. A step reads tokens that are not in the cache: a chunk of one prompt, or
 * the next token of every text that has a slot. When the last known token of a text is read, its
 * row gives the next one. Of the prompts of --stream, each of which may begin as the one before, as
 * the turns of a chat do, chunks that are alike stay in the cache. A text that is longer than the
 * model's sequence is continued by steps of its own, over the last tokens (profiles of kind
 * GENERATE); so are all texts of a plan without a cache.
 *
 * Every rank decides alone, from the texts, which are the same on all. */
#ifndef PEN_GENERATION_STEP_H
#define PEN_GENERATION_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/commands/texts.h"
#include "runtime/data/bucket.h"
#include "runtime/plan/plan.h"

/* A sequence of a step. */
struct pen_generation_row {
  uint64_t text;         /* its index */
  uint64_t first, count; /* the tokens that are read; from first on they are known to the end */
  uint32_t slot;         /* of the cache; without a cache 0 */
  bool samples;          /* the last of these tokens is the text's last: it gives the next one */
};

struct pen_generation_step {
  uint32_t bucket;
  uint32_t row_count; /* 0: all texts have ended, and the step's results are not used */
  struct pen_generation_row row[PEN_PROMPTS_MAX];
};

/* What texts have a slot, and how much of them is in the cache. */
struct pen_generation_plan {
  const struct pen_buckets *buckets; /* those of kind GENERATE, by sequence, then those of CACHED */
  uint64_t next_text;                /* the first that has had no slot */
  struct pen_generation_slot {
    uint64_t text;   /* its index, or UINT64_MAX */
    uint64_t cached; /* its first tokens */
    uint64_t chunks; /* those of them that were read by whole chunks, of a prompt */
  } slot[PEN_PROMPTS_MAX];
  uint32_t slot_count;
};

struct pen_generation_plan pen_generation_plan_of(const struct pen_buckets *buckets);

/* The next step, after the tokens of the step before were appended to the texts. */
void pen_generation_next(struct pen_generation_plan *plan, const struct pen_text_list *texts,
                         struct pen_generation_step *step);

#endif
