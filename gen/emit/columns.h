/* columns.h: the tables of a plan and their columns, as plan.def lists them: what is emitted and
 * what the digest covers. */
#ifndef PEN_COLUMNS_H
#define PEN_COLUMNS_H

#include "runtime/plan/plan.h"

/* How a value of a column is written. */
enum pen_format {
  PEN_AS_NUMBER, /* unsigned, of the column's width */
  PEN_AS_SIGNED,
  PEN_AS_REAL,
  PEN_AS_FLAG,   /* 0 or 1 */
  PEN_AS_INDEX,  /* PEN_NONE: -1 */
  PEN_AS_OFFSET, /* UINT64_MAX: -1 */
  PEN_AS_TEXT,
  PEN_AS_ACTION, /* this and the following: by the name of the enumerator */
  PEN_AS_OP,
  PEN_AS_DTYPE,
  PEN_AS_BASE,
  PEN_AS_GROUP,
  PEN_AS_PUT,
  PEN_AS_INITIAL,
  PEN_AS_PROFILE,
  PEN_AS_SHARDING,
  PEN_AS_RECOMPUTE,
  PEN_AS_OPTIMIZER,
  PEN_AS_DECAY,
  PEN_AS_NORM,
  PEN_AS_BACKWARD_ORDER,
  PEN_AS_INPUT_DTYPE,
  PEN_AS_SHARE,
  PEN_AS_STEP,
  PEN_AS_DEVICE, /* these three have their text in the digest */
  PEN_AS_TRANSPORT,
  PEN_AS_BIND,
  PEN_FORMATS
};

struct pen_column {
  const char *name;
  size_t offset, bytes; /* of one value */
  size_t count;         /* of an array; 0: a single value */
  enum pen_format format;
};

/* One kind of table. */
struct pen_schema {
  const char *type, *name; /* "pen_action", "actions" */
  bool is_named;           /* rows name their fields */
  const struct pen_column *column;
  size_t column_count, row_bytes;
};

enum pen_schema_index {
#define PEN_TABLE(tag, kind, name, rows, meaning) PEN_SCHEMA_##kind,
#define PEN_TABLE_END(tag)
#include "runtime/plan/plan.def"
  PEN_SCHEMAS
};
extern const struct pen_schema pen_schemas[PEN_SCHEMAS];

/* One table of a plan. */
struct pen_table {
  const struct pen_schema *schema;
  const struct pen_profile *profile; /* NULL: the plan's */
  uint32_t rank;                     /* PEN_NONE: of all ranks */
  const void *rows;
  size_t count;
};

/* Calls `visit` for every table of the plan, in the order in which they are emitted. */
void pen_tables_each(const struct pen_plan *plan,
                     void (*visit)(const struct pen_table *table, void *context), void *context);

/* Values of a column in a row. */
static inline size_t pen_column_values(const struct pen_column *column) {
  return column->count ? column->count : 1;
}

/* A value of a column, zero-extended; 0 for text. */
static inline uint64_t pen_column_value(const struct pen_column *column, const void *row,
                                        size_t index) {
  const char *at = (const char *)row + column->offset + index * column->bytes;
  if (column->format == PEN_AS_TEXT) return 0;
  if (column->bytes == sizeof(uint32_t)) return *(const uint32_t *)(const void *)at;
  if (column->bytes == sizeof(uint64_t)) return *(const uint64_t *)(const void *)at;
  return column->bytes == sizeof(uint16_t) ? *(const uint16_t *)(const void *)at
                                           : *(const uint8_t *)at;
}

/* A text, or that of an enumerator which the digest covers as text; null: of no other column. */
static inline const char *pen_column_text(const struct pen_column *column, const void *row) {
  const int value = (int)pen_column_value(column, row, 0);
  switch (column->format) {
    case PEN_AS_TEXT:
      return *(const char *const *)(const void *)((const char *)row + column->offset);
    case PEN_AS_DEVICE: return pen_device_row(value)->text;
    case PEN_AS_TRANSPORT: return pen_transport_row(value)->text;
    case PEN_AS_BIND: return pen_bind_text(value);
    default: return NULL;
  }
}

#endif
