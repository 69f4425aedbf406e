/* files.h: checks of the files that the options name. */
#ifndef PEN_COMMAND_FILES_H
#define PEN_COMMAND_FILES_H

#include <limits.h>

#include "runtime/base/options.h"
#include "runtime/rank/run.h"

/* Fails (64) if two options name the same file and one of them writes it, or one writes a file of a
 * checkpoint. */
void pen_check_files_differ(const struct pen_options *options);

/* Fails (64) if an option writes a file of the folder that the run reads its weights from. */
void pen_check_weights_not_written(const struct pen_run *run);

/* Fails (64) unless texts have all that the plan's model reads. `command` is for the message. */
void pen_check_reads_texts(const struct pen_plan *plan, const char *command);

/* Fails (64) if the plan's model reads data and --data is missing. */
void pen_check_data_given(const struct pen_plan *plan, const struct pen_options *options,
                          const char *command);

/* The paths of files of data, with all parts of one that has several unless each file is
 * `weighted`, or none, with a message, if the model makes its own inputs. Fails (66)
 * on a file that cannot be read. */
struct pen_texts pen_token_paths(const struct pen_plan *plan, const char *option,
                                 const struct pen_texts *paths, bool weighted);

/* Copies `path`, or that of `latest` in it where it is a folder of checkpoints; if its folder is a
 * symbolic link, with the folder that the link names now, since DIR/latest may change before a rank
 * opens it. Fails (66). Returns 0. */
int pen_resolve_path(const char *path, char resolved[PATH_MAX]);

#endif
