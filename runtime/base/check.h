/* check.h: how the runtime stops when it must: user mistakes (pen_fail), a system that says no
 * (pen_check), our own bugs (pen_assert). Each prints one line on standard error, in one write, and
 * only the first failing rank of a run speaks. */
#ifndef PEN_CHECK_H
#define PEN_CHECK_H

#include <stdbool.h>
#include <stddef.h>

/* sysexits(3)'s numbers, as far as design.md §10 uses them. */
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
};

/* Prints `penstock: ` and the message, a newline added, and ends this process with `status`; within
 * a run the other ranks follow with the same status. For what a user can mend: options, files, a
 * full disk. Allocates nothing. */
_Noreturn void pen_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints the same line and goes on. */
void pen_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* pen_check(condition, format, ...): always on; for what the system or a library may refuse. When
 * the condition is false, says host, rank, action, file:line, the message, and errno's text, and
 * ends with PEN_EXIT_SYSTEM. */
#define pen_check(condition, ...)                        \
  do {                                                   \
    if (__builtin_expect(!(condition), 0)) {             \
      pen_check_failed(__FILE__, __LINE__, __VA_ARGS__); \
    }                                                    \
  } while (0)
_Noreturn void pen_check_failed(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* pen_assert(condition): what cannot happen unless we erred. On by default; -DPEN_NO_ASSERT leaves
 * it out. Aborts. */
#ifdef PEN_NO_ASSERT
#define pen_assert(condition) ((void)sizeof(condition))
#else
#define pen_assert(condition)                   \
  ((void)(__builtin_expect(!!(condition), 1) || \
          (pen_assert_failed(__FILE__, __LINE__, #condition), 0)))
#endif
_Noreturn void pen_assert_failed(const char *file, int line, const char *condition);

/* Who speaks in these messages. Outside a run (and in tests) nobody is set, and the process speaks
 * for itself. */
struct pen_speaker {
  int rank;                                   /* -1: none */
  void (*describe)(char *text, size_t bytes); /* names the action that runs; may be null */
  bool (*claim)(int status); /* records the status for the run; false: another rank spoke first */
};
void pen_check_speaker(const struct pen_speaker *speaker); /* copied */

#endif
