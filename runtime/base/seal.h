/* seal.h: after pen_seal() the run's memory is what it is: our code calls no allocator, opens no
 * file but checkpoints, makes no thread. Built with -DPEN_TEST_SEAL and linked with the --wrap
 * options that seal.c names, a call that breaks this aborts. */
#ifndef PEN_SEAL_H
#define PEN_SEAL_H

void pen_seal(void);
/* The run is over, or a checkpoint is being written: files may be opened again. Seal again when
 * steps go on. */
void pen_unseal(void);

#endif
