/* fail.c: how penstock-tokens ends on an error (see tokens.h). */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#include "base/message.h"
#include "tools/tokens/tokens.h"

void tokens_say(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  pen_message_print("penstock-tokens: ", format, arguments);
  va_end(arguments);
}

void tokens_fail(int status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  pen_message_print("penstock-tokens: ", format, arguments);
  va_end(arguments);
  exit(status);
}

void tokens_check_kind(enum pen_file_use use, const char *path, const void *first, size_t bytes) {
  const struct pen_file_kind *kind = pen_file_kind_of(use, path, first, bytes);
  if (kind != NULL) {
    tokens_fail(EX_DATAERR, "%s: %s: %s", path, kind->name, kind->advice);
  }
}
