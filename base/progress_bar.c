/* progress_bar.c: how far something is, on a terminal (see progress_bar.h). */
#include "base/progress_bar.h"

#include "base/message.h"
#include "base/standard_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CELLS = 30 };
static const char begin[] = "\r\033[K";

void pen_progress_bar_fill(char *bar, int cells, double share) {
  const int done = share < 1 ? (int)(share * cells) : cells;
  memset(bar, '.', (size_t)cells);
  memset(bar, '#', (size_t)done);
  bar[cells] = '\0';
}

void pen_progress_bar_show(double share, const char *format, ...) {
  char line[sizeof begin + PEN_MESSAGE_BYTES], bar[CELLS + 1];
  char *const text = line + sizeof begin - 1;
  va_list list;
  pen_progress_bar_fill(bar, CELLS, share < 0 ? 0 : share);
  memcpy(line, begin, sizeof begin);
  const int used = share < 0 ? 0
                             : snprintf(text, PEN_MESSAGE_BYTES, "[%s] %3.0f%%  ", bar,
                                        100 * (share < 1 ? share : 1));
  va_start(list, format);
  vsnprintf(text + used, PEN_MESSAGE_BYTES - (size_t)used, format, list);
  va_end(list);
  const size_t bytes = pen_copy_visible(text, text, strlen(text), PEN_MESSAGE_BYTES);
  pen_standard_error_show(line, (size_t)(text - line) + bytes);
}

void pen_progress_bar_clear(void) { pen_standard_error_show(begin, sizeof begin - 1); }
