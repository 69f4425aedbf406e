/* checkpoint_prune.h: the checkpoints in a folder DIR: which exist, and the removal of old and of
 * unfinished ones. Ours are folders, no links to folders, of the names that a run gives; in them,
 * the files that a run writes. What else is there is neither followed nor removed. Nothing here
 * allocates. */
#ifndef PEN_CHECKPOINT_PRUNE_H
#define PEN_CHECKPOINT_PRUNE_H

#include <stdbool.h>
#include <stdint.h>

enum { PEN_CHECKPOINT_NAME_BYTES = 32 }; /* of step-NNNNNNNN and its 0 */

/* The names that a link has before it becomes `latest`: the second where the first is taken. */
enum { PEN_TEMPORARY_LINKS = 2 };
extern const char *const pen_temporary_links[PEN_TEMPORARY_LINKS];

/* Whether a path is the folder of a complete checkpoint: with a manifest, and no link. */
bool pen_checkpoint_exists(const char *folder);

/* The greatest step below `past` of the complete checkpoints in DIR; false: there is none. */
bool pen_checkpoint_newest(const char *dir, uint64_t past, uint64_t *step);

/* The step of the checkpoint that DIR/latest names; false: it is no link to one. */
bool pen_checkpoint_latest(const char *dir, uint64_t *step);

/* Rank 0, after pen_checkpoint_finish(): removes the oldest checkpoints of DIR until at most `keep`
 * of steps up to `step` remain. It keeps checkpoints of later steps (from a run that was resumed at
 * an earlier step) and those that a process reads, which a later call removes. Never fails. */
void pen_checkpoint_prune(const char *dir, uint64_t step, uint64_t keep);

/* Rank 0, after the first save of a run that overwrites another: removes the checkpoints of DIR but
 * that of `step`, and those that a process reads. Never fails. */
void pen_checkpoint_remove_others(const char *dir, uint64_t step);

/* Removes what unfinished saves of any step left in DIR: step-*.tmp and links to be `latest`. Never
 * fails; complete checkpoints are unchanged. No rank may be writing. */
void pen_checkpoint_abandon(const char *dir);

/* Removes the files of one checkpoint, and its folder if that is then empty. Never fails. */
void pen_checkpoint_remove(const char *folder);

#endif
