/* checkpoint_load.c: reads a run's state back, each rank its own tensors, checked against the
 * manifest's checksums. */
#define _GNU_SOURCE 1
#include "runtime/storage/checkpoint_load.h"
#include "runtime/storage/checkpoint_tensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/safetensors_header.h"
#include "runtime/storage/checkpoint_prune.h"
#include "runtime/storage/config_check.h"
#include "runtime/storage/manifest.h"
#include "runtime/storage/safetensors.h"
#include "runtime/storage/tensor_splits.h"

/* Whether a file of moments has none of a weight, which was frozen when it was saved. */
static bool has_no_moments(const struct pen_safetensors *stored, const struct pen_weight *weight) {
  char name[PEN_STORED_NAME_BYTES];
  bool none = true;
  for (enum pen_checkpoint_tensor part = PEN_CHECKPOINT_EXP_AVG; part < PEN_CHECKPOINT_TENSORS;
       part++) {
    none =
        none && (pen_checkpoint_suffix(weight->optimizer, part) == NULL ||
                 !pen_safetensors_has(stored, pen_checkpoint_tensor_name(name, weight, 0, part)));
  }
  return none;
}

/* Whether a tensor is in the file, or has to be: in that of moments, of all weights but those that
 * were frozen. */
static bool is_stored(const struct pen_safetensors *stored, const struct pen_weight *weight,
                      enum pen_checkpoint_tensor part) {
  return part == PEN_CHECKPOINT_VALUE ? pen_is_of_model(weight)
                                      : pen_checkpoint_suffix(weight->optimizer, part) != NULL &&
                                            !has_no_moments(stored, weight);
}

/* Counts of choices, which a run that balances otherwise leaves out. */
static bool is_of_choices(const void *context, const char *name) {
  const char *ending = strrchr(name, '.'),
             *suffix = pen_checkpoint_suffix(PEN_OPTIMIZER_CHOICES, PEN_CHECKPOINT_EXP_AVG);
  const struct pen_plan *plan = context;
  return plan->router_count > 0 && ending != NULL && strcmp(ending + 1, suffix) == 0;
}

static bool same_ending(int optimizer, int other) {
  return strcmp(pen_checkpoint_suffix(optimizer, PEN_CHECKPOINT_EXP_AVG),
                pen_checkpoint_suffix(other, PEN_CHECKPOINT_EXP_AVG)) == 0;
}

/* Fails if the file has moments of another optimizer of a weight. Optimizers whose moments have one
 * ending keep the same, which each continues. */
static void refuse_other_moments(const struct pen_safetensors *stored, const char *path,
                                 const struct pen_weight *weight) {
  static const char *const names[PEN_OPTIMIZERS] = {
#define PEN_OPTIMIZER(name, text, moment, second, meaning) [PEN_OPTIMIZER_##name] = text,
#include "runtime/plan/optimizer.def"
  };
  for (int other = 0; other < PEN_OPTIMIZERS; other++) {
    struct pen_weight as_other = *weight;
    char name[PEN_STORED_NAME_BYTES];
    as_other.optimizer = (uint8_t)other;
    if (!same_ending(other, weight->optimizer) &&
        pen_safetensors_has(
            stored, pen_checkpoint_tensor_name(name, &as_other, 0, PEN_CHECKPOINT_EXP_AVG))) {
      int second = other + 1;
      while (second < PEN_OPTIMIZERS && !same_ending(other, second)) {
        second++;
      }
      pen_fail(
          PEN_EXIT_DATA,
          "%s: tensor %s is a moment of %s%s%s, and optimizer.name of this run is \"%s\" for it: "
          "train --init takes the weights of a checkpoint alone",
          path, name, names[other], second < PEN_OPTIMIZERS ? " or " : "",
          second < PEN_OPTIMIZERS ? names[second] : "", names[weight->optimizer]);
    }
  }
}

/* Fails if the file lacks a part of a tensor of a weight. */
static void expect_tensors(struct pen_safetensors *stored, const struct pen_weight *weight,
                           enum pen_checkpoint_tensor part) {
  char name[PEN_STORED_NAME_BYTES];
  for (uint32_t n = 0; n < pen_tensor_count(weight); n++) {
    pen_safetensors_expect_weight(stored, pen_checkpoint_tensor_name(name, weight, n, part),
                                  weight);
  }
}

/* Opens one tensor file of a checkpoint and compares it with the plan: it has every tensor, and no
 * other. Other weights may have been frozen when it was saved than are now. */
