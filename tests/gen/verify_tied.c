/* verify_tied.c: plans with a tied matrix: changes to its actions, addresses and messages; the
 * verifier rejects each with its own message. (verify.c and verify_columns.c change such plans
 * too.) */
#include "tests/support/broken.h"

/* Some part of a plan that trains with a tied matrix, the rank being that of the embedding or of
 * the head; false: it is no such plan. */
static bool turn_to(struct broken_plan *p, bool head) {
  if (p->plan->tie_count == 0 || p->plan->profiles[0].kind != PEN_TRAIN) return false;
  p->profile = WRITABLE(struct pen_profile, &p->plan->profiles[0]);
  p->rank = head ? p->plan->ties[0].rank : p->plan->weights[p->plan->ties[0].weight].rank;
  p->tables = WRITABLE(struct pen_rank_program, &p->profile->ranks[p->rank]);
  p->action = WRITABLE(struct pen_action, p->tables->actions);
  return true;
}

static bool turn_apart(struct broken_plan *p, bool head) {
  return turn_to(p, head) &&
         p->plan->ties[0].rank != p->plan->weights[p->plan->ties[0].weight].rank;
}

static struct pen_tie *tie_of(struct broken_plan *p) {
  return WRITABLE(struct pen_tie, p->plan->ties);
}

static uint32_t row_of(const struct broken_plan *p, int kind) {
  for (uint32_t row = 0; row < p->tables->action_count; row++)
    if (p->action[row].kind == kind) return row;
  return PEN_NONE;
}

static struct pen_message *message_of(const struct broken_plan *p, int kind) {
  for (uint32_t index = 0; index < p->profile->message_count; index++)
    if (p->profile->messages[index].kind == kind)
      return WRITABLE(struct pen_message, &p->profile->messages[index]);
  return NULL;
}

static bool remove_kind(struct broken_plan *p, int kind) {
  uint32_t row = row_of(p, kind);
  if (row == PEN_NONE) return false;
  memmove(p->action + row, p->action + row + 1,
          (--p->tables->action_count - row) * sizeof *p->action);
  return true;
}

/* Moves the action of a kind directly after, or before, that of another. */
static bool move_kind(struct broken_plan *p, int kind, int other, bool after) {
  uint32_t from = row_of(p, kind), to = row_of(p, other);
  if (from == PEN_NONE || to == PEN_NONE) return false;
  struct pen_action moved = p->action[from];
  if (from < to) {
    to -= !after;
    memmove(p->action + from, p->action + from + 1, (to - from) * sizeof moved);
  } else {
    to += after;
    memmove(p->action + to + 1, p->action + to, (from - to) * sizeof moved);
  }
  p->action[to] = moved;
  return true;
}

#define DROPPED(kind, head)                                   \
  static bool dropped_##kind(struct broken_plan *p) {         \
    return turn_apart(p, head) && remove_kind(p, PEN_##kind); \
  }
DROPPED(SEND_G, true)
DROPPED(RECV_G, false)
DROPPED(WAIT_G, false)
DROPPED(SEND_V, false)
DROPPED(RECV_V, true)
DROPPED(WAIT_V, true)
static bool dropped_join(struct broken_plan *p) {
  return turn_to(p, false) && remove_kind(p, PEN_ADD_TIED_GRAD);
}

/* An action of another rank, or of no message of that kind. */
static bool join_elsewhere(struct broken_plan *p) {
  if (!turn_apart(p, true)) return false;
  p->action[row_of(p, PEN_NORM)].kind = PEN_ADD_TIED_GRAD; /* in place of another */
  return true;
}
static bool sent_elsewhere(struct broken_plan *p) {
  if (!turn_apart(p, true)) return false;
  p->action[row_of(p, PEN_SEND_G)].stage = 0;
  return true;
}
static bool sent_on_one_rank(struct broken_plan *p) {
  if (!turn_to(p, false) || turn_apart(p, false)) return false;
  p->action[row_of(p, PEN_ADD_TIED_GRAD)] = (struct pen_action){.kind = PEN_SEND_V};
  return true;
}

