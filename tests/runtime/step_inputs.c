/* step_inputs.c: which tokens a row of a microbatch gets and which of its targets count, which
 * files are refused and how, and that normals depend on the window alone. */
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
#include "runtime/data/data_place.h"
#include "runtime/data/step_inputs.h"
#include "runtime/data/target_mask.h"
#include "tests/support/token_file.h"

enum { SEQUENCE = 5, VOCAB = 1000, MICROBATCH = 3, MICROBATCHES = 2 };

static const struct pen_plan plan = {.replica_count = 1,
                                     .tensor_ranks = 1,
                                     .sequence = SEQUENCE,
                                     .vocab = VOCAB,
                                     .microbatch = MICROBATCH,
                                     .microbatch_count = MICROBATCHES,
                                     .needs_tokens = true};

/* Writes a token file whose token i is i, with a header of our own; `bytes_more` are appended or,
 * negative, cut off. */
static void write_file(int32_t magic, int32_t version, int32_t count, uint32_t tokens,
                       int bytes_more) {
  FILE *file = fopen(path, "wb");
  int32_t header[256] = {magic, version, count};
  assert_non_null(file);
  assert_int_equal(fwrite(header, sizeof header, 1, file), 1);
  for (uint32_t i = 0; i < tokens; i++) {
    uint16_t token = (uint16_t)i;
    assert_int_equal(fwrite(&token, sizeof token, 1, file), 1);
  }
  for (int i = 0; i < bytes_more; i++) {
    fputc(0, file);
  }
  assert_int_equal(fclose(file), 0);
  if (bytes_more < 0) {
    assert_int_equal(
        truncate(path, (off_t)(sizeof header + tokens * sizeof(uint16_t)) + bytes_more), 0);
  }
}

static void read_tokens(struct pen_data *data, unsigned kind, int32_t to[MICROBATCH * SEQUENCE]) {
  double share = 0;
  struct pen_call call = {
      .operand = {to, &share}, .dim = {MICROBATCH * SEQUENCE}, .prepared = data};
  pen_data_op(kind, PEN_F32)(&call);
}

/* contracts.md §9: row i of microbatch j reads window (cursor + j*microbatch + i) mod windows. */
static void test_rows_read_their_windows(void **state) {
  (void)state;
  enum { TOKENS = 43, WINDOWS = (TOKENS - 1) / SEQUENCE };
  write_file(20240520, 1, TOKENS, TOKENS, 0);
  struct pen_data data;
  pen_data_open(&data, &plan, plan.sequence, path, 0, 0);
  assert_int_equal(data.window_count, WINDOWS);
  for (data.cursor = 0; data.cursor < 3 * WINDOWS; data.cursor++) {
    for (data.microbatch_index = 0; data.microbatch_index < MICROBATCHES; data.microbatch_index++) {
      int32_t tokens[MICROBATCH * SEQUENCE], targets[MICROBATCH * SEQUENCE];
      read_tokens(&data, PEN_OP_TOKENS, tokens);
      read_tokens(&data, PEN_OP_TARGETS, targets);
      for (uint64_t i = 0; i < MICROBATCH; i++) {
        uint64_t window = (data.cursor + data.microbatch_index * MICROBATCH + i) % WINDOWS;
        for (uint64_t t = 0; t < SEQUENCE; t++) {
          assert_int_equal(tokens[i * SEQUENCE + t], window * SEQUENCE + t);
          assert_int_equal(targets[i * SEQUENCE + t], window * SEQUENCE + t + 1);
        }
      }
    }
  }
}

static void test_windows_are_floor_of_count_less_one(void **state) {
  (void)state;
  for (int32_t tokens = SEQUENCE + 1; tokens < 4 * SEQUENCE; tokens++) {
    write_file(20240520, 1, tokens, (uint32_t)tokens, 0);
    struct pen_data data;
    pen_data_open(&data, &plan, plan.sequence, path, 0, 0);
    assert_int_equal(data.window_count, (tokens - 1) / SEQUENCE);
  }
}

/* ---- where a run continues ---- */

/* With windows of another length: in the window that holds the token that was next, in the same
 * epoch; after the last full window the next epoch begins. */
