/* target_mask.c: counts the targets of a mask (see target_mask.h). */
#include "runtime/data/target_mask.h"

#include <string.h>

uint64_t pen_target_mask_count(const unsigned char *mask, uint64_t first, uint64_t count) {
  if (mask == NULL) {
    return count;
  }
  const uint64_t past = first + count;
  uint64_t targets = 0;
  while (first < past) {
    uint64_t word;
    if (first % 8 == 0 && past - first >= 64) { /* steps have many tokens */
      memcpy(&word, mask + first / 8, sizeof word);
      targets += (uint64_t)__builtin_popcountll(word);
      first += 64;
    } else {
      targets += pen_target_counts(mask, first++);
    }
  }
  return targets;
}
