/* axes.h: the values of every axis, and the combinations that may be candidates. */
#ifndef PEN_AXES_H
#define PEN_AXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gen/topology/schedule_table.h"
#include "gen/topology/topology.h"

enum pen_axis {
#define PEN_AXIS(key, ...) PEN_AXIS_##key,
#include "gen/planner/axes.def"
  PEN_AXES
};
enum { PEN_PIPELINE_AXES = PEN_AXIS_shard }; /* the axes before this one make a pipeline */

/* Of a candidate, unless pipeline.microbatches says how many it has: a search is then a matter of
 * seconds, and more microbatches hardly make the bubble smaller. */
enum { PEN_PLANNED_MICROBATCHES_MOST = 4096 };

#define PEN_NOT_CHOSEN UINT16_MAX

/* One value of each axis: indices into its values; PEN_NOT_CHOSEN: the axis does not apply. */
struct pen_choice {
  uint16_t index[PEN_AXES];
};

struct pen_axis_value {
  const char *text;
  int64_t number; /* of an axis of choices its enumerator; PEN_UNSET: a list */
};

struct pen_axis_values {
  const char *setting;
  bool fixed;  /* by the topology: one value, which is not to be set again */
  bool listed; /* by the group plan */
  struct pen_axis_value *value;
  size_t count;
};

struct pen_axes {
  const struct pen_topology *written; /* pen_topology_read_written() */
  struct pen_axis_values axis[PEN_AXES];
  uint32_t block_count; /* of the model */
};

/* Fails (78) if a list of the group plan has a value that is not allowed. */
struct pen_axes *pen_axes_of(const struct pen_topology *written);

/* A value that was chosen; 0, NULL: the axis does not apply. */
int64_t pen_axis_number(const struct pen_axes *axes, const struct pen_choice *choice,
                        enum pen_axis axis);
const char *pen_axis_text(const struct pen_axes *axes, const struct pen_choice *choice,
                          enum pen_axis axis);

const struct pen_schedule *pen_choice_schedule(const struct pen_axes *axes,
                                               const struct pen_choice *choice);

/* The ranks of the pipeline, and its microbatches on each replica. */
int64_t pen_choice_ranks(const struct pen_axes *axes, const struct pen_choice *choice);
int64_t pen_choice_microbatches(const struct pen_axes *axes, const struct pen_choice *choice);

/* Whether its stages are placed in a zigzag: "v". */
bool pen_choice_zigzag(const struct pen_axes *axes, const struct pen_choice *choice);

struct pen_choices {
  struct pen_choice *choice; /* in the order of the values, the first axis the slowest */
  size_t count;
};

/* All combinations of the axes [first, past), with the others as in `from`. */
struct pen_choices pen_choices_of(const struct pen_axes *axes, const struct pen_choice *from,
                                  int first, int past);

/* The settings of a choice, in the order of axes.def; with the ranks and microbatches that follow
 * from it. Returns how many. */
enum { PEN_CHOICE_SETTINGS_MAX = PEN_AXES + 2 };
size_t pen_choice_settings(const struct pen_axes *axes, const struct pen_choice *choice,
                           struct pen_setting_text setting[PEN_CHOICE_SETTINGS_MAX]);

/* The topology of a choice, validated. */
struct pen_topology *pen_choice_topology(const struct pen_axes *axes,
                                         const struct pen_choice *choice);

#endif