static void test_places_hold_the_next_token(void **state) {
  (void)state;
  enum { TOKENS = 101 };
  write_file(20240520, 1, TOKENS, TOKENS, 0);
  for (uint64_t before = 1; before < 12; before++) {
    for (uint64_t now = 1; now < 12; now++) {
      struct pen_data old, new;
      uint64_t again;
      pen_data_open(&old, &plan, before, path, 0, 0);
      pen_data_open(&new, &plan, now, path, 0, 0);
      for (uint64_t cursor = 0; cursor < 3 * old.window_count; cursor++) {
        const struct pen_data_place place = pen_data_place_of(&old, cursor);
        const uint64_t next = cursor % old.window_count * before,
                       at = pen_data_place_cursor(&new, &place, &again),
                       epoch = cursor / old.window_count, window = at - epoch * new.window_count;
        assert_true(pen_data_place_fits(&new, &place));
        if (window == new.window_count) {
          assert_true(next >= new.window_count *now &&again == 0);
        } else {
          assert_true(window * now <= next && next < (window + 1) * now);
          assert_int_equal(again, next - window * now);
        }
      }
    }
  }
}

/* The last epoch that begins in a step, from the second on. */
static void test_epochs_begin(void **state) {
  (void)state;
  enum { WINDOWS = 7 };
  write_file(20240520, 1, WINDOWS * SEQUENCE + 1, WINDOWS * SEQUENCE + 1, 0);
  struct pen_data data;
  pen_data_open(&data, &plan, plan.sequence, path, 0, 0);
  for (uint64_t count = 1; count < 3 * WINDOWS; count++) {
    for (uint64_t cursor = 0; cursor < 3 * WINDOWS; cursor++) {
      uint64_t expected = 0;
      for (uint64_t w = cursor; w < cursor + count; w++) {
        expected = w > 0 && w % WINDOWS == 0 ? w / WINDOWS + 1 : expected;
      }
      pen_data_prepare_step(&data, cursor, count);
      assert_int_equal(data.epoch, expected);
      assert_int_equal(data.last_epoch, (cursor + count - 1) / WINDOWS + 1);
      data.order = pen_window_order_shuffled(cursor, 0);
      pen_data_prepare_step(&data, cursor, count);
      assert_int_equal(data.epoch, expected);
      assert_int_equal(data.last_epoch, (cursor + count - 1) / WINDOWS + 1);
      data.order = (struct pen_window_order){.shuffled = false};
    }
  }
}

/* A file is another one by its size, and by any byte of a short file; of a long one by the header
 * and the first and last blocks. */
static void test_files_are_told_apart(void **state) {
  (void)state;
  static const uint32_t sizes[] = {100, 400000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const long bytes = 1024 + 2 * (long)sizes[i], changes[] = {1000, 1024, bytes / 2, bytes - 2};
    struct pen_data data, other;
    write_file(20240520, 1, (int32_t)sizes[i], sizes[i], 0);
    pen_data_open(&data, &plan, plan.sequence, path, 0, 0);
    const struct pen_data_place place = pen_data_place_of(&data, 1);
    for (size_t c = 0; c < sizeof changes / sizeof *changes; c++) {
      const bool sampled = c != 2 || sizes[i] == 100;
      write_file(20240520, 1, (int32_t)sizes[i], sizes[i], 0);
      FILE *file = fopen(path, "r+b");
      assert_non_null(file);
      assert_int_equal(fseek(file, changes[c], SEEK_SET), 0);
      assert_int_equal(fputc(0x55, file), 0x55);
      assert_int_equal(fclose(file), 0);
      pen_data_open(&other, &plan, plan.sequence, path, 0, 0);
      assert_true(pen_data_place_fits(&other, &place) != sampled);
    }
    write_file(20240520, 1, (int32_t)sizes[i] + 1, sizes[i] + 1, 0);
    pen_data_open(&other, &plan, plan.sequence, path, 0, 0);
    assert_false(pen_data_place_fits(&other, &place));
  }
}

/* ---- masks ---- */

enum { MASKED_TOKENS = 43, MASK_BYTES = (MASKED_TOKENS + 7) / 8 };

/* A file with a mask, whose token i is i. */
struct masked_file {
  int32_t header[256];
  uint16_t tokens[MASKED_TOKENS];
  unsigned char mask[MASK_BYTES];
};
_Static_assert(sizeof(struct masked_file) == 1024 + 2 * MASKED_TOKENS + MASK_BYTES,
               "as the file has it");

static bool counts(uint64_t token) { return token % 5 == 2 || token % 7 == 3; }

