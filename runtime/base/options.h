/* options.h: the command line of the deployed binary, as options.def lists it. */
#ifndef PEN_RUNTIME_OPTIONS_H
#define PEN_RUNTIME_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/options.h"

struct pen_mailbox; /* mailbox.h */

enum pen_command {
#define PEN_COMMAND(kind, name, synopsis, meaning) PEN_COMMAND_##kind,
#include "runtime/base/options.def"
  PEN_COMMANDS
};

enum {
#define PEN_COMMAND(kind, name, synopsis, meaning) PEN_IN_##kind = 1 << PEN_COMMAND_##kind,
#include "runtime/base/options.def"
};

typedef const char *pen_option_TEXT; /* null: not given */
typedef uint64_t pen_option_NUMBER;
typedef double pen_option_SECONDS;
typedef double pen_option_REAL;
typedef double pen_option_POSITIVE;
typedef double pen_option_SHARE;
typedef double pen_option_FRACTION;
typedef bool pen_option_FLAG;
typedef struct pen_texts pen_option_LIST;

/* The options, with defaults for those not given; `given` says which were. */
struct pen_options {
  enum pen_command command;
#define PEN_OPTION(field, name, type, least, argument, default, commands, meaning) \
  pen_option_##type field;
#include "runtime/base/options.def"
  const uint64_t *data_weights; /* [data.count], in 1e-9: of a blend; null: none (patterns.h) */
  struct pen_mailbox *mailbox;  /* of the process that uses the library; null: none does */
  struct {
#define PEN_OPTION(field, name, type, least, argument, default, commands, meaning) bool field;
#include "runtime/base/options.def"
  } given;
};

/* Reads the command line. --help and --version print and exit 0; an error is reported and
 * exits 64. `program` is how the user calls this binary. The texts stay argv's. */
void pen_options_read(struct pen_options *options, const char *program, const char *version,
                      int argc, char **argv);

#endif
