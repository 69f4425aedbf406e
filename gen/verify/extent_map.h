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
  size_t count, reserve, capacity;
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

#endif
