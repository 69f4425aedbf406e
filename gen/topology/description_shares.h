/* description_shares.h: the shares of the losses of a description. */
#ifndef PEN_DESCRIPTION_SHARES_H
#define PEN_DESCRIPTION_SHARES_H

#include <jansson.h>

#include "gen/topology/description.h"

/* Reads the list `shares`, null if there is none, after the inputs. Ends the generator (78) with
 * the place and what is allowed. */
void pen_description_read_shares(struct pen_description *description, const json_t *list);

#endif
