/* address_map.c: a hash table of addresses, then their order. */
#include "gen/verify/address_map.h"

#include "gen/base/arena.h"
#include "gen/base/sort.h"

static void grow_slots(struct pen_address_map *map) {
  pen_free(map->slot);
  map->slots = map->slots ? 4 * map->slots : 1024;
  map->slot = pen_new(map->slots, sizeof *map->slot);
  for (uint32_t number = 0; number < map->count; number++)
    map->slot[pen_address_map_slot(map, map->address[number])] = number + 1;
}

uint32_t pen_address_map_insert(struct pen_address_map *map, uint64_t address) {
  if (2 * (map->count + 1) > map->slots) grow_slots(map);
  map->address = pen_grow(map->address, &map->capacity, map->count + 1, sizeof *map->address);
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
