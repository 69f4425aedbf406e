/* token_file.c: a temporary token file, and a child process that may fail. */
#include "tests/support/token_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/check.h"

char path[] = "/tmp/penstock-data-XXXXXX";

int make_path(void **state) {
  (void)state;
  int descriptor = mkstemp(path);
  return descriptor < 0 ? -1 : close(descriptor);
}

int remove_path(void **state) {
  (void)state;
  return unlink(path);
}

void write_path(const void *bytes, size_t count) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, count, file), count);
  assert_int_equal(fclose(file), 0);
}

int run_in_child(void (*work)(const void *about), const void *about, char *message, size_t bytes) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    pen_check_speaker(
        &(struct pen_speaker){.rank = 0}); /* exits without flushing what cmocka has buffered */
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
