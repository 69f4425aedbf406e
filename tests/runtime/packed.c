/* packed.c: packed token files: what the index says is checked against itself, with checksums that
 * are right; targets and starts of every document, with a mask too; the count of targets before a
 * step. And CRC-32 against its published check value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "runtime/base/check.h"
#include "runtime/base/crc32.h"
#include "runtime/data/step_inputs.h"
#include "runtime/data/windows.h"
#include "tests/support/token_file.h"

enum { SEQUENCE = 12, WINDOWS = 3, DOCUMENTS = 5, TOKENS = 26, VOCAB = 1000, NONE = -100 };
_Static_assert((int)NONE == (int)PEN_IGNORED_TARGET, "no target");

/* Windows of 12 (documents of 4, 1 and 7), 8 (of 5, then 3 of padding) and 6 tokens (of 6). The
 * mask is written with the magic PENPACK2 alone. */
struct file {
  struct pen_packed_header header;
  uint16_t tokens[TOKENS + 2]; /* up to a multiple of 8 bytes */
  struct pen_packed_document documents[DOCUMENTS];
  struct pen_packed_window windows[WINDOWS];
  unsigned char mask[(TOKENS + 7) / 8];
  unsigned char rest[4]; /* not written */
};
enum { UNMASKED_BYTES = offsetof(struct file, mask), BYTES = offsetof(struct file, rest) };
_Static_assert(offsetof(struct file, documents) == 120 &&
                   (int)UNMASKED_BYTES == 120 + 5 * 16 + 3 * 32 &&
                   (int)BYTES == (int)UNMASKED_BYTES + 4,
               "as packed_file.h has it");

static const struct pen_plan plan = {.replica_count = 1,
                                     .tensor_ranks = 1,
                                     .sequence = SEQUENCE,
                                     .vocab = VOCAB,
                                     .microbatch = 1,
                                     .microbatch_count = 2,
                                     .packed = true,
                                     .needs_tokens = true,
                                     .loss_is_mean = true};

static const struct pen_profile profile = {.microbatch_count = 2, .sequence = SEQUENCE};

static size_t bytes_of(const struct file *file) {
  return file->header.magic[7] == '2' ? BYTES : UNMASKED_BYTES;
}

static void settle_index(struct file *file) {
  file->header.index_crc =
      pen_crc32(0, file->tokens + TOKENS, bytes_of(file) - offsetof(struct file, tokens[TOKENS]));
  file->header.header_crc =
      pen_crc32(0, &file->header, offsetof(struct pen_packed_header, header_crc));
}

static void settle_checksums(struct file *file) {
  for (int w = 0; w < WINDOWS; w++) {
    file->windows[w].crc = pen_crc32(0, file->tokens + file->windows[w].first_token,
                                     file->windows[w].length * sizeof *file->tokens);
  }
  settle_index(file);
}

static struct file good(void) {
  struct file file = {
      .header = {.magic = {'P', 'E', 'N', 'P', 'A', 'C', 'K', '1'},
                 .token_bytes = 2,
                 .longest = 12,
                 .window_count = WINDOWS,
                 .document_count = DOCUMENTS,
                 .token_count = TOKENS,
                 .target_count = 9 + 4 + 5},
      .documents = {{0, 0, 4}, {1, 0, 1}, {2, 0, 7}, {3, 0, 5}, {4, 0, 6}},
      .windows = {{0, 0, 12, 3, 9, 0}, {12, 3, 8, 1, 4, 0}, {20, 4, 6, 1, 5, 0}},
  };
  for (uint16_t t = 0; t < TOKENS; t++) {
    file.tokens[t] = (uint16_t)(100 + t);
  }
  settle_checksums(&file);
  return file;
}

/* Of window 0 count the tokens 2, 5 (without effect: a document's first), 8 and 11; of window 1 the
 * token 16 and padding (without effect); of window 2 none. */
