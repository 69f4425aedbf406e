/* options.c: the command line of penstock-plan and its --help, by the table options.def. */
#include "gen/planner/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/base/version.h"
#include "gen/options.h"

static const struct pen_option_choice prints[] = {
#define PEN_PRINT(name, meaning) {name, meaning},
#include "gen/planner/options.def"
};
enum { PRINTS = sizeof prints / sizeof *prints, NUMBER_MAXIMUM = 1000000 };

static const struct pen_option options_known[] = {
/* Only --print has choices. */
#define CHOICES(field) \
  (offsetof(struct pen_plan_options, field) == offsetof(struct pen_plan_options, print))
#define PEN_OPTION(field_, letter_, name_, type_, least_, argument_, default_, meaning_) \
  {.name = name_,                                                                        \
   .argument = argument_,                                                                \
   .default_value = default_,                                                            \
   .meaning = meaning_,                                                                  \
   .choice = prints,                                                                     \
   .choice_count = CHOICES(field_) ? PRINTS : 0,                                         \
   .letter = letter_,                                                                    \
   .type = PEN_OPTION_##type_,                                                           \
   .least = least_,                                                                      \
   .most = NUMBER_MAXIMUM,                                                               \
   .field = offsetof(struct pen_plan_options, field_)},
#include "gen/planner/options.def"
};

static void fail_usage(const char *message) {
  pen_stop(PEN_EXIT_USAGE, "penstock-plan: %s", message);
}

static const struct pen_command_line command_line = {
    .program = "penstock-plan",
    .option = options_known,
    .option_count = sizeof options_known / sizeof *options_known,
    .fail = fail_usage,
};

static _Noreturn void exit_after_output(void) {
  if (fflush(stdout) || ferror(stdout))
    pen_stop(PEN_EXIT_WRITE, "penstock-plan: cannot write to standard output");
  pen_free_all();
  exit(0);
}

struct pen_plan_options *pen_plan_options_read(int argc, char **argv) {
  struct pen_plan_options *options = pen_new(1, sizeof *options);
  int first = pen_command_line_read(&command_line, argc, argv, options);
  if (options->help) {
    printf(
        "usage: penstock-plan [OPTION]... TOPOLOGY.cfg\n\nChooses replicas, ranks, stages, "
        "microbatch, schedule, cut, recomputation and sharding for the\ncluster that the group "
        "plan of a topology file describes.\n\n");
    pen_command_line_print_options(&command_line);
    exit_after_output();
  }
  if (options->version) {
    printf("penstock-plan %s\n", PEN_VERSION_TEXT);
    exit_after_output();
  }
  if (argc - first > 1)
    pen_stop(PEN_EXIT_USAGE, "penstock-plan: %s: one topology at a time", argv[first + 1]);
  options->topology = argv[first];
  if (!options->topology)
    pen_stop(PEN_EXIT_USAGE, "penstock-plan: TOPOLOGY.cfg is missing; see penstock-plan --help");
  pen_overrides_check(&options->overrides, "penstock-plan", "plan.ranks=8");
  if (options->exhaustive) options->refine = 0;
  return options;
}
