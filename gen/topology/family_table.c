/* family_table.c: the table of model families. */
#include "gen/topology/family_table.h"

#include <stddef.h>
#include <string.h>

static const struct pen_family_row families[] = {
#define PEN_FAMILY(name, needs_tokens, rotary, windows, ties, loss, pieces, meaning) \
  {#name, needs_tokens, rotary, PEN_WINDOW_##windows, ties, PEN_LOSS_##loss, pieces},
#include "gen/topology/families.def"
};

const char pen_family_names[] =
#define PEN_FAMILY(name, needs_tokens, rotary, windows, ties, loss, pieces, meaning) " " #name
#include "gen/topology/families.def"
    ;

const struct pen_family_row *pen_family_row_of(const char *name) {
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    if (!strcmp(families[i].name, name)) return &families[i];
  return NULL;
}
