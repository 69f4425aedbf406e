/* address_map.c: a hash table of addresses, then their order. */
#include "gen/verify/address_map.h"

#include "gen/base/arena.h"
#include "gen/base/sort.h"

/* The slot of an address, or the free slot that it would get. */
static size_t find_slot(const struct pen_address_map *map, uint64_t address) {
  uint64_t hash = address * 0x9e3779b97f4a7c15u;
  size_t slot = (size_t)(hash >> 20) & (map->slots - 1);
  while (map->slot[slot] && map->address[map->slot[slot] - 1] != address)
    slot = (slot + 1) & (map->slots - 1);
  return slot;
}

static void grow_slots(struct pen_address_map *map) {
  pen_free(map->slot);
  map->slots = map->slots ? 4 * map->slots : 1024;
  map->slot = pen_new(map->slots, sizeof *map->slot);
  for (uint32_t number = 0; number < map->count; number++)
    map->slot[find_slot(map, map->address[number])] = number + 1;
}

uint32_t pen_address_map_insert(struct pen_address_map *map, uint64_t address) {
  if (2 * (map->count + 1) > map->slots) grow_slots(map);
  size_t slot = find_slot(map, address);
  if (map->slot[slot]) return map->last = map->slot[slot] - 1;
  map->address = pen_grow(map->address, &map->capacity, map->count + 1, sizeof *map->address);
  map->address[map->count++] = address;
  map->slot[slot] = (uint32_t)map->count;
  return map->last = (uint32_t)map->count - 1;
}

struct pen_byte_ranges pen_address_map_add_range(struct pen_address_map *map, uint64_t first,
                                                 uint64_t past) {
  uint32_t number = pen_address_map_add(map, first);
  return (struct pen_byte_ranges){number, pen_address_map_add(map, past)};
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
  return map->range[map->slot[find_slot(map, address)] - 1];
}

void pen_address_map_free(struct pen_address_map *map) {
  pen_free(map->address);
  pen_free(map->slot);
  pen_free(map->range);
}
