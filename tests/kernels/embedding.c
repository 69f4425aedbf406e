/* embedding.c: EMBEDDING, and its gradient with repeated tokens. */
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
  struct pen_call call = {.operand = {tokens, table, y}, .dim = {ROWS, WIDTH, VOCAB}};
  run(PEN_OP_EMBEDDING, &call);
  for (int r = 0; r < ROWS; r++)
    assert_memory_equal(y + r * WIDTH, table + tokens[r] * WIDTH, WIDTH * sizeof *y);
}

/* Added in rising order of rows: the same additions in the same order give the same bits. */
static void gradients_accumulate_in_row_order(void **state) {
  (void)state;
  int32_t *tokens = some_tokens();
  float *dy = random_floats(ROWS * WIDTH, 1), *dtable = random_floats(VOCAB * WIDTH, 2);
  float *expected = copy_of(dtable, VOCAB * WIDTH);
  for (int r = 0; r < ROWS; r++)
    for (int i = 0; i < WIDTH; i++) expected[tokens[r] * WIDTH + i] += dy[r * WIDTH + i];
  struct pen_call call = {.operand = {dy, tokens, dtable}, .dim = {ROWS, WIDTH, VOCAB}};
  run(PEN_OP_EMBEDDING_DW, &call);
  assert_same_bits("dtable", dtable, expected, VOCAB * WIDTH * sizeof *dtable);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_are_copied),
      cmocka_unit_test(gradients_accumulate_in_row_order),
  };
  return RUN_ON_EVERY_SET(tests);
}
