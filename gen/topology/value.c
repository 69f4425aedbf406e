/* value.c: reads values by the type of their setting, checks them, and writes them as canonical
 * text. */
#include "gen/topology/value.h"

#include <stdio.h>
#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "gen/base/arena.h"
#include "gen/topology/literal.h"
#include "gen/topology/topology.h"

/* ---- one literal ---- */

/* The length of libconfig's integer at the start of a word: [-+]digits or 0xdigits, then L or LL.
 */
static bool is_integer(const char *word, bool *hexadecimal) {
  size_t digits;
  *hexadecimal = word[0] == '0' && (word[1] == 'x' || word[1] == 'X');
  if (*hexadecimal) {
    word += 2;
    digits = strspn(word, "0123456789abcdefABCDEF");
  } else {
    word += *word == '-' || *word == '+';
    digits = strspn(word, "0123456789");
  }
  const char *rest = word + digits;
  return digits > 0 && (!*rest || !strcmp(rest, "L") || !strcmp(rest, "LL"));
}

static bool read_integer(const struct pen_literal *literal, const struct pen_setting *setting,
                         int64_t *out) {
  bool hexadecimal;
  if (literal->string || !is_integer(literal->text, &hexadecimal)) return false;
  errno = 0;
  long long value = strtoll(literal->text, NULL, hexadecimal ? 16 : 10);
  *out = value;
  return errno == 0 && pen_setting_has_number(setting, (double)value);
}

/* [-+]digits.digits with an exponent; either the point or the exponent may be missing, and a digit
 * comes before the exponent. */
static bool is_real(const char *word) {
  word += *word == '-' || *word == '+';
  size_t whole = strspn(word, "0123456789");
  word += whole;
  size_t fraction = 0;
  if (*word == '.') {
    fraction = strspn(++word, "0123456789");
    word += fraction;
  }
  if (whole + fraction == 0) return false;
  if (*word != 'e' && *word != 'E') return !*word;
  word++;
  word += *word == '-' || *word == '+';
  size_t exponent = strspn(word, "0123456789");
  return exponent > 0 && !word[exponent];
}

static bool read_real(const struct pen_literal *literal, const struct pen_setting *setting,
                      double *out) {
  bool hexadecimal = false;
  if (literal->string || !(is_integer(literal->text, &hexadecimal) || is_real(literal->text)))
    return false;
  double value = strtod(literal->text, NULL) + 0.0; /* never -0 */
  *out = value;
  return pen_setting_has_number(setting, value);
}

bool pen_value_is_too_large(const struct pen_setting *setting,
                            const struct pen_written_value *value) {
  const bool integers = setting->type == PEN_INTEGER || setting->type == PEN_INTEGERS,
             reals = setting->type == PEN_REAL || setting->type == PEN_REALS;
  bool too_large = false, hexadecimal;
  for (size_t i = 0; i < value->count; i++) {
    const struct pen_literal *literal = &value->literal[i];
    if (literal->string || !(is_integer(literal->text, &hexadecimal) || is_real(literal->text)))
      continue;
    const double number = strtod(literal->text, NULL);
    const double most = isinf(setting->maximum) ? FLT_MAX : DBL_MAX;
    too_large = too_large || (integers && number >= 0x1p63) || (reals && number > most);
  }
  return too_large;
}

static bool read_boolean(const struct pen_literal *literal, bool *out) {
  *out = !strcasecmp(literal->text, "true");
  return !literal->string && (*out || !strcasecmp(literal->text, "false"));
}

/* The enumerator's value: an enum is as wide as an int. */
static bool read_choice(const struct pen_literal *literal, const struct pen_setting *setting,
                        int *out) {
  const struct pen_enumerator *e = setting->choices;
  while (e->text && literal->string && strcmp(e->text, literal->string)) e++;
  *out = e->value;
  return literal->string && e->text;
}

static bool read_string(const struct pen_literal *literal, const char **out) {
  *out = literal->string;
  return literal->string;
}

/* ---- values and lists ---- */

