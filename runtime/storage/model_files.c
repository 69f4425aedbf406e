/* model_files.c: finds a model's weights in one safetensors file or in several with an index (see
 * shards.h). */
#include "runtime/storage/model_files.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/input_file.h"
#include "base/message.h"
#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/safetensors_header.h"
#include "runtime/storage/manifest.h"
#include "runtime/storage/safetensors.h"

static const char tied_head[] = "lm_head.weight";

enum { STORED_BYTES = PEN_TENSOR_NAME_BYTES + 64 }; /* of a name of the files */

/* A model of text and images has the tensors of its part for text by this prefix; those that begin
 * with the others are not of that part (Gemma3ForConditionalGeneration). */
static const char text_family[] = "gemma3_text", text_prefix[] = "language_model.";
static const char *const image_parts[] = {"vision_tower", "multi_modal_projector"};

struct shard {
  char *name, *path; /* as in the index; where it is */
  struct pen_safetensors *file;
};

struct pen_model_files {
  char *index_path;   /* null: one file */
  json_t *root, *map; /* of the index: from tensor to file name */
  struct shard *shard;
  size_t count;
  size_t lacking_bytes; /* of the first part of names that the files' lack; 0: none */
  char *lacking;        /* that part: "transformer." */
  const char *prefix;   /* before all names of the model; "": none */
  const struct pen_plan *plan;
  enum pen_manifest_found found; /* in the folder; if it is ours: */
  struct pen_manifest manifest;
};

static void *must(void *memory, const char *path) {
  if (memory == NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "%s: out of memory", path);
  }
  return memory;
}

/* ---- files ---- */

static void open_shard(struct pen_model_files *shards, const char *name, const char *path) {
  shards->shard = must(realloc(shards->shard, (shards->count + 1) * sizeof *shards->shard), path);
  struct shard *shard = &shards->shard[shards->count++];
  shard->name = must(strdup(name), path);
  shard->path = must(strdup(path), path);
  shard->file = pen_safetensors_open(shard->path);
}

static const struct shard *shard_named(const struct pen_model_files *shards, const char *name) {
  for (size_t i = 0; i < shards->count; i++) {
    if (strcmp(shards->shard[i].name, name) == 0) {
      return &shards->shard[i];
    }
  }
  return NULL;
}

/* A file of the index lies beside it. */
static void open_named(struct pen_model_files *shards, const char *tensor, const json_t *value) {
  const char *name = json_string_value(value);
  char path[PATH_MAX], shown[PEN_SHOWN_BYTES];
  if (name == NULL || *name == '\0' || strchr(name, '/') != NULL) {
    pen_fail(PEN_EXIT_DATA, "%s: weight_map: %s: must be the name of a file in the same folder",
             shards->index_path, pen_shown(shown, tensor));
  }
  if (shard_named(shards, name) != NULL) {
    return;
  }
  const char *slash = strrchr(shards->index_path, '/');
  int folder_bytes = slash == NULL ? 0 : (int)(slash + 1 - shards->index_path);
  int length = snprintf(path, sizeof path, "%.*s%s", folder_bytes, shards->index_path, name);
  if (length < 0 || length >= (int)sizeof path) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: %s: %s", shards->index_path, name, strerror(ENAMETOOLONG));
  }
  open_shard(shards, name, path);
}

static void open_index(struct pen_model_files *shards, const char *path) {
  json_error_t error;
  struct pen_input_error refused;
  size_t bytes;
  char *text = pen_input_read(path, PEN_INPUT_JSON, &bytes, &refused);
  if (text == NULL) {
    pen_fail(refused.status, "%s: %s", path, refused.text);
  }
  shards->index_path = must(strdup(path), path);
  shards->root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
  free(text);
  if (shards->root == NULL) {
    char shown[PEN_SHOWN_BYTES];
    pen_fail(PEN_EXIT_DATA, "%s:%d: %s", path, error.line, pen_shown(shown, error.text));
  }
  shards->map = json_object_get(shards->root, "weight_map");
  if (!json_is_object(shards->map) || json_object_size(shards->map) == 0) {
    pen_fail(PEN_EXIT_DATA, "%s: weight_map: must be an object that names a file for each tensor",
             path);
  }
  const char *tensor;
  json_t *value;
  json_object_foreach(shards->map, tensor, value) { open_named(shards, tensor, value); }
}

static bool ends_in(const char *text, const char *ending) {
  size_t length = strlen(text), tail = strlen(ending);
  return tail <= length && strcmp(text + length - tail, ending) == 0;
}

/* A folder that we have saved says what its tensors' bytes are. It may be of another model with the
 * same weights: a longer sequence. */
