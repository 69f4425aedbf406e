/* action_index.c: indexes of actions and messages. */
#include "gen/verify/action_index.h"

#include <stdlib.h>

#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

/* ---- pairs of ranks ---- */

static int compare_pairs(const void *a, const void *b) {
  const struct pen_rank_pair *x = a, *y = b;
  if (x->from_rank != y->from_rank) return x->from_rank < y->from_rank ? -1 : 1;
  return (x->to_rank > y->to_rank) - (x->to_rank < y->to_rank);
}

static uint32_t pair_index(const struct pen_check_context *c, uint32_t from, uint32_t to) {
  struct pen_rank_pair key = {from, to};
  return (uint32_t)((struct pen_rank_pair *)bsearch(&key, c->pair, c->pair_count, sizeof key,
                                                    compare_pairs) -
                    c->pair);
}

const uint8_t pen_direction_send[PEN_DIRECTIONS] = {PEN_SEND_F, PEN_SEND_B, PEN_SEND_G, PEN_SEND_V},
              pen_direction_receive[PEN_DIRECTIONS] = {PEN_RECV_F, PEN_RECV_B, PEN_RECV_G,
                                                       PEN_RECV_V},
              pen_direction_wait[PEN_DIRECTIONS] = {PEN_WAIT_F, PEN_WAIT_B, PEN_WAIT_G, PEN_WAIT_V};

static void add_pairs(struct pen_check_context *c, uint32_t *count, uint32_t one, uint32_t other) {
  if (one == other) return;
  c->pair[(*count)++] = (struct pen_rank_pair){one, other};
  c->pair[(*count)++] = (struct pen_rank_pair){other, one};
}

/* Lists once every directed pair of ranks that exchange messages. */
static void list_pairs(struct pen_check_context *c) {
  uint32_t count = 0, kept = 0, last = c->stage_count - 1;
  c->pair = pen_new(2 * (size_t)c->stage_count + 2, sizeof *c->pair);
  for (int direction = 0; direction < PEN_DIRECTIONS; direction++)
    c->direction_pair[direction] = pen_new(c->stage_count, sizeof **c->direction_pair);
  for (uint32_t stage = 0; stage < last; stage++)
    add_pairs(c, &count, c->rank_of[stage], c->rank_of[stage + 1]);
  if (c->adds_tied_gradient) add_pairs(c, &count, c->rank_of[0], c->rank_of[last]);
  qsort(c->pair, count, sizeof *c->pair, compare_pairs);
  for (uint32_t index = 0; index < count; index++)
    if (kept == 0 || compare_pairs(&c->pair[kept - 1], &c->pair[index]) != 0)
      c->pair[kept++] = c->pair[index];
  c->pair_count = kept;
  for (uint32_t stage = 0; stage < c->stage_count; stage++) {
    bool sends[PEN_DIRECTIONS] = {stage<last, stage> 0, c->adds_tied_gradient && stage == last,
                                  c->adds_tied_gradient && stage == 0};
    for (int direction = 0; direction < PEN_DIRECTIONS; direction++) {
      uint32_t own = c->rank_of[stage],
               to = sends[direction] ? c->rank_of[pen_receiving_stage(c, direction, stage)] : own;
      c->direction_pair[direction][stage] = to == own ? PEN_NONE : pair_index(c, own, to);
    }
  }
}

bool pen_message_of_action(const struct pen_check_context *c, const struct pen_action *action,
                           struct pen_message_key *key) {
  static const struct {
    bool any;
    uint8_t direction;
    bool sends;
  } kinds[PEN_MICROBATCH_KINDS] = {
      [PEN_F] = {true, PEN_DIRECTION_FORWARD, false},
      [PEN_B] = {true, PEN_DIRECTION_BACKWARD, false},
      [PEN_I] = {true, PEN_DIRECTION_BACKWARD, false},
      [PEN_SEND_F] = {true, PEN_DIRECTION_FORWARD, true},
      [PEN_RECV_F] = {true, PEN_DIRECTION_FORWARD, false},
      [PEN_WAIT_F] = {true, PEN_DIRECTION_FORWARD, false},
      [PEN_SEND_B] = {true, PEN_DIRECTION_BACKWARD, true},
      [PEN_RECV_B] = {true, PEN_DIRECTION_BACKWARD, false},
      [PEN_WAIT_B] = {true, PEN_DIRECTION_BACKWARD, false},
      [PEN_SEND_G] = {true, PEN_DIRECTION_TIED_GRADIENT, true},
      [PEN_RECV_G] = {true, PEN_DIRECTION_TIED_GRADIENT, false},
      [PEN_WAIT_G] = {true, PEN_DIRECTION_TIED_GRADIENT, false},
      [PEN_SEND_V] = {true, PEN_DIRECTION_TIED_WEIGHT, true},
      [PEN_RECV_V] = {true, PEN_DIRECTION_TIED_WEIGHT, false},
      [PEN_WAIT_V] = {true, PEN_DIRECTION_TIED_WEIGHT, false},
  };
  if (action->kind >= PEN_MICROBATCH_KINDS || !kinds[action->kind].any) return false;
  enum pen_direction direction = kinds[action->kind].direction;
  uint32_t from = action->stage, last = c->stage_count - 1;
  if (pen_is_tied_message(action->kind) && action->microbatch != 0) return false;
  if (!kinds[action->kind].sends) {
    if (direction == PEN_DIRECTION_FORWARD
            ? action->stage == 0
            : direction == PEN_DIRECTION_BACKWARD && action->stage == last)
      return false;
    from = direction == PEN_DIRECTION_FORWARD    ? action->stage - 1u
           : direction == PEN_DIRECTION_BACKWARD ? action->stage + 1u
                                                 : last - action->stage;
  }
  if (!pen_crosses_ranks(c, direction, from)) return false;
  *key = (struct pen_message_key){direction, from, pen_receiving_stage(c, direction, from)};
  return true;
}

void pen_action_index_start(struct pen_check_context *c) {
  list_pairs(c);
  for (int kind = 0; kind < PEN_MICROBATCH_KINDS; kind++)
    c->position[kind] = pen_new(pen_action_key(c, kind, c->stage_count, 0), sizeof **c->position);
}

void pen_action_index_messages(struct pen_check_context *c) {
  c->ends = pen_new(c->rank_count, sizeof *c->ends);
  for (uint32_t rank = 0; rank < c->rank_count; rank++) {
    c->ends[rank] = pen_new((size_t)c->count[rank] + 1, sizeof **c->ends);
    for (uint32_t index = 0; index < c->count[rank]; index++) {
      const struct pen_action *action = &c->action[rank][index];
      struct pen_message_ends *ends = &c->ends[rank][index];
      struct pen_message_key key;
      ends->pair = PEN_NONE;
      if (!pen_message_of_action(c, action, &key)) continue;
      *ends = (struct pen_message_ends){c->direction_pair[key.direction][key.from_stage],
                                        pen_action_position(c, pen_direction_send[key.direction],
                                                            key.from_stage, action->microbatch),
                                        pen_action_position(c, pen_direction_receive[key.direction],
                                                            key.to_stage, action->microbatch)};
    }
  }
}

void pen_action_index_free(struct pen_check_context *c) {
  for (int kind = 0; kind < PEN_MICROBATCH_KINDS; kind++) pen_free(c->position[kind]);
  for (uint32_t rank = 0; rank < c->rank_count; rank++) pen_free(c->ends[rank]);
}
