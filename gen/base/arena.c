/* arena.c: the generator's allocator.
 *
 * A plan needs thousands of arrays, most of which live until the end; their main cost is the first
 * access to each page. So memory is mapped in large regions, with huge pages if the system has
 * them, and allocated in order; it is zero as mapped. Arrays that are freed early go to a free list
 * of their size and are cleared when they are reused. Sizes are rounded up to four significant
 * bits, so that there are few lists. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h> /* with AddressSanitizer, access to unallocated bytes is an error */
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

#include "gen/base/arena.h"
#include "gen/base/error.h"

enum { ALIGNMENT = 16, DIGITS = 3, LISTS = 64 << DIGITS, TEXT_MAX = 256, TEXTS_BYTES = 1 << 14 };
static const size_t huge_page_bytes = 2u << 20, region_bytes = 64u << 20;

/* A mapped range of addresses, and the part that is still free. */
struct region {
  struct region *before;
  void *map;
  size_t map_bytes;
  char *free, *past;
};

/* The header before every array. */
struct piece {
  size_t room; /* for the array */
  union {
    size_t bytes;       /* of the array (pen_array_bytes()) */
    struct piece *next; /* once it is freed, in the list of that room */
  };
};

static struct region *newest;
static struct piece *freed[LISTS];

/* Short texts share a block without a header each: a plan has thousands of them. */
static char *text_free, *text_past;

/* What pen_arena_release() goes back to. */
struct pen_arena_mark {
  struct region *newest;
  char *free, *text_free, *text_past;
  struct piece *freed[LISTS];
};

static size_t checked_bytes(size_t count, size_t bytes) {
  size_t total, with_all;
  if (__builtin_mul_overflow(count, bytes, &total) ||
      __builtin_add_overflow(total, total / 4 + 2 * huge_page_bytes, &with_all))
    pen_stop(PEN_EXIT_TOPOLOGY,
             "penstock-gen: the plan is too large for this machine's memory: " PEN_PLAN_SETTINGS);
  return total;
}

static int log_of(size_t bytes) { return (int)(8 * sizeof bytes) - 1 - __builtin_clzl(bytes); }

static size_t room_for(size_t bytes) {
  if (bytes < ALIGNMENT) return ALIGNMENT;
  size_t unit = (size_t)1 << (log_of(bytes) > DIGITS ? log_of(bytes) - DIGITS : 0);
  if (unit < ALIGNMENT) unit = ALIGNMENT;
  return (bytes + unit - 1) / unit * unit;
}

static struct piece **list_of(size_t room) {
  int log = log_of(room);
  return &freed[((size_t)log << DIGITS) + (room >> (log - DIGITS)) % (1 << DIGITS)];
}

