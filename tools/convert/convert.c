/* convert.c: penstock-convert, which writes a topology for a model of Hugging Face's transformers:
 * the command line, and the file. */
#define _GNU_SOURCE 1
#ifdef HAVE_CONFIG_H
#include <stdio.h>
#include <config.h>
#endif

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "gen/base/arena.h"
#include "gen/base/version.h"
#include "gen/topology/source.h"
#include "tools/convert/convert.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION PEN_VERSION_TEXT
#endif

enum option_id {
  OPTION_FIRST = 256,
#define PEN_OPTION(name, letter, text, argument, meaning) OPTION_##name,
#include "tools/convert/options.def"
};

static const struct option_row {
  int id;
  char letter;
  const char *text, *argument, *meaning;
} option_rows[] = {
#define PEN_OPTION(name, letter, text, argument, meaning) \
  {OPTION_##name, letter, text, argument, meaning},
#include "tools/convert/options.def"
};
enum { OPTIONS = sizeof option_rows / sizeof *option_rows };

struct request {
  const char *input, *output, *sequence;
  const char **ignored;
  size_t ignored_count;
};

/* ---- messages ---- */

static void say(const char *kind, const char *format, va_list list) {
  fprintf(stderr, "penstock-convert: %s", kind);
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
}

void convert_fail(int status, const char *format, ...) {
  va_list list;
  va_start(list, format);
  say("", format, list);
  va_end(list);
  exit(status);
}

void convert_warn(const char *format, ...) {
  va_list list;
  va_start(list, format);
  say("warning: ", format, list);
  va_end(list);
}

/* ---- the command line ---- */

/* Ends well, if what was printed came through. */
static _Noreturn void leave(void) {
  if (fflush(stdout) || ferror(stdout)) convert_fail(EX_IOERR, "standard output: cannot write");
  exit(0);
}

static _Noreturn void print_help(void) {
  printf(
      "usage: penstock-convert [OPTION]... CONFIG.json|FOLDER\n\n"
      "Writes a topology for a model as Hugging Face's transformers stores it.\n\n");
  for (size_t i = 0; i < OPTIONS; i++) {
    const struct option_row *row = &option_rows[i];
    int column = row->letter ? printf("  -%c, --%s", row->letter, row->text)
                             : printf("      --%s", row->text);
    if (*row->argument) column += printf("=%s", row->argument);
    printf("%*s%s\n", column < 24 ? 24 - column : 1, "", row->meaning);
  }
  leave();
}

static struct request read_command_line(int argc, char **argv) {
  struct option options[OPTIONS + 1] = {{0}};
  char letters[2 * OPTIONS + 2] = ":";
  for (size_t i = 0; i < OPTIONS; i++) {
    const struct option_row *row = &option_rows[i];
    options[i] =
        (struct option){row->text, *row->argument ? required_argument : no_argument, NULL, row->id};
    if (row->letter)
      sprintf(letters + strlen(letters), "%c%s", row->letter, *row->argument ? ":" : "");
  }
  struct request request = {.ignored = pen_new((size_t)argc + 1, sizeof *request.ignored)};
  opterr = 0;
  for (int id; (id = getopt_long(argc, argv, letters, options, NULL)) != -1;) {
    for (size_t i = 0; i < OPTIONS; i++)
      if (option_rows[i].letter && id == option_rows[i].letter) id = option_rows[i].id;
    switch (id) {
      case OPTION_OUTPUT: request.output = optarg; break;
      case OPTION_SEQUENCE: request.sequence = optarg; break;
      case OPTION_IGNORE: request.ignored[request.ignored_count++] = optarg; break;
      case OPTION_HELP: print_help();
      case OPTION_VERSION: printf("penstock-convert (penstock) %s\n", PACKAGE_VERSION); leave();
      case ':': convert_fail(EX_USAGE, "%s: needs a value", argv[optind - 1]);
      default: convert_fail(EX_USAGE, "%s: no such option; try --help", argv[optind - 1]);
    }
  }
  if (optind + 1 != argc)
    convert_fail(EX_USAGE, "one config.json, or the folder that holds it, is wanted; try --help");
  request.input = argv[optind];
  return request;
}

/* ---- the topology ---- */

/* Shorter sequences than the model has positions for do no harm where positions are rotary; gpt2's
 * are a table of that length. */
static void shorten(struct convert_model *model, const char *text) {
  struct convert_setting *sequence = convert_find(model, "sequence");
  char *end;
  errno = 0;
  long long wanted = strtoll(text, &end, 10), most = atoll(sequence->text);
  bool fixed = strcmp(model->family, "gpt2") == 0;
  if (*text < '0' || *text > '9' || *end || errno || wanted < 1 || wanted > most ||
      (fixed && wanted != most))
    convert_fail(EX_USAGE, "--sequence %s: %s = %lld%s", text, sequence->key, most,
                 fixed ? ", the rows of its table of positions" : ", or fewer");
  sequence->text = text;
  sequence->key = NULL;
}

static void write_topology(FILE *out, const struct convert_model *model) {
  const char *slash = strrchr(model->path, '/');
  fprintf(out,
          "# Made by penstock-convert from %s. The model is as it says; the rest is a beginning.\n",
          slash ? slash + 1 : model->path);
  fprintf(out, "pipeline = { ranks = 1; microbatches = 8; schedule = \"1f1b\"; };\n");
  fprintf(out, "model = {\n  family = \"%s\";\n", model->family);
  for (size_t i = 0; i < model->count; i++)
    fprintf(out, "  %s = %s;\n", model->setting[i].name, model->setting[i].text);
  fprintf(out,
          "};\nbatch = { microbatch = 1; };\n"
          "optimizer = { learning_rate = 1e-4; steps = 1000; warmup_steps = 100; decay = "
          "\"cosine\"; };\n");
}

/* Beside the file, then renamed: it is whole or not there. What is there and no plain file (a
 * device, a link) is written through. */
static void write_file(const char *path, const struct convert_model *model) {
  struct stat status;
  if (pen_same_file(path, model->path))
    convert_fail(EX_USAGE, "-o %s: the same file as the config", path);
  bool replaces = lstat(path, &status) || S_ISREG(status.st_mode);
  const char *written = replaces ? pen_text("%s.tmp%ld", path, (long)getpid()) : path;
  FILE *out = fopen(written, "w");
  if (out == NULL) convert_fail(EX_CANTCREAT, "%s: cannot create: %s", path, strerror(errno));
  write_topology(out, model);
  int failed = ferror(out);
  if (fclose(out) || failed || (replaces && rename(written, path))) {
    int cause = errno;
    if (replaces) unlink(written);
    convert_fail(EX_IOERR, "%s: cannot write: %s", path, strerror(cause));
  }
}

int main(int argc, char **argv) {
  struct request request = read_command_line(argc, argv);
  struct convert_model model = convert_read(request.input, request.ignored, request.ignored_count);
  if (request.sequence != NULL) shorten(&model, request.sequence);
  if (request.output != NULL)
    write_file(request.output, &model);
  else
    write_topology(stdout, &model);
  pen_free_all();
  leave();
}
