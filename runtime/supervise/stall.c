/* stall.c: which rank makes no progress (see internal.h). It reads what each rank publishes of
 * itself in shared memory. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/check.h"
#include "runtime/comm/failure_text.h"
#include "runtime/control/control_tcp.h"
#include "runtime/supervise/internal.h"

static const uint64_t stopped_max_ns =
    200 * 1000000ull; /* two polls, since ^Z stops all ranks and `fg` continues all */
static const uint64_t heartbeat_max_ns =
    500 * 1000000ull; /* older than this, the progress that a device's host publishes is outdated */

static const struct pen_rank_state *state_of(const struct pen_watchdog *watchdog, uint32_t rank) {
  return &watchdog->run->shared.ranks[rank];
}

static bool has_device(const struct pen_watchdog *watchdog) {
  return !pen_device_row(watchdog->run->plan->device)->on_host;
}

/* Whether a receive completes only together with its send. */
static bool is_two_sided(const struct pen_plan *plan) {
  return pen_transport_row(plan->transport)->two_sided;
}

/* Each poll needs the send of every pair of ranks on each chain of waiting ranks. With 512 ranks of
 * 12000 actions, a search of the actions takes 2.5 s, the index 2 ms. */
uint32_t **pen_stall_index_sends(const struct pen_plan *plan) {
  if (!is_two_sided(plan) && plan->host_count == 1) {
    return NULL;
  }
  uint32_t **send_index =
      pen_allocate(plan->profile_count, sizeof *send_index, "%u profiles", plan->profile_count);
  for (uint32_t p = 0; p < plan->profile_count; p++) {
    const struct pen_profile *profile = &plan->profiles[p];
    send_index[p] = pen_allocate(profile->message_count + 1u, sizeof *send_index[p], "%u messages",
                                 profile->message_count);
    for (uint32_t r = 0; r < plan->rank_count; r++) {
      for (uint32_t i = 0; i < profile->ranks[r].action_count; i++) {
        const struct pen_action *action = &profile->ranks[r].actions[i];
        if (pen_kind_sends(action->kind)) {
          send_index[p][action->message] = i;
        }
      }
    }
  }
  return send_index;
}

void pen_stall_free_index(const struct pen_plan *plan, uint32_t **send_index) {
  for (uint32_t p = 0; p < plan->profile_count && send_index != NULL; p++) {
    free(send_index[p]);
  }
  free(send_index);
}

/* Whether a rank waits for a message whose sender is past the action that sends it.
 *
 * With NCCL a rank on a device does not know whether a message has arrived, only which of its
 * actions have completed. If the sender waits too, the rank waits for its own device, not for the
 * sender. (A sender that does not wait may have stalled within the send. Which of two devices has
 * stalled cannot always be derived from the actions.) Over a network the message is lost. */
static bool was_sent(const struct pen_watchdog *watchdog, uint32_t rank, uint32_t sender) {
  const struct pen_plan *plan = watchdog->run->plan;
  const struct pen_rank_state *state = state_of(watchdog, rank), *from = state_of(watchdog, sender);
  const uint32_t index = atomic_load(&state->profile);
  const struct pen_profile *profile = &plan->profiles[index];
  const struct pen_rank_program *waiting = &profile->ranks[pen_table_rank(plan, rank)];
  const uint64_t current = pen_action_index(state);
  const int32_t steps_ahead =
      (int32_t)(atomic_load(&from->published.count) - atomic_load(&state->published.count));
  if (current >= waiting->action_count || !pen_has_message(&waiting->actions[current]) ||
      steps_ahead < 0) {
    return false;
  }
  const uint32_t message = waiting->actions[current].message;
  const bool sends = profile->channels[profile->messages[message].channel].from_rank ==
                     pen_table_rank(plan, sender);
  return steps_ahead > 0 ||
         (sends && pen_action_index(from) > watchdog->send_index[index][message]);
}

/* Moves to the rank that this rank waits for; false: it is not known to wait. */
static bool follow_wait(const struct pen_watchdog *watchdog, struct pen_awaited *at) {
  const uint32_t rank = at->rank;
  if (watchdog->ranks[rank].heartbeat_ns >= heartbeat_max_ns ||
      !pen_failure_follow(&watchdog->run->shared, at)) {
    return false;
  }
  return !is_two_sided(watchdog->run->plan) ||
         atomic_load(&state_of(watchdog, at->rank)->waits_for) == 0 ||
         !was_sent(watchdog, rank, at->rank);
}

static bool waits_for_rank(const struct pen_watchdog *watchdog, uint32_t rank) {
  return follow_wait(watchdog, &(struct pen_awaited){.rank = rank});
}

