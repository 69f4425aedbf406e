/* topology.h: reads a topology file into settings and validates them.
 *
 * In: a topology file with its includes, and the overrides of -s. Out: a struct pen_topology: every
 * setting with its value or its default, within its limits and consistent with the others. Each
 * setting keeps where it was set, for messages. All later passes read it; none changes it.
 *
 *   read.c      the order of the steps     settings.def   name, type, limits, default of a setting
 *   source.c    the file as text           schedules.def  what each schedule needs and allows
 *   value.c     text to values and back    families.def   what each model family needs
 *   defaults.c  missing settings           validate.c     settings that contradict each other
 *   description.c  a model that the user describes
 */
#ifndef PEN_TOPOLOGY_H
#define PEN_TOPOLOGY_H

#include <stdio.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gen/topology/settings.h"
#include "runtime/plan/plan.h"

struct pen_integers {
  size_t count;
  int64_t *value;
  int choice; /* instead of the list, if the setting has choices; PEN_UNSET: the list */
};
struct pen_reals {
  size_t count;
  double *value;
  bool for_all; /* written as one value, not as a list: it applies to all stages */
};
struct pen_strings {
  size_t count;
  const char **value;
};
struct pen_chosen {
  size_t count;
  int *value; /* of the setting's enum */
  bool for_all;
};

/* Where and how a setting was set, for messages. All null: it was not set. */
struct pen_origin {
  const char *where;       /* "FILE:LINE: " or "-s " */
  const char *text;        /* the value as it was written */
  const char *file;        /* null: the command line */
  const char *former_name; /* null: set by its present name */
};

struct pen_description;     /* description.h */
struct pen_fallback;        /* fallback.h */
struct pen_measured_links;  /* gen/timing/measured_links.h */
struct pen_optimizer_group; /* weight_optimizer.h */

/* A field group_name for each setting: pipeline_ranks, model_layers, ... */
struct pen_topology {
#define PEN_TYPE_INTEGER(list) int64_t
#define PEN_TYPE_REAL(list) double
#define PEN_TYPE_BOOLEAN(list) bool
#define PEN_TYPE_STRING(list) const char *
#define PEN_TYPE_CHOICE(list) enum pen_##list
#define PEN_TYPE_INTEGERS(list) struct pen_integers
#define PEN_TYPE_REALS(list) struct pen_reals
#define PEN_TYPE_STRINGS(list) struct pen_strings
#define PEN_TYPE_CHOICES(list) struct pen_chosen
#define PEN_SETTING(group, name, type, minimum, maximum, default_value, choices, help) \
  PEN_TYPE_##type(choices) group##_##name;
#include "gen/topology/settings.def"
#define PEN_SETTING(group, name, type, minimum, maximum, default_value, choices, help) \
  bool has_##group##_##name;
#include "gen/topology/settings.def" /* has_...: set in the file or by an override; false: the default */
  const struct pen_origin *origin; /* [rows of settings.def] */
  const char *path;                /* as given on the command line */
  const char *name;                /* base name without .cfg */
  struct pen_strings sources;      /* the file and every file it includes, for make */
  const char *schedule_path; /* the path and the content of pipeline.schedule_file; null for other
                                schedules */
  const char *schedule_text;
  size_t schedule_bytes;
  const struct pen_description *description; /* of model.description; null: another family */
  int64_t sequence;       /* of this sequence-length bucket; model.sequence is the longest */
  int64_t cached_prompts; /* of a step of generation with a cache; 0: another step */
  bool generates;         /* a step of generation: one token of each sequence has logits */
  bool scores;          /* the profile of score: a described model ends with the logits of texts */
  bool cuts_by_default; /* the topology has no group partition */
  bool trains;          /* false: the schedule is forward-only */
  bool only_measures;   /* the plan is for the command measure alone: the group plan leaves open
                           what it would be */
  bool only_trains;     /* the plan has no profile but that of training (measure_plans.h) */
  const struct pen_optimizer_group *optimizer_group; /* [optimizer_groups.count] */
  /* What exchanges of tensor ranks take, if that was measured (--costs); else NULL: costs.byte. */
  const struct pen_measured_links *measured_exchanges;
  /* The topologies that a run falls back to when hosts are lost: the same with some settings
   * changed. */
  uint32_t fallback;                           /* which of them this is, from 1; 0: none of them */
  struct pen_topology **fallbacks;             /* [fallback_count] */
  const struct pen_fallback *fallback_changes; /* [fallback_count]: as the file has them */
  uint32_t fallback_count;
  unsigned char
      source_digest[32]; /* SHA-256 of the sources (as of sha256sum) and of any overrides */
};

/* Reads a topology file and validates it. `override`: the PATH=VALUE of each -s, in order. Ends the
 * generator (66 a file cannot be read, 78 not allowed) with `FILE:LINE: GROUP.NAME = VALUE: what is
 * allowed`. */
struct pen_topology *pen_topology_read(const char *path, const char *const *override,
                                       size_t override_count);

/* The same without defaults and checks: only what the file and the overrides set. */
struct pen_topology *pen_topology_read_written(const char *path, const char *const *override,
                                               size_t override_count);

/* The same of a topology for the plans of the command measure alone. One with a group plan and
 * without pipeline.ranks gets values that its blocks do not depend on: then `only_measures` is
 * set. */
struct pen_topology *pen_topology_read_blocks(const char *path, const char *const *override,
                                              size_t override_count);

/* A setting, "pipeline.ranks", and its value as on the command line. */
struct pen_setting_text {
  const char *path, *text;
};

/* A complete and validated topology: that of pen_topology_read_written() with some settings set to
 * other values. */
struct pen_topology *pen_topology_with(const struct pen_topology *written,
                                       const struct pen_setting_text *change, size_t count);

/* Tensor ranks that share the tokens of values between the matrices; 1: each has all of them. */
static inline uint32_t pen_topology_token_ranks(const struct pen_topology *t) {
  return t->tensor_parallel_sequence ? (uint32_t)t->tensor_parallel_ranks : 1;
}

/* The sizes of its process groups, and its processes. */
static inline struct pen_group_sizes pen_topology_sizes(const struct pen_topology *t) {
  return (struct pen_group_sizes){
#define PEN_SIZE(field, setting) .field = (uint32_t)t->setting,
#include "runtime/plan/groups.def"
  };
}
static inline int64_t pen_topology_process_count(const struct pen_topology *t) {
  return (int64_t)pen_count_in(pen_topology_sizes(t), UINT32_MAX);
}

/* What that is the product of, for a message. */
static inline const char *pen_topology_process_factors(const struct pen_topology *t) {
  return t->tensor_parallel_ranks > 1 ? "ranks x replicas x tensor ranks" : "ranks x replicas";
}

/* [process]: the index of its host, by cluster.mapping. */
uint32_t *pen_topology_rank_hosts(const struct pen_topology *topology);

/* The settings as canonical text, one `group.name = value` a line in the order of settings.def, for
 * the digest. */
const char *pen_topology_canonical(const struct pen_topology *topology);

#endif
