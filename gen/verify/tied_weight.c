/* verify_tie.c: a tied matrix (struct pen_tie): its rows against the others, the places of its
 * tensors, its messages.
 *
 * Once a step, on the rank of the first stage, ADD_TIED_GRAD adds the head's gradient to the
 * embedding's, before the norm. Where the head is on another rank, the head's gradient is sent when
 * every microbatch is in it (verify_memory.c counts them) and before UPDATE clears it; and the
 * updated matrix comes back. The home of that message is the head's copy. Nobody reads the copy
 * while it changes, and it needs no credit: SEND_V < UPDATE < ADD_TIED_GRAD < WAIT_G are rows of
 * one rank from the last to the first, WAIT_G ends after SEND_G has begun, and SEND_G stands behind
 * every row of the last stage; the next of those is of the next step, behind WAIT_V. */
#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"
#include "runtime/plan/plan.h"
#include "gen/schedule/action_text.h"

/* The last row of a kind on a rank, or PEN_NONE. */
static uint32_t find_row(const struct pen_checked *c, uint32_t rank, int kind) {
  uint32_t row = c->count[rank];
  while (row-- > 0)
    if (c->row[rank][row].kind == kind) return row;
  return PEN_NONE;
}

static const char *word(char text[32], const struct pen_checked *c, uint32_t rank, uint32_t row) {
  const struct pen_action *action = &c->row[rank][row];
  return pen_action_text(text, action->kind, action->stage, action->microbatch);
}

/* Fails unless both rows are there, the first before the second. */
static bool in_order(const struct pen_checked *c, uint32_t rank, int first_kind, int second_kind,
                     const char *why) {
  uint32_t first = find_row(c, rank, first_kind), second = find_row(c, rank, second_kind);
  char text[2][32];
  if (first == PEN_NONE || second == PEN_NONE)
    return pen_problem_note(
        c->problem, rank, PEN_NONE, "%s of a tied matrix is missing",
        pen_action_text(text[0], first == PEN_NONE ? first_kind : second_kind, 0, 0));
  return first < second ||
         pen_problem_note(c->problem, rank, second, "%s stands before %s, %s",
                          word(text[0], c, rank, second), word(text[1], c, rank, first), why);
}

/* ADD_TIED_GRAD is where it is needed, and nowhere else. */
static bool check_joins(const struct pen_checked *c) {
  for (uint32_t rank = 0; rank < c->rank_count; rank++) {
    uint32_t row = find_row(c, rank, PEN_ADD_TIED_GRAD);
    bool wanted = c->joins && rank == c->rank_of[0];
    if (!wanted && row != PEN_NONE)
      return pen_problem_note(
          c->problem, rank, row,
          "ADD_TIED_GRAD stands where no tied matrix learns whose embedding is here");
    if (wanted && !in_order(c, rank, PEN_ADD_TIED_GRAD, PEN_NORM, "which is that of the sum"))
      return false;
  }
  return true;
}

/* The head's gradient leaves behind all that the last stage computes. */
static bool check_readers(const struct pen_checked *c, uint32_t head, uint32_t sent) {
  uint32_t last = c->stage_count - 1;
  char text[2][32];
  for (int kind = PEN_F; kind <= PEN_W; kind++)
    for (uint32_t microbatch = 0; microbatch < c->microbatch_count; microbatch++) {
      uint32_t row = pen_action_index(c, kind, last, microbatch);
      if (row != PEN_NONE && row > sent)
        return pen_problem_note(c->problem, head, sent,
                                "%s stands before %s, which adds to the gradient that it sends, or "
                                "reads the copy that it gives up",
                                word(text[0], c, head, sent), word(text[1], c, head, row));
    }
  return true;
}

bool pen_check_tie_actions(const struct pen_checked *c) {
  if (!check_joins(c)) return false;
  uint32_t owner = c->rank_of[0], head = c->rank_of[c->stage_count - 1];
  if (!c->joins || owner == head)
    return true; /* other rows were found to have no message (verify_rows.c) */
  return in_order(c, head, PEN_SEND_G, PEN_UPDATE, "which clears what it sends") &&
         check_readers(c, head, find_row(c, head, PEN_SEND_G)) &&
         in_order(c, owner, PEN_RECV_G, PEN_WAIT_G, "for whose message it waits") &&
         in_order(c, owner, PEN_WAIT_G, PEN_ADD_TIED_GRAD, "which it needs") &&
         in_order(c, owner, PEN_UPDATE, PEN_SEND_V, "whose result it sends") &&
         in_order(c, head, PEN_SEND_G, PEN_RECV_V, "before which the copy is read") &&
         in_order(c, head, PEN_RECV_V, PEN_WAIT_V, "for whose message it waits");
}

/* ---- places ---- */

