/* files.c: the layout of a checkpoint's two safetensors files, which the model alone fixes.
 *
 * safetensors: 8 bytes little-endian length of the header, the header in JSON padded with blanks, then the tensors one behind the
 * other. The header is padded so that the tensors start at a multiple of 64 bytes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <nettle/sha2.h>

#include "gen/layout.h"

static void write_entry(FILE *out, const char *name, const char *suffix, const struct pen_weight *weight, uint64_t start) {
  fprintf(out, ",\"%s%s\":{\"dtype\":\"F32\",\"shape\":[%" PRIu64, name, suffix, weight->dim[0]);
  if (weight->dim_count == 2) fprintf(out, ",%" PRIu64, weight->dim[1]);
  fprintf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", start, start + weight->count * 4);
}

/* Pads the header so that 8 + length is a multiple of the alignment. Returns a text of pen_new. */
static const char *padded(char *text, size_t length) {
  size_t total = (8 + length + PEN_ALIGNMENT_BYTES - 1) / PEN_ALIGNMENT_BYTES * PEN_ALIGNMENT_BYTES - 8;
  char *header = pen_new(total + 1, 1);
  memset(header, ' ', total);
  memcpy(header, text, length);
  free(text);
  return header;
}

static FILE *open_text(char **text, size_t *length) {
  FILE *out = open_memstream(text, length);
  if (!out) pen_stop(PEN_EXIT_TOPOLOGY, "penstock-gen: out of memory");
  fputs("{\"__metadata__\":{\"format\":\"pt\"}", out);
  return out;
}

static void model_file(struct pen_plan *plan, struct pen_weight *weights) {
  char *text;
  size_t length;
  FILE *out = open_text(&text, &length);
  uint64_t end = 0;
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    write_entry(out, weights[i].name, "", &weights[i], end);
    weights[i].value_file = end;
    end += weights[i].count * 4;
  }
  fputc('}', out);
  fclose(out);
  plan->model_header = padded(text, length);
  uint64_t start = 8 + strlen(plan->model_header);
  for (uint32_t i = 0; i < plan->weight_count; i++) weights[i].value_file += start;
  plan->model_file_bytes = start + end;
}

static void optimizer_file(struct pen_plan *plan, struct pen_weight *weights) {
  char *text;
  size_t length;
  FILE *out = open_text(&text, &length);
  uint64_t end = 0;
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    if (weights[i].frozen) continue;
    write_entry(out, weights[i].name, ".exp_avg", &weights[i], end);
    weights[i].exp_avg_file = end;
    end += weights[i].count * 4;
    write_entry(out, weights[i].name, ".exp_avg_sq", &weights[i], end);
    weights[i].exp_avg_sq_file = end;
    end += weights[i].count * 4;
  }
  fputc('}', out);
  fclose(out);
  plan->optimizer_header = padded(text, length);
  uint64_t start = 8 + strlen(plan->optimizer_header);
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    weights[i].exp_avg_file = weights[i].frozen ? UINT64_MAX : weights[i].exp_avg_file + start;
    weights[i].exp_avg_sq_file = weights[i].frozen ? UINT64_MAX : weights[i].exp_avg_sq_file + start;
  }
  plan->optimizer_file_bytes = start + end;
}

/* Settings that change what the weights mean, though not their shapes. */
static bool belongs_to_model(const char *line) {
  static const char *const settings[] = {"model.family ", "model.heads ", "model.kv_heads ", "model.head_dim ",
                                         "model.rope_theta ", "model.norm_epsilon ", "model.tie_embeddings "};
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
