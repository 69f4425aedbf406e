/* arena.h: memory of the generator. It lives until pen_free_all(), or pen_arena_release(). A
 * function that cannot allocate ends the generator (78); none returns null. */
#ifndef PEN_ARENA_H
#define PEN_ARENA_H

#include <stdio.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *pen_new(size_t count, size_t bytes); /* zeroed; fails if count * bytes overflows */

/* The bytes that an array of pen_new() or PEN_RESERVE() has, which stand before it; null has none.
 */
static inline size_t pen_array_bytes(const void *array) {
  return array ? ((const size_t *)array)[-1] : 0;
}

/* Makes room for so many elements in an array, which may be null: doubles it until it has them; the
 * new part is zeroed. */
#define PEN_RESERVE(array, needed)                                \
  ((array) = (needed) * sizeof *(array) <= pen_array_bytes(array) \
                 ? (array)                                        \
                 : pen_grow(array, needed, sizeof *(array)))
void *pen_grow(void *array, size_t needed, size_t bytes);

/* Formats a text, which must not be freed or grown. */
char *pen_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

void pen_free(void *array); /* frees a large array early; null is allowed */
void pen_free_all(void);

/* A mark, and the release of all that was allocated after it; marks are released in reverse order.
 * Do not grow an array from before the mark in between. */
struct pen_arena_mark *pen_arena_mark(void);
void pen_arena_release(struct pen_arena_mark *mark);

/* Whether a word is one of those that blanks separate. */
bool pen_has_word(const char *words, const char *word);
bool pen_ends_in(const char *text, const char *ending, size_t ending_bytes);
char *pen_hex(const uint8_t *bytes, size_t count); /* two lower-case hexadecimal digits per byte */

#endif
