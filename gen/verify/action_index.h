/* action_index.h: the actions of one profile, indexed by stage and microbatch, and the messages
 * between them. */
#ifndef PEN_ACTION_INDEX_H
#define PEN_ACTION_INDEX_H

#include <stddef.h>

#include "gen/verify/problem.h"
#include "runtime/plan/plan.h"

/* The kinds that have a stage and a microbatch: F ... WAIT_B. */
enum { PEN_MICROBATCH_KINDS = PEN_NORM };

/* What messages carry: activations from F, gradients from B; the head's gradient of a tied weight,
 * and the updated weight for the head. */
enum pen_direction {
  PEN_DIRECTION_FORWARD,
  PEN_DIRECTION_BACKWARD,
  PEN_DIRECTION_TIED_GRADIENT,
  PEN_DIRECTION_TIED_WEIGHT,
  PEN_DIRECTIONS
};

struct pen_rank_pair {
  uint32_t from_rank, to_rank;
};

/* The two ends of the message that an action sends, receives, waits for or, if it computes, needs.
 */
struct pen_message_ends {
  uint32_t pair;                        /* PEN_NONE: there is no such message */
  uint32_t send_action, receive_action; /* on the ranks of the pair */
};

/* A compute action that must not start before an earlier SEND of its rank has ended: it overwrites
 * what the send reads. */
struct pen_send_hazard {
  uint32_t action, send_action;
};

/* The programs that some microbatches of a stage take, and actions of one of them, by kind, F ...
 * W; PEN_NONE: none. */
struct pen_stage_programs {
  uint32_t stage;
  uint32_t program[PEN_W + 1], action[PEN_W + 1];
  bool gives_run; /* their output has the tokens that a tensor rank holds (splits.c) */
};

struct pen_rank_context;

/* The actions of one profile, and what the checks know of them. */
struct pen_check_context {
  struct pen_problem *problem;
  const struct pen_action *const *action; /* [rank][count] */
  const uint32_t *count, *rank_of;
  uint32_t rank_count, stage_count, microbatch_count;
  int profile_kind;
  bool finished;           /* a finished plan: WAIT and step-end actions are mandatory */
  bool adds_tied_gradient; /* finished: a tied weight is trained */
  /* [pen_action_key()]: index + 1 of the action on the rank of its stage; 0: none */
  uint32_t *position[PEN_MICROBATCH_KINDS];
  /* Directed pairs of ranks with neighbouring stages, or with the ends of a tied weight, and the
   * pair of each message. */
  struct pen_rank_pair *pair;
  uint32_t pair_count;
  uint32_t
      *direction_pair[PEN_DIRECTIONS]; /* [sending stage]; PEN_NONE: same rank, or no receiver */
  struct pen_message_ends **ends;      /* [rank][action] */
  /* For the rendezvous models; null: unknown. Sorted by action. */
  struct pen_send_hazard **hazard; /* [rank] */
  size_t *hazard_count;
  const bool *credited[PEN_DIRECTIONS]; /* [pen_action_key() of the SEND]; null: every message has a
                                           credit */
  const struct pen_rank_context *contexts;   /* [rank]; finished */
  struct pen_stage_programs *stage_programs; /* by rising stage, each different (gradients.c) */
  size_t stage_programs_count;
};

static inline bool pen_is_compute(int kind) { return kind <= PEN_W; }
static inline bool pen_is_send(int kind) { return pen_kind_sends(kind); }
static inline bool pen_is_receive(int kind) { return pen_kind_receives(kind); }
static inline bool pen_is_wait(int kind) { return pen_kind_waits(kind); }
/* The messages of a tied weight: one a step, of no microbatch. */
static inline bool pen_is_tied_message(int kind) {
  return kind >= PEN_SEND_G && kind <= PEN_WAIT_V;
}

/* Index of a (stage, microbatch). */
static inline size_t pen_stage_microbatch(const struct pen_check_context *c, uint32_t stage,
                                          uint32_t microbatch) {
  return (size_t)stage * c->microbatch_count + microbatch;
}

/* Index of an action into position[kind]. */
static inline size_t pen_action_key(const struct pen_check_context *c, int kind, uint32_t stage,
                                    uint32_t microbatch) {
  return pen_is_tied_message(kind) ? stage : pen_stage_microbatch(c, stage, microbatch);
}

/* Index of an action among those of the rank of `stage`, or PEN_NONE. */
static inline uint32_t pen_action_position(const struct pen_check_context *c, int kind,
                                           uint32_t stage, uint32_t microbatch) {
  return c->position[kind][pen_action_key(c, kind, stage, microbatch)] - 1;
}

/* The B of a stage, or its I; PEN_NONE when it has neither. */
static inline uint32_t pen_backward_index(const struct pen_check_context *c, uint32_t stage,
                                          uint32_t microbatch) {
  uint32_t index = pen_action_position(c, PEN_B, stage, microbatch);
  return index != PEN_NONE ? index : pen_action_position(c, PEN_I, stage, microbatch);
}

/* Does the message that `stage` sends go to another rank, and to which stage? */
static inline bool pen_crosses_ranks(const struct pen_check_context *c,
                                     enum pen_direction direction, uint32_t stage) {
  return c->direction_pair[direction][stage] != PEN_NONE;
}
static inline uint32_t pen_receiving_stage(const struct pen_check_context *c,
                                           enum pen_direction direction, uint32_t stage) {
  return direction == PEN_DIRECTION_FORWARD    ? stage + 1
         : direction == PEN_DIRECTION_BACKWARD ? stage - 1
                                               : c->stage_count - 1 - stage;
}

/* The kinds of action of each direction, and the direction of a SEND. */
extern const uint8_t pen_direction_send[PEN_DIRECTIONS], pen_direction_receive[PEN_DIRECTIONS],
    pen_direction_wait[PEN_DIRECTIONS];
static inline enum pen_direction pen_direction_of(int send_kind) {
  return send_kind == PEN_SEND_F   ? PEN_DIRECTION_FORWARD
         : send_kind == PEN_SEND_B ? PEN_DIRECTION_BACKWARD
         : send_kind == PEN_SEND_G ? PEN_DIRECTION_TIED_GRADIENT
                                   : PEN_DIRECTION_TIED_WEIGHT;
}

/* The message that an action sends, receives, waits for or, if it computes, needs. Returns false
 * when there is none. */
struct pen_message_key {
  enum pen_direction direction;
  uint32_t from_stage, to_stage;
};
bool pen_message_of_action(const struct pen_check_context *c, const struct pen_action *action,
                           struct pen_message_key *key);

/* Fills `pair`, `pair_count` and `direction_pair`, and allocates `position`. */
void pen_action_index_start(struct pen_check_context *c);
/* Fills `ends`, after all actions have their position and every message is known to be sent and
 * received. */
void pen_action_index_messages(struct pen_check_context *c);
void pen_action_index_free(struct pen_check_context *c);

#endif