static struct pen_safetensors *open_checked(char path[PATH_MAX], const char *folder, int file,
                                            const struct pen_plan *plan,
                                            enum pen_checkpoint_tensor first,
                                            enum pen_checkpoint_tensor last) {
  if (pen_path_join(path, folder, pen_checkpoint_files[file])) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: %s", folder, strerror(errno));
  }
  struct pen_safetensors *stored = pen_safetensors_open(path);
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    const struct pen_weight *weight = &plan->weights[i];
    if (file == PEN_OPTIMIZER_FILE) {
      refuse_other_moments(stored, path, weight);
    }
    for (enum pen_checkpoint_tensor part = first; part <= last; part++) {
      if (is_stored(stored, weight, part)) {
        expect_tensors(stored, weight, part);
      }
    }
  }
  pen_safetensors_expect_no_more(&stored, 1, file == PEN_OPTIMIZER_FILE ? is_of_choices : NULL,
                                 plan);
  return stored;
}

/* Fails if a weight that is trained has no moments in the file, but checksums of them. */
static void expect_moments(struct pen_safetensors *stored, const struct pen_manifest *manifest,
                           const struct pen_plan *plan, uint32_t weight_index) {
  static const unsigned char none[PEN_DIGEST_BYTES];
  const struct pen_weight *weight = &plan->weights[weight_index];
  for (enum pen_checkpoint_tensor part = PEN_CHECKPOINT_EXP_AVG; part < PEN_CHECKPOINT_TENSORS;
       part++) {
    const size_t first = pen_checkpoint_digest_of(plan, weight_index, 0, part);
    if (pen_checkpoint_tensor_exists(weight, part) &&
        memcmp(manifest->digests[first], none, sizeof none) != 0) {
      expect_tensors(stored, weight, part);
    }
  }
}

static void check_values(const char *folder, const struct pen_plan *plan) {
  char path[PATH_MAX];
  pen_safetensors_close(
      open_checked(path, folder, PEN_MODEL_FILE, plan, PEN_CHECKPOINT_VALUE, PEN_CHECKPOINT_VALUE));
}

/* How many updates the trained weights have had. All plans of a run have the same weights: a list
 * that an earlier call has returned stays where it is. */
static struct pen_update_counts counts_of(const struct pen_plan *plan,
                                          const struct pen_manifest *manifest) {
  static uint64_t *lag;
  static uint32_t capacity;
  struct pen_update_counts counts = {.most = 0};
  if (plan->weight_count > capacity) {
    capacity = plan->weight_count;
    lag = realloc(lag, capacity * sizeof *lag);
    pen_check(lag != NULL, "no memory for %u weights", capacity);
  }
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    if (!plan->weights[i].frozen && manifest->updates[i] > counts.most) {
      counts.most = manifest->updates[i];
    }
  }
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    lag[i] = plan->weights[i].frozen ? 0 : counts.most - manifest->updates[i];
  }
  counts.lag = lag;
  return counts;
}

/* Counts the tensors that were frozen and are trained, and the reverse. */
static void check_moments(const struct pen_plan *plan, const struct pen_manifest *manifest,
                          struct pen_checkpoint_info *out) {
  char path[PATH_MAX];
  struct pen_safetensors *stored = open_checked(path, out->path, PEN_OPTIMIZER_FILE, plan,
                                                PEN_CHECKPOINT_EXP_AVG, PEN_CHECKPOINT_EXP_AVG_SQ);
  out->unfrozen_count = out->frozen_count = out->momentum_count = out->unchosen_count = 0;
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    const bool was_frozen = has_no_moments(stored, &plan->weights[i]);
    if (plan->weights[i].split > 0) {
      continue; /* the tensor was counted */
    }
    const bool keeps = pen_checkpoint_tensor_exists(&plan->weights[i], PEN_CHECKPOINT_EXP_AVG);
    const bool sgd = plan->weights[i].optimizer == PEN_OPTIMIZER_SGD;
    if (keeps && was_frozen) {
      expect_moments(stored, manifest, plan, i);
      *(!pen_is_of_model(&plan->weights[i]) ? &out->unchosen_count
        : sgd                               ? &out->momentum_count
                                            : &out->unfrozen_count) += 1;
    }
    out->momentum_count += !keeps && !was_frozen && !plan->weights[i].frozen;
    out->frozen_count += plan->weights[i].frozen && !was_frozen;
  }
  pen_safetensors_close(stored);
}

/* The folder that DIR/latest names: 0, or 1 if there is none. A copy may have turned the link into
 * a folder. */
