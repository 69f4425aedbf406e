/* output.h: writes of results, which wait for their reader: a pipe may be full for as long as it
 * likes; and the same of what is read as it comes. */
#ifndef PEN_OUTPUT_H
#define PEN_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

/* Who waits is called with true before each wait for the reader, and with false after it, so that a
 * signal can end the process meanwhile. Null: nobody. */
void pen_output_on_wait(void (*wait)(bool begins));

/* Writes all of it. 0, or -1 with errno set. Calls no allocator. */
int pen_output_write(int fd, const void *bytes, size_t count);

/* Waits until fd can be read, as a write waits for its reader. False: `ends`, which is asked every
 * 0.1 s, has become true before. */
bool pen_output_await_input(int fd, bool (*ends)(const void *context), const void *context);

#endif
