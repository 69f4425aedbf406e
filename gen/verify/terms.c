/* terms.c: stores each term once (see terms.h). */
#include "gen/verify/terms.h"

#include <string.h>

#include "gen/base/arena.h"

static size_t hash_of(const struct pen_term *term) {
  uint64_t words[sizeof *term / sizeof(uint64_t)], hash = 0;
  memcpy(words, term, sizeof *term);
  for (size_t n = 0; n < sizeof words / sizeof *words; n++)
    hash = (hash ^ words[n]) * 0x9e3779b97f4a7c15u;
  return (size_t)(hash >> 20);
}
_Static_assert(sizeof(struct pen_term) % sizeof(uint64_t) == 0, "whole words");

static size_t find_slot(const struct pen_terms *terms, const struct pen_term *term) {
  size_t slot = hash_of(term) & (terms->slots - 1);
  while (terms->slot[slot] && memcmp(&terms->term[terms->slot[slot] - 1], term, sizeof *term) != 0)
    slot = (slot + 1) & (terms->slots - 1);
  return slot;
}

static void grow_table(struct pen_terms *terms) {
  pen_free(terms->slot);
  terms->slots = terms->slots ? 2 * terms->slots : 256;
  terms->slot = pen_new(terms->slots, sizeof *terms->slot);
  for (size_t n = 0; n < terms->count; n++)
    terms->slot[find_slot(terms, &terms->term[n])] = (uint32_t)n + 1;
}

uint32_t pen_term_add(struct pen_terms *terms, const struct pen_term *term) {
  if (2 * terms->count >= terms->slots) grow_table(terms);
  size_t slot = find_slot(terms, term);
  if (terms->slot[slot]) return terms->slot[slot] - 1;
  terms->term = pen_grow(terms->term, &terms->capacity, terms->count + 1, sizeof *terms->term);
  terms->term[terms->count++] = *term;
  terms->slot[slot] = (uint32_t)terms->count;
  return (uint32_t)terms->count - 1;
}

void pen_terms_clear(struct pen_terms *terms) {
  if (terms->slots) memset(terms->slot, 0, terms->slots * sizeof *terms->slot);
  terms->count = 0;
}

void pen_terms_free(struct pen_terms *terms) {
  pen_free(terms->term);
  pen_free(terms->slot);
}
