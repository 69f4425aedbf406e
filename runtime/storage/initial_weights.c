/* initial_weights.c: the weights that training starts from, by seed or from a safetensors file. */
#define _GNU_SOURCE 1
#include "kernels/kernels.h"
#include "runtime/storage/initial_weights.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/key.h"
#include "runtime/base/files.h"
#include "runtime/storage/checkpoint_tensors.h"
#include "runtime/storage/safetensors.h"
#include "runtime/storage/config_check.h"
#include "runtime/storage/model_files.h"
#include "runtime/storage/tensor_splits.h"

enum { CHUNK_ELEMENTS = 1 << 16 };

/* The number, and copies of what is there. */
static void fill_with(const struct pen_device *device, void *stream, float *out, size_t count,
                      float number) {
  device->copy_in(out, &number, sizeof number, stream);
  for (size_t n = 1; n < count; n *= 2) {
    device->copy(out + n, out, (n < count - n ? n : count - n) * sizeof *out, stream);
  }
}

/* Elements first to first + count of the tensor of a weight; count above 0. */
static void fill(const struct pen_device *device, void *stream, float *out,
                 const struct pen_weight *weight, uint64_t first, size_t count,
                 const uint32_t key[2]) {
  if (weight->initial == PEN_INITIAL_NORMAL) {
    device->normal(out, count, first, key, weight->deviation, stream);
  } else if (weight->initial == PEN_INITIAL_ONES) {
    fill_with(device, stream, out, count, 1);
  } else if (weight->initial == PEN_INITIAL_CONSTANT) {
    fill_with(device, stream, out, count, (float)weight->deviation);
  } else {
    device->zero(out, count * sizeof *out, stream);
  }
}

/* The key of a tensor of a weight is of its name. */
static void key_of(uint32_t key[2], uint64_t seed, const struct pen_weight *weight,
                   uint32_t number) {
  char name[PEN_TENSOR_NAME_BYTES];
  pen_tensor_name(name, sizeof name, weight, number);
  pen_key(key, seed, name);
}

/* Elements first to first + count of a weight, into the chunk: each by its place in the tensor. */
static void fill_chunk(const struct pen_loading *to, const struct pen_weight *weight,
                       uint64_t first, uint64_t count, uint64_t seed) {
  const uint64_t elements = pen_one_tensor_elements(weight);
  for (uint64_t done = 0; done < count;) {
    const struct pen_tensor_run run = pen_first_run(weight, first + done, count - done);
    uint32_t key[2];
    key_of(key, seed, weight, (uint32_t)(run.tensor_element / elements));
    fill(to->device, to->stream, to->chunk + done, weight, run.tensor_element % elements,
         (size_t)run.count, key);
    done += run.count;
  }
}

void pen_weights_expect_initial(const struct pen_plan *plan) {
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    if (plan->weights[i].initial == PEN_INITIAL_GIVEN) {
      pen_fail(PEN_EXIT_USAGE,
               "the weight %s has no initial values, as the description says: train --init PATH "
               "reads them",
               plan->weights[i].name);
    }
  }
}

void pen_weights_initial(const struct pen_loading *to, uint64_t seed) {
  for (uint32_t i = 0; i < to->plan->weight_count; i++) {
    const struct pen_weight *weight = &to->plan->weights[i];
    for (uint64_t first = 0, n; first < weight->count; first += n) {
      n = weight->count - first;
      n = n < PEN_LOADING_ELEMENTS ? n : PEN_LOADING_ELEMENTS;
      if (pen_loading_keeps(to, i, PEN_CHECKPOINT_VALUE, first, n)) {
        fill_chunk(to, weight, first, n, seed);
        pen_loading_store(to, i, PEN_CHECKPOINT_VALUE, first, n, to->chunk);
      }
    }
  }
}

/* ---- writing ---- */

/* A tensor of a weight. */
static int write_tensor(int fd, const struct pen_weight *weight, uint32_t number, uint64_t seed) {
  static float chunk[CHUNK_ELEMENTS];
  const uint64_t elements = pen_one_tensor_elements(weight);
  uint32_t key[2];
  key_of(key, seed, weight, number);
  for (uint64_t first = 0; first < elements; first += CHUNK_ELEMENTS) {
    uint64_t left = elements - first;
    size_t count = left < CHUNK_ELEMENTS ? (size_t)left : CHUNK_ELEMENTS;
    fill(&pen_cpu, NULL, chunk, weight, first, count, key);
    if (pen_file_write_at(fd, chunk, count * sizeof *chunk,
                          weight->value_file + (number * elements + first) * sizeof *chunk)) {
      return -1;
    }
  }
  return 0;
}

