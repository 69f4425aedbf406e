/* documents.c: passes tokens on, divided into documents.
 *
 * A document ends with its end-of-text token, or with its file (or line). The end-of-text token is
 * added to text that does not end with it; ids are not changed. In inputs with a mask end-of-text
 * tokens do not end a document: chats have many. */
#include "tools/tokens/tokens.h"

static struct {
  const struct tokens_settings *settings;
  struct tokens_sink *sink;
  bool inside; /* a document has begun */
  bool empty;  /* no token of the current file or line was read */
} current;

void tokens_documents_begin(const struct tokens_settings *settings, struct tokens_sink *sink) {
  current.settings = settings;
  current.sink = sink;
  current.empty = true;
}

/* Tokens up to the first end-of-text token, which is included, or all. */
static size_t length_to_end(const uint32_t *tokens, size_t count, uint32_t end_of_text) {
  for (size_t i = 0; i < count; i++) {
    if (tokens[i] == end_of_text) {
      return i + 1;
    }
  }
  return count;
}

void tokens_pass(const uint32_t *tokens, size_t count) {
  const struct tokens_settings *settings = current.settings;
  bool divides = settings->has_end_of_text && !settings->has_mask;
  while (count > 0) {
    size_t length = divides ? length_to_end(tokens, count, settings->end_of_text) : count;
    bool ends = divides && tokens[length - 1] == settings->end_of_text;
    current.sink->take_tokens(current.sink, tokens, length);
    current.inside = !ends;
    current.empty = false;
    if (ends) {
      current.sink->end_document(current.sink);
    }
    tokens += length;
    count -= length;
  }
}

void tokens_pass_text(const char *text, size_t count, uint32_t ignored) {
  const unsigned char *bytes = (const unsigned char *)text;
  static uint32_t tokens[1 << 16];
  while (count > 0) {
    size_t some = count < sizeof tokens / sizeof *tokens ? count : sizeof tokens / sizeof *tokens;
    for (size_t i = 0; i < some; i++) {
      tokens[i] = bytes[i] | ignored;
    }
    tokens_pass(tokens, some);
    bytes += some;
    count -= some;
  }
}

void tokens_end_input(bool is_text) {
  bool ended = !current.inside && !current.empty;
  bool adds = is_text && current.inside && !current.settings->has_mask;
  current.empty = true;
  if (ended) {
    return;
  }
  if (adds && current.settings->has_end_of_text) {
    current.sink->take_tokens(current.sink, &current.settings->end_of_text, 1);
  }
  current.sink->end_document(current.sink);
  current.inside = false;
}
