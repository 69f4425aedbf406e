/* lines.c: reads documents from JSON lines, one a line: a field of text, a prompt and its
 * completion, or the messages of a chat. Of prompts, of messages that are not the assistant's, and
 * of those whose weight is 0, no token counts as a target. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

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

static void pass_string(const json_t *text, uint32_t ignored) {
  tokens_pass_text(json_string_value(text), json_string_length(text), ignored);
}

/* The end-of-text token that ends an answer whose last piece is `text`, unless that ends with it.
 */
static void end_answer(const struct tokens_settings *settings, const json_t *text,
                       uint32_t ignored) {
  const char *bytes = json_string_value(text);
  size_t count = json_string_length(text);
  bool ended = count > 0 && (unsigned char)bytes[count - 1] == settings->end_of_text;
  const uint32_t end = settings->end_of_text | ignored;
  if (settings->has_end_of_text && !ended) {
    tokens_pass(&end, 1);
  }
}

/* ---- chats ---- */

/* How a data set names the messages of a chat: OpenAI and transformers; ShareGPT. */
static const struct chat_form {
  const char *list, *role, *content;
} chat_forms[] = {{"messages", "role", "content"}, {"conversations", "from", "value"}};

enum author { CONTEXT, ASSISTANT, TOOL_CALL };

static const struct role {
  const char *name;
  enum author author;
} roles[] = {
    {"system", CONTEXT},      {"developer", CONTEXT}, {"user", CONTEXT},
    {"assistant", ASSISTANT}, {"tool", CONTEXT},      {"human", CONTEXT},
    {"gpt", ASSISTANT},       {"chatgpt", ASSISTANT}, {"function_call", TOOL_CALL},
    {"observation", CONTEXT},
};

static _Noreturn void refuse_tools(const struct json_line *line, const char *field) {
  tokens_fail(EX_DATAERR,
              "%s:%" PRIu64
              ": %s\"%s\": how a tool call is written is the chat template's to say: "
              "use tools/tokens/tokens_hf.py, which applies the tokenizer's",
              line->path, line->number, line->within, field);
}

/* Fails if an object has a field of tool calls. */
static void check_no_tools(const struct json_line *line, const json_t *object) {
  static const char *const fields[] = {"tool_calls", "function_call", "tools", "functions"};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    const json_t *value = json_object_get(object, fields[i]);
    bool is_empty = json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0);
    if (value != NULL && !is_empty) {
      refuse_tools(line, fields[i]);
    }
  }
}

static enum author author_of(const struct json_line *line, const json_t *message,
                             const char *field) {
  const char *name = json_string_value(text_of(line, message, field));
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
    if (strcmp(roles[i].name, name) == 0) {
      if (roles[i].author == TOOL_CALL) {
        refuse_tools(line, name);
      }
      return roles[i].author;
    }
  }
  tokens_fail(EX_DATAERR,
              "%s:%" PRIu64
              ": %s%s \"%.100s\": system, developer, user, assistant or tool; human "
              "and gpt are user and assistant",
              line->path, line->number, line->within, field, name);
}

/* Whether the message's tokens are targets: an assistant's, unless its weight is 0. */
static bool is_target(const struct json_line *line, const json_t *message, enum author author) {
  const json_t *weight = json_object_get(message, "weight");
  if (weight == NULL || json_is_null(weight)) {
    return author == ASSISTANT;
  }
  double value = json_is_number(weight) ? json_number_value(weight) : -1;
  bool is_one = value >= 1 && value <= 1, is_zero = value >= 0 && value <= 0;
  if (!is_one && !is_zero) {
    tokens_fail(EX_DATAERR, "%s:%" PRIu64 ": %s\"weight\": 0 or 1", line->path, line->number,
                line->within);
  }
  if (is_one && author != ASSISTANT) {
    tokens_fail(EX_DATAERR,
                "%s:%" PRIu64 ": %s\"weight\": 1: the assistant's messages alone are targets",
                line->path, line->number, line->within);
  }
  return is_one;
}

