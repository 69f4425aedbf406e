/* visible_keys.h: which keys the queries of a block see, for attention.c and attention_dx.c: those
 * of the query's document and window that are not too far after it, less those that the mask hides.
 * `row` counts the queries of the block. */
#ifndef PEN_KERNELS_CPU_VECTOR_VISIBLE_KEYS_H
#define PEN_KERNELS_CPU_VECTOR_VISIBLE_KEYS_H

#include <stdint.h>
#include <string.h>

#include "kernels/cpu/vector/isa.h"

struct visible_keys {
  const int32_t *starts; /* the starts of the sequence; null: one document */
  const int32_t *mask;   /* 0 for keys of the sequence that are hidden; null: none is */
  size_t keys, later;    /* of the sequence; how many of them after its own place a query sees */
  size_t window;         /* how many keys a query sees at most */
  size_t first_query;    /* of the block, in the sequence */
};

/* Of ATTENTION and what has its dims: the keys up to the query, within dim 5, the window. starts:
 * of all sequences, or null. */
static inline struct visible_keys causal_keys(const struct pen_call *call, const int32_t *starts) {
  return (struct visible_keys){
      .starts = starts, .keys = (size_t)call->dim[1], .window = (size_t)call->dim[5]};
}

/* Of ATTENTION_FULL and ATTENTION_FULL_DX: all dim 5 keys, but what the mask of all sequences
 * hides. */
static inline struct visible_keys all_keys(const struct pen_call *call, const int32_t *mask) {
  const size_t keys = (size_t)call->dim[5];
  return (struct visible_keys){
      .mask = mask, .keys = keys, .later = keys, .window = (size_t)call->dim[1] + keys};
}

static inline size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Past the last key that a row's query sees; it rises from row to row, and so does the first. */
static inline size_t past_key(const struct visible_keys *k, size_t row) {
  return least(k->first_query + row + k->later + 1, k->keys);
}

/* The first key of the document and the window of a row's query. */
static inline size_t first_key_of(const struct visible_keys *k, size_t row) {
  const size_t query = k->first_query + row, start = k->starts ? (size_t)k->starts[query] : 0,
               of_window = query < k->window ? 0 : query + 1 - k->window;
  return start > of_window ? start : of_window;
}

/* Of the `block` keys from `first` on: how many are before `key`. */
static inline size_t keys_before(size_t key, size_t first, size_t block) {
  return key < first ? 0 : least(key - first, block);
}

/* Which of the keys from `key` on the mask shows; none from `past` on. */
inline_always vi shown_keys(const struct visible_keys *k, size_t key, size_t past) {
  vi shown = {0};
  if (key < past) memcpy(&shown, k->mask + key, least(LANES, past - key) * sizeof *k->mask);
  return shown != 0;
}
#endif
