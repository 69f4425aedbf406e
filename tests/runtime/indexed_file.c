/* indexed_file.c: where the documents of Megatron-LM's token files begin, and which of their
 * indices are refused. tests/commands/indexed_files.t trains with such files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "runtime/base/check.h"
#include "runtime/data/indexed_file.h"
#include "runtime/data/step_inputs.h"
#include "tests/support/token_file.h"

enum { TOKENS = 23, SEQUENCES = 7, ENTRIES = 6, WINDOW = 4, WINDOWS = (TOKENS - 1) / WINDOW };

/* Of the documents one has no sequence, one has a sequence without tokens, and the last has two. */
static const int32_t lengths[SEQUENCES] = {1, 5, 0, 2, 9, 4, 2};
static const int64_t documents[ENTRIES] = {0, 2, 2, 3, 5, SEQUENCES};
static const uint64_t document_starts[] = {0, 6, 6, 6, 17};

struct index {
  char magic[9];
  uint64_t version;
  uint8_t type;
  uint64_t sequences, entries;
  int32_t length[SEQUENCES];
  int64_t pointer[SEQUENCES], document[ENTRIES];
} __attribute__((packed));

static struct index good(void) {
  struct index index = {"MMIDIDX\0", 1, 8, SEQUENCES, ENTRIES, {0}, {0}, {0}};
  int64_t at = 0;
  for (int s = 0; s < SEQUENCES; s++) {
    index.length[s] = lengths[s];
    index.pointer[s] = at;
    at += lengths[s] * (int64_t)sizeof(uint16_t);
  }
  memcpy(index.document, documents, sizeof documents);
  return index;
}

static struct pen_indexed read_index(const void *index, size_t bytes) {
  return pen_indexed_read("data.bin", TOKENS * sizeof(uint16_t), "data.idx", index, bytes);
}

static void test_starts_are_those_of_documents(void **state) {
  (void)state;
  const struct index index = good();
  const struct pen_indexed indexed = read_index(&index, sizeof index);
  assert_int_equal(indexed.token_count, TOKENS);
  for (uint64_t first = 0; first < TOKENS; first++) {
    for (uint64_t count = 1; count <= TOKENS - first; count++) {
      int32_t starts[TOKENS];
      pen_indexed_starts(&indexed, first, count, starts);
      for (uint64_t t = 0; t < count; t++) {
        uint64_t start = 0;
        for (size_t d = 0; d < sizeof document_starts / sizeof *document_starts; d++) {
          if (document_starts[d] > first && document_starts[d] <= first + t) {
            start = document_starts[d] - first;
          }
        }
        assert_int_equal(starts[t], start);
      }
    }
  }
}

/* A packed plan has the op that reads them: windows end where those of any plain file do, and all
 * targets count. */
static void test_rows_have_starts_and_all_targets(void **state) {
  (void)state;
  const struct pen_plan plan = {
      .replica_count = 1, .tensor_ranks = 1, .vocab = 100, .microbatch = 1, .packed = true};
  char data_path[64], index_path[64];
  snprintf(data_path, sizeof data_path, "%s.bin", path);
  snprintf(index_path, sizeof index_path, "%s.idx", path);
  const struct index index = good();
  FILE *data_file = fopen(data_path, "wb"), *index_file = fopen(index_path, "wb");
  for (uint16_t token = 0; token < TOKENS; token++) {
    assert_int_equal(fwrite(&token, sizeof token, 1, data_file), 1);
  }
  assert_int_equal(fwrite(&index, sizeof index, 1, index_file), 1);
  assert_int_equal(fclose(data_file) + fclose(index_file), 0);
  struct pen_data data;
  pen_data_open(&data, &plan, WINDOW, data_path, 0, 0);
  unlink(data_path);
  unlink(index_path);
  assert_int_equal(data.window_count, WINDOWS);
  static const int32_t expected[WINDOWS][WINDOW] = {
      {0, 0, 0, 0}, {0, 0, 2, 2}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 1, 1, 1}};
  for (data.cursor = 0; data.cursor < WINDOWS; data.cursor++) {
    int32_t row[WINDOW];
    double share = 0;
    struct pen_call call = {.operand = {row, &share}, .dim = {WINDOW}, .prepared = &data};
    pen_data_op(PEN_OP_STARTS, PEN_F32)(&call);
    assert_memory_equal(row, expected[data.cursor], sizeof row);
    pen_data_op(PEN_OP_TARGETS, PEN_F32)(&call);
    for (uint64_t t = 0; t < WINDOW; t++) {
      assert_int_equal(row[t], data.cursor * WINDOW + t + 1);
    }
  }
}

