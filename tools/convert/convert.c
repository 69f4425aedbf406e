/* convert.c: penstock-convert writes a topology for a model of Hugging Face's transformers: the
 * command line and the output. */
#define _GNU_SOURCE 1

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "gen/base/arena.h"
#include "gen/base/version.h"
#include "base/options.h"
#include "base/same_file.h"
#include "tools/convert/convert.h"
#include "base/model_config.h"
#include "gen/topology/settings.h"
#include "tools/convert/export.h"

static const char *allowed(const char *name, bool nullable, double number) {
  const struct pen_setting *setting = pen_setting_find_path(pen_text("model.%s", name));
  const double least = nullable ? 1 : setting->minimum;
  if (isfinite(number) && number >= least && number <= setting->maximum) return NULL;
  return setting->type == PEN_REAL ? pen_setting_allowed(setting)
                                   : pen_text("a whole number from %.0f to %.0f%s", least,
                                              setting->maximum, nullable ? ", or null" : "");
}

/* All reasons at once. Returns how many there are. */
static size_t print_reasons(const struct pen_model_config *config) {
  const struct pen_config_lines *reasons = &config->reasons, *unknown = &config->unknown;
  size_t printed = 0;
  for (; printed < reasons->count && printed < PEN_CONFIG_LINES_MAX; printed++)
    convert_say("%s", reasons->line[printed]);
  for (size_t i = 0; i < unknown->count && printed < PEN_CONFIG_LINES_MAX; i++, printed++)
    convert_say(
        "%s: %s = %s is not supported: unknown key; if the results of the model do not depend on "
        "it: "
        "--ignore %s",
        config->path, unknown->line[i], config->unknown_values.line[i], unknown->line[i]);
  const size_t all = reasons->count + unknown->count;
  if (printed < all)
    convert_say("%s: %zu keys more are not supported", config->path, all - printed);
  return all;
}

/* Reads a config.json, or the one in a folder, within the limits of settings.def. Keys that are not
 * known are accepted if `ignored` has them. Ends the program with a line `FILE: KEY = VALUE is not
 * supported: what is` for each such key: 65 for a model that is not supported, 66 if there is no
 * such file. */
static void convert_read(struct pen_model_config *config, const char *path,
                         const struct pen_texts *ignored) {
  const struct pen_config_rules rules = {ignored->text, ignored->count, allowed};
  const int status = pen_model_config_read(config, path, &rules);
  if (print_reasons(config) > 0) exit(status == 0 ? 65 : status);
  for (size_t i = 0; i < config->notes.count && i < PEN_CONFIG_LINES_MAX; i++)
    convert_warn("%s", config->notes.line[i]);
}

struct request {
  const char *input, *output, *exported, *dtype;
  uint64_t sequence; /* 0: not given */
  struct pen_texts ignored;
  bool help, version;
};

/* ---- the command line ---- */

static _Noreturn void exit_after_output(void) {
  if (fflush(stdout) || ferror(stdout)) convert_fail(EX_IOERR, "standard output: cannot write");
  exit(0);
}

static const struct pen_option options_known[] = {
#define PEN_OPTION(field_, letter_, name_, type_, argument_, meaning_) \
  {.name = name_,                                                      \
   .argument = argument_,                                              \
   .meaning = meaning_,                                                \
   .letter = letter_,                                                  \
   .type = PEN_OPTION_##type_,                                         \
   .least = 1,                                                         \
   .field = offsetof(struct request, field_)},
#include "tools/convert/options.def"
};

static void fail_usage(const char *message) { convert_fail(EX_USAGE, "%s", message); }

static const struct pen_command_line command_line = {
    .program = "penstock-convert",
    .option = options_known,
    .option_count = sizeof options_known / sizeof *options_known,
    .fail = fail_usage,
};

static _Noreturn void print_help(void) {
  printf(
      "usage: penstock-convert [OPTION]... CONFIG.json|FOLDER\n"
      "       penstock-convert --export FOLDER [--dtype DTYPE] CHECKPOINT\n\n"
      "Writes a topology for a model as Hugging Face's transformers stores it, or a checkpoint as "
      "such a "
      "model.\n\n");
  pen_command_line_print_options(&command_line);
  exit_after_output();
}

