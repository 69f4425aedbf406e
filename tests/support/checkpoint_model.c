/* checkpoint_model.c: a small model without the generator, and saves of it. */
#include "tests/support/checkpoint_model.h"

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#else
#define __lsan_disable() ((void)0)
#endif

static const struct pen_weight model_rows[MODEL_WEIGHTS] = {
    {.name = "model.embed_tokens.weight",
     .dim_count = 2,
     .dim = {37, 8},
     .deviation = 0.02,
     .weight_decay = 0.1},
    {.name = "model.layers.0.input_layernorm.weight",
     .dim_count = 1,
     .dim = {8},
     .initial = PEN_INITIAL_ONES},
    {.name = "model.layers.0.mlp.up_proj.weight",
     .dim_count = 2,
     .dim = {301, 257},
     .deviation = 0.5,
     .weight_decay = 0.1},
    {.name = "model.layers.1.frozen.weight",
     .dim_count = 2,
     .dim = {5, 3},
     .deviation = 1,
     .frozen = true},
    {.name = "model.norm.bias", .dim_count = 1, .dim = {1}, .initial = PEN_INITIAL_ZEROS},
    {.name = "lm_head.weight",
     .dim_count = 2,
     .dim = {37, 8},
     .deviation = 0.02,
     .weight_decay = 0.1},
};

/* An entry of a header; returns the offset after the tensor. */
static uint64_t model_entry(char *header, const struct pen_weight *weight, const char *suffix,
                            uint64_t begin) {
  size_t used = strlen(header);
  uint64_t end = begin + 4 * weight->count;
  used += (size_t)snprintf(header + used, MODEL_HEADER_BYTES - used,
                           "%s\"%s%s\":{\"dtype\":\"F32\",\"shape\":[", used > 1 ? "," : "",
                           weight->name, suffix);
  for (uint32_t i = 0; i < weight->dim_count; i++) {
    used += (size_t)snprintf(header + used, MODEL_HEADER_BYTES - used, "%s%llu", i > 0 ? "," : "",
                             (unsigned long long)weight->dim[i]);
  }
  snprintf(header + used, MODEL_HEADER_BYTES - used, "],\"data_offsets\":[%llu,%llu]}",
           (unsigned long long)begin, (unsigned long long)end);
  return end;
}

static uint64_t model_data_start(char *header) {
  strcat(header, "}");
  return (8 + strlen(header) + 63) / 64 * 64;
}

void model_files(struct checkpoint_model *model) {
  uint64_t end = 0;
  strcpy(model->model_header, "{");
  for (int i = 0; i < MODEL_WEIGHTS; i++) {
    model->weights[i].value_file = end;
    end = model_entry(model->model_header, &model->weights[i], "", end);
  }
  uint64_t start = model_data_start(model->model_header);
  model->plan.model_file_bytes = start + end;
  for (int i = 0; i < MODEL_WEIGHTS; i++) {
    model->weights[i].value_file += start;
  }
  end = 0;
  strcpy(model->optimizer_header, "{");
  for (int i = 0; i < MODEL_WEIGHTS; i++) {
    struct pen_weight *weight = &model->weights[i];
    if (!weight->frozen) {
      weight->exp_avg_file = end;
      end = model_entry(model->optimizer_header, weight, ".exp_avg", end);
      weight->exp_avg_sq_file = end;
      end = model_entry(model->optimizer_header, weight, ".exp_avg_sq", end);
    }
  }
  start = model_data_start(model->optimizer_header);
  model->plan.optimizer_file_bytes = start + end;
  for (int i = 0; i < MODEL_WEIGHTS; i++) {
    struct pen_weight *weight = &model->weights[i];
    weight->exp_avg_file = weight->frozen ? UINT64_MAX : weight->exp_avg_file + start;
    weight->exp_avg_sq_file = weight->frozen ? UINT64_MAX : weight->exp_avg_sq_file + start;
  }
}

void model_whole(struct pen_weight *weight) {
  weight->tensor = weight->name;
  weight->split_count = 1;
  weight->tensor_dim[0] = weight->dim[0];
  weight->tensor_dim[1] = weight->dim[1];
  weight->run_count = weight->run_stride = weight->count;
}

static uint64_t model_place(uint64_t *arena_bytes, uint64_t count) {
  uint64_t offset = *arena_bytes;
  *arena_bytes += (4 * count + 63) / 64 * 64;
  return offset;
}

