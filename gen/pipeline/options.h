/* options.h: the command line of penstock-gen, as options.def lists it. */
#ifndef PEN_GEN_OPTIONS_H
#define PEN_GEN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/options.h"

/* Null and false: not given. `target` defaults to the output file. */
struct pen_generator_options {
  const char *topology;
  const char *output, *print, *actions, *costs, *depend, *target, *link, *name, *times;
  struct pen_texts overrides; /* of -s, in order */
  uint64_t search_seconds, search_seed;
  bool search_seconds_given, search_seed_given;
  bool arrows, blocks, check, critical, robustness, list_ops, list_schedules, help, version;
};

/* Reads the command line. --help, --version and --list-schedules print and exit 0; an error prints
 * a message and exits 64. */
struct pen_generator_options *pen_generator_options_read(int argc, char **argv);

/* An option of a .def list with the columns of options.def, whose field is in `structure`. Of the
 * options --print alone has choices: `prints`. More initialisers of struct pen_option may follow.
 */
#define PEN_OPTION_ROW(structure, field_, letter_, name_, type_, least_, argument_, default_, \
                       meaning_, ...)                                                         \
  {                                                                                           \
    .name = name_, .argument = argument_, .default_value = default_, .meaning = meaning_,     \
    .choice = prints,                                                                         \
    .choice_count = offsetof(structure, field_) == offsetof(structure, print)                 \
                        ? sizeof prints / sizeof *prints                                      \
                        : 0,                                                                  \
    .letter = letter_, .type = PEN_OPTION_##type_, .least = least_,                           \
    .most = PEN_OPTION_NUMBER_MOST, .field = offsetof(structure, field_), __VA_ARGS__         \
  }
enum { PEN_OPTION_NUMBER_MOST = 1000000 };

/* The one operand after the options, argv[first]; ends the program (64) if there is none or more.
 */
const char *pen_topology_operand(const char *program, int argc, char **argv, int first);

/* Prints what --help and --version ask for and ends the program: 0, or 74 if standard output cannot
 * be written. `about` is above the options. */
void pen_options_print(const struct pen_command_line *line, const char *about, bool help,
                       bool version);

/* Ends the program (64) unless each of -s is PATH=VALUE; `example` is one that is. */
void pen_overrides_check(const struct pen_texts *overrides, const char *program,
                         const char *example);

#endif
