/* awaited_collectives.c: reads the list of actions (see awaited_collectives.h). */
#include "runtime/comm/awaited_collectives.h"

static uint32_t awaited_at_end(const struct pen_transport *transport) {
  const struct pen_rank_program *program = &transport->profile->ranks[transport->rank];
  bool unshards = transport->plan->gathers_units;
  for (uint32_t i = 0; i < program->action_count; i++) {
    unshards = unshards || program->actions[i].kind == PEN_UNSHARD;
  }
  return unshards && transport->profile->kind == PEN_TRAIN ? transport->actions.collective_count
                                                           : 0;
}

/* `known`: the last collective that is known to have ended so far. */
static void note_awaited(bool *awaited, uint32_t number, uint32_t *known) {
  if (number > *known) {
    *known = number;
    awaited[number] = true;
  }
}

uint32_t pen_awaited_collectives(const struct pen_transport *transport, bool *awaited) {
  const struct pen_rank_program *tables = &transport->profile->ranks[transport->rank];
  const uint32_t at_end = awaited_at_end(transport);
  uint32_t known = 0;
  for (uint32_t i = 0; i < tables->action_count && transport->actions.collective_count > 0; i++) {
    const struct pen_action *action = &tables->actions[i];
    if (pen_kind_is_collective(action->kind)) {
      note_awaited(awaited, action->awaited_collective, &known);
    }
    const struct pen_program *program =
        action->kind <= PEN_W ? &tables->programs[action->program] : NULL;
    for (uint32_t op = 0; program != NULL && op < program->op_count; op++) {
      const struct pen_collective *row =
          pen_collective_of(tables, &tables->ops[program->first_op + op]);
      if (row != NULL && row->group == PEN_DATA && row->awaited > 0) {
        note_awaited(awaited, action->awaited_collective + row->awaited, &known);
      }
    }
  }
  note_awaited(awaited, at_end, &known);
  return at_end;
}
