/* standard_error.h: what is said never stops what is done: text for standard error is written in a
 * bounded time, also to a pipe, socket or terminal that nobody reads. What does not fit is dropped
 * and counted; the next text that fits comes after a line with the number. */
#ifndef PEN_BASE_STANDARD_ERROR_H
#define PEN_BASE_STANDARD_ERROR_H

#include <stddef.h>

/* Writes a text, of at most PIPE_BUF bytes whole or not at all. It waits up to 0.2 s, unless the
 * text before did so in vain. Any thread may call it. Calls no allocator. */
void pen_standard_error_write(const char *text, size_t bytes);

/* Processes that are started from here on count together. */
void pen_standard_error_share(void);

/* The same without waiting: for what is out of date soon. */
void pen_standard_error_show(const char *text, size_t bytes);

#endif
