/* mapped_file.h: files of data in memory. */
#ifndef PEN_MAPPED_FILE_H
#define PEN_MAPPED_FILE_H

#include <stdint.h>

/* Maps a file to the end of the process, and sets its bytes; null if it has none. Fails with 66 if
 * it is absent. From then on a process that reads a part that the file no longer has ends as
 * pen_fail() with 65 does, naming the file. `path` is kept. */
const unsigned char *pen_map_file(const char *path, uint64_t *bytes);

#endif
