/* checkpoint.c: saving and loading over topologies, what the files hold, and places that cannot be
 * written. Bad checkpoints: checkpoint_bad.c. */
#include "tests/support/checkpoint_model.h"

#include <jansson.h>
#include <nettle/sha2.h>
#include <sys/resource.h>

#include "runtime/storage/checkpoint_load.h"
#include "runtime/storage/checkpoint_prune.h"
#include "runtime/storage/checkpoint_tensors.h"

static struct checkpoint_model model;
static void expect_loads(const struct checkpoint_model *into, const char *path, uint64_t values) {
  for (uint32_t rank = 0; rank < into->plan.rank_count; rank++) {
    unsigned char *arena = model_arena(into, rank);
    MODEL_LOAD(&into->plan, rank, arena, pen_checkpoint_load, path);
    assert_int_equal(model_differences(into, rank, arena, values), 0);
    free(arena);
  }
}

/* ---- good checkpoints ---- */

static void none_there(void **state) {
  (void)state;
  struct pen_checkpoint_info info;
  assert_int_equal(pen_checkpoint_find("nowhere", &model.plan, &info), 1);
  assert_int_equal(mkdir("empty", 0777), 0);
  assert_int_equal(pen_checkpoint_find("empty", &model.plan, &info), 1);
}

/* Saved by any topology, loaded by any other, bit for bit; and the files are the same bytes. */
static void any_topology_to_any(void **state) {
  (void)state;
  struct checkpoint_model from, into;
  model_make(&from, 1, 0);
  model_save(&from, "alone", 12, 345, 6);
  for (uint32_t turn = 0; turn < 12; turn++) {
    struct pen_checkpoint_info info;
    model_make(&from, 1 + turn % MODEL_RANKS_MAX, turn);
    model_make(&into, 1 + turn / 3 % MODEL_RANKS_MAX, turn + 1);
    model_save(&from, "turns", turn, 1000 - turn, turn);
    assert_int_equal(pen_checkpoint_find("turns", &into.plan, &info), 0);
    assert_int_equal(info.state.step, turn);
    assert_int_equal(info.state.cursor, 1000 - turn);
    expect_loads(&into, info.path, turn);
    model_save(&from, "again", 12, 345, 6);
    file_same("alone/latest/model.safetensors", "again/step-00000012/model.safetensors");
    file_same("alone/latest/optimizer.safetensors", "again/step-00000012/optimizer.safetensors");
    file_same("alone/latest/manifest.json", "again/step-00000012/manifest.json");
    file_same("alone/latest/config.json", "again/step-00000012/config.json");
  }
}

static void weights_alone(void **state) {
  (void)state;
  model_save(&model, "weights", 1, 1, 1);
  assert_int_equal(unlink("weights/latest/optimizer.safetensors"), 0);
  for (uint32_t rank = 0; rank < model.plan.rank_count; rank++) {
    unsigned char *arena = model_arena(&model, rank), *expected = model_arena(&model, rank);
    model_fill(&model, rank, expected, 1);
    MODEL_LOAD(&model.plan, rank, arena, pen_checkpoint_load_weights, "weights/latest");
    for (uint32_t i = 0; i < MODEL_WEIGHTS; i++) {
      uint64_t offset = model.weights[i].value_offset;
      if (model.weights[i].rank == rank) {
        assert_memory_equal(arena + offset, expected + offset, 4 * model.weights[i].count);
      }
    }
    free(arena);
    free(expected);
  }
}

/* The header as the plan has it, padded with blanks; the tensors where the plan says. */
static void file_layout(void **state) {
  (void)state;
  size_t count;
  uint64_t header_bytes;
  model_save(&model, "layout", 3, 4, 5);
  unsigned char *bytes = file_read("layout/latest/optimizer.safetensors", &count);
  memcpy(&header_bytes, bytes, 8);
  assert_int_equal(count, model.plan.optimizer_file_bytes);
  assert_int_equal((8 + header_bytes) % 64, 0);
  assert_memory_equal(bytes + 8, model.optimizer_header, strlen(model.optimizer_header));
  for (uint64_t i = 8 + strlen(model.optimizer_header); i < 8 + header_bytes; i++) {
    assert_int_equal(bytes[i], ' ');
  }
  for (uint32_t i = 0; i < MODEL_WEIGHTS; i++) {
    for (uint64_t j = 0; j < model.weights[i].count && !model.weights[i].frozen; j++) {
      float value = model_value(5, i, PEN_CHECKPOINT_EXP_AVG_SQ, j);
      assert_memory_equal(bytes + model.weights[i].exp_avg_sq_file + 4 * j, &value, 4);
    }
  }
  free(bytes);
}

