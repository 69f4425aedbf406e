/* start_state.c: what all ranks can start from (see start_state.h). */
#include "runtime/control/start_state.h"

static bool has_step(const uint64_t steps[PEN_OFFERED_STEPS], uint64_t step) {
  bool has = false;
  for (int i = 0; i < PEN_OFFERED_STEPS; i++) {
    has = has || steps[i] == step;
  }
  return has;
}

bool pen_start_offer_has(const struct pen_start_offer *offer, uint32_t host, uint64_t step) {
  return (offer->host == host && has_step(offer->steps, step)) ||
         (offer->host == (host + 1) % offer->hosts && has_step(offer->mirrored, step));
}

/* Whether the states of a host's ranks are in memory of their commands, of which there may be
 * several, or in that of the next host. */
static bool is_available(const struct pen_start_offer *offers, uint32_t count, uint32_t host,
                         uint64_t step) {
  bool own = false, all = true, mirrored = false;
  for (uint32_t i = 0; i < count; i++) {
    const struct pen_start_offer *offer = &offers[i];
    const bool is_next = offer->host == (host + 1) % offer->hosts;
    own = own || offer->host == host;
    all = all && (offer->host != host || has_step(offer->steps, step));
    mirrored = mirrored || (is_next && has_step(offer->mirrored, step));
  }
  return (own && all) || mirrored;
}

static bool is_available_to_all(const struct pen_start_offer *offers, uint32_t count,
                                uint64_t step) {
  bool available = true;
  for (uint32_t i = 0; i < count; i++) {
    available = available && (offers[i].held == 0 || offers[i].plan == offers[0].plan);
  }
  for (uint32_t host = 0; host < offers[0].hosts && available; host++) {
    available = is_available(offers, count, host, step);
  }
  return available;
}

static uint64_t max(uint64_t a, uint64_t b) { return a > b ? a : b; }

struct pen_start_state pen_start_state_of(const struct pen_start_offer *offers, uint32_t count) {
  struct pen_start_state state = {.memory_plan = offers[0].plan};
  for (uint32_t i = 0; i < count; i++) {
    state.saved_step = max(state.saved_step, offers[i].saved_step);
    state.restarts = max(state.restarts, offers[i].restarts);
    if (offers[i].failed_status != 0 && state.failed_status == 0) {
      state.failed_status = offers[i].failed_status;
      state.failed_host = offers[i].host;
    }
    for (int s = 0; s < 2 * PEN_OFFERED_STEPS; s++) {
      const uint64_t step =
          s < PEN_OFFERED_STEPS ? offers[i].steps[s] : offers[i].mirrored[s - PEN_OFFERED_STEPS];
      if (step > state.memory_step && is_available_to_all(offers, count, step)) {
        state.memory_step = step;
      }
    }
  }
  return state;
}
