/* patterns.h: names of files that are given by a pattern, alike on any host and in any locale. */
#ifndef PEN_PATTERNS_H
#define PEN_PATTERNS_H

#include "base/options.h"

/* Replaces each pattern of glob(7) in the list by the files that match, in the order of their
 * bytes; a name that is a file's stays as it is, whatever it contains. Fails (66) if none matches.
 * `option` is for the message. Allocates what is kept to the end of the process. */
void pen_patterns_expand(const char *option, struct pen_texts *paths);

#endif
