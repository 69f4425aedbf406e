/* collectives.h: fills the tables `collectives` and `puts` of a rank (plan.def, puts.h): the rows
 * of the collectives in its programs, and of its actions. */
#ifndef PEN_LAYOUT_COLLECTIVES_H
#define PEN_LAYOUT_COLLECTIVES_H

#include "gen/layout/internal.h"
#include "gen/partition/puts.h"

/* A stage whose collectives move bytes. */
static inline struct pen_put_source pen_put_source_of(const struct pen_layout_state *l,
                                                      uint32_t stage) {
  return (struct pen_put_source){l->partition, l->input->graph[stage],
                                 l->input->graph[l->partition->stage_count - 1],
                                 l->first_weight[stage]};
}

/* The tables of a rank while they grow. */
struct pen_collective_rows {
  const struct pen_layout_state *l;
  uint32_t rank;
  const struct pen_tensor *tensor; /* of the rank */
  struct pen_collective *collective;
  struct pen_put *put;
  size_t collective_count, put_count;
  uint32_t event_count;
  uint32_t *known[PEN_ACTION_KINDS]; /* [stage]: the row of such an action, from 1; 0: none yet */
};

/* Adds a row: its index. Adds a put to the last one. */
uint32_t pen_add_collective(struct pen_collective_rows *rows, struct pen_collective collective);
void pen_add_put(struct pen_collective_rows *rows, struct pen_put put);

/* Adds the rows of a program of a stage, and sets the dims of its ops that name them: `op` has the
 * program's ops, whose operands are tensors. */
void pen_add_program_collectives(struct pen_collective_rows *rows, const struct pen_graph *graph,
                                 const struct pen_op_list *program, struct pen_op *op);

/* The index of the row of an action that is a collective: added at the first of its kind and
 * stage. */
uint32_t pen_action_collective(struct pen_collective_rows *rows, const struct pen_action *action);

#endif
