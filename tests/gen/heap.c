/* heap.c: a heap returns its items by key, then by order, however pushes and pops alternate. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gen/base/arena.h"
#include "gen/base/heap.h"

enum { ITEMS = 300, ROUNDS = 200, KEYS = 7 };

static uint32_t next_random(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 16;
}

/* The index of the item that comes first: the least key, then the least order. */
static size_t first_of(const struct pen_heap_item *item, size_t count) {
  size_t first = 0;
  for (size_t i = 1; i < count; i++)
    if (item[i].key < item[first].key ||
        (item[i].key == item[first].key && item[i].order < item[first].order))
      first = i;
  return first;
}

static void check_first(struct pen_heap *heap, struct pen_heap_item *list, size_t *count) {
  const size_t first = first_of(list, *count);
  assert_int_equal(heap->item[0].value, list[first].value);
  assert_int_equal(pen_heap_pop(heap).value, list[first].value);
  list[first] = list[--*count];
}

/* Keys repeat; orders, and so the expected sequence, are unique. */
static void items_leave_by_key_and_order(void **state) {
  (void)state;
  uint32_t random = 1;
  for (int round = 0; round < ROUNDS; round++) {
    struct pen_heap heap = {0};
    struct pen_heap_item list[ITEMS];
    size_t count = 0;
    for (uint32_t i = 0; i < ITEMS; i++) {
      const struct pen_heap_item item = {
          .key = next_random(&random) % KEYS, .order = i * 7919 % ITEMS, .value = i};
      pen_heap_push(&heap, item);
      list[count++] = item;
      if (next_random(&random) % 3 == 0) check_first(&heap, list, &count);
    }
    while (count > 0) check_first(&heap, list, &count);
    assert_int_equal(heap.count, 0);
  }
  pen_free_all();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(items_leave_by_key_and_order)};
  return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
