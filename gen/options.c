/* options.c: parser and --help over options.def. Options and the topology may stand in any order;
 * `--` ends the options. */
#include "gen/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/schedule/schedule.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/base/version.h"

enum option_type { TEXT, LIST, PRINT, COUNT, FLAG };
enum { COUNT_MAXIMUM = 1000000, SEARCH_SECONDS = 2 };

static const struct option {
  const char *name, *argument, *meaning;
  char letter;
  enum option_type type;
  size_t offset;
} options_known[] = {
#define PEN_OPTION(field, letter, name, type, argument, meaning) \
  {name, argument, meaning, letter, type, offsetof(struct pen_options, field)},
#include "gen/options.def"
};
enum { OPTIONS = sizeof options_known / sizeof *options_known, HELP_COLUMN = 24, HELP_WIDTH = 100 };

static const struct print {
  const char *name;
  bool built;
  const char *meaning;
} prints[] = {
#define PEN_PRINT(name, built, meaning) {name, built, meaning},
#include "gen/options.def"
};
enum { PRINTS = sizeof prints / sizeof *prints };

/* ---- help ---- */

/* Prints a text from HELP_COLUMN on, in lines of at most HELP_WIDTH; the cursor stands at `column`,
 * and past HELP_COLUMN a new line is begun. */
static void print_wrapped(int column, const char *text) {
  if (column >= HELP_COLUMN) column = printf("\n") - 1;
  column += printf("%*s", HELP_COLUMN - column, "");
  for (const char *gap = ""; *text; gap = " ") {
    int length = (int)strcspn(text, " ");
    if (*gap && column + length >= HELP_WIDTH) {
      column = printf("\n%*s", HELP_COLUMN, "") - 1;
      gap = "";
    }
    column += printf("%s%.*s", gap, length, text);
    text += length + (text[length] == ' ');
  }
  printf("\n");
}

static void print_help(void) {
  printf(
      "usage: penstock-gen [OPTION]... TOPOLOGY.cfg\n\nTurns a topology file into the static plan "
      "of a deployment.\n\n");
  for (int i = 0; i < OPTIONS; i++) {
    const struct option *option = &options_known[i];
    int column = option->letter ? printf("  -%c, ", option->letter) : printf("      ");
    column += printf("--%s%s%s", option->name, *option->argument ? "=" : "", option->argument);
    print_wrapped(column, option->meaning);
    for (int kind = 0; option->type == PRINT && kind < PRINTS; kind++) {
      if (prints[kind].built)
        print_wrapped(printf("          %s", prints[kind].name), prints[kind].meaning);
    }
  }
}

static _Noreturn void finish(void) {
  bool failed = fflush(stdout) || ferror(stdout);
  if (failed) pen_stop(PEN_EXIT_WRITE, "penstock-gen: cannot write to standard output");
  pen_free_all();
  exit(0);
}

/* ---- parser ---- */

/* The option as the user wrote it, without its value: `-s`, `--print`. */
struct word {
  const struct option *option;
  const char *text;
};

static const char *built_prints(void) {
  const char *list = "";
  for (int i = 0; i < PRINTS; i++) {
    if (prints[i].built) list = pen_text("%s%s%s", list, *list ? ", " : "", prints[i].name);
  }
  return list;
}

static const char *checked_print(struct word word, const char *value) {
  for (int i = 0; i < PRINTS; i++) {
    if (strcmp(prints[i].name, value)) continue;
    if (prints[i].built) return prints[i].name;
    pen_stop(PEN_EXIT_USAGE, "penstock-gen: %s %s: not made by this version; it makes %s",
             word.text, value, built_prints());
  }
  pen_stop(PEN_EXIT_USAGE, "penstock-gen: %s %s: no such kind; one of %s", word.text, value,
           built_prints());
}

static void add_override(struct pen_options *options, struct word word, const char *value) {
  const char *equals = strchr(value, '=');
  if (!equals || equals == value)
    pen_stop(PEN_EXIT_USAGE, "penstock-gen: %s %s: needs PATH=VALUE, as in pipeline.ranks=2",
             word.text, value);
  options->override[options->override_count++] = value;
}

static uint64_t read_count(struct word word, const char *value) {
  uint64_t count = 0;
  bool fits = *value != 0;
  for (const char *digit = value; fits && *digit; digit++) {
    fits = *digit >= '0' && *digit <= '9';
    count = 10 * count + (uint64_t)(*digit - '0');
    fits = fits && count <= COUNT_MAXIMUM;
  }
  if (!fits)
    pen_stop(PEN_EXIT_USAGE, "penstock-gen: %s %s: needs a whole number, at most %d", word.text,
             value, COUNT_MAXIMUM);
  return count;
}

