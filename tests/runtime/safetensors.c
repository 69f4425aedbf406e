/* safetensors.c: loading weights from safetensors files: dtypes, any order, and every kind of bad
 * file by its message. */
#include "tests/support/checkpoint_model.h"

#include <math.h>

#include "runtime/storage/initial_weights.h"

static struct checkpoint_model model;

/* ---- files by hand ---- */

enum { DTYPE_F32, DTYPE_BF16, DTYPE_F16 };
static const char *const dtype_names[] = {"F32", "BF16", "F16"};
static const unsigned dtype_bytes[] = {4, 2, 2};

/* A value that every dtype holds exactly. */
static float exact_value(uint32_t weight, uint64_t index) {
  return (float)((int)((index * 7 + weight * 3) % 255) - 127) / 16;
}

static void put_f16(unsigned char *out, float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  uint32_t half =
      value == 0 ? 0 : (bits >> 31) << 15 | ((bits >> 23 & 255) - 112) << 10 | (bits >> 13 & 1023);
  out[0] = (unsigned char)half;
  out[1] = (unsigned char)(half >> 8);
}

static void put_value(unsigned char *out, int dtype, float value) {
  unsigned char bytes[4];
  memcpy(bytes, &value, 4);
  if (dtype == DTYPE_F32) {
    memcpy(out, bytes, 4);
  } else if (dtype == DTYPE_BF16) {
    memcpy(out, bytes + 2, 2);
  } else {
    put_f16(out, value);
  }
}

static bool head_is_embedding;

/* A file of the model with its tensors in the order of `turn`, backwards if it is odd, of dtypes
 * (turn + i) % 3 or all F32; the header lists them in another order than the data. */
static void write_file(const char *path, uint32_t turn, bool mixed) {
  static unsigned char data[1 << 20];
  char header[MODEL_HEADER_BYTES] = "{\"__metadata__\":{\"format\":\"pt\"}", entry[512];
  uint64_t begin = 0;
  char entries[MODEL_WEIGHTS][512];
  for (uint32_t n = 0; n < MODEL_WEIGHTS; n++) {
    uint32_t i = (turn % 2 ? MODEL_WEIGHTS - 1 - n + turn : n + turn) % MODEL_WEIGHTS;
    const struct pen_weight *weight = &model.weights[i];
    int dtype = mixed ? (int)((turn + i) % 3) : DTYPE_F32;
    for (uint64_t j = 0; j < weight->count; j++) {
      put_value(data + begin + j * dtype_bytes[dtype], dtype,
                exact_value(i == 5 && head_is_embedding ? 0 : i, j));
    }
    uint64_t end = begin + weight->count * dtype_bytes[dtype];
    int two = weight->dim_count == 2;
    snprintf(entry, sizeof entry,
             ",\"%s\":{\"data_offsets\":[%llu,%llu],\"shape\":[%llu%s%.0llu],\"dtype\":\"%s\"}",
             weight->name, (unsigned long long)begin, (unsigned long long)end,
             (unsigned long long)weight->dim[0], two ? "," : "",
             two ? (unsigned long long)weight->dim[1] : 0, dtype_names[dtype]);
    strcpy(entries[i], entry);
    begin = end;
  }
  for (int i = 0; i < MODEL_WEIGHTS; i++) {
    strcat(header, entries[i]);
  }
  strcat(header, "}   ");
  uint64_t header_bytes = strlen(header);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  fwrite(&header_bytes, 8, 1, file);
  fwrite(header, 1, header_bytes, file);
  fwrite(data, 1, begin, file);
  assert_int_equal(fclose(file), 0);
}

/* A file of any header and so many bytes of data, all zero. */
static void write_raw(const char *path, const char *header, size_t data_bytes) {
  uint64_t header_bytes = strlen(header);
  unsigned char *bytes = calloc(1, 8 + header_bytes + data_bytes);
  memcpy(bytes, &header_bytes, 8);
  memcpy(bytes + 8, header, header_bytes);
  file_write(path, bytes, 8 + header_bytes + data_bytes);
  free(bytes);
}

static struct pen_texts some_ignored;

