/* groups.h: the numbers of processes, and the groups that they are in (groups.def). */
#ifndef PEN_GROUPS_H
#define PEN_GROUPS_H

#include <stdint.h>

/* The kinds of process groups (groups.def), of which the first are coordinates. */
enum pen_group {
#define PEN_GROUP(name, size, stride, coordinates, meaning) PEN_##name,
#include "runtime/plan/groups.def"
  PEN_GROUPS,
  PEN_COORDINATES = PEN_DATA + 1
};
#define PEN_IN(name) (1u << PEN_##name)

/* What the sizes of all groups follow from. */
struct pen_group_sizes {
#define PEN_SIZE(field, setting) uint32_t field;
#include "runtime/plan/groups.def"
};
struct pen_group_row {
  uint32_t size, stride, coordinates;
};
static inline struct pen_group_row pen_group_row(struct pen_group_sizes of, int group) {
  switch (group) {
#define PEN_GROUP(name, size, stride, coordinates, meaning) \
  case PEN_##name:                                          \
    return (struct pen_group_row){size, stride, coordinates};
#include "runtime/plan/groups.def"
    default: return (struct pen_group_row){0};
  }
}

/* The place of a process, and its number among those that differ from it in some coordinates alone
 * (a bit set; all: the global rank); and back: `at` with the coordinates of another number, or of a
 * global rank. How many processes these are. */
struct pen_coordinates {
  uint32_t in[PEN_COORDINATES];
};
static inline uint32_t pen_number_in(struct pen_group_sizes of, struct pen_coordinates at,
                                     uint32_t coordinates) {
  uint32_t number = 0;
  for (int c = PEN_COORDINATES; c-- > 0;)
    if (coordinates >> c & 1) number = number * pen_group_row(of, c).size + at.in[c];
  return number;
}
static inline struct pen_coordinates pen_numbered_in(struct pen_group_sizes of,
                                                     struct pen_coordinates at,
                                                     uint32_t coordinates, uint32_t number) {
  for (int c = 0; c < PEN_COORDINATES; c++) {
    const uint32_t size = coordinates >> c & 1 ? pen_group_row(of, c).size : 1;
    if (coordinates >> c & 1) at.in[c] = number % size;
    number /= size;
  }
  return at;
}
static inline struct pen_coordinates pen_coordinates_in(struct pen_group_sizes of,
                                                        uint32_t global) {
  return pen_numbered_in(of, (struct pen_coordinates){0}, UINT32_MAX, global);
}
static inline uint64_t pen_count_in(struct pen_group_sizes of, uint32_t coordinates) {
  uint64_t count = 1;
  for (int c = 0; c < PEN_COORDINATES; c++)
    if (coordinates >> c & 1) count *= pen_group_row(of, c).size;
  return count;
}

/* Which member of its group a process is, and which process is another member of that group. */
static inline uint32_t pen_member_in(struct pen_group_sizes of, uint32_t global, int group) {
  const struct pen_group_row row = pen_group_row(of, group);
  return pen_number_in(of, pen_coordinates_in(of, global), row.coordinates) / row.stride % row.size;
}
static inline uint32_t pen_process_in(struct pen_group_sizes of, uint32_t global, int group,
                                      uint32_t member) {
  const struct pen_group_row row = pen_group_row(of, group);
  const struct pen_coordinates at = pen_coordinates_in(of, global);
  const uint32_t number = pen_number_in(of, at, row.coordinates) +
                          (member - pen_member_in(of, global, group)) * row.stride;
  return pen_number_in(of, pen_numbered_in(of, at, row.coordinates, number), UINT32_MAX);
}

/* The same of what has these sizes as fields: a plan, a partition, a struct pen_group_sizes. */
#define PEN_SIZES(of)                                                                  \
  ((struct pen_group_sizes){(of)->tensor_ranks, (of)->rank_count, (of)->replica_count, \
                            (of)->shard_ranks})
#define pen_group_size(of, group) (pen_group_row(PEN_SIZES(of), group).size)
#define pen_number_of(of, at, coordinates) pen_number_in(PEN_SIZES(of), at, coordinates)
#define pen_coordinates_of(of, global) pen_coordinates_in(PEN_SIZES(of), global)
#define pen_group_member(of, global, group) pen_member_in(PEN_SIZES(of), global, group)
#define pen_group_process(of, global, group, member) \
  pen_process_in(PEN_SIZES(of), global, group, member)

#endif
