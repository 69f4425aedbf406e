/* manifest.c: writes and reads the manifest.json of a checkpoint. */
#define _GNU_SOURCE 1
#include "runtime/storage/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/message.h"
#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/text_writer.h"

/* The tensors have checksums of their own; this one is of the rest, so that no damaged digit passes
 * for another step. */
static void state_checksum(unsigned char digest[PEN_DIGEST_BYTES], uint64_t step, uint64_t cursor,
                           const unsigned char model_digest[PEN_DIGEST_BYTES]) {
  char text[64];
  int length = snprintf(text, sizeof text, "step %llu cursor %llu model ", (unsigned long long)step,
                        (unsigned long long)cursor);
  struct sha256_ctx hash;
  sha256_init(&hash);
  sha256_update(&hash, (size_t)length, (const uint8_t *)text);
  sha256_update(&hash, PEN_DIGEST_BYTES, model_digest);
  sha256_digest(&hash, PEN_DIGEST_BYTES, digest);
}

/* Adds a weight's number to the checksum of the updates. */
static void add_update_count(struct sha256_ctx *hash, const char *name, uint64_t updates) {
  char text[PEN_STORED_NAME_BYTES + 32];
  const int length = snprintf(text, sizeof text, "%s %llu ", name, (unsigned long long)updates);
  sha256_update(hash, (size_t)length, (const uint8_t *)text);
}

static void add_hex_member(struct pen_writer *text, const char *name,
                           const unsigned char digest[PEN_DIGEST_BYTES]) {
  char digits[2 * PEN_DIGEST_BYTES + 1];
  pen_hex_text(digits, digest, PEN_DIGEST_BYTES);
  pen_writer_json(text, name);
  pen_writer_print(text, ": \"%s\"", digits);
}

/* `updates` and its checksum. */
static void add_updates(struct pen_writer *text, const struct pen_plan *plan,
                        const struct pen_update_counts *updates) {
  char name[PEN_STORED_NAME_BYTES];
  unsigned char digest[PEN_DIGEST_BYTES];
  struct sha256_ctx hash;
  const char *separator = "\n    ";
  sha256_init(&hash);
  pen_writer_text(text, "\"updates\": {");
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    const struct pen_weight *weight = &plan->weights[i];
    const bool is_listed = weight->split == 0 && !weight->frozen;
    for (uint32_t n = 0; is_listed && n < pen_model_tensor_count(weight); n++) {
      const uint64_t count = updates->most - pen_lag_of(updates->lag, i);
      pen_writer_text(text, separator);
      pen_writer_json(text, pen_checkpoint_tensor_name(name, weight, n, PEN_CHECKPOINT_VALUE));
      pen_writer_print(text, ": %" PRIu64, count);
      add_update_count(&hash, name, count);
      separator = ",\n    ";
    }
  }
  pen_writer_text(text, "\n  },\n  ");
  sha256_digest(&hash, PEN_DIGEST_BYTES, digest);
  add_hex_member(text, "updates_checksum", digest);
}

/* The same for the place in the data. */
static void place_checksum(unsigned char digest[PEN_DIGEST_BYTES],
                           const struct pen_data_place *place) {
  char text[192];
  int length = snprintf(text, sizeof text, "%s %llu epoch %llu sequence %llu file %llu ",
                        place->rows ? "rows" : "tokens", (unsigned long long)place->read,
                        (unsigned long long)place->epoch, (unsigned long long)place->sequence,
                        (unsigned long long)place->file.bytes);
  if (place->shuffled) {
    length += snprintf(text + length, sizeof text - (size_t)length, "shuffle %llu ",
                       (unsigned long long)place->shuffle_seed);
  }
  struct sha256_ctx hash;
  sha256_init(&hash);
  sha256_update(&hash, (size_t)length, (const uint8_t *)text);
  sha256_update(&hash, PEN_DIGEST_BYTES, place->file.checksum);
  sha256_digest(&hash, PEN_DIGEST_BYTES, digest);
}

static void write_file(struct pen_writer *text, const struct pen_data_file_id *file) {
  pen_writer_print(text, "{\"bytes\": %" PRIu64 ", ", file->bytes);
  if (file->weight > 0) {
    pen_writer_print(text, "\"weight\": %" PRIu64 ", ", file->weight);
  }
  add_hex_member(text, "checksum", file->checksum);
  pen_writer_text(text, "}");
}

