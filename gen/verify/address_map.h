/* address_map.h: splits an arena into byte ranges at every address where something begins or ends.
 *
 * Add every address; sort; then each address has the index of the range that begins there, by
 * rising address. */
#ifndef PEN_ADDRESS_MAP_H
#define PEN_ADDRESS_MAP_H

#include <stddef.h>
#include <stdint.h>

struct pen_address_map {
  uint64_t *address; /* [number], in the order in which they were added */
  uint32_t *range;   /* [number]: index of the range that begins there, once sorted */
  uint32_t *slot;    /* hash table: number + 1; 0: free */
  size_t slots, count, capacity;
  uint32_t last; /* the number that was found last: extents are often adjacent */
};

/* Ranges [first, past); before the map is sorted, the numbers of the two addresses. */
struct pen_byte_ranges {
  uint32_t first, past;
};

/* Adds an address that is not the last one; returns its number. */
uint32_t pen_address_map_insert(struct pen_address_map *map, uint64_t address);
/* Adds an address unless it is known; returns its number. */
static inline uint32_t pen_address_map_add(struct pen_address_map *map, uint64_t address) {
  if (map->count > 0 && map->address[map->last] == address) return map->last;
  return pen_address_map_insert(map, address);
}
/* Adds both ends of [first, past). */
struct pen_byte_ranges pen_address_map_add_range(struct pen_address_map *map, uint64_t first,
                                                 uint64_t past);

void pen_address_map_sort(struct pen_address_map *map);
/* The range that begins at an address, which was added. */
uint32_t pen_address_map_at(const struct pen_address_map *map, uint64_t address);
void pen_address_map_free(struct pen_address_map *map);

#endif
