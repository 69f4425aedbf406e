/* crc32.h: the CRC-32 of zlib, PNG and Ethernet (ISO 3309: polynomial 0x04c11db7, bits reversed),
 * which finds any burst of up to 32 wrong bits. */
#ifndef PEN_CRC32_H
#define PEN_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Of `bytes` after what gave `before`; 0 at first. Allocates nothing. */
uint32_t pen_crc32(uint32_t before, const void *bytes, size_t count);

#endif