static struct file masked(void) {
  struct file file = good();
  memcpy(file.header.magic, "PENPACK2", sizeof file.header.magic);
  static const uint8_t counting[] = {2, 5, 8, 11, 16, 18};
  for (size_t i = 0; i < sizeof counting; i++) {
    file.mask[counting[i] / 8] |= (unsigned char)(1u << counting[i] % 8);
  }
  file.windows[0].target_count = 3;
  file.windows[1].target_count = 1;
  file.windows[2].target_count = 0;
  file.header.target_count = 4;
  settle_checksums(&file);
  return file;
}

static void test_crc_has_its_check_value(void **state) {
  (void)state;
  assert_int_equal(pen_crc32(0, "123456789", 9), 0xcbf43926);
  assert_int_equal(pen_crc32(0, "", 0), 0);
  for (size_t cut = 0; cut <= 43; cut++) { /* in two pieces as in one */
    static const char text[] = "The quick brown fox jumps over the lazy dog";
    assert_int_equal(pen_crc32(pen_crc32(0, text, cut), text + cut, 43 - cut), 0x414fa339);
  }
}

static void fill(struct pen_data *data, unsigned kind, int32_t row[SEQUENCE], double *share) {
  struct pen_call call = {.operand = {row, share}, .dim = {SEQUENCE}, .prepared = data};
  pen_data_op(kind, PEN_F32)(&call);
}

/* The rows of all windows, and what steps of two windows count, over the end of the file. */
static void check_rows(const struct file *file, const int32_t targets[WINDOWS][SEQUENCE],
                       const uint64_t counts[WINDOWS]) {
  static const int32_t tokens[WINDOWS][SEQUENCE] = {
      {100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111},
      {112, 113, 114, 115, 116, 117, 118, 119, 0, 0, 0, 0},
      {120, 121, 122, 123, 124, 125, 0, 0, 0, 0, 0, 0}};
  static const int32_t starts[WINDOWS][SEQUENCE] = {{0, 0, 0, 0, 4, 5, 5, 5, 5, 5, 5, 5}, {0}, {0}};
  write_path(file, bytes_of(file));
  struct pen_data data;
  pen_data_open(&data, &plan, plan.sequence, path, 0, 0);
  assert_int_equal(data.window_count, WINDOWS);
  for (uint64_t cursor = 0; cursor < 3 * WINDOWS; cursor++) {
    pen_data_prepare_step(&data, cursor, pen_data_step_windows(&plan, &profile));
    assert_int_equal(data.step_targets, counts[cursor % WINDOWS]);
    for (data.microbatch_index = 0; data.microbatch_index < 2; data.microbatch_index++) {
      int32_t row[SEQUENCE];
      double share = 0;
      uint64_t w = (cursor + data.microbatch_index) % WINDOWS;
      fill(&data, PEN_OP_TOKENS, row, NULL);
      assert_memory_equal(row, tokens[w], sizeof row);
      fill(&data, PEN_OP_TARGETS, row, &share);
      assert_memory_equal(row, targets[w], sizeof row);
      assert_true(share == 1.0 / (double)counts[cursor % WINDOWS]);
      fill(&data, PEN_OP_STARTS, row, NULL);
      assert_memory_equal(row, starts[w], sizeof row);
    }
  }
}

static void test_rows_hold_documents(void **state) {
  (void)state;
  static const int32_t targets[WINDOWS][SEQUENCE] = {
      {101, 102, 103, NONE, NONE, 106, 107, 108, 109, 110, 111, NONE},
      {113, 114, 115, 116, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE},
      {121, 122, 123, 124, 125, NONE, NONE, NONE, NONE, NONE, NONE, NONE}};
  static const uint64_t counts[WINDOWS] = {9 + 4, 4 + 5, 5 + 9};
  struct file file = good();
  check_rows(&file, targets, counts);
}

static void test_a_mask_ignores_targets(void **state) {
  (void)state;
  static const int32_t targets[WINDOWS][SEQUENCE] = {
      {NONE, 102, NONE, NONE, NONE, NONE, NONE, 108, NONE, NONE, 111, NONE},
      {NONE, NONE, NONE, 116, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE},
      {NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE}};
  static const uint64_t counts[WINDOWS] = {3 + 1, 1 + 0, 0 + 3};
  struct file file = masked();
  check_rows(&file, targets, counts);
}

