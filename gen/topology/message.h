/* message.h: errors and warnings about settings, each with where the setting was set
 * (docs/contracts.md section 10). */
#ifndef PEN_MESSAGE_H
#define PEN_MESSAGE_H

#include "gen/topology/settings.h"
#include "gen/topology/topology.h"

/* The element of topology->origin of a setting. */
struct pen_origin *pen_topology_origin(const struct pen_topology *topology,
                                       const struct pen_setting *setting);

/* Prints a warning about a setting, "pipeline.microbatches", to standard error. */
void pen_topology_warn(const struct pen_topology *topology, const char *setting, const char *format,
                       ...) __attribute__((format(printf, 3, 4)));

/* The same for what is right, and could be better. */
void pen_topology_hint(const struct pen_topology *topology, const char *setting, const char *format,
                       ...) __attribute__((format(printf, 3, 4)));

/* Ends the generator (78) with a message about a setting. Shows its value as written, or its
 * default. */
_Noreturn void pen_topology_fail(const struct pen_topology *topology, const char *setting,
                                 const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
