/* key.h: the key of a named stream of random numbers. */
#ifndef PEN_KEY_H
#define PEN_KEY_H

#include <stdint.h>

/* The key of pen_normal()'s generator for a named stream: the first 8 bytes of SHA-256(seed as 8
 * little-endian bytes, name), read as two little-endian 32-bit words. It depends on nothing else.
 */
void pen_key(uint32_t key[2], uint64_t seed, const char *name);

#endif
