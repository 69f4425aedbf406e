/* schedule_file.h: pipeline.schedule_file as text. */
#ifndef PEN_SCHEDULE_FILE_H
#define PEN_SCHEDULE_FILE_H

#include "gen/topology/topology.h"

/* Reads pipeline.schedule_file and adds it to the sources. Ends the generator (66) if it cannot be
 * read. */
void pen_topology_read_schedule_file(struct pen_topology *topology);

/* "loop" or "v", by the stages in the first row of the file. */
enum pen_placement pen_topology_placement_of_file(const struct pen_topology *topology);

#endif