void pen_stall_count_time(struct pen_watchdog *watchdog, uint64_t passed_ns) {
  for (uint32_t r = 0; r < watchdog->rank_count; r++) {
    struct pen_watched_rank *rank = &watchdog->ranks[r];
    const struct pen_rank_state *state = state_of(watchdog, r);
    uint64_t finished = atomic_load_explicit(&state->finished, memory_order_relaxed);
    uint32_t phase = atomic_load_explicit(&state->phase, memory_order_relaxed);
    bool moved = finished != rank->finished || phase != PEN_PHASE_STEPS || rank->exited;
    rank->connecting_ns = phase == PEN_PHASE_CONNECT ? rank->connecting_ns + passed_ns : 0;
    rank->finished = finished;
    uint32_t heartbeat = atomic_load_explicit(&state->heartbeat, memory_order_relaxed);
    rank->heartbeat_ns = heartbeat == 0 || heartbeat != rank->heartbeat || rank->exited
                             ? 0
                             : rank->heartbeat_ns + passed_ns;
    rank->heartbeat = heartbeat;
    rank->no_action_ns = moved ? 0 : rank->no_action_ns + passed_ns;
    rank->stalled_ns = moved || waits_for_rank(watchdog, r) ? 0 : rank->stalled_ns + passed_ns;
    rank->device_ns =
        rank->stalled_ns == 0 || atomic_load_explicit(&state->on_device, memory_order_relaxed) == 0
            ? 0
            : rank->device_ns + passed_ns;
    rank->stopped_ns += rank->stopped ? passed_ns : 0;
    if (rank->stopped && !rank->exited && rank->stopped_ns >= stopped_max_ns) {
      pen_watchdog_set_lost(watchdog, r, "stopped");
    }
  }
}

/* Records a rank as lost that has made no progress for this many timeouts. */
static void check_stalled_for(struct pen_watchdog *watchdog, uint32_t rank, uint64_t stalled_ns,
                              int timeouts) {
  const double timeout_s = timeouts * watchdog->run->options->timeout;
  if ((double)stalled_ns >= timeout_s * 1e9) {
    char cause[64];
    snprintf(cause, sizeof cause, "no progress in %g s", timeout_s);
    pen_watchdog_set_lost(watchdog, rank, cause);
  }
}

static void check_stalled(struct pen_watchdog *watchdog, uint32_t rank, uint64_t stalled_ns) {
  check_stalled_for(watchdog, rank, stalled_ns, 1);
}

static void print_unconnected(const struct pen_watchdog *watchdog, uint32_t rank) {
  char what[PEN_BOOTSTRAP_TEXT_BYTES];
  pen_failure_bootstrap_text(what, sizeof what, watchdog->run->plan, &watchdog->run->shared, rank);
  pen_warn("rank %u cannot connect to the others by transport %s%s%s%s", rank,
           pen_transport_row(watchdog->run->plan->transport)->text, what[0] == '\0' ? "" : ", ",
           what, is_two_sided(watchdog->run->plan) ? ": NCCL_DEBUG=INFO says more" : "");
}

/* A connection may fail to complete without an error, for instance where peer-to-peer access is
 * broken or NCCL has chosen the wrong interface. A rank that has connected waits at a barrier. Of
 * the other ranks, on all hosts, the one in the earliest stage is lost: the rest may wait for it.
 */
static void find_unconnected(struct pen_watchdog *watchdog) {
  uint32_t earliest = PEN_NONE;
  uint64_t longest_ns = 0;
  for (uint32_t r = 0; r < watchdog->rank_count && watchdog->lost == PEN_NONE; r++) {
    const uint64_t connecting_ns = watchdog->ranks[r].connecting_ns;
    if (connecting_ns > 0 &&
        (earliest == PEN_NONE || atomic_load(&state_of(watchdog, r)->bootstrap_stage) <
                                     atomic_load(&state_of(watchdog, earliest)->bootstrap_stage))) {
      earliest = r;
    }
    longest_ns = connecting_ns > longest_ns ? connecting_ns : longest_ns;
  }
  if (earliest != PEN_NONE && pen_watchdog_is_local(watchdog, earliest)) {
    check_stalled_for(watchdog, earliest, longest_ns, PEN_BOOTSTRAP_TIMEOUTS);
    if (watchdog->lost == earliest) {
      print_unconnected(watchdog, earliest);
    }
  }
}

/* A wait between two hosts. */
struct host_wait {
  uint32_t waiter, awaited;
  bool was_sent;
};

/* Moves along a cycle of waits to the next one between two hosts; false: there is none within
 * `hops`, or a rank of the cycle no longer waits, whereupon *ended. */
