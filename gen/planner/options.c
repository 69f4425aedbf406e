/* options.c: the command line of penstock-plan and its --help, by the table options.def. */
#include "gen/planner/options.h"

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/pipeline/options.h"

static const struct pen_option_choice prints[] = {
#define PEN_PRINT(name, meaning) {name, meaning},
#include "gen/planner/options.def"
};

static const struct pen_option options_known[] = {
#define PEN_OPTION(...) PEN_OPTION_ROW(struct pen_plan_options, __VA_ARGS__),
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

struct pen_plan_options *pen_plan_options_read(int argc, char **argv) {
  struct pen_plan_options *options = pen_new(1, sizeof *options);
  int first = pen_command_line_read(&command_line, argc, argv, options);
  pen_answer(
      &command_line,
      "Chooses replicas, ranks, stages, microbatch, schedule, cut, recomputation and sharding "
      "for the\ncluster that the group plan of a topology file describes.",
      options->help, options->version);
  options->topology = pen_topology_operand(command_line.program, argc, argv, first);
  pen_overrides_check(&options->overrides, "penstock-plan", "plan.ranks=8");
  if (options->exhaustive) options->refine = 0;
  return options;
}