/* "data": {"epoch": 1, "tokens": 640, "sequence": 16, "files": [{"bytes": .., "checksum": ..}],
 * "checksum": ..}; of a packed file, and of inputs that the model makes, "rows", no sequence.
 * If they are shuffled, "shuffle" is the seed, in quotes: readers may round numbers of 64 bits. */
static void write_place(struct pen_writer *text, const struct pen_data_place *place) {
  unsigned char digest[PEN_DIGEST_BYTES];
  place_checksum(digest, place);
  pen_writer_print(text, ",\n  \"data\": {\"epoch\": %" PRIu64 ", \"%s\": %" PRIu64, place->epoch,
                   place->rows ? "rows" : "tokens", place->read);
  if (!place->rows) {
    pen_writer_print(text, ", \"sequence\": %" PRIu64, place->sequence);
  }
  if (place->shuffled) {
    pen_writer_print(text, ", \"shuffle\": \"%" PRIu64 "\"", place->shuffle_seed);
  }
  pen_writer_text(text, ", \"files\": [");
  if (place->file_count == 0 && place->file.bytes > 0) {
    write_file(text, &place->file);
  }
  for (uint32_t f = 0; f < place->file_count; f++) {
    pen_writer_text(text, f == 0 ? "" : ",\n    ");
    write_file(text, &place->files[f]);
  }
  pen_writer_text(text, "],\n    ");
  add_hex_member(text, "checksum", digest);
  pen_writer_text(text, "}");
}

/* Those of a tensor. */
static void add_checksums(struct pen_writer *text, const struct pen_plan *plan, uint32_t weight,
                          uint32_t number, const char **separator,
                          unsigned char (*digests)[PEN_DIGEST_BYTES]) {
  char name[PEN_STORED_NAME_BYTES];
  for (enum pen_checkpoint_tensor part = 0; part < PEN_CHECKPOINT_TENSORS; part++) {
    if (pen_checkpoint_tensor_is_stored(&plan->weights[weight], part)) {
      pen_writer_text(text, *separator);
      add_hex_member(text, pen_checkpoint_tensor_name(name, &plan->weights[weight], number, part),
                     digests[pen_checkpoint_digest_of(plan, weight, number, part)]);
      *separator = ",\n    ";
    }
  }
}

int pen_manifest_write(int fd, const struct pen_plan *plan,
                       const struct pen_checkpoint_state *state,
                       unsigned char (*digests)[PEN_DIGEST_BYTES]) {
  struct pen_writer text;
  unsigned char checksum[PEN_DIGEST_BYTES];
  state_checksum(checksum, state->step, state->cursor, plan->model_digest);
  pen_writer_open(&text, fd);
  pen_writer_print(&text, "{\n  \"step\": %" PRIu64 ",\n  \"cursor\": %" PRIu64 ",\n  ",
                   state->step, state->cursor);
  add_hex_member(&text, "model_digest", plan->model_digest);
  pen_writer_text(&text, ",\n  ");
  add_hex_member(&text, "state_checksum", checksum);
  pen_writer_text(&text, ",\n  ");
  add_updates(&text, plan, &state->updates);
  write_place(&text, &state->place);
  pen_writer_text(&text, ",\n  \"checksums\": {");
  const char *separator = "\n    ";
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    const uint32_t count = plan->weights[i].split == 0 ? pen_tensor_count(&plan->weights[i]) : 0;
    for (uint32_t n = 0; n < count; n++) {
      add_checksums(&text, plan, i, n, &separator, digests);
    }
  }
  pen_writer_text(&text, "\n  }\n}\n");
  return pen_writer_flush(&text);
}

/* ---- reading ---- */

static int hex_digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* 64 lower-case hexadecimal digits; 0, or -1. */
static int parse_digest(unsigned char digest[PEN_DIGEST_BYTES], const json_t *value) {
  const char *text = json_string_value(value);
  if (text == NULL || strlen(text) != 2 * PEN_DIGEST_BYTES) {
    return -1;
  }
  for (size_t i = 0; i < PEN_DIGEST_BYTES; i++) {
    int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
    if (high < 0 || low < 0) {
      return -1;
    }
    digest[i] = (unsigned char)(high << 4 | low);
  }
  return 0;
}

