/* actions.c: are the actions complete, each on its rank and in order, and do sends and receives
 * match?
 *
 * The checks are the same for a generated plan and for what --actions gives. In this order, each
 * resting on those before:
 *
 *   1. each action by itself: its kind, stage and microbatch exist, the stage is on this rank, a
 *      message that it names crosses ranks, and no action is listed twice. Records its position
 *   2. pairs a|b: two consecutive compute actions, neither of which needs the other, and not both
 *      accumulating into one gradient
 *   3. each stage and microbatch: one F; when training one B, or one I and then one W, after F
 *   4. each border of stages and microbatch: on one rank the producer precedes the consumer; else
 *      the producer precedes SEND, and RECV precedes WAIT precedes the consumer (bare lists may
 *      lack the WAIT)
 *   5. the end of the step: NORM, PUBLISH, WAIT_NORM and UPDATE, each once where it is needed and
 *      in order (for a tied weight: tied_weight.c)
 *   6. each directed pair of ranks: messages are received in the order in which they are sent,
 *      since a channel is a queue
 *
 * Complete and matched lists may still deadlock: deadlock.c checks that. A problem is reported at
 * the action that shows it, in the words of --print=actions. Linear in the number of actions. */
#include "gen/verify/internal.h"

#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

/* ---- each action by itself ---- */

static bool check_listed_action(struct pen_check_context *c, uint32_t rank, uint32_t index) {
  const struct pen_action *action = &c->action[rank][index];
  struct pen_message_key key;
  char text[32];
  if (action->kind >= PEN_ACTION_KINDS)
    return pen_problem_note(c->problem, rank, index, "there is no kind %u of action", action->kind);
  bool forward = action->kind == PEN_F || action->kind == PEN_SEND_F ||
                 action->kind == PEN_RECV_F || action->kind == PEN_WAIT_F ||
                 action->kind == PEN_PUBLISH || action->kind == PEN_WAIT_NORM ||
                 action->kind == PEN_UNSHARD || action->kind == PEN_RESHARD;
  if (c->profile_kind != PEN_TRAIN && !forward)
    return pen_problem_note(c->problem, rank, index, "a plan without training runs only forwards");
  if (action->kind >= PEN_MICROBATCH_KINDS) return true;
  if (action->stage >= c->stage_count)
    return pen_problem_note(c->problem, rank, index, "there is no stage %u of %u", action->stage,
                            c->stage_count);
  if (action->microbatch >= c->microbatch_count)
    return pen_problem_note(c->problem, rank, index, "there is no microbatch %u of %u",
                            action->microbatch, c->microbatch_count);
  if (c->rank_of[action->stage] != rank)
    return pen_problem_note(c->problem, rank, index, "stage %u is on rank %u", action->stage,
                            c->rank_of[action->stage]);
  if (!pen_is_compute(action->kind) && !pen_message_of_action(c, action, &key))
    return pen_problem_note(c->problem, rank, index, "there is no such message: no %s",
                            pen_is_tied_message(action->kind)
                                ? "tied weight that is trained, with its head on another rank"
                                : "neighbour stage on another rank");
  uint32_t *position = &c->position[action->kind][pen_action_key(c, action->kind, action->stage,
                                                                 action->microbatch)];
  if (*position)
    return pen_problem_note(c->problem, rank, index, "%s is listed twice, first as action %u",
                            pen_problem_action(text, action), *position - 1);
  *position = index + 1;
  return true;
}

/* ---- pairs ---- */

/* Does one of two consecutive actions need the result of the other, or do both accumulate into one
 * weight gradient? (A dependency through a third action would be out of order, or a deadlock.) */
static bool actions_conflict(const struct pen_action *a, const struct pen_action *b) {
  bool adds = (a->kind == PEN_B || a->kind == PEN_W) && (b->kind == PEN_B || b->kind == PEN_W);
  if (a->stage == b->stage && (adds || a->microbatch == b->microbatch)) return true;
  if (a->microbatch != b->microbatch) return false;
  bool neighbours = a->stage + 1 == b->stage || b->stage + 1 == a->stage;
  return neighbours && a->kind != PEN_W && b->kind != PEN_W &&
         (a->kind == PEN_F) == (b->kind == PEN_F);
}

/* `overlaps`: this compute action and the next run concurrently, and neither needs the other. */
static bool check_pair(const struct pen_check_context *c, uint32_t rank, uint32_t index) {
  const struct pen_action *action = &c->action[rank][index];
  char text[2][32];
  if (!action->overlaps) return true;
  if (!pen_is_compute(action->kind))
    return pen_problem_note(c->problem, rank, index, "%s overlaps, but only F, B, I and W may",
                            pen_problem_action(text[0], action));
  if (index + 1 == c->count[rank] || !pen_is_compute(action[1].kind))
    return pen_problem_note(c->problem, rank, index,
                            "%s overlaps the next action, but no F, B, I or W comes next",
                            pen_problem_action(text[0], action));
  if (action[1].overlaps)
    return pen_problem_note(c->problem, rank, index,
                            "%s is the first of more than two that overlap",
                            pen_problem_action(text[0], action));
  if (actions_conflict(action, action + 1))
    return pen_problem_note(
        c->problem, rank, index,
        "%s cannot overlap %s: one needs what the other makes, or both add to one gradient",
        pen_problem_action(text[0], action), pen_problem_action(text[1], action + 1));
  return true;
}

