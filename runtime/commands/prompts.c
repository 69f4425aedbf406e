/* prompts.c: reads the prompts of generate (see prompts.h). */
#include "runtime/commands/prompts.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_kinds.h"
#include "base/input_file.h"
#include "runtime/base/check.h"
#include "runtime/base/crc32.h"
#include "runtime/commands/prompt_stream.h"

/* Where a prompt comes from, for messages, and the exit status if it is wrong. */
struct source {
  const char *name; /* "--prompt", or the file */
  uint64_t line;    /* 0: none */
  int status;
};

__attribute__((format(printf, 2, 3))) static _Noreturn void fail(const struct source *source,
                                                                 const char *format, ...) {
  char reason[256], line[32] = "";
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  if (source->line > 0) {
    snprintf(line, sizeof line, ":%llu", (unsigned long long)source->line);
  }
  pen_fail(source->status, "%s%s%s%s", source->line > 0 ? "--prompts " : "", source->name, line,
           reason);
}

/* Reads token numbers. Returns how many. */
static uint64_t read_numbers(const struct pen_plan *plan, const struct source *source,
                             const struct pen_prompt *prompt) {
  uint64_t count = 0;
  for (const char *at = prompt->text + strspn(prompt->text, " "); *at != '\0';
       at += strspn(at, " ")) {
    char *end;
    errno = 0;
    unsigned long long token = strtoull(at, &end, 10);
    if (*at < '0' || *at > '9' || errno != 0 || token >= plan->vocab ||
        (*end != ' ' && *end != '\0')) {
      fail(source, ": %.*s: token numbers below %u, separated by spaces", (int)strcspn(at, " "), at,
           plan->vocab);
    }
    prompt->token[count++] = (uint32_t)token;
    at = end;
  }
  return count;
}

static uint64_t read_bytes(const struct pen_plan *plan, const struct source *source,
                           const struct pen_prompt *prompt) {
  for (uint64_t i = 0; i < prompt->bytes; i++) {
    unsigned char byte = (unsigned char)prompt->text[i];
    if (byte >= plan->vocab) {
      fail(source, ": byte %u: the model's vocab is %u", byte, plan->vocab);
    }
    prompt->token[i] = byte;
  }
  return prompt->bytes;
}

/* A prompt has at most as many tokens as bytes. */
static struct pen_prompt prompt_of(const struct pen_plan *plan, const struct source *source,
                                   const char *text, size_t bytes) {
  struct pen_prompt prompt = {
      .text = text, .bytes = bytes, .token = calloc(bytes + 1, sizeof *prompt.token)};
  pen_check(prompt.token != NULL, "no memory for a prompt of %zu bytes", bytes);
  if (plan->vocab > PEN_BYTE_VOCAB && strlen(text) < bytes) {
    fail(source, ": a byte 0 among token numbers");
  }
  prompt.token_count =
      (plan->vocab > PEN_BYTE_VOCAB ? read_numbers : read_bytes)(plan, source, &prompt);
  if (prompt.token_count == 0) {
    fail(source, " '%s': at least one token", text);
  }
  return prompt;
}

/* The object of a line; it stays in memory. */
static const json_t *parse_line(const struct source *source, const char *line, size_t bytes) {
  json_error_t error;
  json_t *object = json_loadb(line, bytes, JSON_ALLOW_NUL, &error);
  if (object == NULL) {
    fail(source, ": not JSON: %s", error.text);
  }
  if (!json_is_string(json_object_get(object, "prompt"))) {
    fail(source, ": an object with a string \"prompt\" is needed");
  }
  const json_t *seed = json_object_get(object, "seed");
  if (seed != NULL && (!json_is_integer(seed) || json_integer_value(seed) < 0)) {
    fail(source, ": \"seed\" must be a whole number from 0 to %lld", LLONG_MAX);
  }
  return object;
}

static struct pen_prompt prompt_of_object(const struct pen_plan *plan, const struct source *source,
                                          const json_t *object) {
  const json_t *text = json_object_get(object, "prompt"), *seed = json_object_get(object, "seed");
  struct pen_prompt prompt =
      prompt_of(plan, source, json_string_value(text), json_string_length(text));
  prompt.has_seed = seed != NULL;
  prompt.seed = (uint64_t)json_integer_value(seed); /* 0 of none */
  return prompt;
}

static bool is_blank(const char *line, const char *end) {
  while (line < end && memchr(" \t\r\n", *line, 4) != NULL) {
    line++;
  }
  return line == end;
}

static struct pen_prompts read_file(const struct pen_plan *plan, const char *path) {
  struct pen_prompts prompts = {0};
  struct pen_prompt *list = NULL;
  struct source source = {.name = path, .status = PEN_EXIT_DATA};
  struct pen_input_error error;
  size_t bytes;
  char *text = pen_input_read(path, PEN_INPUT_PROMPTS, &bytes, &error);
  if (text == NULL) {
    pen_fail(error.status, "--prompts %s: %s", path, error.text);
  }
  const char *next;
  for (const char *line = text + pen_mark_bytes(text, bytes); line < text + bytes; line = next) {
    const char *end = memchr(line, '\n', (size_t)(text + bytes - line));
    next = end == NULL ? text + bytes : end + 1;
    source.line++;
    if (is_blank(line, next)) {
      continue;
    }
    const json_t *object = parse_line(&source, line, (size_t)(next - line));
    if ((prompts.count & (prompts.count - 1)) == 0) { /* a power of two: the list is full */
      list = realloc(list, (prompts.count > 0 ? 2 * prompts.count : 1) * sizeof *list);
      pen_check(list != NULL, "no memory for the prompts of %s", path);
    }
    list[prompts.count++] = prompt_of_object(plan, &source, object);
  }
  if (prompts.count == 0) {
    pen_fail(PEN_EXIT_DATA, "--prompts %s: no prompt", path);
  }
  free(text);
  prompts.prompt = list;
  return prompts;
}

struct pen_prompts pen_prompts_read(const struct pen_plan *plan,
                                    const struct pen_options *options) {
  if ((options->prompt != NULL) + (options->prompts != NULL) + options->stream != 1) {
    pen_fail(
        PEN_EXIT_USAGE,
        "generate needs either --prompt TEXT, the text to continue, --prompts FILE or --stream");
  }
  if (options->stream) {
    return pen_prompt_stream_open();
  }
  if (options->prompts != NULL) {
    return read_file(plan, options->prompts);
  }
  struct pen_prompt *prompt = malloc(sizeof *prompt);
  pen_check(prompt != NULL, "no memory for a prompt");
  *prompt = prompt_of(plan, &(struct source){.name = "--prompt", .status = PEN_EXIT_USAGE},
                      options->prompt, strlen(options->prompt));
  return (struct pen_prompts){.prompt = prompt, .count = 1};
}

uint32_t pen_prompts_checksum(const struct pen_prompts *prompts) {
  uint32_t sum = 0;
  for (uint64_t p = 0; p < prompts->count; p++) {
    const struct pen_prompt *prompt = &prompts->prompt[p];
    sum = pen_crc32(sum, &prompt->token_count, sizeof prompt->token_count);
    sum = pen_crc32(sum, prompt->token, prompt->token_count * sizeof *prompt->token);
    sum = prompt->has_seed ? pen_crc32(sum, &prompt->seed, sizeof prompt->seed) : sum;
  }
  return sum;
}
