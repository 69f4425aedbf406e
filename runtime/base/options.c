/* options.c: the command line of the deployed binary, and its --help, over options.def. */
#include "runtime/base/options.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/base/patterns.h"

struct command {
  const char *name, *synopsis, *meaning;
};
static const struct command commands[] = {
#define PEN_COMMAND(kind, name, synopsis, meaning) {name, synopsis, meaning},
#include "runtime/base/options.def"
};

static const struct pen_option options_known[] = {
#define PEN_OPTION(field_, name_, type_, least_, argument_, default_, commands_, meaning_) \
  {.name = name_,                                                                          \
   .argument = argument_,                                                                  \
   .default_value = default_,                                                              \
   .meaning = meaning_,                                                                    \
   .type = PEN_OPTION_##type_,                                                             \
   .least = least_,                                                                        \
   .commands = commands_,                                                                  \
   .field = offsetof(struct pen_options, field_),                                          \
   .given = offsetof(struct pen_options, given.field_)},
#include "runtime/base/options.def"
};

static const struct pen_removed_option options_removed[] = {
#define PEN_REMOVED_OPTION(name, instead) {name, instead},
#include "runtime/base/options.def"
};

static void fail_usage(const char *message) { pen_fail(PEN_EXIT_USAGE, "%s", message); }

static struct pen_command_line command_line_of(const char *program, enum pen_command command) {
  return (struct pen_command_line){
      .program = program,
      .option = options_known,
      .option_count = sizeof options_known / sizeof *options_known,
      .removed = options_removed,
      .removed_count = sizeof options_removed / sizeof *options_removed,
      .command = 1u << command,
      .fail = fail_usage,
  };
}

static void print_command_help(const char *program, enum pen_command command) {
  int column = printf("usage: %s %s ", program, commands[command].name);
  pen_print_wrapped(column, column, commands[command].synopsis);
  printf("\n");
  pen_print_wrapped(0, 0, commands[command].meaning);
  printf("\n");
  struct pen_command_line line = command_line_of(program, command);
  pen_command_line_print_options(&line);
}

static void print_help(const char *program) {
  printf("usage: %s COMMAND [OPTION]...\n\n", program);
  for (unsigned c = 0; c < PEN_COMMANDS; c++) {
    int column = printf("  %-8s ", commands[c].name);
    pen_print_wrapped(column, column, commands[c].meaning);
  }
  printf(
      "\n%s COMMAND --help (-h) lists the options of a command; %s --version (-V) prints the "
      "version.\n",
      program, program);
}

static enum pen_command read_command(const char *program, const char *name) {
  for (unsigned c = 0; c < PEN_COMMANDS; c++) {
    if (name != NULL && strcmp(commands[c].name, name) == 0) {
      return (enum pen_command)c;
    }
  }
  char list[128];
  size_t used = 0;
  for (unsigned c = 0; c < PEN_COMMANDS && used < sizeof list; c++) {
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                             c == 0                 ? ""
                             : c + 1 < PEN_COMMANDS ? ", "
                                                    : " or ",
                             commands[c].name);
  }
  pen_fail(PEN_EXIT_USAGE, "%s%s %s; see '%s --help'", name == NULL ? "" : name,
           name == NULL ? "a command is needed:" : ": no such command; there are", list, program);
}

static _Noreturn void exit_after_output(void) {
  if (fflush(stdout) != 0 || ferror(stdout) != 0) {
    pen_fail(PEN_EXIT_CANNOT_WRITE, "cannot write to standard output");
  }
  exit(0);
}

void pen_options_read(struct pen_options *options, const char *program, const char *version,
                      int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    bool help = strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
    if (help && i == 1) {
      print_help(program);
      exit_after_output();
    }
    if (help) {
      print_command_help(program, read_command(program, argv[1]));
      exit_after_output();
    }
    if (strcmp(argv[i], "--version") == 0 || strcmp(argv[i], "-V") == 0) {
      printf("%s (penstock) %s\n", program, version);
      exit_after_output();
    }
  }
  *options = (struct pen_options){.command = read_command(program, argv[1])};
  char called[256];
  snprintf(called, sizeof called, "%s %s", program, argv[1]);
  struct pen_command_line line = command_line_of(called, options->command);
  int first = 1 + pen_command_line_read(&line, argc - 1, argv + 1, options);
  if (first < argc) {
    pen_fail(PEN_EXIT_USAGE, "%s: not an option; see %s --help", argv[first], called);
  }
  if (options->command == PEN_COMMAND_TRAIN) {
    options->data_weights = pen_weights_take("--data", &options->data);
  }
  pen_patterns_expand("--data", &options->data, options->data_weights != NULL);
  pen_patterns_expand("--eval-data", &options->eval_data, false);
}