/* ---- the step's end ---- */

/* ADD_TIED_GRAD, NORM, PUBLISH, WAIT_NORM and UPDATE come last, each at most once; in a finished
 * plan each where it is needed. Only the message of a tied weight follows (tied_weight.c). */
static bool check_end(const struct pen_check_context *c, uint32_t rank) {
  uint32_t found[PEN_ACTION_KINDS] = {0}, first = PEN_NONE;
  char text[32];
  for (uint32_t index = 0; index < c->count[rank]; index++) {
    const struct pen_action *action = &c->action[rank][index];
    if (action->kind < PEN_MICROBATCH_KINDS) {
      if (first == PEN_NONE || (action->kind >= PEN_SEND_V && action->kind <= PEN_WAIT_V)) continue;
      return pen_problem_note(c->problem, rank, index, "%s comes after the step's end",
                              pen_problem_action(text, action));
    }
    if (action->kind >= PEN_GRAD_READY) continue; /* replicas.c */
    if (found[action->kind])
      return pen_problem_note(c->problem, rank, index, "%s is listed twice in a step",
                              pen_problem_action(text, action));
    found[action->kind] = index + 1;
    if (first == PEN_NONE) first = index;
  }
  if (!c->finished) return true;
  bool train = c->profile_kind == PEN_TRAIN,
       logged = train || pen_profile_kind_evaluates(c->profile_kind);
  if (!found[PEN_PUBLISH])
    return pen_problem_note(c->problem, rank, PEN_NONE, "PUBLISH is missing at the step's end");
  if (train && (!found[PEN_NORM] || found[PEN_NORM] > found[PEN_PUBLISH]))
    return pen_problem_note(c->problem, rank, PEN_NONE,
                            "NORM must come before PUBLISH at the step's end");
  if (train && (!found[PEN_UPDATE] || found[PEN_UPDATE] < found[PEN_PUBLISH]))
    return pen_problem_note(c->problem, rank, PEN_NONE,
                            "UPDATE must come after PUBLISH at the step's end");
  if (found[PEN_WAIT_NORM] ? found[PEN_WAIT_NORM] < found[PEN_PUBLISH] : rank == 0 && logged)
    return pen_problem_note(c->problem, rank, PEN_NONE,
                            "WAIT_NORM must come after PUBLISH at the step's end");
  return true;
}

/* ---- each stage and microbatch ---- */

/* Reports "WHAT is missing" at the action that shows it: `near`, else any of the same stage and
 * microbatch, else the last one of the rank. */
static bool report_missing(const struct pen_check_context *c, int kind, uint32_t stage,
                           uint32_t microbatch, uint32_t near) {
  char text[32];
  uint32_t rank = c->rank_of[stage];
  for (int other = 0; near == PEN_NONE && other < PEN_MICROBATCH_KINDS; other++)
    near = pen_action_position(c, other, stage, microbatch);
  if (near == PEN_NONE && c->count[rank] > 0) near = c->count[rank] - 1;
  return pen_problem_note(c->problem, rank, near, "%s is missing",
                          pen_problem_action(text, &(struct pen_action){.kind = (uint8_t)kind,
                                                                        .stage = (uint16_t)stage,
                                                                        .microbatch = microbatch}));
}

/* Fails unless action `first` comes before action `second` on the rank of `stage`. */
static bool check_precedence(const struct pen_check_context *c, uint32_t stage, uint32_t first,
                             uint32_t second, const char *why) {
  char text[2][32];
  if (first < second) return true;
  const struct pen_action *actions = c->action[c->rank_of[stage]];
  return pen_problem_note(c->problem, c->rank_of[stage], second, "%s comes before %s, %s",
                          pen_problem_action(text[0], &actions[second]),
                          pen_problem_action(text[1], &actions[first]), why);
}

static bool check_compute(const struct pen_check_context *c, uint32_t stage, uint32_t microbatch) {
  uint32_t f = pen_action_position(c, PEN_F, stage, microbatch),
           b = pen_action_position(c, PEN_B, stage, microbatch);
  uint32_t i = pen_action_position(c, PEN_I, stage, microbatch),
           w = pen_action_position(c, PEN_W, stage, microbatch);
  if (f == PEN_NONE) return report_missing(c, PEN_F, stage, microbatch, b != PEN_NONE ? b : i);
  if (c->profile_kind != PEN_TRAIN) return true;
  if (b != PEN_NONE && (i != PEN_NONE || w != PEN_NONE))
    return pen_problem_note(c->problem, c->rank_of[stage], i != PEN_NONE ? i : w,
                            "action %u is the whole backward already", b);
  if (b == PEN_NONE && i == PEN_NONE)
    return report_missing(c, w == PEN_NONE ? PEN_B : PEN_I, stage, microbatch, f);
  if (b == PEN_NONE && w == PEN_NONE) return report_missing(c, PEN_W, stage, microbatch, i);
  if (!check_precedence(c, stage, f, b != PEN_NONE ? b : i, "whose result it needs")) return false;
  return b != PEN_NONE || check_precedence(c, stage, i, w, "whose result it needs");
}

