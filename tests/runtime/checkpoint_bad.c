/* checkpoint_bad.c: every kind of bad checkpoint is refused, by its message. */
#include "tests/support/checkpoint_model.h"

#include <math.h>
#include <nettle/sha2.h>

#include "runtime/storage/checkpoint_load.h"
#include "runtime/storage/checkpoint_tensors.h"

static struct checkpoint_model model;
static unsigned char digests[PEN_CHECKPOINT_TENSORS * MODEL_WEIGHTS][PEN_DIGEST_BYTES];

/* As a run resumes: find, then every rank loads. */
static void resume(void *dir) {
  struct pen_checkpoint_info info;
  if (pen_checkpoint_find(dir, &model.plan, &info)) {
    _exit(1);
  }
  for (uint32_t rank = 0; rank < model.plan.rank_count; rank++) {
    unsigned char *arena = model_arena(&model, rank);
    MODEL_LOAD(&model.plan, rank, arena, pen_checkpoint_load, info.path);
    free(arena);
  }
}

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
  model_save(&model, "bad", 1, 1, 1);
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
  model_save(&model, "bad", 1, 1, 1);
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
  model_save(&model, "bad", 1, 77, 1);
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
      assert_int_equal(info.state.step, 1);
      assert_int_equal(info.state.cursor, 77);
      assert_int_equal(info.state.updates.most, 1);
      for (uint32_t w = 0; w < model.plan.weight_count; w++) {
        assert_int_equal(info.state.updates.lag[w], 0);
      }
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
    model_save(&model, "bad", 1, 1, 1);
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
  model_save(&model, "lost", 1, 1, 1);
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
  model_save(&model, "bad", 1, 1, 1);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    file_write(manifest_file, texts[i][0], strlen(texts[i][0]));
    model_refused(65, resume, "bad", manifest_file, texts[i][1], NULL);
  }
  char *blanks = malloc(1 << 23);
  memset(blanks, ' ', 1 << 23);
  file_write(manifest_file, blanks, 1 << 23);
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
  model_save(&model, "other", 1, 1, 1);
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

static int setup(void **state) {
  (void)state;
  return model_setup_made(&model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(flipped_bits),     cmocka_unit_test(flipped_first_and_last),
      cmocka_unit_test(flipped_manifest), cmocka_unit_test(not_finite),
      cmocka_unit_test(truncated),        cmocka_unit_test(latest_leads_nowhere),
      cmocka_unit_test(bad_manifests),    cmocka_unit_test(another_model),
  };
  return cmocka_run_group_tests_name("checkpoint_bad", tests, setup, model_teardown);
}
