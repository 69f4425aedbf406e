/* sort.h: sorts indices by 64-bit keys. */
#ifndef PEN_SORT_H
#define PEN_SORT_H

#include <stddef.h>
#include <stdint.h>

struct pen_keyed {
  uint64_t key;
  uint32_t index;
};

/* Sorts by key, ascending; the sort is stable. */
void pen_sort(struct pen_keyed *list, size_t count);

#endif
