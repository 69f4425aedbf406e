/* message.c: the errors and warnings of penstock-convert (see convert.h). */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/message.h"
#include "tools/convert/convert.h"

static void print_message(const char *kind, const char *format, va_list list) {
  char prefix[40];
  snprintf(prefix, sizeof prefix, "penstock-convert: %s", kind);
  pen_message_print(prefix, format, list);
}

void convert_fail(int status, const char *format, ...) {
  va_list list;
  va_start(list, format);
  print_message("", format, list);
  va_end(list);
  exit(status);
}

void convert_say(const char *format, ...) {
  va_list list;
  va_start(list, format);
  print_message("", format, list);
  va_end(list);
}

void convert_warn(const char *format, ...) {
  va_list list;
  va_start(list, format);
  print_message("warning: ", format, list);
  va_end(list);
}
