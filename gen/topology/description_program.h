/* description_program.h: the attribute `program` of an op of a description. */
#ifndef PEN_DESCRIPTION_PROGRAM_H
#define PEN_DESCRIPTION_PROGRAM_H

#include "gen/topology/description.h"
#include "gen/topology/description_json.h"

/* Sets the steps of the op. Ends the generator (78) unless it is a list of steps, each a list of a
 * name and numbers. What they mean is of no concern here. */
void pen_description_program(const char *path, const char *place, const json_t *list,
                             struct pen_described_op *op);

#endif
