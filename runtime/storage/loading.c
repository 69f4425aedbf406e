/* loading.c: where a process keeps what it loads or makes when it starts (see loading.h). */
#include "runtime/storage/loading.h"

#include <stdlib.h>

#include "runtime/base/check.h"
#include "runtime/plan/shard.h"

static void check_device(const struct pen_loading *to) {
  const char *why = to->device->error();
  if (why != NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "device %s: loading weights: %s", to->device->name, why);
  }
}

struct pen_loading pen_loading_open(const struct pen_plan *plan, uint32_t global,
                                    const struct pen_device *device, void *stream,
                                    unsigned char *arena) {
  const struct pen_loading to = {
      .plan = plan,
      .global = global,
      .device = device,
      .stream = stream,
      .arena = arena,
      .chunk = device->allocate(PEN_LOADING_ELEMENTS * sizeof *to.chunk),
  };
  check_device(&to);
  pen_check(to.chunk != NULL, "no memory to load weights");
  return to;
}

void pen_loading_close(const struct pen_loading *to) {
  to->device->stream_synchronize(to->stream);
  to->device->release(to->chunk);
  check_device(to);
}

/* ---- places ---- */

/* Where a process has elements of a weight, or of a moment, as f32 or as bf16. */
struct kept_place {
  uint64_t offset; /* in the arena */
  struct pen_shard elements;
  bool is_bf16;
};

enum { PLACES_MAX = 2 };

/* The tie of the weight, if it is one of the tensor rank's, whose head is on this rank and whose
 * owner is not; null: none. */
static const struct pen_tie *tie_elsewhere(const struct pen_plan *plan, uint32_t global,
                                           uint32_t weight_index) {
  for (uint32_t i = 0; i < pen_local_tie_count(plan); i++) {
    const struct pen_tie *tie = &pen_own_ties(plan, global)[i];
    if (tie->weight == weight_index && tie->rank == pen_table_rank(plan, global) &&
        plan->weights[weight_index].rank != tie->rank) {
      return tie;
    }
  }
  return NULL;
}

/* Returns how many; the first is that of the f32 value, where there is one. */
static uint32_t places_of(const struct pen_loading *to, uint32_t weight_index,
                          enum pen_checkpoint_tensor part, struct kept_place places[PLACES_MAX]) {
  const struct pen_plan *plan = to->plan;
  const struct pen_weight *weight = &plan->weights[weight_index];
  const uint32_t data_rank = pen_group_member(plan, to->global, PEN_DATA);
  const struct pen_tie *tie = tie_elsewhere(plan, to->global, weight_index);
  const bool has =
      pen_has_weight(plan, weight, to->global) && pen_checkpoint_tensor_exists(weight, part);
  uint32_t count = 0;
  if (has && pen_checkpoint_arena_offset(weight, part) != UINT64_MAX) {
    places[count++] = (struct kept_place){
        .offset = pen_checkpoint_arena_offset(weight, part),
        .elements = pen_checkpoint_tensor_kept(plan, weight_index, part, data_rank)};
  }
  if (has && part == PEN_CHECKPOINT_VALUE && weight->bf16_offset != UINT64_MAX) {
    places[count++] = (struct kept_place){
        .offset = weight->bf16_offset,
        .elements = pen_kept_of(plan, weight_index, data_rank, weight->bf16_sharded),
        .is_bf16 = true};
  }
  if (tie != NULL && part == PEN_CHECKPOINT_VALUE) {
    places[count++] = (struct kept_place){.offset = tie->value_offset,
                                          .elements = {0, weight->count},
                                          .is_bf16 = tie->dtype == PEN_BF16};
  }
  return count;
}

/* Those of elements [first, first + count) that a place has. */
static struct pen_shard common_of(const struct kept_place *place, uint64_t first, uint64_t count) {
  const struct pen_shard has = place->elements;
  const uint64_t begin = has.first > first ? has.first : first, past_has = has.first + has.count,
                 past = first + count, end = past_has < past ? past_has : past;
  return (struct pen_shard){begin, end > begin ? end - begin : 0};
}

