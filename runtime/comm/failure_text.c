/* failure_text.c: the line that reports a lost rank (see failure_text.h). */
#include "runtime/comm/failure_text.h"

#include <stdio.h>
#include <string.h>

#include "runtime/comm/action_text.h"

/* The name of the action at `ordinal`, counted over all steps. Before the current step it is the
 * last action of a step, which is the same in all profiles. */
static const char *action_name_at(const struct pen_plan *plan, const struct pen_shared *shared,
                                  uint32_t rank, uint64_t ordinal, char *text, size_t bytes) {
  const struct pen_rank_state *state = &shared->ranks[rank];
  const struct pen_rank_program *program =
      &plan->profiles[atomic_load(&state->profile) % plan->profile_count]
           .ranks[pen_table_rank(plan, rank)];
  uint64_t began = atomic_load(&state->step_began);
  uint64_t row =
      ordinal < began ? program->action_count - 1 : (ordinal - began) % program->action_count;
  return pen_action_name_reported(text, bytes, &program->actions[row]);
}

static const char *place_text(const struct pen_plan *plan, const struct pen_shared *shared,
                              uint32_t rank, char *text, size_t bytes) {
  uint32_t phase = atomic_load(&shared->ranks[rank].phase);
  if (phase != PEN_PHASE_STEPS) {
    return phase == PEN_PHASE_SAVE ? "SAVE" : phase == PEN_PHASE_OUTPUT ? "OUTPUT" : "START";
  }
  return action_name_at(plan, shared, rank, atomic_load(&shared->ranks[rank].finished), text,
                        bytes);
}

char *pen_failure_line(char *line, size_t bytes, const struct pen_plan *plan,
                       const struct pen_shared *shared, uint32_t lost, const char *cause,
                       uint32_t waiter) {
  char after[64] = "start", place[64], who[128] = "no rank waits for it";
  const struct pen_rank_state *state = &shared->ranks[lost];
  uint64_t finished = atomic_load(&state->finished);
  if (finished > 0) {
    action_name_at(plan, shared, lost, finished - 1, after, sizeof after);
  }
  if (waiter != PEN_NONE) {
    snprintf(who, sizeof who, "rank %u waits at %s for rank %u", waiter,
             place_text(plan, shared, waiter, place, sizeof place), lost);
  }
  snprintf(line, bytes, "penstock: rank %u (pid %d, host %.*s) lost: %s after %s; %s", lost,
           (int)state->process, (int)sizeof state->host, state->host, cause, after, who);
  return line;
}

char *pen_failure_bootstrap_text(char *text, size_t bytes, const struct pen_plan *plan,
                                 const struct pen_shared *shared, uint32_t rank) {
  static const char *const texts[] = {
#define PEN_BOOTSTRAP_STAGE(what, text) [PEN_CONNECT_##what] = text,
#include "runtime/comm/bootstrap.def"
#undef PEN_BOOTSTRAP_STAGE
  };
  const struct pen_rank_state *state = &shared->ranks[rank];
  const uint64_t connecting = atomic_load(&state->bootstrap_stage);
  const struct pen_profile *profile =
      &plan->profiles[atomic_load(&state->profile) % plan->profile_count];
  const uint32_t channel = (uint32_t)connecting;
  const char *what = texts[connecting >> 56];
  text[0] = '\0';
  if (what != NULL && channel < profile->channel_count) {
    const struct pen_channel *of = &profile->channels[channel];
    snprintf(text, bytes, "%s (%u>%u)", what,
             pen_group_process(plan, rank, PEN_PIPELINE, of->from_rank),
             pen_group_process(plan, rank, PEN_PIPELINE, of->to_rank));
  } else if (what != NULL) {
    snprintf(text, bytes, "%s", what);
  }
  return text;
}

/* With NCCL peers, and on a GPU tensor ranks, exchange data within an action that all have
 * reached, and none knows which of them has stopped in it (device/progress.c): if one is lost, the
 * others wait for it. */
static bool exchanges_with(const struct pen_plan *plan, const struct pen_shared *shared,
                           uint32_t rank, uint32_t lost) {
  const struct pen_rank_state *state = &shared->ranks[rank], *other = &shared->ranks[lost];
  const uint32_t table_rank = pen_table_rank(plan, rank);
  const struct pen_rank_program *program =
      &plan->profiles[atomic_load(&state->profile) % plan->profile_count].ranks[table_rank];
  const uint64_t row = pen_action_index(state);
  const bool members =
      !pen_device_row(plan->device)->on_host && pen_in_group(plan, rank, PEN_TENSOR, lost);
  return (members || pen_transport_row(plan->transport)->two_sided) &&
         table_rank == pen_table_rank(plan, lost) &&
         atomic_load(&state->phase) == PEN_PHASE_STEPS &&
         atomic_load(&state->published.count) == atomic_load(&other->published.count) &&
         row == pen_action_index(other) && row < program->action_count &&
         (members ? program->actions[row].kind <= PEN_W
                  : pen_kind_reads_peers(program->actions[row].kind));
}

uint32_t pen_failure_waiter(const struct pen_plan *plan, const struct pen_shared *shared,
                            uint32_t lost) {
  uint32_t waiter = PEN_NONE;
  for (uint32_t r = 0; r < shared->process_count; r++) {
    const struct pen_rank_state *state = &shared->ranks[r];
    const uint32_t rows = atomic_load(&state->actions_wait_for) & ~PEN_WAITS_FOR_ACTIONS;
    if (r != lost && atomic_load(&state->waits_for) == lost + 1 &&
        !pen_awaited_counter_reached(shared, state) && (waiter == PEN_NONE || rows == lost + 1)) {
      waiter = r;
    }
  }
  for (uint32_t r = 0; r < shared->process_count && waiter == PEN_NONE; r++) {
    waiter = r != lost && exchanges_with(plan, shared, r, lost) ? r : PEN_NONE;
  }
  return waiter;
}

bool pen_failure_follow(const struct pen_shared *shared, struct pen_awaited *at) {
  const struct pen_rank_state *state = &shared->ranks[at->rank];
  const uint32_t all = atomic_load_explicit(&state->waits_for, memory_order_relaxed);
  const uint32_t rows = atomic_load_explicit(&state->actions_wait_for, memory_order_relaxed);
  const uint32_t next = at->rows ? rows & ~PEN_WAITS_FOR_ACTIONS : all;
  if (all == 0 || next == 0 || pen_awaited_counter_reached(shared, state)) {
    return false;
  }
  *at = (struct pen_awaited){.rank = next - 1, .rows = rows == (next | PEN_WAITS_FOR_ACTIONS)};
  return true;
}

static const char of_memory[] = "; no step was made: memory is the likely cause";

void pen_failure_add_memory(char line[PEN_FAILURE_LINE_BYTES]) {
  const size_t used = strlen(line);
  snprintf(line + used, PEN_FAILURE_LINE_BYTES - used, "%s", of_memory);
}

bool pen_failure_is_memory(const char *line) { return strstr(line, of_memory) != NULL; }
