/* check.h: how the runtime ends on an error: a user's mistake (pen_fail), a failure of the system
 * or a library (pen_check), an internal error (pen_assert). Each prints one line on standard error,
 * in one write, and of a run only the first failing rank prints. */
#ifndef PEN_CHECK_H
#define PEN_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

/* The numbers of sysexits(3) that docs/contracts.md section 10 uses, and a number of its own. */
enum pen_status {
  PEN_EXIT_USAGE = 64,
  PEN_EXIT_DATA = 65,
  PEN_EXIT_NO_INPUT = 66,
  PEN_EXIT_INTERNAL = 70,
  PEN_EXIT_SYSTEM = 71,
  PEN_EXIT_CANNOT_CREATE = 73,
  PEN_EXIT_CANNOT_WRITE = 74,
  PEN_EXIT_LOST = 75,
  PEN_EXIT_DIGEST = 76,
  PEN_EXIT_DIVERGED = 79,
  PEN_EXIT_AUDIT = 80,
};

/* Prints `penstock: `, the message and a newline, and exits with `status`; in a run the other ranks
 * exit with the same status. For what a user can correct: options, files, a full disk. Allocates
 * nothing. */
_Noreturn void pen_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints the same line and returns. */
void pen_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints "NAME: " and the message. */
void pen_say(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints a line as it is: why the run fails. */
void pen_say_line(const char *line);

/* Ends the line of a terminal that shows progress. */
void pen_end_progress_line(void);

/* pen_check(condition, format, ...): always on, for calls of the system or a library. If the
 * condition is false, prints host, rank, action, file:line, the message and the text of errno, and
 * exits with PEN_EXIT_SYSTEM. */
#define pen_check(condition, ...)                        \
  do {                                                   \
    if (__builtin_expect(!(condition), 0)) {             \
      pen_check_failed(__FILE__, __LINE__, __VA_ARGS__); \
    }                                                    \
  } while (0)
_Noreturn void pen_check_failed(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Zeroed memory for `count` elements of `bytes`, which free() releases. If there is none, fails as
 * pen_check() with "no memory for " and what it is for, a format and its arguments. */
#define pen_allocate(count, bytes, ...)                         \
  ({                                                            \
    void *allocated = calloc(count, bytes);                     \
    pen_check(allocated != NULL, "no memory for " __VA_ARGS__); \
    allocated;                                                  \
  })

/* pen_assert(condition): for what only an internal error can cause. On by default; -DPEN_NO_ASSERT
 * removes it. Aborts. */
#ifdef PEN_NO_ASSERT
#define pen_assert(condition) ((void)sizeof(condition))
#else
#define pen_assert(condition)                   \
  ((void)(__builtin_expect(!!(condition), 1) || \
          (pen_assert_failed(__FILE__, __LINE__, #condition), 0)))
#endif
_Noreturn void pen_assert_failed(const char *file, int line, const char *condition);

/* From then on, also in processes that are forked, the line with which this process ends, or a run
 * fails, is written there, with a 0 at its end, in place of standard error; warnings, too, beside
 * that. */
void pen_check_write_to(char *message);

/* The rank that these messages name. Outside a run, and in tests, none is set. */
struct pen_speaker {
  int rank; /* -1: none */
  void (*describe)(char *text,
                   size_t bytes); /* writes the name of the current action; may be null */
  bool (*claim)(int status); /* records the status for the run; false: another rank printed first */
};
void pen_check_speaker(const struct pen_speaker *speaker); /* copied */

#endif
