/* manual.c: fills in a manual page: `manual TEMPLATE >PAGE`.
 *
 * Most of a template is copied. @VERSION@ becomes the version, and a line of its own that is one of
 * the directives below becomes what the .def tables say, so that parser, --help and manual cannot
 * disagree:
 *
 *   @settings GROUP@             the settings of a group of the topology file
 *   @schedules@, @families@      what pipeline.schedule and model.family may name
 *   @rules@                      the same schedules with all that their table says of them
 *   @notation@                   what its expressions mean
 *   @options penstock-gen@       a list of options, of the generator,
 *   @options penstock-plan@      of the planner,
 *   @options penstock@           of the deployed binary with the commands that take them,
 *   @options penstock-tokens@    and of the tools
 *   @options penstock-convert@
 *   @prints@                     what penstock-gen --print makes
 *   @plan_prints@                what penstock-plan --print makes
 *   @commands@                   the commands of the deployed binary
 *   @completion@                 for bash: the options of all these programs, and the settings
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/families/families.h"
#include "gen/schedule/schedule.h"
#include "gen/topology/settings.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/base/version.h"
#include "gen/topology/schedule_table.h"
#include "gen/topology/family_table.h"

enum { LINE_BYTES_MAX = 78 };

/* ---- text in mdoc ---- */

static void print_escaped(const char *word, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) {
    if (word[i] == '\\') {
      fputs("\\e", stdout);
    } else {
      putchar(word[i]);
    }
  }
}

static bool ends_sentence(const char *word, size_t bytes) {
  return strchr(".:?!", word[bytes - 1]) && word[bytes] == ' ' &&
         isupper((unsigned char)word[bytes + 1]);
}

/* Text in lines of a modest length, a new line for each sentence, none that mdoc reads as a macro.
 */
static void print_text(const char *text) {
  size_t column = 0;
  while (*text) {
    size_t bytes = strcspn(text, " ");
    if (column && column + 1 + bytes > LINE_BYTES_MAX) column = 0, putchar('\n');
    if (column) column++, putchar(' ');
    if (!column && (*text == '.' || *text == '\'')) fputs("\\&", stdout);
    print_escaped(text, bytes);
    column += bytes;
    if (ends_sentence(text, bytes)) column = 0, putchar('\n');
    text += bytes + (text[bytes] == ' ');
  }
  if (column) putchar('\n');
}

/* As a sentence: a capital in front, a full stop after. A name (zb_h1, 1f1b, torch.distributed,
 * and `file:`) stays as it is. */
static void print_sentence(const char *text) {
  char *sentence = pen_text("%s%s", text, text[strlen(text) - 1] == '.' ? "" : ".");
  size_t word = strcspn(sentence, " "), name = strcspn(sentence, "_:.0123456789");
  if (name >= word || !sentence[name + 1]) sentence[0] = (char)toupper((unsigned char)sentence[0]);
  print_text(sentence);
}

static void print_options_begin(void) { printf(".Bl -tag -width Ds\n"); }
static void print_list_end(void) { printf(".El\n"); }

static void print_option(char letter, const char *name, const char *argument) {
  printf(".It ");
  if (letter && *argument) printf("Fl %c Ar %s , ", letter, argument);
  if (letter && !*argument) printf("Fl %c , ", letter);
  printf("Fl Fl %s", name);
  if (*argument) printf(" Ns = Ns Ar %s", argument);
  printf("\n");
}

/* ---- the topology file ---- */

/* A default that depends on other settings is in brackets at the end of the help. */
static void print_setting(const struct pen_setting *setting) {
  const char *bracket = strrchr(setting->help, '['), *allowed = pen_setting_allowed(setting),
             *default_value = setting->default_value;
  size_t help = bracket ? (size_t)(bracket - setting->help) - 1 : strlen(setting->help);
  printf(".It Va %s\n", setting->name);
  print_sentence(pen_text("%.*s", (int)help, setting->help));
  print_sentence(pen_text("Allowed: %s", allowed));
  if (bracket) {
    print_sentence(pen_text("Default: %.*s", (int)strlen(bracket) - 2, bracket + 1));
  } else if (default_value && setting->choices && !strchr("[(", *default_value)) {
    print_sentence(pen_text("Default: \"%s\"", default_value));
  } else if (default_value) {
    print_sentence(pen_text("Default: %s", default_value));
  }
}

