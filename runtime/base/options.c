/* options.c: parser and --help over options.def. A message names the option, the value and what is
 * allowed. */
#include "runtime/base/options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"

enum option_type { TEXT, NUMBER, SECONDS, REAL, FLAG };

struct command {
  const char *name, *synopsis, *meaning;
};
static const struct command commands[] = {
#define PEN_COMMAND(kind, name, synopsis, meaning) {name, synopsis, meaning},
#include "runtime/base/options.def"
};

struct option {
  const char *name, *argument, *fallback, *meaning;
  uint64_t least;
  enum option_type type;
  unsigned commands;
  size_t field_offset, given_offset;
};
static const struct option options_known[] = {
#define PEN_OPTION(field, name, type, least, argument, fallback, commands, meaning) \
  {name,                                                                            \
   argument,                                                                        \
   fallback,                                                                        \
   meaning,                                                                         \
   least,                                                                           \
   type,                                                                            \
   commands,                                                                        \
   offsetof(struct pen_options, field),                                             \
   offsetof(struct pen_options, given.field)},
#include "runtime/base/options.def"
};
enum { OPTIONS = sizeof options_known / sizeof options_known[0], WIDTH = 100 };

/* Prints a text in lines of at most WIDTH, each after the first indented. */
static void print_wrapped(int column, int indent, const char *text) {
  const char *gap = "";
  while (*text != '\0') {
    int length = (int)strcspn(text, " ");
    if (column + length >= WIDTH && column > indent) {
      column = printf("\n%*s", indent, "") - 1;
      gap = "";
    }
    column += printf("%s%.*s", gap, length, text);
    gap = " ";
    text += length + (text[length] == ' ');
  }
  printf("\n");
}

static void print_command_help(const char *program, unsigned command) {
  int column = printf("usage: %s %s ", program, commands[command].name);
  print_wrapped(column, column, commands[command].synopsis);
  printf("\n");
  print_wrapped(0, 0, commands[command].meaning);
  printf("\n");
  for (unsigned i = 0; i < OPTIONS; i++) {
    const struct option *option = &options_known[i];
    if (option->commands & 1u << command) {
      column = printf("  --%s %s", option->name, option->argument);
      column += printf("%*s", 24 > column ? 24 - column : 1, "");
      print_wrapped(column, 24, option->meaning);
      if (option->fallback[0] != '\0') {
        printf("%24s[%s]\n", "", option->fallback);
      }
    }
  }
}

static void print_help(const char *program) {
  printf("usage: %s COMMAND [OPTION]...\n\n", program);
  for (unsigned c = 0; c < PEN_COMMANDS; c++) {
    int column = printf("  %-8s ", commands[c].name);
    print_wrapped(column, column, commands[c].meaning);
  }
  printf("\n%s COMMAND --help tells the options of a command; %s --version tells the version.\n",
         program, program);
}

/* "--data, --steps, ..." of a command, for messages. */
static const char *list_options(char *text, size_t bytes, unsigned command) {
  size_t used = 0;
  text[0] = '\0';
  for (unsigned i = 0; i < OPTIONS && used < bytes; i++) {
    if (options_known[i].commands & 1u << command) {
      used += (size_t)snprintf(text + used, bytes - used, "%s--%s", used == 0 ? "" : ", ",
                               options_known[i].name);
    }
  }
  return text;
}

/* strtoull takes a sign and blanks; we take digits alone. */
static bool parse_number(const char *text, uint64_t *number) {
  char *end;
  errno = 0;
  *number = strtoull(text, &end, 10);
  return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
}

/* Not below 0, and finite. */
static bool parse_real(const char *text, double *real) {
  char *end;
  *real = strtod(text, &end);
  return ((text[0] >= '0' && text[0] <= '9') || text[0] == '.') && *end == '\0' && isfinite(*real);
}

