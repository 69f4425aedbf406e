/* described.h: the family of a description. */
#ifndef PEN_DESCRIBED_H
#define PEN_DESCRIBED_H

#include "gen/families/families.h"

struct pen_description; /* gen/topology/description.h */

/* Made at the first call for the description, which it refers to. Fails (78) as
 * pen_described_kind() does. */
const struct pen_family *pen_described_family(const struct pen_description *description);

#endif