/* A window without a target that counts, 3, keeps its place. */
static struct masked_file masked(void) {
  struct masked_file file = {.header = {20240520, 1, MASKED_TOKENS, 1}};
  for (uint16_t t = 0; t < MASKED_TOKENS; t++) {
    file.tokens[t] = t;
    file.mask[t / 8] |= (unsigned char)((counts(t) && (t - 1) / SEQUENCE != 3) << t % 8);
  }
  file.header[4] = (int32_t)pen_crc32(0, file.mask, sizeof file.mask);
  return file;
}

static void check_masked_rows(struct pen_data *data, uint64_t windows) {
  for (uint64_t cursor = 0; cursor < 3 * windows; cursor++) {
    uint64_t expected = 0;
    pen_data_prepare_step(data, cursor, MICROBATCHES * MICROBATCH);
    for (data->microbatch_index = 0; data->microbatch_index < MICROBATCHES;
         data->microbatch_index++) {
      int32_t tokens[MICROBATCH * SEQUENCE], targets[MICROBATCH * SEQUENCE];
      read_tokens(data, PEN_OP_TOKENS, tokens);
      read_tokens(data, PEN_OP_TARGETS, targets);
      for (uint64_t i = 0; i < MICROBATCH * SEQUENCE; i++) {
        const uint64_t at = cursor + data->microbatch_index * MICROBATCH + i / SEQUENCE,
                       window = at % windows;
        uint64_t token = window * SEQUENCE + i % SEQUENCE;
        bool inside = token + 1 < MASKED_TOKENS,
             target = inside && counts(token + 1) && window != 3 && (!data->to_end || at < windows);
        assert_int_equal(tokens[i], token < MASKED_TOKENS ? token : 0);
        assert_int_equal(targets[i], target ? (int32_t)token + 1 : PEN_IGNORED_TARGET);
        expected += target;
      }
    }
    assert_int_equal(data->step_targets, expected);
  }
}

static void test_targets_without_a_bit_are_ignored(void **state) {
  (void)state;
  struct masked_file file = masked();
  write_path(&file, sizeof file);
  struct pen_data data;
  pen_data_open(&data, &plan, plan.sequence, path, 0, 0);
  assert_int_equal(data.window_count, 8);
  check_masked_rows(&data, 8);
  pen_data_open_to_end(&data, &plan, plan.sequence, path, 0, 0);
  assert_int_equal(data.window_count, 9);
  check_masked_rows(&data, 9);
}

static void test_a_mask_counts_any_run_of_tokens(void **state) {
  (void)state;
  enum { COUNT = 300 };
  unsigned char mask[(COUNT + 7) / 8] = {0};
  assert_int_equal(pen_target_mask_bytes(0), 0);
  assert_int_equal(pen_target_mask_bytes(COUNT), sizeof mask);
  for (uint64_t t = 0; t < COUNT; t++) {
    mask[t / 8] |= (unsigned char)(counts(t) << t % 8);
  }
  for (uint64_t first = 0; first <= COUNT; first++) {
    uint64_t expected = 0;
    for (uint64_t past = first; past <= COUNT; past++) {
      assert_int_equal(pen_target_mask_count(mask, first, past - first), expected);
      assert_int_equal(pen_target_mask_count(NULL, first, past - first), past - first);
      expected += past < COUNT && counts(past);
    }
  }
}

/* ---- what is refused: each in a child, which must leave with the status and name the file ---- */

struct read_case {
  const char *name;
  uint64_t cursor;
  uint32_t ids_bits;
};

static void open_and_read(const void *about) {
  const struct read_case *reading = about;
  struct pen_data data;
  pen_data_open(&data, &plan, plan.sequence, reading->name, reading->ids_bits, 0);
  data.cursor = reading->cursor;
  int32_t tokens[MICROBATCH * SEQUENCE];
  read_tokens(&data, PEN_OP_TOKENS, tokens);
}

static int open_in_child(const char *name, char *message, size_t bytes, uint64_t read_cursor) {
  return run_in_child(open_and_read, &(struct read_case){name, read_cursor, 0}, message, bytes);
}

