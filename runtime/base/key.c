/* key.c: keys of the counter-based generator, derived by SHA-256. */
#include "runtime/base/key.h"

#include <nettle/sha2.h>
#include <string.h>

void pen_key(uint32_t key[2], uint64_t seed, const char *name) {
  unsigned char bytes[8];
  struct sha256_ctx hash;
  for (int i = 0; i < 8; i++) {
    bytes[i] = (unsigned char)(seed >> 8 * i);
  }
  sha256_init(&hash);
  sha256_update(&hash, sizeof bytes, bytes);
  sha256_update(&hash, strlen(name), (const uint8_t *)name);
  sha256_digest(&hash, sizeof bytes, bytes);
  for (int i = 0; i < 2; i++) {
    const unsigned char *b = bytes + 4 * i;
    key[i] = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
  }
}