/* Sets a field from its text. */
static void set(struct pen_options *options, const struct option *option, const char *value) {
  void *field = (char *)options + option->field_offset;
  uint64_t number;
  double real;
  switch (option->type) {
    case TEXT:
      if (value[0] == '\0') {
        pen_fail(PEN_EXIT_USAGE, "--%s '': %s may not be empty", option->name, option->argument);
      }
      *(const char **)field = value;
      break;
    case NUMBER:
      if (!parse_number(value, &number) || number < option->least) {
        pen_fail(PEN_EXIT_USAGE, "--%s %s: a whole number, %" PRIu64 " or more", option->name,
                 value, option->least);
      }
      *(uint64_t *)field = number;
      break;
    case SECONDS:
      if (!parse_real(value, &real) || real == 0.0) {
        pen_fail(PEN_EXIT_USAGE, "--%s %s: a number of seconds above 0", option->name, value);
      }
      *(double *)field = real;
      break;
    case REAL:
      if (!parse_real(value, &real)) {
        pen_fail(PEN_EXIT_USAGE, "--%s %s: a number, 0 or more", option->name, value);
      }
      *(double *)field = real;
      break;
    case FLAG: *(bool *)field = true; break;
  }
}

static const struct option *find_option(const char *name, size_t length) {
  for (unsigned i = 0; i < OPTIONS; i++) {
    if (strlen(options_known[i].name) == length &&
        memcmp(options_known[i].name, name, length) == 0) {
      return &options_known[i];
    }
  }
  return NULL;
}

/* Reads the option at argv[0], whose value may stand after a '=' or in argv[1]. Returns how many
 * words it took. */
static int read_option(struct pen_options *options, const char *program, char **argv) {
  char list[512];
  const char *command = commands[options->command].name;
  if (strncmp(argv[0], "--", 2) != 0) {
    pen_fail(PEN_EXIT_USAGE, "%s: not an option; '%s %s' takes %s", argv[0], program, command,
             list_options(list, sizeof list, options->command));
  }
  const char *name = argv[0] + 2, *equals = strchr(name, '=');
  size_t length = equals == NULL ? strlen(name) : (size_t)(equals - name);
  const struct option *option = find_option(name, length);
  if (option == NULL || !(option->commands & 1u << options->command)) {
    pen_fail(PEN_EXIT_USAGE, "--%.*s: '%s %s' has no such option; it takes %s", (int)length, name,
             program, command, list_options(list, sizeof list, options->command));
  }
  if (option->type == FLAG && equals != NULL) {
    pen_fail(PEN_EXIT_USAGE, "%s: --%s takes no value", argv[0], option->name);
  }
  bool next = option->type != FLAG && equals == NULL;
  if (next && argv[1] == NULL) {
    pen_fail(PEN_EXIT_USAGE, "--%s: needs a value: %s", option->name, option->argument);
  }
  set(options, option, next ? argv[1] : equals == NULL ? "" : equals + 1);
  *(bool *)((char *)options + option->given_offset) = true;
  return next ? 2 : 1;
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
  pen_fail(PEN_EXIT_USAGE, "%s%s %s; '%s --help' tells more", name == NULL ? "" : name,
           name == NULL ? "a command is needed:" : ": no such command; there are", list, program);
}

/* Ends well, if what was printed came through. */
static _Noreturn void leave(void) {
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
      leave();
    }
    if (help) {
      print_command_help(program, read_command(program, argv[1]));
      leave();
    }
    if (strcmp(argv[i], "--version") == 0) {
      printf("%s (penstock) %s\n", program, version);
      leave();
    }
  }
  *options = (struct pen_options){.command = read_command(program, argv[1])};
  for (unsigned i = 0; i < OPTIONS; i++) {
    if (options_known[i].fallback[0] != '\0') {
      set(options, &options_known[i], options_known[i].fallback);
    }
  }
  for (int i = 2; i < argc;) {
    i += read_option(options, program, argv + i);
  }
}