static void print_settings(const char *group) {
  printf(".Bl -tag -width Ds\n");
  for (size_t i = 0; i < pen_setting_count; i++) {
    if (!strcmp(pen_settings[i].group, group)) print_setting(&pen_settings[i]);
  }
  print_list_end();
}

static void print_row(const char *name, const char *meaning, const char *source) {
  printf(".It Cm %s\n", name);
  print_sentence(meaning);
  if (*source) print_sentence(source);
}

static void print_schedules(const char *argument) {
  (void)argument;
  printf(".Bl -tag -width Ds\n");
  for (uint32_t i = 0; i < pen_schedule_count; i++)
    print_row(pen_schedules[i].name, pen_schedules[i].rule, pen_schedules[i].source);
  print_list_end();
}

static void print_labelled(const char *label, const char *text) {
  printf(".Pp\n");
  print_sentence(pen_text("%s: %s", label, text));
}

static void print_rules(const char *argument) {
  (void)argument;
  for (uint32_t i = 0; i < pen_schedule_count; i++) {
    const struct pen_schedule *schedule = &pen_schedules[i];
    printf(".Ss %s\n", schedule->name);
    print_sentence(schedule->rule);
    print_labelled("Source", schedule->source);
    print_labelled("Stages", pen_schedule_stages(schedule));
    print_labelled("Bubble", pen_schedule_figure(schedule, schedule->bubble));
    if (schedule->trains) print_labelled("Peak", pen_schedule_figure(schedule, schedule->peak));
  }
}

static void print_notation(const char *argument) {
  (void)argument;
  print_text(pen_schedule_notation);
}

static void print_families(const char *argument) {
  (void)argument;
  printf(".Bl -tag -width Ds\n");
#define PEN_FAMILY(name, needs_tokens, rotary, windows, ties, loss, splits, biases, experts, \
                   meaning)                                                                  \
  print_row(#name, meaning, "");
#include "gen/topology/families.def"
  print_list_end();
}

static void print_blocks(const char *argument) {
  (void)argument;
  printf(".Bl -tag -width Ds\n");
#define PEN_FAMILY(name, needs_tokens, rotary, windows, ties, loss, splits, biases, experts, \
                   meaning)                                                                  \
  print_row(#name, pen_text("blocks %s", pen_family_block_names(&pen_family_##name)), "");
#include "gen/topology/families.def"
  print_list_end();
}

static void print_memory_kinds(const char *argument) {
  (void)argument;
  printf(".Bl -tag -width Ds\n");
#define PEN_MEMORY_KIND(name, bytes, meaning) print_row(#name, meaning, "");
#include "runtime/plan/memory_kinds.def"
  print_list_end();
}

static void print_collective_kinds(const char *argument) {
  (void)argument;
  printf(".Bl -tag -width Ds\n");
#define PEN_COLLECTIVE_KIND(name, meaning) print_row(#name, meaning, "");
#include "gen/timing/collective_kinds.def"
  print_list_end();
}

/* ---- command lines ---- */

static void print_prints(const char *argument) {
  (void)argument;
  printf(".Bl -tag -width Ds\n");
#define PEN_PRINT(name, meaning) print_row(name, meaning, "");
#include "gen/pipeline/options.def"
  print_list_end();
}

static void print_plan_prints(const char *argument) {
  (void)argument;
  printf(".Bl -tag -width Ds\n");
#define PEN_PRINT(name, meaning) print_row(name, meaning, "");
#include "gen/planner/options.def"
  print_list_end();
}

/* Of penstock-gen or penstock-plan. */
static void print_program_option(char letter, const char *name, const char *argument,
                                 const char *default_value, const char *meaning) {
  print_option(letter, name, argument);
  print_sentence(*name == 'p' ? "What to write: one of the kinds below." : meaning);
  if (*default_value) print_sentence(pen_text("Default: %s", default_value));
}

static void print_generator_options(void) {
#define PEN_OPTION(field, letter, name, type, least, argument, default_value, meaning) \
  print_program_option(letter, name, argument, default_value, meaning);
#include "gen/pipeline/options.def"
}