/* ---- what is refused, in a child, which must leave with 65 and name the file ---- */

static void read_all(const void *of) {
  const struct pen_plan *reader = of;
  struct pen_data data;
  int32_t row[SEQUENCE];
  double share;
  pen_data_open(&data, reader, reader->sequence, path, 0, 0);
  for (data.cursor = 0; data.cursor < WINDOWS; data.cursor++) {
    fill(&data, PEN_OP_TOKENS, row, NULL);
    fill(&data, PEN_OP_TARGETS, row, &share);
  }
}

static void refuse(const struct file *file, const char *says) {
  char message[1024];
  write_path(file, bytes_of(file));
  assert_int_equal(run_in_child(read_all, &plan, message, sizeof message), PEN_EXIT_DATA);
  assert_non_null(strstr(message, path));
  if (strstr(message, says) == NULL) {
    fail_msg("\"%s\" does not say \"%s\"", message, says);
  }
}

/* Each number of the index by itself, one too many: what it is at odds with is found, whatever the
 * checksums say. */
static void test_an_index_that_lies_is_found(void **state) {
  (void)state;
  const struct {
    size_t offset, bytes;
    const char *says;
  } numbers[] = {
      {offsetof(struct pen_packed_header, target_count), 8,
       "the header counts 26 (at most 12), 5 and 19"},
      {offsetof(struct pen_packed_header, longest), 4, "the header counts 26 (at most 13)"},
      {offsetof(struct file, documents[0].length), 4,
       "window 0 has 12 tokens and counts 9 targets, but its documents have 13 tokens"},
      {offsetof(struct file, documents[3].length), 4, "window 1 has 8 tokens and counts 4 targets"},
      {offsetof(struct file, windows[0].length), 4, "window 0 has 13 tokens"},
      {offsetof(struct file, windows[0].document_count), 4,
       "window 0 has 12 tokens and counts 9 targets"},
      {offsetof(struct file, windows[2].document_count), 4,
       "window 2 has 6 tokens and 2 documents"},
      {offsetof(struct file, windows[1].target_count), 4,
       "window 1 has 8 tokens and counts 5 targets"},
      {offsetof(struct file, windows[1].first_token), 8, "window 1 begins with token 13"},
      {offsetof(struct file, windows[1].first_document), 8,
       "window 1 begins with token 12 and document 4"},
  };
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    struct file file = good();
    uint64_t number = 0;
    memcpy(&number, (char *)&file + numbers[i].offset, numbers[i].bytes);
    number++;
    memcpy((char *)&file + numbers[i].offset, &number, numbers[i].bytes);
    settle_index(&file);
    refuse(&file, numbers[i].says);
  }
  struct file file = good();
  file.documents[1].length = 0;
  file.documents[0].length = 5;
  settle_checksums(&file);
  refuse(&file, "document 1 of window 0 has no tokens");
  file = good();
  file.header.window_count = UINT64_MAX / 32;
  settle_checksums(&file);
  refuse(&file, "more than a file can hold");
  file = good();
  file.header.token_bytes = 3;
  settle_checksums(&file);
  refuse(&file, "tokens of 3 bytes");
  file = good();
  file.tokens[15] = VOCAB;
  settle_checksums(&file);
  refuse(&file, "token 15 is 1000: the model's vocab is 1000");
}