static void test_bad_files_are_refused_by_name(void **state) {
  (void)state;
  const struct {
    int32_t magic, version, count;
    uint32_t tokens;
    int bytes_more;
    const char *says;
  } files[] = {
      {20240520, 1, 100, 100, -1, "header counts 100 tokens"}, /* truncated */
      {20240520, 1, 100, 100, 1, "header counts 100 tokens"},  /* too long */
      {20240520, 1, 101, 100, 0, "header counts 101 tokens"},
      {20240520, 1, -1, 0, 0, "header counts -1 tokens"},
      {20240521, 1, 100, 100, 0, "not a token file"},
      {20240520, 2, 100, 100, 0, "version 2"},
      {20240520, 1, SEQUENCE, SEQUENCE, 0, "needs 6"}, /* one token short of a window */
      {20240520, 1, 0, 0, 0, "needs 6"},
      {20240520, 1, 0, 0, -1, "header of 1024 bytes"},
      {20240520, 1, 0, 0, -1024, "header of 1024 bytes"}, /* empty */
      {20240520, 1, 1500, 1500, 0, "token 1000 is 1000"}, /* >= vocab, when it is read */
  };
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    char message[1024];
    write_file(files[i].magic, files[i].version, files[i].count, files[i].tokens,
               files[i].bytes_more);
    assert_int_equal(open_in_child(path, message, sizeof message, 200), PEN_EXIT_DATA);
    assert_non_null(strstr(message, path));
    assert_non_null(strstr(message, files[i].says));
  }
}

static void refuse_masked(const struct masked_file *file, size_t bytes, const char *says) {
  char message[1024];
  write_path(file, bytes);
  assert_int_equal(open_in_child(path, message, sizeof message, 0), PEN_EXIT_DATA);
  assert_non_null(strstr(message, path));
  if (strstr(message, says) == NULL) {
    fail_msg("\"%s\" does not say \"%s\"", message, says);
  }
}

static void test_bad_masks_are_refused(void **state) {
  (void)state;
  for (size_t missing = 1; missing <= MASK_BYTES; missing++) {
    struct masked_file file = masked();
    refuse_masked(&file, sizeof file - missing,
                  "header counts 43 tokens and a mask, which take 1116");
  }
  for (size_t bit = 0; bit < 8 * MASK_BYTES; bit++) {
    struct masked_file file = masked();
    file.mask[bit / 8] ^= (unsigned char)(1u << bit % 8);
    refuse_masked(&file, sizeof file, "damaged mask: checksum");
  }
  struct masked_file file = masked();
  file.header[4] ^= 1;
  refuse_masked(&file, sizeof file, "damaged mask");
  file = masked();
  file.header[3] = 0;
  refuse_masked(&file, sizeof file, "header counts 43 tokens, which take 1110 bytes");
  file = masked();
  memset(file.mask, 0, sizeof file.mask);
  file.mask[0] = 1; /* of the first token, which is no target of a window */
  file.header[4] = (int32_t)pen_crc32(0, file.mask, sizeof file.mask);
  refuse_masked(&file, sizeof file, "no window has a target that counts: its mask has none");
}

/* ---- NumPy arrays ---- */

/* Writes an array of tokens 0, 1, 2, ..., of so many bytes each, after this header. */
static void write_array(unsigned char version, const char *header, uint32_t tokens, size_t bytes) {
  FILE *file = fopen(path, "wb");
  const uint32_t length = (uint32_t)strlen(header);
  assert_non_null(file);
  fwrite("\x93NUMPY", 1, 6, file);
  fwrite((unsigned char[]){version, 0}, 1, 2, file);
  fwrite(&length, 1, version == 1 ? 2 : 4, file);
  fwrite(header, 1, length, file);
  for (uint32_t i = 0; i < tokens; i++) {
    fwrite(&i, 1, bytes, file);
  }
  assert_int_equal(fclose(file), 0);
}

#define ARRAY(type, shape) \
  "{'descr': '" type "', 'fortran_order': False, 'shape': " shape ", }   \n"

static void test_arrays_have_the_rows_of_plain_files(void **state) {
  (void)state;
  enum { TOKENS = 43, COUNT = MICROBATCH * SEQUENCE };
  struct pen_data data;
  int32_t expected[2][COUNT], row[COUNT];
  write_file(20240520, 1, TOKENS, TOKENS, 0);
  pen_data_open(&data, &plan, plan.sequence, path, 0, 0);
  read_tokens(&data, PEN_OP_TOKENS, expected[0]);
  read_tokens(&data, PEN_OP_TARGETS, expected[1]);
  for (unsigned char version = 1; version <= 3; version++) {
    for (size_t bytes = 2; bytes <= 4; bytes += 2) {
      write_array(version, bytes == 2 ? ARRAY("<u2", "(43,)") : ARRAY("<u4", "(43,)"), TOKENS,
                  bytes);
      pen_data_open(&data, &plan, plan.sequence, path, 0, 0);
      assert_int_equal(data.window_count, (TOKENS - 1) / SEQUENCE);
      assert_int_equal(data.token_bytes, bytes);
      read_tokens(&data, PEN_OP_TOKENS, row);
      assert_memory_equal(row, expected[0], sizeof row);
      read_tokens(&data, PEN_OP_TARGETS, row);
      assert_memory_equal(row, expected[1], sizeof row);
    }
  }
}