/* Maps a region with room for at least so many bytes. */
static bool open_region(size_t bytes) {
  size_t wanted =
      bytes + sizeof(struct region) > region_bytes ? bytes + sizeof(struct region) : region_bytes;
  size_t map_bytes = wanted + 2 * huge_page_bytes;
  void *map = mmap(NULL, map_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return false;
  uintptr_t aligned = ((uintptr_t)map + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes;
  struct region *region = (struct region *)aligned;
  madvise(region, map_bytes - (aligned - (uintptr_t)map),
          MADV_HUGEPAGE); /* small pages if this fails */
  char *first = (char *)region + (sizeof *region + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  *region = (struct region){newest, map, map_bytes, first, (char *)map + map_bytes};
  ASAN_POISON_MEMORY_REGION(region->free, (size_t)(region->past - region->free));
  newest = region;
  return true;
}

void *pen_new(size_t count, size_t bytes) {
  size_t wanted = checked_bytes(count, bytes), room = room_for(wanted);
  struct piece **list = list_of(room), *piece = *list;
  if (piece) {
    ASAN_UNPOISON_MEMORY_REGION(piece, sizeof *piece + room);
    *list = piece->next;
    memset(piece + 1, 0, room);
    ASAN_POISON_MEMORY_REGION((char *)(piece + 1) + wanted, room - wanted);
    piece->bytes = wanted;
    return piece + 1;
  }
  if (!newest || (size_t)(newest->past - newest->free) < sizeof *piece + room)
    if (!open_region(sizeof *piece + room)) {
      pen_attempt_end();
      pen_stop(PEN_EXIT_TOPOLOGY,
               "penstock-gen: out of memory (%zu x %zu bytes): " PEN_PLAN_SETTINGS, count, bytes);
    }
  piece = (struct piece *)(void *)newest->free;
  newest->free += sizeof *piece + room;
  ASAN_UNPOISON_MEMORY_REGION(piece, sizeof *piece + wanted);
  *piece = (struct piece){.room = room, .bytes = wanted};
  return piece + 1;
}

/* Extends the array in place. False: it is not the newest, or there is no room. */
static bool extend(void *array, size_t bytes) {
  struct piece *piece = (struct piece *)array - 1;
  size_t room = room_for(bytes);
  char *at = array;
  if (at + piece->room != newest->free || (size_t)(newest->past - at) < room) return false;
  newest->free = at + room;
  *piece = (struct piece){.room = room, .bytes = bytes};
  ASAN_UNPOISON_MEMORY_REGION(at, bytes);
  return true;
}

void *pen_grow(void *array, size_t needed, size_t bytes) {
  const size_t before = pen_array_bytes(array);
  size_t wanted = before >= bytes ? before / bytes : 16;
  while (wanted < needed) wanted *= 2;
  if (!array) return pen_new(wanted, bytes);
  if (extend(array, checked_bytes(wanted, bytes))) return array;
  void *grown = pen_new(wanted, bytes);
  memcpy(grown, array, before);
  pen_free(array);
  return grown;
}

/* Formats %s and %u only, which is all that most names need, in a fraction of vsnprintf's time; -1:
 * another conversion, or too long. */
static int format_name(char *to, size_t room, const char *format, va_list list) {
  size_t used = 0;
  char digits[3 * sizeof(unsigned)];
  for (; *format; format++) {
    if (used + 1 >= room) return -1;
    if (*format != '%') {
      to[used++] = *format;
      continue;
    }
    const char *piece;
    size_t bytes = 0;
    if (*++format == 's') {
      piece = va_arg(list, const char *);
      bytes = strlen(piece);
    } else {
      if (*format != 'u') return -1;
      for (unsigned number = va_arg(list, unsigned); bytes == 0 || number; number /= 10)
        digits[sizeof digits - ++bytes] = (char)('0' + number % 10);
      piece = digits + sizeof digits - bytes;
    }
    if (bytes >= room - used) return -1;
    memcpy(to + used, piece, bytes);
    used += bytes;
  }
  to[used] = 0;
  return (int)used;
}

char *pen_text(const char *format, ...) {
  va_list list, again;
  va_start(list, format);
  va_copy(again, list);
  if (text_past - text_free < TEXT_MAX) {
    text_free = pen_new(TEXTS_BYTES, 1);
    text_past = text_free + TEXTS_BYTES;
  }
  char *text = text_free;
  int length = format_name(text, TEXT_MAX, format, list);
  va_end(list);
  if (length < 0) {
    va_start(list, format);
    length = vsnprintf(text, TEXT_MAX, format, list);
    va_end(list);
  }
  if (length < 0) pen_stop(PEN_EXIT_TOPOLOGY, "penstock-gen: cannot format a text");
  if (length < TEXT_MAX) {
    text_free += length + 1;
  } else {
    text = pen_new((size_t)length + 1, 1);
    vsnprintf(text, (size_t)length + 1, format, again);
  }
  va_end(again);
  return text;
}

bool pen_has_word(const char *words, const char *word) {
  const size_t bytes = strlen(word);
  for (const char *at = words; bytes && (at = strstr(at, word)); at += bytes)
    if ((at == words || at[-1] == ' ') && (at[bytes] == ' ' || at[bytes] == 0)) return true;
  return false;
}

bool pen_ends_in(const char *text, const char *ending, size_t ending_bytes) {
  size_t bytes = strlen(text);
  return ending_bytes <= bytes && memcmp(text + bytes - ending_bytes, ending, ending_bytes) == 0;
}

char *pen_hex(const uint8_t *bytes, size_t count) {
  char *text = pen_new(2 * count + 1, 1);
  for (size_t i = 0; i < count; i++) sprintf(text + 2 * i, "%02x", bytes[i]);
  return text;
}

void pen_free(void *array) {
  if (!array) return;
  struct piece *piece = (struct piece *)array - 1, **list = list_of(piece->room);
  piece->next = *list;
  *list = piece;
  ASAN_POISON_MEMORY_REGION(piece, sizeof *piece + piece->room);
}

static void close_region(void) {
  struct region region = *newest;
  ASAN_UNPOISON_MEMORY_REGION(region.map, region.map_bytes);
  munmap(region.map, region.map_bytes);
  newest = region.before;
}

/* The lists of freed arrays are put aside: what is allocated from now on is after the mark. */
struct pen_arena_mark *pen_arena_mark(void) {
  struct pen_arena_mark *mark = pen_new(1, sizeof *mark);
  *mark = (struct pen_arena_mark){newest, newest->free, text_free, text_past, {0}};
  memcpy(mark->freed, freed, sizeof freed);
  memset(freed, 0, sizeof freed);
  return mark;
}

/* Clears what was used, since pen_new() expects memory as it was mapped. */
void pen_arena_release(struct pen_arena_mark *mark) {
  while (newest != mark->newest) close_region();
  const size_t used = (size_t)(newest->free - mark->free);
  ASAN_UNPOISON_MEMORY_REGION(mark->free, used);
  memset(mark->free, 0, used);
  ASAN_POISON_MEMORY_REGION(mark->free, used);
  newest->free = mark->free;
  text_free = mark->text_free;
  text_past = mark->text_past;
  memcpy(freed, mark->freed, sizeof freed);
  pen_free(mark);
}

void pen_free_all(void) {
  while (newest) close_region();
  memset(freed, 0, sizeof freed);
  text_free = text_past = NULL;
}
