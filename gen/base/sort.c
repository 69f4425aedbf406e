/* sort.c: LSD radix sort (Knuth, The Art of Computer Programming 3, 5.2.5) by 8-bit digits, without
 * the digits in which all keys agree. It is stable, and since it does not compare keys, no branch
 * is mispredicted. Short lists are sorted by insertion. */
#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/sort.h"

enum { DIGIT_BITS = 8, DIGITS = 64 / DIGIT_BITS, VALUES = 1 << DIGIT_BITS, FEW = 32 };

static uint32_t digit_of(uint64_t key, int digit) {
  return key >> (digit * DIGIT_BITS) & (VALUES - 1);
}

static void insert_each(struct pen_keyed *list, size_t count) {
  for (size_t i = 1; i < count; i++) {
    struct pen_keyed item = list[i];
    size_t at = i;
    for (; at && list[at - 1].key > item.key; at--) list[at] = list[at - 1];
    list[at] = item;
  }
}

void pen_sort(struct pen_keyed *list, size_t count) {
  if (count <= FEW) {
    insert_each(list, count);
    return;
  }
  uint64_t differ = 0;
  for (size_t i = 1; i < count; i++) differ |= list[i].key ^ list[0].key;
  struct pen_keyed *other = pen_new(count, sizeof *other), *from = list, *to = other;
  for (int digit = 0; digit < DIGITS; digit++) {
    if (!digit_of(differ, digit)) continue;
    size_t place[VALUES] = {0}, before = 0;
    for (size_t i = 0; i < count; i++) place[digit_of(from[i].key, digit)]++;
    for (int value = 0; value < VALUES; value++) {
      size_t here = place[value];
      place[value] = before;
      before += here;
    }
    for (size_t i = 0; i < count; i++) to[place[digit_of(from[i].key, digit)]++] = from[i];
    struct pen_keyed *swapped = from;
    from = to;
    to = swapped;
  }
  if (from != list) memcpy(list, from, count * sizeof *list);
  pen_free(other);
}
