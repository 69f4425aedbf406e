/* patterns.h: names of files that are given by a pattern, alike on any host and in any locale. */
#ifndef PEN_PATTERNS_H
#define PEN_PATTERNS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/options.h"

/* Replaces each pattern of glob(7) in the list by the files that match, in the order of their
 * bytes; a name that is a file's stays as it is, whatever it contains. Fails (66) if none matches;
 * (64) if several do and `single` says that each text is one file. `option` is for the message.
 * Allocates what is kept to the end of the process. */
void pen_patterns_expand(const char *option, struct pen_texts *paths, bool single);

/* Replaces a first part, X-00001-of-00003.safetensors, by all parts, unless the list has others of
 * them. Allocates likewise. */
void pen_parts_expand(struct pen_texts *paths);

/* Takes the weights of a blend off the texts, "FILE=0.7", unless a file has the whole name. Returns
 * them in units of 1e-9, or null if no text has one, or there is one text alone, which needs none.
 * Fails (64) if others have none, or on a number that is not above 0 and at most a million with at
 * most 9 decimals. Allocates likewise. */
const uint64_t *pen_weights_take(const char *option, struct pen_texts *paths);

#endif
