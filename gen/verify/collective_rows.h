/* collective_rows.h: what checks of the rows of `collectives` and of `puts` share. */
#ifndef PEN_VERIFY_COLLECTIVE_ROWS_H
#define PEN_VERIFY_COLLECTIVE_ROWS_H

#include "gen/verify/internal.h"

/* A rank while its rows are compared. */
struct pen_moves {
  const struct pen_rank_context *b;
  const char *what; /* the op or the action */
  uint32_t index, action;
  struct pen_put *put; /* [count]: those that it needs */
  size_t count;
  uint64_t owner;     /* 1 + op, or kind and stage of an action, whose row is compared */
  uint64_t *owner_of; /* [collective]: 0: none yet */
  bool *event_used;   /* [event] */
};

#define PEN_MOVES_PROBLEM(m, format, ...)                                                       \
  pen_problem_note((m)->b->checked->problem, (m)->b->rank, (m)->action, "moved: %s %u " format, \
                   (m)->what, (m)->index, __VA_ARGS__)

/* Adds a put to those that are needed. One that moves all elements of a tensor of a weight, which
 * lies at `offset` on every member. */
void pen_need_put(struct pen_moves *m, struct pen_put put);
struct pen_put pen_put_in_place(int kind, int group, uint8_t dtype, uint32_t weight,
                                uint64_t offset, bool is_sharded);

/* Whether a row is as needed: `needed`, and the puts that were added, which are taken. */
bool pen_check_collective_row(struct pen_moves *m, uint32_t index,
                              const struct pen_collective *needed);

#endif
