/* memory_actions.c: what an action does to the bytes of its rank's arena. */
#include <string.h>

#include "gen/base/arena.h"
#include "gen/verify/memory_actions.h"
#include "runtime/plan/plan.h"

static const char *tensor_name(const struct pen_memory_state *m, uint32_t tensor) {
  return tensor == m->context->tables->tensor_count ? "the head's gradient"
                                                    : m->context->tables->tensors[tensor].name;
}

#define PROBLEM(m, ...) \
  pen_problem_note((m)->c->problem, (m)->context->rank, (m)->action, __VA_ARGS__)

/* Reports what is stored where another value was expected. */
static bool report_content(const struct pen_memory_state *m, const char *verb, uint32_t tensor,
                           uint32_t microbatch, const struct pen_range_content *content) {
  const char *name = tensor_name(m, tensor);
  const char *step = m->step == 0 ? "" : " (next step)";
  if (content->writer == 0)
    return PROBLEM(m, "%s %s of microbatch %u%s, which nothing has written", verb, name, microbatch,
                   step);
  if (content->in_flight)
    return PROBLEM(
        m,
        "%s %s of microbatch %u%s, but the message for %s of microbatch %u%s may already "
        "arrive there",
        verb, name, microbatch, step, tensor_name(m, content->tensor), content->microbatch,
        content->step > m->step ? " of the next step" : "");
  if (content->tensor == PEN_NONE)
    return PROBLEM(m, "%s %s of microbatch %u%s, which the scratch of action %u has overwritten",
                   verb, name, microbatch, step, content->writer - 1);
  if (content->tensor == tensor && content->microbatch == microbatch)
    return PROBLEM(m,
                   "%s %s of microbatch %u%s, but its bytes still hold that of the previous step",
                   verb, name, microbatch, step);
  return PROBLEM(m,
                 "%s %s of microbatch %u%s, but its bytes hold %s of microbatch %u, from action %u",
                 verb, name, microbatch, step, tensor_name(m, content->tensor), content->microbatch,
                 content->writer - 1);
}

static bool holds_value(const struct pen_memory_state *m, const struct pen_range_content *content,
                        uint32_t tensor, uint32_t microbatch, bool in_flight) {
  return content->writer != 0 && content->tensor == tensor && content->microbatch == microbatch &&
         content->step == m->step && content->in_flight == in_flight;
}

/* The action in progress overwrites what an earlier SEND reads. */
static void add_send_hazard(struct pen_memory_state *m, uint32_t send_action) {
  struct pen_send_hazard **hazard = &m->c->hazard[m->context->rank];
  size_t *count = &m->c->hazard_count[m->context->rank];
  for (size_t index = *count; index > 0 && (*hazard)[index - 1].action == m->action; index--)
    if ((*hazard)[index - 1].send_action == send_action) return;
  PEN_RESERVE(*hazard, *count + 1);
  (*hazard)[(*count)++] = (struct pen_send_hazard){m->action, send_action};
}

/* [microbatch]: whether it was accumulated into the gradient of one of the rank's weights, or of
 * the head of a tied weight. */
static uint8_t *added_of(const struct pen_memory_state *m, uint32_t weight) {
  uint32_t weights = m->context->plan->weight_count;
  size_t index = weight < weights ? m->context->own_weight_index[weight]
                                  : m->context->own_weight_count + (weight - weights);
  return &m->added[index * m->c->microbatch_count];
}

/* Each microbatch is accumulated once into each weight gradient. */
static bool add_gradients(struct pen_memory_state *m, const struct pen_program_trace *trace,
                          uint32_t microbatch) {
  if (trace->weight_count > 0 && m->c->profile_kind != PEN_TRAIN)
    return PROBLEM(m, "adds to the gradient of %s, but its profile does not train",
                   pen_gradient_name(m->context->plan, m->tracer->weight[trace->weight_first]));
  for (uint32_t n = 0; n < trace->weight_count; n++) {
    uint32_t weight = m->tracer->weight[trace->weight_first + n];
    uint8_t *added = &added_of(m, weight)[microbatch];
    if (*added)
      return PROBLEM(m, "adds to the gradient of %s twice for microbatch %u",
                     pen_gradient_name(m->context->plan, weight), microbatch);
    *added = 1;
  }
  return true;
}

