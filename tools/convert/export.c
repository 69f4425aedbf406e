/* export.c: a checkpoint as a model of transformers (see export.h). */
#define _GNU_SOURCE 1
#include "tools/convert/export.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/same_file.h"
#include "gen/base/arena.h"
#include "runtime/base/files.h"
#include "runtime/storage/checkpoint_load.h"
#include "runtime/storage/kept_files.h"
#include "runtime/storage/safetensors.h"
#include "tools/convert/convert.h"

enum { DIGEST_BYTES = 32, ALIGNMENT = 64 };

/* The dtypes that can be written. */
static const struct dtype {
  const char *name, *stored, *torch; /* of the option, of safetensors, of config.json */
  size_t bytes;
} dtypes[] = {{"f32", "F32", "float32", 4}, {"bf16", "BF16", "bfloat16", 2}};

/* The new folder while it is made. */
static struct export {
  const char *temporary;
  const struct dtype *dtype;
}
export;

static const struct dtype *dtype_named(const char *name) {
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (strcmp(dtypes[i].name, name) == 0) return &dtypes[i];
  convert_fail(EX_USAGE, "--dtype %s: f32 or bf16", name);
}

/* Removes what was made. */
static void abandon(void) {
  static const char *const names[] = {"model.safetensors", "config.json"};
  if (export.temporary == NULL) return;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    unlink(pen_text("%s/%s", export.temporary, names[i]));
  for (int i = 0; i < PEN_KEPT_FILES; i++)
    unlink(pen_text("%s/%s", export.temporary, pen_kept_file_names[i]));
  rmdir(export.temporary);
}

static _Noreturn void fail_writing(const char *path) {
  convert_fail(EX_IOERR, "%s: cannot write: %s", path, strerror(errno));
}

/* ---- the checkpoint ---- */

/* The folder that the name stands for now: one that holds weights, or its latest checkpoint. */
static int resolve(const char *name, char folder[PATH_MAX]) {
  char file[PATH_MAX];
  const char *latest = pen_text("%s/latest", name);
  const bool holds = pen_path_join(file, name, "model.safetensors") == 0 && access(file, F_OK) == 0;
  if (realpath(holds ? name : latest, folder) == NULL)
    convert_fail(EX_NOINPUT,
                 "%s: holds neither model.safetensors nor a checkpoint named latest: %s", name,
                 strerror(errno));
  return 0;
}

/* The checksums of the manifest, by tensor; null: there is no manifest of a checkpoint. */
static json_t *load_checksums(const char *folder) {
  json_error_t error;
  const char *path = pen_text("%s/manifest.json", folder);
  if (access(path, F_OK) != 0) return NULL;
  json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  if (root == NULL) convert_fail(EX_DATAERR, "%s:%d: %s", path, error.line, error.text);
  json_t *checksums = json_incref(json_object_get(root, "checksums"));
  json_decref(root);
  return checksums;
}

static void check_digest(const json_t *checksums, const struct pen_safetensors *file,
                         const struct pen_stored *tensor,
                         const unsigned char digest[DIGEST_BYTES]) {
  const char *wanted = json_string_value(json_object_get(checksums, tensor->name));
  if (checksums != NULL && (wanted == NULL || strcmp(wanted, pen_hex(digest, DIGEST_BYTES)) != 0))
    convert_fail(EX_DATAERR,
                 "%s: tensor %s: its SHA-256 is not that of manifest.json: the file was damaged",
                 file->path, tensor->name);
}

/* ---- the weights ---- */

static const char *header_of(const struct pen_safetensors *file) {
  json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
  uint64_t end = 0;
  for (size_t i = 0; i < file->count; i++) {
    const struct pen_stored *tensor = &file->tensors[i];
    json_t *shape = json_array();
    for (uint32_t d = 0; d < tensor->dim_count; d++)
      json_array_append_new(shape, json_integer((json_int_t)tensor->dim[d]));
    const uint64_t begin = end;
    end += tensor->count * export.dtype->bytes;
    json_object_set_new(root, tensor->name,
                        json_pack("{s:s,s:o,s:[I,I]}", "dtype", export.dtype->stored, "shape",
                                  shape, "data_offsets", (json_int_t)begin, (json_int_t)end));
  }
  char *text = json_dumps(root, JSON_COMPACT);
  if (text == NULL) convert_fail(EX_OSERR, "no memory for the header");
  const char *header = pen_text("%s", text);
  free(text);
  json_decref(root);
  return header;
}

