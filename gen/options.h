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
  bool arrows, blocks, check, critical, robustness, list_schedules, help, version;
};

/* Reads the command line. --help, --version and --list-schedules print and exit 0; an error prints
 * a message and exits 64. */
struct pen_generator_options *pen_generator_options_read(int argc, char **argv);

/* Ends the program (64) unless each of -s is PATH=VALUE; `example` is one that is. */
void pen_overrides_check(const struct pen_texts *overrides, const char *program,
                         const char *example);

#endif
