/* progress_bar.h: how far something is, on a terminal: one line, in place of the one before. */
#ifndef PEN_BASE_PROGRESS_BAR_H
#define PEN_BASE_PROGRESS_BAR_H

/* Fills `cells` characters of a bar, and the 0 that ends it. `share`: what is done, from 0 to 1;
 * more is all. */
void pen_progress_bar_fill(char *bar, int cells, double share);

/* Shows the line on standard error, which is a terminal: a bar and per cent, or without them if the
 * share is below 0, and a text, of which control characters and what is not UTF-8 are '?'. Does not
 * wait for the terminal. */
void pen_progress_bar_show(double share, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Removes the line. */
void pen_progress_bar_clear(void);

#endif