static void test_bad_arrays_are_refused_by_name(void **state) {
  (void)state;
  const struct {
    unsigned char version;
    const char *header;
    uint32_t tokens;
    size_t bytes;
    const char *says;
  } arrays[] = {
      {1, ARRAY("<i8", "(43,)"), 43, 8, "type '<i8': token ids are of type '<u2' or '<u4'"},
      {1, ARRAY(">u2", "(43,)"), 43, 2, "type '>u2'"},
      {1, "{'shape': (43,)}", 43, 2, "type none"},
      {1, ARRAY("<u2", "(43, 1)"), 43, 2, "shape is not (N,): token ids have one dimension"},
      {1, ARRAY("<u2", "()"), 1, 2, "shape is not (N,)"},
      {1, ARRAY("<u2", "(44,)"), 43, 2, "counts 44 numbers of 2 bytes, and 86 bytes follow"},
      {1, ARRAY("<u2", "(-1,)"), 43, 2, "and 86 bytes follow"},
      {1, ARRAY("<u4", "(21,)"), 43, 2, "counts 21 numbers of 4 bytes"},
      {1, ARRAY("<u2", "(5,)"), 5, 2, "needs 6"},
      {4, ARRAY("<u2", "(43,)"), 43, 2, "format version 4"},
  };
  char message[1024];
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
    write_array(arrays[i].version, arrays[i].header, arrays[i].tokens, arrays[i].bytes);
    assert_int_equal(open_in_child(path, message, sizeof message, 0), PEN_EXIT_DATA);
    assert_non_null(strstr(message, path));
    if (strstr(message, arrays[i].says) == NULL) {
      fail_msg("\"%s\" does not say \"%s\"", message, arrays[i].says);
    }
  }
  write_array(2, ARRAY("<u2", "(43,)"), 43, 2);
  for (off_t bytes = 8; bytes < 80; bytes++) { /* cut within the header */
    write_array(2, ARRAY("<u2", "(43,)"), 43, 2);
    assert_int_equal(truncate(path, bytes), 0);
    assert_int_equal(open_in_child(path, message, sizeof message, 0), PEN_EXIT_DATA);
  }
}

/* Ids without a header have the rows of a token file of them, and are told apart by their bits;
 * what begins as a known format is read as such. */
static void test_ids_alone(void **state) {
  (void)state;
  enum { TOKENS = 44, COUNT = MICROBATCH * SEQUENCE };
  struct pen_data data, wide;
  int32_t expected[COUNT], row[COUNT];
  char message[1024];
  write_file(20240520, 1, TOKENS, TOKENS, 0);
  pen_data_open(&data, &plan, plan.sequence, path, 32, 0);
  assert_int_equal(data.token_bytes, 2);
  read_tokens(&data, PEN_OP_TARGETS, expected);
  for (uint32_t bits = 16; bits <= 32; bits += 16) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (uint32_t i = 0; i < TOKENS; i++) {
      fwrite(&i, 1, bits / 8, file);
    }
    assert_int_equal(fclose(file), 0);
    pen_data_open(&data, &plan, plan.sequence, path, bits, 0);
    assert_int_equal(data.window_count, (TOKENS - 1) / SEQUENCE);
    read_tokens(&data, PEN_OP_TARGETS, row);
    assert_memory_equal(row, expected, sizeof row);
    pen_data_open(&wide, &plan, plan.sequence, path, 48 - bits, 0);
    const struct pen_data_place place = pen_data_place_of(&data, 0);
    assert_true(pen_data_place_fits(&data, &place) && !pen_data_place_fits(&wide, &place));
    assert_int_equal(open_in_child(path, message, sizeof message, 0), PEN_EXIT_DATA);
    assert_int_equal(truncate(path, 43), 0);
    assert_int_equal(
        run_in_child(open_and_read, &(struct read_case){path, 0, bits}, message, sizeof message),
        PEN_EXIT_DATA);
    assert_non_null(strstr(message, bits == 16 ? "43 bytes: ids of 16 bits have 2 bytes each"
                                               : "43 bytes: ids of 32 bits have 4 bytes each"));
  }
}

