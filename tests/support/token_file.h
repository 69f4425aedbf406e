/* token_file.h: what tests of token files share: a file that lasts as long as the test, and a child
 * that may be refused. */
#ifndef PEN_TESTS_TOKEN_FILE_H
#define PEN_TESTS_TOKEN_FILE_H

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/check.h"

static char path[] = "/tmp/penstock-data-XXXXXX";

static inline int make_path(void **state) {
  (void)state;
  int descriptor = mkstemp(path);
  return descriptor < 0 ? -1 : close(descriptor);
}

static inline int remove_path(void **state) {
  (void)state;
  return unlink(path);
}

/* Does the work in a child, as rank 0 would. Returns its exit status, 0 when the work came to its
 * end, and what it said. */
static inline int in_child(void (*work)(const void *about), const void *about, char *message,
                           size_t bytes) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    pen_check_speaker(
        &(struct pen_speaker){.rank = 0}); /* leaves without flushing what cmocka has buffered */
    work(about);
    _exit(0);
  }
  close(ends[1]);
  ssize_t got = read(ends[0], message, bytes - 1);
  message[got > 0 ? got : 0] = '\0';
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#endif
