/* shapes_json.h: --print=shapes: the tensors that enter and leave each stage, in JSON. */
#ifndef PEN_SHAPES_JSON_H
#define PEN_SHAPES_JSON_H

#include <stdio.h>

#include "gen/model/stage_io.h"
#include "gen/partition/partition.h"

void pen_shapes_json(FILE *out, const struct pen_topology *topology,
                     const struct pen_partition *partition, const struct pen_stage_io *shapes);

#endif
