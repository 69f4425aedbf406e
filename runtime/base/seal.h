/* seal.h: after pen_seal() the thread calls no allocator, opens no file except for checkpoints, and
 * creates no thread. Built with -DPEN_TEST_SEAL and linked with the --wrap options that seal.c
 * names, a call that violates this aborts. */
#ifndef PEN_SEAL_H
#define PEN_SEAL_H

void pen_seal(void);
/* Call it at the end of the run or before a checkpoint, which opens files, and seal again before
 * the next step. */
void pen_unseal(void);

#endif