/* Loads everything, as all ranks would. */
static void load(void *path) {
  for (uint32_t rank = 0; rank < model.plan.rank_count; rank++) {
    unsigned char *arena = model_arena(&model, rank);
    MODEL_LOAD(&model.plan, rank, arena, pen_weights_load, path);
    free(arena);
  }
}

static void check(void *path) { pen_weights_check(&model.plan, path, &some_ignored); }

/* ---- good files ---- */

static void expect_loaded(const char *path) {
  for (uint32_t rank = 0; rank < model.plan.rank_count; rank++) {
    unsigned char *arena = model_arena(&model, rank), *before = model_arena(&model, rank);
    MODEL_LOAD(&model.plan, rank, arena, pen_weights_load, path);
    for (uint32_t i = 0; i < MODEL_WEIGHTS; i++) {
      const struct pen_weight *weight = &model.weights[i];
      for (uint64_t j = 0; j < weight->count && weight->rank == rank; j++) {
        float *at = (float *)(arena + weight->value_offset) + j;
        assert_true(*at == exact_value(i, j));
        memset(at, 0xee, sizeof *at);
      }
    }
    assert_memory_equal(arena, before,
                        model.memory[rank].arena_bytes); /* nothing else was touched */
    free(arena);
    free(before);
  }
}

static void any_order_any_dtype(void **state) {
  (void)state;
  for (uint32_t turn = 0; turn < 2 * MODEL_WEIGHTS; turn++) {
    model_make(&model, 1 + turn % MODEL_RANKS_MAX, turn);
    write_file("good.safetensors", turn, turn > 3);
    expect_loaded("good.safetensors");
    pen_weights_check(&model.plan, "good.safetensors", &some_ignored);
  }
  model_make(&model, 2, 0);
}

static void folder_with_model(void **state) {
  (void)state;
  assert_int_equal(mkdir("hub", 0777), 0);
  model_refused(66, check, "hub", "hub/model.safetensors", "No such file", NULL);
  write_file("hub/model.safetensors", 1, true);
  expect_loaded("hub");
  expect_loaded("hub/");
}

/* All 65,536 values of each half type, against arithmetic in f64. */
static void widening_is_exact(void **state) {
  (void)state;
  struct pen_weight weight = {
      .name = "w", .dim_count = 1, .dim = {65536}, .count = 65536, .bf16_offset = UINT64_MAX};
  model_whole(&weight);
  struct pen_plan plan = {.weights = &weight,
                          .weight_count = 1,
                          .rank_count = 1,
                          .replica_count = 1,
                          .tensor_ranks = 1,
                          .shard_ranks = 1};
  static uint16_t halves[65536];
  static float out[65536];
  for (int dtype = DTYPE_BF16; dtype <= DTYPE_F16; dtype++) {
    int exponent_bits = dtype == DTYPE_BF16 ? 8 : 5, fraction_bits = 15 - exponent_bits;
    int all_ones = (1 << exponent_bits) - 1, bias = all_ones >> 1;
    for (int i = 0; i < 65536; i++) { /* infinities and NaNs are refused: leave them out */
      halves[i] = (uint16_t)((i >> fraction_bits & all_ones) == all_ones ? 0 : i);
    }
    char header[256];
    snprintf(header, sizeof header,
             "{\"w\":{\"dtype\":\"%s\",\"shape\":[65536],\"data_offsets\":[0,131072]}}",
             dtype_names[dtype]);
    write_raw("half", header, 131072);
    FILE *file = fopen("half", "r+b");
    fseek(file, -131072, SEEK_END);
    assert_int_equal(fwrite(halves, 2, 65536, file), 65536);
    fclose(file);
    MODEL_LOAD(&plan, 0, (unsigned char *)out, pen_weights_load, "half");
    for (int i = 0; i < 65536; i++) {
      int exponent = halves[i] >> fraction_bits & all_ones,
          fraction = halves[i] & ((1 << fraction_bits) - 1);
      double value = exponent == 0
                         ? ldexp(fraction, 1 - bias - fraction_bits)
                         : ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
      assert_true((double)out[i] == (halves[i] >> 15 ? -value : value));
      assert_int_equal(signbit(out[i]) != 0, halves[i] >> 15);
    }
  }
}

/* ---- bad files ---- */

