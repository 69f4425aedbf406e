/* token_file.c: opens token files. */
#include "runtime/data/token_file.h"

#include <inttypes.h>
#include <nettle/sha2.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_kinds.h"
#include "runtime/base/check.h"
#include "runtime/base/mailbox.h"
#include "runtime/base/crc32.h"
#include "runtime/base/key.h"
#include "runtime/data/mapped_file.h"
#include "runtime/data/npy_file.h"
#include "runtime/data/target_mask.h"
#include "runtime/data/windows.h"

enum {
  HEADER_INTS = 256,
  HEADER_BYTES = 4 * HEADER_INTS,
  HEADER_SHORTEST_BYTES = 8,
  HAS_MASK_AT = 12, /* 1: a mask follows the tokens */
  MASK_CRC_AT = 16,
};

/* llm.c's headers: of tokens of 16 bits, and of those of 32 bits, as its Llama 3 has them. */
static const struct plain {
  int32_t magic, version;
  uint32_t token_bytes;
} plains[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static int32_t little_endian_i32(const unsigned char *from) {
  return (int32_t)((uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
                   (uint32_t)from[3] << 24);
}

uint32_t pen_data_token(const struct pen_data *data, uint64_t index) {
  const unsigned char *from = data->tokens + index * data->token_bytes;
  const uint32_t low = (uint32_t)from[0] | (uint32_t)from[1] << 8;
  if (data->token_bytes == 2) {
    return low;
  }
  const bool fits =
      data->token_bytes == 4 || (from[4] == 0 && from[5] == 0 && from[6] == 0 && from[7] == 0);
  return fits ? low | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24 : UINT32_MAX;
}

static void check_kind(enum pen_file_use use, const char *path, const unsigned char *file,
                       uint64_t file_bytes) {
  const struct pen_file_kind *kind = pen_file_kind_of(
      use, path, file, file_bytes < PEN_FILE_KIND_BYTES ? file_bytes : PEN_FILE_KIND_BYTES);
  if (kind != NULL) {
    pen_fail(PEN_EXIT_DATA, "%s: %s: %s", path, kind->name, kind->advice);
  }
}

/* A plain file, of at least HEADER_SHORTEST_BYTES. */
struct plain_file {
  const char *path;
  const unsigned char *bytes;
  uint64_t byte_count;
  uint32_t ids_bits;
};

/* The bytes of a token by the file's header; 0: it has none. */
static uint32_t header_token_bytes(const struct plain_file *file) {
  const int32_t magic = little_endian_i32(file->bytes),
                version = little_endian_i32(file->bytes + 4);
  for (size_t i = 0; i < sizeof plains / sizeof plains[0]; i++) {
    if (magic == plains[i].magic && version == plains[i].version) {
      return plains[i].token_bytes;
    }
  }
  return 0;
}

static bool has_header(const struct plain_file *file) { return header_token_bytes(file) > 0; }

static void check_header_bytes(const struct plain_file *file) {
  if (file->byte_count < HEADER_BYTES) {
    pen_fail(PEN_EXIT_DATA, "%s: %" PRIu64 " bytes: a token file has a header of %d bytes",
             file->path, file->byte_count, HEADER_BYTES);
  }
}

/* Checks the header, and sets where tokens and mask are; returns the count of tokens. */
static uint64_t take_header(struct pen_data *data, const struct plain_file *file) {
  const char *path = file->path;
  const unsigned char *header = file->bytes;
  const uint64_t file_bytes = file->byte_count;
  check_header_bytes(file);
  data->token_bytes = header_token_bytes(file);
  const int32_t count = little_endian_i32(header + 8);
  uint64_t tokens = count < 0 ? 0 : (uint64_t)count;
  bool has_mask = little_endian_i32(header + HAS_MASK_AT) == 1;
  uint64_t expected =
      HEADER_BYTES + tokens * data->token_bytes + (has_mask ? pen_target_mask_bytes(tokens) : 0);
  if (count < 0 || file_bytes != expected) {
    pen_fail(PEN_EXIT_DATA,
             "%s: %" PRIu64 " bytes: its header counts %d tokens%s, which take %" PRIu64 " bytes",
             path, file_bytes, count, has_mask ? " and a mask" : "", expected);
  }
  data->tokens = header + HEADER_BYTES;
  data->mask = has_mask ? header + HEADER_BYTES + tokens * data->token_bytes : NULL;
  return tokens;
}

static bool is_array(const struct plain_file *file) { return pen_npy_begins(file->bytes); }

/* The same for a NumPy array, which has no mask. */
static uint64_t take_array(struct pen_data *data, const struct plain_file *file) {
  const struct pen_npy array = pen_npy_read(file->path, file->bytes, file->byte_count);
  data->token_bytes = array.number_bytes;
  data->tokens = array.numbers;
  return array.count;
}

static bool has_index(const struct plain_file *file) {
  char *index_path = pen_indexed_find(file->path);
  const bool found = index_path != NULL;
  free(index_path);
  return found;
}

/* The same for Megatron-LM's. */
static uint64_t take_indexed(struct pen_data *data, const struct plain_file *file) {
  const char *index_path = pen_indexed_find(file->path);
  uint64_t index_bytes;
  const unsigned char *index = pen_map_file(index_path, &index_bytes);
  data->indexed = pen_indexed_read(file->path, file->byte_count, index_path, index, index_bytes);
  data->token_bytes = data->indexed.number_bytes;
  data->tokens = file->bytes;
  return data->indexed.token_count;
}

static bool has_ids(const struct plain_file *file) { return file->ids_bits > 0; }

/* The same for ids without a header. */
static uint64_t take_ids(struct pen_data *data, const struct plain_file *file) {
  check_kind(PEN_FILE_IDS, file->path, file->bytes, file->byte_count);
  data->token_bytes = file->ids_bits / 8;
  data->tokens = file->bytes;
  if (file->byte_count % data->token_bytes != 0) {
    pen_fail(PEN_EXIT_DATA,
             "%s: %" PRIu64 " bytes: ids of %" PRIu32 " bits have %" PRIu32 " bytes each",
             file->path, file->byte_count, file->ids_bits, data->token_bytes);
  }
  return file->byte_count / data->token_bytes;
}

static bool is_unknown(const struct plain_file *file) {
  (void)file;
  return true;
}

static uint64_t refuse(struct pen_data *data, const struct plain_file *file) {
  const unsigned char *header = file->bytes;
  (void)data;
  check_kind(PEN_FILE_TOKENS, file->path, header, file->byte_count);
  check_header_bytes(file);
  pen_fail(PEN_EXIT_DATA,
           "%s: not a token file: it starts with %d, version %d; expected %d, version %d, or %d, "
           "version %d, or %s or %s",
           file->path, little_endian_i32(header), little_endian_i32(header + 4), plains[0].magic,
           plains[0].version, plains[1].magic, plains[1].version, PEN_PACKED_MAGIC,
           PEN_PACKED_MASKED_MAGIC);
}

/* The formats of plain files. The first row that fits counts. */
static const struct format {
  bool (*fits)(const struct plain_file *file);
  uint64_t (*take)(struct pen_data *data, const struct plain_file *file);
} formats[] = {{is_array, take_array},
               {has_header, take_header},
               {has_index, take_indexed},
               {has_ids, take_ids},
               {is_unknown, refuse}};

static uint64_t take_tokens(struct pen_data *data, const struct plain_file *file) {
  size_t f = 0;
  while (!formats[f].fits(file)) f++;
  return formats[f].take(data, file);
}

static void check_mask(struct pen_data *data, const char *path, const unsigned char *header) {
  uint32_t expected = (uint32_t)little_endian_i32(header + MASK_CRC_AT);
  data->mask_crc = pen_crc32(0, data->mask, pen_target_mask_bytes(data->token_count));
  if (data->mask_crc != expected) {
    pen_fail(PEN_EXIT_DATA, "%s: damaged mask: checksum %08" PRIx32 ", header says %08" PRIx32,
             path, data->mask_crc, expected);
  }
}

static _Noreturn void fail_no_target(const char *path) {
  pen_fail(PEN_EXIT_DATA, "%s: no window has a target that counts: its mask has none", path);
}

static void take_plain(struct pen_data *data, const struct plain_file *file) {
  const char *path = file->path;
  const uint64_t count = take_tokens(data, file), targets = count == 0 ? 0 : count - 1;
  data->token_count = count;
  data->window_count = targets / data->sequence + (data->to_end && targets % data->sequence > 0);
  if (data->to_end && targets == 0) {
    pen_fail(PEN_EXIT_DATA, "%s: %" PRIu64 " tokens: at least 2 are needed to score one", path,
             count);
  }
  if (data->window_count == 0) {
    pen_fail(PEN_EXIT_DATA,
             "%s: %" PRIu64 " tokens: one window of sequence %" PRIu64 " needs %" PRIu64, path,
             count, data->sequence, data->sequence + 1);
  }
  if (data->mask != NULL) {
    check_mask(data, path, file->bytes);
    if (pen_data_targets(data, 0, data->window_count) == 0) {
      fail_no_target(path);
    }
  }
}

/* What the file holds must fit what the plan was made for. */
static void take_packed(struct pen_data *data, const struct pen_plan *plan, const char *path,
                        const unsigned char *file, uint64_t file_bytes) {
  pen_packed_check(&data->packed, path, file, file_bytes);
  const struct pen_packed_header *header = data->packed.header;
  if (header->window_count == 0) {
    pen_fail(PEN_EXIT_DATA, "%s: it has no windows", path);
  }
  if (header->longest > data->sequence) {
    pen_fail(PEN_EXIT_DATA,
             "%s: windows of up to %" PRIu32 " tokens: sequences of this binary hold %" PRIu64,
             path, header->longest, data->sequence);
  }
  for (uint64_t w = 0; w < header->window_count && !plan->packed; w++) {
    if (data->packed.windows[w].document_count > 1) {
      pen_fail(PEN_EXIT_DATA,
               "%s: window %" PRIu64 " holds %" PRIu32
               " documents: this binary was built with batch.packed = false",
               path, w, data->packed.windows[w].document_count);
    }
  }
  if (header->target_count == 0 && data->packed.mask != NULL) {
    fail_no_target(path);
  }
  if (header->target_count == 0) {
    pen_fail(PEN_EXIT_DATA,
             "%s: no window has a target: each of its %" PRIu64
             " documents is one token, and a target has one before it",
             path, header->document_count);
  }
  data->token_bytes = header->token_bytes;
  data->window_count = header->window_count;
  data->tokens = data->packed.tokens;
  data->mask = data->packed.mask;
  data->mask_crc = data->mask == NULL ? 0 : header->index_crc;
}

/* Hashes the header, which has the checksums of a packed file's windows, and 64 blocks from the
 * first byte to the last; of a file that is not longer than these, all. */
static void hash_file(struct sha256_ctx *hash, const unsigned char *file, uint64_t bytes) {
  enum { BLOCKS = 64, BLOCK_BYTES = 4096 };
  if (bytes <= BLOCKS * BLOCK_BYTES) {
    sha256_update(hash, bytes, file);
    return;
  }
  sha256_update(hash, HEADER_BYTES, file);
  for (uint64_t i = 0; i < BLOCKS; i++) {
    sha256_update(hash, BLOCK_BYTES, file + (bytes - BLOCK_BYTES) / (BLOCKS - 1) * i);
  }
  sha256_update(hash, BLOCK_BYTES, file + bytes - BLOCK_BYTES);
}

/* The file and its index, then the bytes of an id where nothing in the file itself says them. */
static struct pen_data_file_id identify(const struct pen_data *data, const unsigned char *file,
                                        uint64_t bytes) {
  struct pen_data_file_id id = {.bytes = bytes};
  struct sha256_ctx hash;
  sha256_init(&hash);
  hash_file(&hash, file, bytes);
  if (data->indexed.index != NULL) {
    hash_file(&hash, data->indexed.index, data->indexed.index_bytes);
  }
  if (data->tokens == file) {
    sha256_update(&hash, sizeof data->token_bytes, (const uint8_t *)&data->token_bytes);
  }
  sha256_digest(&hash, sizeof id.checksum, id.checksum);
  return id;
}

static void open_tokens(struct pen_data *data, const struct pen_plan *plan, const char *path,
                        uint32_t ids_bits) {
  uint64_t bytes;
  const unsigned char *file = pen_map_file(path, &bytes);
  const bool by_name = plan->input_count > 0 && !data->to_end;
  if (bytes < HEADER_SHORTEST_BYTES && ids_bits > 0) {
    pen_fail(PEN_EXIT_DATA, "%s: %" PRIu64 " bytes: too short for a window", path, bytes);
  }
  if (bytes < HEADER_SHORTEST_BYTES && !by_name) {
    pen_fail(PEN_EXIT_DATA, "%s: %" PRIu64 " bytes: a token file has a header of %d bytes", path,
             bytes, HEADER_BYTES);
  }
  data->path = path;
  if (by_name) {
    data->named =
        pen_named_inputs_open(plan, data->sequence, path, file, bytes, &data->window_count);
    data->named_targets = pen_named_targets(data->named, plan->input_count);
    data->tokens = file;
  } else if (memcmp(file, PEN_PACKED_MAGIC, HEADER_SHORTEST_BYTES) == 0 ||
             memcmp(file, PEN_PACKED_MASKED_MAGIC, HEADER_SHORTEST_BYTES) == 0) {
    take_packed(data, plan, path, file, bytes);
  } else {
    take_plain(data, &(struct plain_file){path, file, bytes, ids_bits});
  }
  if (!data->to_end && plan->loss_group > 1 && data->window_count % plan->loss_group != 0) {
    pen_fail(PEN_EXIT_DATA,
             "%s: %" PRIu64
             " samples: a multiple of %u, which the loss takes together "
             "(batch.loss_group)",
             path, data->window_count, plan->loss_group);
  }
  data->file = identify(data, file, bytes);
}

static void open_data(struct pen_data *data, const struct pen_plan *plan, uint64_t sequence,
                      const char *path, uint32_t ids_bits, uint64_t seed, bool to_end) {
  *data = (struct pen_data){.sequence = sequence,
                            .vocab = plan->vocab,
                            .microbatch = plan->microbatch,
                            .loss_is_sum = !plan->loss_is_mean && plan->share_count == 0,
                            .order = {.group = plan->loss_group},
                            .shares = plan->shares,
                            .share_count = plan->share_count,
                            .loss_of_microbatch = plan->loss_of_microbatch,
                            .to_end = to_end};
  pen_key(data->normal_key[0], seed, "x");
  pen_key(data->normal_key[1], seed, "y");
  if (path != NULL) {
    open_tokens(data, plan, path, ids_bits);
  }
}

void pen_data_open(struct pen_data *data, const struct pen_plan *plan, uint64_t sequence,
                   const char *path, uint32_t ids_bits, uint64_t seed) {
  open_data(data, plan, sequence, path, ids_bits, seed, false);
}

void pen_data_open_to_end(struct pen_data *data, const struct pen_plan *plan, uint64_t sequence,
                          const char *path, uint32_t ids_bits, uint64_t seed) {
  open_data(data, plan, sequence, path, ids_bits, seed, true);
}

void pen_data_open_given(struct pen_data *data, const struct pen_plan *plan, uint64_t sequence,
                         uint64_t seed, const struct pen_named_input *named, uint32_t named_count,
                         uint64_t samples) {
  pen_data_open(data, plan, sequence, NULL, 0, seed);
  if (samples > 0) {
    data->path = PEN_CALLER_SAMPLES;
    data->window_count = samples;
    data->named = named;
    data->named_targets = pen_named_targets(named, named_count);
  }
}

struct pen_data_file_id pen_data_identify(const struct pen_data_file_id *ids, uint64_t count) {
  struct pen_data_file_id all = {.bytes = 0};
  struct sha256_ctx hash;
  if (count == 1) {
    return ids[0];
  }
  sha256_init(&hash);
  for (uint64_t i = 0; i < count; i++) {
    all.bytes += ids[i].bytes;
    sha256_update(&hash, sizeof ids[i].bytes, (const uint8_t *)&ids[i].bytes);
    sha256_update(&hash, sizeof ids[i].checksum, ids[i].checksum);
    sha256_update(&hash, ids[i].weight > 0 ? sizeof ids[i].weight : 0,
                  (const uint8_t *)&ids[i].weight);
  }
  if (count > 0) {
    sha256_digest(&hash, sizeof all.checksum, all.checksum);
  }
  return all;
}

void pen_data_open_files(struct pen_data *data, const struct pen_plan *plan, uint64_t sequence,
                         const struct pen_texts *paths, const uint64_t *weights, uint32_t ids_bits,
                         uint64_t seed) {
  const size_t count = paths->count;
  if (count < 2) {
    pen_data_open(data, plan, sequence, count == 0 ? NULL : paths->text[0], ids_bits, seed);
    return;
  }
  if (count > PEN_DATA_FILES_MAX) {
    pen_fail(PEN_EXIT_USAGE, "%s: one of %zu files of the data; at most %d are allowed",
             paths->text[0], count, PEN_DATA_FILES_MAX);
  }
  struct pen_data *files = pen_allocate(count, sizeof *files, "%zu files", count);
  struct pen_data_file_id *ids = pen_allocate(count, sizeof *ids, "%zu files", count);
  uint64_t *first = pen_allocate(count + 1, sizeof *first, "%zu files", count);
  pen_data_open(data, plan, sequence, NULL, 0, seed);
  first[0] = 0;
  for (size_t i = 0; i < count; i++) {
    pen_data_open(&files[i], plan, sequence, paths->text[i], ids_bits, seed);
    ids[i] = files[i].file;
    ids[i].weight = weights == NULL ? 0 : weights[i];
    first[i + 1] = first[i] + files[i].window_count;
    data->token_count += files[i].token_count;
    data->mask_crc += files[i].mask_crc;
  }
  const size_t name_bytes = strlen(paths->text[0]) + 40;
  char *name = pen_allocate(name_bytes, 1, "a name");
  snprintf(name, name_bytes, "%s and %zu more file%s", paths->text[0], count - 1,
           count == 2 ? "" : "s");
  data->path = name;
  data->tokens = files[0].tokens;
  data->named = files[0].named;
  data->file = pen_data_identify(ids, count);
  data->files = files;
  data->ids = ids;
  data->first_window = first;
  data->file_count = (uint32_t)count;
  data->window_count = first[count];
  if (weights != NULL && plan->loss_group > 1) {
    pen_fail(PEN_EXIT_USAGE,
             "a blend of files: the loss takes %u consecutive samples together (batch.loss_group)",
             plan->loss_group);
  }
  if (weights != NULL) {
    data->blend = pen_blend_make(weights, data->file_count);
    data->window_count = PEN_BLEND_WINDOWS;
  }
}

/* The same windows stay together. */
static void shuffle(struct pen_data *data, uint64_t seed, uint32_t file) {
  const uint32_t group = data->order.group;
  data->order = pen_window_order_shuffled(seed, file);
  data->order.group = group;
}

void pen_data_shuffle(struct pen_data *data, uint64_t seed) {
  shuffle(data, seed, 0);
  for (uint32_t f = 0; f < data->file_count; f++) {
    shuffle(&data->files[f], seed, f);
  }
}