void model_make(struct checkpoint_model *model, uint32_t ranks, uint32_t turn) {
  memset(model, 0, sizeof *model);
  memcpy(model->weights, model_rows, sizeof model_rows);
  for (uint32_t rank = 0; rank < ranks; rank++) {
    model->memory[rank].arena_bytes = 128 * (rank + 1); /* a window, unequal among ranks */
  }
  for (uint32_t i = 0; i < MODEL_WEIGHTS; i++) {
    struct pen_weight *weight = &model->weights[i];
    weight->rank = (i * ranks / MODEL_WEIGHTS + turn) % ranks;
    uint64_t *bytes = &model->memory[weight->rank].arena_bytes;
    weight->count = weight->dim[0] * (weight->dim_count == 2 ? weight->dim[1] : 1);
    model_whole(weight);
    weight->value_offset = model_place(bytes, weight->count);
    weight->gradient_offset = weight->frozen ? UINT64_MAX : model_place(bytes, weight->count);
    weight->exp_avg_offset = weight->frozen ? UINT64_MAX : model_place(bytes, weight->count);
    weight->bf16_offset = UINT64_MAX;
    weight->exp_avg_sq_offset = weight->frozen ? UINT64_MAX : model_place(bytes, weight->count);
  }
  model_files(model);
  memset(model->plan.model_digest, 0x5a, PEN_DIGEST_BYTES);
  model->plan.rank_count = ranks;
  model->plan.replica_count = model->plan.tensor_ranks = model->plan.shard_ranks = 1;
  model->plan.weights = model->weights;
  model->plan.weight_count = MODEL_WEIGHTS;
  model->plan.memory = model->memory;
  model->plan.model_header = model->model_header;
  model->plan.optimizer_header = model->optimizer_header;
  model->plan.config_json = "{\"model_type\": \"llama\"}\n";
}
/* ---- values ---- */