static void absent(void **state) {
  (void)state;
  model_refused(66, load, "nowhere", "nowhere: No such file", NULL);
  model_refused(66, load, "", "No such file", NULL);
  assert_int_equal(mkfifo("pipe", 0666), 0);
  model_refused(66, load, "pipe", "pipe: not a regular file", NULL);
  if (geteuid() != 0) {
    write_file("locked", 0, false);
    chmod("locked", 0);
    model_refused(66, load, "locked", "locked: Permission denied", NULL);
  }
}

/* Cut anywhere: the first bytes one by one, then at random. */
static void truncated(void **state) {
  (void)state;
  size_t count;
  write_file("whole", 0, true);
  unsigned char *bytes = file_read("whole", &count);
  srand(7);
  for (size_t i = 0, length; i < 120; i++) {
    length = i < 20 ? i : i < 60 ? (size_t)rand() % 900 : (size_t)rand() % count;
    length = i == 119 ? count - 1 : length;
    file_write("cut", bytes, length);
    model_refused(65, load, "cut", "cut: ", NULL);
  }
  bytes = realloc(bytes, count + 1);
  bytes[count] = 0;
  file_write("cut", bytes, count + 1);
  model_refused(65, load, "cut", "cut: 1 bytes after the last tensor", NULL);
  free(bytes);
}

struct bad_header {
  const char *header, *text;
  size_t data_bytes;
};

#define ENTRY(name, dtype, shape, begin, end)                                                  \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end \
  "]"                                                                                          \
  "}"

static const struct bad_header bad_headers[] = {
    {"", "header: ", 0},
    {"    ", "header: ", 0},
    {"{", "header: ", 0},
    {"[]", "header: no JSON object", 0},
    {"17", "header: ", 0},
    {"{} x", "header: ", 0},
    {"{\"a\":1}", "tensor a: its entry is no object", 0},
    {"{\"a\":{}}", "tensor a: no dtype", 0},
    {"{\"a\\u001b[31m\":{}}", "tensor a?[31m: no dtype", 0},
    {"{\"\xff\":{}}", "header: ", 0},
    {"{" ENTRY("model.embed_tokens.weight", "I64", "[37,8]", "0", "2368") "}",
     "tensor model.embed_tokens.weight: dtype I64: must be F32, BF16 or F16", 2368},
    {"{" ENTRY("a", "f32", "[1]", "0", "4") "}", "tensor a: dtype f32", 4},
    {"{\"a\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]}}", "tensor a: no dtype", 4},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", "tensor a: shape is no list", 4},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", "tensor a: data_offsets are no [begin, end]", 4},
    {"{" ENTRY("a", "F32", "3", "0", "4") "}", "tensor a: shape is no list", 4},
    {"{" ENTRY("a", "F32", "[-1]", "0", "4") "}", "tensor a: a dimension is no whole number", 4},
    {"{" ENTRY("a", "F32", "[1.0]", "0", "4") "}", "tensor a: a dimension is no whole number", 4},
    {"{" ENTRY("a", "F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", "tensor a: more than 8 dimensions",
     4},
    {"{" ENTRY("a", "F32", "[4294967296,4294967296]", "0", "0") "}",
     "tensor a: its shape overflows", 0},
    {"{" ENTRY("a", "F32", "[4611686018427387904]", "0", "0") "}",
     "tensor a: 0 bytes for 4611686018427387904", 0},
    {"{" ENTRY("a", "F32", "[99999999999999999999]", "0", "0") "}", "header: too big integer", 0},
    {"{" ENTRY("a", "F32", "[1e400]", "0", "0") "}", "header: ", 0},
    {"{" ENTRY("a", "F32", "[2]", "0", "4") "}", "tensor a: 4 bytes for 2 elements of F32", 4},
    {"{" ENTRY("a", "BF16", "[2]", "0", "8") "}", "tensor a: 8 bytes for 2 elements of BF16", 8},
    {"{" ENTRY("a", "F32", "[1]", "4", "0") "}", "tensor a: data_offsets are no [begin, end]", 4},
    {"{" ENTRY("a", "F32", "[1]", "-4", "0") "}", "tensor a: data_offsets are no [begin, end]", 4},
    {"{" ENTRY("a", "F32", "[1]", "0", "4,8") "}", "tensor a: data_offsets are no [begin, end]", 4},
    {"{" ENTRY("a", "F32", "[1]", "4", "8") "}", "tensor a: reaches past the end of the file", 4},
    {"{" ENTRY("a", "F32", "[1]", "9223372036854775800", "9223372036854775804") "}",
     "tensor a: reaches past the end", 4},
    {"{" ENTRY("a", "F32", "[1]", "4", "8") "}", "tensor a: a hole lies before it", 8},
    {"{" ENTRY("a", "F32", "[1]", "0", "4") "," ENTRY("b", "F32", "[1]", "8", "12") "}",
     "tensor b: a hole lies", 12},
    {"{" ENTRY("a", "F32", "[2]", "0", "8") "," ENTRY("b", "F32", "[1]", "4", "8") "}",
     "tensor b: overlaps tensor a", 8},
    {"{" ENTRY("a", "F32", "[1]", "0", "4") "," ENTRY("b", "F32", "[1]", "0", "4") "}",
     "overlaps tensor", 4},
    {"{" ENTRY("a", "F32", "[1]", "0", "4") "," ENTRY("a", "F32", "[1]", "4", "8") "}",
     "header: duplicate object key", 8},
    {"{" ENTRY("a", "F32", "[1]", "0", "4") "}", "4 bytes after the last tensor", 8},
    {"{" ENTRY("a", "F32", "[1]", "0", "4") "}", "tensor model.embed_tokens.weight: missing", 4},
    {"{}", "tensor model.embed_tokens.weight: missing", 0},
};

