/* initial.c: the weights that training starts from: the key, independence of the topology, and the
 * file that `init` writes. */
#include "tests/support/checkpoint_model.h"

#include <sys/resource.h>

#include "runtime/base/key.h"
#include "runtime/storage/initial_weights.h"

/* By Python: hashlib.sha256(seed.to_bytes(8, "little") + name.encode()).digest()[:8], as two "<I".
 */
static void key_of_seed_and_name(void **state) {
  (void)state;
  static const struct {
    uint64_t seed;
    const char *name;
    uint32_t key[2];
  } rows[] = {
      {0, "", {0xf57055af, 0x7a0b81a1}},
      {0, "x", {0x41c890b1, 0xe6c015d3}},
      {7, "model.embed_tokens.weight", {0x67473b22, 0xb837930f}},
      {UINT64_MAX, "lm_head.weight", {0xac43e42e, 0x61b97925}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    uint32_t key[2];
    pen_key(key, rows[i].seed, rows[i].name);
    assert_int_equal(key[0], rows[i].key[0]);
    assert_int_equal(key[1], rows[i].key[1]);
  }
}

/* Every weight of every rank equals the one-rank model's; nothing else in the arenas changes. */
static void same_on_any_topology(void **state) {
  (void)state;
  struct checkpoint_model whole, parts;
  model_make(&whole, 1, 0);
  unsigned char *expected = model_arena(&whole, 0);
  MODEL_LOAD(&whole.plan, 0, expected, pen_weights_initial, 42);
  for (uint32_t turn = 0; turn < 8; turn++) {
    model_make(&parts, 2 + turn % 3, turn);
    for (uint32_t rank = 0; rank < parts.plan.rank_count; rank++) {
      unsigned char *arena = model_arena(&parts, rank), *blank = model_arena(&parts, rank);
      MODEL_LOAD(&parts.plan, rank, arena, pen_weights_initial, 42);
      for (uint32_t i = 0; i < MODEL_WEIGHTS; i++) {
        const struct pen_weight *weight = &parts.weights[i];
        if (weight->rank == rank) {
          assert_memory_equal(arena + weight->value_offset,
                              expected + whole.weights[i].value_offset, 4 * weight->count);
          memset(arena + weight->value_offset, 0xee, 4 * weight->count);
        }
      }
      assert_memory_equal(arena, blank, parts.memory[rank].arena_bytes);
      free(arena);
      free(blank);
    }
  }
  const float *gain = (const float *)(expected + whole.weights[1].value_offset);
  const float *bias = (const float *)(expected + whole.weights[4].value_offset);
  for (int i = 0; i < 8; i++) {
    assert_true(gain[i] == 1);
  }
  assert_true(bias[0] == 0);
  free(expected);
}

/* Two tensors of one shape and deviation, and one tensor under two seeds, share nothing. */
static void names_and_seeds_differ(void **state) {
  (void)state;
  struct checkpoint_model model;
  model_make(&model, 1, 0);
  unsigned char *one = model_arena(&model, 0), *two = model_arena(&model, 0);
  MODEL_LOAD(&model.plan, 0, one, pen_weights_initial, 1);
  MODEL_LOAD(&model.plan, 0, two, pen_weights_initial, 2);
  const struct pen_weight *first = &model.weights[0], *last = &model.weights[5];
  assert_memory_not_equal(one + first->value_offset, one + last->value_offset, 4 * first->count);
  assert_memory_not_equal(one + first->value_offset, two + first->value_offset, 4 * first->count);
  free(one);
  free(two);
}

/* The file holds what the ranks would start from: its bytes by offset, and read back by name. */
static void written_file(void **state) {
  (void)state;
  struct checkpoint_model model;
  model_make(&model, 3, 1);
  pen_weights_write(&model.plan, "start.safetensors", 9);
  size_t count;
  unsigned char *bytes = file_read("start.safetensors", &count);
  uint64_t header_bytes;
  memcpy(&header_bytes, bytes, 8);
  assert_int_equal(count, model.plan.model_file_bytes);
  assert_memory_equal(bytes + 8, model.model_header, strlen(model.model_header));
  for (uint64_t i = 8 + strlen(model.model_header); i < 8 + header_bytes; i++) {
    assert_int_equal(bytes[i], ' ');
  }
  for (uint32_t rank = 0; rank < 3; rank++) {
    unsigned char *arena = model_arena(&model, rank), *loaded = model_arena(&model, rank);
    MODEL_LOAD(&model.plan, rank, arena, pen_weights_initial, 9);
    MODEL_LOAD(&model.plan, rank, loaded, pen_weights_load, "start.safetensors");
    assert_memory_equal(arena, loaded, model.memory[rank].arena_bytes);
    for (uint32_t i = 0; i < MODEL_WEIGHTS; i++) {
      const struct pen_weight *weight = &model.weights[i];
      if (weight->rank == rank) {
        assert_memory_equal(bytes + weight->value_file, arena + weight->value_offset,
                            4 * weight->count);
      }
    }
    free(arena);
    free(loaded);
  }
  free(bytes);
  assert_int_equal(access("start.safetensors.tmp", F_OK), -1);
  model_make(&model, 1, 0);
  pen_weights_write(&model.plan, "other.safetensors", 9);
  file_same("start.safetensors", "other.safetensors");
}

static void write_to(void *path) {
  struct checkpoint_model model;
  model_make(&model, 1, 0);
  pen_weights_write(&model.plan, path, 9);
}

static void write_limited(void *path) {
  setrlimit(RLIMIT_FSIZE, &(struct rlimit){100000, 100000});
  write_to(path);
}

static void cannot_write(void **state) {
  (void)state;
  assert_int_equal(mkdir("folder", 0777), 0);
  model_refused(73, write_to, "folder", "folder: cannot create: Is a directory", NULL);
  model_refused(74, write_to, "/dev/full", "/dev/full: cannot write: No space left on device",
                NULL);
  model_refused(73, write_to, "nowhere/file", "nowhere/file.tmp: cannot create: No such file",
                NULL);
  file_write("kept", "before", 6);
  model_refused(74, write_limited, "kept", "kept.tmp: cannot write: File too large", NULL);
  size_t count;
  char *text = (char *)file_read("kept", &count);
  assert_string_equal(text, "before");
  free(text);
  assert_int_equal(access("kept.tmp", F_OK), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(key_of_seed_and_name),   cmocka_unit_test(same_on_any_topology),
      cmocka_unit_test(names_and_seeds_differ), cmocka_unit_test(written_file),
      cmocka_unit_test(cannot_write),
  };
  return cmocka_run_group_tests_name("initial", tests, model_setup, model_teardown);
}
