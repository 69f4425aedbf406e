/* tokens.c: penstock-tokens turns files into a token file for training: the command line, creating
 * and renaming the output, the report. */
#define _GNU_SOURCE 1
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/options.h"
#include "base/same_file.h"
#include "runtime/base/files.h"
#include "tools/tokens/tokens.h"

enum { PAD_TO = 128, WINDOW_MAX = 1 << 20 };

/* OUT.tmp, and whether this process created it: then every early exit removes it. */
static char temporary[PATH_MAX];
static volatile sig_atomic_t temporary_exists;

static void remove_unfinished(void) {
  if (temporary_exists) {
    unlink(temporary);
  }
}

/* Removes the output, then ends the process by the same signal. */
static void remove_and_reraise(int number) {
  remove_unfinished();
  signal(number, SIG_DFL);
  raise(number);
}

/* ---- the command line ---- */

static const char usage_text[] =
    "usage: penstock-tokens --bytes|--ids BITS|--field NAME|--messages [OPTION]... -o OUT "
    "FILE...\n";

/* The options as given. */
struct given {
  bool bytes, messages, masks, single, quiet, help, version;
  const char *ids, *field, *prompt_field, *output;
  uint64_t end_of_text, window, pad_to;
};

static const struct pen_option options_known[] = {
#define PEN_OPTION(field_, letter_, name_, type_, least_, most_, argument_, default_, meaning_) \
  {.name = name_,                                                                               \
   .argument = argument_,                                                                       \
   .default_value = default_,                                                                   \
   .meaning = meaning_,                                                                         \
   .letter = letter_,                                                                           \
   .type = PEN_OPTION_##type_,                                                                  \
   .least = least_,                                                                             \
   .most = most_,                                                                               \
   .field = offsetof(struct given, field_)},
#include "tools/tokens/options.def"
};

static _Noreturn void fail_usage(const char *message) {
  tokens_say("%s", message);
  fprintf(stderr, "%sTry --help.\n", usage_text);
  exit(EX_USAGE);
}

static const struct pen_command_line command_line = {
    .program = "penstock-tokens",
    .option = options_known,
    .option_count = sizeof options_known / sizeof *options_known,
    .fail = fail_usage,
};

static _Noreturn void print_help(void) {
  printf(
      "%sTurns files into a token file for penstock: joined without separators, or, with --pack, "
      "as windows of whole documents.\n`-` is standard input.\n\n",
      usage_text);
  pen_command_line_print_options(&command_line);
  exit(fflush(stdout) ? EX_IOERR : EXIT_SUCCESS);
}

static _Noreturn void print_version(void) {
  printf("penstock-tokens %s\n", PACKAGE_VERSION);
  exit(fflush(stdout) ? EX_IOERR : EXIT_SUCCESS);
}

/* --field and --messages imply --bytes. */
static enum tokens_input input_of(const struct given *given) {
  bool bytes = given->bytes || given->field != NULL || given->messages;
  if (given->ids != NULL && bytes) {
    fail_usage("choose one of --bytes, --ids and --field or --messages");
  }
  if (given->messages && given->field != NULL) fail_usage("choose one of --field and --messages");
  if (given->ids != NULL && strcmp(given->ids, "16") != 0 && strcmp(given->ids, "32") != 0) {
    tokens_fail(EX_USAGE, "--ids %s: 16 or 32", given->ids);
  }
  if (given->ids != NULL) return *given->ids == '1' ? TOKENS_INPUT_IDS16 : TOKENS_INPUT_IDS32;
  return bytes ? TOKENS_INPUT_BYTES : TOKENS_INPUT_NONE;
}

/* Whether only some targets count. */
static bool has_mask(const struct given *given) {
  if (given->prompt_field != NULL && given->field == NULL) {
    fail_usage("--prompt-field: the prompt of what --field names: it needs --field");
  }
  if (given->masks && given->ids == NULL) fail_usage("--masks: masks of ids: it needs --ids");
  return given->prompt_field != NULL || given->messages || given->masks;
}

static struct tokens_settings parse(int count, char **arguments) {
  struct given given = {.end_of_text = UINT64_MAX};
  int first = pen_command_line_read(&command_line, count, arguments, &given);
  if (given.help) print_help();
  if (given.version) print_version();
  struct tokens_settings settings = {
      .input = input_of(&given),
      .field = given.field,
      .prompt_field = given.prompt_field,
      .messages = given.messages,
      .masks = given.masks,
      .has_mask = has_mask(&given),
      .has_end_of_text = given.end_of_text != UINT64_MAX,
      .end_of_text = (uint32_t)given.end_of_text,
      .window = (uint32_t)given.window,
      .pad_to = (uint32_t)given.pad_to,
      .single = given.single,
      .quiet = given.quiet,
      .output = given.output,
      .inputs = arguments + first,
      .input_count = count - first,
  };
  if (settings.input == TOKENS_INPUT_NONE) {
    fail_usage("choose how inputs become tokens: --bytes, --ids, --field or --messages");
  }
  if (settings.window == 0 && (settings.single || settings.pad_to != 0)) {
    fail_usage("--single and --pad-to shape windows: they need --pack");
  }
  settings.pad_to = settings.pad_to != 0 ? settings.pad_to : PAD_TO;
  if (settings.has_end_of_text && tokens_width(&settings) == 2 &&
      settings.end_of_text > UINT16_MAX) {
    fail_usage("--end-of-text: a token of 16 bits, unless ids of 32 bits are read");
  }
  if (settings.output == NULL || settings.output[0] == 0) {
    fail_usage("name the token file: -o OUT");
  }
  if (strcmp(settings.output, "-") == 0) {
    fail_usage("-o -: the output is a file, not a stream: its header is written last");
  }
  if (settings.input_count == 0) {
    fail_usage("name the files to read, or - for standard input");
  }
  return settings;
}