static bool set_integers(struct pen_integers *list, const struct pen_setting *setting,
                         const struct pen_written_value *value) {
  *list = (struct pen_integers){value->count, pen_new(value->count + 1, sizeof *list->value),
                                PEN_UNSET};
  if (!value->is_list) {
    list->count = 0;
    return read_choice(value->literal, setting, &list->choice);
  }
  for (size_t i = 0; i < value->count; i++) {
    if (!read_integer(&value->literal[i], setting, &list->value[i])) return false;
  }
  return true;
}

static bool set_reals(struct pen_reals *list, const struct pen_setting *setting,
                      const struct pen_written_value *value) {
  *list = (struct pen_reals){value->count, pen_new(value->count + 1, sizeof *list->value),
                             !value->is_list};
  for (size_t i = 0; i < value->count; i++) {
    if (!read_real(&value->literal[i], setting, &list->value[i])) return false;
  }
  return true;
}

static bool set_strings(struct pen_strings *list, const struct pen_written_value *value) {
  if (value->count > PEN_STRINGS_MAX) return false;
  *list = (struct pen_strings){value->count, pen_new(value->count + 1, sizeof *list->value)};
  for (size_t i = 0; i < value->count; i++) {
    if (!read_string(&value->literal[i], &list->value[i])) return false;
  }
  return true;
}

static bool set_choices(struct pen_chosen *list, const struct pen_setting *setting,
                        const struct pen_written_value *value) {
  *list = (struct pen_chosen){value->count, pen_new(value->count + 1, sizeof *list->value),
                              !value->is_list};
  for (size_t i = 0; i < value->count; i++) {
    if (!read_choice(&value->literal[i], setting, &list->value[i])) return false;
  }
  return true;
}

bool pen_value_set(struct pen_topology *topology, const struct pen_setting *setting,
                   const struct pen_written_value *value) {
  void *field = (char *)topology + setting->offset;
  bool list = setting->type >= PEN_INTEGERS;
  if (list ? !value->is_list && !pen_setting_takes_one(setting) : value->is_list) return false;
  switch (setting->type) {
    case PEN_INTEGER: return read_integer(value->literal, setting, field);
    case PEN_REAL: return read_real(value->literal, setting, field);
    case PEN_BOOLEAN: return read_boolean(value->literal, field);
    case PEN_STRING: return read_string(value->literal, field);
    case PEN_CHOICE: return read_choice(value->literal, setting, field);
    case PEN_INTEGERS: return set_integers(field, setting, value);
    case PEN_REALS: return set_reals(field, setting, value);
    case PEN_STRINGS: return set_strings(field, value);
    case PEN_CHOICES: return set_choices(field, setting, value);
  }
  return false;
}

/* ---- from the command line ---- */

/* One element; for a setting of strings a bare word is the string. */
static struct pen_literal literal_of(const struct pen_setting *setting, const char *text,
                                     size_t bytes) {
  struct pen_literal literal = {.text = pen_text("%.*s", (int)bytes, text)};
  const char *end = literal.text + bytes;
  if (*literal.text == '"' && pen_literal_string(literal.text + 1, end, &literal.string) == end)
    return literal;
  bool hexadecimal,
      is_word = setting->type == PEN_STRING || setting->type == PEN_CHOICE ||
                setting->type == PEN_STRINGS || setting->type == PEN_CHOICES ||
                (setting->type == PEN_INTEGERS && !is_integer(literal.text, &hexadecimal));
  literal.string = is_word ? literal.text : NULL;
  return literal;
}

/* The end of the element at `at`: a comma outside quotes, or `end`. */
static const char *element_end(const char *at, const char *end) {
  bool quoted = false;
  for (; at < end && (quoted || *at != ','); at++) {
    if (quoted && *at == '\\' && at + 1 < end) {
      at++;
    } else if (*at == '"') {
      quoted = !quoted;
    }
  }
  return at;
}

static void add_element(struct pen_written_value *value, const struct pen_setting *setting,
                        const char *at, const char *end) {
  while (at < end && isspace((unsigned char)*at)) at++;
  while (end > at && isspace((unsigned char)end[-1])) end--;
  PEN_RESERVE(value->literal, value->count + 1);
  value->literal[value->count++] = literal_of(setting, at, (size_t)(end - at));
  if (at == end)
    value->literal[value->count - 1].string = NULL; /* [a,,b]: an empty element is not a string */
}