/* In place: the nearest value, of two that are as near the even one. */
static void round_to_bf16(const struct pen_safetensors *file, const struct pen_stored *tensor,
                          float *values) {
  uint16_t *out = (uint16_t *)values;
  for (uint64_t i = 0; i < tensor->count; i++) {
    uint32_t bits;
    memcpy(&bits, &values[i], sizeof bits);
    bits += 0x7fff + (bits >> 16 & 1);
    if ((bits >> 23 & 255) == 255)
      convert_fail(EX_DATAERR, "%s: tensor %s: element %" PRIu64 " = %g is too large for bf16",
                   file->path, tensor->name, i, (double)values[i]);
    const uint16_t upper = (uint16_t)(bits >> 16);
    memcpy(out + i, &upper, sizeof upper);
  }
}

static void write_tensor(const struct pen_safetensors *file, const struct pen_stored *tensor,
                         const json_t *checksums, int fd, const char *path) {
  unsigned char digest[DIGEST_BYTES];
  float *values = malloc((size_t)tensor->count * sizeof *values + 1);
  if (values == NULL) convert_fail(EX_OSERR, "tensor %s: out of memory", tensor->name);
  pen_safetensors_read(file, tensor, values, digest);
  check_digest(checksums, file, tensor, digest);
  if (export.dtype->bytes == 2) round_to_bf16(file, tensor, values);
  if (pen_file_write(fd, values, (size_t)tensor->count * export.dtype->bytes)) fail_writing(path);
  free(values);
}

static void write_weights(const char *folder) {
  char *from = pen_text("%s/model.safetensors", folder);
  const char *path = pen_text("%s/model.safetensors", export.temporary);
  struct pen_safetensors *file = pen_safetensors_open(from);
  for (size_t i = 0; i < file->count; i++)
    pen_safetensors_expect(file, file->tensors[i].name, file->tensors[i].dim_count,
                           file->tensors[i].dim);
  json_t *checksums = load_checksums(folder);
  const char *header = header_of(file);
  const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  const uint64_t start = (8 + strlen(header) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (fd < 0 || pen_safetensors_start(fd, header, start)) fail_writing(path);
  for (size_t i = 0; i < file->count; i++)
    write_tensor(file, &file->tensors[i], checksums, fd, path);
  if (pen_file_sync_close(fd, 0)) fail_writing(path);
  json_decref(checksums);
  pen_safetensors_close(file);
}

/* ---- the other files ---- */

static bool is_empty_folder(const char *path) {
  DIR *folder = opendir(path);
  size_t count = 0;
  while (folder != NULL && readdir(folder) != NULL) count++;
  const bool is_empty = folder != NULL && count <= 2; /* "." and ".." */
  if (folder != NULL) closedir(folder);
  return is_empty;
}

static void write_kept(const char *folder) {
  struct pen_kept_files kept = {0};
  char path[PATH_MAX];
  pen_kept_files_open(&kept, folder, NULL, export.dtype->torch);
  if (kept.config == NULL)
    convert_fail(EX_DATAERR, "%s: no config.json of a model that transformers has", folder);
  snprintf(path, sizeof path, "%s/config.json", export.temporary);
  const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0 || pen_file_sync_close(fd, pen_file_write(fd, kept.config, strlen(kept.config))) ||
      pen_kept_files_write(&kept, export.temporary, path))
    fail_writing(path);
  pen_kept_files_close(&kept);
}

void convert_export(const char *checkpoint, const char *to, const char *dtype) {
  char folder[PATH_MAX], conflict[PEN_CONFLICT_BYTES];
  struct stat status;
  export.dtype = dtype_named(dtype);
  pen_checkpoint_share(resolve, checkpoint, folder); /* no run removes it meanwhile */
  const struct pen_named_file file = {"--export", to, true, NULL};
  if (pen_find_conflict(&file, 1, conflict)) convert_fail(EX_USAGE, "%s", conflict);
  if (stat(to, &status) == 0 && !is_empty_folder(to))
    convert_fail(EX_CANTCREAT, "--export %s: exists, and is no empty folder", to);
  size_t length = strlen(to);
  while (length > 1 && to[length - 1] == '/') length--;
  const char *temporary = pen_text("%.*s.tmp%ld", (int)length, to, (long)getpid());
  if (mkdir(temporary, 0777))
    convert_fail(EX_CANTCREAT, "%s: cannot create: %s", temporary, strerror(errno));
  export.temporary = temporary;
  atexit(abandon);
  write_weights(folder);
  write_kept(folder);
  if (pen_folder_sync(temporary) || rename(temporary, to)) fail_writing(to);
  export.temporary = NULL;
  pen_folder_sync_of(to);
}
