/* heap.c: a binary heap in an array: the children of item i are items 2i + 1 and 2i + 2. */
#include "gen/base/heap.h"

#include <stdbool.h>

#include "gen/base/arena.h"

static bool precedes(const struct pen_heap_item *a, const struct pen_heap_item *b) {
  return a->key != b->key ? a->key < b->key : a->order < b->order;
}

void pen_heap_push(struct pen_heap *heap, struct pen_heap_item item) {
  PEN_RESERVE(heap->item, heap->count + 1);
  size_t i = heap->count++;
  for (; i && precedes(&item, &heap->item[(i - 1) / 2]); i = (i - 1) / 2)
    heap->item[i] = heap->item[(i - 1) / 2];
  heap->item[i] = item;
}

struct pen_heap_item pen_heap_pop(struct pen_heap *heap) {
  struct pen_heap_item first = heap->item[0], last = heap->item[--heap->count];
  size_t i = 0;
  for (size_t child = 1; child < heap->count; child = 2 * i + 1) {
    if (child + 1 < heap->count && precedes(&heap->item[child + 1], &heap->item[child])) child++;
    if (!precedes(&heap->item[child], &last)) break;
    heap->item[i] = heap->item[child];
    i = child;
  }
  heap->item[i] = last;
  return first;
}
