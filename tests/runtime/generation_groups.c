/* generation_groups.c: the groups of texts that generate has in flight: a step waits for the tokens
 * of its own texts alone, each text is read once, in order, and nothing depends on how many groups
 * there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/commands/generation_step.h"

enum { SEQUENCE = 64, CHUNK = 16, PROMPTS = 2, TEXTS = 12, STEPS_MAX = 4096 };

static const struct pen_profile profiles[] = {
    {.kind = PEN_GENERATE, .sequence = SEQUENCE},
    {.kind = PEN_CACHED, .sequence = 1, .slots = PROMPTS},
    {.kind = PEN_CACHED, .sequence = 1, .slots = 1},
    {.kind = PEN_CACHED, .sequence = CHUNK, .slots = 1},
};
static const struct pen_buckets cached = {
    .profile = {&profiles[0], &profiles[1], &profiles[2], &profiles[3]}, .count = 4};
static const struct pen_buckets uncached = {.profile = {&profiles[0]}, .count = 1};

/* The texts, and what the steps have read of each. */
static struct {
  struct pen_text text[TEXTS];
  struct pen_text_list texts;
  struct pen_generation_plan plan;
  struct pen_generation_step step[STEPS_MAX];
  uint64_t taken,
      in_flight; /* steps; of the last step, those before it whose tokens are not taken */
  uint64_t read[TEXTS];
  bool sampled[TEXTS]; /* a token that the text does not have yet */
} run;

static void open(const struct pen_buckets *buckets, uint32_t groups, uint32_t count) {
  memset(&run, 0, sizeof run);
  run.texts = (struct pen_text_list){.text = run.text, .count = count};
  pen_generation_start(&run.plan, buckets, groups);
}

static void add_text(uint32_t index, uint64_t prompt, uint64_t tokens) {
  static struct pen_prompt none_kept;
  run.text[index] =
      (struct pen_text){.prompt = &none_kept, .written = prompt, .capacity = prompt + tokens};
}

static void take(uint64_t count) {
  for (; run.taken < count; run.taken++) {
    const struct pen_generation_step *step = &run.step[run.taken];
    for (uint32_t r = 0; r < step->row_count; r++) {
      struct pen_text *text = &run.text[step->row[r].text];
      run.sampled[step->row[r].text] &= !step->row[r].samples;
      text->written += step->row[r].samples;
      text->ended = text->written == text->capacity;
    }
  }
}

/* A row continues what was read of its text, all of whose tokens are known. */
static void check_row(const struct pen_generation_step *step, const struct pen_generation_row *row,
                      uint32_t groups) {
  const struct pen_profile *profile = run.plan.buckets->profile[step->bucket];
  const struct pen_text *text = &run.text[row->text];
  const bool window = profile->kind == PEN_GENERATE;
  assert_true(!text->ended && !run.sampled[row->text]);
  assert_true(row->count > 0 && row->count <= profile->sequence);
  assert_true(row->first == (window ? row->first : run.read[row->text]));
  assert_true(row->samples == (row->first + row->count == text->written));
  assert_int_equal(row->slot % groups, window ? 0 : step->row[0].slot % groups);
  run.read[row->text] = row->first + row->count;
  run.sampled[row->text] = row->samples;
}

/* The next step; false: all texts have ended. */
static bool next(uint32_t groups) {
  uint64_t needed;
  while (needed = pen_generation_needed(&run.plan, &run.texts), needed > run.taken) {
    assert_true(needed <= run.plan.step_count);
    take(needed);
  }
  run.in_flight = run.plan.step_count - run.taken;
  assert_true(run.in_flight < groups && run.plan.step_count < STEPS_MAX);
  struct pen_generation_step *step = &run.step[run.plan.step_count];
  pen_generation_next(&run.plan, &run.texts, step);
  for (uint32_t r = 0; r < step->row_count; r++) {
    check_row(step, &step->row[r], groups);
  }
  return step->row_count > 0;
}

/* Prompts shorter and longer than a chunk, texts that end soon or late, and past the sequence. */
static void every_text_is_continued_to_its_end(void **state) {
  (void)state;
  for (int c = 0; c < 2; c++) {
    for (uint32_t groups = 1; groups <= PEN_GROUPS_MAX; groups = groups < 6 ? groups + 1 : 64) {
      open(c == 1 ? &cached : &uncached, groups, TEXTS);
      for (uint32_t i = 0; i < TEXTS; i++) {
        add_text(i, 1 + i * 7 % 50, 1 + i * 13 % 40);
      }
      while (next(groups)) {
      }
      for (uint32_t i = 0; i < TEXTS; i++) {
        assert_true(run.text[i].ended && run.text[i].written == run.text[i].capacity);
      }
      if (groups == 64) {
        break;
      }
    }
  }
}

/* Whether texts fill all groups or one text is in each, every other group is in flight when one
 * begins a step: no step waits for another group's tokens. */
static void groups_do_not_wait_for_each_other(void **state) {
  (void)state;
  for (int c = 0; c < 2; c++) {
    for (uint32_t groups = 1; groups <= TEXTS / PROMPTS; groups++) {
      for (uint32_t of_group = 1; of_group <= (c == 1 ? PROMPTS : 1); of_group++) {
        open(c == 1 ? &cached : &uncached, groups, groups * of_group);
        for (uint32_t i = 0; i < run.texts.count; i++) {
          add_text(i, 1, 20);
        }
        for (uint32_t n = 0; n < 20 * groups; n++) {
          assert_true(next(groups));
          assert_int_equal(run.in_flight, n < groups ? n : groups - 1);
          assert_int_equal(run.step[n].row_count, of_group);
        }
        assert_false(next(groups));
      }
    }
  }
}

/* The only text waits for its own tokens alone; the parts of a prompt for nothing. */
static void one_text_takes_every_turn(void **state) {
  (void)state;
  open(&cached, 3, 1);
  add_text(0, 3 * CHUNK, 5);
  for (uint32_t n = 0; n < 3; n++) {
    assert_true(next(3));
    assert_int_equal(run.in_flight, n);
  }
  for (uint32_t n = 1; n < 5; n++) {
    assert_true(next(3));
    assert_int_equal(run.in_flight, 0);
  }
  assert_false(next(3));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_text_is_continued_to_its_end),
      cmocka_unit_test(groups_do_not_wait_for_each_other),
      cmocka_unit_test(one_text_takes_every_turn),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