#define MOVED(name, head, kind, other, after)                                   \
  static bool name(struct broken_plan *p) {                                     \
    return turn_apart(p, head) && move_kind(p, PEN_##kind, PEN_##other, after); \
  }
MOVED(join_behind_norm, false, ADD_TIED_GRAD, NORM, true)
MOVED(join_before_wait, false, ADD_TIED_GRAD, WAIT_G, false)
MOVED(wait_before_receive, false, WAIT_G, RECV_G, false)
MOVED(sent_behind_update, true, SEND_G, UPDATE, true)
MOVED(sent_too_early, true, SEND_G, F, true)
MOVED(value_before_update, false, SEND_V, UPDATE, false)
MOVED(copy_given_early, true, RECV_V, SEND_G, false)
MOVED(copy_awaited_early, true, WAIT_V, RECV_V, false)

static bool gradient_from_elsewhere(struct broken_plan *p) {
  struct pen_message *message = turn_apart(p, true) ? message_of(p, PEN_SEND_G) : NULL;
  if (message) message->source_offset -= 64;
  return message;
}
static bool gradient_goes_elsewhere(struct broken_plan *p) {
  struct pen_message *message = turn_apart(p, true) ? message_of(p, PEN_SEND_G) : NULL;
  if (message) message->target_offset += 64;
  return message;
}
static bool value_from_elsewhere(struct broken_plan *p) {
  struct pen_message *message = turn_apart(p, true) ? message_of(p, PEN_SEND_V) : NULL;
  if (message) message->source_offset += 64;
  return message;
}
static bool value_goes_elsewhere(struct broken_plan *p) {
  struct pen_message *message = turn_apart(p, true) ? message_of(p, PEN_SEND_V) : NULL;
  if (message) message->target_offset += 64;
  return message;
}
/* At the place where both ends put the gradient, a message may still arrive or other values be
 * live: its credit, the last of the channel, does not delay it. */
static bool lands_on_another(struct broken_plan *p) {
  struct pen_message *message = turn_apart(p, false) ? message_of(p, PEN_SEND_G) : NULL;
  if (!message) return false;
  for (unsigned tries = 0; tries < 100; tries++) {
    const struct pen_message *other = some_message(p);
    if (p->profile->channels[other->channel].to_rank != p->rank ||
        other->target_offset == message->target_offset)
      continue;
    message->target_offset = other->target_offset;
    message->credit = PEN_NONE;
    WRITABLE(struct pen_channel, &p->profile->channels[message->channel])->credit_count--;
    return true;
  }
  return false;
}
static bool head_reads_elsewhere(struct broken_plan *p) {
  if (!turn_to(p, true)) return false;
  tie_of(p)->value_offset += 64;
  return true;
}
static bool head_adds_elsewhere(struct broken_plan *p) {
  if (!turn_to(p, true)) return false;
  tie_of(p)->gradient_offset += 64;
  return true;
}
static bool one_gradient(struct broken_plan *p) {
  if (!turn_to(p, true) || turn_apart(p, true)) return false;
  tie_of(p)->gradient_offset = p->plan->weights[p->plan->ties[0].weight].gradient_offset;
  return true;
}
static bool joins_another(struct broken_plan *p) {
  if (!turn_apart(p, false)) return false;
  struct pen_action *join = &p->action[row_of(p, PEN_ADD_TIED_GRAD)];
  join->message = (join->message + 1 + (uint32_t)draw(p->seed, p->profile->message_count - 1)) %
                  p->profile->message_count;
  return true;
}
static bool joins_nothing(struct broken_plan *p) {
  if (!turn_apart(p, false)) return false;
  p->action[row_of(p, PEN_ADD_TIED_GRAD)].message = p->profile->message_count;
  return true;
}
static bool no_gradient(struct broken_plan *p) {
  if (!turn_to(p, true)) return false;
  tie_of(p)->gradient_offset = UINT64_MAX;
  return true;
}
static bool another_weight(struct broken_plan *p) {
  if (!turn_to(p, true)) return false;
  tie_of(p)->weight = (uint32_t)draw(p->seed, p->plan->weight_count + 3);
  return tie_of(p)->weight != 0;
}
static bool another_rank(struct broken_plan *p) {
  if (!turn_to(p, true)) return false;
  tie_of(p)->rank++;
  return true;
}
static bool two_ties(struct broken_plan *p) {
  if (!turn_to(p, true)) return false;
  struct pen_tie *two = pen_new(2, sizeof *two);
  two[0] = two[1] = p->plan->ties[0];
  p->plan->ties = two;
  p->plan->tie_count = 2;
  return true;
}
static bool no_tie(struct broken_plan *p) {
  if (!turn_to(p, true)) return false;
  p->plan->tie_count = 0;
  return true;
}
static bool value_written_early(
    struct broken_plan *p) { /* a copy in the window, where other messages come */
  if (!turn_apart(p, true)) return false;
  uint64_t first = p->plan->ties[0].value_offset;
  for (uint32_t tensor = 0; tensor < p->tables->tensor_count; tensor++) {
    struct pen_tensor *t = WRITABLE(struct pen_tensor, &p->tables->tensors[tensor]);
    if (t->base == PEN_BASE_PERSISTENT && t->offset == first) t->offset = 0;
  }
  tie_of(p)->value_offset = message_of(p, PEN_SEND_V)->target_offset = 0;
  return true;
}

static const struct defect defects[] = {
    {"dropped SEND_G", dropped_SEND_G, {"SEND_G0 of a tied weight is missing"}},
    {"dropped RECV_G", dropped_RECV_G, {"RECV_G0 of a tied weight is missing"}},
    {"dropped WAIT_G", dropped_WAIT_G, {"WAIT_G0 of a tied weight is missing"}},
    {"dropped SEND_V", dropped_SEND_V, {"SEND_V0 of a tied weight is missing"}},
    {"dropped RECV_V", dropped_RECV_V, {"RECV_V0 of a tied weight is missing"}},
    {"dropped WAIT_V", dropped_WAIT_V, {"WAIT_V0 of a tied weight is missing"}},
    {"dropped ADD_TIED_GRAD", dropped_join, {"ADD_TIED_GRAD of a tied weight is missing"}},
    {"ADD_TIED_GRAD on another rank",
     join_elsewhere,
     {"ADD_TIED_GRAD is on a rank", "NORM must come"}},
    {"SEND_G of another stage", sent_elsewhere, {"is on rank", "there is no such message"}},
    {"SEND_V to itself", sent_on_one_rank, {"there is no such message"}},
    {"ADD_TIED_GRAD after NORM", join_behind_norm, {"NORM comes before ADD_TIED_GRAD"}},
    {"ADD_TIED_GRAD before WAIT_G",
     join_before_wait,
     {"ADD_TIED_GRAD comes before 0WAIT_G0", "WAIT_G0 comes after the step's end"}},
    {"WAIT_G before RECV_G", wait_before_receive, {"for whose message it waits"}},
    {"SEND_G after UPDATE",
     sent_behind_update,
     {"which clears what it sends", "comes after the step's end"}},
    {"SEND_G too early",
     sent_too_early,
     {"adds to the gradient that it sends", "comes next", "is received as number",
      "no F, B, I or W"}},
    {"SEND_V before UPDATE", value_before_update, {"whose result it sends"}},
    {"RECV_V before SEND_G", copy_given_early, {"before which the copy is read"}},
    {"WAIT_V before RECV_V", copy_awaited_early, {"for whose message it waits"}},
    {"gradient from elsewhere", gradient_from_elsewhere, {"but what it sends is at"}},
    {"gradient goes elsewhere",
     gradient_goes_elsewhere,
     {"is outside the receive region", "may already arrive there", "but its bytes hold",
      "previous step", "scratch of action", "nothing has written"}},
    {"value from elsewhere", value_from_elsewhere, {"but what it sends is at"}},
    {"value goes elsewhere", value_goes_elsewhere, {"but it is read at"}},
    {"gradient lands on another at any time",
     lands_on_another,
     {"may already arrive there", "but its bytes hold", "previous step", "scratch of action",
      "is outside the receive region"}},
    {"head reads elsewhere", head_reads_elsewhere, {"is persistent, but", "the head reads"}},
    {"head adds elsewhere", head_adds_elsewhere, {"is persistent, but"}},
    {"one gradient for both",
     one_gradient,
     {"overlaps", "is persistent, but", "is at the address of"}},
    {"ADD_TIED_GRAD reads another", joins_another, {"it names no message of the head's gradient"}},
    {"ADD_TIED_GRAD reads nothing", joins_nothing, {"it names no message of the head's gradient"}},
    {"no gradient of the head's", no_gradient, {"lacks a gradient of the head's"}},
    {"another weight",
     another_weight,
     {"is tied, but", "the tied weight is", "is persistent, but", "overlaps",
      "is at the address of", "bytes, but the tensor", "is outside", "the head reads",
      "lacks microbatch", "sharded over the replicas"}},
    {"another rank", another_rank, {"with a head on rank"}},
    {"two ties", two_ties, {"2 tied weights"}},
    {"no tie", no_tie, {"there is no such message", "ADD_TIED_GRAD is on a rank"}},
    {"copy among the slots",
     value_written_early,
     {"outside the persistent part", "is persistent, but"}},
};

static void defects_are_rejected(void **state) {
  (void)state;
  reject_all(defects, sizeof defects / sizeof defects[0], 27182818);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(defects_are_rejected)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
