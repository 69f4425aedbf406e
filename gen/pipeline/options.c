/* options.c: the command line of penstock-gen and its --help, by the table options.def. Options and
 * the topology may be in any order; `--` ends the options. */
#include "gen/pipeline/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/model/by_row.h"
#include "gen/schedule/schedule.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/base/version.h"

static const struct pen_option_choice prints[] = {
#define PEN_PRINT(name, meaning) {name, meaning},
#include "gen/pipeline/options.def"
};

static const struct pen_option options_known[] = {
/* The field that says whether the option was given, or 0. */
#define IS_FIELD(field, other) \
  (offsetof(struct pen_generator_options, field) == offsetof(struct pen_generator_options, other))
#define GIVEN(field)                                                                              \
  (IS_FIELD(field, search_seconds) ? offsetof(struct pen_generator_options, search_seconds_given) \
   : IS_FIELD(field, search_seed)  ? offsetof(struct pen_generator_options, search_seed_given)    \
                                   : 0)
#define PEN_OPTION(field, ...) \
  PEN_OPTION_ROW(struct pen_generator_options, field, __VA_ARGS__, .given = GIVEN(field)),
#include "gen/pipeline/options.def"
};

static void fail_usage(const char *message) {
  pen_stop(PEN_EXIT_USAGE, "penstock-gen: %s", message);
}

static const struct pen_command_line command_line = {
    .program = "penstock-gen",
    .option = options_known,
    .option_count = sizeof options_known / sizeof *options_known,
    .fail = fail_usage,
};

static _Noreturn void exit_after_output(const char *program) {
  if (fflush(stdout) || ferror(stdout))
    pen_stop(PEN_EXIT_WRITE, "%s: cannot write to standard output", program);
  pen_free_all();
  exit(0);
}

void pen_options_print(const struct pen_command_line *line, const char *about, bool help,
                       bool version) {
  if (!help && !version) return;
  printf(help ? "usage: %s [OPTION]... TOPOLOGY.cfg\n\n%s\n\n" : "%s %s\n", line->program,
         help ? about : PEN_VERSION_TEXT);
  if (help) pen_command_line_print_options(line);
  exit_after_output(line->program);
}

const char *pen_topology_operand(const char *program, int argc, char **argv, int first) {
  const char *topology = argv[first];
  if (argc - first > 1)
    pen_stop(PEN_EXIT_USAGE, "%s: %s: one topology at a time", program, argv[first + 1]);
  if (!topology)
    pen_stop(PEN_EXIT_USAGE, "%s: TOPOLOGY.cfg is missing; see %s --help", program, program);
  if (!*topology) pen_stop(PEN_EXIT_USAGE, "%s: the topology's name may not be empty", program);
  return topology;
}

/* The name is used in file names, comments and messages. */
static void check_name(const char *name) {
  static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  if (name && name[strspn(name, allowed)])
    pen_stop(PEN_EXIT_USAGE,
             "penstock-gen: --name %s: needs a name of letters, digits, '_', '.' and '-'", name);
}

void pen_overrides_check(const struct pen_texts *overrides, const char *program,
                         const char *example) {
  for (size_t i = 0; i < overrides->count; i++)
    if (strcspn(overrides->text[i], "=") % strlen(overrides->text[i]) == 0)
      pen_stop(PEN_EXIT_USAGE, "%s: -s %s: needs PATH=VALUE, as in %s", program, overrides->text[i],
               example);
}

struct pen_generator_options *pen_generator_options_read(int argc, char **argv) {
  struct pen_generator_options *options = pen_new(1, sizeof *options);
  int first = pen_command_line_read(&command_line, argc, argv, options);
  if (options->list_schedules && !options->help) {
    pen_schedules_list(stdout);
    exit_after_output(command_line.program);
  }
  if (options->list_ops && !options->help) {
    pen_described_rows_list(stdout);
    exit_after_output(command_line.program);
  }
  pen_options_print(&command_line, "Turns a topology file into the static plan of a deployment.",
                    options->help, options->version);
  options->topology = pen_topology_operand(command_line.program, argc, argv, first);
  if ((options->arrows || options->critical) && strcmp(options->print, "svg"))
    pen_stop(PEN_EXIT_USAGE, "penstock-gen: --%s: only with --print=svg",
             options->arrows ? "arrows" : "critical");
  if (options->robustness && strcmp(options->print, "report"))
    pen_stop(PEN_EXIT_USAGE, "penstock-gen: --robustness: only with --print=report");
  check_name(options->name);
  pen_overrides_check(&options->overrides, "penstock-gen", "pipeline.ranks=2");
  if (!options->target) options->target = options->output;
  if (options->target == NULL && options->depend)
    pen_stop(PEN_EXIT_USAGE, "penstock-gen: --depend: needs --target, or --output");
  return options;
}