enum {
#define PEN_COMMAND(kind, name, synopsis, meaning) COMMAND_##kind,
#include "runtime/base/options.def"
};
enum {
#define PEN_COMMAND(kind, name, synopsis, meaning) PEN_IN_##kind = 1 << COMMAND_##kind,
#include "runtime/base/options.def"
};

/* One option of the deployed binary: what it does, its default, and the commands that take it. */
static void print_deployed_option(const char *name, const char *argument, const char *default_value,
                                  unsigned commands, const char *meaning) {
  const char *takers = "";
#define PEN_COMMAND(kind, command, synopsis, meaning) \
  if (commands & PEN_IN_##kind) takers = pen_text("%s%s%s", takers, *takers ? ", " : "", command);
#include "runtime/base/options.def"
  print_option(0, name, argument);
  print_sentence(meaning);
  if (*default_value) print_sentence(pen_text("Default: %s", default_value));
  print_text(pen_text("Taken by %s.", takers));
}

static void print_deployed_options(void) {
#define PEN_OPTION(field, name, type, least, argument, default_value, commands, meaning) \
  print_deployed_option(name, argument, default_value, commands, meaning);
#include "runtime/base/options.def"
}

static void print_plan_options(void) {
#define PEN_OPTION(field, letter, name, type, least, argument, default_value, meaning) \
  print_program_option(letter, name, argument, default_value, meaning);
#include "gen/planner/options.def"
}

static void print_tokens_options(void) {
#define PEN_OPTION(field, letter, name, type, least, most, argument, default_value, meaning) \
  print_option(letter, name, argument);                                                      \
  print_sentence(meaning);
#include "tools/tokens/options.def"
}

static void print_convert_options(void) {
#define PEN_OPTION(field, letter, name, type, argument, meaning) \
  print_option(letter, name, argument);                          \
  print_sentence(meaning);
#include "tools/convert/options.def"
}

static void print_options(const char *program) {
  static const struct {
    const char *program;
    void (*print)(void);
  } programs[] = {
      {"penstock-gen", print_generator_options},   {"penstock-plan", print_plan_options},
      {"penstock", print_deployed_options},        {"penstock-tokens", print_tokens_options},
      {"penstock-convert", print_convert_options},
  };
  print_options_begin();
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    if (!strcmp(programs[i].program, program)) programs[i].print();
  }
  print_list_end();
}

/* The options of a synopsis are said again, each with its meaning, in the list of options. */
static void print_commands(const char *argument) {
  (void)argument;
  printf(".Bl -tag -width Ds\n");
#define PEN_COMMAND(kind, name, synopsis, meaning) \
  printf(".It Cm %s\n", name);                     \
  print_text(synopsis);                            \
  printf(".Pp\n");                                 \
  print_sentence(meaning);
#include "runtime/base/options.def"
  print_list_end();
}

/* ---- completion in bash ----
 *
 * A program, or a command of the deployed binary, is a line that assigns its options as words:
 * --NAME, --NAME=VALUE, and with choices --NAME=a|b; -L and -L=VALUE for the short form. */

static void print_word(char letter, const char *name, const char *argument) {
  if (letter) printf(" -%c%s%s", letter, *argument ? "=" : "", argument);
  printf(" --%s%s%s", name, *argument ? "=" : "", argument);
}

static void print_words_begin(const char *program) { printf("_penstock_words[%s]='", program); }
static void print_words_end(void) { printf("'\n"); }

/* The first of several choices has no bar before it: it follows an equals sign. */
#define PEN_PRINT_CHOICE(name) pen_text("%s%s%s", choices, *choices ? "|" : "", name)

static void print_generator_words(void) {
  const char *choices = "";
#define PEN_PRINT(name, meaning) choices = PEN_PRINT_CHOICE(name);
#include "gen/pipeline/options.def"
#define PEN_OPTION(field, letter, name, type, least, argument, default_value, meaning) \
  print_word(letter, name, *name == 'p' ? choices : argument);
#include "gen/pipeline/options.def"
}

static void print_plan_words(void) {
  const char *choices = "";
#define PEN_PRINT(name, meaning) choices = PEN_PRINT_CHOICE(name);
#include "gen/planner/options.def"
#define PEN_OPTION(field, letter, name, type, least, argument, default_value, meaning) \
  print_word(letter, name, *name == 'p' ? choices : argument);
#include "gen/planner/options.def"
}