static bool learns(const struct pen_plan *plan, const struct pen_tie *tie) {
  for (uint32_t index = 0; index < plan->profile_count; index++)
    if (plan->profiles[index].kind == PEN_TRAIN) return !plan->weights[tie->weight].frozen;
  return false;
}

bool pen_plan_joins(const struct pen_plan *plan, int profile_kind) {
  return profile_kind == PEN_TRAIN && plan->tie_count == 1 &&
         plan->ties[0].weight < plan->weight_count && learns(plan, &plan->ties[0]);
}

/* Where the owner has what the head reads. */
static uint64_t read_at(const struct pen_plan *plan, const struct pen_tie *tie) {
  const struct pen_weight *weight = &plan->weights[tie->weight];
  return tie->dtype == PEN_BF16 ? weight->bf16_offset : weight->value_offset;
}

bool pen_check_ties(const struct pen_checked *c, const struct pen_plan *plan) {
  struct pen_problem *problem = c->problem;
  if (plan->tie_count == 0) return true;
  const struct pen_tie *tie = plan->ties;
  if (plan->tie_count > 1)
    return pen_problem_note(problem, PEN_NONE, PEN_NONE,
                            "%u tied matrices: a model has one embedding and one head",
                            plan->tie_count);
  if (tie->weight >= plan->weight_count)
    return pen_problem_note(problem, PEN_NONE, PEN_NONE, "the tied matrix is weight %u of %u",
                            tie->weight, plan->weight_count);
  const struct pen_weight *weight = &plan->weights[tie->weight];
  if (weight->stage != 0 || tie->rank != c->rank_of[c->stage_count - 1])
    return pen_problem_note(problem, PEN_NONE, PEN_NONE,
                            "%s is tied, but of stage %u, with a head on rank %u", weight->name,
                            weight->stage, tie->rank);
  if (tie->dtype != (weight->bf16_offset == UINT64_MAX ? PEN_F32 : PEN_BF16))
    return pen_problem_note(problem, tie->rank, PEN_NONE,
                            "the head reads %s as another type than the products' copy has",
                            weight->name);
  bool together = tie->rank == weight->rank;
  if (together && tie->value_offset != read_at(plan, tie))
    return pen_problem_note(problem, tie->rank, PEN_NONE, "the head reads %s at %llu, not at %llu",
                            weight->name, (unsigned long long)tie->value_offset,
                            (unsigned long long)read_at(plan, tie));
  return learns(plan, tie) == (tie->gradient_offset != UINT64_MAX) ||
         pen_problem_note(problem, tie->rank, PEN_NONE,
                          "%s is tied and %s a gradient of the head's", weight->name,
                          learns(plan, tie) ? "lacks" : "does not learn, but has");
}

/* ---- messages ---- */

bool pen_check_join(const struct pen_checked *c, const struct pen_plan *plan,
                    const struct pen_profile *profile, uint32_t rank, uint32_t row) {
  const struct pen_action *join = &c->row[rank][row];
  if (plan->ties[0].rank == rank) return true; /* it reads the gradient where the head leaves it */
  return (join->message < profile->message_count &&
          profile->messages[join->message].kind == PEN_SEND_G) ||
         pen_problem_note(c->problem, rank, row, "it names no message of the head's gradient");
}

bool pen_check_tie_message(const struct pen_checked *c, const struct pen_plan *plan,
                           const struct pen_profile *profile, uint32_t rank, uint32_t row) {
  const struct pen_message *message = &profile->messages[c->row[rank][row].message];
  const struct pen_tie *tie = plan->ties;
  const struct pen_weight *weight = &plan->weights[tie->weight];
  bool gradient = message->kind == PEN_SEND_G;
  uint64_t source = gradient ? tie->gradient_offset : read_at(plan, tie);
  uint64_t bytes = weight->count * (gradient ? sizeof(float) : pen_dtype_bytes(tie->dtype));
  uint64_t target = gradient ? message->target_offset : tie->value_offset,
           window = plan->memory[weight->rank].receive_bytes;
  if (message->bytes != bytes)
    return pen_problem_note(c->problem, rank, row,
                            "its message has %llu bytes, but the tensor %llu",
                            (unsigned long long)message->bytes, (unsigned long long)bytes);
  if (message->source_offset != source)
    return pen_problem_note(c->problem, rank, row,
                            "its message leaves from %llu, but what it sends is at %llu",
                            (unsigned long long)message->source_offset, (unsigned long long)source);
  if (message->target_offset != target)
    return pen_problem_note(c->problem, rank, row,
                            "its message's home is at %llu, but it is read at %llu",
                            (unsigned long long)message->target_offset, (unsigned long long)target);
  if (gradient && (target > window || message->bytes > window - target))
    return pen_problem_note(c->problem, rank, row,
                            "its message's home at %llu is outside the window of rank %u",
                            (unsigned long long)target, weight->rank);
  return true;
}