static void lying_headers(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof bad_headers / sizeof *bad_headers; i++) {
    write_raw("lie", bad_headers[i].header, bad_headers[i].data_bytes);
    model_refused(65, load, "lie", "lie: ", bad_headers[i].text, NULL);
    model_refused(65, check, "lie", "lie: ", bad_headers[i].text, NULL);
  }
}

static void lying_lengths(void **state) {
  (void)state;
  static const uint64_t lengths[] = {
      1, 99, 100000001, INT64_MAX, UINT64_MAX, UINT64_MAX - 7, UINT64_MAX - 8};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    file_write("length", &lengths[i], 8);
    model_refused(65, load, "length", "length: a header of", NULL);
  }
  write_raw("length", "{}", 0);
  assert_int_equal(truncate("length", 300000000), 0); /* a header of the wrong length, all there */
  FILE *file = fopen("length", "r+b");
  fwrite(&(uint64_t){200000000}, 8, 1, file);
  fclose(file);
  model_refused(65, load, "length", "length: a header of 200000000", NULL);
}

static void deep_header(void **state) {
  (void)state;
  enum { DEPTH = 1000000 };
  char *header = malloc(DEPTH + 16);
  strcpy(header, "{\"a\":");
  memset(header + 5, '[', DEPTH);
  header[DEPTH + 5] = 0;
  write_raw("deep", header, 0);
  model_refused(65, load, "deep", "deep: header: ", NULL);
  free(header);
}

/* The model of the file lacks a tensor, has one more, or one of another shape. */
static void other_models(void **state) {
  (void)state;
  struct checkpoint_model whole = model;
  write_file("file", 2, true);
  model.plan.weight_count = MODEL_WEIGHTS - 1;
  model_refused(65, check, "file", "file: tensor lm_head.weight: not a part of this model", NULL);
  model = whole;
  model.plan.weights = model.weights;
  model.weights[4].tensor = "model.norm.weight";
  model_refused(65, load, "file", "file: tensor model.norm.weight: missing", NULL);
  model.weights[4].tensor = whole.weights[4].tensor;
  model.weights[0].tensor_dim[0] = 8, model.weights[0].tensor_dim[1] = 37;
  model_refused(65, load, "file",
                "file: tensor model.embed_tokens.weight: shape [37, 8] where the model has [8, 37]",
                NULL);
  model.weights[0] = whole.weights[0];
  model.weights[1].dim_count = 2, model.weights[1].tensor_dim[1] = 1;
  model_refused(65, check, "file", "layernorm.weight: shape [8] where the model has [8, 1]", NULL);
  model.weights[1] = whole.weights[1];
}

