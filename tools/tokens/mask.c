/* mask.c: the mask of a token file, collected while tokens are written (see tokens.h), and the
 * arrays that grow with the input. */
#include <stdlib.h>
#include <sysexits.h>

#include "runtime/data/target_mask.h"
#include "tools/tokens/tokens.h"

void *tokens_grow_array(void *array, size_t *capacity, size_t count, size_t bytes) {
  if (count <= *capacity) {
    return array;
  }
  *capacity = 2 * *capacity < count ? count : 2 * *capacity;
  array = reallocarray(array, *capacity, bytes);
  if (array == NULL) {
    tokens_fail(EX_OSERR, "out of memory");
  }
  return array;
}

void tokens_mask_add(struct tokens_mask *mask, const uint32_t *tokens, size_t count) {
  if (!mask->exists) {
    return;
  }
  mask->bits =
      tokens_grow_array(mask->bits, &mask->capacity,
                        pen_target_mask_bytes(mask->token_count + count), sizeof *mask->bits);
  for (size_t i = 0; i < count; i++, mask->token_count++) {
    const bool counts = (tokens[i] & TOKENS_IGNORED) == 0;
    const unsigned bit = mask->token_count % 8;
    unsigned char *byte = &mask->bits[mask->token_count / 8];
    *byte = (unsigned char)((bit == 0 ? 0u : *byte) | (unsigned)counts << bit);
    mask->target_count += counts;
  }
}
