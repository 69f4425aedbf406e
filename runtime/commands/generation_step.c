/* generation_step.c: the order in which generate continues its texts (see generation_step.h). */
#include "runtime/commands/generation_step.h"

/* A prompt's last tokens, if they are at most this part of a chunk, are read one by one: a step of
 * one token takes about this part of the time of a chunk. */
enum { SHORT_PART = 8 };

struct pen_generation_plan pen_generation_plan_of(const struct pen_buckets *buckets) {
  struct pen_generation_plan plan = {.buckets = buckets, .slot_count = 1};
  for (uint32_t b = 0; b < buckets->count; b++) {
    const uint32_t slots = buckets->profile[b]->slots;
    plan.slot_count = slots > plan.slot_count ? slots : plan.slot_count;
  }
  for (uint32_t s = 0; s < plan.slot_count; s++) {
    plan.slot[s].text = UINT64_MAX;
  }
  return plan;
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

/* The tokens that a step reads of a prompt. */
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
}

/* A chunk of a prompt, if one is long enough. Chunks follow each other from the text's start. */
static bool plan_chunk(struct pen_generation_plan *plan, const struct pen_text_list *texts,
                       const uint32_t *active, uint32_t active_count,
                       struct pen_generation_step *step) {
  const uint64_t chunk = chunk_of(plan->buckets);
  for (uint32_t i = 0; i < active_count && chunk > 1; i++) {
    const struct pen_generation_slot *slot = &plan->slot[active[i]];
    if (slot->cached % chunk == 0 &&
        texts->text[slot->text].written - slot->cached > chunk / SHORT_PART) {
      step->bucket = find_cached(plan->buckets, 1, true);
      add_row(plan, texts, step, active[i], chunk);
      plan->slot[active[i]].chunks += step->row[0].count == chunk ? chunk : 0;
      return true;
    }
  }
  return false;
}

/* The last tokens of the first text that no cache serves. */
static void plan_window(struct pen_generation_plan *plan, const struct pen_text_list *texts,
                        struct pen_generation_step *step) {
  uint32_t s = 0;
  while (s < plan->slot_count && plan->slot[s].text == UINT64_MAX) {
    s++;
  }
  if (s == plan->slot_count) {
    const uint32_t cached = find_cached(plan->buckets, 1, false);
    step->bucket = cached == PEN_NONE ? 0 : cached;
    return;
  }
  const uint64_t written = texts->text[plan->slot[s].text].written;
  step->bucket = find_window(plan->buckets, written);
  const uint64_t sequence = plan->buckets->profile[step->bucket]->sequence;
  step->row[step->row_count++] = (struct pen_generation_row){
      .text = plan->slot[s].text,
      .first = written > sequence ? written - sequence : 0,
      .count = written > sequence ? sequence : written,
      .samples = true,
  };
}

void pen_generation_next(struct pen_generation_plan *plan, const struct pen_text_list *texts,
                         struct pen_generation_step *step) {
  uint32_t active[PEN_PROMPTS_MAX], active_count = 0; /* slots that the cache serves */
  fill_slots(plan, texts);
  step->row_count = 0;
  for (uint32_t s = 0; s < plan->slot_count && find_cached(plan->buckets, 1, false) != PEN_NONE;
       s++) {
    if (plan->slot[s].text != UINT64_MAX &&
        texts->text[plan->slot[s].text].written <= longest(plan->buckets)) {
      active[active_count++] = s;
    }
  }
  if (active_count == 0) {
    plan_window(plan, texts, step);
  } else if (!plan_chunk(plan, texts, active, active_count, step)) {
    step->bucket = find_cached(plan->buckets, active_count, false);
    for (uint32_t i = 0; i < active_count; i++) {
      add_row(plan, texts, step, active[i], 1);
    }
  }
}