struct pen_written_value pen_value_from_text(const struct pen_setting *setting, const char *text) {
  struct pen_written_value value = {0};
  size_t bytes = strlen(text);
  char first = *text, last = bytes ? text[bytes - 1] : 0;
  value.is_list = bytes > 1 && ((first == '[' && last == ']') || (first == '(' && last == ')'));
  if (!value.is_list) {
    value.literal = pen_new(1, sizeof *value.literal);
    value.literal[value.count++] = literal_of(setting, text, bytes);
    return value;
  }
  const char *at = text + 1, *end = text + bytes - 1;
  bool empty = strspn(at, " ") == (size_t)(end - at);
  for (; !empty && at <= end; at++) {
    const char *stop = element_end(at, end);
    add_element(&value, setting, at, stop);
    at = stop;
  }
  return value;
}

/* ---- canonical text ---- */

static const char *quoted(const char *string) {
  char *text = pen_new(4 * strlen(string) + 3, 1), *out = text;
  *out++ = '"';
  for (; *string; string++) {
    unsigned char c = (unsigned char)*string;
    if (c == '"' || c == '\\') *out++ = '\\';
    if (c < ' ' || c == 127) {
      out += sprintf(out, "\\x%02x", c);
    } else {
      *out++ = *string;
    }
  }
  *out = '"';
  return text;
}

static const char *choice_text(const struct pen_setting *setting, int value) {
  const char *text = pen_enum_text(setting->choices, value);
  return text ? quoted(text) : NULL;
}

static const char *element_text(const void *field, const struct pen_setting *setting,
                                size_t index) {
  switch (setting->type) {
    case PEN_INTEGERS:
      return pen_text("%lld", (long long)((const struct pen_integers *)field)->value[index]);
    case PEN_REALS: return pen_text("%.17g", ((const struct pen_reals *)field)->value[index]);
    case PEN_CHOICES: return choice_text(setting, ((const struct pen_chosen *)field)->value[index]);
    default: return quoted(((const struct pen_strings *)field)->value[index]);
  }
}

/* All list types begin with a count and a pointer. */
static const char *list_text(const void *field, const struct pen_setting *setting) {
  size_t count = ((const struct pen_integers *)field)->count;
  if (!((const struct pen_integers *)field)->value) return NULL;
  char *text = NULL;
  size_t bytes = 0;
  for (size_t i = 0; i < count; i++) {
    const char *element = element_text(field, setting, i);
    PEN_RESERVE(text, bytes + strlen(element) + 3);
    bytes += (size_t)sprintf(text + bytes, "%s%s", i ? ", " : "", element);
  }
  return pen_text("[%s]", text ? text : "");
}

static const char *boolean_text(const struct pen_setting *setting, bool value) {
  const char *text = value ? "true" : "false";
  const bool unsaid = setting->minimum >= PEN_DEFAULT_UNSAID;
  return unsaid && strcmp(text, setting->default_value) == 0 ? NULL : text;
}

/* A number outside its limits was not set. */
const char *pen_value_text(const struct pen_topology *topology, const struct pen_setting *setting) {
  const void *field = (const char *)topology + setting->offset;
  if (setting->type == PEN_INTEGERS && setting->choices &&
      ((const struct pen_integers *)field)->choice != PEN_UNSET)
    return choice_text(setting, ((const struct pen_integers *)field)->choice);
  if (setting->type >= PEN_INTEGERS) return list_text(field, setting);
  if (setting->type == PEN_CHOICE) return choice_text(setting, *(const int *)field);
  if (setting->type == PEN_BOOLEAN) return boolean_text(setting, *(const bool *)field);
  if (setting->type == PEN_STRING)
    return *(const char *const *)field ? quoted(*(const char *const *)field) : NULL;
  if (setting->type == PEN_INTEGER) {
    int64_t value = *(const int64_t *)field;
    return (double)value < setting->minimum ? NULL : pen_text("%lld", (long long)value);
  }
  double value = *(const double *)field;
  return value < setting->minimum ? NULL : pen_text("%.17g", value);
}
