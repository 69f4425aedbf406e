/* messages.c: the tables of messages and channels of a finished plan.
 *
 * The bytes of a message are those of its tensor; its source is where the producer's frame has the
 * tensor, its target, in the receive region, where the consumer's has it. Messages are numbered on
 * their channel in the order of their SENDs, credits in the order of their RECVs; channels have the
 * right counts. tied_weight.c checks the messages of a tied weight. */
#include "gen/base/arena.h"
#include "gen/verify/internal.h"
#include "runtime/plan/audit_sum.h"
#include "runtime/plan/plan.h"

/* The address of a tensor when an action runs. */
static uint64_t address_of(const struct pen_profile *profile, uint32_t rank, uint32_t action,
                           uint32_t tensor) {
  const struct pen_rank_program *tables = &profile->ranks[rank];
  const struct pen_tensor *t = &tables->tensors[tensor];
  return tables->frames[tables->actions[action].frame].base[t->base] + t->offset;
}

/* The message from a stage to a neighbour: its bytes, source and target. */
static bool check_border_message(const struct pen_check_context *c, const struct pen_plan *plan,
                                 const struct pen_profile *profile, uint32_t rank,
                                 uint32_t action) {
  const struct pen_message *message = &profile->messages[c->action[rank][action].message];
  bool backward = message->kind == PEN_SEND_B;
  uint32_t receiver = pen_receiving_stage(c, pen_direction_of(message->kind), message->stage),
           to = c->rank_of[receiver], microbatch = message->microbatch;
  uint32_t producer = backward ? pen_backward_index(c, message->stage, microbatch)
                               : pen_action_position(c, PEN_F, message->stage, microbatch);
  uint32_t consumer = backward ? pen_backward_index(c, receiver, microbatch)
                               : pen_action_position(c, PEN_F, receiver, microbatch);
  const struct pen_stage *from_stage = &profile->stages[message->stage],
                         *to_stage = &profile->stages[receiver];
  uint32_t source = backward ? from_stage->input_gradient : from_stage->output;
  uint32_t target = backward ? to_stage->output_gradient : to_stage->input;
  uint64_t bytes = pen_bytes_passed(plan->audits && profile->kind == PEN_TRAIN,
                                    profile->ranks[rank].tensors[source].bytes);
  if (message->bytes != bytes)
    return pen_problem_note(c->problem, rank, action,
                            "its message has %llu bytes, but the tensor has %llu",
                            (unsigned long long)message->bytes, (unsigned long long)bytes);
  if (message->source_offset != address_of(profile, rank, producer, source))
    return pen_problem_note(c->problem, rank, action,
                            "its message leaves from %llu, but what it sends is made at %llu",
                            (unsigned long long)message->source_offset,
                            (unsigned long long)address_of(profile, rank, producer, source));
  const struct pen_rank_memory *own = &plan->memory[rank];
  bool in_receive_region = message->source_offset < own->receive_bytes;
  uint64_t first = in_receive_region ? 0 : own->persistent_end,
           past = in_receive_region ? own->receive_bytes : pen_activations_end(profile, own);
  if (message->source_offset < first || message->source_offset > past ||
      message->bytes > past - message->source_offset)
    return pen_problem_note(
        c->problem, rank, action,
        "its message leaves from %llu, outside the receive region and the activation part",
        (unsigned long long)message->source_offset);
  if (message->target_offset != address_of(profile, to, consumer, target))
    return pen_problem_note(c->problem, rank, action,
                            "its message's target is at %llu, but rank %u reads it at %llu",
                            (unsigned long long)message->target_offset, to,
                            (unsigned long long)address_of(profile, to, consumer, target));
  if (message->target_offset > plan->memory[to].receive_bytes ||
      message->bytes > plan->memory[to].receive_bytes - message->target_offset)
    return pen_problem_note(c->problem, rank, action,
                            "its message's target at %llu is outside the receive region of rank %u",
                            (unsigned long long)message->target_offset, to);
  return true;
}

static bool check_message(const struct pen_check_context *c, const struct pen_plan *plan,
                          const struct pen_profile *profile, uint32_t rank, uint32_t action,
                          uint32_t number) {
  const struct pen_message *message = &profile->messages[c->action[rank][action].message];
  enum pen_direction direction = pen_direction_of(message->kind);
  uint32_t to = c->rank_of[pen_receiving_stage(c, direction, message->stage)];
  if (message->channel >= profile->channel_count)
    return pen_problem_note(c->problem, rank, action, "its message has no channel");
  const struct pen_channel *channel = &profile->channels[message->channel];
  if (channel->from_rank != rank || channel->to_rank != to)
    return pen_problem_note(c->problem, rank, action,
                            "its message goes to rank %u, but its channel is from %u to %u", to,
                            channel->from_rank, channel->to_rank);
  if (message->sequence != number)
    return pen_problem_note(c->problem, rank, action,
                            "its message has sequence %u, but is number %u on its channel",
                            message->sequence, number);
  bool between_stages = direction == PEN_DIRECTION_FORWARD || direction == PEN_DIRECTION_BACKWARD;
  return between_stages ? check_border_message(c, plan, profile, rank, action)
                        : pen_check_tie_message(c, plan, profile, rank, action);
}

bool pen_check_messages(const struct pen_check_context *c, const struct pen_plan *plan,
                        const struct pen_profile *profile) {
  uint32_t *sent = pen_new((size_t)profile->channel_count + 1, sizeof *sent), total = 0;
  uint32_t *credits = pen_new((size_t)profile->channel_count + 1, sizeof *credits);
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    for (uint32_t index = 0; index < c->count[rank]; index++) {
      const struct pen_action *action = &c->action[rank][index];
      if (pen_is_send(action->kind)) {
        uint32_t channel = profile->messages[action->message].channel;
        if (!check_message(c, plan, profile, rank, index,
                           channel < profile->channel_count ? sent[channel] : 0))
          return false;
        sent[channel]++;
        total++;
      }
    }
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    for (uint32_t index = 0; index < c->count[rank]; index++) {
      const struct pen_action *action = &c->action[rank][index];
      if (!pen_is_receive(action->kind)) continue;
      const struct pen_message *message = &profile->messages[action->message];
      if (message->credit != PEN_NONE && message->credit != credits[message->channel]++)
        return pen_problem_note(c->problem, rank, index,
                                "it gives credit %u, but is number %u to give one on its channel",
                                message->credit, credits[message->channel] - 1);
    }
  if (total != profile->message_count)
    return pen_problem_note(c->problem, PEN_NONE, PEN_NONE, "%u messages, but %u are sent",
                            profile->message_count, total);
  for (uint32_t index = 0; index < profile->channel_count; index++) {
    const struct pen_channel *channel = &profile->channels[index];
    if (channel->message_count != sent[index] || channel->credit_count != credits[index])
      return pen_problem_note(
          c->problem, PEN_NONE, PEN_NONE,
          "the channel from rank %u to %u counts %u messages and %u credits, but has %u and %u",
          channel->from_rank, channel->to_rank, channel->message_count, channel->credit_count,
          sent[index], credits[index]);
  }
  return true;
}
