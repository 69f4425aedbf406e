/* fail.c: how penstock-tokens ends on an error (see tokens.h). */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/tokens/tokens.h"

void tokens_fail(int status, const char *format, ...) {
  va_list arguments;
  fputs("penstock-tokens: ", stderr);
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(status);
}
