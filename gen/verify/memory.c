/* memory.c: every byte of every arena over two successive steps.
 *
 * The arena of a rank is split into byte ranges at every address where something begins or ends
 * (extent_map.h). For each range the verifier keeps the tensor, microbatch and step that were last
 * written there. The actions of the rank run twice: the trace of an action (op_trace.h) says which
 * ranges it reads, which must all hold exactly the expected value, and what it writes. A value that
 * a stage passes to the next stage on the same rank is one value.
 *
 * A message may change its target bytes at any time from the earliest moment at which its sender
 * could write them (arrivals.c). From then to its WAIT the bytes are in flight: no action may read
 * or write them.
 *
 * The two actions of a pair a|b may run concurrently: besides being right in sequence, their bytes
 * must not overlap.
 *
 * For the rendezvous models this also records which actions overwrite what an earlier send of the
 * step reads. */
#include "gen/base/arena.h"
#include "gen/verify/memory_actions.h"
#include "gen/verify/relocated_trace.h"
#include "runtime/plan/plan.h"

/* Traces every pair of program and frame once; trace_of[] finds it for each compute action. */
static bool trace_actions(struct pen_memory_state *m) {
  uint32_t count = m->context->tables->action_count;
  size_t slots = 16;
  while (slots < 2 * (size_t)count) slots *= 2;
  uint32_t *slot_action = pen_new(slots, sizeof *slot_action); /* index + 1 */
  m->trace_of = pen_new((size_t)count + 1, sizeof *m->trace_of);
  if (!pen_trace_start(m->tracer)) return false;
  for (uint32_t index = 0; index < count; index++) {
    const struct pen_action *action = &m->context->tables->actions[index], *other;
    if (!pen_is_compute(action->kind)) continue;
    uint64_t hash = ((uint64_t)action->program << 32 | action->frame) * 0x9e3779b97f4a7c15u;
    size_t slot = (size_t)(hash >> 24) & (slots - 1);
    for (; slot_action[slot]; slot = (slot + 1) & (slots - 1)) {
      other = &m->context->tables->actions[slot_action[slot] - 1];
      if (other->program == action->program && other->frame == action->frame) break;
    }
    if (slot_action[slot]) {
      m->trace_of[index] = m->trace_of[slot_action[slot] - 1];
      continue;
    }
    slot_action[slot] = index + 1;
    PEN_RESERVE(m->trace, m->trace_count + 1);
    m->trace_of[index] = (uint32_t)m->trace_count;
    if (!pen_trace_action(m->tracer, index, &m->trace[m->trace_count++])) return false;
  }
  pen_free(slot_action);
  return true;
}

static void add_unsharded(struct pen_memory_state *m) {
  for (uint32_t index = 0; index < m->context->tables->action_count; index++) {
    const struct pen_action *action = &m->context->tables->actions[index];
    if (action->kind != PEN_UNSHARD) continue;
    uint64_t first, past,
        address = m->context->tables->frames[action->frame].base[PEN_BASE_UNSHARDED];
    for (uint32_t n = 0; pen_memory_next_unsharded(m, action->stage, address, &n, &first, &past);
         n++)
      pen_address_map_add_range(&m->map, first, past);
  }
}

/* Replaces the numbers of addresses by indices of ranges. */
static void number_ranges(const struct pen_memory_state *m, struct pen_byte_ranges *ranges,
                          size_t count) {
  for (size_t index = 0; index < count; index++)
    ranges[index] = (struct pen_byte_ranges){m->map.range[ranges[index].first],
                                             m->map.range[ranges[index].past]};
}

/* Splits the arena into byte ranges, and replaces the addresses of extents and messages by ranges.
 */
static void split_arena(struct pen_memory_state *m) {
  const struct pen_rank_program *tables = m->context->tables;
  struct pen_extent *extent = m->tracer->extent;
  m->target = pen_new((size_t)m->message_count + 1, sizeof *m->target);
  m->source = pen_new((size_t)tables->action_count + 1, sizeof *m->source);
  pen_address_map_add(&m->map, 0);
  for (size_t index = 0; index < m->tracer->extent_count; index++) {
    struct pen_byte_ranges ranges =
        pen_address_map_add_range(&m->map, extent[index].first, extent[index].past);
    extent[index].first = ranges.first;
    extent[index].past = ranges.past;
  }
  for (uint32_t n = 0; n < m->message_count; n++) {
    const struct pen_message *message = &m->context->profile->messages[m->message[n]];
    m->incoming[m->message[n]] = n;
    if (message->kind != PEN_SEND_V)
      m->target[n] = pen_address_map_add_range(&m->map, message->target_offset,
                                               message->target_offset + message->bytes);
  }
  for (uint32_t action = 0; action < tables->action_count; action++)
    if (pen_is_send(tables->actions[action].kind) &&
        !pen_is_tied_message(tables->actions[action].kind)) {
      const struct pen_message *message =
          &m->context->profile->messages[tables->actions[action].message];
      m->source[action] = pen_address_map_add_range(&m->map, message->source_offset,
                                                    message->source_offset + message->bytes);
    }
  add_unsharded(m);
  pen_address_map_sort(&m->map);
  for (size_t index = 0; index < m->tracer->extent_count; index++) {
    extent[index].first = m->map.range[extent[index].first];
    extent[index].past = m->map.range[extent[index].past];
  }
  number_ranges(m, m->target, m->message_count);
  number_ranges(m, m->source, tables->action_count);
  m->content = pen_new(m->map.count + 1, sizeof *m->content);
  m->mark = pen_new(m->map.count + 1, sizeof *m->mark);
}