static uint64_t parse_number(const char *path, const json_t *root, const char *name) {
  const json_t *value = json_object_get(root, name);
  if (!json_is_integer(value) || json_integer_value(value) < 0) {
    pen_fail(PEN_EXIT_DATA, "%s: %s: must be a whole number", path, name);
  }
  return (uint64_t)json_integer_value(value);
}

static void parse_state(struct pen_manifest *manifest, const char *path, const json_t *root) {
  unsigned char stored[PEN_DIGEST_BYTES], computed[PEN_DIGEST_BYTES];
  manifest->state.step = parse_number(path, root, "step");
  manifest->state.cursor = parse_number(path, root, "cursor");
  if (parse_digest(manifest->model_digest, json_object_get(root, "model_digest"))) {
    pen_fail(PEN_EXIT_DATA, "%s: model_digest: must be 64 hexadecimal digits", path);
  }
  const json_t *checksum = json_object_get(root, "state_checksum");
  state_checksum(computed, manifest->state.step, manifest->state.cursor, manifest->model_digest);
  if (checksum != NULL &&
      (parse_digest(stored, checksum) || memcmp(stored, computed, sizeof stored) != 0)) {
    pen_fail(PEN_EXIT_DATA,
             "%s: state_checksum does not fit step, cursor and model_digest: the file was damaged",
             path);
  }
}

/* "shuffle", absent in the order of the file. */
static void parse_order(struct pen_data_place *place, const char *path, const json_t *value) {
  const char *text = json_string_value(value);
  place->shuffled = value != NULL;
  if (place->shuffled && (text == NULL || text[0] < '0' || text[0] > '9')) {
    pen_fail(PEN_EXIT_DATA, "%s: data: shuffle: must be a seed in quotes", path);
  }
  place->shuffle_seed = place->shuffled ? strtoull(text, NULL, 10) : 0;
}

/* The identity of all files. */
static struct pen_data_file_id parse_files(const char *path, const json_t *files) {
  const size_t count = json_array_size(files);
  struct pen_data_file_id *ids = pen_allocate(count + 1, sizeof *ids, "%zu files", count);
  for (size_t f = 0; f < count; f++) {
    const json_t *file = json_array_get(files, f);
    ids[f].bytes = parse_number(path, file, "bytes");
    ids[f].weight =
        json_object_get(file, "weight") == NULL ? 0 : parse_number(path, file, "weight");
    if (parse_digest(ids[f].checksum, json_object_get(file, "checksum"))) {
      pen_fail(PEN_EXIT_DATA, "%s: data: a file without a checksum of 64 hexadecimal digits", path);
    }
  }
  const struct pen_data_file_id all = pen_data_identify(ids, count);
  free(ids);
  return all;
}

/* Absent: of an older version. */
static void parse_place(struct pen_data_place *place, const char *path, const json_t *data) {
  unsigned char stored[PEN_DIGEST_BYTES], computed[PEN_DIGEST_BYTES];
  *place = (struct pen_data_place){.known = data != NULL};
  if (data == NULL) {
    return;
  }
  place->rows = json_object_get(data, "rows") != NULL;
  place->epoch = parse_number(path, data, "epoch");
  place->read = parse_number(path, data, place->rows ? "rows" : "tokens");
  place->sequence = place->rows ? 0 : parse_number(path, data, "sequence");
  parse_order(place, path, json_object_get(data, "shuffle"));
  place->file = parse_files(path, json_object_get(data, "files"));
  place_checksum(computed, place);
  if (parse_digest(stored, json_object_get(data, "checksum")) ||
      memcmp(stored, computed, sizeof stored) != 0) {
    pen_fail(PEN_EXIT_DATA, "%s: data: its checksum does not fit the rest: the file was damaged",
             path);
  }
}

/* Of a tensor of a weight. */
static void parse_checksum(struct pen_manifest *manifest, const char *path, const json_t *checksums,
                           const struct pen_plan *plan, uint32_t weight, uint32_t number,
                           enum pen_checkpoint_tensor part) {
  char name[PEN_STORED_NAME_BYTES];
  const json_t *checksum = json_object_get(
      checksums, pen_checkpoint_tensor_name(name, &plan->weights[weight], number, part));
  const bool needed = part == PEN_CHECKPOINT_VALUE || checksum != NULL;
  const size_t at = pen_checkpoint_digest_of(plan, weight, number, part);
  if (needed && parse_digest(manifest->digests[at], checksum)) {
    pen_fail(PEN_EXIT_DATA, "%s: tensor %s: no checksum, or none of 64 hexadecimal digits", path,
             name);
  }
}

