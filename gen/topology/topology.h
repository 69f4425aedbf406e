/* topology.h: a topology file, read and settled: every setting has its value, or its default, and
 * is within its bounds. */
#ifndef PEN_TOPOLOGY_H
#define PEN_TOPOLOGY_H

#include <stdio.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pen_integers {
  size_t count;
  int64_t *value;
};
struct pen_reals {
  size_t count;
  double *value;
  bool for_all; /* written as one value, not as a list: it holds for all stages */
};
struct pen_strings {
  size_t count;
  const char **value;
  bool for_all;
};

/* Where a setting was given, and how: for messages. Null where it was not given. */
struct pen_origin {
  const char *where;       /* "FILE:LINE: " or "-s " */
  const char *text;        /* the value as it was written */
  const char *file;        /* null: on the command line */
  const char *former_name; /* null: written by its name */
};

/* One field a row of settings.def, named group_name: pipeline_ranks, model_layers, ... */
struct pen_topology {
#define PEN_TYPE_INTEGER int64_t
#define PEN_TYPE_REAL double
#define PEN_TYPE_BOOLEAN bool
#define PEN_TYPE_STRING const char *
#define PEN_TYPE_INTEGERS struct pen_integers
#define PEN_TYPE_REALS struct pen_reals
#define PEN_TYPE_STRINGS struct pen_strings
#define PEN_SETTING(group, name, type, minimum, maximum, default_value, choices, help) \
  PEN_TYPE_##type group##_##name;
#include "gen/topology/settings.def"
#define PEN_SETTING(group, name, type, minimum, maximum, default_value, choices, help) \
  bool has_##group##_##name;
#include "gen/topology/settings.def" /* has_...: stands in the file or in an override (a default otherwise) */
  const struct pen_origin *origin; /* [rows of settings.def] */
  const char *path;                /* as given on the command line */
  const char *name;                /* base name without .cfg */
  struct pen_strings sources;      /* the file and every file it includes, for make */
  const char *schedule_path; /* pipeline.schedule_file as it was found, and what it holds; null for
                                other schedules */
  const char *schedule_text;
  size_t schedule_bytes;
  int64_t sequence;                /* of this shape; model.sequence is the longest */
  bool trains;                     /* false: the schedule runs forwards alone */
  unsigned char source_digest[32]; /* SHA-256 of the sources' bytes, as sha256sum gives it, and of
                                      any overrides */
};

/* Reads, checks and settles. `override` are the PATH=VALUE of -s, in order. Ends the generator (66
 * absent, 78 wrong) with `FILE:LINE: GROUP.NAME = VALUE: what is allowed`. */
struct pen_topology *pen_topology_read(const char *path, const char *const *override,
                                       size_t override_count);

/* model.dtype as enum pen_dtype. */
uint8_t pen_topology_dtype(const struct pen_topology *topology);

/* The settled settings as canonical text, one `group.name = value` a line in the order of
 * settings.def, for the digest. */
const char *pen_topology_canonical(const struct pen_topology *topology);

#endif