static void test_absent_files_are_refused(void **state) {
  (void)state;
  const char *names[] = {"/nonexistent/tokens.bin", "/tmp"};
  for (size_t i = 0; i < 2; i++) {
    char message[1024];
    assert_int_equal(open_in_child(names[i], message, sizeof message, 0), PEN_EXIT_NO_INPUT);
    assert_non_null(strstr(message, names[i]));
  }
}

static void test_a_bad_token_does_no_harm_until_it_is_read(void **state) {
  (void)state;
  char message[1024];
  write_file(20240520, 1, 1500, 1500, 0);
  assert_int_equal(open_in_child(path, message, sizeof message, 0), 0);
}

/* ---- normals ---- */

enum { WIDTH = 4 };

static void draw(float *to, uint64_t seed, uint64_t cursor, uint64_t microbatch, int64_t stream) {
  struct pen_data data;
  pen_data_open(&data, &plan, plan.sequence, NULL, 0, seed);
  data.cursor = cursor;
  data.microbatch_index = microbatch;
  struct pen_call call = {
      .operand = {to}, .dim = {MICROBATCH * SEQUENCE, WIDTH, stream, SEQUENCE}, .prepared = &data};
  pen_data_op(PEN_OP_NORMAL, PEN_F32)(&call);
}

static void test_normals_belong_to_seed_window_and_stream(void **state) {
  (void)state;
  enum { COUNT = MICROBATCH * SEQUENCE * WIDTH, WINDOW = SEQUENCE * WIDTH };
  float first[COUNT], other[COUNT];
  draw(first, 7, 4, 0, 0);
  draw(other, 7, 1, 1, 0); /* cursor 1, microbatch 1: the same windows */
  assert_memory_equal(first, other, sizeof first);
  draw(other, 7, 5, 0, 0); /* one window on */
  assert_memory_equal(first + WINDOW, other, (COUNT - WINDOW) * sizeof *first);
  assert_memory_not_equal(first, other, WINDOW * sizeof *first);
  draw(other, 8, 4, 0, 0);
  assert_memory_not_equal(first, other, sizeof first);
  draw(other, 7, 4, 0, 1);
  assert_memory_not_equal(first, other, sizeof first);
}

/* In bf16 they are the same, rounded. */
static void test_normals_of_bf16(void **state) {
  (void)state;
  enum { COUNT = MICROBATCH * SEQUENCE * WIDTH };
  float wide[COUNT];
  uint16_t narrow[COUNT], rounded[COUNT];
  struct pen_data data;
  pen_data_open(&data, &plan, plan.sequence, NULL, 0, 7);
  data.cursor = 4;
  data.microbatch_index = 0;
  struct pen_call call = {
      .operand = {narrow}, .dim = {MICROBATCH * SEQUENCE, WIDTH, 1, SEQUENCE}, .prepared = &data};
  pen_data_op(PEN_OP_NORMAL, PEN_BF16)(&call);
  draw(wide, 7, 4, 0, 1);
  pen_f32_to_bf16(rounded, wide, COUNT);
  assert_memory_equal(narrow, rounded, sizeof narrow);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows_read_their_windows),
      cmocka_unit_test(test_windows_are_floor_of_count_less_one),
      cmocka_unit_test(test_places_hold_the_next_token),
      cmocka_unit_test(test_epochs_begin),
      cmocka_unit_test(test_files_are_told_apart),
      cmocka_unit_test(test_targets_without_a_bit_are_ignored),
      cmocka_unit_test(test_a_mask_counts_any_run_of_tokens),
      cmocka_unit_test(test_bad_files_are_refused_by_name),
      cmocka_unit_test(test_bad_masks_are_refused),
      cmocka_unit_test(test_arrays_have_the_rows_of_plain_files),
      cmocka_unit_test(test_bad_arrays_are_refused_by_name),
      cmocka_unit_test(test_ids_alone),
      cmocka_unit_test(test_absent_files_are_refused),
      cmocka_unit_test(test_a_bad_token_does_no_harm_until_it_is_read),
      cmocka_unit_test(test_normals_belong_to_seed_window_and_stream),
      cmocka_unit_test(test_normals_of_bf16),
  };
  cmocka_set_message_output(CM_OUTPUT_TAP);
  return cmocka_run_group_tests(tests, make_path, remove_path);
}
