/* error.c: reports a fatal error, or returns it to pen_attempt(). */
#include "gen/base/error.h"

#include "base/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* The attempt that runs; NULL: none. */
static struct running_attempt {
  jmp_buf start;
  struct pen_refusal *refusal;
} * current;

bool pen_attempt(void (*run)(void *context), void *context, struct pen_refusal *refusal) {
  struct running_attempt attempt = {.refusal = refusal};
  current = &attempt;
  if (setjmp(attempt.start)) {
    current = NULL;
    return false;
  }
  run(context);
  current = NULL;
  return true;
}

bool pen_is_attempting(void) { return current != NULL; }

void pen_attempt_end(void) { current = NULL; }

void pen_tell(const char *format, ...) {
  va_list list;
  va_start(list, format);
  pen_message_print("", format, list);
  va_end(list);
}

void pen_stop(int status, const char *format, ...) {
  va_list list;
  va_start(list, format);
  if (current && (status == PEN_EXIT_TOPOLOGY || status == PEN_EXIT_DATA)) {
    current->refusal->status = status;
    vsnprintf(current->refusal->text, sizeof current->refusal->text, format, list);
    va_end(list);
    longjmp(current->start, 1);
  }
  va_end(list);
  fflush(stdout);
  va_start(list, format);
  pen_message_print("", format, list);
  va_end(list);
  exit(status);
}
