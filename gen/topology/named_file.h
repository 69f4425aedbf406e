/* named_file.h: files that settings name: pipeline.schedule_file, model.description. */
#ifndef PEN_NAMED_FILE_H
#define PEN_NAMED_FILE_H

#include <stddef.h>

struct pen_topology;

/* The path of the file that a setting names: relative to the file that sets it; with -s, to the
 * current folder. */
const char *pen_named_file_path(const struct pen_topology *topology, const char *setting,
                                const char *named);
/* Adds it to the sources, for make. */
void pen_named_file_add(struct pen_topology *topology, const char *path);
/* The bytes of "SETTING=" of an override, "pipeline.schedule_file=FILE", that names a file; 0: it
 * names none. */
size_t pen_named_file_prefix(const char *override);

#endif
