/* interval_tree.c: the search for free memory in a buffer finds what a linear search finds, unless
 * it takes too long; pen_sort() sorts as qsort(). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/layout/interval_tree.h"
#include "gen/base/arena.h"
#include "gen/base/sort.h"
#include "tests/support/plans.h"

static bool meet(const struct pen_interval *a, const struct pen_interval *b) {
  for (int p = 0; p < PEN_PROGRAMS; p++) {
    uint32_t first = a->live[p].first > b->live[p].first ? a->live[p].first : b->live[p].first;
    uint32_t last = a->live[p].last < b->live[p].last ? a->live[p].last : b->live[p].last;
    if (first <= last && a->live[p].first <= a->live[p].last && b->live[p].first <= b->live[p].last)
      return true;
  }
  return false;
}

/* The highest offset at which an interval overlaps none of those live at the same time: below the
 * limit, or directly below one of them. UINT64_MAX: none. */
static uint64_t find_slowly(const struct pen_interval *list, size_t count, uint64_t block_bytes,
                            const struct pen_interval *interval) {
  uint64_t best = UINT64_MAX;
  for (size_t i = 0; i <= count; i++) {
    uint64_t end = i < count ? list[i].offset : block_bytes;
    if (end < interval->bytes || (best != UINT64_MAX && end - interval->bytes <= best)) continue;
    bool is_free = true;
    for (size_t k = 0; k < count && is_free; k++)
      is_free = !meet(&list[k], interval) || list[k].offset >= end ||
                list[k].offset + list[k].bytes <= end - interval->bytes;
    if (is_free) best = end - interval->bytes;
  }
  return best;
}

/* Like what block.c asks for: kept from an op on, up to an op, for a few ops of one program,
 * always, or not at all. */
static struct pen_interval random_tenant(uint64_t *seed, uint32_t ops) {
  struct pen_interval interval = {.bytes = 1 + draw(seed, 8)};
  bool scratch = draw(seed, 2);
  int only = (int)draw(seed, PEN_PROGRAMS);
  for (int p = 0; p < PEN_PROGRAMS; p++) {
    uint32_t op = (uint32_t)draw(seed, ops), last = op + (uint32_t)draw(seed, 3);
    const struct pen_live_range ranges[] = {{op, UINT32_MAX}, {0, op}, {0, UINT32_MAX}, {1, 0}};
    interval.live[p] = !scratch    ? ranges[draw(seed, 4)]
                       : p == only ? (struct pen_live_range){op, last}
                                   : (struct pen_live_range){1, 0};
  }
  return interval;
}

static void finds_what_a_linear_search_finds(void **state) {
  (void)state;
  uint64_t seed = 1;
  for (int round = 0; round < 300; round++) {
    uint64_t here = seed;
    struct pen_interval list[120];
    struct pen_interval_tree intervals = {0};
    size_t count = 0, wanted = 1 + draw(&seed, 120);
    uint32_t ops = 1 + (uint32_t)draw(&seed, 40);
    while (count < wanted) {
      struct pen_interval interval = random_tenant(&seed, ops);
      uint64_t slowly = find_slowly(list, count, intervals.bytes, &interval);
      bool found = pen_interval_tree_fit(&intervals, &interval);
      if (found != (slowly != UINT64_MAX) || (found && interval.offset != slowly))
        fail_msg("seed %lu, interval %zu: %lld, not %lld", (unsigned long)here, count,
                 found ? (long long)interval.offset : -1, (long long)slowly);
      if (!found || draw(&seed, 8) == 0)
        interval.offset = intervals.bytes; /* with luck a hole for later */
      pen_interval_tree_add(&intervals, &interval);
      list[count++] = interval;
    }
    pen_interval_tree_free(&intervals);
  }
}

/* Tenants that alternate between two programs, with room below them all for one that is in both: in
 * neither program are they packed, so each is asked; of many not all, and the room is not found. */
static void gives_up_after_a_limit(void **state) {
  (void)state;
  enum { FEW = 1000, MANY = 5000, ROOM = 4 };
  for (size_t count = FEW; count <= MANY; count += MANY - FEW) {
    struct pen_interval_tree intervals = {0};
    const struct pen_live_range never = {1, 0}, always = {0, UINT32_MAX};
    for (size_t i = 0; i < count; i++) {
      struct pen_interval interval = {
          .offset = ROOM + i, .bytes = 1, .live = {never, never, never, never}};
      interval.live[i % 2] = always;
      pen_interval_tree_add(&intervals, &interval);
    }
    struct pen_interval wanted = {.bytes = 1, .live = {always, always, never, never}};
    assert_int_equal(pen_interval_tree_fit(&intervals, &wanted), count == FEW);
    assert_int_equal(wanted.offset, count == FEW ? ROOM - 1 : 0);
    pen_interval_tree_free(&intervals);
  }
}

static int compare_keyed(const void *a, const void *b) {
  const struct pen_keyed *x = a, *y = b;
  return x->key != y->key ? (x->key > y->key) - (x->key < y->key)
                          : (x->index > y->index) - (x->index < y->index);
}

/* By insertion and by digits; keys with few values, for ties, and with all 64 bits. */
static void sorts_as_qsort_does(void **state) {
  (void)state;
  static const size_t counts[] = {0, 1, 32, 33, 5000};
  static const uint64_t factors[] = {0, 1, 0x10001, UINT64_MAX / 700};
  enum { MOST = 5000, KEYS = 700 };
  uint64_t seed = 1;
  struct pen_keyed *list = pen_new(MOST, sizeof *list), *wanted = pen_new(MOST, sizeof *wanted);
  for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
    for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
      for (size_t i = 0; i < counts[c]; i++)
        list[i] = wanted[i] = (struct pen_keyed){draw(&seed, KEYS) * factors[f], (uint32_t)i};
      qsort(wanted, counts[c], sizeof *wanted, compare_keyed);
      pen_sort(list, counts[c]);
      for (size_t i = 0; i < counts[c]; i++)
        if (list[i].key != wanted[i].key || list[i].index != wanted[i].index)
          fail_msg("%zu keys, factor %zu: item %zu", counts[c], f, i);
    }
  pen_free(list);
  pen_free(wanted);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(finds_what_a_linear_search_finds),
                                     cmocka_unit_test(gives_up_after_a_limit),
                                     cmocka_unit_test(sorts_as_qsort_does)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
