/* folder_mark.h: whether all hosts see one checkpoint folder DIR: the command of rank 0 writes a
 * fresh random number to the file DIR/.run before the ranks start, and each rank reads it. */
#ifndef PEN_FOLDER_MARK_H
#define PEN_FOLDER_MARK_H

#include <stdint.h>

/* 0, or -1 with errno set. */
int pen_folder_mark_write(const char *folder);

/* The number that is in the folder; 0: there is none. */
uint64_t pen_folder_mark_read(const char *folder);

/* Never fails. */
void pen_folder_mark_remove(const char *folder);

#endif