/* ---- the output ---- */

static int stat_input(const char *path, struct stat *status) {
  return strcmp(path, "-") == 0 ? fstat(STDIN_FILENO, status) : stat(path, status);
}

static _Noreturn void too_many(const char *path) {
  tokens_fail(EX_DATAERR,
              "%s: more than %d tokens in all, which is what the format can count; --pack has no "
              "such bound",
              path, INT32_MAX);
}

/* Fails if the output, or its temporary file, is an input. */
static void check_conflicts(const struct tokens_settings *settings) {
  size_t capacity = 0;
  const size_t count = (size_t)settings->input_count;
  struct pen_named_file *file = tokens_grow_array(NULL, &capacity, count + 1, sizeof *file);
  for (size_t i = 0; i < count; i++) {
    file[i] = (struct pen_named_file){"an input", settings->inputs[i], false, NULL};
  }
  file[count] = (struct pen_named_file){"-o", settings->output, true, ".tmp"};
  char conflict[PEN_CONFLICT_BYTES];
  if (pen_find_conflict(file, count + 1, conflict)) tokens_fail(EX_USAGE, "%s", conflict);
  free(file);
}

/* Finds bad paths and sizes before anything is written. */
static void check_files(const struct tokens_settings *settings) {
  struct stat input, output;
  if (stat(settings->output, &output) == 0 && !S_ISREG(output.st_mode)) {
    tokens_fail(EX_CANTCREAT, "%s: cannot create: it exists, and is not a regular file",
                settings->output);
  }
  if (pen_path_suffix(temporary, settings->output, ".tmp")) {
    tokens_fail(EX_CANTCREAT, "%s: cannot create: %s", settings->output, strerror(errno));
  }
  check_conflicts(settings);
  uint64_t known = 0;
  for (int i = 0; i < settings->input_count; i++) {
    const char *path = settings->inputs[i];
    if (stat_input(path, &input)) {
      tokens_fail(EX_NOINPUT, "%s: %s", path, strerror(errno));
    }
    if (S_ISDIR(input.st_mode)) {
      tokens_fail(EX_NOINPUT, "%s: is a directory", path);
    }
    uint64_t width = settings->input == TOKENS_INPUT_IDS16   ? 2
                     : settings->input == TOKENS_INPUT_IDS32 ? 4
                                                             : 1;
    known += S_ISREG(input.st_mode) && strcmp(path, "-") != 0 ? (uint64_t)input.st_size / width : 0;
    if (known > INT32_MAX && settings->window == 0 && settings->field == NULL &&
        !settings->has_mask) {
      too_many(path);
    }
  }
}

static int open_output(void) {
  signal(SIGINT, remove_and_reraise); /* before the file exists */
  signal(SIGTERM, remove_and_reraise);
  signal(SIGHUP, remove_and_reraise);
  temporary_exists = 1; /* a signal may end the process before open() returns */
  int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) {
    temporary_exists = 0;
    tokens_fail(EX_CANTCREAT, "%s: cannot create: %s", temporary, strerror(errno));
  }
  atexit(remove_unfinished);
  return fd;
}

/* Writes the whole file to OUT.tmp. */
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
  tokens_say("%s: %llu tokens, %llu bytes; read %.1f MB/s", settings->output,
             (unsigned long long)sink->token_count, (unsigned long long)file_bytes,
             (double)read_bytes * 1e-6 / (seconds > 0 ? seconds : 1));
  (settings->window == 0 ? tokens_plain_report : tokens_pack_report)(sink);
}

int main(int count, char **arguments) {
  struct tokens_settings settings = parse(count, arguments);
  pen_files_report_size_limit();
  check_files(&settings);
  double start_seconds = tokens_now_seconds();
  uint64_t read_bytes;
  struct tokens_sink *sink = write_output(open_output(), &settings, &read_bytes);
  double seconds = tokens_now_seconds() - start_seconds;
  if (rename(temporary, settings.output)) {
    tokens_fail(EX_CANTCREAT, "%s: cannot create: %s", settings.output, strerror(errno));
  }
  temporary_exists = 0;
  if (pen_folder_sync_of(settings.output)) {
    tokens_fail(EX_IOERR, "%s: cannot write: %s", settings.output, strerror(errno));
  }
  report(&settings, sink, read_bytes, seconds);
  return EXIT_SUCCESS;
}