static void test_a_mask_at_odds_with_the_index_is_found(void **state) {
  (void)state;
  struct file file = masked();
  file.mask[1] |= 1 << 1; /* token 9 */
  settle_checksums(&file);
  refuse(&file,
         "window 0 has 12 tokens and counts 3 targets, but its documents have 12 tokens and "
         "4 targets");
  file = masked();
  file.header.magic[7] = '1'; /* the mask is missing, as the size is what the header says */
  settle_checksums(&file);
  refuse(&file, "counts 3 targets, but its documents have 12 tokens and 9 targets");
  file = masked();
  file.documents[4].length = UINT32_MAX; /* no bit past the mask is read */
  settle_checksums(&file);
  refuse(&file, "window 2 has 6 tokens and counts 0 targets, but its documents have 4294967295");
  file = masked();
  memset(file.mask, 0, sizeof file.mask);
  file.windows[0].target_count = file.windows[1].target_count = 0;
  file.header.target_count = 0;
  settle_checksums(&file);
  refuse(&file, "no window has a target that counts: its mask has none");
  file = masked();
  write_path(&file, BYTES - 1);
  char message[1024];
  assert_int_equal(run_in_child(read_all, &plan, message, sizeof message), PEN_EXIT_DATA);
  assert_non_null(strstr(message, "3 windows, which take 300 bytes"));
}

static void test_a_file_without_targets_is_refused(void **state) {
  (void)state;
  struct file file = good();
  file.header.window_count = file.header.document_count = file.header.token_count =
      file.header.longest = 1;
  file.header.target_count = 0;
  /* The same file, except for all that follows its one token. */
  struct {
    struct pen_packed_header header;
    uint16_t tokens[4];
    struct pen_packed_document document;
    struct pen_packed_window window;
  } small = {file.header, {7}, {0, 0, 1}, {0, 0, 1, 1, 0, 0}};
  small.window.crc = pen_crc32(0, small.tokens, sizeof *small.tokens);
  small.header.index_crc =
      pen_crc32(0, small.tokens + 1, sizeof small - sizeof small.header - sizeof *small.tokens);
  small.header.header_crc =
      pen_crc32(0, &small.header, offsetof(struct pen_packed_header, header_crc));
  write_path(&small, sizeof small);
  char message[1024];
  assert_int_equal(run_in_child(read_all, &plan, message, sizeof message), PEN_EXIT_DATA);
  assert_non_null(strstr(message, path));
  assert_non_null(strstr(message, "no window has a target: each of its 1 documents is one token"));
}

static void find_changed_bits(const struct file *whole) {
  char message[1024];
  for (size_t bit = 0; bit < 8 * bytes_of(whole); bit += 5) {
    struct file file = *whole;
    size_t byte = bit / 8;
    ((unsigned char *)&file)[byte] ^= (unsigned char)(1u << bit % 8);
    write_path(&file, bytes_of(whole));
    int status = run_in_child(read_all, &plan, message, sizeof message);
    if (status != PEN_EXIT_DATA) {
      fail_msg("bit %zu of byte %zu: status %d", bit % 8, byte, status);
    }
  }
}

static void test_every_changed_bit_is_found(void **state) {
  (void)state;
  struct file file = good();
  find_changed_bits(&file);
  file = masked();
  find_changed_bits(&file);
}

static void test_a_plan_without_bounds_takes_single_documents(void **state) {
  (void)state;
  char message[1024];
  struct pen_plan unbound = plan;
  unbound.packed = false;
  struct file file = good();
  write_path(&file, bytes_of(&file));
  assert_int_equal(run_in_child(read_all, &unbound, message, sizeof message), PEN_EXIT_DATA);
  assert_non_null(strstr(message, "window 0 holds 3 documents"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_crc_has_its_check_value),
      cmocka_unit_test(test_rows_hold_documents),
      cmocka_unit_test(test_a_mask_ignores_targets),
      cmocka_unit_test(test_an_index_that_lies_is_found),
      cmocka_unit_test(test_a_mask_at_odds_with_the_index_is_found),
      cmocka_unit_test(test_a_file_without_targets_is_refused),
      cmocka_unit_test(test_every_changed_bit_is_found),
      cmocka_unit_test(test_a_plan_without_bounds_takes_single_documents),
  };
  cmocka_set_message_output(CM_OUTPUT_TAP);
  return cmocka_run_group_tests(tests, make_path, remove_path);
}
