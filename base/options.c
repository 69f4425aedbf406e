/* options.c: reads a command line from a table of options, and prints the table for --help. */
#include "base/options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIONS_MAX = 64, MESSAGE_BYTES = 1024, FIRST_LONG = 256, HELP_INDENT = 24, WIDTH = 100 };

static _Noreturn void fail(const struct pen_command_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static _Noreturn void fail(const struct pen_command_line *line, const char *format, ...) {
  char message[MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  line->fail(message);
  abort();
}

static bool takes(const struct pen_command_line *line, const struct pen_option *option) {
  return option->commands == 0 || (option->commands & line->command) != 0;
}

/* ---- values ---- */

/* Digits alone: strtoull() also takes a sign and white space. */
static bool parse_number(const char *text, uint64_t *number, bool *too_large) {
  char *end;
  errno = 0;
  *number = strtoull(text, &end, 10);
  const bool is_number = text[0] >= '0' && text[0] <= '9' && *end == '\0';
  *too_large = is_number && errno == ERANGE;
  return is_number && errno == 0;
}

/* Finite, and 0 or more. */
static bool parse_real(const char *text, double *real, bool *too_large) {
  char *end;
  *real = strtod(text, &end);
  const bool is_number = ((text[0] >= '0' && text[0] <= '9') || text[0] == '.') && *end == '\0';
  *too_large = is_number && isinf(*real);
  return is_number && isfinite(*real);
}

static void check_text(const struct pen_command_line *line, const struct pen_option *option,
                       const char *word, const char *value) {
  if (value[0] == '\0') {
    fail(line, "%s: needs %s, which may not be empty", word, option->argument);
  }
  char list[MESSAGE_BYTES / 2] = "";
  size_t used = 0;
  for (size_t i = 0; i < option->choice_count && used < sizeof list; i++) {
    if (strcmp(option->choice[i].name, value) == 0) return;
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i == 0 ? "" : ", ",
                             option->choice[i].name);
  }
  if (option->choice_count > 0) fail(line, "%s %s: one of %s", word, value, list);
}

static const char *also(bool too_large) { return too_large ? "; too large" : ""; }

static uint64_t checked_number(const struct pen_command_line *line, const struct pen_option *option,
                               const char *word, const char *value) {
  uint64_t number;
  bool too_large, ok = parse_number(value, &number, &too_large);
  too_large = too_large || (ok && option->most != 0 && number > option->most);
  ok = ok && number >= option->least && !too_large;
  if (!ok && option->most == 0) {
    fail(line, "%s %s: a whole number, %" PRIu64 " or more%s", word, value, option->least,
         also(too_large));
  }
  if (!ok) {
    fail(line, "%s %s: a whole number from %" PRIu64 " to %" PRIu64 "%s", word, value,
         option->least, option->most, also(too_large));
  }
  return number;
}

/* What the types of real numbers allow, from 0 on. */
static const struct {
  const char *meaning;
  double most;
  bool no_zero, below_most;
} reals[] = {
    [PEN_OPTION_SECONDS] = {"a number of seconds above 0", INFINITY, .no_zero = true},
    [PEN_OPTION_REAL] = {"a number, 0 or more", INFINITY},
    [PEN_OPTION_POSITIVE] = {"a number above 0", INFINITY, .no_zero = true},
    [PEN_OPTION_SHARE] = {"a number above 0, at most 1", 1.0, .no_zero = true},
    [PEN_OPTION_FRACTION] = {"a number, 0 or more and below 1", 1.0, .below_most = true},
};

static double checked_real(const struct pen_command_line *line, const struct pen_option *option,
                           const char *word, const char *value) {
  double real;
  bool too_large, ok = parse_real(value, &real, &too_large);
  if (!ok || real > reals[option->type].most || (reals[option->type].no_zero && real == 0.0) ||
      (reals[option->type].below_most && real == reals[option->type].most)) {
    fail(line, "%s %s: %s%s", word, value, reals[option->type].meaning, also(too_large));
  }
  return real;
}

/* `word` is the option as the user wrote it: "-o" or "--output". */
static void set_field(const struct pen_command_line *line, const struct pen_option *option,
                      const char *word, const char *value, void *fields) {
  void *field = (char *)fields + option->field;
  switch (option->type) {
    case PEN_OPTION_TEXT:
      check_text(line, option, word, value);
      *(const char **)field = value;
      break;
    case PEN_OPTION_LIST: {
      struct pen_texts *list = field;
      list->text[list->count++] = value;
      break;
    }
    case PEN_OPTION_NUMBER: *(uint64_t *)field = checked_number(line, option, word, value); break;
    case PEN_OPTION_SECONDS:
    case PEN_OPTION_REAL:
    case PEN_OPTION_POSITIVE:
    case PEN_OPTION_SHARE:
    case PEN_OPTION_FRACTION: *(double *)field = checked_real(line, option, word, value); break;
    case PEN_OPTION_FLAG: *(bool *)field = true; break;
  }
}

/* ---- the command line ---- */

/* The options in the form of getopt_long(): a long option returns FIRST_LONG + its index. */
struct getopt_table {
  struct option longs[OPTIONS_MAX + 1];
  char letters[2 * OPTIONS_MAX + 2];
};

static void fill_getopt_table(const struct pen_command_line *line, struct getopt_table *table) {
  size_t long_count = 0, letter_bytes = 0;
  memset(table, 0, sizeof *table);
  table->letters[letter_bytes++] = ':'; /* a missing value is reported as ':' */
  for (size_t i = 0; i < line->option_count; i++) {
    const struct pen_option *option = &line->option[i];
    if (!takes(line, option)) continue;
    int has_value = option->type == PEN_OPTION_FLAG ? no_argument : required_argument;
    if (long_count == OPTIONS_MAX) abort();
    table->longs[long_count++] =
        (struct option){option->name, has_value, NULL, FIRST_LONG + (int)i};
    if (option->letter) table->letters[letter_bytes++] = option->letter;
    if (option->letter && has_value) table->letters[letter_bytes++] = ':';
  }
}

static const struct pen_option *option_of_code(const struct pen_command_line *line, int code) {
  if (code >= FIRST_LONG) return &line->option[code - FIRST_LONG];
  for (size_t i = 0; i < line->option_count; i++) {
    if (code != 0 && line->option[i].letter == code) return &line->option[i];
  }
  return NULL;
}

/* The option that getopt_long() has just read, as the user wrote it and without its value. */
static const char *written_word(char *word, size_t bytes, char **argv, int code) {
  const char *text = argv[optind - 1];
  if (code < FIRST_LONG && code != 0) {
    snprintf(word, bytes, "-%c", code);
  } else {
    if (optarg == text) text = argv[optind - 2];
    snprintf(word, bytes, "%.*s", (int)strcspn(text, "="), text);
  }
  return word;
}

static _Noreturn void fail_unknown(const struct pen_command_line *line, const char *word) {
  for (size_t i = 0; i < line->removed_count; i++) {
    if (strncmp(word, "--", 2) == 0 && strcmp(word + 2, line->removed[i].name) == 0) {
      fail(line, "%s: no such option any more; %s", word, line->removed[i].instead);
    }
  }
  fail(line, "%s: no such option; see %s --help", word, line->program);
}

/* Memory for the values of all LISTs, argc for each; it is kept until the program ends. */
static const char **list_values;

static void set_defaults(const struct pen_command_line *line, int argc, void *fields) {
  size_t list_count = 0;
  list_values = calloc(line->option_count * (size_t)argc, sizeof *list_values);
  if (list_values == NULL) fail(line, "no memory");
  for (size_t i = 0; i < line->option_count; i++) {
    const struct pen_option *option = &line->option[i];
    if (option->type == PEN_OPTION_LIST) {
      struct pen_texts *list = (void *)((char *)fields + option->field);
      list->text = list_values + list_count++ * (size_t)argc;
    } else if (option->default_value != NULL && option->default_value[0] != '\0') {
      set_field(line, option, option->name, option->default_value, fields);
    }
  }
}

/* Fails if an option that is no LIST was given before; notes that it was. */
static void check_once(const struct pen_command_line *line, const struct pen_option *option,
                       const char *word, bool *given) {
  bool *before = &given[option - line->option];
  if (*before && option->type != PEN_OPTION_LIST) fail(line, "%s: given twice", word);
  *before = true;
}

int pen_command_line_read(const struct pen_command_line *line, int argc, char **argv,
                          void *fields) {
  struct getopt_table table;
  bool given[FIRST_LONG] = {false};
  if (line->option_count > FIRST_LONG) abort();
  fill_getopt_table(line, &table);
  set_defaults(line, argc, fields);
  optind = 0;
  opterr = 0;
  for (int code; (code = getopt_long(argc, argv, table.letters, table.longs, NULL)) != -1;) {
    char word[256];
    bool known = code != '?' && code != ':';
    int option_code = known ? code : optopt;
    const struct pen_option *option = option_of_code(line, option_code);
    written_word(word, sizeof word, argv, option_code);
    bool abbreviated = option_code >= FIRST_LONG && strcmp(word + 2, option->name) != 0;
    if (option == NULL || abbreviated) fail_unknown(line, word);
    if (code == ':') fail(line, "%s: needs %s", word, option->argument);
    if (code == '?') fail(line, "%s: takes no value", word);
    check_once(line, option, word, given);
    set_field(line, option, word, optarg, fields);
    if (option->given) *(bool *)((char *)fields + option->given) = true;
  }
  return optind;
}

/* ---- help ---- */

void pen_print_wrapped(int column, int indent, const char *text) {
  const char *space = "";
  while (*text != '\0') {
    int length = (int)strcspn(text, " ");
    if (column + length >= WIDTH && column > indent) {
      column = printf("\n%*s", indent, "") - 1;
      space = "";
    }
    column += printf("%s%.*s", space, length, text);
    space = " ";
    text += length + (text[length] == ' ');
  }
  printf("\n");
}

static void print_row(int column, const char *meaning) {
  if (column >= HELP_INDENT) column = printf("\n") - 1;
  column += printf("%*s", HELP_INDENT - column, "");
  pen_print_wrapped(column, HELP_INDENT, meaning);
}

void pen_command_line_print_options(const struct pen_command_line *line) {
  for (size_t i = 0; i < line->option_count; i++) {
    const struct pen_option *option = &line->option[i];
    if (!takes(line, option)) continue;
    int column = option->letter ? printf("  -%c, ", option->letter) : printf("      ");
    column += printf("--%s%s%s", option->name, option->argument[0] ? "=" : "", option->argument);
    print_row(column, option->meaning);
    for (size_t c = 0; c < option->choice_count; c++) {
      print_row(printf("          %s", option->choice[c].name), option->choice[c].meaning);
    }
    if (option->default_value != NULL && option->default_value[0] != '\0') {
      printf("%*s[%s]\n", HELP_INDENT, "", option->default_value);
    }
  }
}
