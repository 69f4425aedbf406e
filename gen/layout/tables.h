/* tables.h: one profile's tables. */
#ifndef PEN_TABLES_H
#define PEN_TABLES_H

#include "gen/layout/internal.h"

/* Makes the profile's tables once persistent offsets are known; frees l->stage_actions and
 * l->places, of which it is the last reader. */
struct pen_profile pen_profile_tables(struct pen_layout_state *l);

#endif
