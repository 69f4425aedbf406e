/* heap.h: a priority queue of indices (a binary heap). */
#ifndef PEN_HEAP_H
#define PEN_HEAP_H

#include <stddef.h>
#include <stdint.h>

/* The least key is first; items with equal keys are in ascending `order`, and those that agree in
 * both have an unspecified but deterministic order. */
struct pen_heap_item {
  double key;
  uint64_t order, value;
};

/* item[0] is the first item. All zero: empty. */
struct pen_heap {
  struct pen_heap_item *item; /* [count] */
  size_t count;
};

void pen_heap_push(struct pen_heap *heap, struct pen_heap_item item);

/* Removes and returns the first item; the heap must not be empty. */
struct pen_heap_item pen_heap_pop(struct pen_heap *heap);

#endif