/* The text of one of the parts that a content may be a list of. */
static const json_t *part_text(struct json_line *line, const json_t *part) {
  const json_t *type = json_object_get(part, "type");
  if (json_is_string(type) && strcmp(json_string_value(type), "text") != 0) {
    tokens_fail(EX_DATAERR, "%s:%" PRIu64 ": %sa part of type \"%.100s\": text alone is supported",
                line->path, line->number, line->within, json_string_value(type));
  }
  return text_of(line, part, "text");
}

/* Passes a content, a string or a list of parts, on; returns its last piece, or null. */
static const json_t *pass_content(struct json_line *line, const json_t *message, const char *field,
                                  uint32_t ignored) {
  const json_t *content = json_object_get(message, field), *last = NULL;
  bool in_parts = json_is_array(content);
  for (size_t i = 0; i < (in_parts ? json_array_size(content) : 1); i++) {
    last = in_parts ? part_text(line, json_array_get(content, i)) : text_of(line, message, field);
    pass_string(last, ignored);
  }
  return last;
}

static const struct chat_form *form_of(const struct json_line *line, const json_t *object) {
  const struct chat_form *form = chat_forms;
  for (size_t i = 0; i < sizeof chat_forms / sizeof *chat_forms; i++) {
    if (json_object_get(object, chat_forms[i].list) != NULL) {
      form = &chat_forms[i];
      break;
    }
  }
  const json_t *messages = json_object_get(object, form->list);
  if (json_array_size(messages) == 0) {
    tokens_fail(EX_DATAERR, "%s:%" PRIu64 ": %s \"%s\" %s", line->path, line->number,
                messages == NULL ? "no field" : "the field", form->list,
                messages == NULL          ? "in an object on this line"
                : json_is_array(messages) ? "is an empty list"
                                          : "is not a list of messages");
  }
  return form;
}

static void read_chat(struct json_line *line, const json_t *object) {
  const struct chat_form *form = form_of(line, object);
  const json_t *message;
  size_t index;
  check_no_tools(line, object);
  json_array_foreach(json_object_get(object, form->list), index, message) {
    snprintf(line->within, sizeof line->within, "%s[%zu]: ", form->list, index);
    enum author author = author_of(line, message, form->role);
    check_no_tools(line, message);
    uint32_t ignored = is_target(line, message, author) ? 0 : TOKENS_IGNORED;
    const json_t *last = pass_content(line, message, form->content, ignored);
    if (author == ASSISTANT) {
      end_answer(line->settings, last, ignored);
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
    const json_t *answer = text_of(line, object, settings->field);
    pass_string(text_of(line, object, settings->prompt_field), TOKENS_IGNORED);
    pass_string(answer, 0);
    end_answer(settings, answer, 0);
  } else {
    pass_string(text_of(line, object, settings->field), 0);
  }
  tokens_end_input(true);
  json_decref(object);
}

void tokens_read_lines(const struct tokens_settings *settings, FILE *in, const char *path) {
  char *text = NULL;
  size_t capacity = 0;
  struct json_line line = {.settings = settings, .path = path};
  bool begun = false;
  errno = 0;
  for (ssize_t bytes; (bytes = getline(&text, &capacity, in)) >= 0;) {
    line.number++;
    size_t skipped = line.number == 1 ? pen_mark_bytes(text, (size_t)bytes) : 0;
    if (!is_blank(text + skipped, (size_t)bytes - skipped)) {
      if (!begun) {
        tokens_check_kind(PEN_FILE_JSON_LINES, path, text, (size_t)bytes);
      }
      begun = true;
      read_line(&line, text + skipped, (size_t)bytes - skipped);
    }
  }
  if (!feof(in)) {
    tokens_fail(EX_NOINPUT, "%s: cannot read: %s", path, strerror(errno));
  }
  free(text);
}
