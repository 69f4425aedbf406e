/* target_mask.h: which tokens of a token file are targets that count: a bit each in the order of
 * the tokens, 1 where the token counts, from the lowest bit of each byte on; unused bits of the
 * last byte are 0. A null mask is that of a file without one: every token counts. */
#ifndef PEN_TARGET_MASK_H
#define PEN_TARGET_MASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the mask of so many tokens. */
static inline uint64_t pen_target_mask_bytes(uint64_t token_count) { return (token_count + 7) / 8; }

/* Whether the token counts as a target. */
static inline bool pen_target_counts(const unsigned char *mask, uint64_t token) {
  return mask == NULL || (mask[token / 8] >> token % 8 & 1) != 0;
}

/* How many of the tokens [first, first + count) count. */
uint64_t pen_target_mask_count(const unsigned char *mask, uint64_t first, uint64_t count);

#endif