float model_value(uint64_t state, uint32_t weight, int part, uint64_t index) {
  uint64_t z = state * 0x9e3779b97f4a7c15u + weight * 0xbf58476d1ce4e5b9u +
               (uint64_t)part * 0x94d049bb133111ebu + index;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  uint32_t bits = (uint32_t)(z >> 32);
  if ((bits >> 23 & 255) == 255) {
    bits ^= 1u << 30;
  }
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

unsigned char *model_arena(const struct checkpoint_model *model, uint32_t rank) {
  unsigned char *arena = aligned_alloc(64, model->memory[rank].arena_bytes);
  memset(arena, 0xee, model->memory[rank].arena_bytes);
  return arena;
}

void model_fill(const struct checkpoint_model *model, uint32_t rank, unsigned char *arena,
                uint64_t state) {
  for (uint32_t i = 0; i < MODEL_WEIGHTS; i++) {
    const struct pen_weight *weight = &model->weights[i];
    for (int part = 0; part < PEN_CHECKPOINT_TENSORS && weight->rank == rank; part++) {
      uint64_t offsets[PEN_CHECKPOINT_TENSORS] = {weight->value_offset, weight->exp_avg_offset,
                                                  weight->exp_avg_sq_offset};
      for (uint64_t j = 0; j < weight->count && offsets[part] != UINT64_MAX; j++) {
        ((float *)(arena + offsets[part]))[j] = model_value(state, i, part, j);
      }
    }
  }
}

uint64_t model_differences(const struct checkpoint_model *model, uint32_t rank,
                           const unsigned char *arena, uint64_t state) {
  unsigned char *expected = model_arena(model, rank);
  uint64_t count = 0;
  model_fill(model, rank, expected, state);
  for (uint64_t i = 0; i < model->memory[rank].arena_bytes; i++) {
    count += arena[i] != expected[i];
  }
  free(expected);
  return count;
}
/* ---- saves; a failure ends the process ---- */

static void model_must(bool good, const struct pen_save_failure *failure) {
  if (!good) {
    pen_fail(failure->status, "%s", failure->message);
  }
}

void model_begin(const char *dir, const struct pen_plan *plan, uint64_t step) {
  struct pen_save_failure failure;
  model_must(pen_checkpoint_begin(dir, &(struct pen_folder_id){0}, plan, step, &failure), &failure);
}

void model_write(const struct pen_plan *plan, uint32_t rank, const unsigned char *arena,
                 const char *dir, uint64_t step, unsigned char (*digests)[PEN_DIGEST_BYTES]) {
  struct pen_save_failure failure;
  model_must(pen_checkpoint_write(plan, rank, arena, dir, step, digests, &failure), &failure);
}

void model_finish(const struct pen_plan *plan, const char *dir, uint64_t step, uint64_t cursor,
                  unsigned char (*digests)[PEN_DIGEST_BYTES]) {
  struct pen_save_failure failure;
  const struct pen_checkpoint_state state = {.step = step,
                                             .cursor = cursor,
                                             .place = {.known = true, .epoch = 1, .read = cursor},
                                             .updates = {.most = step}};
  model_must(pen_checkpoint_finish(plan, dir, &state, NULL, digests, &failure), &failure);
}

void model_save(const struct checkpoint_model *from, const char *dir, uint64_t step,
                uint64_t cursor, uint64_t values) {
  static unsigned char digests[PEN_CHECKPOINT_TENSORS * MODEL_WEIGHTS][PEN_DIGEST_BYTES];
  model_begin(dir, &from->plan, step);
  for (uint32_t rank = 0; rank < from->plan.rank_count; rank++) {
    unsigned char *arena = model_arena(from, rank);
    model_fill(from, rank, arena, values);
    model_write(&from->plan, rank, arena, dir, step, digests);
    free(arena);
  }
  model_finish(&from->plan, dir, step, cursor, digests);
}
/* ---- a working folder ---- */

char model_folder[PATH_MAX];

int model_setup(void **state) {
  (void)state;
  const char *base = getenv("TMPDIR");
  snprintf(model_folder, sizeof model_folder, "%s/penstock-test-XXXXXX",
           base != NULL ? base : "/tmp");
  return mkdtemp(model_folder) == NULL ? -1 : chdir(model_folder);
}

int model_setup_made(struct checkpoint_model *model) {
  model_make(model, 3, 1);
  model->plan.weights = model->weights;
  return model_setup(NULL);
}

static void model_clean(void) {
  char command[2 * PATH_MAX + 64];
  snprintf(command, sizeof command, "chmod -R u+rwx '%s'; rm -rf '%s'", model_folder, model_folder);
  if (system(command) != 0) {
    print_message("cannot remove %s\n", model_folder);
  }
}

int model_teardown(void **state) {
  (void)state;
  model_clean();
  return chdir("/");
}
/* ---- capturing pen_fail() ---- */

char said[4096];

int model_run(void (*work)(void *), void *argument) {
  int ends[2], status;
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    __lsan_disable(); /* pen_fail() does not clean up */
    work(argument);
    _exit(0);
  }
  close(ends[1]);
  size_t used = 0;
  for (ssize_t count; used < sizeof said - 1 &&
                      (count = read(ends[0], said + used, sizeof said - 1 - used)) > 0;) {
    used += (size_t)count;
  }
  said[used] = 0;
  close(ends[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void model_refused(int status, void (*work)(void *), void *argument, ...) {
  int got = model_run(work, argument);
  if (got != status) {
    fail_msg("status %d, not %d: %s", got, status, said);
  }
  const char *newline = strchr(said, '\n');
  if (newline == NULL || newline[1] != 0) {
    fail_msg("not one line: %s", said);
  }
  va_list texts;
  va_start(texts, argument);
  for (const char *text; (text = va_arg(texts, const char *)) != NULL;) {
    if (strstr(said, text) == NULL) {
      fail_msg("\"%s\" not in: %s", text, said);
    }
  }
  va_end(texts);
}
/* ---- files ---- */

void file_write(const char *path, const void *bytes, size_t count) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, count, file), count);
  assert_int_equal(fclose(file), 0);
}

unsigned char *file_read(const char *path, size_t *count) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  fseek(file, 0, SEEK_END);
  *count = (size_t)ftell(file);
  rewind(file);
  unsigned char *bytes = malloc(*count + 1);
  assert_int_equal(fread(bytes, 1, *count, file), *count);
  bytes[*count] = 0;
  fclose(file);
  return bytes;
}

void file_same(const char *path, const char *other) {
  size_t a_count, b_count;
  unsigned char *a = file_read(path, &a_count), *b = file_read(other, &b_count);
  assert_int_equal(a_count, b_count);
  assert_memory_equal(a, b, a_count);
  free(a);
  free(b);
}