/* Lists the messages that may arrive after each action, in each step. */
static void list_events(struct pen_memory_state *m) {
  size_t moments = 2 * (size_t)m->context->tables->action_count + 1;
  m->first_event = pen_new(moments, sizeof *m->first_event);
  m->next_event = pen_new(2 * (size_t)m->message_count + 1, sizeof *m->next_event);
  for (size_t moment = 0; moment < moments; moment++) m->first_event[moment] = PEN_NONE;
  for (uint32_t event = 2 * m->message_count; event-- > 0;) {
    uint32_t step = event >= m->message_count,
             *first =
                 &m->first_event[m->earliest[step][m->message[event - step * m->message_count]]];
    m->next_event[event] = *first;
    *first = event;
  }
}

static void free_memory_state(struct pen_memory_state *m) {
  void *const arrays[] = {m->trace,        m->trace_of, m->target,      m->source,
                          m->content,      m->mark,     m->first_event, m->next_event,
                          m->unsharded_at, m->added,    m->owes_loss};
  for (size_t index = 0; index < sizeof arrays / sizeof *arrays; index++) pen_free(arrays[index]);
  pen_address_map_free(&m->map);
  pen_tracer_free(m->tracer);
}

static bool run_two_steps(struct pen_memory_state *m) {
  pen_tracer_start(m->tracer, m->context);
  if (!trace_actions(m)) return false;
  split_arena(m);
  list_events(m);
  m->unsharded_at = pen_new(m->c->stage_count, sizeof *m->unsharded_at);
  m->added = pen_new(((size_t)m->context->own_weight_count + m->context->plan->tie_count) *
                             m->c->microbatch_count +
                         1,
                     1);
  m->owes_loss = pen_new((size_t)m->c->microbatch_count + 1, sizeof *m->owes_loss);
  uint32_t count = m->context->tables->action_count;
  pen_memory_run_events(m, 0);
  for (m->step = 0; m->step < 2; m->step++)
    for (m->action = 0; m->action < count; m->action++) {
      if (!pen_memory_run_action(m)) return false;
      pen_memory_run_events(m, m->step * count + m->action + 1);
    }
  free_memory_state(m);
  return true;
}

bool pen_check_memory(struct pen_check_context *c, const struct pen_rank_context *contexts) {
  const struct pen_profile *profile = contexts[0].profile;
  uint32_t *earliest[2] = {pen_new((size_t)profile->message_count + 1, sizeof(uint32_t)),
                           pen_new((size_t)profile->message_count + 1, sizeof(uint32_t))};
  uint32_t *message = pen_new((size_t)profile->message_count + 1, sizeof *message);
  uint32_t *incoming = pen_new((size_t)profile->message_count + 1, sizeof *incoming);
  uint32_t *first = pen_new((size_t)c->rank_count + 2, sizeof *first);
  pen_earliest_arrivals(c, profile, earliest);
  for (uint32_t index = 0; index < profile->message_count; index++)
    first[profile->channels[profile->messages[index].channel].to_rank + 2]++;
  for (uint32_t rank = 0; rank <= c->rank_count; rank++) first[rank + 1] += first[rank];
  for (uint32_t index = 0; index < profile->message_count; index++)
    message[first[profile->channels[profile->messages[index].channel].to_rank + 1]++] = index;
  c->hazard = pen_new(c->rank_count, sizeof *c->hazard);
  c->hazard_count = pen_new(c->rank_count, sizeof *c->hazard_count);
  struct pen_tracer tracer = {0};
  for (uint32_t rank = 0; rank < c->rank_count; rank++) {
    struct pen_memory_state m = {.c = c,
                                 .context = &contexts[rank],
                                 .tracer = &tracer,
                                 .earliest = earliest,
                                 .message = message + first[rank],
                                 .message_count = first[rank + 1] - first[rank],
                                 .incoming = incoming};
    if (!run_two_steps(&m)) return false;
  }
  return true;
}
