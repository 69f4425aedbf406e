/* internal.h: what the files of gen/emit share. */
#ifndef PEN_EMIT_INTERNAL_H
#define PEN_EMIT_INTERNAL_H

#include <stdio.h>

#include "gen/emit/columns.h"

/* Collects the text of a line. */
struct pen_c_writer {
  FILE *out;
  const char *prefix; /* of the names of tables: "", or that of a fallback */
  size_t used;        /* bytes of `text` */
  size_t line_used;   /* characters of the line */
  char text[4096];
};

void pen_write_bytes(struct pen_c_writer *writer, const char *text, size_t bytes);
void pen_write_text(struct pen_c_writer *writer, const char *text);
void pen_write_number(struct pen_c_writer *writer, uint64_t number);
/* A table's name: `name` with the prefix, and with that of the profile unless it is null. */
void pen_write_name(struct pen_c_writer *writer, const struct pen_profile *profile,
                    const char *name);
/* A string literal, over several lines if it is long. */
void pen_write_string(struct pen_c_writer *writer, const char *text);
/* Ends the line and hands it to the file. */
void pen_write_line_end(struct pen_c_writer *writer);

/* Writes the columns of a row as fields, ".kind = PEN_F, .stage = 1". Flags, reals, sizes and
 * offsets that are 0 are left out, unless they come first. */
void pen_write_fields(struct pen_c_writer *writer, const struct pen_schema *schema,
                      const void *row);

/* Writes the tables of the ranks, of the profiles and of all profiles. */
void pen_emit_tables(struct pen_c_writer *writer, const struct pen_plan *plan);

#endif
