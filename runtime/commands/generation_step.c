/* generation_step.c: the order in which generate continues its texts (see generation_step.h). */
#include "runtime/commands/generation_step.h"

/* A prompt's last tokens, if they are at most this part of a chunk, are read one by one: a step of
 * one token takes about this part of the time of a chunk. */
enum { SHORT_PART = 8 };

void pen_generation_start(struct pen_generation_plan *plan, const struct pen_buckets *buckets,
                          uint32_t group_count) {
  uint32_t prompts = 1; /* of a group */
  for (uint32_t b = 0; b < buckets->count; b++) {
    const uint32_t slots = buckets->profile[b]->slots;
    prompts = slots > prompts ? slots : prompts;
  }
  plan->buckets = buckets;
  plan->group_count = group_count;
  plan->next_group = 0;
  plan->step_count = plan->next_text = 0;
  plan->slot_count = prompts * group_count;
  for (uint32_t s = 0; s < plan->slot_count; s++) {
    plan->slot[s] = (struct pen_generation_slot){.text = UINT64_MAX};
  }
}

/* The bucket of the profile over a cache with at least so many slots, the fewest, and the most or
 * the fewest tokens; PEN_NONE: there is none. */
static uint32_t find_cached(const struct pen_buckets *buckets, uint32_t slots, bool most_tokens) {
  uint32_t found = PEN_NONE;
  for (uint32_t b = 0; b < buckets->count; b++) {
    const struct pen_profile *profile = buckets->profile[b],
                             *best = found == PEN_NONE ? NULL : buckets->profile[found];
    const bool fits = profile->kind == PEN_CACHED && profile->slots >= slots;
    const bool better =
        best == NULL || profile->slots < best->slots ||
        (profile->slots == best->slots &&
         (most_tokens ? profile->sequence > best->sequence : profile->sequence < best->sequence));
    found = fits && better ? b : found;
  }
  return found;
}

/* The bucket of the shortest sequence that holds so many tokens, or else of the longest. */
static uint32_t find_window(const struct pen_buckets *buckets, uint64_t tokens) {
  uint32_t b = 0;
  while (b + 1 < buckets->count && buckets->profile[b + 1]->kind == PEN_GENERATE &&
         buckets->profile[b]->sequence < tokens) {
    b++;
  }
  return b;
}

/* The tokens that a step reads of a prompt; 1: no step reads more. */
static uint64_t chunk_of(const struct pen_buckets *buckets) {
  const uint32_t bucket = find_cached(buckets, 1, true);
  return bucket == PEN_NONE ? 1 : buckets->profile[bucket]->sequence;
}

/* The first tokens of a text that the cache has of the text before in its slot. What was read by
 * chunks has the bits of any other run, also where products depend on the number of rows; and at
 * least one token is left to read. */
static uint64_t kept_tokens(const struct pen_generation_plan *plan, const struct pen_text *text,
                            uint64_t chunks) {
  uint64_t kept = chunks < text->prompt->kept ? chunks : text->prompt->kept;
  kept = kept < text->written ? kept : text->written - 1;
  return kept - kept % chunk_of(plan->buckets);
}

/* Gives slots to texts that wait for one. */
static void fill_slots(struct pen_generation_plan *plan, const struct pen_text_list *texts) {
  for (uint32_t s = 0; s < plan->slot_count; s++) {
    struct pen_generation_slot *slot = &plan->slot[s];
    if (slot->text != UINT64_MAX && !texts->text[slot->text].ended) {
      continue;
    }
    slot->text = UINT64_MAX;
    if (plan->next_text < texts->count) {
      slot->text = plan->next_text++;
      slot->chunks = kept_tokens(plan, &texts->text[slot->text], slot->chunks);
      slot->cached = slot->chunks;
    }
  }
}

/* The model's sequence. */
static uint64_t longest(const struct pen_buckets *buckets) {
  return buckets->profile[find_window(buckets, UINT64_MAX)]->sequence;
}

/* ---- what comes next ---- */

/* Whether the cache serves a slot's text. */
static bool is_cached(const struct pen_generation_plan *plan, const struct pen_text_list *texts,
                      uint32_t s) {
  const uint64_t text = plan->slot[s].text;
  return text != UINT64_MAX && find_cached(plan->buckets, 1, false) != PEN_NONE &&
         texts->text[text].written <= longest(plan->buckets);
}

/* The first slot whose prompt has enough unread tokens for a chunk, or PEN_NONE. Chunks follow each
 * other from the text's start. */
static uint32_t find_chunk(const struct pen_generation_plan *plan,
                           const struct pen_text_list *texts) {
  const uint64_t chunk = chunk_of(plan->buckets);
  for (uint32_t s = 0; s < plan->slot_count && chunk > 1; s++) {
    const struct pen_generation_slot *slot = &plan->slot[s];
    if (is_cached(plan, texts, s) && slot->cached % chunk == 0 &&
        texts->text[slot->text].written - slot->cached > chunk / SHORT_PART) {
      return s;
    }
  }
  return PEN_NONE;
}

/* What a step reads of a group. */
enum group_work { NOTHING, NEXT_TOKENS, WINDOW };

struct group_part {
  enum group_work part;
  uint32_t group;
};

/* Counts the slots of a group with a text, or with one that the cache serves; *first: one of them.
 */