static void parse_checksums(struct pen_manifest *manifest, const char *path, const json_t *root,
                            const struct pen_plan *plan, enum pen_checkpoint_tensor last) {
  const json_t *checksums = json_object_get(root, "checksums");
  manifest->digests =
      calloc((size_t)pen_entry_count(plan) * PEN_CHECKPOINT_TENSORS + 1, sizeof *manifest->digests);
  if (manifest->digests == NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "%s: out of memory", path);
  }
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    for (enum pen_checkpoint_tensor part = 0; part <= last; part++) {
      const bool has = pen_checkpoint_suffix(plan->weights[i].optimizer, part) != NULL &&
                       (part != PEN_CHECKPOINT_VALUE || pen_is_of_model(&plan->weights[i]));
      for (uint32_t n = 0; has && n < pen_tensor_count(&plan->weights[i]); n++) {
        parse_checksum(manifest, path, checksums, plan, i, n, part);
      }
    }
  }
}

/* Whether the weight was trained when it was saved: the manifest lists its moments. */
static bool has_moments(const struct pen_manifest *manifest, const struct pen_plan *plan,
                        uint32_t weight_index) {
  static const unsigned char none[PEN_DIGEST_BYTES];
  const size_t at = pen_checkpoint_digest_of(plan, weight_index, 0, PEN_CHECKPOINT_EXP_AVG);
  return memcmp(manifest->digests[at], none, sizeof none) != 0;
}

/* Of a tensor of a weight; how often it was updated. All tensors of a stack were together. */
static void parse_update(struct pen_manifest *manifest, const char *path, const json_t *updates,
                         const struct pen_plan *plan, uint32_t i, uint32_t number,
                         struct sha256_ctx *hash) {
  char name[PEN_STORED_NAME_BYTES];
  const struct pen_weight *weight = &plan->weights[i];
  const json_t *value = json_object_get(
      updates, pen_checkpoint_tensor_name(name, weight, number, PEN_CHECKPOINT_VALUE));
  const json_int_t count =
      updates == NULL ? (json_int_t)manifest->state.step : json_integer_value(value);
  if (!has_moments(manifest, plan, i) && value == NULL) {
    return;
  }
  if ((updates != NULL && !json_is_integer(value)) || count < 0 ||
      (uint64_t)count > manifest->state.step) {
    pen_fail(PEN_EXIT_DATA, "%s: updates: %s: must be a whole number, at most step = %llu", path,
             name, (unsigned long long)manifest->state.step);
  }
  /* Moments that start at zero have had no update. */
  const bool starts = !has_moments(manifest, plan, i) &&
                      pen_checkpoint_tensor_exists(weight, PEN_CHECKPOINT_EXP_AVG);
  const uint64_t known = starts ? 0 : (uint64_t)count;
  if (number > 0 && manifest->updates[i] != known) {
    pen_fail(PEN_EXIT_DATA, "%s: updates: %s: %llu, but %llu of the expert before it", path, name,
             (unsigned long long)known, (unsigned long long)manifest->updates[i]);
  }
  manifest->updates[i] = known;
  if (weight->split == 0) {
    add_update_count(hash, name, (uint64_t)count);
  }
}

/* After the checksums. Versions that did not count have updated each tensor in each step. */
static void parse_updates(struct pen_manifest *manifest, const char *path, const json_t *root,
                          const struct pen_plan *plan) {
  unsigned char stored[PEN_DIGEST_BYTES], computed[PEN_DIGEST_BYTES];
  struct sha256_ctx hash;
  const json_t *updates = json_object_get(root, "updates"),
               *checksum = json_object_get(root, "updates_checksum");
  sha256_init(&hash);
  manifest->updates = calloc((size_t)plan->weight_count + 1, sizeof *manifest->updates);
  if (manifest->updates == NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "%s: out of memory", path);
  }
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    for (uint32_t n = 0; n < pen_model_tensor_count(&plan->weights[i]); n++) {
      parse_update(manifest, path, updates, plan, i, n, &hash);
    }
  }
  sha256_digest(&hash, PEN_DIGEST_BYTES, computed);
  if (updates != NULL && checksum != NULL &&
      (parse_digest(stored, checksum) || memcmp(stored, computed, sizeof stored) != 0)) {
    pen_fail(PEN_EXIT_DATA, "%s: updates_checksum does not fit updates: the file was damaged",
             path);
  }
}

