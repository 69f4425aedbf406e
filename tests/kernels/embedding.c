/* embedding.c: EMBEDDING, its gradient with repeated tokens, and INDEX_SELECT. */
#include "tests/support/kernels_support.h"

enum { ROWS = 23, WIDTH = 19, VOCAB = 11 };

static int32_t *some_tokens(void) {
  int32_t *tokens = bytes_at(ROWS * sizeof *tokens, 0);
  for (int r = 0; r < ROWS; r++) tokens[r] = r * r % VOCAB;
  return tokens;
}

static void rows_are_copied(void **state) {
  (void)state;
  int32_t *tokens = some_tokens();
  float *table = random_floats(VOCAB * WIDTH, 1), *y = floats(ROWS * WIDTH);
  struct pen_call call = {.operand = {tokens, table, NULL, y},
                          .dim = {ROWS, WIDTH, VOCAB, 0, VOCAB}};
  run(PEN_OP_EMBEDDING, &call);
  for (int r = 0; r < ROWS; r++)
    assert_memory_equal(y + r * WIDTH, table + tokens[r] * WIDTH, WIDTH * sizeof *y);
}

/* In either dtype with the same bits. */
static void rows_are_selected(void **state) {
  (void)state;
  int32_t *index = some_tokens();
  float *x = random_floats(VOCAB * WIDTH, 1), *y = floats(ROWS * WIDTH);
  uint16_t *half = bytes_at(VOCAB * WIDTH * sizeof *half, 0),
           *half_y = bytes_at(ROWS * WIDTH * sizeof *half_y, 0);
  pen_f32_to_bf16(half, x, VOCAB * WIDTH);
  run(PEN_OP_INDEX_SELECT,
      &(struct pen_call){.operand = {x, index, y}, .dim = {ROWS, WIDTH, VOCAB}});
  run_as(PEN_BF16, PEN_OP_INDEX_SELECT,
         &(struct pen_call){.operand = {half, index, half_y}, .dim = {ROWS, WIDTH, VOCAB}});
  for (int r = 0; r < ROWS; r++) {
    assert_memory_equal(y + r * WIDTH, x + index[r] * WIDTH, WIDTH * sizeof *y);
    assert_memory_equal(half_y + r * WIDTH, half + index[r] * WIDTH, WIDTH * sizeof *half);
  }
}

/* Added in rising order of rows: the same additions in the same order give the same bits. The row
 * of a padding token gets nothing. */
static void gradients_accumulate_in_row_order(void **state) {
  (void)state;
  int32_t *tokens = some_tokens();
  float *dy = random_floats(ROWS * WIDTH, 1), *dtable = random_floats(VOCAB * WIDTH, 2);
  float *expected = copy_of(dtable, VOCAB * WIDTH);
  for (int r = 0; r < ROWS; r++)
    for (int i = 0; i < WIDTH && tokens[r] != tokens[0]; i++)
      expected[tokens[r] * WIDTH + i] += dy[r * WIDTH + i];
  struct pen_call call = {.operand = {dy, tokens, dtable},
                          .dim = {ROWS, WIDTH, VOCAB, 0, tokens[0] + 1}};
  run(PEN_OP_EMBEDDING_DW, &call);
  assert_same_bits("dtable", dtable, expected, VOCAB * WIDTH * sizeof *dtable);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_are_copied),
      cmocka_unit_test(rows_are_selected),
      cmocka_unit_test(gradients_accumulate_in_row_order),
  };
  return RUN_ON_EVERY_SET(tests);
}
