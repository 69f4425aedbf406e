/* checkpoint.c: saving and loading over topologies, what the files hold, and every kind of bad
 * checkpoint by its message. */
#include "tests/support/checkpoint_model.h"

#include <jansson.h>
#include <math.h>
#include <nettle/sha2.h>
#include <sys/resource.h>

#include "runtime/storage/checkpoint_load.h"
#include "runtime/storage/checkpoint_prune.h"
#include "runtime/storage/checkpoint_tensors.h"

static struct checkpoint_model model;
static unsigned char digests[PEN_CHECKPOINT_TENSORS * MODEL_WEIGHTS][PEN_DIGEST_BYTES];

/* A save as the ranks of a run make it, here one after the other. */
static void save(const struct checkpoint_model *from, const char *dir, uint64_t step,
                 uint64_t cursor, uint64_t values) {
  model_begin(dir, &from->plan, step);
  for (uint32_t rank = 0; rank < from->plan.rank_count; rank++) {
    unsigned char *arena = model_arena(from, rank);
    model_fill(from, rank, arena, values);
    model_write(&from->plan, rank, arena, dir, step, digests);
    free(arena);
  }
  model_finish(&from->plan, dir, step, cursor, digests);
}

static void expect_loads(const struct checkpoint_model *into, const char *path, uint64_t values) {
  for (uint32_t rank = 0; rank < into->plan.rank_count; rank++) {
    unsigned char *arena = model_arena(into, rank);
    pen_checkpoint_load(&into->plan, rank, arena, path);
    assert_int_equal(model_differences(into, rank, arena, values), 0);
    free(arena);
  }
}