/* The whole text of a file that is no larger than `limit`; the caller frees it. */
static char *read_text(const char *path, size_t limit, size_t *count) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status;
  if (fd < 0 || fstat(fd, &status)) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: %s", path, strerror(errno));
  }
  if (!S_ISREG(status.st_mode) || (uint64_t)status.st_size > limit) {
    pen_fail(PEN_EXIT_DATA, "%s: not a regular file of at most %zu bytes", path, limit);
  }
  char *text = malloc((size_t)status.st_size + 1);
  if (text == NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "%s: out of memory", path);
  }
  int64_t done = pen_file_read_at(fd, text, (size_t)status.st_size, 0);
  if (done < 0) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: cannot read: %s", path, strerror(errno));
  }
  close(fd);
  *count = (size_t)done;
  return text;
}

/* Sets `path` to that of the folder's manifest. */
static json_t *load(char path[PATH_MAX], const char *folder, const struct pen_plan *plan) {
  size_t count;
  json_error_t error;
  if (pen_path_join(path, folder, "manifest.json")) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: %s", folder, strerror(errno));
  }
  enum { DATA_FILE_BYTES = 128 };
  size_t limit =
      65536 + (size_t)PEN_DATA_FILES_MAX * DATA_FILE_BYTES +
      (size_t)pen_entry_count(plan) * (PEN_CHECKPOINT_TENSORS + 1) * 2 * PEN_STORED_NAME_BYTES;
  char *text = read_text(path, limit, &count);
  json_t *root = json_loadb(text, count, JSON_REJECT_DUPLICATES, &error);
  if (root == NULL) {
    char shown[PEN_SHOWN_BYTES];
    pen_fail(PEN_EXIT_DATA, "%s:%d: %s", path, error.line, pen_shown(shown, error.text));
  }
  free(text);
  return root;
}

/* Two members that only ours has: one that was damaged still has the other. */
enum pen_manifest_found pen_manifest_find(const char *folder, const struct pen_plan *plan) {
  char path[PATH_MAX];
  if (pen_path_join(path, folder, "manifest.json") || access(path, F_OK)) {
    return PEN_MANIFEST_ABSENT;
  }
  json_t *root = load(path, folder, plan);
  const bool ours = json_object_get(root, "model_digest") != NULL ||
                    json_object_get(root, "state_checksum") != NULL;
  json_decref(root);
  return ours ? PEN_MANIFEST_OURS : PEN_MANIFEST_FOREIGN;
}

void pen_manifest_read(struct pen_manifest *manifest, const char *folder,
                       const struct pen_plan *plan, enum pen_checkpoint_tensor last) {
  char path[PATH_MAX];
  json_t *root = load(path, folder, plan);
  *manifest = (struct pen_manifest){0};
  parse_state(manifest, path, root);
  parse_place(&manifest->state.place, path, json_object_get(root, "data"));
  parse_checksums(manifest, path, root, plan, last);
  if (last >= PEN_CHECKPOINT_EXP_AVG) {
    parse_updates(manifest, path, root, plan);
  }
  json_decref(root);
}

void pen_manifest_read_state(struct pen_manifest *manifest, const char *folder,
                             const struct pen_plan *plan) {
  char path[PATH_MAX];
  json_t *root = load(path, folder, plan);
  *manifest = (struct pen_manifest){0};
  parse_state(manifest, path, root);
  json_decref(root);
}

void pen_manifest_expect(const struct pen_manifest *manifest, const struct pen_plan *plan,
                         uint32_t weight_index, uint32_t number, enum pen_checkpoint_tensor part,
                         const char *file, const unsigned char digest[PEN_DIGEST_BYTES]) {
  char name[PEN_STORED_NAME_BYTES];
  const size_t at = pen_checkpoint_digest_of(plan, weight_index, number, part);
  if (memcmp(digest, manifest->digests[at], PEN_DIGEST_BYTES) != 0) {
    pen_fail(PEN_EXIT_DATA,
             "%s: tensor %s: its SHA-256 is not that of manifest.json: the file was damaged", file,
             pen_checkpoint_tensor_name(name, &plan->weights[weight_index], number, part));
  }
}

void pen_manifest_free(struct pen_manifest *manifest) {
  free(manifest->digests);
  free(manifest->updates);
  *manifest = (struct pen_manifest){.digests = NULL};
}
