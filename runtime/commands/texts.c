/* texts.c: the texts of generate, and how they are printed (see texts.h). */
#include "runtime/commands/texts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/key.h"
#include "runtime/base/output.h"
#include "runtime/base/text_writer.h"

/* Reads the ids of --stop. */
static void read_stop(struct pen_text_list *texts) {
  const char *ids = texts->options->stop;
  texts->stop = calloc(strlen(ids) / 2 + 1, sizeof *texts->stop);
  pen_check(texts->stop != NULL, "no memory for the ids of --stop");
  for (const char *at = ids, *end = ","; *end == ','; at = end + 1) {
    char *after;
    errno = 0;
    const unsigned long long id = strtoull(at, &after, 10);
    if (*at < '0' || *at > '9' || errno != 0 || id >= texts->vocab ||
        (*after != ',' && *after != '\0')) {
      pen_fail(PEN_EXIT_USAGE, "--stop %s: token ids below %u, separated by commas", ids,
               texts->vocab);
    }
    texts->stop[texts->stop_count++] = (uint32_t)id;
    end = after;
  }
}

/* The key of all draws of a seed. */
static uint64_t key_of(uint64_t seed) {
  uint32_t key[2];
  pen_key(key, seed, "generate");
  return (uint64_t)key[1] << 32 | key[0];
}

struct pen_text_list pen_texts_open(const struct pen_plan *plan, const struct pen_options *options,
                                    const struct pen_prompts *prompts) {
  struct pen_text_list texts = {.options = options, .prompts = prompts, .vocab = plan->vocab};
  const uint64_t key = key_of(options->seed);
  uint64_t elements = 0, one;
  bool too_many = __builtin_mul_overflow(prompts->count, options->samples, &texts.count);
  for (uint64_t p = 0; p < prompts->count && !too_many; p++) {
    too_many = __builtin_add_overflow(prompts->prompt[p].token_count, options->tokens, &one) ||
               __builtin_mul_overflow(one, options->samples, &one) ||
               __builtin_add_overflow(elements, one, &elements);
  }
  if (too_many || elements > SIZE_MAX / sizeof(uint32_t)) {
    pen_fail(PEN_EXIT_USAGE, "--tokens %llu: more than memory holds",
             (unsigned long long)options->tokens);
  }
  if (options->stop != NULL) {
    read_stop(&texts);
  }
  uint32_t *token = calloc(elements, sizeof *token);
  texts.text = calloc(texts.count, sizeof *texts.text);
  pen_check(token != NULL && texts.text != NULL, "no memory for %llu tokens",
            (unsigned long long)elements);
  for (uint64_t i = 0; i < texts.count; i++) {
    const struct pen_prompt *prompt = &prompts->prompt[i / options->samples];
    texts.text[i] = (struct pen_text){.prompt = prompt,
                                      .token = token,
                                      .key = prompt->has_seed ? key_of(prompt->seed) : key,
                                      .number = prompt->has_seed ? i % options->samples : i,
                                      .written = prompt->token_count,
                                      .capacity = prompt->token_count + options->tokens,
                                      .ended = options->stream};
    memcpy(token, prompt->token, prompt->token_count * sizeof *token);
    token += texts.text[i].capacity;
  }
  texts.shown_count = options->stream ? texts.count : 0;
  return texts;
}

void pen_text_append(const struct pen_text_list *texts, struct pen_text *text, uint32_t token) {
  const struct pen_options *options = texts->options;
  if (token == PEN_NONE) {
    text->ended = true;
    return;
  }
  text->token[text->written++] = token;
  text->stopped = options->given.end_of_text && token == options->end_of_text;
  for (uint64_t s = 0; s < texts->stop_count; s++) {
    text->stopped = text->stopped || token == texts->stop[s];
  }
  text->ended = text->stopped || text->written == text->capacity;
}

void pen_texts_restart(struct pen_text_list *texts) {
  const uint64_t key = key_of(texts->options->seed);
  texts->count = texts->prompts->count * texts->options->samples;
  for (uint64_t i = 0; i < texts->count; i++) {
    struct pen_text *text = &texts->text[i];
    const uint64_t count = text->prompt->token_count;
    memcpy(text->token, text->prompt->token, count * sizeof *text->token);
    text->key = text->prompt->has_seed ? key_of(text->prompt->seed) : key;
    text->written = count;
    text->capacity = count + texts->options->tokens;
    text->ended = text->stopped = false;
  }
  texts->shown_count = texts->shown_tokens = 0;
}

static _Noreturn void fail_output(void) {
  pen_fail(PEN_EXIT_CANNOT_WRITE, "cannot write to standard output: %s", strerror(errno));
}

/* ---- a text of --prompt ---- */

static void print(const char *text, size_t bytes) {
  if (pen_output_write(STDOUT_FILENO, text, bytes) != 0) {
    fail_output();
  }
}

