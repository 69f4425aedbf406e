/* tokens.c: penstock-tokens, which turns files into a token file for training: the command line,
 * and the output's coming and going. */
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
#include <time.h>
#include <unistd.h>

#include "runtime/base/files.h"
#include "tools/tokens/tokens.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

enum { PAD_TO = 128, WINDOW_MAX = 1 << 20 };

/* What getopt_long() returns for each option. */
enum option_id {
  OPTION_FIRST = 256,
#define PEN_OPTION(name, letter, text, argument, meaning) OPTION_##name,
#include "tools/tokens/options.def"
};

struct option_row {
  int id;
  char letter;
  const char *text, *argument, *meaning;
};

static const struct option_row option_rows[] = {
#define PEN_OPTION(name, letter, text, argument, meaning) \
  {OPTION_##name, letter, text, argument, meaning},
#include "tools/tokens/options.def"
};
enum { OPTIONS = sizeof option_rows / sizeof *option_rows };

/* OUT.tmp, and whether it is there by our doing: then whoever gives up has to remove it. */
static char temporary[PATH_MAX];
static volatile sig_atomic_t made;

static void remove_unfinished(void) {
  if (made) {
    unlink(temporary);
  }
}

void tokens_fail(int status, const char *format, ...) {
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

static const char usage_text[] =
    "usage: penstock-tokens --bytes|--ids BITS|--field NAME [OPTION]... -o OUT FILE...\n";

static _Noreturn void print_help(void) {
  printf(
      "%sTurns files into a token file for penstock: joined without separators, or, with --pack,"
      " as windows of whole documents. `-` is\nstandard input.\n\n",
      usage_text);
  for (int i = 0; i < OPTIONS; i++) {
    const struct option_row *row = &option_rows[i];
    char form[64], letter[8] = "    ";
    if (row->letter != 0) {
      snprintf(letter, sizeof letter, "-%c, ", row->letter);
    }
    snprintf(form, sizeof form, "%s--%s%s%s", letter, row->text, row->argument[0] ? " " : "",
             row->argument);
    printf("  %-20s  %s\n", form, row->meaning);
  }
  exit(fflush(stdout) ? EX_IOERR : EXIT_SUCCESS);
}

static _Noreturn void print_version(void) {
  printf("penstock-tokens %s\n", PACKAGE_VERSION);
  exit(fflush(stdout) ? EX_IOERR : EXIT_SUCCESS);
}

static _Noreturn void misused(const char *reason) {
  tokens_fail(EX_USAGE, "%s\n%sTry --help.", reason, usage_text);
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

/* A whole number of an option, within bounds. */
static uint32_t number_of(const char *option, const char *text, uint32_t least, uint32_t most) {
  char *end;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (end == text || *end != 0 || errno != 0 || number < least || number > most) {
    tokens_fail(EX_USAGE, "--%s %s: a whole number from %u to %u is wanted", option, text, least,
                most);
  }
  return (uint32_t)number;
}

/* A field's text becomes bytes, whether --bytes says so, too, or not. */
static void take_input(struct tokens_settings *settings, enum tokens_input input,
                       const char *field) {
  bool other = settings->input != TOKENS_INPUT_NONE && settings->input != input;
  if (other || (settings->field != NULL && field != NULL)) {
    misused("choose one of --bytes, --ids and --field");
  }
  settings->input = input;
  settings->field = field != NULL ? field : settings->field;
}

static void take_option(struct tokens_settings *settings, int id, char *argument) {
  switch (id) {
    case OPTION_BYTES: take_input(settings, TOKENS_INPUT_BYTES, NULL); break;
    case OPTION_IDS:
      if (strcmp(argument, "16") != 0 && strcmp(argument, "32") != 0) {
        tokens_fail(EX_USAGE, "--ids %s: 16 or 32 is wanted", argument);
      }
      take_input(settings, *argument == '1' ? TOKENS_INPUT_IDS16 : TOKENS_INPUT_IDS32, NULL);
      break;
    case OPTION_FIELD: take_input(settings, TOKENS_INPUT_BYTES, argument); break;
    case OPTION_END_OF_TEXT:
      settings->has_end_of_text = true;
      settings->end_of_text = number_of("end-of-text", argument, 0, INT32_MAX);
      break;
    case OPTION_PACK: settings->window = number_of("pack", argument, 2, WINDOW_MAX); break;
    case OPTION_PAD_TO: settings->pad_to = number_of("pad-to", argument, 1, WINDOW_MAX); break;
    case OPTION_SINGLE: settings->single = true; break;
    case OPTION_QUIET: settings->quiet = true; break;
    case OPTION_OUTPUT: settings->output = argument; break;
    case OPTION_HELP: print_help();
    case OPTION_VERSION: print_version();
    default: fprintf(stderr, "%sTry --help.\n", usage_text); exit(EX_USAGE);
  }
}

static struct tokens_settings parse(int count, char **arguments) {
  struct tokens_settings settings = {0};
  struct option longs[OPTIONS + 1];
  char shorts[2 * OPTIONS + 2];
  build_options(longs, shorts);
  for (int code; (code = getopt_long(count, arguments, shorts, longs, NULL)) != -1;) {
    take_option(&settings, option_id(code), optarg);
  }
  settings.inputs = arguments + optind;
  settings.input_count = count - optind;
  if (settings.input == TOKENS_INPUT_NONE) {
    misused("choose how inputs become tokens: --bytes, --ids or --field");
  }
  if (settings.window == 0 && (settings.single || settings.pad_to != 0)) {
    misused("--single and --pad-to shape windows: they need --pack");
  }
  settings.pad_to = settings.pad_to != 0 ? settings.pad_to : PAD_TO;
  if (settings.has_end_of_text && tokens_width(&settings) == 2 &&
      settings.end_of_text > UINT16_MAX) {
    misused("--end-of-text: a token of 16 bits is wanted, unless ids of 32 bits are read");
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
  tokens_fail(EX_DATAERR,
              "%s: more than %d tokens in all, which is what the format can count; --pack has no "
              "such bound",
              path, INT32_MAX);
}

/* Before anything is written: the mistakes that show at a glance. */
static void check_files(const struct tokens_settings *settings) {
  struct stat input, output;
  if (stat(settings->output, &output) == 0 && !S_ISREG(output.st_mode)) {
    tokens_fail(EX_CANTCREAT, "%s: cannot create: it exists, and is not a regular file",
                settings->output);
  }
  if (pen_path_suffix(temporary, settings->output, ".tmp")) {
    tokens_fail(EX_CANTCREAT, "%s: cannot create: %s", settings->output, strerror(errno));
  }
  bool stale = stat(temporary, &output) == 0;
  uint64_t known = 0;
  for (int i = 0; i < settings->input_count; i++) {
    const char *path = settings->inputs[i];
    if (stat_input(path, &input)) {
      tokens_fail(EX_NOINPUT, "%s: %s", path, strerror(errno));
    }
    if (S_ISDIR(input.st_mode)) {
      tokens_fail(EX_NOINPUT, "%s: is a directory", path);
    }
    if (stale && pen_file_same(&input, &output)) {
      tokens_fail(EX_CANTCREAT, "%s: cannot create: it is also to be read", temporary);
    }
    uint64_t width = settings->input == TOKENS_INPUT_IDS16   ? 2
                     : settings->input == TOKENS_INPUT_IDS32 ? 4
                                                             : 1;
    known += S_ISREG(input.st_mode) && strcmp(path, "-") != 0 ? (uint64_t)input.st_size / width : 0;
    if (known > INT32_MAX && settings->window == 0 && settings->field == NULL) {
      too_many(path);
    }
  }
}

static int open_output(void) {
  signal(SIGINT, interrupted); /* first: a signal may come right behind the file */
  signal(SIGTERM, interrupted);
  signal(SIGHUP, interrupted);
  int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) {
    tokens_fail(EX_CANTCREAT, "%s: cannot create: %s", temporary, strerror(errno));
  }
  made = 1;
  return fd;
}

/* All of the file, in OUT.tmp. */
static struct tokens_sink *write_output(int out, const struct tokens_settings *settings,
                                        uint64_t *read_bytes) {
  struct tokens_sink *sink =
      (settings->window == 0 ? tokens_plain : tokens_packer)(settings, out, temporary);
  *read_bytes = tokens_read(settings, sink);
  if (pen_file_sync_close(out, 0)) {
    tokens_fail(EX_IOERR, "%s: cannot write: %s", temporary, strerror(errno));
  }
  return sink;
}

static void report(const struct tokens_settings *settings, const struct tokens_sink *sink,
                   uint64_t read_bytes, double seconds) {
  struct stat output;
  uint64_t file_bytes = stat(settings->output, &output) == 0 ? (uint64_t)output.st_size : 0;
  fprintf(stderr, "penstock-tokens: %s: %llu tokens, %llu bytes; read %.1f MB/s\n",
          settings->output, (unsigned long long)sink->token_count, (unsigned long long)file_bytes,
          (double)read_bytes * 1e-6 / (seconds > 0 ? seconds : 1));
  if (settings->window != 0) {
    tokens_pack_report(sink);
  }
}

int main(int count, char **arguments) {
  struct tokens_settings settings = parse(count, arguments);
  pen_files_take_limits_as_errors();
  check_files(&settings);
  double start_seconds = tokens_now_seconds();
  uint64_t read_bytes;
  struct tokens_sink *sink = write_output(open_output(), &settings, &read_bytes);
  double seconds = tokens_now_seconds() - start_seconds;
  if (rename(temporary, settings.output)) {
    tokens_fail(EX_CANTCREAT, "%s: cannot create: %s", settings.output, strerror(errno));
  }
  made = 0;
  if (pen_folder_sync_of(settings.output)) {
    tokens_fail(EX_IOERR, "%s: cannot write: %s", settings.output, strerror(errno));
  }
  report(&settings, sink, read_bytes, seconds);
  return EXIT_SUCCESS;
}
