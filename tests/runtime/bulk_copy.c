/* bulk_copy.c: both ways to copy a large message copy alike, and the faster one is used, also after
 * the other one has become faster. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/comm/bulk_copy.h"

enum { ROOM = 1024, COPIES = 4096, NOTED = 40 };

static void test_both_ways_copy_alike(void **state) {
  (void)state;
  static unsigned char from[ROOM], to[ROOM];
  for (int i = 0; i < ROOM; i++) {
    from[i] = (unsigned char)(i * 37 + 1);
  }
  for (uint64_t bytes = 0; bytes <= ROOM - 64; bytes++) {
    for (uint64_t offset = 0; offset < 64; offset += 8) {
      for (int way = 0; way < PEN_COPY_WAY_COUNT; way++) {
        memset(to, 0, sizeof to);
        pen_copy(to + offset, from + 64 - offset, bytes, (enum pen_copy_way)way);
        assert_memory_equal(to + offset, from + 64 - offset, bytes);
        assert_true(offset == 0 || to[offset - 1] == 0);
        assert_true(offset + bytes == ROOM || to[offset + bytes] == 0);
      }
    }
  }
}

/* How many of COPIES copies are streamed where the two ways take these times. */
static int copy_all(struct pen_bulk_copy *copies, double cached, double streamed) {
  int streamed_count = 0;
  for (int i = 0; i < COPIES; i++) {
    const enum pen_copy_way way = pen_copy_way_next(copies);
    streamed_count += way == PEN_COPY_STREAMED;
    pen_copy_way_add(copies, way == PEN_COPY_STREAMED ? streamed : cached);
  }
  return streamed_count;
}

static void test_the_faster_way_is_used(void **state) {
  (void)state;
  struct pen_bulk_copy copies = {0};
  assert_in_range(copy_all(&copies, 1.0, 2.0), COPIES / 100, COPIES / 20);
  assert_in_range(copy_all(&copies, 4.0, 2.0), COPIES * 9 / 10, COPIES * 99 / 100);
  assert_in_range(copy_all(&copies, 1.0, 2.0), COPIES / 100, COPIES / 2);
  assert_in_range(copy_all(&copies, 1.0, 2.0), COPIES / 100, COPIES / 20);
}

static void test_slow_copies_between_others_change_nothing(void **state) {
  (void)state;
  struct pen_bulk_copy copies = {0};
  copy_all(&copies, 1.0, 2.0);
  for (int i = 0; i < 10; i++) {
    pen_copy_way_add(&copies, i % 2 == 0 ? 5.0 : 1.0);
  }
  assert_in_range(copy_all(&copies, 1.0, 2.0), COPIES / 100, COPIES / 20);
}

static void test_sizes_are_apart(void **state) {
  (void)state;
  assert_int_equal(pen_bulk_size_index(PEN_BULK_BYTES_MIN), 0);
  assert_int_equal(pen_bulk_size_index(2 * PEN_BULK_BYTES_MIN - 1), 0);
  assert_int_equal(pen_bulk_size_index(2 * PEN_BULK_BYTES_MIN), 1);
  assert_int_equal(pen_bulk_size_index(UINT64_MAX), PEN_BULK_SIZES - 1);
}

static void test_a_bulk_copy_is_noted(void **state) {
  (void)state;
  static unsigned char from[PEN_BULK_BYTES_MIN + 3], to[PEN_BULK_BYTES_MIN + 3];
  struct pen_bulk_copy copies = {0};
  for (int i = 0; i < NOTED; i++) {
    _Atomic uint32_t there = 0;
    memset(from, i + 1, sizeof from);
    pen_copy_bulk(&copies, to, from, sizeof from, i % 2 == 0 ? NULL : &there);
    assert_memory_equal(to, from, sizeof from);
    assert_int_equal(there, i % 2 == 0 ? 0 : sizeof from);
  }
  assert_int_equal(copies.count, NOTED);
  assert_true(copies.ns_per_byte[PEN_COPY_CACHED] > 0);
  assert_true(copies.ns_per_byte[PEN_COPY_STREAMED] > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_both_ways_copy_alike),
      cmocka_unit_test(test_the_faster_way_is_used),
      cmocka_unit_test(test_slow_copies_between_others_change_nothing),
      cmocka_unit_test(test_sizes_are_apart),
      cmocka_unit_test(test_a_bulk_copy_is_noted),
  };
  return cmocka_run_group_tests_name("bulk_copy", tests, NULL, NULL);
}