static void set(struct pen_options *options, struct word word, const char *value) {
  void *field = (char *)options + word.option->offset;
  switch (word.option->type) {
    case TEXT:
      if (!*value)
        pen_stop(PEN_EXIT_USAGE, "penstock-gen: %s: needs %s, which may not be empty", word.text,
                 word.option->argument);
      *(const char **)field = value;
      break;
    case PRINT: *(const char **)field = checked_print(word, value); break;
    case COUNT: *(uint64_t *)field = read_count(word, value); break;
    case LIST: add_override(options, word, value); break;
    case FLAG: *(bool *)field = true; break;
  }
}

/* `--name`, `--name=value` or `--name value`. Returns the index of the next argument. */
static int read_long(struct pen_options *options, int argc, char **argv, int index) {
  const char *name = argv[index] + 2;
  size_t bytes = strcspn(name, "=");
  const char *value = name[bytes] ? name + bytes + 1 : NULL;
  struct word word = {.text = pen_text("--%.*s", (int)bytes, name)};
  for (int i = 0; i < OPTIONS; i++) {
    if (strlen(options_known[i].name) == bytes && !memcmp(options_known[i].name, name, bytes))
      word.option = &options_known[i];
  }
  if (!word.option)
    pen_stop(PEN_EXIT_USAGE, "penstock-gen: %s: no such option; see penstock-gen --help",
             word.text);
  if (word.option->type == FLAG) {
    if (value) pen_stop(PEN_EXIT_USAGE, "penstock-gen: %s: takes no value", word.text);
  } else if (!value) {
    if (index + 1 == argc)
      pen_stop(PEN_EXIT_USAGE, "penstock-gen: %s: needs %s", word.text, word.option->argument);
    value = argv[++index];
  }
  set(options, word, value);
  return index + 1;
}

/* `-o FILE`, `-oFILE`, `-hV`. */
static int read_short(struct pen_options *options, int argc, char **argv, int index) {
  for (const char *letter = argv[index] + 1; *letter; letter++) {
    struct word word = {.text = pen_text("-%c", *letter)};
    for (int i = 0; i < OPTIONS; i++) {
      if (options_known[i].letter == *letter) word.option = &options_known[i];
    }
    if (!word.option)
      pen_stop(PEN_EXIT_USAGE, "penstock-gen: %s: no such option; see penstock-gen --help",
               word.text);
    if (word.option->type == FLAG) {
      set(options, word, NULL);
      continue;
    }
    if (!letter[1] && index + 1 == argc)
      pen_stop(PEN_EXIT_USAGE, "penstock-gen: %s: needs %s", word.text, word.option->argument);
    set(options, word, letter[1] ? letter + 1 : argv[++index]);
    break;
  }
  return index + 1;
}

static void read_words(struct pen_options *options, int argc, char **argv) {
  bool only_files = false;
  for (int index = 1; index < argc;) {
    const char *word = argv[index];
    if (only_files || word[0] != '-' || !word[1]) {
      if (options->topology)
        pen_stop(PEN_EXIT_USAGE, "penstock-gen: %s: one topology at a time", word);
      options->topology = word;
      index++;
    } else if (!strcmp(word, "--")) {
      only_files = true;
      index++;
    } else {
      index = word[1] == '-' ? read_long(options, argc, argv, index)
                             : read_short(options, argc, argv, index);
    }
  }
}

/* A name goes into file names, comments and messages. */
static void check_name(const char *name) {
  static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  if (name && name[strspn(name, allowed)])
    pen_stop(PEN_EXIT_USAGE,
             "penstock-gen: --name %s: needs a name of letters, digits, '_', '.' and '-'", name);
}

struct pen_options *pen_options_read(int argc, char **argv) {
  struct pen_options *options = pen_new(1, sizeof *options);
  options->override = pen_new((size_t)argc + 1, sizeof *options->override);
  options->print = "c";
  options->search_seconds = SEARCH_SECONDS;
  read_words(options, argc, argv);
  if (options->help) {
    print_help();
    finish();
  }
  if (options->list_schedules) {
    pen_schedules_list(stdout);
    finish();
  }
  if (options->version) {
    printf("penstock-gen %s\n", PEN_VERSION_TEXT);
    finish();
  }
  if (!options->topology)
    pen_stop(PEN_EXIT_USAGE, "penstock-gen: TOPOLOGY.cfg is missing; see penstock-gen --help");
  if (!*options->topology)
    pen_stop(PEN_EXIT_USAGE, "penstock-gen: the topology's name may not be empty");
  if ((options->arrows || options->critical) && strcmp(options->print, "svg"))
    pen_stop(PEN_EXIT_USAGE, "penstock-gen: --%s: only with --print=svg",
             options->arrows ? "arrows" : "critical");
  check_name(options->name);
  if (!options->target) options->target = options->output;
  if (options->target == NULL && options->depend)
    pen_stop(PEN_EXIT_USAGE, "penstock-gen: --depend: needs --target, or --output");
  return options;
}