static void find_manifest(struct pen_model_files *shards, const char *folder) {
  shards->found = pen_manifest_find(folder, shards->plan);
  if (shards->found == PEN_MANIFEST_OURS) {
    pen_manifest_read(&shards->manifest, folder, shards->plan, PEN_CHECKPOINT_VALUE);
  }
}

static _Noreturn void fail_absent(const char *path, int cause) {
  const char *slash = strchr(path, '/');
  bool is_hub_name = strpbrk(path, ".~/ ") == slash && slash != NULL && slash != path &&
                     slash[1] != '\0' && strchr(slash + 1, '/') == NULL;
  pen_fail(PEN_EXIT_NO_INPUT, "%s: %s%s", path, strerror(cause),
           is_hub_name ? "; a model of a hub is downloaded first: hf download NAME --local-dir "
                         "FOLDER, then --init FOLDER"
                       : "");
}

/* A folder without safetensors files may have what they are made of. */
static void check_folder_kind(const char *folder) {
  static const char *const names[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                      "tf_model.h5", "consolidated.00.pth"};
  char file[PATH_MAX];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (pen_path_join(file, folder, names[i]) == 0 && access(file, F_OK) == 0) {
      pen_fail(PEN_EXIT_DATA,
               "%s: no safetensors file, which is needed: save the model as such, with Python: "
               "transformers.AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(OTHER)",
               file);
    }
  }
}

static void open_all(struct pen_model_files *shards, const char *path) {
  char file[PATH_MAX], index[PATH_MAX];
  struct stat status;
  if (stat(path, &status) != 0) {
    fail_absent(path, errno);
  }
  if (!S_ISDIR(status.st_mode)) {
    if (ends_in(path, ".json")) {
      open_index(shards, path);
    } else {
      open_shard(shards, path, path);
    }
    return;
  }
  if (pen_path_join(file, path, "model.safetensors") != 0 ||
      pen_path_join(index, path, "model.safetensors.index.json") != 0) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: %s", path, strerror(errno));
  }
  if (access(file, F_OK) != 0 && access(index, F_OK) == 0) {
    open_index(shards, index);
  } else {
    if (access(file, F_OK) != 0) {
      check_folder_kind(path);
    }
    open_shard(shards, file, file);
    find_manifest(shards, path);
  }
}

/* ---- tensors ---- */

static bool has(const struct pen_model_files *shards, const char *name) {
  return shards->map != NULL ? json_object_get(shards->map, name) != NULL
                             : pen_safetensors_has(shards->shard[0].file, name);
}

/* What the files call a weight. */
static const char *stored_name(const struct pen_model_files *shards,
                               const struct pen_weight *weight, uint32_t number,
                               char name[STORED_BYTES]) {
  char tensor[PEN_TENSOR_NAME_BYTES];
  pen_tensor_name(tensor, sizeof tensor, weight, number);
  bool lacks =
      shards->lacking_bytes != 0 && strncmp(tensor, shards->lacking, shards->lacking_bytes) == 0;
  snprintf(name, STORED_BYTES, "%s%s", shards->prefix,
           tensor + (lacks ? shards->lacking_bytes : 0));
  return name;
}

/* Whether the files are those of a model of text and images, by the model's first weight. */
static void find_prefix(struct pen_model_files *shards, const struct pen_plan *plan) {
  char prefixed[STORED_BYTES];
  shards->prefix = "";
  if (plan->weight_count == 0 || plan->family == NULL || strcmp(plan->family, text_family) != 0) {
    return;
  }
  snprintf(prefixed, sizeof prefixed, "%s%s", text_prefix, plan->weights[0].tensor);
  if (!has(shards, plan->weights[0].tensor) && has(shards, prefixed)) {
    shards->prefix = text_prefix;
  }
}

/* Whether the names lack their first part, by the model's first weight. */
static void find_lacking(struct pen_model_files *shards, const struct pen_plan *plan) {
  const char *name = plan->weight_count == 0 ? "" : plan->weights[0].tensor;
  size_t part = strcspn(name, ".") + 1;
  if (part < strlen(name) && !has(shards, name) && has(shards, name + part)) {
    shards->lacking = must(strndup(name, part), name);
    shards->lacking_bytes = part;
  }
}

