/* digest.c: the plan's digest, which all ranks compare at start: ranks with different plans would
 * write into each other's memory at places that mean something else, so they leave with status 76
 * instead.
 *
 * SHA-256 (FIPS 180-4, by nettle) over, in this order:
 *
 *   1. the settled settings in canonical text (canonical.c), and the generator's version
 *   2. every table in the order of pen_tables_each(): its type, its profile, how many rows; then
 * row by row the columns of columns.c
 *   3. the headers of the checkpoint's files
 *
 * Numbers enter with their lowest byte first, as many bytes as the column has, and texts behind
 * their length: so neither padding, nor how C lays out a struct, nor the byte order of the machine,
 * nor how emit_tables.c writes a row enters. Nor do comments, paths, or the simulated times. A
 * column that is missing from columns.c would escape; tests/gen/emit.c changes each in turn and
 * sees that the digest does, too. (The model's digest, which checkpoints compare, is another: over
 * what fixes the weights' names, shapes and meaning, see files.c.) */
#include <endian.h>
#include <string.h>

#include <nettle/sha2.h>

#include "gen/emit/columns.h"
#include "gen/emit/plan_c.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "runtime/plan/plan.h"

enum { BUFFER_BYTES = 1 << 13, COLUMNS_MAX = 32, SHORT_BYTES = 32 };

struct hashing {
  struct sha256_ctx hash;
  size_t used;
  uint8_t buffer[BUFFER_BYTES];
};

static void flush(struct hashing *h) {
  sha256_update(&h->hash, h->used, h->buffer);
  h->used = 0;
}

static void add_bytes(struct hashing *h, const void *bytes, size_t count) {
  if (h->used + count > BUFFER_BYTES) flush(h);
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

/* A text with its length before it, so that two texts never run together. */
static void add_text(struct hashing *h, const char *text) {
  size_t length = strlen(text);
  add_number(h, length);
  add_bytes(h, text, length);
}

/* What of a row stands side by side: numbers, each with its lowest byte first, or a text. */
struct run {
  size_t offset, bytes, width; /* of all, and of one number; 0: a text */
  bool is_short;               /* numbers that enter as they lie, SHORT_BYTES at most */
};

/* Numbers enter as they lie in memory where that has the lowest byte first; so columns side by side
 * are one run there. */
static size_t find_runs(const struct pen_schema *form, struct run run[COLUMNS_MAX]) {
  size_t count = 0;
  if (form->column_count > COLUMNS_MAX)
    pen_stop(70, "penstock-gen: this is our bug: %s has more than %d columns", form->type,
             COLUMNS_MAX);
  for (const struct pen_column *column = form->column; column < form->column + form->column_count;
       column++) {
    size_t bytes = column->bytes * (column->count ? column->count : 1),
           width = column->format == PEN_AS_TEXT ? 0 : column->bytes;
    struct run *last = count ? &run[count - 1] : NULL;
    bool joins = last && width && last->width && last->offset + last->bytes == column->offset;
    if (joins && (BYTE_ORDER == LITTLE_ENDIAN || last->width == width))
      last->bytes += bytes;
    else
      run[count++] = (struct run){column->offset, bytes, width, false};
  }
  for (size_t n = 0; n < count; n++)
    run[n].is_short = BYTE_ORDER == LITTLE_ENDIAN && run[n].width && run[n].bytes <= SHORT_BYTES;
  return count;
}

/* Of a row of a table that ends at `table_past`. */
static inline void add_run(struct hashing *h, const struct run *run, const char *row,
                           const char *table_past) {
  const char *at = row + run->offset, *past = at + run->bytes;
  if (run->is_short && table_past - at >= SHORT_BYTES && h->used <= BUFFER_BYTES - SHORT_BYTES) {
    memcpy(h->buffer + h->used, at,
           SHORT_BYTES); /* a count that the compiler knows; what is too much is written over */
    h->used += run->bytes;
  } else if (!run->width)
    add_text(h, *(const char *const *)(const void *)at);
  else if (BYTE_ORDER == LITTLE_ENDIAN)
    add_bytes(h, at, run->bytes);
  else
    for (; at < past; at += run->width)
      for (size_t byte = run->width; byte-- > 0;) add_bytes(h, at + byte, 1);
}

static void add_table(const struct pen_table *table, void *context) {
  struct hashing *h = context;
  struct run run[COLUMNS_MAX];
  size_t runs = find_runs(table->form, run);
  add_text(h, table->form->type);
  add_text(h, table->profile ? table->profile->name : "");
  add_number(h, table->count);
  if (runs == 1 && run->width && run->bytes == table->form->row_bytes &&
      BYTE_ORDER == LITTLE_ENDIAN) { /* so are the rows, then */
    add_bytes(h, table->rows, table->count * run->bytes);
    return;
  }
  const char *row = table->rows, *past = row + table->count * table->form->row_bytes;
  for (; row < past; row += table->form->row_bytes)
    for (size_t n = 0; n < runs; n++) add_run(h, &run[n], row, past);
}

void pen_plan_digest(struct pen_plan *plan) {
  struct hashing *h = pen_new(1, sizeof *h);
  sha256_init(&h->hash);
  add_text(h, plan->settings);
  add_text(h, plan->version);
  pen_tables_each(plan, add_table, h);
  add_text(h, plan->model_header);
  add_text(h, plan->optimizer_header);
  flush(h);
  sha256_digest(&h->hash, PEN_DIGEST_BYTES, plan->digest);
}