/* manifest.json by another reader: the fields of contracts.md §10, and each checksum computed
 * again.
 */
static void manifest_fields(void **state) {
  (void)state;
  size_t count;
  model_save(&model, "fields", 123456789, INT64_MAX,
             5); /* nine digits of step, the largest cursor */
  json_t *root = json_load_file("fields/step-123456789/manifest.json", 0, NULL);
  assert_non_null(root);
  assert_int_equal(json_integer_value(json_object_get(root, "step")), 123456789);
  assert_true(json_integer_value(json_object_get(root, "cursor")) == INT64_MAX);
  assert_string_equal(json_string_value(json_object_get(root, "model_digest")),
                      "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a");
  json_t *checksums = json_object_get(root, "checksums");
  assert_int_equal(json_object_size(checksums), 3 * MODEL_WEIGHTS - 2);
  unsigned char *bytes = file_read("fields/latest/model.safetensors", &count), digest[32];
  for (int i = 0; i < MODEL_WEIGHTS; i++) {
    char hex[65];
    struct sha256_ctx hash;
    sha256_init(&hash);
    sha256_update(&hash, 4 * model.weights[i].count, bytes + model.weights[i].value_file);
    sha256_digest(&hash, 32, digest);
    for (int j = 0; j < 32; j++) {
      snprintf(hex + 2 * j, 3, "%02x", digest[j]);
    }
    assert_string_equal(json_string_value(json_object_get(checksums, model.weights[i].name)), hex);
  }
  assert_non_null(json_object_get(checksums, "lm_head.weight.exp_avg_sq"));
  free(bytes);
  json_decref(root);
  bytes = file_read("fields/latest/config.json", &count);
  assert_string_equal((char *)bytes, model.plan.config_json);
  free(bytes);
}

static void latest_is_a_relative_link(void **state) {
  (void)state;
  char target[64] = "";
  struct pen_checkpoint_info info;
  model_save(&model, "a/b/c//d/", 1, 2, 3);
  model_save(&model, "a/b/c/d", 2, 3, 4);
  assert_int_equal(readlink("a/b/c/d/latest", target, sizeof target), strlen("step-00000002"));
  assert_string_equal(target, "step-00000002");
  assert_int_equal(rename("a/b/c/d", "moved"), 0);
  assert_int_equal(pen_checkpoint_find("moved", &model.plan, &info), 0);
  assert_int_equal(info.state.step, 2);
  expect_loads(&model, info.path, 4);
  expect_loads(&model, "moved/step-00000001", 3);
  assert_int_equal(system("cp -rL moved copied"), 0); /* the link has become a folder */
  assert_int_equal(pen_checkpoint_find("copied", &model.plan, &info), 0);
  expect_loads(&model, info.path, 4);
}

/* The same step again: exchanged; foreign files in the old one stay, ours of killed runs go, others
 * are none of our business. */
static void same_step_again(void **state) {
  (void)state;
  struct pen_checkpoint_info info;
  model_save(&model, "twice", 7, 1, 1);
  assert_int_equal(mkdir("twice/step-00000003.tmp", 0777), 0);
  file_write("twice/step-00000003.tmp/model.safetensors", "x", 1);
  assert_int_equal(symlink("nothing", "twice/latest.tmp"), 0);
  assert_int_equal(mkdir("twice/step-3.tmp", 0777), 0);
  file_write("twice/notes.tmp", "mine", 4);
  model_save(&model, "twice", 7, 2, 2);
  assert_int_equal(pen_checkpoint_find("twice", &model.plan, &info), 0);
  assert_int_equal(info.state.cursor, 2);
  expect_loads(&model, info.path, 2);
  assert_int_equal(access("twice/step-00000003.tmp", F_OK), -1);
  assert_int_equal(access("twice/step-00000007.tmp", F_OK), -1);
  assert_int_equal(faccessat(AT_FDCWD, "twice/latest.tmp", F_OK, AT_SYMLINK_NOFOLLOW), -1);
  assert_int_equal(access("twice/step-3.tmp", F_OK), 0);
  assert_int_equal(access("twice/notes.tmp", F_OK), 0);
}

