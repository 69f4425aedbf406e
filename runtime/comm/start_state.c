/* start_state.c: what several commands can start from (see start_state.h). */
#include "runtime/comm/start_state.h"

void pen_start_state_merge(struct pen_start_state *all, const struct pen_start_state *other) {
  for (int i = 0; i < 2; i++) {
    if (all->memory_steps[i] != other->memory_steps[0] &&
        all->memory_steps[i] != other->memory_steps[1]) {
      all->memory_steps[i] = 0;
    }
  }
  all->saved_step = all->saved_step > other->saved_step ? all->saved_step : other->saved_step;
  all->restarts = all->restarts > other->restarts ? all->restarts : other->restarts;
}

uint64_t pen_start_state_memory_step(const struct pen_start_state *state) {
  return state->memory_steps[0] > state->memory_steps[1] ? state->memory_steps[0]
                                                         : state->memory_steps[1];
}
