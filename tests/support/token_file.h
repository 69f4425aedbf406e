/* token_file.h: what tests of token files share: a file that exists while a test runs, and a child
 * process that may fail. */
#ifndef PEN_TESTS_TOKEN_FILE_H
#define PEN_TESTS_TOKEN_FILE_H

#include <stddef.h>

/* The path of the file that make_path() creates and remove_path() removes: for cmocka. */
extern char path[];

int make_path(void **state);

int remove_path(void **state);

/* Writes the file anew. */
void write_path(const void *bytes, size_t count);

/* Runs work(about) in a child process, as rank 0 would. Returns its exit status, 0 if work
 * returned; `message` receives its standard error. */
int run_in_child(void (*work)(const void *about), const void *about, char *message, size_t bytes);

#endif
