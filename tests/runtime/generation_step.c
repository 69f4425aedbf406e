/* generation_step.c: which tokens the steps of generate read: each once, and of a prompt that
 * begins as the one before no chunk that is in the cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/commands/generation_step.h"

enum { SEQUENCE = 64, CHUNK = 16, REPLY = 3, NO_TOKEN = 1000 };

static const struct pen_profile profiles[] = {
    {.kind = PEN_GENERATE, .sequence = SEQUENCE},
    {.kind = PEN_CACHED, .sequence = 1, .slots = 2},
    {.kind = PEN_CACHED, .sequence = 1, .slots = 1},
    {.kind = PEN_CACHED, .sequence = CHUNK, .slots = 1},
};
static const struct pen_buckets buckets = {
    .profile = {&profiles[0], &profiles[1], &profiles[2], &profiles[3]}, .count = 4};

/* Two samples of the prompts of --stream, and what the cache has of them. */
static struct {
  uint32_t prompt_token[2 * SEQUENCE], token[2][2 * SEQUENCE], cache[2][SEQUENCE];
  struct pen_prompt prompt;
  struct pen_text text[2];
  struct pen_text_list texts;
  struct pen_generation_plan plan;
} run;

static void open(void) {
  memset(&run, 0, sizeof run);
  run.prompt.token = run.prompt_token;
  for (uint32_t i = 0; i < 2; i++) {
    run.text[i] = (struct pen_text){.prompt = &run.prompt, .token = run.token[i], .ended = true};
    for (uint32_t t = 0; t < SEQUENCE; t++) {
      run.cache[i][t] = NO_TOKEN;
    }
  }
  run.texts = (struct pen_text_list){.text = run.text, .count = 2};
  pen_generation_start(&run.plan, &buckets, 1);
}

/* Reads a row into the cache, of which all earlier tokens are there. A whole chunk is written, also
 * past the text's end. */
static void read_row(const struct pen_generation_step *step, const struct pen_generation_row *row) {
  const uint64_t size = buckets.profile[step->bucket]->sequence;
  assert_true(row->first % size == 0 && row->first + size <= SEQUENCE);
  for (uint64_t t = 0; t < size; t++) {
    run.cache[row->slot][row->first + t] =
        t < row->count ? run.text[row->text].token[row->first + t] : NO_TOKEN;
  }
  assert_memory_equal(run.cache[row->slot], run.text[row->text].token,
                      (row->first + row->count) * sizeof(uint32_t));
}

/* Continues a prompt of `count` tokens, which begins as the one before with `kept`; those after
 * that are `mark`. Returns how many tokens of the prompt were read, of both texts. */
static uint64_t answer(uint64_t count, uint64_t kept, uint32_t mark) {
  struct pen_generation_step step;
  uint64_t tokens = 0;
  for (uint64_t t = kept; t < count; t++) {
    run.prompt_token[t] = mark;
  }
  run.prompt.token_count = count;
  run.prompt.kept = kept;
  run.plan.next_text = 0;
  for (uint32_t i = 0; i < 2; i++) {
    memcpy(run.token[i], run.prompt_token, count * sizeof(uint32_t));
    run.text[i].written = count;
    run.text[i].ended = false;
  }
  for (;;) {
    assert_true(pen_generation_needed(&run.plan, &run.texts) <= run.plan.step_count);
    pen_generation_next(&run.plan, &run.texts, &step);
    if (step.row_count == 0) {
      return tokens;
    }
    for (uint32_t r = 0; r < step.row_count; r++) {
      const struct pen_generation_row *row = &step.row[r];
      struct pen_text *text = &run.text[row->text];
      const uint64_t past = row->first + row->count;
      if (buckets.profile[step.bucket]->kind == PEN_CACHED) {
        read_row(&step, row);
      }
      tokens += row->first >= count ? 0 : (past < count ? past : count) - row->first;
      assert_int_equal(row->samples, past == text->written);
      if (row->samples) {
        text->token[text->written++] = 500 + mark;
        text->ended = text->written == count + REPLY;
      }
    }
  }
}

static void a_prompt_is_read_once(void **state) {
  (void)state, open();
  assert_int_equal(answer(40, 0, 1), 2 * 40);
}

static void chunks_that_are_alike_are_not_read_again(void **state) {
  (void)state, open();
  answer(40, 0, 1);
  assert_int_equal(answer(50, 40, 2), 2 * (50 - 32));
  assert_int_equal(answer(50, 50, 3), 2 * (50 - 48));
  assert_int_equal(answer(48, 48, 4), 2 * (48 - 32));
  assert_int_equal(answer(48, 31, 5), 2 * (48 - 16));
  assert_int_equal(answer(48, 15, 6), 2 * 48);
}

/* The token of a prompt that was not read by chunks is read again, as in a run of its own. */
static void other_tokens_are_read_again(void **state) {
  (void)state, open();
  answer(17, 0, 1);
  assert_int_equal(answer(34, 17, 2), 2 * (34 - 16));
  assert_int_equal(answer(8, 8, 3), 2 * 8);
  assert_int_equal(answer(34, 34, 4), 2 * 34); /* a shorter prompt came between */
}

static void a_prompt_that_no_cache_serves_keeps_it(void **state) {
  (void)state, open();
  answer(60, 0, 1);
  answer(SEQUENCE + 5, 60, 2);
  assert_int_equal(answer(61, 61, 3), 2 * (61 - 48));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_prompt_is_read_once),
      cmocka_unit_test(chunks_that_are_alike_are_not_read_again),
      cmocka_unit_test(other_tokens_are_read_again),
      cmocka_unit_test(a_prompt_that_no_cache_serves_keeps_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