/* The last stage writes the loss of each microbatch once: in F or, when training, in the I or B
 * that follows. */
static bool check_loss(const struct pen_memory_state *m, const struct pen_program_trace *trace,
                       const struct pen_action *action) {
  bool is_last = action->stage + 1u == m->c->stage_count, writes = trace->loss_offset != UINT64_MAX;
  uint8_t *owes = &m->owes_loss[action->microbatch];
  uint64_t entry = m->context->plan->loss_offset + (uint64_t)action->microbatch * sizeof(double);
  bool wanted = is_last && (action->kind == PEN_F || (*owes && action->kind != PEN_W));
  if (!wanted)
    return !writes || PROBLEM(m,
                              "writes a loss, but is not the last stage's forward, nor a backward "
                              "after a forward that wrote none");
  *owes = action->kind == PEN_F && !writes && m->c->profile_kind == PEN_TRAIN;
  if (*owes) return true;
  if (!writes) return PROBLEM(m, "writes no loss");
  return trace->loss_offset == entry ||
         PROBLEM(m, "writes its loss at %llu, not at entry %u of the loss table (%llu)",
                 (unsigned long long)trace->loss_offset, action->microbatch,
                 (unsigned long long)entry);
}

static bool run_compute(struct pen_memory_state *m, const struct pen_action *action) {
  const struct pen_program_trace *trace = &m->trace[m->trace_of[m->action]];
  const struct pen_extent *read = m->tracer->extent + trace->read_first,
                          *left = m->tracer->extent + trace->left_first;
  for (uint32_t n = 0; n < trace->read_count; n++) {
    uint32_t tensor = m->context->same_as[read[n].tensor];
    uint32_t microbatch =
        read[n].base == PEN_BASE_UNSHARDED ? 0 : action->microbatch; /* a weight has none */
    for (uint64_t at = read[n].first; at < read[n].past; at++)
      if (!holds_value(m, &m->content[at], tensor, microbatch, false))
        return report_content(m, "reads", read[n].tensor, microbatch, &m->content[at]);
  }
  struct pen_range_content written = {PEN_NONE, action->microbatch, m->action + 1,
                                      0,        (uint8_t)m->step,   false};
  for (uint32_t n = 0; n < trace->left_count; n++) {
    written.tensor = left[n].tensor;
    for (uint64_t at = left[n].first; at < left[n].past; at++) {
      if (m->content[at].sender && m->step == 0) add_send_hazard(m, m->content[at].sender - 1);
      m->content[at] = written;
    }
  }
  return check_loss(m, trace, action) && add_gradients(m, trace, action->microbatch);
}

bool pen_memory_next_unsharded(const struct pen_memory_state *m, uint32_t stage, uint64_t address,
                               uint32_t *n, uint64_t *first, uint64_t *past) {
  for (; *n < m->context->tables->tensor_count; (*n)++) {
    const struct pen_tensor *tensor = &m->context->tables->tensors[*n];
    if (tensor->base != PEN_BASE_UNSHARDED ||
        m->context->plan->weights[m->context->weight[*n]].stage != stage)
      continue;
    *first = address + tensor->offset;
    *past = *first + tensor->bytes;
    return true;
  }
  return false;
}

/* UNSHARD fills the bytes of a stage's unsharded weights; after RESHARD they hold nothing that may
 * be read. */
static bool run_unshard(struct pen_memory_state *m, const struct pen_action *action) {
  bool unshards = action->kind == PEN_UNSHARD;
  uint64_t *address = &m->unsharded_at[action->stage], first, past;
  if (unshards) *address = m->context->tables->frames[action->frame].base[PEN_BASE_UNSHARDED];
  for (uint32_t n = 0; pen_memory_next_unsharded(m, action->stage, *address, &n, &first, &past);
       n++) {
    if (unshards && past > (first < m->context->memory->persistent_end
                                ? m->context->memory->receive_bytes
                                : pen_activations_end(m->context->profile, m->context->memory)))
      return PROBLEM(m,
                     "all-gathers %s to %llu, outside the receive region and the activation part",
                     tensor_name(m, n), (unsigned long long)first);
    for (uint32_t at = pen_address_map_at(&m->map, first); at < pen_address_map_at(&m->map, past);
         at++) {
      if (!unshards && !holds_value(m, &m->content[at], n, 0, false))
        return report_content(m, "frees", n, 0, &m->content[at]);
      if (m->content[at].sender && m->step == 0 && unshards)
        add_send_hazard(m, m->content[at].sender - 1);
      m->content[at] = (struct pen_range_content){unshards ? n : PEN_NONE, 0,    m->action + 1, 0,
                                                  (uint8_t)m->step,        false};
    }
  }
  return true;
}

