/* tokens.c: penstock-tokens, which turns files into a token file for training.
 *
 * The format is llm.c's: 256 little-endian int32 (20240520, 1, count of tokens, then zeros), then the tokens as uint16.
 */
#define _GNU_SOURCE 1
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "runtime/files.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "token files are written as they lie in memory: a little-endian machine is needed"
#endif

enum { HEADER_INTS = 256, MAGIC = 20240520, FORMAT_VERSION = 1, READ_BYTES = 1 << 20 };

/* What getopt_long() returns for each option. */
enum option_id {
  OPTION_FIRST = 256,
#define PEN_OPTION(name, letter, text, argument, meaning) OPTION_##name,
#include "tools/tokens_options.def"
};

struct option_row {
  int id;
  char letter;
  const char *text, *argument, *meaning;
};

static const struct option_row option_rows[] = {
#define PEN_OPTION(name, letter, text, argument, meaning) {OPTION_##name, letter, text, argument, meaning},
#include "tools/tokens_options.def"
};
enum { OPTIONS = sizeof option_rows / sizeof *option_rows };

struct settings {
  bool bytes;
  const char *output;
  char **inputs;
  int input_count;
};

/* OUT.tmp, and whether it is there by our doing: then whoever gives up has to remove it. */
static char temporary[PATH_MAX];
static volatile sig_atomic_t made;

static void remove_unfinished(void) {
  if (made) {
    unlink(temporary);
  }
}

static _Noreturn void fail(int status, const char *format, ...) {
  va_list arguments;
  remove_unfinished();
  fputs("penstock-tokens: ", stderr);
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(status);
}

/* An interrupted run leaves nothing, and ends as the signal would have ended it. */
static void interrupted(int number) {
  remove_unfinished();
  signal(number, SIG_DFL);
  raise(number);
}

/* ---- the command line ---- */

static const char usage_text[] = "usage: penstock-tokens --bytes -o OUT FILE...\n";

static _Noreturn void print_help(void) {
  printf("%sTurns files, joined without separators, into a token file for penstock. `-` is standard input.\n\n", usage_text);
  for (int i = 0; i < OPTIONS; i++) {
    const struct option_row *row = &option_rows[i];
    char form[64], letter[8] = "    ";
    if (row->letter != 0) {
      snprintf(letter, sizeof letter, "-%c, ", row->letter);
    }
    snprintf(form, sizeof form, "%s--%s%s%s", letter, row->text, row->argument[0] ? " " : "", row->argument);
    printf("  %-20s  %s\n", form, row->meaning);
  }
  exit(fflush(stdout) ? EX_IOERR : EXIT_SUCCESS);
}

static _Noreturn void print_version(void) {
  printf("penstock-tokens %s\n", PACKAGE_VERSION);
  exit(fflush(stdout) ? EX_IOERR : EXIT_SUCCESS);
}

static _Noreturn void misused(const char *reason) {
  fail(EX_USAGE, "%s\n%sTry --help.", reason, usage_text);
}

static void build_options(struct option longs[OPTIONS + 1], char shorts[2 * OPTIONS + 2]) {
  size_t used = 0;
  memset(longs, 0, (OPTIONS + 1) * sizeof *longs);
  for (int i = 0; i < OPTIONS; i++) {
    const struct option_row *row = &option_rows[i];
    bool takes = row->argument[0] != 0;
    longs[i] = (struct option){.name = row->text, .has_arg = takes, .val = row->id};
    if (row->letter != 0) {
      shorts[used++] = row->letter;
      shorts[used] = ':';
      used += takes;
    }
  }
  shorts[used] = 0;
}

/* A short option comes as its letter: give the row's id instead. */
static int option_id(int code) {
  for (int i = 0; i < OPTIONS; i++) {
    if (code == option_rows[i].letter && code != 0) {
      return option_rows[i].id;
    }
  }
  return code;
}

static struct settings parse(int count, char **arguments) {
  struct settings settings = {0};
  struct option longs[OPTIONS + 1];
  char shorts[2 * OPTIONS + 2];
  build_options(longs, shorts);
  for (int code; (code = getopt_long(count, arguments, shorts, longs, NULL)) != -1;) {
    switch (option_id(code)) {
    case OPTION_BYTES: settings.bytes = true; break;
    case OPTION_OUTPUT: settings.output = optarg; break;
    case OPTION_HELP: print_help();
    case OPTION_VERSION: print_version();
    default: fprintf(stderr, "%sTry --help.\n", usage_text); exit(EX_USAGE);
    }
  }
  settings.inputs = arguments + optind;
  settings.input_count = count - optind;
  if (!settings.bytes) {
    misused("choose how text becomes tokens: --bytes");
  }
  if (settings.output == NULL || settings.output[0] == 0) {
    misused("name the token file: -o OUT");
  }
  if (strcmp(settings.output, "-") == 0) {
    misused("-o -: the output is a file, not a stream: its header is written last");
  }
  if (settings.input_count == 0) {
    misused("name the files to read, or - for standard input");
  }
  return settings;
}

