/* options.h: the command line of every program here, read by getopt_long() from a table that a
 * .def list fills. Options are written in full: abbreviations are refused. */
#ifndef PEN_BASE_OPTIONS_H
#define PEN_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The type of the field that an option sets. */
enum pen_option_type {
  PEN_OPTION_TEXT,     /* const char *: not empty, one of the choices where there are any */
  PEN_OPTION_LIST,     /* struct pen_texts: may be given more than once */
  PEN_OPTION_NUMBER,   /* uint64_t: a whole number, least to most */
  PEN_OPTION_SECONDS,  /* double: above 0 */
  PEN_OPTION_REAL,     /* double: 0 or more */
  PEN_OPTION_POSITIVE, /* double: above 0 */
  PEN_OPTION_SHARE,    /* double: above 0, at most 1 */
  PEN_OPTION_FRACTION, /* double: 0 or more, below 1 */
  PEN_OPTION_FLAG,     /* bool: takes no value */
};

/* The values of a LIST, in order. */
struct pen_texts {
  const char **text; /* [count] */
  size_t count;
};

struct pen_option_choice {
  const char *name, *meaning;
};

struct pen_option {
  const char *name, *argument; /* without "--"; how help names the value, "" for a flag */
  const char *default_value;   /* as a user would write it; null or "": none */
  const char *meaning;
  const struct pen_option_choice *choice; /* [choice_count]: the values that a TEXT may have */
  size_t choice_count;
  char letter; /* the short form, or 0 */
  enum pen_option_type type;
  uint64_t least, most; /* of a NUMBER; most 0: no limit */
  unsigned commands;    /* a bit for each command that takes the option; 0: all */
  size_t field;         /* offset of the field in the program's struct */
  size_t given;         /* offset of a bool that becomes true, or 0: none */
};

/* An option of an earlier version, which is refused. */
struct pen_removed_option {
  const char *name, *instead; /* without "--"; what the message says to use */
};

struct pen_command_line {
  const char *program; /* as messages name it: "penstock-gen", or "penstock-demo train" */
  const struct pen_option *option; /* [option_count] */
  size_t option_count;
  const struct pen_removed_option *removed; /* [removed_count] */
  size_t removed_count;
  unsigned command;                  /* the bit of the command; 0: the program has none */
  void (*fail)(const char *message); /* does not return; called for a usage error (exit 64) */
};

/* Sets the defaults, then what argv[1...] says, in the struct that `fields` points to. Texts stay
 * argv's. Returns the index of the first operand: argv is permuted so that operands come last. */
int pen_command_line_read(const struct pen_command_line *line, int argc, char **argv, void *fields);

/* Prints the options that the command takes, with meanings, choices and defaults. */
void pen_command_line_print_options(const struct pen_command_line *line);

/* Prints a text in lines of at most 100 columns. `column` columns of the first line are used; later
 * lines are indented. */
void pen_print_wrapped(int column, int indent, const char *text);

#endif
