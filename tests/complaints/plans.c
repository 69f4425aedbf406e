/* plans.c: complaints of buffers that are used again too early: plans in which they are so are
 * refused. */
#include "tests/support/collective_plans.h"

/* A message of another one's channel and size that arrives later, or null. */
static struct pen_message *later_message(const struct broken_plan *p,
                                         const struct pen_message *message) {
  const struct pen_profile *profile = p->profile;
  for (uint32_t m = 0; m < profile->message_count; m++) {
    struct pen_message *other = WRITABLE(struct pen_message, &profile->messages[m]);
    if (other->channel == message->channel && other->bytes == message->bytes &&
        other->sequence == message->sequence + 1 &&
        other->target_offset != message->target_offset) {
      return other;
    }
  }
  return NULL;
}

/* The next message arrives in the buffer of one that is not read yet. */
static bool next_in_the_same_buffer(struct broken_plan *p) {
  const struct pen_message *message = some_message(p);
  struct pen_message *next = message == NULL ? NULL : later_message(p, message);
  if (next == NULL || (next->kind != PEN_SEND_F && next->kind != PEN_SEND_B)) {
    return false;
  }
  turn_to_rank(p, p->profile->channels[next->channel].to_rank);
  const bool forward = next->kind == PEN_SEND_F;
  const uint32_t reader = forward ? next->stage + 1u : next->stage - 1u;
  const uint32_t received =
      find_row(p, forward ? PEN_RECV_F : PEN_RECV_B, reader, next->microbatch);
  const uint32_t read = find_row(p, forward ? PEN_F : PEN_B, reader, message->microbatch);
  if (received == PEN_NONE || read == PEN_NONE || received > read) {
    return false;
  }
  set_all_bases(p, reader, next->microbatch, forward ? PEN_BASE_INPUT : PEN_BASE_OUTPUT_GRADIENT,
                message->target_offset);
  next->target_offset = message->target_offset;
  return true;
}

static bool is_send(const struct broken_plan *p, uint32_t row) {
  return p->action[row].kind == PEN_SEND_F || p->action[row].kind == PEN_SEND_B;
}

/* What is sent is overwritten before the send: the next forward has its output there, too. */
static bool overwritten_before_its_send(struct broken_plan *p) {
  const uint32_t send = some_row(p, PEN_SEND_F, PEN_SEND_F);
  if (send == PEN_NONE) {
    return false;
  }
  const struct pen_message *message = &p->profile->messages[p->action[send].message];
  for (uint32_t row = send + 1; row < p->tables->action_count && !is_send(p, row); row++) {
    if (p->action[row].kind == PEN_F && uses_base(p, row, PEN_BASE_OUTPUT)) {
      move_action(p, send, row);
      set_base(p, row - 1, PEN_BASE_OUTPUT, message->source_offset);
      return true;
    }
  }
  return false;
}

static void pytorch_185331_a_message_arrives_in_a_buffer_in_use(void **state) {
  static const struct defect defect = {
      "next in the same buffer",
      next_in_the_same_buffer,
      {"may already arrive there", "but its bytes hold", "overlaps it", "in the same bytes"}};
  (void)state;
  reject_all(&defect, 1, 185331);
}

static void megatron_lm_4047_what_is_sent_is_overwritten_before_its_send(void **state) {
  static const struct defect defect = {
      "overwritten before its send",
      overwritten_before_its_send,
      {"one writes where the other has", "but its bytes hold", "but what it sends is made at",
       "in the same bytes", "its message leaves from", "overlaps it"}};
  (void)state;
  reject_all(&defect, 1, 4047);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pytorch_185331_a_message_arrives_in_a_buffer_in_use),
      cmocka_unit_test(megatron_lm_4047_what_is_sent_is_overwritten_before_its_send),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
