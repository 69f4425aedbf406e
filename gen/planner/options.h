/* options.h: the command line of penstock-plan, as options.def lists it. */
#ifndef PEN_PLAN_OPTIONS_H
#define PEN_PLAN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/options.h"

struct pen_plan_options {
  const char *topology;
  const char *output, *print, *costs;
  struct pen_texts overrides; /* of -s, in order */
  uint64_t candidate, refine, seconds, top;
  bool all, distinct, exhaustive, help, version;
};

/* Reads the command line. --help and --version print and exit 0; an error prints a message and
 * exits 64. */
struct pen_plan_options *pen_plan_options_read(int argc, char **argv);

#endif
