/* memory.c: the generator's allocator (nearly everything lives until the end) and its one way to give up. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "gen/gen.h"

/* Every allocation starts with this header, so that all of them can be freed together and a leak checker stays quiet. */
struct block {
  struct block *previous, *next;
};

static struct block all = {&all, &all};

static void link_in(struct block *block) {
  block->previous = &all;
  block->next = all.next;
  all.next->previous = block;
  all.next = block;
}

static size_t checked_bytes(size_t count, size_t bytes) {
  size_t total;
  if (__builtin_mul_overflow(count, bytes, &total) || __builtin_add_overflow(total, sizeof(struct block), &total))
    pen_stop(PEN_EXIT_TOPOLOGY, "penstock-gen: the plan is too large for this machine's memory");
  return total;
}

void *pen_new(size_t count, size_t bytes) {
  struct block *block = calloc(1, checked_bytes(count, bytes));
  if (!block) pen_stop(PEN_EXIT_TOPOLOGY, "penstock-gen: out of memory (%zu x %zu bytes)", count, bytes);
  link_in(block);
  return block + 1;
}

void *pen_grow(void *array, size_t *capacity, size_t needed, size_t bytes) {
  if (needed <= *capacity) return array;
  size_t wanted = *capacity ? *capacity : 16;
  while (wanted < needed) wanted *= 2;
  if (!array) {
    *capacity = wanted;
    return pen_new(wanted, bytes);
  }
  struct block *old = (struct block *)array - 1;
  old->previous->next = old->next;
  old->next->previous = old->previous;
  struct block *block = realloc(old, checked_bytes(wanted, bytes));
  if (!block) pen_stop(PEN_EXIT_TOPOLOGY, "penstock-gen: out of memory (%zu x %zu bytes)", wanted, bytes);
  link_in(block);
  memset((char *)(block + 1) + *capacity * bytes, 0, (wanted - *capacity) * bytes);
  *capacity = wanted;
  return block + 1;
}

char *pen_text(const char *format, ...) {
  va_list list, again;
  va_start(list, format);
  va_copy(again, list);
  int length = vsnprintf(NULL, 0, format, list);
  va_end(list);
  if (length < 0) pen_stop(PEN_EXIT_TOPOLOGY, "penstock-gen: cannot format a text");
  char *text = pen_new((size_t)length + 1, 1);
  vsnprintf(text, (size_t)length + 1, format, again);
  va_end(again);
  return text;
}

char *pen_hex(const uint8_t *bytes, size_t count) {
  char *text = pen_new(2 * count + 1, 1);
  for (size_t i = 0; i < count; i++) sprintf(text + 2 * i, "%02x", bytes[i]);
  return text;
}

void pen_free(void *array) {
  if (!array) return;
  struct block *block = (struct block *)array - 1;
  block->previous->next = block->next;
  block->next->previous = block->previous;
  free(block);
}

void pen_free_all(void) {
  while (all.next != &all) {
    struct block *block = all.next;
    all.next = block->next;
    free(block);
  }
  all.previous = &all;
}

void pen_stop(int status, const char *format, ...) {
  va_list list;
  fflush(stdout);
  va_start(list, format);
  vfprintf(stderr, format, list);
  va_end(list);
  fputc('\n', stderr);
  pen_free_all();
  exit(status);
}
