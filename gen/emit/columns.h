/* columns.h: the columns of the plan's tables, one by one: what emit.c writes and the digest
 * covers. */
#ifndef PEN_COLUMNS_H
#define PEN_COLUMNS_H

#include "runtime/plan/plan.h"

/* How a column's values are written. */
enum pen_format {
  PEN_AS_NUMBER, /* unsigned, of the column's width */
  PEN_AS_SIGNED,
  PEN_AS_REAL,
  PEN_AS_FLAG,   /* 0 or 1 */
  PEN_AS_INDEX,  /* PEN_NONE: -1 */
  PEN_AS_OFFSET, /* UINT64_MAX: -1 */
  PEN_AS_TEXT,
  PEN_AS_ACTION, /* PEN_F ... */
  PEN_AS_OP,
  PEN_AS_DTYPE,
  PEN_AS_BASE,
  PEN_AS_INITIAL,
};

struct pen_column {
  const char *name;
  size_t offset, bytes; /* of one value */
  size_t count;         /* 0: a plain column; else an array of so many values */
  enum pen_format format;
};

/* One kind of table. */
struct pen_schema {
  const char *type; /* "pen_action" */
  const struct pen_column *column;
  size_t column_count, row_bytes;
};

enum pen_schema_index {
  PEN_SCHEMA_ACTION,
  PEN_SCHEMA_PROGRAM,
  PEN_SCHEMA_OP,
  PEN_SCHEMA_TENSOR,
  PEN_SCHEMA_FRAME,
  PEN_SCHEMA_RANK_PROGRAM,
  PEN_SCHEMA_STAGE,
  PEN_SCHEMA_MESSAGE,
  PEN_SCHEMA_CHANNEL,
  PEN_SCHEMA_WEIGHT,
  PEN_SCHEMA_TIE,
  PEN_SCHEMA_MEMORY,
  PEN_SCHEMA_STAGED_INPUT,
  PEN_SCHEMAS
};
extern const struct pen_schema
    pen_schemas[PEN_SCHEMAS]; /* pointers to other tables are no columns */

/* One table of a plan. */
struct pen_table {
  const struct pen_schema *form;
  const struct pen_profile *profile; /* null: the plan's */
  uint32_t rank;                     /* PEN_NONE: of all */
  const void *rows;
  size_t count;
};

/* Calls `visit` for every table of the plan, in the order in which they are emitted. */
void pen_tables_each(const struct pen_plan *plan,
                     void (*visit)(const struct pen_table *table, void *context), void *context);

/* A value of a column, zero-extended; of a text, 0. */
static inline uint64_t pen_column_value(const struct pen_column *column, const void *row,
                                        size_t index) {
  const char *at = (const char *)row + column->offset + index * column->bytes;
  if (column->format == PEN_AS_TEXT) return 0;
  if (column->bytes == sizeof(uint32_t)) return *(const uint32_t *)(const void *)at;
  if (column->bytes == sizeof(uint64_t)) return *(const uint64_t *)(const void *)at;
  return column->bytes == sizeof(uint16_t) ? *(const uint16_t *)(const void *)at
                                           : *(const uint8_t *)at;
}

#endif
