/* mock_device_copies.c: the bytes that go from one process to another in a step: what the recorded
 * calls copy, send, put, or read in the memory of another process (see mock_device.h). */
#include <stdlib.h>
#include <string.h>

#include "tests/emulation/mock_device_recording.h"

/* All copies of as many bytes between the same processes. */
struct copies {
  uint32_t from, to, count;
  uint64_t bytes;
};

enum { COPIES_MAX = 1 << 14 };
static struct copies all[COPIES_MAX];
static uint32_t all_count;

void mock_device_copied(uint32_t from, uint32_t to, uint64_t bytes) {
  if (!recording.keeps || from == to || bytes == 0) {
    return;
  }
  uint32_t i = 0;
  while (i < all_count && !(all[i].from == from && all[i].to == to && all[i].bytes == bytes)) {
    i++;
  }
  must(i < COPIES_MAX, "copies of too many sizes");
  all_count += i == all_count;
  all[i] = (struct copies){from, to, all[i].count + 1, bytes};
}

void mock_device_copies_begin(void) {
  memset(all, 0, sizeof all);
  all_count = 0;
}

static int compare(const void *one, const void *other) {
  const struct copies *a = one, *b = other;
  return a->from != b->from ? (a->from > b->from) - (a->from < b->from)
         : a->to != b->to   ? (a->to > b->to) - (a->to < b->to)
                            : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

void mock_device_copies_print(uint32_t profile, const char *link) {
  qsort(all, all_count, sizeof *all, compare);
  for (uint32_t i = 0; i < all_count; i++) {
    if (i == 0 || all[i].from != all[i - 1].from || all[i].to != all[i - 1].to) {
      printf("%s%u %s %u %u", i == 0 ? "" : "\n", profile, link, all[i].from, all[i].to);
    }
    printf(" %llu*%u", (unsigned long long)all[i].bytes, all[i].count);
  }
  printf("%s", all_count == 0 ? "" : "\n");
}