/* Fails if a name of the files is that of the model's first weight, but for more before it. */
static void check_prefix(const struct pen_model_files *shards, const char *stored) {
  const char *name = shards->plan->weights[0].tensor, *bare = strchr(name, '.');
  const char *const wanted[] = {name, bare == NULL ? name : bare + 1};
  for (size_t i = 0; i < 2; i++) {
    size_t length = strlen(stored), tail = strlen(wanted[i]);
    if (length > tail && stored[length - tail - 1] == '.' && ends_in(stored, wanted[i])) {
      char shown[PEN_SHOWN_BYTES];
      pen_fail(PEN_EXIT_DATA,
               "%s: tensor %s: this model's is %s: rename the tensors, without \"%.*s\"",
               shards->index_path != NULL ? shards->index_path : shards->shard[0].path,
               pen_shown(shown, stored), wanted[i], (int)(length - tail < 80 ? length - tail : 80),
               shown);
    }
  }
}

static void check_prefixes(const struct pen_model_files *shards) {
  const char *first = shards->plan->weight_count == 0 ? NULL : shards->plan->weights[0].tensor;
  if (first == NULL || shards->lacking_bytes != 0 || *shards->prefix != '\0' ||
      has(shards, first)) {
    return;
  }
  for (size_t i = 0; shards->map == NULL && i < shards->shard[0].file->count; i++) {
    check_prefix(shards, shards->shard[0].file->tensors[i].name);
  }
  const char *name;
  json_t *file;
  json_object_foreach(shards->map, name, file) { check_prefix(shards, name); }
}

static const struct pen_stored *find(const struct pen_model_files *shards,
                                     const struct pen_weight *weight, uint32_t number,
                                     const struct shard **shard) {
  char text[STORED_BYTES];
  const char *name = stored_name(shards, weight, number, text);
  *shard = &shards->shard[0];
  if (shards->map != NULL) {
    const char *file = json_string_value(json_object_get(shards->map, name));
    if (file == NULL) {
      pen_fail(PEN_EXIT_DATA, "%s: tensor %s: missing", shards->index_path, name);
    }
    *shard = shard_named(shards, file);
  }
  return pen_safetensors_expect_weight((*shard)->file, name, weight);
}

struct pen_model_files *pen_model_files_open(const char *path, const struct pen_plan *plan) {
  struct pen_model_files *shards = must(calloc(1, sizeof *shards), path);
  const struct shard *shard;
  shards->plan = plan;
  open_all(shards, path);
  find_prefix(shards, plan);
  find_lacking(shards, plan);
  check_prefixes(shards);
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    for (uint32_t n = 0; n < pen_model_tensor_count(&plan->weights[i]); n++) {
      find(shards, &plan->weights[i], n, &shard);
    }
  }
  return shards;
}

/* ---- tensors that are not used ---- */

/* What transformers has stored, at one time or another, that no model learns; of a family, or null:
 * of those with rotary positions. */
static const struct {
  const char *family, *name;
} computed[] = {
    {"gpt2", "attn.bias"},
    {"gpt2", "attn.masked_bias"},
    {NULL, "rotary_emb.inv_freq"},
    {NULL, "rotary_emb.original_inv_freq"},
    {NULL, "rotary_emb.cos_cached"},
    {NULL, "rotary_emb.sin_cached"},
    {"gemma3_text", "rotary_emb_local.inv_freq"},
    {"gemma3_text", "rotary_emb_local.original_inv_freq"},
    {"gemma3_text", "rotary_emb.full_attention_inv_freq"},
    {"gemma3_text", "rotary_emb.full_attention_original_inv_freq"},
    {"gemma3_text", "rotary_emb.sliding_attention_inv_freq"},
    {"gemma3_text", "rotary_emb.sliding_attention_original_inv_freq"},
    {"gemma3_text", "embed_tokens.embed_scale"},
};

static bool is_of_family(const char *family, const char *plan_family) {
  return family == NULL ? strcmp(plan_family, "gpt2") != 0 : strcmp(plan_family, family) == 0;
}

/* Whether a name is `part`, or ends with it after a dot, or, if it may, begins with it before one.
 */
static bool has_part(const char *name, const char *part, bool may_begin) {
  const size_t length = strlen(name), bytes = strlen(part);
  return strcmp(name, part) == 0 ||
         (length > bytes && ends_in(name, part) && name[length - bytes - 1] == '.') ||
         (may_begin && length > bytes && strncmp(name, part, bytes) == 0 && name[bytes] == '.');
}

struct unused {
  const struct pen_model_files *shards;
  const struct pen_texts *ignored;
};

static bool is_ignored(const struct pen_texts *ignored, const char *name) {
  for (size_t i = 0; i < ignored->count; i++) {
    if (has_part(name, ignored->text[i], true)) {
      return true;
    }
  }
  return false;
}

