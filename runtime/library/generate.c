/* generate.c: texts that the ranks continue: checks and copies (see internal.h). */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/library/internal.h"

static int check_draws(struct pen_session *session, const struct pen_generation *by) {
  const struct {
    const char *name, *allowed;
    double value;
    bool fits;
  } numbers[] = {
      {"temperature", "a number from 0 on", by->temperature, by->temperature >= 0},
      {"top_p", "above 0, at most 1", by->top_p, by->top_p > 0 && by->top_p <= 1},
      {"min_p", "from 0 on, below 1", by->min_p, by->min_p >= 0 && by->min_p < 1},
      {"repetition_penalty", "above 0", by->repetition_penalty, by->repetition_penalty > 0},
  };
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    if (!numbers[i].fits || !isfinite(numbers[i].value)) {
      return pen_client_fail(session, PEN_CLIENT_USAGE, "generate: %s %g: %s", numbers[i].name,
                             numbers[i].value, numbers[i].allowed);
    }
  }
  return 0;
}

static int check_text(struct pen_session *session, const struct pen_generation *by,
                      const struct pen_generated *text, uint32_t index) {
  const struct pen_mailbox *mailbox = session->mailbox;
  if (text->count == 0 || text->token == NULL) {
    return pen_client_fail(session, PEN_CLIENT_USAGE, "generate: text %" PRIu32 ": no prompt",
                           index);
  }
  if (by->tokens == 0 || text->count >= mailbox->text_tokens ||
      by->tokens > mailbox->text_tokens - text->count) {
    return pen_client_fail(session, PEN_CLIENT_USAGE,
                           "generate: text %" PRIu32 ": %" PRIu64 " tokens and %" PRIu64
                           " new ones: from 1 on, and at most %" PRIu64 " in all",
                           index, text->count, by->tokens, mailbox->text_tokens);
  }
  for (uint64_t t = 0; t < text->count; t++) {
    if (text->token[t] >= mailbox->vocab) {
      return pen_client_fail(session, PEN_CLIENT_DATA,
                             "generate: text %" PRIu32 ": token %" PRIu64 " is %" PRIu32
                             ": the model's vocab is %" PRIu64,
                             index, t, text->token[t], mailbox->vocab);
    }
  }
  return 0;
}

static int check(struct pen_session *session, const struct pen_generation *by,
                 const struct pen_generated *texts, uint32_t count) {
  const struct pen_mailbox *mailbox = session->mailbox;
  int status = pen_client_given(session, "generate", "generation", by);
  if (status == 0) {
    status = pen_client_given(session, "generate", "texts", texts);
  }
  if (status == 0) {
    status = check_draws(session, by);
  }
  if (status == 0 && mailbox->text_limit == 0) {
    return pen_client_fail(session, PEN_CLIENT_USAGE, "generate: the model %s", mailbox->no_texts);
  }
  if (status == 0 && count > mailbox->text_limit) {
    return pen_client_fail(session, PEN_CLIENT_USAGE,
                           "generate: %" PRIu32 " texts: at most %" PRIu64 ", as many as samples",
                           count, mailbox->text_limit);
  }
  for (uint32_t i = 0; i < count && status == 0; i++) {
    status = check_text(session, by, &texts[i], i);
  }
  return status;
}

int pen_client_generate(struct pen_session *session, const struct pen_generation *by,
                        struct pen_generated *texts, uint32_t count) {
  struct pen_mailbox *mailbox = session->mailbox;
  unsigned char *all = (unsigned char *)mailbox;
  struct pen_mailbox_text *places = (struct pen_mailbox_text *)(all + mailbox->texts_offset);
  uint32_t *tokens = (uint32_t *)(all + mailbox->tokens_offset);
  int status = check(session, by, texts, count);
  if (status != 0 || count == 0) {
    return status;
  }
  mailbox->generation = (struct pen_mailbox_generation){
      .text_count = count,
      .tokens = by->tokens,
      .top_k = by->top_k,
      .seed = by->seed,
      .temperature = by->temperature,
      .top_p = by->top_p,
      .min_p = by->min_p,
      .repetition_penalty = by->repetition_penalty,
      .end_of_text = by->end_of_text,
  };
  for (uint32_t i = 0; i < count; i++) {
    places[i] = (struct pen_mailbox_text){texts[i].count, texts[i].count};
    memcpy(tokens + i * mailbox->text_tokens, texts[i].token, texts[i].count * sizeof *tokens);
  }
  status = pen_client_ask(session, PEN_REQUEST_GENERATE);
  for (uint32_t i = 0; i < count && status == 0; i++) {
    texts[i].count = places[i].count;
    memcpy(texts[i].token, tokens + i * mailbox->text_tokens, places[i].count * sizeof *tokens);
  }
  return status;
}
