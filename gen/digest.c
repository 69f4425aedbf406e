/* digest.c: the plan's digest, which all ranks compare at start: SHA-256 over the settled settings, the generator's version, and the
 * tables column by column, so that neither how C lays out a struct nor how we write a row enters. */
#include <endian.h>
#include <string.h>

#include <nettle/sha2.h>

#include "gen/columns.h"
#include "gen/emit.h"

enum { BUFFER_BYTES = 1 << 16, VALUE_BYTES = 8 };

struct hashing {
  struct sha256_ctx hash;
  size_t used;
  uint8_t buffer[BUFFER_BYTES];
};

static void flush(struct hashing *h) {
  sha256_update(&h->hash, h->used, h->buffer);
  h->used = 0;
}

/* Appends the low bytes of a number, the lowest first. */
static inline void add(struct hashing *h, uint64_t value, size_t bytes) {
  if (h->used + VALUE_BYTES > BUFFER_BYTES) flush(h);
  value = htole64(value);
  memcpy(h->buffer + h->used, &value, sizeof value);
  h->used += bytes;
}

/* A text with its length before it, so that two texts never run together. */
static void add_text(struct hashing *h, const char *text) {
  size_t length = strlen(text);
  add(h, length, VALUE_BYTES);
  flush(h);
  sha256_update(&h->hash, length, (const uint8_t *)text);
}

static void add_row(struct hashing *h, const struct pen_form *form, const char *row) {
  for (const struct pen_column *column = form->column; column < form->column + form->column_count; column++) {
    if (column->format == PEN_AS_TEXT) {
      add_text(h, *(const char *const *)(row + column->offset));
      continue;
    }
    size_t count = column->count ? column->count : 1;
    for (size_t index = 0; index < count; index++) add(h, pen_column_value(column, row, index), column->bytes);
  }
}

static void add_table(const struct pen_table *table, void *context) {
  struct hashing *h = context;
  add_text(h, table->form->type);
  add_text(h, table->profile ? table->profile->name : "");
  add(h, table->count, VALUE_BYTES);
  for (size_t index = 0; index < table->count; index++)
    add_row(h, table->form, (const char *)table->rows + index * table->form->row_bytes);
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