/* The message from a stage to the next one of a direction, or the order of both on one rank. */
static bool check_transfer(const struct pen_check_context *c, enum pen_direction direction,
                           uint32_t stage, uint32_t microbatch) {
  bool backward = direction == PEN_DIRECTION_BACKWARD;
  uint32_t receiver = pen_receiving_stage(c, direction, stage);
  uint32_t producer = backward ? pen_backward_index(c, stage, microbatch)
                               : pen_action_position(c, PEN_F, stage, microbatch);
  uint32_t consumer = backward ? pen_backward_index(c, receiver, microbatch)
                               : pen_action_position(c, PEN_F, receiver, microbatch);
  if (!pen_crosses_ranks(c, direction, stage))
    return check_precedence(c, stage, producer, consumer, "whose result it needs");
  uint32_t send = pen_action_position(c, pen_direction_send[direction], stage, microbatch);
  uint32_t receive = pen_action_position(c, pen_direction_receive[direction], receiver, microbatch);
  uint32_t wait = pen_action_position(c, pen_direction_wait[direction], receiver, microbatch);
  if (send == PEN_NONE)
    return report_missing(c, pen_direction_send[direction], stage, microbatch, producer);
  if (receive == PEN_NONE)
    return report_missing(c, pen_direction_receive[direction], receiver, microbatch, consumer);
  if (!check_precedence(c, stage, producer, send, "whose result it sends")) return false;
  if (!check_precedence(c, receiver, receive, consumer, "whose message it needs")) return false;
  if (wait == PEN_NONE)
    return c->finished
               ? report_missing(c, pen_direction_wait[direction], receiver, microbatch, consumer)
               : true;
  return check_precedence(c, receiver, receive, wait, "for whose message it waits") &&
         check_precedence(c, receiver, wait, consumer, "which it needs");
}

/* ---- messages of each pair of ranks ---- */

static bool check_channels(const struct pen_check_context *c) {
  uint32_t **sequence = pen_new(c->rank_count, sizeof *sequence); /* [rank][SEND action] */
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    sequence[rank] = pen_new((size_t)c->count[rank] + 1, sizeof **sequence);
  uint32_t *sent = pen_new((size_t)c->pair_count + 1, sizeof *sent),
           *received = pen_new((size_t)c->pair_count + 1, sizeof *received);
  for (int pass = 0; pass < 2; pass++)
    for (uint32_t rank = 0; rank < c->rank_count; rank++)
      for (uint32_t index = 0; index < c->count[rank]; index++) {
        const struct pen_action *action = &c->action[rank][index];
        const struct pen_message_ends *ends = &c->ends[rank][index];
        if (!(pass == 0 ? pen_is_send(action->kind) : pen_is_receive(action->kind)) ||
            ends->pair == PEN_NONE)
          continue;
        uint32_t *number = &sequence[c->pair[ends->pair].from_rank][ends->send_action];
        if (pass == 0) {
          *number = sent[ends->pair]++;
        } else if (*number != received[ends->pair]++) {
          return pen_problem_note(
              c->problem, rank, index,
              "its message is number %u of those from rank %u, but is received as number %u",
              *number, c->pair[ends->pair].from_rank, received[ends->pair] - 1);
        }
      }
  for (uint32_t rank = 0; rank < c->rank_count; rank++) pen_free(sequence[rank]);
  return true;
}

bool pen_check_actions(struct pen_check_context *c) {
  pen_action_index_start(c);
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    for (uint32_t index = 0; index < c->count[rank]; index++)
      if (!check_listed_action(c, rank, index)) return false;
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    for (uint32_t index = 0; index < c->count[rank]; index++)
      if (!check_pair(c, rank, index)) return false;
  for (uint32_t stage = 0; stage < c->stage_count; stage++)
    for (uint32_t microbatch = 0; microbatch < c->microbatch_count; microbatch++)
      if (!check_compute(c, stage, microbatch)) return false;
  for (uint32_t stage = 0; stage < c->stage_count; stage++)
    for (uint32_t microbatch = 0; microbatch < c->microbatch_count; microbatch++) {
      if (stage + 1 < c->stage_count &&
          !check_transfer(c, PEN_DIRECTION_FORWARD, stage, microbatch))
        return false;
      if (stage > 0 && c->profile_kind == PEN_TRAIN &&
          !check_transfer(c, PEN_DIRECTION_BACKWARD, stage, microbatch))
        return false;
    }
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    if (!check_end(c, rank)) return false;
  if (c->finished && !pen_check_tie_actions(c)) return false;
  pen_action_index_messages(c);
  return check_channels(c);
}
