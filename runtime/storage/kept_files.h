/* kept_files.h: what the folder that a run began from has beside its weights, and its checkpoints
 * keep, so that they can be served: its config.json, changed where the model differs, and the files
 * of its tokenizer and of generation. */
#ifndef PEN_KEPT_FILES_H
#define PEN_KEPT_FILES_H

#include <limits.h>
#include <stdbool.h>

enum { PEN_KEPT_FILES = 12 };
extern const char *const pen_kept_file_names[PEN_KEPT_FILES];

/* All 0: nothing is kept. */
struct pen_kept_files {
  bool is_open;
  char *config;             /* the text of config.json; null: the plan's */
  int file[PEN_KEPT_FILES]; /* descriptors of those files; -1: there is none */
};

/* Opens those of a folder; nothing, if it is a file. They stay readable when the folder is removed.
 * The config becomes that of the model of the config `own` (a text; null: the folder's own), whose
 * tensors have that dtype, as transformers names it. Closes what was open before. Warns of what
 * cannot be kept. Allocates. */
void pen_kept_files_open(struct pen_kept_files *kept, const char *folder, const char *own,
                         const char *dtype);
void pen_kept_files_close(struct pen_kept_files *kept);

/* Writes them into a folder that has none of them, but for the config: 0, or -1 with errno, and
 * `path` is the file that could not be written. Calls no allocator. */
int pen_kept_files_write(const struct pen_kept_files *kept, const char *folder,
                         char path[PATH_MAX]);

#endif