static uint32_t count_slots(const struct pen_generation_plan *plan,
                            const struct pen_text_list *texts, uint32_t group, bool cached,
                            uint32_t *first) {
  uint32_t count = 0;
  for (uint32_t s = group; s < plan->slot_count; s += plan->group_count) {
    if (plan->slot[s].text != UINT64_MAX && (!cached || is_cached(plan, texts, s))) {
      *first = count++ == 0 ? s : *first;
    }
  }
  return count;
}

/* The next group that has texts; those that the cache serves come first. */
static struct group_part find_group(const struct pen_generation_plan *plan,
                                    const struct pen_text_list *texts) {
  uint32_t first = PEN_NONE;
  for (int cached = 1; cached >= 0; cached--) {
    for (uint32_t g = 0; g < plan->group_count; g++) {
      const uint32_t group = (plan->next_group + g) % plan->group_count;
      if (count_slots(plan, texts, group, cached == 1, &first) > 0) {
        return (struct group_part){cached == 1 ? NEXT_TOKENS : WINDOW, group};
      }
    }
  }
  return (struct group_part){NOTHING, 0};
}

uint64_t pen_generation_needed(struct pen_generation_plan *plan,
                               const struct pen_text_list *texts) {
  uint64_t needed =
      plan->step_count < plan->group_count ? 0 : plan->step_count - plan->group_count + 1;
  fill_slots(plan, texts);
  if (find_chunk(plan, texts) != PEN_NONE) {
    return needed; /* its tokens are a prompt's */
  }
  const struct group_part next = find_group(plan, texts);
  for (uint32_t s = next.group; s < plan->slot_count && next.part != NOTHING;
       s += plan->group_count) {
    needed = plan->slot[s].needed > needed ? plan->slot[s].needed : needed;
  }
  return needed;
}

/* ---- a step ---- */

/* Reads the next tokens of a slot's text, at most so many. */
static void add_row(struct pen_generation_plan *plan, const struct pen_text_list *texts,
                    struct pen_generation_step *step, uint32_t s, uint64_t most) {
  struct pen_generation_slot *slot = &plan->slot[s];
  const uint64_t left = texts->text[slot->text].written - slot->cached;
  step->row[step->row_count++] = (struct pen_generation_row){.text = slot->text,
                                                             .first = slot->cached,
                                                             .count = left < most ? left : most,
                                                             .slot = s,
                                                             .samples = left <= most};
  slot->cached += left < most ? left : most;
  slot->needed = left <= most ? plan->step_count : slot->needed;
}

/* The next token of each text of a group. Groups with fewer texts than another run its profile:
 * between two profiles the ranks wait for each other. */
static void plan_tokens(struct pen_generation_plan *plan, const struct pen_text_list *texts,
                        struct pen_generation_step *step, uint32_t group) {
  uint32_t most = 1, first = PEN_NONE;
  for (uint32_t g = 0; g < plan->group_count; g++) {
    const uint32_t count = count_slots(plan, texts, g, true, &first);
    most = count > most ? count : most;
  }
  step->bucket = find_cached(plan->buckets, most, false);
  for (uint32_t s = group; s < plan->slot_count; s += plan->group_count) {
    if (is_cached(plan, texts, s)) {
      add_row(plan, texts, step, s, 1);
    }
  }
}

/* The last tokens of the first text of a group, which no cache serves. */
static void plan_window(struct pen_generation_plan *plan, const struct pen_text_list *texts,
                        struct pen_generation_step *step, uint32_t group) {
  uint32_t s = group;
  count_slots(plan, texts, group, false, &s);
  const uint64_t written = texts->text[plan->slot[s].text].written;
  step->bucket = find_window(plan->buckets, written);
  const uint64_t sequence = plan->buckets->profile[step->bucket]->sequence;
  step->row[step->row_count++] = (struct pen_generation_row){
      .text = plan->slot[s].text,
      .first = written > sequence ? written - sequence : 0,
      .count = written > sequence ? sequence : written,
      .samples = true,
  };
  plan->slot[s].needed = plan->step_count;
}

/* No text is left. */
static void plan_nothing(const struct pen_generation_plan *plan, struct pen_generation_step *step) {
  const uint32_t cached = find_cached(plan->buckets, 1, false);
  step->bucket = cached == PEN_NONE ? 0 : cached;
}

void pen_generation_next(struct pen_generation_plan *plan, const struct pen_text_list *texts,
                         struct pen_generation_step *step) {
  const uint32_t chunk = find_chunk(plan, texts);
  const struct group_part next = find_group(plan, texts);
  step->row_count = 0;
  plan->step_count++;
  if (chunk != PEN_NONE) {
    step->bucket = find_cached(plan->buckets, 1, true);
    const uint64_t most = chunk_of(plan->buckets);
    add_row(plan, texts, step, chunk, most);
    plan->slot[chunk].chunks += step->row[0].count == most ? most : 0;
    return;
  }
  plan->next_group = (next.group + 1) % plan->group_count;
  if (next.part == NEXT_TOKENS) {
    plan_tokens(plan, texts, step, next.group);
  } else if (next.part == WINDOW) {
    plan_window(plan, texts, step, next.group);
  } else {
    plan_nothing(plan, step);
  }
}