static bool next_host_wait(const struct pen_watchdog *watchdog, struct pen_awaited *at,
                           uint32_t *hops, struct host_wait *wait, bool *ended) {
  const struct pen_plan *plan = watchdog->run->plan;
  bool found = false;
  while (*hops > 0 && !found && !*ended) {
    --*hops;
    wait->waiter = at->rank;
    *ended = !follow_wait(watchdog, at);
    wait->awaited = at->rank;
    found = !*ended && pen_rank_host(plan, wait->waiter) != pen_rank_host(plan, wait->awaited);
  }
  wait->was_sent = found && was_sent(watchdog, wait->waiter, wait->awaited);
  return found;
}

/* The two ends of a link see the same wait: the command of the lower rank reports it. */
static void lose_link(struct pen_watchdog *watchdog, const struct host_wait *wait) {
  const bool up = wait->waiter < wait->awaited;
  const uint32_t low = up ? wait->waiter : wait->awaited, high = up ? wait->awaited : wait->waiter;
  char cause[sizeof watchdog->cause];
  if (pen_watchdog_is_local(watchdog, low) && watchdog->lost == PEN_NONE) {
    snprintf(cause, sizeof cause, "link to host %.40s lost", state_of(watchdog, high)->host);
    pen_watchdog_set_lost(watchdog, low, cause);
  }
}

/* A cycle of waits, which no verified plan has: messages between two hosts do not arrive. The link
 * is lost that has not brought a message which was sent. Of other waits, such as that for a norm,
 * it is not known whether they are over at the other end: if the cycle has no such message, the
 * links are lost over which a rank waits for a higher one. If a host is stopped instead, the
 * control connection's thread has reported it before. */
static void check_cycle(struct pen_watchdog *watchdog, uint32_t rank, uint64_t stalled_ns) {
  const double cycle_s = pen_silence_s(watchdog->run->options->timeout) + 0.5;
  struct host_wait wait;
  uint32_t between_hosts = 0, sent = 0;
  bool ended = false;
  struct pen_awaited at = {.rank = rank};
  for (uint32_t hops = watchdog->rank_count; next_host_wait(watchdog, &at, &hops, &wait, &ended);) {
    between_hosts++;
    sent += wait.was_sent;
  }
  if (ended) {
    return; /* it continues */
  }
  if (between_hosts == 0) {
    check_stalled(watchdog, rank, stalled_ns);
  }
  at = (struct pen_awaited){.rank = rank};
  for (uint32_t hops = watchdog->rank_count; (double)stalled_ns >= cycle_s * 1e9 &&
                                             next_host_wait(watchdog, &at, &hops, &wait, &ended);) {
    if (sent > 0 ? wait.was_sent : wait.waiter < wait.awaited) {
      lose_link(watchdog, &wait);
    }
  }
}

/* Follows the chain of waits from each rank to its end: a rank that does not wait, or a cycle. If
 * that rank has made no progress for the timeout, it is lost. */
static void find_stalled(struct pen_watchdog *watchdog) {
  for (uint32_t r = 0; r < watchdog->rank_count && watchdog->lost == PEN_NONE; r++) {
    const uint32_t most = 2 * watchdog->rank_count; /* a rank may be waited for in two ways */
    struct pen_awaited next = {.rank = r};
    uint32_t hops = 0, root = r;
    for (; hops <= most && follow_wait(watchdog, &next); hops++) {
      root = next.rank;
    }
    if (root != r && pen_watchdog_is_local(watchdog, root) && hops <= most) {
      check_stalled(watchdog, root, watchdog->ranks[root].stalled_ns);
    } else if (root != r && pen_watchdog_is_local(watchdog, root)) {
      check_cycle(watchdog, root, watchdog->ranks[root].no_action_ns);
    }
  }
}

/* If a device stalls, its host waits for it, which is no wait for a rank, and no other rank need
 * wait for that rank. So the rank that has waited longest for its own device is lost after the
 * timeout. A host that does something else meanwhile, for instance writes to a full pipe, is not.
 */
static void find_stalled_device(struct pen_watchdog *watchdog) {
  uint32_t longest = PEN_NONE;
  for (uint32_t r = 0; r < watchdog->rank_count && has_device(watchdog); r++) {
    if (pen_watchdog_is_local(watchdog, r) &&
        (longest == PEN_NONE ||
         watchdog->ranks[r].device_ns > watchdog->ranks[longest].device_ns)) {
      longest = r;
    }
  }
  if (longest != PEN_NONE) {
    check_stalled(watchdog, longest, watchdog->ranks[longest].device_ns);
  }
}

void pen_stall_check(struct pen_watchdog *watchdog) {
  find_stalled(watchdog);
  find_stalled_device(watchdog);
  find_unconnected(watchdog);
}