static int follow_latest(const char *dir, char folder[PATH_MAX]) {
  char latest[PATH_MAX], target[PATH_MAX];
  int result = pen_path_join(latest, dir, "latest");
  ssize_t length = result ? -1 : readlink(latest, target, sizeof target - 1);
  if (length < 0 && errno == ENOENT) {
    return 1;
  }
  if (length < 0 && errno == EINVAL) {
    result = pen_path_suffix(folder, latest, "");
  } else if (length >= 0) {
    target[length] = 0;
    result =
        target[0] == '/' ? pen_path_suffix(folder, target, "") : pen_path_join(folder, dir, target);
  } else {
    result = -1;
  }
  if (result) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s/latest: %s", dir, strerror(errno));
  }
  return 0;
}

/* The bytes that a tensor file has by its header; 0: it has none. */
static uint64_t bytes_by_header(int fd) {
  uint64_t header, past_end = 0; /* little-endian, as this machine is */
  if (pen_file_read_at(fd, &header, sizeof header, 0) != (int64_t)sizeof header ||
      header > PEN_SAFETENSORS_HEADER_MAX) {
    return 0;
  }
  char *text = malloc(header + 1);
  const int64_t count = text == NULL ? -1 : pen_file_read_at(fd, text, header, sizeof header);
  json_t *root = count < 0 ? NULL : json_loadb(text, (size_t)count, 0, NULL), *tensor;
  const char *name;
  json_object_foreach(root, name, tensor) {
    const json_t *end = json_array_get(json_object_get(tensor, "data_offsets"), 1);
    const uint64_t past = (uint64_t)json_integer_value(end);
    past_end = past > past_end ? past : past_end;
  }
  const uint64_t bytes = root == NULL ? 0 : sizeof header + header + past_end;
  json_decref(root);
  free(text);
  return bytes;
}

/* Whether a tensor file has all its bytes, which that of a copy that broke off has not. */
static bool is_whole(const char *folder, int file) {
  char path[PATH_MAX];
  struct stat status;
  int fd = pen_path_join(path, folder, pen_checkpoint_files[file])
               ? -1
               : open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  const bool whole = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
                     status.st_size > 0 && bytes_by_header(fd) == (uint64_t)status.st_size;
  if (fd >= 0) {
    close(fd);
  }
  return whole;
}

/* The newest checkpoint of DIR with all its bytes: 0, or 1 if there is none. */
static int find_newest(const char *dir, char folder[PATH_MAX]) {
  char name[PEN_CHECKPOINT_NAME_BYTES];
  for (uint64_t past = UINT64_MAX, step; pen_checkpoint_newest(dir, past, &step); past = step) {
    snprintf(name, sizeof name, "step-%08" PRIu64, step);
    if (pen_path_join(folder, dir, name) == 0 && is_whole(folder, PEN_MODEL_FILE) &&
        is_whole(folder, PEN_OPTIMIZER_FILE)) {
      return 0;
    }
  }
  return 1;
}

static int share(const char *folder) {
  char manifest[PATH_MAX];
  return pen_path_join(manifest, folder, pen_checkpoint_files[PEN_MANIFEST_FILE]) ||
                 access(manifest, F_OK) || pen_folder_share(folder)
             ? -1
             : 0;
}

int pen_checkpoint_share(int (*lead)(const char *name, char folder[PATH_MAX]), const char *name,
                         char folder[PATH_MAX]) {
  char before[PATH_MAX] = "";
  int result = lead(name, folder);
  while (result == 0 && share(folder) != 0 && strcmp(folder, before) != 0) {
    strcpy(before, folder);
    result = lead(name, folder);
  }
  return result;
}

/* Fails if the checkpoint is of another model, naming the settings that differ, where its
 * config.json tells. */
static void check_model(const char *folder, const struct pen_plan *plan) {
  struct pen_manifest manifest;
  char differences[PEN_MESSAGE_BYTES];
  pen_manifest_read_state(&manifest, folder, plan);
  if (memcmp(manifest.model_digest, plan->model_digest, PEN_DIGEST_BYTES) != 0) {
    pen_fail(PEN_EXIT_DATA, "%s/manifest.json: model_digest: a checkpoint of another model%s",
             folder, pen_config_differences(differences, plan, folder));
  }
}

static int find(const char *dir, const struct pen_plan *plan, int moments,
                struct pen_checkpoint_info *out) {
  struct pen_manifest manifest;
  const int missing =
      moments ? follow_latest(dir, out->path) : pen_checkpoint_share(follow_latest, dir, out->path);
  if (missing && (!moments || find_newest(dir, out->path))) {
    return 1;
  }
  check_model(out->path, plan);
  check_values(out->path, plan);
  pen_manifest_read(&manifest, out->path, plan,
                    moments ? PEN_CHECKPOINT_EXP_AVG_SQ : PEN_CHECKPOINT_VALUE);
  out->state = manifest.state;
  if (moments) {
    check_moments(plan, &manifest, out);
    out->state.updates = counts_of(plan, &manifest);
  }
  out->latest_is_missing = missing;
  pen_manifest_free(&manifest);
  return 0;
}

