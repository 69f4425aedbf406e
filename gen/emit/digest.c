/* digest.c: the plan's digest, which all ranks compare at startup. Ranks with different plans would
 * write into each other's arenas at wrong offsets; they exit with status 76 instead.
 *
 * SHA-256 (FIPS 180-4, by nettle) of, in this order:
 *
 *   1. the resolved settings in canonical text, and the version of penstock-gen
 *   2. every table in the order of pen_tables_each(): its type, its profile, the number of rows,
 *      then row by row the columns
 *   3. the headers of the checkpoint files
 *
 * With fallbacks it is that of the digests of all plans of the binary, the main one's first.
 *
 * A number is little-endian, as wide as its column; a text has its length before it. So padding,
 * the byte order of the machine and the form of the emitted C have no effect, nor have comments,
 * paths, the deployment's name or the predicted times. (Checkpoints compare another digest, that of
 * the model: names, shapes and meaning of the weights. See gen/layout/checkpoint_files.c.) */
#include <endian.h>
#include <string.h>

#include <nettle/sha2.h>

#include "gen/emit/columns.h"
#include "gen/emit/emit.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "runtime/plan/plan.h"

enum { BUFFER_BYTES = 1 << 13, COLUMNS_MAX = 48, SHORT_BYTES = 32 };

struct hashing {
  struct sha256_ctx hash;
  size_t used;
  uint8_t buffer[BUFFER_BYTES];
};

static void hash_buffer(struct hashing *h) {
  sha256_update(&h->hash, h->used, h->buffer);
  h->used = 0;
}

static void add_bytes(struct hashing *h, const void *bytes, size_t count) {
  if (h->used + count > BUFFER_BYTES) hash_buffer(h);
  if (count > BUFFER_BYTES) {
    sha256_update(&h->hash, count, bytes);
    return;
  }
  memcpy(h->buffer + h->used, bytes, count);
  h->used += count;
}

static void add_number(struct hashing *h, uint64_t value) {
  value = htole64(value);
  add_bytes(h, &value, sizeof value);
}

static void add_text(struct hashing *h, const char *text) {
  size_t length = strlen(text);
  add_number(h, length);
  add_bytes(h, text, length);
}

/* Adjacent numbers of a row, or a text. On a little-endian machine adjacent columns of any width
 * are hashed as they are in memory. */
struct run {
  size_t offset, bytes;          /* of all numbers */
  size_t width;                  /* of one number; 0: a text */
  bool is_short;                 /* at most SHORT_BYTES, hashed as they are in memory */
  const struct pen_column *text; /* the text's */
};

static bool is_text(const struct pen_column *column) {
  return column->format == PEN_AS_TEXT || column->format >= PEN_AS_DEVICE;
}

static size_t find_runs(const struct pen_schema *schema, struct run run[COLUMNS_MAX]) {
  size_t count = 0;
  if (schema->column_count > COLUMNS_MAX)
    pen_stop(PEN_EXIT_INTERNAL, "penstock-gen: internal error: %s has more than %d columns",
             schema->type, COLUMNS_MAX);
  for (const struct pen_column *column = schema->column;
       column < schema->column + schema->column_count; column++) {
    size_t bytes = column->bytes * pen_column_values(column),
           width = is_text(column) ? 0 : column->bytes;
    struct run *last = count ? &run[count - 1] : NULL;
    bool joins = last && width && last->width && last->offset + last->bytes == column->offset;
    if (joins && (BYTE_ORDER == LITTLE_ENDIAN || last->width == width))
      last->bytes += bytes;
    else
      run[count++] = (struct run){column->offset, bytes, width, false, column};
  }
  for (size_t n = 0; n < count; n++)
    run[n].is_short = BYTE_ORDER == LITTLE_ENDIAN && run[n].width && run[n].bytes <= SHORT_BYTES;
  return count;
}

/* Adds a run of a row, of a table that ends at `table_end`. A short run is copied with a constant
 * size, which is faster; the next run overwrites the surplus. */
static inline void add_run(struct hashing *h, const struct run *run, const char *row,
                           const char *table_end) {
  const char *at = row + run->offset, *end = at + run->bytes;
  if (run->is_short && table_end - at >= SHORT_BYTES && h->used <= BUFFER_BYTES - SHORT_BYTES) {
    memcpy(h->buffer + h->used, at, SHORT_BYTES);
    h->used += run->bytes;
  } else if (!run->width)
    add_text(h, pen_column_text(run->text, row));
  else if (BYTE_ORDER == LITTLE_ENDIAN)
    add_bytes(h, at, run->bytes);
  else
    for (; at < end; at += run->width)
      for (size_t byte = run->width; byte-- > 0;) add_bytes(h, at + byte, 1);
}

static void add_table(const struct pen_table *table, void *context) {
  struct hashing *h = context;
  struct run run[COLUMNS_MAX];
  const struct pen_schema *schema = table->schema;
  size_t runs = find_runs(schema, run);
  add_text(h, schema->type);
  add_text(h, table->profile ? table->profile->name : "");
  add_number(h, table->count);
  if (runs == 1 && run->width && run->bytes == schema->row_bytes && BYTE_ORDER == LITTLE_ENDIAN) {
    add_bytes(h, table->rows, table->count * run->bytes); /* rows are adjacent, too */
    return;
  }
  const char *row = table->rows, *end = row + table->count * schema->row_bytes;
  for (; row < end; row += schema->row_bytes)
    for (size_t n = 0; n < runs; n++) add_run(h, &run[n], row, end);
}

void pen_plan_digest(struct pen_plan *plan) {
  struct hashing *h = pen_new(1, sizeof *h);
  sha256_init(&h->hash);
  add_text(h, plan->settings);
  add_text(h, plan->version);
  pen_tables_each(plan, add_table, h);
  add_text(h, plan->model_header);
  add_text(h, plan->optimizer_header);
  hash_buffer(h);
  sha256_digest(&h->hash, PEN_DIGEST_BYTES, plan->digest);
}

void pen_plan_add_fallbacks(struct pen_plan *plan, struct pen_plan *fallbacks, uint32_t count) {
  struct sha256_ctx hash;
  plan->fallbacks = fallbacks;
  plan->fallback_count = count;
  if (count == 0) return;
  sha256_init(&hash);
  sha256_update(&hash, PEN_DIGEST_BYTES, plan->digest);
  for (uint32_t f = 0; f < count; f++) sha256_update(&hash, PEN_DIGEST_BYTES, fallbacks[f].digest);
  sha256_digest(&hash, PEN_DIGEST_BYTES, plan->digest);
  for (uint32_t f = 0; f < count; f++) memcpy(fallbacks[f].digest, plan->digest, PEN_DIGEST_BYTES);
}
