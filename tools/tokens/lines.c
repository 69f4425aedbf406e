/* lines.c: reads documents from JSON lines, one a line: a field of text, a prompt and its
 * completion, or the messages of a chat. Of prompts and of messages that are not the assistant's no
 * token counts as a target. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include <jansson.h>

#include "tools/tokens/tokens.h"

/* The line that is read, for errors. */
struct json_line {
  const struct tokens_settings *settings;
  const char *path;
  uint64_t number;
  char within[48]; /* "messages[3]: " within a message */
};

static bool is_blank(const char *text, size_t bytes) {
  while (bytes > 0 && strchr(" \t\r\n", text[bytes - 1]) != NULL && text[bytes - 1] != 0) {
    bytes--;
  }
  return bytes == 0;
}

static const json_t *text_of(const struct json_line *line, const json_t *object,
                             const char *field) {
  const json_t *text = json_object_get(object, field);
  if (!json_is_string(text)) {
    tokens_fail(EX_DATAERR, "%s:%" PRIu64 ": %s%s \"%s\" %s", line->path, line->number,
                line->within, text == NULL ? "no field" : "the field", field,
                text != NULL         ? "is not a string"
                : *line->within != 0 ? "in an object"
                                     : "in an object on this line");
  }
  return text;
}

/* Text whose tokens do not count: a prompt, or another's message. */
static void pass_context(const json_t *text) {
  tokens_pass_text(json_string_value(text), json_string_length(text), TOKENS_IGNORED);
}

/* Text whose tokens count, and the end-of-text token that ends it. */
static void pass_answer(const struct tokens_settings *settings, const json_t *text) {
  const char *bytes = json_string_value(text);
  size_t count = json_string_length(text);
  tokens_pass_text(bytes, count, 0);
  bool ended = count > 0 && (unsigned char)bytes[count - 1] == settings->end_of_text;
  if (settings->has_end_of_text && !ended) {
    tokens_pass(&settings->end_of_text, 1);
  }
}

/* ---- chats ---- */

static const struct role {
  const char *name;
  bool counts;
} roles[] = {
    {"system", false}, {"developer", false}, {"user", false}, {"assistant", true}, {"tool", false},
};

static const struct role *role_of(const struct json_line *line, const json_t *message) {
  const char *name = json_string_value(text_of(line, message, "role"));
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
    if (strcmp(roles[i].name, name) == 0) {
      return &roles[i];
    }
  }
  tokens_fail(EX_DATAERR,
              "%s:%" PRIu64 ": %srole \"%s\": system, developer, user, assistant or tool",
              line->path, line->number, line->within, name);
}

static void read_chat(struct json_line *line, const json_t *object) {
  const json_t *messages = json_object_get(object, "messages"), *message;
  size_t index;
  if (json_array_size(messages) == 0) {
    tokens_fail(EX_DATAERR, "%s:%" PRIu64 ": %s", line->path, line->number,
                messages == NULL          ? "no field \"messages\" in an object on this line"
                : json_is_array(messages) ? "the field \"messages\" is an empty list"
                                          : "the field \"messages\" is not a list of messages");
  }
  json_array_foreach(messages, index, message) {
    snprintf(line->within, sizeof line->within, "messages[%zu]: ", index);
    const struct role *role = role_of(line, message);
    const json_t *content = text_of(line, message, "content");
    if (role->counts) {
      pass_answer(line->settings, content);
    } else {
      pass_context(content);
    }
  }
  line->within[0] = 0;
}

/* ---- lines ---- */

static void read_line(struct json_line *line, const char *text, size_t bytes) {
  const struct tokens_settings *settings = line->settings;
  json_error_t error;
  json_t *object = json_loadb(text, bytes, JSON_ALLOW_NUL, &error);
  if (object == NULL) {
    tokens_fail(EX_DATAERR, "%s:%" PRIu64 ": not JSON: %s", line->path, line->number, error.text);
  }
  if (settings->messages) {
    read_chat(line, object);
  } else if (settings->prompt_field != NULL) {
    pass_context(text_of(line, object, settings->prompt_field));
    pass_answer(settings, text_of(line, object, settings->field));
  } else {
    const json_t *value = text_of(line, object, settings->field);
    tokens_pass_text(json_string_value(value), json_string_length(value), 0);
  }
  tokens_end_input(true);
  json_decref(object);
}

void tokens_read_lines(const struct tokens_settings *settings, int in, const char *path) {
  FILE *file = fdopen(dup(in), "r");
  char *text = NULL;
  size_t capacity = 0;
  struct json_line line = {.settings = settings, .path = path};
  errno = 0;
  for (ssize_t bytes; file != NULL && (bytes = getline(&text, &capacity, file)) >= 0;) {
    line.number++;
    if (!is_blank(text, (size_t)bytes)) {
      read_line(&line, text, (size_t)bytes);
    }
    tokens_count_read((size_t)bytes);
  }
  if (file == NULL || ferror(file)) {
    tokens_fail(EX_NOINPUT, "%s: cannot read: %s", path, strerror(errno));
  }
  free(text);
  fclose(file);
}