int pen_checkpoint_find(const char *dir, const struct pen_plan *plan,
                        struct pen_checkpoint_info *out) {
  return find(dir, plan, 1, out);
}

int pen_checkpoint_find_weights(const char *dir, const struct pen_plan *plan,
                                struct pen_checkpoint_info *out) {
  return find(dir, plan, 0, out);
}

/* Reads a part of a weight into `to` and compares the checksum of its tensor; what was frozen had
 * no moments. */
static void read_part(struct pen_safetensors *stored, const struct pen_manifest *manifest,
                      const struct pen_plan *plan, uint32_t weight_index,
                      enum pen_checkpoint_tensor part, const char *path,
                      struct pen_whole_tensor *whole, float *to) {
  const struct pen_weight *weight = &plan->weights[weight_index];
  if (!is_stored(stored, weight, part)) {
    expect_moments(stored, manifest, plan, weight_index);
    memset(to, 0, weight->count * sizeof *to);
    return;
  }
  char name[PEN_STORED_NAME_BYTES];
  unsigned char digest[PEN_DIGEST_BYTES];
  bool known;
  float *all = pen_tensor_destination(whole, weight, to, &known);
  for (uint32_t n = 0; !known && n < pen_tensor_count(weight); n++) {
    pen_checkpoint_tensor_name(name, weight, n, part);
    pen_safetensors_read(stored, pen_safetensors_expect_weight(stored, name, weight),
                         all + n * pen_one_tensor_elements(weight), digest);
    pen_manifest_expect(manifest, plan, weight_index, n, part, path, digest);
  }
  pen_tensor_read(whole, weight, to);
}

/* Reads a part of a weight from a file, to where the process keeps it. The moment of counts of
 * choices is their value, too. */
static void load_part(const struct pen_loading *to, struct pen_safetensors *stored,
                      const struct pen_manifest *manifest, uint32_t weight_index,
                      enum pen_checkpoint_tensor part, const char *path,
                      struct pen_whole_tensor *whole) {
  const bool of_model = pen_is_of_model(&to->plan->weights[weight_index]),
             is_both = !of_model && part == PEN_CHECKPOINT_EXP_AVG;
  for (enum pen_checkpoint_tensor kept = is_both ? PEN_CHECKPOINT_VALUE : part;
       kept <= part && (of_model || part > PEN_CHECKPOINT_VALUE); kept++) {
    float *values = pen_loading_begin(to, weight_index, kept);
    if (values != NULL) {
      read_part(stored, manifest, to->plan, weight_index, part, path, whole, values);
      pen_loading_done(to, weight_index, kept, values);
    }
  }
}

static void load_parts(const struct pen_loading *to, const char *folder, int file,
                       enum pen_checkpoint_tensor first, enum pen_checkpoint_tensor last,
                       const struct pen_manifest *manifest) {
  const struct pen_plan *plan = to->plan;
  char path[PATH_MAX];
  struct pen_safetensors *stored = open_checked(path, folder, file, plan, first, last);
  for (enum pen_checkpoint_tensor part = first; part <= last; part++) {
    struct pen_whole_tensor whole = {0};
    for (uint32_t i = 0; i < plan->weight_count; i++) {
      load_part(to, stored, manifest, i, part, path, &whole);
    }
    pen_whole_tensor_free(&whole);
  }
  pen_safetensors_close(stored);
}

void pen_checkpoint_load_weights(const struct pen_loading *to, const char *path) {
  struct pen_manifest manifest;
  pen_manifest_read(&manifest, path, to->plan, PEN_CHECKPOINT_VALUE);
  load_parts(to, path, PEN_MODEL_FILE, PEN_CHECKPOINT_VALUE, PEN_CHECKPOINT_VALUE, &manifest);
  pen_manifest_free(&manifest);
}

void pen_checkpoint_load(const struct pen_loading *to, const char *path) {
  struct pen_manifest manifest;
  pen_manifest_read(&manifest, path, to->plan, PEN_CHECKPOINT_EXP_AVG_SQ);
  load_parts(to, path, PEN_MODEL_FILE, PEN_CHECKPOINT_VALUE, PEN_CHECKPOINT_VALUE, &manifest);
  load_parts(to, path, PEN_OPTIMIZER_FILE, PEN_CHECKPOINT_EXP_AVG, PEN_CHECKPOINT_EXP_AVG_SQ,
             &manifest);
  pen_manifest_free(&manifest);
}
