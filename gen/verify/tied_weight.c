/* tied_weight.c: a tied weight (struct pen_tie, one for each of its splits): the order of its
 * actions, the addresses of its tensors, its messages. Tables of ranks and messages are those of
 * the first tensor rank, and so are the ties that they name: those of others are at the same
 * places.
 *
 * Once a step, on the rank of the first stage, ADD_TIED_GRAD adds the gradient of the head to that
 * of the embedding, before the norm. Where the head is on another rank, its gradient is sent when
 * every microbatch was accumulated into it (memory.c counts them) and before UPDATE clears it; and
 * the updated weight is sent back. The target of that message is the copy of the head. No action
 * reads the copy while it changes, and it needs no credit: SEND_V, UPDATE, ADD_TIED_GRAD and WAIT_G
 * are actions of one rank in reverse order, WAIT_G ends after SEND_G has begun, and SEND_G comes
 * after every action of the last stage; the next of those is in the next step, after WAIT_V. */
#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"
#include "runtime/plan/plan.h"

/* The last action of a kind on a rank, or PEN_NONE. */
static uint32_t find_action(const struct pen_check_context *c, uint32_t rank, int kind) {
  uint32_t action = c->count[rank];
  while (action-- > 0)
    if (c->action[rank][action].kind == kind) return action;
  return PEN_NONE;
}

static const char *action_name(char text[32], const struct pen_check_context *c, uint32_t rank,
                               uint32_t action) {
  return pen_problem_action(text, &c->action[rank][action]);
}

/* Both actions are present, the first before the second. */
static bool check_kinds_in_order(const struct pen_check_context *c, uint32_t rank, int first_kind,
                                 int second_kind, const char *why) {
  uint32_t first = find_action(c, rank, first_kind), second = find_action(c, rank, second_kind);
  char text[2][32];
  if (first == PEN_NONE || second == PEN_NONE)
    return pen_problem_note(
        c->problem, rank, PEN_NONE, "%s of a tied weight is missing",
        pen_problem_action(
            text[0],
            &(struct pen_action){.kind = (uint8_t)(first == PEN_NONE ? first_kind : second_kind)}));
  return first < second || pen_problem_note(c->problem, rank, second, "%s comes before %s, %s",
                                            action_name(text[0], c, rank, second),
                                            action_name(text[1], c, rank, first), why);
}

/* ADD_TIED_GRAD is on the rank that needs it, and on no other. */
static bool check_additions(const struct pen_check_context *c) {
  for (uint32_t rank = 0; rank < c->rank_count; rank++) {
    uint32_t action = find_action(c, rank, PEN_ADD_TIED_GRAD);
    bool wanted = c->adds_tied_gradient && rank == c->rank_of[0];
    if (!wanted && action != PEN_NONE)
      return pen_problem_note(
          c->problem, rank, action,
          "ADD_TIED_GRAD is on a rank without the embedding of a trained tied weight");
    if (wanted &&
        !check_kinds_in_order(c, rank, PEN_ADD_TIED_GRAD, PEN_NORM, "which is that of the sum"))
      return false;
  }
  return true;
}

/* SEND_G comes after all compute actions of the last stage. */
static bool check_readers(const struct pen_check_context *c, uint32_t head, uint32_t sent) {
  uint32_t last = c->stage_count - 1;
  char text[2][32];
  for (int kind = PEN_F; kind <= PEN_W; kind++)
    for (uint32_t microbatch = 0; microbatch < c->microbatch_count; microbatch++) {
      uint32_t action = pen_action_position(c, kind, last, microbatch);
      if (action != PEN_NONE && action > sent)
        return pen_problem_note(c->problem, head, sent,
                                "%s comes before %s, which adds to the gradient that it sends, or "
                                "reads the copy that it releases",
                                action_name(text[0], c, head, sent),
                                action_name(text[1], c, head, action));
    }
  return true;
}

bool pen_check_tie_actions(const struct pen_check_context *c) {
  if (!check_additions(c)) return false;
  uint32_t owner = c->rank_of[0], head = c->rank_of[c->stage_count - 1];
  if (!c->adds_tied_gradient || owner == head)
    return true; /* actions.c refused all messages of a tied weight */
  return check_kinds_in_order(c, head, PEN_SEND_G, PEN_UPDATE, "which clears what it sends") &&
         check_readers(c, head, find_action(c, head, PEN_SEND_G)) &&
         check_kinds_in_order(c, owner, PEN_RECV_G, PEN_WAIT_G, "for whose message it waits") &&
         check_kinds_in_order(c, owner, PEN_WAIT_G, PEN_ADD_TIED_GRAD, "which it needs") &&
         check_kinds_in_order(c, owner, PEN_UPDATE, PEN_SEND_V, "whose result it sends") &&
         check_kinds_in_order(c, head, PEN_SEND_G, PEN_RECV_V, "before which the copy is read") &&
         check_kinds_in_order(c, head, PEN_RECV_V, PEN_WAIT_V, "for whose message it waits");
}

