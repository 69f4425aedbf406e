/* settle.h: the second half of reading a topology: what settings need of each other. */
#ifndef PEN_SETTLE_H
#define PEN_SETTLE_H

#include <stdio.h>

#include "gen/topology/topology.h"

/* What cluster.device = "auto" stands for: "cpu", unless a program says "cuda" before it reads a
 * topology. */
extern const char *pen_device_auto;

/* Fills in the defaults that depend on other settings, and ends the generator (78) when a setting
 * is missing, when settings are at odds, or when they ask for what this version does not build. */
void pen_topology_validate(struct pen_topology *topology);

/* built.c: refuses what the table of settings has but this version does not build. */
void pen_topology_check_built(const struct pen_topology *topology);

/* schedule_file.c: reads pipeline.schedule_file and counts it among the sources. Ends the generator
 * (66) when it cannot be read. */
void pen_topology_take_schedule_file(struct pen_topology *topology);
/* "loop" or "v", by the stages in its first row. */
const char *pen_topology_placement_of_file(const struct pen_topology *topology);

/* The names in schedules.def and families.def, parted by blanks. */
extern const char pen_schedule_names[], pen_family_names[];

/* As pen_topology_fail, but a line of warning, and on. */
void pen_topology_warn(const struct pen_topology *topology, const char *setting, const char *format,
                       ...) __attribute__((format(printf, 3, 4)));

#endif