/* What the model does not use is named, unless it is computed, ignored, or the embedding again. */
static void unused(void **state) {
  (void)state;
  struct checkpoint_model whole = model;
  const char *ignore[] = {"mlp.up_proj.weight", "model.layers.1", "lm_head.weight"};
  const struct pen_texts ignored = {ignore, 2};
  write_file("file", 0, true);
  model.plan.weight_count = 1;
  model_refused(65, check, "file",
                "file: 5 tensors are not a part of this model: lm_head.weight, "
                "model.layers.0.input_layernorm.weight, model.layers.0.mlp.up_proj.weight, ...\n",
                NULL);
  model.plan.weight_count = 2;
  model.plan.family = "llama";
  model.weights[4].name = "model.layers.0.self_attn.rotary_emb.inv_freq";
  write_file("file", 0, true);
  some_ignored = ignored;
  model_refused(65, check, "file", "file: tensor lm_head.weight: not a part of this model", NULL);
  const struct pen_tie tie = {.weight = 0};
  model.plan.ties = &tie, model.plan.tie_count = 1;
  model_refused(65, check, "file",
                "file: tensor lm_head.weight: differs from model.embed_tokens.weight, but", NULL);
  head_is_embedding = true;
  write_file("file", 0, true); /* of another dtype */
  check("file");
  head_is_embedding = false;
  write_file("file", 0, true);
  some_ignored.count = 3;
  check("file");
  some_ignored.count = 0;
  model = whole;
}

/* One element of one tensor of a file becomes not finite; each dtype meets its turn. */
static void not_finite(void **state) {
  (void)state;
  for (uint32_t i = 0; i < MODEL_WEIGHTS; i++) {
    for (int kind = 0; kind < 3; kind++) {
      write_file("nan", 0, true);
      size_t count;
      unsigned char *bytes = file_read("nan", &count);
      const struct pen_weight *weight = &model.weights[i];
      int dtype = (int)(i % 3);
      char *entry = strstr((char *)bytes + 8, weight->name), expected[64];
      uint64_t begin = strtoull(strchr(entry, '[') + 1, NULL, 10), header_bytes,
               index = weight->count * (unsigned)kind / 3;
      memcpy(&header_bytes, bytes, 8);
      unsigned char *at = bytes + 8 + header_bytes + begin + index * dtype_bytes[dtype];
      float value = kind == 0 ? NAN : INFINITY;
      put_value(at, dtype, value);
      if (dtype == DTYPE_F16) {
        memcpy(at, kind == 0 ? "\x01\xfc" : "\x00\x7c", 2);
      }
      file_write("nan", bytes, count);
      free(bytes);
      snprintf(expected, sizeof expected, "element %llu is %s", (unsigned long long)index,
               kind == 0 ? "not a number" : "infinite");
      model_refused(65, load, "nan", weight->name, expected, NULL);
      check("nan"); /* reads no values */
    }
  }
}

/* Any byte of the header changed to any other: loads, or is refused by name; never a crash, and
 * never out of bounds (ASan). */
static void random_damage(void **state) {
  (void)state;
  size_t count;
  write_file("whole", 0, true);
  unsigned char *bytes = file_read("whole", &count);
  srand(11);
  for (int i = 0; i < 400; i++) {
    size_t at = (size_t)rand() % 900;
    unsigned char before = bytes[at];
    bytes[at] = (unsigned char)rand();
    file_write("damaged", bytes, count);
    int status = model_run(load, "damaged");
    if (status != 0 && (status != 65 || strstr(said, "damaged: ") == NULL)) {
      fail_msg("byte %zu = %d: status %d: %s", at, bytes[at], status, said);
    }
    bytes[at] = before;
  }
  free(bytes);
}

static int setup(void **state) {
  model_make(&model, 2, 0);
  return model_setup(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_order_any_dtype), cmocka_unit_test(folder_with_model),
      cmocka_unit_test(widening_is_exact),   cmocka_unit_test(absent),
      cmocka_unit_test(truncated),           cmocka_unit_test(lying_headers),
      cmocka_unit_test(lying_lengths),       cmocka_unit_test(deep_header),
      cmocka_unit_test(other_models),        cmocka_unit_test(unused),
      cmocka_unit_test(not_finite),          cmocka_unit_test(random_damage),
  };
  return cmocka_run_group_tests_name("safetensors", tests, setup, model_teardown);
}