bool pen_loading_keeps(const struct pen_loading *to, uint32_t weight_index,
                       enum pen_checkpoint_tensor part, uint64_t first, uint64_t count) {
  struct kept_place places[PLACES_MAX];
  bool keeps = false;
  for (uint32_t i = places_of(to, weight_index, part, places); i-- > 0;) {
    keeps = keeps || common_of(&places[i], first, count).count > 0;
  }
  return keeps;
}

/* What was read into its place is there. */
static void store_at(const struct pen_loading *to, const struct kept_place *place, uint64_t first,
                     uint64_t count, const float *values) {
  const struct pen_shard common = common_of(place, first, count);
  const float *from = values + (common.first - first);
  const uint64_t at = common.first - place->elements.first;
  if (common.count > 0 && place->is_bf16) {
    to->device->f32_to_bf16((uint16_t *)(to->arena + place->offset) + at, from,
                            (size_t)common.count, to->stream);
  } else if (common.count > 0 && (float *)(to->arena + place->offset) + at != from) {
    to->device->copy((float *)(to->arena + place->offset) + at, from,
                     (size_t)common.count * sizeof *from, to->stream);
  }
}

void pen_loading_store(const struct pen_loading *to, uint32_t weight_index,
                       enum pen_checkpoint_tensor part, uint64_t first, uint64_t count,
                       const float *values) {
  struct kept_place places[PLACES_MAX];
  const uint32_t place_count = places_of(to, weight_index, part, places);
  for (uint32_t i = 0; i < place_count; i++) {
    store_at(to, &places[i], first, count, values);
  }
}

/* ---- files ---- */

/* Whether all of a weight can be read into its place. */
static bool is_in_place(const struct pen_loading *to, uint32_t weight_index,
                        const struct kept_place *place) {
  return !to->device->asynchronous && !place->is_bf16 &&
         place->elements.count == to->plan->weights[weight_index].count;
}

float *pen_loading_begin(const struct pen_loading *to, uint32_t weight_index,
                         enum pen_checkpoint_tensor part) {
  const struct pen_weight *weight = &to->plan->weights[weight_index];
  struct kept_place places[PLACES_MAX];
  if (places_of(to, weight_index, part, places) == 0) {
    return NULL;
  }
  if (is_in_place(to, weight_index, &places[0])) {
    return (float *)(to->arena + places[0].offset);
  }
  float *buffer = malloc((size_t)weight->count * sizeof *buffer);
  if (buffer == NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "tensor %s: out of memory", weight->name);
  }
  return buffer;
}

/* By way of the chunk to a device whose memory is not the host's. */
static void store_from_host(const struct pen_loading *to, uint32_t weight_index,
                            enum pen_checkpoint_tensor part, const float *values) {
  const uint64_t count = to->plan->weights[weight_index].count;
  for (uint64_t first = 0, n; first < count; first += n) {
    n = count - first < PEN_LOADING_ELEMENTS ? count - first : PEN_LOADING_ELEMENTS;
    if (pen_loading_keeps(to, weight_index, part, first, n)) {
      to->device->copy_in(to->chunk, values + first, (size_t)n * sizeof *values, to->stream);
      pen_loading_store(to, weight_index, part, first, n, to->chunk);
    }
  }
}

void pen_loading_done(const struct pen_loading *to, uint32_t weight_index,
                      enum pen_checkpoint_tensor part, float *values) {
  struct kept_place places[PLACES_MAX];
  places_of(to, weight_index, part, places);
  if (to->device->asynchronous) {
    store_from_host(to, weight_index, part, values);
  } else {
    pen_loading_store(to, weight_index, part, 0, to->plan->weights[weight_index].count, values);
  }
  if (!is_in_place(to, weight_index, &places[0])) {
    free(values);
  }
}
