/* train_files.h: what `train` writes to, which may hold the state and the log of a former run: the
 * folder of checkpoints, and --log. */
#ifndef PEN_TRAIN_FILES_H
#define PEN_TRAIN_FILES_H

#include "runtime/rank/run.h"
#include "runtime/storage/checkpoint_load.h"

/* Makes the folder of --checkpoint; on the host of rank 0 locks it, and marks it for all hosts.
 * Fails: 64 if it is a checkpoint itself; 73 if another run saves there, if `latest` in it is no
 * link, or if it holds checkpoints and neither --resume nor --overwrite is given. */
void pen_train_folder_open(struct pen_run *run);

/* Sets the cursor of a run that continues a checkpoint. Fails (65) if that was made with other
 * data, or read them in another order, unless they are to be read from their beginning
 * (--new-data).
 */
void pen_train_data_continue(struct pen_run *run, const struct pen_checkpoint_info *found);

/* Opens --log on the host of rank 0. Fails (73) as pen_log_create(). */
void pen_train_log_open(struct pen_run *run);

#endif
