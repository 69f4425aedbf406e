/* mapping.h: files that are mapped, which another process may shorten: to read what is gone raises
 * SIGBUS. */
#ifndef PEN_MAPPING_H
#define PEN_MAPPING_H

#include <stddef.h>

/* From here on a process that reads a part of this mapping that the file no longer has ends as
 * pen_fail() with 65 does, naming the file. `path` is kept. Of at most PEN_MAPPINGS_MAX mappings.
 */
enum { PEN_MAPPINGS_MAX = 8 };
void pen_mapping_watch(const char *path, const void *memory, size_t bytes);

#endif