/* The first of some extents that has a range with this mark, or null. */
static const struct pen_extent *find_marked(const struct pen_memory_state *m, uint32_t mark,
                                            uint32_t first, uint32_t count) {
  for (const struct pen_extent *extent = m->tracer->extent + first; count-- > 0; extent++)
    for (uint64_t at = extent->first; at < extent->past; at++)
      if (m->mark[at] == mark) return extent;
  return NULL;
}

/* One of two concurrent actions writes nothing that the other reads or writes. */
static bool check_writes_disjoint(struct pen_memory_state *m,
                                  const struct pen_program_trace *writer,
                                  const struct pen_program_trace *other) {
  const struct pen_extent *left = m->tracer->extent + writer->left_first;
  m->mark_count++;
  for (const struct pen_extent *extent = left; extent < left + writer->left_count; extent++)
    for (uint64_t at = extent->first; at < extent->past; at++) m->mark[at] = m->mark_count;
  const struct pen_extent *overlap =
      find_marked(m, m->mark_count, other->read_first, other->read_count);
  if (!overlap) overlap = find_marked(m, m->mark_count, other->left_first, other->left_count);
  return !overlap ||
         PROBLEM(m, "overlaps the action after it, but one writes where the other has %s",
                 overlap->tensor == PEN_NONE ? "its scratch" : tensor_name(m, overlap->tensor));
}

/* The actions of a pair a|b may run concurrently. actions.c checks that they accumulate into
 * different gradients. */
static bool check_concurrent(struct pen_memory_state *m) {
  const struct pen_program_trace *a = &m->trace[m->trace_of[m->action]],
                                 *b = &m->trace[m->trace_of[m->action + 1]];
  return check_writes_disjoint(m, a, b) && check_writes_disjoint(m, b, a);
}

/* Every microbatch was accumulated into a gradient. */
static bool check_gradient_complete(const struct pen_memory_state *m, uint32_t weight) {
  const uint8_t *added = added_of(m, weight);
  for (uint32_t microbatch = 0; microbatch < m->c->microbatch_count; microbatch++)
    if (!added[microbatch])
      return PROBLEM(m, "the gradient of %s lacks microbatch %u",
                     pen_gradient_name(m->context->plan, weight), microbatch);
  return true;
}

/* The head's gradients of all ties are complete. */
static bool check_heads_complete(const struct pen_memory_state *m) {
  for (uint32_t n = 0; n < pen_local_tie_count(m->context->plan); n++)
    if (!check_gradient_complete(m, m->context->plan->weight_count + n)) return false;
  return true;
}

/* Both gradients of each tied weight are complete, the head's on this rank or received. */
static bool run_add_tied_gradient(const struct pen_memory_state *m,
                                  const struct pen_action *action) {
  const struct pen_plan *plan = m->context->plan;
  for (uint32_t n = 0; n < pen_local_tie_count(plan); n++)
    if (!check_gradient_complete(m, plan->ties[n].weight)) return false;
  if (plan->ties->rank == m->context->rank) return check_heads_complete(m);
  uint64_t target = m->context->profile->messages[action->message].target_offset;
  uint32_t past =
      pen_address_map_at(&m->map, target + m->context->profile->messages[action->message].bytes);
  for (uint32_t at = pen_address_map_at(&m->map, target); at < past; at++)
    if (!holds_value(m, &m->content[at], m->context->tables->tensor_count, 0, false))
      return report_content(m, "reads", m->context->tables->tensor_count, 0, &m->content[at]);
  return true;
}

