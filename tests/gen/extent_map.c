/* extent_map.c: the map of written bytes holds what an array with the tensor of each byte holds. */
#include "gen/verify/extent_map.h"
#include "tests/support/plans.h"

enum { BYTES = 5000, WRITES = 20000 };

static void holds_what_was_written_last(void **state) {
  (void)state;
  static uint32_t holds[BYTES]; /* tensor + 1; 0: none */
  struct pen_extent_map map = {0};
  uint64_t seed = 1;
  for (uint32_t n = 0; n < WRITES; n++) {
    uint64_t first = draw(&seed, BYTES), most = n % 1000 == 0 ? BYTES : 1 + draw(&seed, 4),
             past = first + most < BYTES ? first + most : BYTES;
    pen_extent_map_write(&map, &(struct pen_extent){first, past, n, 0});
    for (uint64_t at = first; at < past; at++) holds[at] = n + 1;
    first = draw(&seed, BYTES);
    past = first + (n % 100 == 0 ? BYTES : 10);
    struct pen_extent_place place = pen_extent_map_find(&map, first);
    uint64_t at = first;
    for (const struct pen_extent *extent; (extent = pen_extent_map_next(&map, &place, past));) {
      for (; at < extent->first; at++) assert_int_equal(holds[at], 0);
      assert_true(at < extent->past);
      for (; at < extent->past && at < past; at++) assert_int_equal(holds[at], extent->tensor + 1);
    }
    for (; at < past && at < BYTES; at++) assert_int_equal(holds[at], 0);
  }
  size_t extents = 0;
  for (struct pen_extent_place place = {0}; pen_extent_map_next(&map, &place, BYTES);) extents++;
  assert_int_equal(extents, pen_extent_map_size(&map));
  assert_true(extents > 1000); /* in several lists */
  pen_extent_map_clear(&map);
  assert_int_equal(pen_extent_map_size(&map), 0);
  pen_extent_map_write(&map, &(struct pen_extent){1, 2, 3, 0});
  assert_int_equal(pen_extent_map_size(&map), 1);
  pen_extent_map_free(&map);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(holds_what_was_written_last)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
