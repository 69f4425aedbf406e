/* source_value.c: the values of a topology file, which libconfig has parsed (see source_value.h).
 * In its text each value is an index into the values as written (source.h). */
#include "gen/topology/source_value.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"

bool pen_source_literal(const struct pen_source *source, const config_setting_t *from,
                        struct pen_literal *literal) {
  if (config_setting_type(from) != CONFIG_TYPE_INT) return false;
  size_t index = (size_t)config_setting_get_int(from);
  if (index >= source->literal_count) return false;
  *literal = source->literal[index];
  return true;
}

bool pen_source_value(const struct pen_source *source, const config_setting_t *from,
                      struct pen_written_value *value) {
  value->is_list = config_setting_is_list(from) || config_setting_is_array(from);
  value->count = value->is_list ? (size_t)config_setting_length(from) : 1;
  value->literal = pen_new(value->count + 1, sizeof *value->literal);
  if (!value->is_list) return pen_source_literal(source, from, value->literal);
  for (size_t i = 0; i < value->count; i++) {
    if (!pen_source_literal(source, config_setting_get_elem(from, (unsigned)i), &value->literal[i]))
      return false;
  }
  return true;
}

/* A word of the text of a group; null: it cannot be one. Endings and names are in quotes. */
static const char *word_of(const struct pen_literal *literal, bool in_quotes) {
  const char *word = in_quotes ? literal->string : literal->string ? NULL : literal->text;
  return word && *word && !strpbrk(word, " :=\"") ? word : NULL;
}

/* Null: the group has no text. */
static const char *group_text(const struct pen_source *source, const config_setting_t *from) {
  const char *endings = "", *settings = "";
  const int count = config_setting_length(from);
  for (int i = 0; i < count; i++) {
    const config_setting_t *one = config_setting_get_elem(from, (unsigned)i);
    const char *name = config_setting_name(one), *word;
    const bool are_endings = strcmp(name, "endings") == 0;
    struct pen_written_value value;
    if (!pen_source_value(source, one, &value) || value.is_list != are_endings) return NULL;
    for (size_t n = 0; n < value.count; n++) {
      word = word_of(&value.literal[n], are_endings || strcmp(name, "name") == 0);
      if (!word) return NULL;
      if (are_endings)
        endings = pen_text("%s%s%s", endings, *endings ? " " : "", word);
      else
        settings = pen_text("%s %s=%s", settings, name, word);
    }
  }
  return pen_text("%s:%s", endings, settings);
}

bool pen_source_optimizer_groups(const struct pen_source *source, const config_setting_t *from,
                                 struct pen_written_value *value, const char *shown) {
  if (!value->is_list) return false;
  for (size_t i = 0; i < value->count; i++) {
    const config_setting_t *group = config_setting_get_elem(from, (unsigned)i);
    struct pen_literal *literal = &value->literal[i];
    if (pen_source_literal(source, group, literal)) continue;
    if (!config_setting_is_group(group)) return false;
    const char *text = group_text(source, group);
    if (!text)
      pen_stop(PEN_EXIT_TOPOLOGY,
               "%soptimizer.groups = %s: group %zu: a group such as { endings = [\"norm.weight\", "
               "\"bias\"]; rate = 0.5; weight_decay = 0.0; name = \"adamw\"; }",
               pen_source_where(source, config_setting_source_line(group)), shown, i + 1);
    *literal = (struct pen_literal){.text = text, .string = text};
  }
  return true;
}
