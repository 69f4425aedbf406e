/* crc32.c: CRC-32 eight bytes at a time, by tables (Kounavis and Berry 2008, "slicing-by-8"). */
#include "runtime/base/crc32.h"

#include <stdbool.h>

enum { SLICES = 8 };

/* remainder[s][b]: what byte b leaves when s more bytes follow it. */
static uint32_t remainder_of[SLICES][256];

static void fill_tables(void) {
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; bit++) {
      rest = rest >> 1 ^ (rest & 1 ? 0xedb88320u : 0);
    }
    remainder_of[0][byte] = rest;
  }
  for (int slice = 1; slice < SLICES; slice++) {
    for (uint32_t byte = 0; byte < 256; byte++) {
      uint32_t rest = remainder_of[slice - 1][byte];
      remainder_of[slice][byte] = rest >> 8 ^ remainder_of[0][rest & 0xff];
    }
  }
}

uint32_t pen_crc32(uint32_t before, const void *bytes, size_t count) {
  static bool filled;
  if (!filled) {
    fill_tables();
    filled = true;
  }
  const unsigned char *at = bytes;
  uint32_t rest = ~before;
  for (; count >= SLICES; count -= SLICES, at += SLICES) {
    uint32_t low = rest ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                           (uint32_t)at[3] << 24);
    rest = remainder_of[7][low & 0xff] ^ remainder_of[6][low >> 8 & 0xff] ^
           remainder_of[5][low >> 16 & 0xff] ^ remainder_of[4][low >> 24] ^ remainder_of[3][at[4]] ^
           remainder_of[2][at[5]] ^ remainder_of[1][at[6]] ^ remainder_of[0][at[7]];
  }
  for (; count > 0; count--) {
    rest = rest >> 8 ^ remainder_of[0][(rest ^ *at++) & 0xff];
  }
  return ~rest;
}
