/* checkpoint_files.c: the layout of a checkpoint's two safetensors files, which depends on the
 * model alone.
 *
 * safetensors: the length of the header (8 bytes, little-endian), the header in JSON padded with
 * blanks so that the tensors start at a multiple of 64 bytes, then the tensors. */
#include <string.h>

#include <nettle/sha2.h>

#include "gen/layout/checkpoint_files.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "runtime/plan/plan.h"

/* A header while it is written. */
struct header {
  char *text;
  size_t used;
};

static void add_header_bytes(struct header *header, const char *bytes, size_t count) {
  PEN_RESERVE(header->text, header->used + count);
  memcpy(header->text + header->used, bytes, count);
  header->used += count;
}

static void add_header_text(struct header *header, const char *text) {
  add_header_bytes(header, text, strlen(text));
}

static void add_header_number(struct header *header, uint64_t number) {
  char digits[3 * sizeof number];
  size_t at = sizeof digits;
  do digits[--at] = (char)('0' + number % 10);
  while (number /= 10);
  add_header_bytes(header, digits + at, sizeof digits - at);
}

static void add_header_entry(struct header *header, const char *suffix,
                             const struct pen_weight *weight, uint32_t number, uint64_t start) {
  char name[PEN_TENSOR_NAME_BYTES];
  if (!pen_tensor_name(name, sizeof name, weight, number))
    pen_stop(PEN_EXIT_INTERNAL, "layout: the name of tensor %s is too long", weight->tensor);
  add_header_text(header, ",\"");
  add_header_text(header, name);
  add_header_text(header, suffix);
  add_header_text(header, "\":{\"dtype\":\"F32\",\"shape\":[");
  uint32_t count;
  const uint64_t *shape = pen_file_shape(weight, &count);
  for (uint32_t n = 0; n < count; n++) {
    if (n > 0) add_header_text(header, ",");
    add_header_number(header, shape[n]);
  }
  add_header_text(header, "],\"data_offsets\":[");
  add_header_number(header, start);
  add_header_text(header, ",");
  add_header_number(header, start + pen_one_tensor_elements(weight) * 4);
  add_header_text(header, "]}");
}

/* The tensors of a weight, or of a moment of it, from *end on. Returns where they begin. */
static uint64_t add_tensors(struct header *header, const char *suffix,
                            const struct pen_weight *weight, uint64_t *end) {
  const uint64_t begin = *end;
  for (uint32_t n = 0; n < pen_tensor_count(weight);
       n++, *end += pen_one_tensor_elements(weight) * 4)
    add_header_entry(header, suffix, weight, n, *end);
  return begin;
}

static struct header start_header(void) {
  struct header header = {0};
  add_header_text(&header, "{\"__metadata__\":{\"format\":\"pt\"}");
  return header;
}

/* Pads the header so that 8 + length is a multiple of the alignment; returns its text. */
static const char *finish_header(struct header *header) {
  add_header_text(header, "}");
  size_t total = pen_aligned(8 + header->used) - 8;
  while (header->used < total) add_header_text(header, " ");
  add_header_bytes(header, "", 1);
  return header->text;
}

static void model_file(struct pen_plan *plan, struct pen_weight *weights) {
  struct header header = start_header();
  uint64_t end = 0;
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    if (weights[i].split > 0) {
      weights[i].value_file = weights[i - 1].value_file;
      continue;
    }
    weights[i].value_file =
        pen_is_of_model(&weights[i]) ? add_tensors(&header, "", &weights[i], &end) : UINT64_MAX;
  }
  plan->model_header = finish_header(&header);
  uint64_t start = 8 + strlen(plan->model_header);
  for (uint32_t i = 0; i < plan->weight_count; i++)
    if (pen_is_of_model(&weights[i])) weights[i].value_file += start;
  plan->model_file_bytes = start + end;
}

static void add_moment(struct header *header, const struct pen_weight *weight, int moment,
                       uint64_t *file, uint64_t *end) {
  static const char *const suffixes[PEN_OPTIMIZERS][2] = {
#define PEN_OPTIMIZER(name, text, first, second, meaning) [PEN_OPTIMIZER_##name] = {first, second},
#include "runtime/plan/optimizer.def"
  };
  *file = UINT64_MAX;
  if ((uint32_t)moment >= weight->moment_count) return;
  *file = add_tensors(header, pen_text(".%s", suffixes[weight->optimizer][moment]), weight, end);
}

static void optimizer_file(struct pen_plan *plan, struct pen_weight *weights) {
  struct header header = start_header();
  uint64_t end = 0;
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    if (weights[i].split > 0) {
      weights[i].exp_avg_file = weights[i - 1].exp_avg_file;
      weights[i].exp_avg_sq_file = weights[i - 1].exp_avg_sq_file;
      continue;
    }
    add_moment(&header, &weights[i], 0, &weights[i].exp_avg_file, &end);
    add_moment(&header, &weights[i], 1, &weights[i].exp_avg_sq_file, &end);
  }
  plan->optimizer_header = finish_header(&header);
  uint64_t start = 8 + strlen(plan->optimizer_header);
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    if (weights[i].moment_count > 0) weights[i].exp_avg_file += start;
    if (weights[i].moment_count > 1) weights[i].exp_avg_sq_file += start;
  }
  plan->optimizer_file_bytes = start + end;
}

/* Settings that change what the weights mean but not their shapes. */
static bool belongs_to_model(const char *line) {
  static const char *const settings[] = {
      "model.family ",       "model.description ",       "model.heads ",
      "model.kv_heads ",     "model.head_dim ",          "model.rope_",
      "model.norm_epsilon ", "model.tie_embeddings ",    "model.window ",
      "model.query_scalar ", "model.experts_per_token ", "model.router_"};
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
    if (strncmp(line, settings[i], strlen(settings[i])) == 0) return true;
  return false;
}

void pen_files(struct pen_plan *plan, struct pen_weight *weights) {
  model_file(plan, weights);
  optimizer_file(plan, weights);
  struct sha256_ctx hash;
  sha256_init(&hash);
  for (const char *line = plan->settings; *line;) {
    size_t length = strcspn(line, "\n");
    if (belongs_to_model(line)) sha256_update(&hash, length, (const uint8_t *)line);
    line += length + (line[length] == '\n');
  }
  sha256_update(&hash, strlen(plan->model_header), (const uint8_t *)plan->model_header);
  sha256_digest(&hash, PEN_DIGEST_BYTES, plan->model_digest);
}
