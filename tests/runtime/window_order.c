/* window_order.c: a shuffled epoch reads every window once, whatever their number; its order
 * depends on seed and epoch alone; no order of few windows is preferred; the file's own order is as
 * it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/data/window_order.h"

static void test_an_epoch_reads_every_window_once(void **state) {
  (void)state;
  static const uint64_t counts[] = {1,  2,  3,  4,  5,   7,   8,   13,  15,   16,   17,   31,
                                    63, 64, 65, 97, 127, 255, 256, 257, 1000, 1024, 1031, 65537};
  for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
    unsigned char *times = calloc(counts[c], 1);
    assert_non_null(times);
    for (uint64_t seed = 0; seed < 3; seed++) {
      const struct pen_window_order order = pen_window_order_shuffled(seed, 0);
      for (uint64_t epoch = 0; epoch < 3; epoch++) {
        memset(times, 0, counts[c]);
        for (uint64_t place = 0; place < counts[c]; place++) {
          const uint64_t window = pen_window_at(&order, epoch * counts[c] + place, counts[c]);
          assert_true(window < counts[c]);
          assert_int_equal(times[window]++, 0);
        }
      }
    }
    free(times);
  }
}

/* Windows that belong together are read one after the other, each once. */
static void test_groups_stay_together(void **state) {
  (void)state;
  enum { GROUP = 3, COUNT = 300 };
  unsigned char times[COUNT] = {0};
  uint64_t moved = 0;
  struct pen_window_order order = pen_window_order_shuffled(5, 0);
  order.group = GROUP;
  for (uint64_t place = 0; place < COUNT; place++) {
    const uint64_t window = pen_window_at(&order, COUNT + place, COUNT);
    assert_true(window < COUNT && window % GROUP == place % GROUP);
    assert_int_equal(times[window]++, 0);
    assert_int_equal(window / GROUP,
                     pen_window_at(&order, COUNT + place / GROUP * GROUP, COUNT) / GROUP);
    moved += window != place;
  }
  assert_true(moved > COUNT / 2);
}

/* How many of an epoch's places have the same window in both orders. */
static uint64_t places_shared(const struct pen_window_order *a, uint64_t epoch_a,
                              const struct pen_window_order *b, uint64_t epoch_b, uint64_t count) {
  uint64_t shared = 0;
  for (uint64_t place = 0; place < count; place++) {
    shared += pen_window_at(a, epoch_a * count + place, count) ==
              pen_window_at(b, epoch_b * count + place, count);
  }
  return shared;
}

/* Two random orders share one place on average, 20 with a probability below 1e-18. */
static void test_seeds_and_epochs_have_orders_of_their_own(void **state) {
  (void)state;
  enum { COUNT = 1000, SHARED_MAX = 20 };
  const struct pen_window_order plain = {.shuffled = false},
                                seven = pen_window_order_shuffled(7, 0),
                                again = pen_window_order_shuffled(7, 0),
                                eight = pen_window_order_shuffled(8, 0);
  assert_int_equal(places_shared(&seven, 0, &again, 0, COUNT), COUNT);
  assert_true(places_shared(&seven, 0, &plain, 0, COUNT) < SHARED_MAX);
  assert_true(places_shared(&seven, 0, &eight, 0, COUNT) < SHARED_MAX);
  assert_true(places_shared(&seven, 0, &seven, 1, COUNT) < SHARED_MAX);
  assert_true(places_shared(&seven, 1, &seven, UINT64_C(1) << 40, COUNT) < SHARED_MAX);
}

/* Windows that follow each other in the file do not at any one distance. */
static void test_distances_differ(void **state) {
  (void)state;
  enum { COUNT = 1031 };
  static unsigned times[COUNT];
  const struct pen_window_order order = pen_window_order_shuffled(1, 0);
  for (uint64_t place = 0; place + 1 < COUNT; place++) {
    const uint64_t here = pen_window_at(&order, place, COUNT),
                   next = pen_window_at(&order, place + 1, COUNT);
    times[(next + COUNT - here) % COUNT]++;
  }
  for (size_t d = 0; d < COUNT; d++) {
    assert_true(times[d] < 12); /* one on average */
  }
}

/* Over many epochs each order of four windows is drawn about as often as any other: 24 orders, a
 * chi-square of 23 degrees of freedom, whose value is above 70 with a probability of 1e-6. */
static void test_no_order_of_four_is_preferred(void **state) {
  (void)state;
  enum { COUNT = 4, EPOCHS = 24000, EXPECTED = EPOCHS / 24 };
  unsigned times[COUNT * COUNT * COUNT * COUNT] = {0}, orders = 0;
  const struct pen_window_order order = pen_window_order_shuffled(3, 0);
  for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
    size_t drawn = 0;
    for (uint64_t place = 0; place < COUNT; place++) {
      drawn = COUNT * drawn + pen_window_at(&order, epoch * COUNT + place, COUNT);
    }
    times[drawn]++;
  }
  double chi_square = 0;
  for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
    const double away = (double)times[i] - EXPECTED;
    chi_square += times[i] == 0 ? 0 : away * away / EXPECTED;
    orders += times[i] > 0;
  }
  assert_int_equal(orders, 24);
  assert_true(chi_square < 70);
}

/* Runs that were begun continue in the same order: these are part of the format of checkpoints. */
static void test_the_order_stays(void **state) {
  (void)state;
  static const uint64_t first[] = {5, 7, 9, 6, 0, 8, 1, 4, 3, 2},
                        second[] = {4, 1, 2, 3, 6, 8, 0, 9, 5, 7};
  const struct pen_window_order order = pen_window_order_shuffled(7, 0);
  for (uint64_t place = 0; place < 10; place++) {
    assert_int_equal(pen_window_at(&order, place, 10), first[place]);
    assert_int_equal(pen_window_at(&order, 10 + place, 10), second[place]);
  }
}

static void test_without_it_windows_follow_each_other(void **state) {
  (void)state;
  const struct pen_window_order order = {.shuffled = false};
  for (uint64_t position = 0; position < 30; position++) {
    assert_int_equal(pen_window_at(&order, position, 7), position % 7);
  }
}

/* The largest numbers that a cursor may have. */
static void test_many_windows(void **state) {
  (void)state;
  const struct pen_window_order order = pen_window_order_shuffled(UINT64_MAX, 0);
  for (unsigned bits = 1; bits < 64; bits++) {
    for (int64_t more = -1; more <= 1; more++) {
      const uint64_t count = (UINT64_C(1) << bits) + (uint64_t)more;
      assert_true(pen_window_at(&order, count - 1, count) < count);
      assert_true(pen_window_at(&order, UINT64_MAX, count) < count);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_an_epoch_reads_every_window_once),
      cmocka_unit_test(test_groups_stay_together),
      cmocka_unit_test(test_seeds_and_epochs_have_orders_of_their_own),
      cmocka_unit_test(test_distances_differ),
      cmocka_unit_test(test_no_order_of_four_is_preferred),
      cmocka_unit_test(test_the_order_stays),
      cmocka_unit_test(test_without_it_windows_follow_each_other),
      cmocka_unit_test(test_many_windows),
  };
  cmocka_set_message_output(CM_OUTPUT_TAP);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