static void abandoned(void **state) {
  (void)state;
  struct pen_checkpoint_info info;
  model_save(&model, "left", 1, 1, 1);
  model_begin("left", &model.plan, 2);
  assert_int_equal(access("left/step-00000002.tmp/optimizer.safetensors", F_OK), 0);
  pen_checkpoint_abandon("left");
  assert_int_equal(access("left/step-00000002.tmp", F_OK), -1);
  pen_checkpoint_abandon("nowhere");
  assert_int_equal(pen_checkpoint_find("left", &model.plan, &info), 0);
  expect_loads(&model, info.path, 1);
}

/* Everything frozen: an optimizer file without tensors. */
static void nothing_to_optimize(void **state) {
  (void)state;
  struct checkpoint_model frozen;
  struct pen_checkpoint_info info;
  model_make(&frozen, 2, 0);
  for (int i = 0; i < MODEL_WEIGHTS; i++) {
    struct pen_weight *weight = &frozen.weights[i];
    weight->frozen = true;
    weight->exp_avg_offset = weight->exp_avg_sq_offset = UINT64_MAX;
  }
  model_files(&frozen);
  model_save(&frozen, "frozen", 1, 1, 1);
  assert_int_equal(pen_checkpoint_find("frozen", &frozen.plan, &info), 0);
  expect_loads(&frozen, info.path, 1);
}

/* ---- places that cannot be written ---- */

static void save_at(void *dir) { model_save(&model, dir, 2, 2, 2); }

static void save_limited(void *dir) {
  setrlimit(RLIMIT_FSIZE, &(struct rlimit){100000, 100000});
  save_at(dir);
}

static void cannot_save(void **state) {
  (void)state;
  char longest[PATH_MAX];
  model_save(&model, "good", 1, 1, 1);
  model_refused(74, save_limited, "good",
                "good/step-00000002.tmp/model.safetensors: cannot write: File too large", NULL);
  assert_int_equal(access("good/step-00000002.tmp", F_OK), -1);
  file_write("obstacle", "x", 1);
  model_refused(73, save_at, "obstacle/deep/dir",
                "obstacle/deep/dir: cannot create: Not a directory", NULL);
  model_refused(73, save_at, "obstacle", "obstacle: cannot create: Not a directory", NULL);
  model_refused(73, save_at, "/proc/penstock", "/proc/penstock: cannot create: ", NULL);
  memset(longest, 'x', sizeof longest);
  longest[sizeof longest - 10] = 0;
  model_refused(73, save_at, longest, "xxx", NULL); /* the name leaves no room for the cause */
  assert_int_equal(mkdir("good/step-00000002.tmp", 0777), 0);
  file_write("good/step-00000002.tmp/mine", "x", 1);
  model_refused(73, save_at, "good", "good/step-00000002.tmp: cannot create: File exists", NULL);
  assert_int_equal(access("good/step-00000002.tmp/mine", F_OK), 0);
  assert_int_equal(system("rm -r good/step-00000002.tmp"), 0);
  file_write("good/step-00000002", "x", 1);
  model_refused(73, save_at, "good", "good/step-00000002: cannot create: Not a directory", NULL);
  if (geteuid() != 0) {
    chmod("good", 0555);
    model_refused(73, save_at, "good", "good/step-00000002.tmp: cannot create: Permission denied",
                  NULL);
    chmod("good", 0755);
  }
  struct pen_checkpoint_info info;
  assert_int_equal(pen_checkpoint_find("good", &model.plan, &info), 0);
  assert_int_equal(info.state.step, 1);
  expect_loads(&model, info.path, 1);
}

static int setup(void **state) {
  (void)state;
  return model_setup_made(&model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(none_there),          cmocka_unit_test(any_topology_to_any),
      cmocka_unit_test(weights_alone),       cmocka_unit_test(file_layout),
      cmocka_unit_test(manifest_fields),     cmocka_unit_test(latest_is_a_relative_link),
      cmocka_unit_test(same_step_again),     cmocka_unit_test(abandoned),
      cmocka_unit_test(nothing_to_optimize), cmocka_unit_test(cannot_save),
  };
  return cmocka_run_group_tests_name("checkpoint", tests, setup, model_teardown);
}
