/* memory_convert.c: copies of states for the ranks of another plan (see memory_convert.h). */
#include "runtime/storage/memory_convert.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/base/check.h"

/* ---- parts of a copy ---- */

struct part_list {
  const struct pen_plan *plan;
  uint32_t global, count;
  uint64_t offset;
  struct pen_memory_part *parts;
};

static void list_part(void *context, const struct pen_state_part *state) {
  struct part_list *list = context;
  const uint64_t offset = list->offset;
  list->offset += state->bytes;
  if (state->kind >= PEN_STATE_BF16) {
    return;
  }
  const enum pen_checkpoint_tensor tensor = (enum pen_checkpoint_tensor)state->kind;
  const bool is_sharded = pen_checkpoint_tensor_is_sharded(list->plan, state->weight, tensor);
  const uint32_t data_rank = pen_group_member(list->plan, list->global, PEN_DATA);
  const struct pen_shard elements =
      pen_checkpoint_tensor_kept(list->plan, state->weight, tensor, data_rank);
  const bool owns = pen_owns_weight(list->plan, &list->plan->weights[state->weight], list->global);
  if (elements.count > 0 && owns && (is_sharded || data_rank == 0)) {
    list->parts[list->count++] = (struct pen_memory_part){
        .weight = state->weight, .tensor = tensor, .elements = elements, .offset = offset};
  }
}

uint32_t pen_memory_parts(const struct pen_plan *plan, uint32_t global,
                          struct pen_memory_part **parts) {
  const size_t most = PEN_CHECKPOINT_TENSORS * (size_t)plan->weight_count + 1;
  struct part_list list = {
      .plan = plan, .global = global, .parts = calloc(most, sizeof *list.parts)};
  pen_check(list.parts != NULL, "no memory for a list of %u weights", plan->weight_count);
  pen_memory_state_visit(plan, global, list_part, &list);
  *parts = list.parts;
  return list.count;
}

bool pen_memory_part_is_needed(const struct pen_plan *plan, const struct pen_rank_set *ranks,
                               const struct pen_memory_part *part) {
  bool needed = false;
  for (uint32_t r = ranks->first; r < ranks->process_count && !needed;
       r = pen_rank_set_next(ranks, r + 1)) {
    needed = pen_has_weight(plan, &plan->weights[part->weight], r);
    for (uint32_t i = 0; i < pen_local_tie_count(plan); i++) {
      const struct pen_tie *tie = &pen_own_ties(plan, r)[i];
      needed = needed || (tie->weight == part->weight && tie->rank == pen_table_rank(plan, r));
    }
  }
  return needed;
}

/* ---- copies that are being made ---- */

/* Where a copy has what is made of a weight. */
struct place {
  struct pen_shard elements; /* count 0: it has none */
  uint64_t offset;
  bool is_bf16;
};

/* A rank's copy, and what it has of each weight, by enum pen_state_kind. */
struct target {
  unsigned char *copy;
  struct place (*places)[PEN_STATE_KINDS];
};

struct pen_memory_conversion {
  const struct pen_memory_checkpoints *to;
  struct target *targets; /* [to->ranks.count] */
};

struct place_list {
  const struct pen_plan *plan;
  uint32_t data_rank;
  uint64_t offset;
  struct target *target;
};

static const struct pen_tie *tie_of(const struct pen_plan *plan, uint32_t weight) {
  const struct pen_tie *tie = plan->ties;
  while (tie->weight != weight) {
    tie++;
  }
  return tie;
}

static void list_place(void *context, const struct pen_state_part *state) {
  struct place_list *list = context;
  const struct pen_plan *plan = list->plan;
  const uint32_t weight = state->weight;
  struct place place = {.offset = list->offset, .is_bf16 = state->kind == PEN_STATE_BF16};
  if (state->kind == PEN_STATE_TIE) {
    place.elements = (struct pen_shard){0, plan->weights[weight].count};
    place.is_bf16 = tie_of(plan, weight)->dtype == PEN_BF16;
  } else {
    const bool is_sharded = state->kind == PEN_STATE_BF16
                                ? plan->weights[weight].bf16_sharded
                                : pen_checkpoint_tensor_is_sharded(
                                      plan, weight, (enum pen_checkpoint_tensor)state->kind);
    place.elements = pen_kept_of(plan, weight, list->data_rank, is_sharded);
  }
  list->target->places[weight][state->kind] = place;
  list->offset += state->bytes;
}