static bool run_send(struct pen_memory_state *m, const struct pen_action *action) {
  if (action->kind == PEN_SEND_G) return check_heads_complete(m);
  if (action->kind == PEN_SEND_V) return true; /* a weight: only UPDATE changes it */
  const struct pen_stage *stage = &m->context->profile->stages[action->stage];
  uint32_t tensor = action->kind == PEN_SEND_B ? stage->input_gradient : stage->output;
  for (uint32_t at = m->source[m->action].first; at < m->source[m->action].past; at++) {
    if (!holds_value(m, &m->content[at], tensor, action->microbatch, false))
      return report_content(m, "sends", tensor, action->microbatch, &m->content[at]);
    if (m->step == 0) m->content[at].sender = m->action + 1;
  }
  return true;
}

/* The message has arrived: nothing may have written its target since it could arrive. */
static bool run_wait(struct pen_memory_state *m, const struct pen_action *action) {
  if (action->kind == PEN_WAIT_V) return true; /* tied_weight.c checks its target */
  const struct pen_byte_ranges target = m->target[m->incoming[action->message]];
  const struct pen_stage *stage = &m->context->profile->stages[action->stage];
  uint32_t tensor = action->kind == PEN_WAIT_G   ? m->context->tables->tensor_count
                    : action->kind == PEN_WAIT_B ? stage->output_gradient
                                                 : stage->input;
  for (uint32_t at = target.first; at < target.past; at++) {
    if (!holds_value(m, &m->content[at], tensor, action->microbatch, true))
      return report_content(m, "waits for", tensor, action->microbatch, &m->content[at]);
    m->content[at].in_flight = false;
  }
  return true;
}

/* At the end of a step every gradient of a trainable weight is complete. */
static bool run_update(struct pen_memory_state *m) {
  const struct pen_plan *plan = m->context->plan;
  for (uint32_t n = 0; n < m->context->own_weight_count; n++)
    if (!plan->weights[m->context->own_weight[n]].frozen &&
        !check_gradient_complete(m, m->context->own_weight[n]))
      return false;
  memset(m->added, 0,
         ((size_t)m->context->own_weight_count + plan->tie_count) * m->c->microbatch_count);
  bool sent = m->c->adds_tied_gradient && plan->ties->rank == m->context->rank &&
              plan->weights[plan->ties->weight].rank != m->context->rank;
  if (sent && m->step == 0) /* UPDATE clears the gradient that SEND_G sends. */
    add_send_hazard(m, pen_action_position(m->c, PEN_SEND_G, m->c->stage_count - 1, 0));
  return true;
}

void pen_memory_run_events(struct pen_memory_state *m, uint32_t actions_complete) {
  for (uint32_t event = m->first_event[actions_complete]; event != PEN_NONE;
       event = m->next_event[event]) {
    uint32_t step = event >= m->message_count, index = event - step * m->message_count;
    const struct pen_message *message = &m->context->profile->messages[m->message[index]];
    enum pen_direction direction = pen_direction_of(message->kind);
    if (direction == PEN_DIRECTION_TIED_WEIGHT) continue;
    const struct pen_stage *stage =
        &m->context->profile->stages[pen_receiving_stage(m->c, direction, message->stage)];
    uint32_t tensor = direction == PEN_DIRECTION_TIED_GRADIENT ? m->context->tables->tensor_count
                      : direction == PEN_DIRECTION_BACKWARD    ? stage->output_gradient
                                                               : stage->input;
    struct pen_range_content arriving = {tensor, message->microbatch, PEN_NONE,
                                         0,      (uint8_t)step,       true};
    for (uint32_t at = m->target[index].first; at < m->target[index].past; at++)
      m->content[at] = arriving;
  }
}

bool pen_memory_run_action(struct pen_memory_state *m) {
  const struct pen_action *action = &m->context->tables->actions[m->action];
  if (pen_is_compute(action->kind))
    return (!action->overlaps || m->step > 0 || check_concurrent(m)) && run_compute(m, action);
  if (pen_is_send(action->kind)) return run_send(m, action);
  if (pen_is_wait(action->kind)) return run_wait(m, action);
  if (action->kind == PEN_ADD_TIED_GRAD) return run_add_tied_gradient(m, action);
  if (action->kind == PEN_UNSHARD || action->kind == PEN_RESHARD) return run_unshard(m, action);
  return action->kind != PEN_UPDATE || run_update(m);
}
