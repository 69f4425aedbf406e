/* kept_files.c: the files that checkpoints keep (see kept_files.h). */
#include "runtime/storage/kept_files.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json_text.h"
#include "base/model_config.h"
#include "runtime/base/check.h"
#include "runtime/base/files.h"

enum { COPY_BYTES = 1 << 16, MIB = 1 << 20, FILE_MIB_MAX = 256 };

/* The key of the file that a key is a part of: "rope_scaling" of "rope_scaling.factor". */
static const char *file_key(struct pen_model_config *config, const char *key) {
  return pen_config_text(config, "%.*s", (int)strcspn(key, ".["), key);
}

static bool differs(const struct pen_config_setting *there, const struct pen_config_setting *here) {
  if (there == NULL) return !here->is_implied;
  return there->is_length ? atoll(there->text) < atoll(here->text)
                          : !pen_config_same_value(there->text, here->text);
}

static void replace(json_t *root, const char *key, const json_t *here, const char *here_key) {
  json_t *value = json_object_get(here, here_key);
  if (strcmp(key, here_key) != 0 || value == NULL) json_object_del(root, key);
  if (value != NULL) json_object_set(root, here_key, value);
}

/* A key of the file may hold several settings: all of them are replaced if one differs, or if it
 * was taken although it is not supported. */
static void replace_keys(json_t *root, struct pen_model_config *there,
                         struct pen_model_config *here) {
  const char *replaced[PEN_CONFIG_LINES_MAX + PEN_CONFIG_SETTINGS_MAX];
  size_t count = 0;
  for (; count < there->refused.count && count < PEN_CONFIG_LINES_MAX; count++) {
    replaced[count] = file_key(there, there->refused.line[count]);
    replace(root, replaced[count], here->root, replaced[count]);
  }
  for (size_t i = 0; i < here->count; i++) {
    const struct pen_config_setting *old = pen_model_config_find(there, here->setting[i].name);
    if (differs(old, &here->setting[i]))
      replaced[count++] = file_key(there, old != NULL ? old->key : here->setting[i].key);
  }
  for (size_t i = 0; i < here->count; i++) {
    const struct pen_config_setting *new = &here->setting[i],
                                    *old = pen_model_config_find(there, new->name);
    const char *key = file_key(there, old != NULL ? old->key : new->key);
    for (size_t n = 0; n < count; n++)
      if (strcmp(replaced[n], key) == 0) replace(root, key, here->root, file_key(here, new->key));
  }
}

static void set_dtype(json_t *root, const char *dtype) {
  static const char *const keys[] = {"dtype", "torch_dtype"};
  bool is_set = false;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (json_object_get(root, keys[i]) != NULL || (i == 1 && !is_set))
      is_set = json_object_set_new(root, keys[i], json_string(dtype)) == 0;
}

/* The text of the config `there`, changed only where the model `here` differs: in settings, in what
 * is not supported, and in the dtype of its tensors ("float32"). Positions are never fewer than
 * there. The caller frees it; null: no memory. */
static char *config_merged(struct pen_model_config *there, struct pen_model_config *here,
                           const char *dtype) {
  const bool same = there->family != NULL && strcmp(there->family, here->family) == 0;
  json_t *root = json_deep_copy(same ? there->root : here->root);
  if (same) {
    replace_keys(root, there, here);
    if (json_object_get(root, "architectures") == NULL)
      replace(root, "architectures", here->root, "architectures");
  }
  set_dtype(root, dtype);
  char *text = pen_json_text(root);
  json_decref(root);
  return text;
}

const char *const pen_kept_file_names[PEN_KEPT_FILES] = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "spiece.model",
    "chat_template.jinja",
    "chat_template.json",
};

void pen_kept_files_close(struct pen_kept_files *kept) {
  for (int i = 0; i < PEN_KEPT_FILES && kept->is_open; i++) {
    if (kept->file[i] >= 0) {
      close(kept->file[i]);
    }
  }
  free(kept->config);
  *kept = (struct pen_kept_files){0};
}

/* The config of the folder, for the model that `own` describes. What is not supported was refused
 * before, or taken by --ignore. */
static char *merged_config(const char *path, struct pen_model_config *own, const char *dtype) {
  const struct pen_config_rules rules = {0};
  struct pen_model_config there;
  char *text = NULL;
  pen_model_config_read(&there, path, &rules);
  if (there.family != NULL) {
    text = config_merged(&there, own != NULL ? own : &there, dtype);
    pen_check(text != NULL, "no memory for config.json");
  } else {
    pen_warn("%s; not kept", there.reasons.line[0]);
  }
  pen_model_config_free(&there);
  return text;
}

/* -1: there is none. */
static int open_file(const char *path) {
  struct stat status;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    if (errno != ENOENT) {
      pen_warn("%s: cannot be kept: %s", path, strerror(errno));
    }
    return -1;
  }
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
      status.st_size <= (off_t)FILE_MIB_MAX * MIB) {
    return fd;
  }
  pen_warn("%s: cannot be kept: not a regular file of at most %d MiB", path, FILE_MIB_MAX);
  close(fd);
  return -1;
}

static void open_config(struct pen_kept_files *kept, const char *folder, const char *own,
                        const char *dtype) {
  const struct pen_config_rules rules = {0};
  struct pen_model_config config;
  char path[PATH_MAX];
  if (pen_path_join(path, folder, "config.json") != 0 || access(path, F_OK) != 0) {
    return;
  }
  if (own == NULL) {
    kept->config = merged_config(path, NULL, dtype);
    return;
  }
  if (pen_model_config_parse(&config, "the plan's config.json", own, &rules) == 0) {
    kept->config = merged_config(path, &config, dtype);
  } /* else: none of transformers' models */
  pen_model_config_free(&config);
}

void pen_kept_files_open(struct pen_kept_files *kept, const char *folder, const char *own,
                         const char *dtype) {
  char path[PATH_MAX];
  struct stat status;
  pen_kept_files_close(kept);
  if (stat(folder, &status) != 0 || !S_ISDIR(status.st_mode)) {
    return;
  }
  kept->is_open = true;
  open_config(kept, folder, own, dtype);
  for (int i = 0; i < PEN_KEPT_FILES; i++) {
    kept->file[i] = pen_path_join(path, folder, pen_kept_file_names[i]) == 0 ? open_file(path) : -1;
  }
}

static int copy_file(int from, int to) {
  unsigned char bytes[COPY_BYTES];
  int64_t count;
  for (uint64_t offset = 0; (count = pen_file_read_at(from, bytes, sizeof bytes, offset)) > 0;
       offset += (uint64_t)count) {
    if (pen_file_write(to, bytes, (size_t)count)) {
      return -1;
    }
  }
  return count < 0 ? -1 : 0;
}

int pen_kept_files_write(const struct pen_kept_files *kept, const char *folder,
                         char path[PATH_MAX]) {
  for (int i = 0; kept->is_open && i < PEN_KEPT_FILES; i++) {
    if (kept->file[i] < 0) {
      continue;
    }
    if (pen_path_join(path, folder, pen_kept_file_names[i])) {
      return -1;
    }
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 || pen_file_sync_close(fd, copy_file(kept->file[i], fd))) {
      return -1;
    }
  }
  return 0;
}