struct pen_memory_conversion *pen_memory_conversion_open(const struct pen_memory_checkpoints *to) {
  const struct pen_plan *plan = to->plan;
  struct pen_memory_conversion *conversion = calloc(1, sizeof *conversion);
  pen_check(conversion != NULL, "no memory for the states of %u ranks", to->ranks.count);
  conversion->to = to;
  conversion->targets = calloc(to->ranks.count + 1u, sizeof *conversion->targets);
  pen_check(conversion->targets != NULL, "no memory for the states of %u ranks", to->ranks.count);
  struct target *target = conversion->targets;
  for (uint32_t r = to->ranks.first; r < to->ranks.process_count;
       r = pen_rank_set_next(&to->ranks, r + 1), target++) {
    target->copy = pen_memory_copy_begin(to, r);
    target->places = calloc(plan->weight_count + 1u, sizeof *target->places);
    pen_check(target->places != NULL, "no memory for a list of %u weights", plan->weight_count);
    struct place_list list = {
        .plan = plan, .data_rank = pen_group_member(plan, r, PEN_DATA), .target = target};
    pen_memory_state_visit(plan, r, list_place, &list);
  }
  return conversion;
}

/* In a copy, tensors are aligned to 2 bytes alone. */
static void put_bf16(unsigned char *to, const unsigned char *from, uint64_t count) {
  enum { AT_ONCE = 1024 };
  float values[AT_ONCE];
  uint16_t rounded[AT_ONCE];
  while (count > 0) {
    const size_t now = count < AT_ONCE ? (size_t)count : AT_ONCE;
    memcpy(values, from, now * sizeof *values);
    pen_f32_to_bf16(rounded, values, now);
    memcpy(to, rounded, now * sizeof *rounded);
    from += now * sizeof *values;
    to += now * sizeof *rounded;
    count -= now;
  }
}

/* The elements that a place has of a part. */
static void put(const struct target *target, const struct place *place,
                const struct pen_memory_part *part, const unsigned char *bytes) {
  const struct pen_shard has = part->elements, wants = place->elements;
  const uint64_t first = has.first > wants.first ? has.first : wants.first,
                 past_has = has.first + has.count, past_wants = wants.first + wants.count,
                 past = past_has < past_wants ? past_has : past_wants;
  if (past <= first) {
    return;
  }
  const unsigned char *from = bytes + (first - has.first) * sizeof(float);
  unsigned char *to = target->copy + place->offset +
                      (first - wants.first) * (place->is_bf16 ? sizeof(uint16_t) : sizeof(float));
  if (place->is_bf16) {
    put_bf16(to, from, past - first);
  } else {
    memcpy(to, from, (size_t)(past - first) * sizeof(float));
  }
}

void pen_memory_conversion_add(struct pen_memory_conversion *conversion,
                               const struct pen_memory_part *part, const unsigned char *bytes) {
  for (uint32_t t = 0; t < conversion->to->ranks.count; t++) {
    const struct target *target = &conversion->targets[t];
    const struct place *places = target->places[part->weight];
    put(target, &places[part->tensor], part, bytes);
    for (int kind = PEN_STATE_BF16; kind < PEN_STATE_KINDS && part->tensor == PEN_CHECKPOINT_VALUE;
         kind++) {
      put(target, &places[kind], part, bytes);
    }
  }
}

void pen_memory_conversion_close(struct pen_memory_conversion *conversion, uint64_t step,
                                 const struct pen_state_position *position) {
  const struct pen_rank_set *ranks = &conversion->to->ranks;
  const struct target *target = conversion->targets;
  for (uint32_t r = ranks->first; r < ranks->process_count;
       r = pen_rank_set_next(ranks, r + 1), target++) {
    pen_memory_copy_end(conversion->to, r, target->copy, step, position);
    free(target->places);
  }
  free(conversion->targets);
  free(conversion);
}