struct index_case {
  const void *index;
  size_t count;
};

static void read_bytes(const void *about) {
  const struct index_case *bytes = about;
  read_index(bytes->index, bytes->count);
}

static void refuses(const struct index *index, size_t count, const char *says) {
  char message[1024];
  assert_int_equal(
      run_in_child(read_bytes, &(struct index_case){index, count}, message, sizeof message),
      PEN_EXIT_DATA);
  if (strstr(message, "data.bin: its index data.idx: ") == NULL || strstr(message, says) == NULL) {
    fail_msg("\"%s\" does not say \"%s\"", message, says);
  }
}

static void test_damaged_indices_are_refused(void **state) {
  (void)state;
  struct index index = good();
  for (size_t count = 0; count < sizeof index; count++) {
    refuses(&index, count,
            count < 34 ? "is cut short" : "do not hold the 7 sequences and 6 entries");
  }
  const struct {
    struct index index;
    char modes[SEQUENCES];
  } multimodal = {good(), {0}};
  refuses(&multimodal.index, sizeof multimodal, "its sequences have modes");
  index.magic[8] = 'X';
  refuses(&index, sizeof index, "no index of Megatron-LM");
  index = good();
  index.version = 2;
  refuses(&index, sizeof index, "of version 2; version 1 is known");
  for (uint8_t type = 0; type < 10; type++) {
    index = good();
    index.type = type;
    if (type != 8) {
      refuses(&index, sizeof index,
              type == 4 || type == 5 ? "sequence 1 has 5 numbers from byte 2 on"
                                     : "token ids are uint16 (8), int32 (4) or int64 (5)");
    }
  }
  index = good();
  index.sequences = UINT64_MAX / 12 + 1;
  refuses(&index, sizeof index, "do not hold the");
  index = good();
  index.entries = UINT64_MAX;
  refuses(&index, sizeof index, "do not hold the");
  index = good();
  index.sequences--, index.entries = ENTRIES + 1; /* which take 4 bytes less, not one a sequence */
  refuses(&index, sizeof index, "do not hold the 6 sequences and 7 entries");
}

static void test_what_does_not_add_up_is_refused(void **state) {
  (void)state;
  for (int s = 0; s < SEQUENCES; s++) {
    struct index index = good();
    index.length[s]++;
    refuses(&index, sizeof index,
            s + 1 < SEQUENCES ? "but those before it end at byte"
                              : "take 48 bytes as 2 bytes a number, the file has 46");
    index.length[s] = -1;
    refuses(&index, sizeof index, "has -1 numbers");
    index = good();
    index.pointer[s] += 2;
    refuses(&index, sizeof index, "but those before it end at byte");
  }
  static const struct {
    int at, sequence;
  } entries[] = {{0, 1}, {2, 1}, {1, 3}, {2, SEQUENCES + 1}, {3, -1}, {ENTRIES - 1, 6}};
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    struct index index = good();
    index.document[entries[i].at] = entries[i].sequence;
    refuses(&index, sizeof index, "they rise from 0 to the number of sequences, 7");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_starts_are_those_of_documents),
      cmocka_unit_test(test_rows_have_starts_and_all_targets),
      cmocka_unit_test(test_damaged_indices_are_refused),
      cmocka_unit_test(test_what_does_not_add_up_is_refused),
  };
  cmocka_set_message_output(CM_OUTPUT_TAP);
  return cmocka_run_group_tests(tests, make_path, remove_path);
}
