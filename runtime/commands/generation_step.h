/* generation_step.h: which tokens a step of generate reads, and whose next token it gives.
 *
 * With a cache of keys and values (profiles of kind CACHED) a text has a slot of the cache from its
 * first token to its last. A step reads tokens that are not in the cache: a chunk of one prompt, or
 * the next token of every text of a group of slots. When the last known token of a text is read,
 * its row gives the next one. Of the prompts of --stream, each of which may begin as the one
 * before, as the turns of a chat do, chunks that are alike stay in the cache. A text that is longer
 * than the model's sequence is continued by steps of its own, over the last tokens (profiles of
 * kind GENERATE); so are all texts of a plan without a cache.
 *
 * There are as many groups as the plan says (generate.microbatches), which take turns: while the
 * last rank computes the next tokens of one group, the ranks before it are in the next steps, of
 * the other groups. So a step begins when the tokens of the step so many steps before it are known,
 * and those of its own texts.
 *
 * Every rank decides alone, from the texts, which are the same on all when they have the tokens of
 * as many steps as pen_generation_needed() says. */
#ifndef PEN_GENERATION_STEP_H
#define PEN_GENERATION_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/commands/texts.h"
#include "runtime/data/bucket.h"
#include "runtime/plan/plan.h"

enum { PEN_SLOTS_MAX = PEN_GROUPS_MAX * PEN_PROMPTS_MAX };

/* A sequence of a step. */
struct pen_generation_row {
  uint64_t text;         /* its index */
  uint64_t first, count; /* the tokens that are read; from first on they are known to the end */
  uint32_t slot;         /* of the cache; without a cache 0 */
  bool samples;          /* the last of these tokens is the text's last: it gives the next one */
};

struct pen_generation_step {
  uint64_t run_step; /* its number in the run, for the caller */
  uint32_t bucket;
  uint32_t row_count; /* 0: all texts have ended, and the step's results are not used */
  struct pen_generation_row row[PEN_PROMPTS_MAX];
};

/* What texts have a slot, and how much of them is in the cache. */
struct pen_generation_plan {
  const struct pen_buckets *buckets; /* those of kind GENERATE, by sequence, then those of CACHED */
  uint32_t group_count;              /* slot s is of group s modulo that */
  uint32_t next_group;               /* whose turn it is */
  uint64_t step_count;               /* that were decided */
  uint64_t next_text;                /* the first that has had no slot */
  struct pen_generation_slot {
    uint64_t text;   /* its index, or UINT64_MAX */
    uint64_t cached; /* its first tokens */
    uint64_t chunks; /* those of them that were read by whole chunks, of a prompt */
    uint64_t needed; /* steps after which the tokens are known that have been sampled for it */
  } slot[PEN_SLOTS_MAX];
  uint32_t slot_count;
};

/* No text has a slot. */
void pen_generation_start(struct pen_generation_plan *plan, const struct pen_buckets *buckets,
                          uint32_t group_count);

/* How many of the decided steps must have their tokens in the texts before the next is decided.
 * With more tokens it may become more. */
uint64_t pen_generation_needed(struct pen_generation_plan *plan, const struct pen_text_list *texts);

/* Decides the next step, when no more is needed. */
void pen_generation_next(struct pen_generation_plan *plan, const struct pen_text_list *texts,
                         struct pen_generation_step *step);

#endif