/* ---- addresses ---- */

static bool is_trained(const struct pen_plan *plan, const struct pen_tie *tie) {
  for (uint32_t index = 0; index < plan->profile_count; index++)
    if (plan->profiles[index].kind == PEN_TRAIN) return !plan->weights[tie->weight].frozen;
  return false;
}

bool pen_plan_adds_tied_gradient(const struct pen_plan *plan, int profile_kind) {
  return profile_kind == PEN_TRAIN && plan->tie_count > 0 &&
         plan->ties[0].weight < plan->weight_count && is_trained(plan, &plan->ties[0]);
}

/* The address of what the head reads, on the rank of the embedding. */
static uint64_t value_address(const struct pen_plan *plan, const struct pen_tie *tie) {
  const struct pen_weight *weight = &plan->weights[tie->weight];
  return tie->dtype == PEN_BF16 ? weight->bf16_offset : weight->value_offset;
}

/* The ties are the splits of one tensor, each once and in their order. */
static bool check_tied_splits(const struct pen_check_context *c, const struct pen_plan *plan) {
  const struct pen_tie *tie = plan->ties;
  const struct pen_weight *first =
      tie->weight < plan->weight_count ? &plan->weights[tie->weight] : 0;
  if (first && plan->tie_count != first->split_count)
    return pen_problem_note(c->problem, PEN_NONE, PEN_NONE,
                            "%u tied weights of %u splits: a model has one embedding and one head",
                            plan->tie_count, first->split_count);
  if (plan->tie_count % pen_group_size(plan, PEN_TENSOR))
    return pen_problem_note(c->problem, PEN_NONE, PEN_NONE,
                            "tied: %u tensor ranks cannot share %u tied weights",
                            pen_group_size(plan, PEN_TENSOR), plan->tie_count);
  for (uint32_t n = 0; n < plan->tie_count; n++) {
    if (tie[n].weight >= plan->weight_count)
      return pen_problem_note(c->problem, PEN_NONE, PEN_NONE, "the tied weight is %u of %u",
                              tie[n].weight, plan->weight_count);
    if (plan->weights[tie[n].weight].split != n || tie[n].weight != tie->weight + n)
      return pen_problem_note(c->problem, PEN_NONE, PEN_NONE,
                              "tied: tie %u is of %s, which is not split %u of its tensor", n,
                              plan->weights[tie[n].weight].name, n);
  }
  return true;
}

static bool check_tie(const struct pen_check_context *c, const struct pen_plan *plan,
                      const struct pen_tie *tie) {
  struct pen_problem *problem = c->problem;
  const struct pen_weight *weight = &plan->weights[tie->weight];
  if (weight->stage != 0 || tie->rank != c->rank_of[c->stage_count - 1])
    return pen_problem_note(problem, PEN_NONE, PEN_NONE,
                            "%s is tied, but of stage %u, with a head on rank %u", weight->name,
                            weight->stage, tie->rank);
  if (tie->dtype != (weight->bf16_offset == UINT64_MAX ? PEN_F32 : PEN_BF16))
    return pen_problem_note(problem, tie->rank, PEN_NONE,
                            "the head reads %s as another dtype than its copy has", weight->name);
  bool same_rank = tie->rank == weight->rank;
  if (same_rank && tie->value_offset != value_address(plan, tie))
    return pen_problem_note(problem, tie->rank, PEN_NONE, "the head reads %s at %llu, not at %llu",
                            weight->name, (unsigned long long)tie->value_offset,
                            (unsigned long long)value_address(plan, tie));
  return is_trained(plan, tie) == (tie->gradient_offset != UINT64_MAX) ||
         pen_problem_note(problem, tie->rank, PEN_NONE,
                          "%s is tied and %s a gradient of the head's", weight->name,
                          is_trained(plan, tie) ? "lacks" : "is not trained, but has");
}

/* The bytes that follow the start of a tie's value, or gradient, in a message. */
static uint64_t tie_bytes(const struct pen_plan *plan, const struct pen_tie *tie, bool gradient) {
  const struct pen_weight *weight = &plan->weights[tie->weight];
  return gradient ? pen_stored_bytes(plan, weight, weight->gradient_sharded)
                  : pen_value_bytes(plan, tie->weight, tie->dtype);
}

/* One message has what all ties of a tensor rank send: each lies next to the one before it, at both
 * ends. So nothing else is in the range of the message, since all tensors are aligned. */
