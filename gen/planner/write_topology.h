/* write_topology.h: a candidate as a topology of its own. */
#ifndef PEN_WRITE_TOPOLOGY_H
#define PEN_WRITE_TOPOLOGY_H

#include "gen/planner/planner.h"

/* The settings that the topology of a candidate has in addition to those of the file, in order;
 * `search_seconds`: with the schedule "search" and this effort; NULL: with that of the choice.
 * Returns how many. */
enum { PEN_WRITTEN_SETTINGS_MAX = PEN_CHOICE_SETTINGS_MAX + 3 };
size_t pen_written_settings(const struct pen_planner *planner, const struct pen_choice *choice,
                            const uint64_t *search_seconds,
                            struct pen_setting_text setting[PEN_WRITTEN_SETTINGS_MAX]);

/* The topology that pen_write_topology() writes. */
const struct pen_topology *pen_written_topology(const struct pen_planner *planner,
                                                const struct pen_choice *choice,
                                                const uint64_t *search_seconds);

/* Writes the topology of the candidate of --candidate to the file of -o, which is complete or
 * absent. Fails (73, 74). */
void pen_write_topology(const struct pen_planner *planner, const struct pen_plan_result *result);

#endif