static void print_tokens_words(void) {
#define PEN_OPTION(field, letter, name, type, least, most, argument, default_value, meaning) \
  print_word(letter, name, argument);
#include "tools/tokens/options.def"
}

static void print_convert_words(void) {
#define PEN_OPTION(field, letter, name, type, argument, meaning) print_word(letter, name, argument);
#include "tools/convert/options.def"
}

static void print_command_words(unsigned command) {
#define PEN_OPTION(field, name, type, least, argument, default_value, commands, meaning) \
  if ((commands)&command) print_word(0, name, argument);
#include "runtime/base/options.def"
  printf(" --help");
}

static void print_completion(const char *argument) {
  (void)argument;
  static const struct {
    const char *program;
    void (*print)(void);
  } programs[] = {
      {"penstock-gen", print_generator_words},
      {"penstock-plan", print_plan_words},
      {"penstock-tokens", print_tokens_words},
      {"penstock-convert", print_convert_words},
  };
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    print_words_begin(programs[i].program);
    programs[i].print();
    print_words_end();
  }
  print_words_begin("commands");
#define PEN_COMMAND(kind, name, synopsis, meaning) printf(" %s", name);
#include "runtime/base/options.def"
  printf(" --help --version");
  print_words_end();
#define PEN_COMMAND(kind, name, synopsis, meaning) \
  print_words_begin(name);                         \
  print_command_words(PEN_IN_##kind);              \
  print_words_end();
#include "runtime/base/options.def"
  print_words_begin("settings");
  for (size_t i = 0; i < pen_setting_count; i++) {
    printf(" %s.%s", pen_settings[i].group, pen_settings[i].name);
  }
  print_words_end();
}

/* ---- templates ---- */

static const struct {
  const char *name;
  void (*print)(const char *argument);
} directives[] = {
    {"settings", print_settings},
    {"schedules", print_schedules},
    {"rules", print_rules},
    {"notation", print_notation},
    {"families", print_families},
    {"options", print_options},
    {"prints", print_prints},
    {"plan_prints", print_plan_prints},
    {"commands", print_commands},
    {"completion", print_completion},
    {"blocks", print_blocks},
    {"memory_kinds", print_memory_kinds},
    {"collective_kinds", print_collective_kinds},
};

/* Runs `@name argument@`; false when the line is none. */
static bool run_directive(const char *line) {
  size_t bytes = strlen(line);
  if (bytes < 3 || *line != '@' || line[bytes - 1] != '@') return false;
  const char *name = pen_text("%.*s", (int)strcspn(line + 1, " @"), line + 1);
  size_t begin = strlen(name) + 1 + (line[strlen(name) + 1] == ' ');
  const char *argument =
      begin < bytes - 1 ? pen_text("%.*s", (int)(bytes - 1 - begin), line + begin) : "";
  for (size_t i = 0; i < sizeof directives / sizeof *directives; i++) {
    if (strcmp(directives[i].name, name)) continue;
    directives[i].print(argument);
    return true;
  }
  pen_stop(PEN_EXIT_DATA, "manual: %s: no such directive", line);
}

static void copy_line(const char *line) {
  static const char mark[] = "@VERSION@";
  for (const char *found; (found = strstr(line, mark)); line = found + strlen(mark))
    printf("%.*s%s", (int)(found - line), line, PEN_VERSION_TEXT);
  printf("%s\n", line);
}

int main(int argc, char **argv) {
  if (argc != 2) pen_stop(PEN_EXIT_USAGE, "usage: manual TEMPLATE >PAGE");
  FILE *in = fopen(argv[1], "r");
  if (!in) pen_stop(PEN_EXIT_NO_INPUT, "manual: %s: %s", argv[1], strerror(errno));
  char *line = NULL;
  size_t capacity = 0;
  while (getline(&line, &capacity, in) > 0) {
    line[strcspn(line, "\n")] = 0;
    if (!run_directive(line)) copy_line(line);
  }
  free(line);
  fclose(in);
  if (fflush(stdout) || ferror(stdout)) pen_stop(PEN_EXIT_WRITE, "manual: cannot write");
  pen_free_all();
  return 0;
}
