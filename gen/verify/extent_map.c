/* extent_map.c: extents by rising address, in lists of at most LIST_EXTENTS. */
#include "gen/verify/extent_map.h"
#include <string.h>
#include "gen/base/arena.h"
#include "gen/base/sort.h"

enum { LIST_EXTENTS = 256 };

struct pen_extent_list {
  size_t count;
  struct pen_extent extent[LIST_EXTENTS];
};

struct pen_extent_place pen_extent_map_find(const struct pen_extent_map *map, uint64_t offset) {
  size_t low = 0, high = map->count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const struct pen_extent_list *list = map->list[middle];
    if (list->extent[list->count - 1].past <= offset)
      low = middle + 1;
    else
      high = middle;
  }
  struct pen_extent_place place = {.list = low};
  if (low == map->count) return place;
  for (high = map->list[low]->count; place.index < high;) {
    const size_t middle = (place.index + high) / 2;
    if (map->list[low]->extent[middle].past <= offset)
      place.index = middle + 1;
    else
      high = middle;
  }
  return place;
}

/* The extent at a place; NULL: the map ends, or it begins at `past` or after it. */
static struct pen_extent *extent_at(const struct pen_extent_map *map, struct pen_extent_place place,
                                    uint64_t past) {
  if (place.list == map->count) return NULL;
  struct pen_extent *extent = &map->list[place.list]->extent[place.index];
  return extent->first < past ? extent : NULL;
}

static struct pen_extent_place place_after(const struct pen_extent_map *map,
                                           struct pen_extent_place place) {
  if (++place.index == map->list[place.list]->count)
    place = (struct pen_extent_place){.list = place.list + 1};
  return place;
}

const struct pen_extent *pen_extent_map_next(const struct pen_extent_map *map,
                                             struct pen_extent_place *place, uint64_t past) {
  const struct pen_extent *extent = extent_at(map, *place, past);
  if (extent) *place = place_after(map, *place);
  return extent;
}

/* Inserts an empty list, from the reserve if it has one. */
static struct pen_extent_list *insert_list(struct pen_extent_map *map, size_t at) {
  struct pen_extent_list *list;
  PEN_RESERVE(map->list, map->count + map->reserve + 1);
  if (map->reserve)
    list = map->list[map->count + --map->reserve];
  else
    list = pen_new(1, sizeof *list);
  memmove(&map->list[at + 1], &map->list[at], (map->count - at + map->reserve) * sizeof *map->list);
  map->count++;
  list->count = 0;
  return map->list[at] = list;
}

static void remove_list(struct pen_extent_map *map, size_t at) {
  struct pen_extent_list *list = map->list[at];
  map->count--;
  memmove(&map->list[at], &map->list[at + 1], (map->count - at + map->reserve) * sizeof *map->list);
  map->list[map->count + map->reserve++] = list;
}

/* Inserts an extent at a place; a full list becomes two. */
static void insert_extent(struct pen_extent_map *map, struct pen_extent_place place,
                          struct pen_extent added) {
  if (place.list == map->count && place.list && map->list[place.list - 1]->count < LIST_EXTENTS)
    place = (struct pen_extent_place){place.list - 1, map->list[place.list - 1]->count};
  if (place.list == map->count) insert_list(map, place.list);
  struct pen_extent_list *list = map->list[place.list];
  if (list->count == LIST_EXTENTS) {
    struct pen_extent_list *second = insert_list(map, place.list + 1);
    second->count = LIST_EXTENTS - LIST_EXTENTS / 2;
    list->count = LIST_EXTENTS / 2;
    memcpy(second->extent, &list->extent[list->count], second->count * sizeof *second->extent);
    if (place.index > list->count) {
      place.index -= list->count;
      list = second;
    }
  }
  memmove(&list->extent[place.index + 1], &list->extent[place.index],
          (list->count++ - place.index) * sizeof *list->extent);
  list->extent[place.index] = added;
}

/* Removes the extent at a place, which is then that of the next one. */
static struct pen_extent_place remove_extent(struct pen_extent_map *map,
                                             struct pen_extent_place place) {
  struct pen_extent_list *list = map->list[place.list];
  memmove(&list->extent[place.index], &list->extent[place.index + 1],
          (--list->count - place.index) * sizeof *list->extent);
  if (list->count == 0) remove_list(map, place.list);
  if (list->count && place.index == list->count)
    place = (struct pen_extent_place){.list = place.list + 1};
  return place;
}

void pen_extent_map_write(struct pen_extent_map *map, const struct pen_extent *written) {
  struct pen_extent_place place = pen_extent_map_find(map, written->first);
  struct pen_extent *extent = extent_at(map, place, written->past);
  if (extent && extent->first < written->first) { /* its begin stays, and perhaps its end */
    struct pen_extent begin = *extent;
    begin.past = extent->first = written->first;
    insert_extent(map, place, begin);
    place = pen_extent_map_find(map, written->first);
  }
  while ((extent = extent_at(map, place, written->past)) && extent->past <= written->past)
    place = remove_extent(map, place);
  if (extent) extent->first = written->past;
  insert_extent(map, place, *written);
}

size_t pen_extent_map_size(const struct pen_extent_map *map) {
  size_t extents = 0;
  for (size_t i = 0; i < map->count; i++) extents += map->list[i]->count;
  return extents;
}

void pen_extent_map_clear(struct pen_extent_map *map) {
  map->reserve += map->count;
  map->count = 0;
}

void pen_extent_map_free(struct pen_extent_map *map) {
  for (size_t i = 0; i < map->count + map->reserve; i++) pen_free(map->list[i]);
  pen_free(map->list);
  *map = (struct pen_extent_map){0};
}

static void grow_slots(struct pen_address_map *map) {
  pen_free(map->slot);
  map->slots = map->slots ? 4 * map->slots : 1024;
  map->slot = pen_new(map->slots, sizeof *map->slot);
  for (uint32_t number = 0; number < map->count; number++)
    map->slot[pen_address_map_slot(map, map->address[number])] = number + 1;
}

uint32_t pen_address_map_insert(struct pen_address_map *map, uint64_t address) {
  if (2 * (map->count + 1) > map->slots) grow_slots(map);
  PEN_RESERVE(map->address, map->count + 1);
  map->address[map->count++] = address;
  map->slot[pen_address_map_slot(map, address)] = (uint32_t)map->count;
  return map->last = (uint32_t)map->count - 1;
}

void pen_address_map_sort(struct pen_address_map *map) {
  struct pen_keyed *sorted = pen_new(map->count + 1, sizeof *sorted);
  for (uint32_t number = 0; number < map->count; number++)
    sorted[number] = (struct pen_keyed){map->address[number], number};
  pen_sort(sorted, map->count);
  map->range = pen_new(map->count + 1, sizeof *map->range);
  for (uint32_t index = 0; index < map->count; index++) map->range[sorted[index].index] = index;
  pen_free(sorted);
}

uint32_t pen_address_map_at(const struct pen_address_map *map, uint64_t address) {
  return map->range[map->slot[pen_address_map_slot(map, address)] - 1];
}

void pen_address_map_free(struct pen_address_map *map) {
  pen_free(map->address);
  pen_free(map->slot);
  pen_free(map->range);
}
