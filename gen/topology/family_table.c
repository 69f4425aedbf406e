/* family_table.c: the table of model families. */
#include "gen/topology/family_table.h"

static const struct pen_family_row families[] = {
#define PEN_FAMILY(name, needs_tokens, rotary, windows, ties, loss, splits, biases, experts, \
                   meaning)                                                                  \
  {#name,           needs_tokens, rotary, PEN_WINDOW_##windows, ties,                        \
   PEN_LOSS_##loss, splits,       biases, PEN_EXPERTS_##experts},
#include "gen/topology/families.def"
};

const struct pen_family_row *pen_family_row_of(enum pen_family_kind kind) {
  return &families[kind];
}
