/* error.h: reports a fatal error of the generator; its exit statuses. */
#ifndef PEN_ERROR_H
#define PEN_ERROR_H

#include <stdio.h>

/* Exit statuses of docs/design.md section 10. */
enum {
  PEN_EXIT_USAGE = 64,
  PEN_EXIT_DATA = 65,
  PEN_EXIT_NO_INPUT = 66,
  PEN_EXIT_INTERNAL = 70,
  PEN_EXIT_CREATE = 73,
  PEN_EXIT_WRITE = 74,
  PEN_EXIT_TOPOLOGY = 78
};

/* Flushes standard output, prints the message and a newline to standard error, and exits. */
_Noreturn void pen_stop(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