/* ---- the work ---- */

static int stat_input(const char *path, struct stat *status) {
  return strcmp(path, "-") == 0 ? fstat(STDIN_FILENO, status) : stat(path, status);
}

static _Noreturn void too_many(const char *path) {
  fail(EX_DATAERR, "%s: more than %d tokens in all, which is what the format can count", path, INT32_MAX);
}

/* Before anything is written: the mistakes that show at a glance. */
static void check_files(const struct settings *settings) {
  struct stat input, output;
  if (stat(settings->output, &output) == 0 && !S_ISREG(output.st_mode)) {
    fail(EX_CANTCREAT, "%s: cannot create: it exists, and is not a regular file", settings->output);
  }
  if (pen_path_suffix(temporary, settings->output, ".tmp")) {
    fail(EX_CANTCREAT, "%s: cannot create: %s", settings->output, strerror(errno));
  }
  bool stale = stat(temporary, &output) == 0;
  uint64_t known = 0;
  for (int i = 0; i < settings->input_count; i++) {
    const char *path = settings->inputs[i];
    if (stat_input(path, &input)) {
      fail(EX_NOINPUT, "%s: %s", path, strerror(errno));
    }
    if (S_ISDIR(input.st_mode)) {
      fail(EX_NOINPUT, "%s: is a directory", path);
    }
    if (stale && input.st_dev == output.st_dev && input.st_ino == output.st_ino) {
      fail(EX_CANTCREAT, "%s: cannot create: it is also to be read", temporary);
    }
    known += S_ISREG(input.st_mode) && strcmp(path, "-") != 0 ? (uint64_t)input.st_size : 0;
    if (known > INT32_MAX) {
      too_many(path);
    }
  }
}

static int open_output(void) {
  int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) {
    fail(EX_CANTCREAT, "%s: cannot create: %s", temporary, strerror(errno));
  }
  made = 1;
  signal(SIGINT, interrupted);
  signal(SIGTERM, interrupted);
  signal(SIGHUP, interrupted);
  return fd;
}

/* Appends one file's bytes as tokens; returns how many. */
static uint64_t append(int out, const char *path, uint64_t before) {
  static unsigned char bytes[READ_BYTES];
  static uint16_t tokens[READ_BYTES];
  uint64_t total = 0;
  int in = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
  if (in < 0) {
    fail(EX_NOINPUT, "%s: %s", path, strerror(errno));
  }
  for (ssize_t count; (count = read(in, bytes, sizeof bytes)) != 0;) {
    if (count < 0) {
      if (errno == EINTR) {
        continue;
      }
      fail(EX_NOINPUT, "%s: cannot read: %s", path, strerror(errno));
    }
    total += (uint64_t)count;
    if (total > INT32_MAX - before) {
      too_many(path);
    }
    for (ssize_t i = 0; i < count; i++) {
      tokens[i] = bytes[i];
    }
    if (pen_file_write(out, tokens, (size_t)count * sizeof *tokens)) {
      fail(EX_IOERR, "%s: cannot write: %s", temporary, strerror(errno));
    }
  }
  if (in != STDIN_FILENO) {
    close(in);
  }
  return total;
}

/* All of the file: the header last, since it holds the count. */
static uint64_t write_tokens(int out, const struct settings *settings) {
  int32_t header[HEADER_INTS] = {MAGIC, FORMAT_VERSION, 0};
  uint64_t total = 0;
  if (pen_file_write(out, header, sizeof header)) {
    fail(EX_IOERR, "%s: cannot write: %s", temporary, strerror(errno));
  }
  for (int i = 0; i < settings->input_count; i++) {
    total += append(out, settings->inputs[i], total);
  }
  header[2] = (int32_t)total;
  if (pen_file_write_at(out, header, sizeof header, 0) || pen_file_sync_close(out)) {
    fail(EX_IOERR, "%s: cannot write: %s", temporary, strerror(errno));
  }
  return total;
}

int main(int count, char **arguments) {
  struct settings settings = parse(count, arguments);
  pen_files_take_limits_as_errors();
  check_files(&settings);
  int out = open_output();
  uint64_t tokens = write_tokens(out, &settings);
  if (rename(temporary, settings.output)) {
    fail(EX_CANTCREAT, "%s: cannot create: %s", settings.output, strerror(errno));
  }
  made = 0;
  if (pen_folder_sync_of(settings.output)) {
    fail(EX_IOERR, "%s: cannot write: %s", settings.output, strerror(errno));
  }
  uint64_t file_bytes = HEADER_INTS * sizeof(int32_t) + tokens * sizeof(uint16_t);
  fprintf(stderr, "penstock-tokens: %s: %llu tokens, %llu bytes\n", settings.output, (unsigned long long)tokens,
          (unsigned long long)file_bytes);
  return EXIT_SUCCESS;
}
