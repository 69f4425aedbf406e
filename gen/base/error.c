/* error.c: reports a fatal error. */
#include "gen/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void pen_stop(int status, const char *format, ...) {
  va_list list;
  fflush(stdout);
  va_start(list, format);
  vfprintf(stderr, format, list);
  va_end(list);
  fputc('\n', stderr);
  exit(status);
}