static void print_tokens(const struct pen_text_list *texts, const uint32_t *tokens,
                         uint64_t count) {
  const bool ids = texts->vocab > PEN_BYTE_VOCAB || texts->options->stream;
  char text[32];
  for (uint64_t t = 0; t < count; t++) {
    int bytes = ids ? snprintf(text, sizeof text, "%u ", tokens[t])
                    : snprintf(text, sizeof text, "%c", (int)tokens[t]);
    bool unprintable =
        !ids && (tokens[t] < 32 || tokens[t] == 127) && tokens[t] != '\n' && tokens[t] != '\t';
    if (unprintable && isatty(STDOUT_FILENO)) {
      text[0] = '?'; /* no control characters to a terminal */
    }
    print(text, (size_t)bytes);
  }
}

/* Prints the tokens that are new, and before the first of several texts' its number; of --stream
 * neither this nor the prompt. */
static void print_text(struct pen_text_list *texts, const struct pen_text *text) {
  char heading[64];
  if (texts->shown_tokens == 0 && texts->options->stream) {
    texts->shown_tokens = text->prompt->token_count;
  }
  if (texts->shown_tokens == 0 && texts->count > 1) {
    int bytes =
        snprintf(heading, sizeof heading, "--- %llu\n", (unsigned long long)texts->shown_count + 1);
    print(heading, (size_t)bytes);
  }
  print_tokens(texts, text->token + texts->shown_tokens, text->written - texts->shown_tokens);
  texts->shown_tokens = text->written;
  if (text->ended) {
    print("\n", 1);
  }
}

/* ---- a line of JSON ---- */

/* The bytes of the UTF-8 character that a text begins with (Unicode 15, table 3-7); 0: it is none.
 */
static size_t character_bytes(const unsigned char *text, size_t bytes) {
  static const struct {
    unsigned char first, last, second_least, second_most;
    size_t bytes;
  } row[] = {{0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
             {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
             {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    if (text[0] < row[i].first || text[0] > row[i].last || bytes < row[i].bytes) {
      continue;
    }
    bool whole =
        row[i].bytes == 1 || (text[1] >= row[i].second_least && text[1] <= row[i].second_most);
    for (size_t b = 2; b < row[i].bytes; b++) {
      whole = whole && text[b] >= 0x80 && text[b] <= 0xbf;
    }
    return whole ? row[i].bytes : 0;
  }
  return 0;
}

/* Writes a string; bytes that are not UTF-8 become \u00XX. */
static void write_string(struct pen_writer *out, const unsigned char *text, size_t bytes) {
  pen_writer_text(out, "\"");
  for (size_t at = 0; at < bytes;) {
    const size_t whole = character_bytes(text + at, bytes - at);
    char shown[8] = "";
    if (whole == 0 || text[at] < 32 || text[at] == 127) {
      snprintf(shown, sizeof shown, "\\u%04x", text[at]);
    } else {
      const bool escaped = text[at] == '"' || text[at] == '\\';
      shown[0] = '\\';
      memcpy(shown + escaped, text + at, whole);
    }
    pen_writer_text(out, shown);
    at += whole == 0 ? 1 : whole;
  }
  pen_writer_text(out, "\"");
}

void pen_text_write_prompt(struct pen_writer *out, const struct pen_text *text) {
  write_string(out, (const unsigned char *)text->prompt->text, text->prompt->bytes);
}

/* The tokens that were sampled, a few at a time: their bytes, or their numbers. */
void pen_text_write_continuation(const struct pen_text_list *texts, struct pen_writer *out,
                                 const struct pen_text *text) {
  const uint64_t first = text->prompt->token_count;
  if (texts->vocab > PEN_BYTE_VOCAB) {
    pen_writer_text(out, "\"");
    for (uint64_t t = first; t < text->written; t++) {
      pen_writer_print(out, "%s%" PRIu32, t > first ? " " : "", text->token[t]);
    }
    pen_writer_text(out, "\"");
    return;
  }
  unsigned char *bytes = (unsigned char *)(text->token + first); /* it is not read again */
  for (uint64_t t = first; t < text->written; t++) {
    bytes[t - first] = (unsigned char)text->token[t];
  }
  write_string(out, bytes, text->written - first);
}

static void write_line(const struct pen_text_list *texts, const struct pen_text *text) {
  struct pen_writer out;
  pen_writer_open(&out, STDOUT_FILENO);
  pen_writer_text(&out, "{\"prompt\": ");
  pen_text_write_prompt(&out, text);
  pen_writer_text(&out, ", \"text\": ");
  pen_text_write_continuation(texts, &out, text);
  if (texts->options->stop != NULL) {
    pen_writer_text(&out, ", \"finish_reason\": ");
    pen_writer_text(&out, text->stopped ? "\"stop\"" : "\"length\"");
  }
  pen_writer_text(&out, "}\n");
  if (pen_writer_flush(&out) != 0) {
    fail_output();
  }
}

/* ---- all texts ---- */

void pen_texts_show(struct pen_text_list *texts) {
  const bool lines = texts->options->prompts != NULL;
  while (texts->shown_count < texts->count) {
    const struct pen_text *text = &texts->text[texts->shown_count];
    if (!lines) {
      print_text(texts, text);
    } else if (text->ended) {
      write_line(texts, text);
    }
    if (!text->ended) {
      return;
    }
    texts->shown_count++;
    texts->shown_tokens = 0;
  }
}

void pen_texts_close(struct pen_text_list *texts) {
  if (texts->shown_tokens > 0) {
    print("\n", 1);
  }
}
