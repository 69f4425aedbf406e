/* terminal.h: the width and colours of the terminal that a stream writes to. */
#ifndef PEN_TERMINAL_H
#define PEN_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Columns of a line: $COLUMNS, else those of the terminal, else 80. */
int pen_terminal_columns(FILE *out);
/* Whether to use colours: on a terminal that is not dumb, without NO_COLOR (no-color.org). */
bool pen_terminal_colour(FILE *out);

#endif