static bool check_side_by_side(const struct pen_check_context *c, const struct pen_plan *plan,
                               const struct pen_tie *tie) {
  const uint64_t value = pen_aligned(tie[-1].value_offset + tie_bytes(plan, &tie[-1], false)),
                 owned =
                     pen_aligned(value_address(plan, &tie[-1]) + tie_bytes(plan, &tie[-1], false)),
                 gradient = pen_aligned(tie[-1].gradient_offset + tie_bytes(plan, &tie[-1], true));
  return (tie->value_offset == value && value_address(plan, tie) == owned &&
          (!is_trained(plan, tie) || tie->gradient_offset == gradient)) ||
         pen_problem_note(c->problem, tie->rank, PEN_NONE,
                          "tied: what embedding and head have of %s is not next to that of the "
                          "split before it, as "
                          "in the messages of a tied weight",
                          plan->weights[tie->weight].name);
}

/* The messages of a later tensor rank have its ties at the places of the first's. */
static bool check_place_of_tensor_rank(const struct pen_check_context *c,
                                       const struct pen_plan *plan, const struct pen_tie *tie,
                                       const struct pen_tie *first) {
  return (tie->value_offset == first->value_offset &&
          tie->gradient_offset == first->gradient_offset) ||
         pen_problem_note(c->problem, tie->rank, PEN_NONE,
                          "tied: what the head has of %s is in another place than that of %s of "
                          "tensor rank 0",
                          plan->weights[tie->weight].name, plan->weights[first->weight].name);
}

bool pen_check_ties(const struct pen_check_context *c, const struct pen_plan *plan) {
  if (plan->tie_count == 0) return true;
  if (!check_tied_splits(c, plan)) return false;
  const uint32_t own = pen_local_tie_count(plan);
  for (uint32_t n = 0; n < plan->tie_count; n++) {
    const struct pen_tie *tie = &plan->ties[n];
    const bool sent = tie->rank != plan->weights[tie->weight].rank;
    if (!check_tie(c, plan, tie) ||
        (n >= own ? !check_place_of_tensor_rank(c, plan, tie, &plan->ties[n % own])
                  : n > 0 && sent && !check_side_by_side(c, plan, tie)))
      return false;
  }
  return true;
}

/* ---- messages ---- */

bool pen_check_add_tied_gradient(const struct pen_check_context *c, const struct pen_plan *plan,
                                 const struct pen_profile *profile, uint32_t rank,
                                 uint32_t action) {
  const struct pen_action *addition = &c->action[rank][action];
  if (plan->ties[0].rank == rank) /* it reads the gradient where the head wrote it */
    return addition->message == PEN_NONE ||
           pen_problem_note(c->problem, rank, action, "it names a message, but the head is here");
  return (addition->message < profile->message_count &&
          profile->messages[addition->message].kind == PEN_SEND_G) ||
         pen_problem_note(c->problem, rank, action, "it names no message of the head's gradient");
}

bool pen_check_tie_message(const struct pen_check_context *c, const struct pen_plan *plan,
                           const struct pen_profile *profile, uint32_t rank, uint32_t action) {
  const struct pen_message *message = &profile->messages[c->action[rank][action].message];
  const struct pen_tie *tie = plan->ties, *last = tie + pen_local_tie_count(plan) - 1;
  const struct pen_weight *weight = &plan->weights[tie->weight];
  bool gradient = message->kind == PEN_SEND_G;
  uint64_t source = gradient ? tie->gradient_offset : value_address(plan, tie);
  uint64_t bytes = (gradient ? last->gradient_offset : value_address(plan, last)) - source +
                   tie_bytes(plan, last, gradient);
  uint64_t target = gradient ? message->target_offset : tie->value_offset,
           receive_bytes = plan->memory[weight->rank].receive_bytes;
  if (message->bytes != bytes)
    return pen_problem_note(c->problem, rank, action,
                            "its message has %llu bytes, but the tensor has %llu",
                            (unsigned long long)message->bytes, (unsigned long long)bytes);
  if (message->source_offset != source)
    return pen_problem_note(c->problem, rank, action,
                            "its message leaves from %llu, but what it sends is at %llu",
                            (unsigned long long)message->source_offset, (unsigned long long)source);
  if (message->target_offset != target)
    return pen_problem_note(c->problem, rank, action,
                            "its message's target is at %llu, but it is read at %llu",
                            (unsigned long long)message->target_offset, (unsigned long long)target);
  if (gradient && (target > receive_bytes || message->bytes > receive_bytes - target))
    return pen_problem_note(c->problem, rank, action,
                            "its message's target at %llu is outside the receive region of rank %u",
                            (unsigned long long)target, weight->rank);
  return true;
}
