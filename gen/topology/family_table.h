/* family_table.h: the table of model families (families.def) as data. gen/families/ builds the
 * models. */
#ifndef PEN_FAMILY_TABLE_H
#define PEN_FAMILY_TABLE_H

#include <stdbool.h>

struct pen_family_row {
  const char *name;
  bool needs_tokens; /* the model reads tokens: it has heads, a vocabulary and a sequence */
  bool rotary;       /* rotary positions */
  bool windowed;     /* model.window */
  bool ties;         /* default of model.tie_embeddings */
  const char *loss;  /* default of model.loss */
};

/* " mlp llama ...": all names, each after a space. */
extern const char pen_family_names[];

/* The row of that name, or null. */
const struct pen_family_row *pen_family_row_of(const char *name);

#endif