static bool passes(const void *context, const char *name) {
  const struct unused *unused = context;
  const struct pen_plan *plan = unused->shards->plan;
  for (size_t i = 0; i < sizeof computed / sizeof *computed; i++) {
    if (plan->family != NULL && is_of_family(computed[i].family, plan->family) &&
        has_part(name, computed[i].name, false)) {
      return true;
    }
  }
  const char *prefix = unused->shards->prefix;
  const size_t bytes = strlen(prefix);
  for (size_t i = 0; *prefix != '\0' && i < sizeof image_parts / sizeof *image_parts; i++) {
    if (has_part(name, image_parts[i], true)) {
      return true;
    }
  }
  return (plan->tie_count != 0 && strncmp(name, prefix, bytes) == 0 &&
          strcmp(name + bytes, tied_head) == 0) ||
         is_ignored(unused->ignored, name);
}

/* The head that is stored beside the embedding of a tied model. transformers would use it. */
static void check_tied_head(const struct pen_model_files *shards, const struct pen_texts *ignored) {
  const struct pen_plan *plan = shards->plan;
  char name[STORED_BYTES];
  snprintf(name, sizeof name, "%s%s", shards->prefix, tied_head);
  for (size_t s = 0; s < shards->count && plan->tie_count != 0; s++) {
    const struct pen_stored *head = pen_safetensors_find(shards->shard[s].file, name);
    if (head == NULL || is_ignored(ignored, name)) {
      continue;
    }
    const struct pen_weight *weight = &plan->weights[plan->ties[0].weight];
    const struct shard *shard;
    const struct pen_stored *embedding = find(shards, weight, 0, &shard);
    if (!pen_safetensors_equal(shards->shard[s].file, head, shard->file, embedding)) {
      pen_fail(PEN_EXIT_DATA,
               "%s: tensor %s: differs from %s, but this model ties them: build one with "
               "model.tie_embeddings = false, or leave the head: --ignore %s",
               shards->shard[s].path, name, embedding->name, name);
    }
  }
}

void pen_model_files_check_unused(const struct pen_model_files *shards,
                                  const struct pen_texts *ignored) {
  const struct unused unused = {shards, ignored};
  struct pen_safetensors **files = must(calloc(shards->count, sizeof *files), "tensors");
  for (size_t s = 0; s < shards->count; s++) {
    files[s] = shards->shard[s].file;
  }
  pen_safetensors_expect_no_more(files, shards->count, passes, &unused);
  free(files);
  check_tied_head(shards, ignored);
}

static void read_tensor(const struct pen_model_files *shards, const struct pen_weight *weight,
                        uint32_t number, float *out) {
  const struct shard *shard;
  const struct pen_stored *tensor = find(shards, weight, number, &shard);
  unsigned char digest[PEN_DIGEST_BYTES];
  const bool checked = shards->found == PEN_MANIFEST_OURS;
  pen_safetensors_read(shard->file, tensor, out, checked ? digest : NULL);
  if (checked) {
    pen_manifest_expect(&shards->manifest, shards->plan, (uint32_t)(weight - shards->plan->weights),
                        number, PEN_CHECKPOINT_VALUE, shard->path, digest);
  }
}

void pen_model_files_read(const struct pen_model_files *shards, const struct pen_weight *weight,
                          float *out) {
  for (uint32_t n = 0; n < pen_tensor_count(weight); n++) {
    read_tensor(shards, weight, n, out + n * pen_one_tensor_elements(weight));
  }
}

enum pen_manifest_found pen_model_files_manifest(const struct pen_model_files *shards,
                                                 const struct pen_manifest **manifest) {
  *manifest = shards->found == PEN_MANIFEST_OURS ? &shards->manifest : NULL;
  return shards->found;
}

uint32_t pen_model_files_sample(const struct pen_model_files *shards, const struct pen_plan *plan) {
  uint32_t sample = 0;
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    for (uint32_t n = 0; n < pen_model_tensor_count(&plan->weights[i]); n++) {
      const struct shard *shard;
      const struct pen_stored *tensor = find(shards, &plan->weights[i], n, &shard);
      sample = pen_safetensors_sample(shard->file, tensor, sample);
    }
  }
  return sample;
}

void pen_model_files_close(struct pen_model_files *shards) {
  for (size_t i = 0; i < shards->count; i++) {
    pen_safetensors_close(shards->shard[i].file);
    free(shards->shard[i].name);
    free(shards->shard[i].path);
  }
  json_decref(shards->root);
  free(shards->shard);
  free(shards->index_path);
  free(shards->lacking);
  if (shards->found == PEN_MANIFEST_OURS) {
    pen_manifest_free(&shards->manifest);
  }
  free(shards);
}
