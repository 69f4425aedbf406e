/* extent_map.h: which bytes of an arena hold which tensor, while a program is traced. */
#ifndef PEN_EXTENT_MAP_H
#define PEN_EXTENT_MAP_H

#include <stddef.h>
#include <stdint.h>

/* A range of bytes that holds a tensor. `first`, `past`: arena offsets; memory.c replaces them by
 * indices of byte ranges. */
struct pen_extent {
  uint64_t first, past;
  uint32_t tensor; /* PEN_NONE: what no other action may read */
  uint8_t base;    /* enum pen_base: what its address counts from */
};

/* Disjoint extents by rising address, in short lists, so that a write moves few of them: a program
 * of thousands of layers leaves ten thousands. All zero: an empty map. */
struct pen_extent_map {
  struct pen_extent_list **list; /* none of the first `count` is empty; the others are reserve */
  size_t count, reserve;
};

/* A place in the map; valid until the next write. */
struct pen_extent_place {
  size_t list, index;
};

/* The first extent that ends after `offset`. */
struct pen_extent_place pen_extent_map_find(const struct pen_extent_map *map, uint64_t offset);
/* The extent at a place, which moves to the next one; NULL: the map ends, or the extent begins at
 * `past` or after it. */
const struct pen_extent *pen_extent_map_next(const struct pen_extent_map *map,
                                             struct pen_extent_place *place, uint64_t past);
/* Writes an extent over what the map holds at its bytes. */
void pen_extent_map_write(struct pen_extent_map *map, const struct pen_extent *written);
size_t pen_extent_map_size(const struct pen_extent_map *map); /* how many extents it has */
void pen_extent_map_clear(struct pen_extent_map *map);        /* keeps its memory */
void pen_extent_map_free(struct pen_extent_map *map);

/* Splits an arena into byte ranges at every address where something begins or ends. Add every
 * address; sort; then each address has the index of the range that begins there, by rising address.
 */
struct pen_address_map {
  uint64_t *address; /* [number], in the order in which they were added */
  uint32_t *range;   /* [number]: index of the range that begins there, once sorted */
  uint32_t *slot;    /* hash table: number + 1; 0: free */
  size_t slots, count;
  uint32_t last; /* the number that was found last: extents are often adjacent */
};

/* Ranges [first, past); before the map is sorted, the numbers of the two addresses. */
struct pen_byte_ranges {
  uint32_t first, past;
};

/* The slot of an address, or the free slot that it would get; not of an empty map. */
static inline size_t pen_address_map_slot(const struct pen_address_map *map, uint64_t address) {
  uint64_t hash = address * 0x9e3779b97f4a7c15u;
  size_t slot = (size_t)(hash >> 20) & (map->slots - 1);
  while (map->slot[slot] && map->address[map->slot[slot] - 1] != address)
    slot = (slot + 1) & (map->slots - 1);
  return slot;
}

/* Adds an address that is not in the map; returns its number. */
uint32_t pen_address_map_insert(struct pen_address_map *map, uint64_t address);

/* Adds an address unless it is in the map; returns its number. Inline, as the next one: a twentieth
 * of the verifier's time. */
static inline uint32_t pen_address_map_add(struct pen_address_map *map, uint64_t address) {
  if (map->count == 0) return pen_address_map_insert(map, address);
  if (map->address[map->last] == address) return map->last;
  uint32_t number = map->slot[pen_address_map_slot(map, address)];
  return number ? (map->last = number - 1) : pen_address_map_insert(map, address);
}

/* Adds both ends of [first, past). */
static inline struct pen_byte_ranges pen_address_map_add_range(struct pen_address_map *map,
                                                               uint64_t first, uint64_t past) {
  uint32_t number = pen_address_map_add(map, first);
  return (struct pen_byte_ranges){number, pen_address_map_add(map, past)};
}

void pen_address_map_sort(struct pen_address_map *map);
/* The range that begins at an address, which was added. */
uint32_t pen_address_map_at(const struct pen_address_map *map, uint64_t address);
void pen_address_map_free(struct pen_address_map *map);

#endif