/* As a run resumes: find, then every rank loads. */
static void resume(void *dir) {
  struct pen_checkpoint_info info;
  if (pen_checkpoint_find(dir, &model.plan, &info)) {
    _exit(1);
  }
  for (uint32_t rank = 0; rank < model.plan.rank_count; rank++) {
    unsigned char *arena = model_arena(&model, rank);
    pen_checkpoint_load(&model.plan, rank, arena, info.path);
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
  save(&from, "alone", 12, 345, 6);
  for (uint32_t turn = 0; turn < 12; turn++) {
    struct pen_checkpoint_info info;
    model_make(&from, 1 + turn % MODEL_RANKS_MAX, turn);
    model_make(&into, 1 + turn / 3 % MODEL_RANKS_MAX, turn + 1);
    save(&from, "turns", turn, 1000 - turn, turn);
    assert_int_equal(pen_checkpoint_find("turns", &into.plan, &info), 0);
    assert_int_equal(info.step, turn);
    assert_int_equal(info.cursor, 1000 - turn);
    expect_loads(&into, info.path, turn);
    save(&from, "again", 12, 345, 6);
    file_same("alone/latest/model.safetensors", "again/step-00000012/model.safetensors");
    file_same("alone/latest/optimizer.safetensors", "again/step-00000012/optimizer.safetensors");
    file_same("alone/latest/manifest.json", "again/step-00000012/manifest.json");
    file_same("alone/latest/config.json", "again/step-00000012/config.json");
  }
}

static void weights_alone(void **state) {
  (void)state;
  save(&model, "weights", 1, 1, 1);
  assert_int_equal(unlink("weights/latest/optimizer.safetensors"), 0);
  for (uint32_t rank = 0; rank < model.plan.rank_count; rank++) {
    unsigned char *arena = model_arena(&model, rank), *expected = model_arena(&model, rank);
    model_fill(&model, rank, expected, 1);
    pen_checkpoint_load_weights(&model.plan, rank, arena, "weights/latest");
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
  save(&model, "layout", 3, 4, 5);
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

/* manifest.json by another reader: the fields of design.md §10, and each checksum computed again.
 */
static void manifest_fields(void **state) {
  (void)state;
  size_t count;
  save(&model, "fields", 123456789, INT64_MAX, 5); /* nine digits of step, the largest cursor */
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
  save(&model, "a/b/c//d/", 1, 2, 3);
  save(&model, "a/b/c/d", 2, 3, 4);
  assert_int_equal(readlink("a/b/c/d/latest", target, sizeof target), strlen("step-00000002"));
  assert_string_equal(target, "step-00000002");
  assert_int_equal(rename("a/b/c/d", "moved"), 0);
  assert_int_equal(pen_checkpoint_find("moved", &model.plan, &info), 0);
  assert_int_equal(info.step, 2);
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
  save(&model, "twice", 7, 1, 1);
  assert_int_equal(mkdir("twice/step-00000003.tmp", 0777), 0);
  file_write("twice/step-00000003.tmp/model.safetensors", "x", 1);
  assert_int_equal(symlink("nothing", "twice/latest.tmp"), 0);
  assert_int_equal(mkdir("twice/step-3.tmp", 0777), 0);
  file_write("twice/notes.tmp", "mine", 4);
  save(&model, "twice", 7, 2, 2);
  assert_int_equal(pen_checkpoint_find("twice", &model.plan, &info), 0);
  assert_int_equal(info.cursor, 2);
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
  save(&model, "left", 1, 1, 1);
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
  save(&frozen, "frozen", 1, 1, 1);
  assert_int_equal(pen_checkpoint_find("frozen", &frozen.plan, &info), 0);
  expect_loads(&frozen, info.path, 1);
}

/* ---- bad checkpoints ---- */

/* Puts other bytes at an offset of a file. */
static void patch(const char *path, long offset, const void *bytes, size_t count) {
  FILE *file = fopen(path, "r+b");
  assert_non_null(file);
  assert_int_equal(fseek(file, offset, SEEK_SET), 0);
  assert_int_equal(fwrite(bytes, 1, count, file), count);
  assert_int_equal(fclose(file), 0);
}

static const char model_file[] = "bad/step-00000001/model.safetensors";
static const char optimizer_file[] = "bad/step-00000001/optimizer.safetensors";
static const char manifest_file[] = "bad/step-00000001/manifest.json";

/* One bit of any byte of a tensor file: always refused, by the file's name, and within a tensor by
 * the tensor's. */
static void flipped_bits(void **state) {
  (void)state;
  srand(3);
  save(&model, "bad", 1, 1, 1);
  for (int i = 0; i < 150; i++) {
    const char *path = i % 2 ? model_file : optimizer_file;
    size_t count;
    unsigned char *bytes = file_read(path, &count);
    uint64_t header_bytes;
    memcpy(&header_bytes, bytes, 8);
    size_t at = i < 80 ? (size_t)rand() % (8 + header_bytes) : (size_t)rand() % count;
    unsigned char flipped = (unsigned char)(bytes[at] ^ 1 << rand() % 8);
    patch(path, (long)at, &flipped, 1);
    model_refused(65, resume, "bad", path, at < 8 + header_bytes ? "" : ": tensor ", NULL);
    patch(path, (long)at, &bytes[at], 1);
    free(bytes);
  }
  assert_int_equal(model_run(resume, "bad"), 0);
}

static void flipped_first_and_last(void **state) {
  (void)state;
  save(&model, "bad", 1, 1, 1);
  for (int i = 0; i < MODEL_WEIGHTS; i++) {
    const struct pen_weight *weight = &model.weights[i];
    for (int end = 0; end < 2; end++) {
      float value = model_value(1, (uint32_t)i, 0, end ? weight->count - 1 : 0);
      unsigned char low;
      memcpy(&low, &value, 1); /* the lowest bits of the fraction: stays finite */
      low ^= 1;
      long at = (long)(weight->value_file + (end ? 4 * (weight->count - 1) : 0));
      patch(model_file, at, &low, 1);
      model_refused(65, resume, "bad", model_file, weight->name,
                    "SHA-256 is not that of manifest.json", NULL);
      low ^= 1;
      patch(model_file, at, &low, 1);
    }
  }
}

/* One bit of any byte of the manifest: refused, or what is read is what was saved. */
static void flipped_manifest(void **state) {
  (void)state;
  size_t count;
  srand(5);
  save(&model, "bad", 1, 77, 1);
  unsigned char *bytes = file_read(manifest_file, &count);
  int refusals = 0;
  for (int i = 0; i < 400; i++) {
    size_t at = i < 300 ? (size_t)i : (size_t)rand() % count;
    unsigned char flipped = (unsigned char)(bytes[at] ^ 1 << rand() % 8);
    patch(manifest_file, (long)at, &flipped, 1);
    int status = model_run(resume, "bad");
    if (status == 0) {
      struct pen_checkpoint_info info;
      assert_int_equal(pen_checkpoint_find("bad", &model.plan, &info), 0);
      assert_int_equal(info.step, 1);
      assert_int_equal(info.cursor, 77);
    } else if (status != 65 || strstr(said, "bad/step-00000001/") == NULL) {
      fail_msg("byte %zu = %d: status %d: %s", at, flipped, status, said);
    }
    refusals += status != 0;
    patch(manifest_file, (long)at, &bytes[at], 1);
  }
  assert_true(refusals > 300);
  free(bytes);
}

static void save_not_finite(void *dir) {
  const struct pen_weight *weight = &model.weights[5];
  unsigned char *arena = model_arena(&model, weight->rank);
  model_fill(&model, weight->rank, arena, 1);
  ((float *)(arena + weight->exp_avg_offset))[11] = INFINITY;
  model_write(&model.plan, weight->rank, arena, dir, 1, digests);
}

/* Values that are not finite are not saved; and not loaded, were they there, under a checksum that
 * fits them. */
static void not_finite(void **state) {
  (void)state;
  const struct pen_weight *weight = &model.weights[5];
  model_begin("bad", &model.plan, 1);
  model_refused(65, save_not_finite, "bad",
                "step-00000001: tensor lm_head.weight is not finite; not saved", NULL);
  for (uint32_t rank = 0; rank < model.plan.rank_count; rank++) {
    unsigned char *arena = model_arena(&model, rank);
    model_fill(&model, rank, arena, 1);
    model_write(&model.plan, rank, arena, "bad", 1, digests);
    if (weight->rank == rank) {
      struct sha256_ctx hash;
      float *values = (float *)(arena + weight->exp_avg_offset);
      values[11] = NAN;
      patch("bad/step-00000001.tmp/optimizer.safetensors", (long)weight->exp_avg_file + 44,
            &values[11], sizeof *values);
      sha256_init(&hash);
      sha256_update(&hash, weight->count * sizeof *values, (const uint8_t *)values);
      sha256_digest(&hash, PEN_DIGEST_BYTES,
                    digests[PEN_CHECKPOINT_TENSORS * 5 + PEN_CHECKPOINT_EXP_AVG]);
    }
    free(arena);
  }
  model_finish(&model.plan, "bad", 1, 1, digests);
  model_refused(65, resume, "bad", "tensor lm_head.weight.exp_avg: element 11 is not a number",
                NULL);
}

static void truncated(void **state) {
  (void)state;
  static const char *const paths[] = {model_file, optimizer_file, manifest_file};
  for (int i = 0; i < 3; i++) {
    size_t count;
    save(&model, "bad", 1, 1, 1);
    free(file_read(paths[i], &count));
    static const double cuts[] = {0, 0.001, 0.5, 0.999};
    for (int cut = 3; cut >= 0; cut--) {
      assert_int_equal(truncate(paths[i], (off_t)(cuts[cut] * (double)count)), 0);
      model_refused(65, resume, "bad", paths[i], NULL);
    }
    assert_int_equal(unlink(paths[i]), 0);
    model_refused(66, resume, "bad", paths[i], "No such file", NULL);
  }
}

static void latest_leads_nowhere(void **state) {
  (void)state;
  save(&model, "lost", 1, 1, 1);
  assert_int_equal(rename("lost/step-00000001", "lost/elsewhere"), 0);
  model_refused(66, resume, "lost", "lost/step-00000001/", "No such file", NULL);
  file_write("plain", "x", 1);
  model_refused(66, resume, "plain", "plain/latest", NULL);
}

static void bad_manifests(void **state) {
  (void)state;
  static const char *const texts[][2] = {
      {"", ": "},
      {"[]", "step: must be a whole number"},
      {"{\"step\": 1}", "cursor: must be a whole number"},
      {"{\"step\": 1.0, \"cursor\": 1}", "step: must be a whole number"},
      {"{\"step\": -1, \"cursor\": 1}", "step: must be a whole number"},
      {"{\"step\": 18446744073709551616, \"cursor\": 1}", "too big integer"},
      {"{\"step\": 1, \"cursor\": 1}", "model_digest: must be 64 hexadecimal digits"},
      {"{\"step\": 1, \"cursor\": 1, \"model_digest\": \"5a\"}",
       "model_digest: must be 64 hexadecimal digits"},
      {"{\"step\": 1, \"step\": 1}", "duplicate object key"},
      {"{\"step\": 1, \"cursor\": 1, \"model_digest\": "
       "\"5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a\"}",
       "tensor model.embed_tokens.weight: no checksum"},
      {"{\"step\": 1, \"cursor\": 1, \"model_digest\": "
       "\"5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a\", \"state_checksum\": "
       "3}",
       "state_checksum does not fit"},
  };
  save(&model, "bad", 1, 1, 1);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    file_write(manifest_file, texts[i][0], strlen(texts[i][0]));
    model_refused(65, resume, "bad", manifest_file, texts[i][1], NULL);
  }
  char *blanks = malloc(1 << 20);
  memset(blanks, ' ', 1 << 20);
  file_write(manifest_file, blanks, 1 << 20);
  free(blanks);
  model_refused(65, resume, "bad", manifest_file, "at most", NULL);
  unlink(manifest_file);
  assert_int_equal(mkfifo(manifest_file, 0666), 0);
  model_refused(65, resume, "bad", manifest_file, "not a regular file", NULL);
  unlink(manifest_file);
}

static void another_model(void **state) {
  (void)state;
  struct checkpoint_model whole = model;
  save(&model, "other", 1, 1, 1);
  memset(model.plan.model_digest, 1, PEN_DIGEST_BYTES);
  model_refused(65, resume, "other", "manifest.json: model_digest: a checkpoint of another model",
                NULL);
  model = whole;
  model.weights[0].tensor_dim[0] = 38;
  model_refused(65, resume, "other",
                "model.embed_tokens.weight: shape [37, 8] where the model has [38, 8]", NULL);
  model = whole;
  model.plan.weight_count--;
  model_refused(65, resume, "other", "lm_head.weight: not a part of this model", NULL);
  model = whole;
  model.weights[2].frozen = true; /* the same model, trained in part */
  struct pen_checkpoint_info info;
  assert_int_equal(pen_checkpoint_find("other", &model.plan, &info), 0);
  assert_int_equal(info.frozen_count, 1);
  assert_int_equal(info.unfrozen_count, 0);
  model = whole;
}

/* ---- places that cannot be written ---- */

static void save_at(void *dir) { save(&model, dir, 2, 2, 2); }

static void save_limited(void *dir) {
  setrlimit(RLIMIT_FSIZE, &(struct rlimit){100000, 100000});
  save_at(dir);
}

static void cannot_save(void **state) {
  (void)state;
  char longest[PATH_MAX];
  save(&model, "good", 1, 1, 1);
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
  assert_int_equal(info.step, 1);
  expect_loads(&model, info.path, 1);
}

static int setup(void **state) {
  model_make(&model, 3, 1);
  model.plan.weights = model.weights;
  return model_setup(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(none_there),
      cmocka_unit_test(any_topology_to_any),
      cmocka_unit_test(weights_alone),
      cmocka_unit_test(file_layout),
      cmocka_unit_test(manifest_fields),
      cmocka_unit_test(latest_is_a_relative_link),
      cmocka_unit_test(same_step_again),
      cmocka_unit_test(abandoned),
      cmocka_unit_test(nothing_to_optimize),
      cmocka_unit_test(flipped_bits),
      cmocka_unit_test(flipped_first_and_last),
      cmocka_unit_test(flipped_manifest),
      cmocka_unit_test(not_finite),
      cmocka_unit_test(truncated),
      cmocka_unit_test(latest_leads_nowhere),
      cmocka_unit_test(bad_manifests),
      cmocka_unit_test(another_model),
      cmocka_unit_test(cannot_save),
  };
  return cmocka_run_group_tests_name("checkpoint", tests, setup, model_teardown);
}