static struct request read_command_line(int argc, char **argv) {
  struct request request = {0};
  int first = pen_command_line_read(&command_line, argc, argv, &request);
  if (request.help) print_help();
  if (request.version) {
    printf("penstock-convert (penstock) %s\n", PEN_VERSION_TEXT);
    exit_after_output();
  }
  if (first + 1 != argc)
    convert_fail(EX_USAGE, "give one config.json, or the folder that holds it; try --help");
  request.input = argv[first];
  if (request.exported == NULL && request.dtype != NULL)
    convert_fail(EX_USAGE, "--dtype is for --export");
  if (request.exported != NULL &&
      (request.output != NULL || request.sequence != 0 || request.ignored.count != 0))
    convert_fail(EX_USAGE, "--export writes no topology: without -o, --sequence and --ignore");
  return request;
}

/* ---- the topology ---- */

/* Rotary positions allow sequences shorter than the model's; gpt2 has a table of that length. */
static void shorten_sequence(struct pen_model_config *model, uint64_t wanted) {
  struct pen_config_setting *sequence = pen_model_config_find(model, "sequence");
  uint64_t most = strtoull(sequence->text, NULL, 10);
  bool fixed = !sequence->is_length;
  if (wanted > most || (fixed && wanted != most))
    convert_fail(EX_USAGE, "--sequence %" PRIu64 ": %s = %" PRIu64 "%s", wanted, sequence->key,
                 most, fixed ? ", the rows of its table of positions" : ", or fewer");
  sequence->text = pen_text("%" PRIu64, wanted);
}

/* A plan has memory for each position, and a model may have a million. */
static void limit_sequence(struct pen_model_config *model) {
  enum { SEQUENCE_MOST = 4096 };
  const struct pen_config_setting *sequence = pen_model_config_find(model, "sequence");
  uint64_t most = strtoull(sequence->text, NULL, 10);
  if (most <= SEQUENCE_MOST || !sequence->is_length) return;
  convert_say("sequence = %d of %s = %" PRIu64 " positions: --sequence takes another",
              SEQUENCE_MOST, sequence->key, most);
  shorten_sequence(model, SEQUENCE_MOST);
}

static void write_topology(FILE *out, const struct pen_model_config *model) {
  const char *slash = strrchr(model->path, '/');
  fprintf(out,
          "# Made by penstock-convert from %s. Group model is from that file; change the rest as "
          "needed.\n",
          slash ? slash + 1 : model->path);
  fprintf(out, "pipeline = { ranks = 1; microbatches = 8; schedule = \"1f1b\"; };\n");
  fprintf(out, "model = {\n  family = \"%s\";\n", model->family);
  for (size_t i = 0; i < model->count; i++)
    if (!model->setting[i].is_implied)
      fprintf(out, "  %s = %s;\n", model->setting[i].name, model->setting[i].text);
  fprintf(out,
          "};\nbatch = { microbatch = 1; };\n"
          "optimizer = { learning_rate = 1e-4; steps = 1000; warmup_steps = 100; decay = "
          "\"cosine\"; };\n");
}

/* Writes a temporary file and renames it, so that the output is complete or absent. An output that
 * is not a regular file (a device, a link) is written directly. */
static void write_file(const char *path, const struct pen_model_config *model) {
  struct stat status;
  char conflict[PEN_CONFLICT_BYTES];
  const struct pen_named_file file[] = {{"-o", path, true, NULL},
                                        {"the config", model->path, false, NULL}};
  if (pen_find_conflict(file, 2, conflict)) convert_fail(EX_USAGE, "%s", conflict);
  bool replaces = lstat(path, &status) || S_ISREG(status.st_mode);
  const char *written = replaces ? pen_text("%s.tmp%ld", path, (long)getpid()) : path;
  FILE *out = fopen(written, replaces ? "wx" : "w");
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
  if (request.exported != NULL) {
    convert_export(request.input, request.exported, request.dtype ? request.dtype : "f32");
    exit(0);
  }
  struct pen_model_config model;
  convert_read(&model, request.input, &request.ignored);
  if (request.sequence != 0)
    shorten_sequence(&model, request.sequence);
  else
    limit_sequence(&model);
  if (request.output != NULL)
    write_file(request.output, &model);
  else
    write_topology(stdout, &model);
  pen_model_config_free(&model);
  pen_free_all();
  exit_after_output();
}