static int write_model(int fd, const struct pen_plan *plan, uint64_t seed, bool device) {
  int result = device ? 0 : pen_file_reserve(fd, plan->model_file_bytes);
  if (!result) {
    result = pen_safetensors_start(fd, plan->model_header, pen_model_data_offset(plan));
  }
  for (uint32_t i = 0; i < plan->weight_count && !result; i++) {
    const bool stored = plan->weights[i].split == 0 &&
                        pen_checkpoint_tensor_is_stored(&plan->weights[i], PEN_CHECKPOINT_VALUE);
    const uint32_t count = stored ? pen_tensor_count(&plan->weights[i]) : 0;
    for (uint32_t n = 0; n < count && !result; n++) {
      result = write_tensor(fd, &plan->weights[i], n, seed);
    }
  }
  return pen_file_sync_close(fd, result);
}

static _Noreturn void write_failed(int status, const char *file, const char *temporary) {
  const char *cause = strerror(errno);
  if (temporary != NULL) {
    unlink(temporary);
  }
  pen_fail(status, "%s: cannot %s: %s", file, status == PEN_EXIT_CANNOT_CREATE ? "create" : "write",
           cause);
}

/* What is there and no regular file is written through, not replaced. */
static void write_through(const struct pen_plan *plan, const char *file, uint64_t seed) {
  int fd = open(file, O_WRONLY | O_CLOEXEC);
  if (fd < 0) {
    write_failed(PEN_EXIT_CANNOT_CREATE, file, NULL);
  }
  if (write_model(fd, plan, seed, true)) {
    write_failed(PEN_EXIT_CANNOT_WRITE, file, NULL);
  }
}

void pen_weights_write(const struct pen_plan *plan, const char *file, uint64_t seed) {
  char temporary[PATH_MAX];
  struct stat status;
  pen_files_report_size_limit();
  if (stat(file, &status) == 0 && !S_ISREG(status.st_mode)) {
    write_through(plan, file, seed);
    return;
  }
  if (pen_path_suffix(temporary, file, ".tmp")) {
    write_failed(PEN_EXIT_CANNOT_CREATE, file, NULL);
  }
  int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) {
    write_failed(PEN_EXIT_CANNOT_CREATE, temporary, NULL);
  }
  if (write_model(fd, plan, seed, false)) {
    write_failed(PEN_EXIT_CANNOT_WRITE, temporary, temporary);
  }
  if (rename(temporary, file)) {
    write_failed(PEN_EXIT_CANNOT_CREATE, file, temporary);
  }
  if (pen_folder_sync_of(file)) {
    write_failed(PEN_EXIT_CANNOT_WRITE, file, NULL);
  }
}

/* ---- loading ---- */

void pen_weights_load(const struct pen_loading *to, const char *path) {
  struct pen_model_files *shards = pen_model_files_open(path, to->plan);
  struct pen_whole_tensor whole = {0};
  for (uint32_t i = 0; i < to->plan->weight_count; i++) {
    const struct pen_weight *weight = &to->plan->weights[i];
    float *value = pen_loading_begin(to, i, PEN_CHECKPOINT_VALUE);
    if (value != NULL && !pen_is_of_model(weight)) {
      memset(value, 0, weight->count * sizeof *value);
      pen_loading_done(to, i, PEN_CHECKPOINT_VALUE, value);
    } else if (value != NULL) {
      bool known;
      float *tensor = pen_tensor_destination(&whole, weight, value, &known);
      if (!known) {
        pen_model_files_read(shards, weight, tensor);
      }
      pen_tensor_read(&whole, weight, value);
      pen_loading_done(to, i, PEN_CHECKPOINT_VALUE, value);
    }
  }
  pen_whole_tensor_free(&whole);
  pen_model_files_close(shards);
}

/* Without a config.json a checkpoint has the digest of its model; others have shapes alone. */
static bool check_digest(const struct pen_plan *plan, const char *path,
                         const struct pen_manifest *manifest) {
  if (manifest != NULL &&
      memcmp(manifest->model_digest, plan->model_digest, PEN_DIGEST_BYTES) != 0) {
    pen_fail(PEN_EXIT_DATA, "%s/manifest.json: model_digest: a checkpoint of another model", path);
  }
  return manifest != NULL;
}

bool pen_weights_check(const struct pen_plan *plan, const char *path,
                       const struct pen_texts *ignored) {
  struct stat status;
  const struct pen_manifest *manifest;
  bool is_compared =
      stat(path, &status) == 0 && S_ISDIR(status.st_mode) && pen_config_check(plan, path, ignored);
  struct pen_model_files *shards = pen_model_files_open(path, plan);
  pen_model_files_check_unused(shards, ignored);
  if (pen_model_files_manifest(shards, &manifest) == PEN_MANIFEST_FOREIGN) {
    pen_say(plan->name,
            "%s/manifest.json is not of a checkpoint: ignored, the weights are not checked against "
            "checksums",
            path);
  }
  is_compared = is_compared || check_digest(plan, path, manifest);
  pen_model_files_close(shards);
  return is_compared;
}
