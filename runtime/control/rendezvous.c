/* rendezvous.c: how the commands of a run find each other (see rendezvous.h). */
#include "runtime/control/rendezvous.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/futex_counter.h"
#include "runtime/control/arrivals.h"
#include "runtime/control/local_ranks.h"
#include "runtime/control/places.h"
#include "runtime/control/waiting.h"

/* AGAIN_S: how long a host may take to come again after a loss; then a spare takes its place, or
 * the next one serves. PLACES_S: how long the others may keep the server waiting in all. */
enum { ACCEPT_MS = 50, RIGHT_PLAN_S = 5, AGAIN_S = 10, PLACES_S = 60, PLACE_S = 5 };
enum { ROUND_US = 20000 };

/* A command that knows of a loss before this one does, so comes while the ranks still have places,
 * or while its connection of before is not known to have ended. It tries again until this one
 * listens for the commands that come after the loss. */
enum { COMES_EARLY = UINT32_MAX };

static uint64_t after_s(double seconds) { return pen_now_ns() + (uint64_t)(seconds * 1e9); }

/* ---- the server ---- */

static bool overlap(const struct pen_rank_set *a, const struct pen_rank_set *b) {
  return pen_rank_set_has(a, b->first) || pen_rank_set_has(b, a->first);
}

/* Whether another command has one of the ranks, or waits for ranks at the same host. */
static bool is_started_twice(const struct pen_control_config *config, const struct pen_peers *peers,
                             const struct pen_peer_command *new) {
  const struct pen_membership *membership = config->membership;
  const struct pen_rank_set own = pen_host_ranks(membership, membership->own, membership->only);
  bool twice = overlap(&own, &new->ranks) || (own.count == 0 && membership->own == new->host);
  for (uint32_t p = 0; p < peers->count; p++) {
    const struct pen_peer_command *peer = &peers->command[p];
    twice = twice || (!peer->finished && (overlap(&peer->ranks, &new->ranks) ||
                                          (new->ranks.count == 0 && peer->host == new->host)));
  }
  return twice;
}

/* What a command that has proved itself is answered: 0, why it must exit, or COMES_EARLY. Of two
 * commands that recover from a loss, one may have seen a loss more than the other. */
static uint32_t judge_command(const struct pen_control_config *config,
                              const struct pen_peers *peers, const struct pen_hello *hello,
                              const struct pen_peer_command *new) {
  if (memcmp(hello->digest, config->plan->digest, sizeof hello->digest) != 0) {
    return PEN_EXIT_DIGEST;
  }
  const bool twice = !pen_arrivals_have_room(peers) || is_started_twice(config, peers, new),
             needed = new->ranks.count > 0 || config->membership->held[new->host],
             recovers = hello->attempt > 0 && config->attempt > 0;
  if (twice && hello->attempt == 0) {
    return PEN_EXIT_USAGE;
  }
  if (twice || (needed && peers->listens)) {
    return COMES_EARLY;
  }
  return needed && !recovers && hello->attempt != config->attempt ? PEN_EXIT_LOST : 0;
}

/* Lets a proved command in, or closes its connection where it comes early. Returns its verdict;
 * *who: the peer. */
static uint32_t admit(const struct pen_control_config *config, struct pen_peers *peers,
                      struct pen_proved_command *command, struct pen_peer_command *who) {
  struct pen_membership *membership = config->membership;
  const struct pen_hello *hello = &command->hello;
  *who = (struct pen_peer_command){.link = command->link,
                                   .host = hello->host,
                                   .only = hello->only,
                                   .arrives = true,
                                   .place_end_ns = after_s(PLACE_S),
                                   .ranks = pen_host_ranks(membership, hello->host, hello->only)};
  const uint32_t verdict = judge_command(config, peers, hello, who);
  if (verdict == COMES_EARLY) {
    pen_control_link_close(&who->link);
    return verdict;
  }
  pen_control_send_verdict(&who->link, verdict);
  if (verdict == 0) {
    pen_arrivals_add(peers, who);
    atomic_store(&membership->states[hello->host], PEN_HOST_LIVES);
  }
  return verdict;
}

/* Spares take the places of lost hosts, in the order in which they came. */
static void place_spares(const struct pen_control_config *config, struct pen_peers *peers) {
  struct pen_membership *membership = config->membership;
  pen_membership_place(membership, membership->own);
  for (uint32_t p = 0; p < peers->count; p++) {
    struct pen_peer_command *peer = &peers->command[p];
    if (peer->ranks.count == 0 && !peer->arrives && pen_membership_place(membership, peer->host)) {
      peer->ranks = pen_host_ranks(membership, peer->host, PEN_NONE);
    }
  }
}

static uint32_t connected_ranks(const struct pen_control_config *config,
                                const struct pen_peers *peers) {
  const struct pen_membership *membership = config->membership;
  uint32_t count = pen_host_ranks(membership, membership->own, membership->only).count;
  for (uint32_t p = 0; p < peers->count; p++) {
    count += peers->command[p].arrives ? 0 : peers->command[p].ranks.count;
  }
  return count;
}

static bool has_come(const struct pen_control_config *config, const struct pen_peers *peers,
                     uint32_t host) {
  bool came = host == config->membership->own;
  for (uint32_t p = 0; p < peers->count && !came; p++) {
    came = peers->command[p].host == host && !peers->command[p].arrives;
  }
  return came;
}

/* Whether each place has a command, also one without ranks, which generate and score may have. */
static bool have_hosts_come(const struct pen_control_config *config,
                            const struct pen_peers *peers) {
  const struct pen_membership *membership = config->membership;
  bool came = true;
  for (uint32_t p = 0; p < membership->current->host_count && membership->only == PEN_NONE; p++) {
    came = came && has_come(config, peers, membership->places[p].host);
  }
  return came;
}

/* Those that had ranks before a fallback was taken have states in memory. */
static bool have_holders_come(const struct pen_control_config *config,
                              const struct pen_peers *peers) {
  const struct pen_membership *membership = config->membership;
  bool came = true;
  for (uint32_t host = 0; host < pen_host_and_spare_count(config->plan); host++) {
    came = came &&
           (!membership->held[host] || atomic_load(&membership->states[host]) != PEN_HOST_LIVES ||
            has_come(config, peers, host));
  }
  return came;
}

/* Takes a fallback, if one is needed: the commands that have come have other ranks. */
static void fall_back(const struct pen_control_config *config, struct pen_peers *peers) {
  struct pen_membership *membership = config->membership;
  if (!pen_membership_fall_back(membership)) {
    return;
  }
  for (uint32_t p = 0; p < peers->count; p++) {
    struct pen_peer_command *peer = &peers->command[p];
    peer->ranks = pen_host_ranks(membership, peer->host, peer->only);
  }
}

static void give_up(const struct pen_control_config *config, uint32_t host) {
  struct pen_membership *membership = config->membership;
  const struct pen_rank_set ranks = pen_host_ranks(membership, host, PEN_NONE);
  pen_warn("host %s has not come again after the loss", config->plan->hosts[host]);
  atomic_store(&membership->states[host], PEN_HOST_SILENT);
  membership->absent[host] = ranks.count > 0 ? ranks.first : PEN_NONE;
}

/* On hosts that have not come again. */
static void give_up_absent(const struct pen_control_config *config, struct pen_peers *peers) {
  struct pen_membership *membership = config->membership;
  for (uint32_t host = 0; host < pen_host_and_spare_count(config->plan); host++) {
    if (!has_come(config, peers, host) &&
        atomic_load(&membership->states[host]) == PEN_HOST_LIVES) {
      give_up(config, host);
    }
  }
  if (!pen_membership_can_continue(membership)) {
    pen_fail(PEN_EXIT_LOST, "the run cannot go on: no spare is left for a lost host");
  }
  pen_membership_vacate(membership);
  fall_back(config, peers);
}

/* Fails where time is out before all commands have come; `other_plan`: the first rank of one that
 * was refused for its plan. */
static void check_time(const struct pen_control_config *config, struct pen_peers *peers,
                       uint64_t *end_ns, uint32_t other_plan) {
  if (pen_now_ns() < *end_ns) {
    return;
  }
  if (other_plan != PEN_NONE) {
    pen_fail(PEN_EXIT_DIGEST, "rank %u runs another plan than rank 0: their digests differ",
             other_plan);
  }
  if (config->attempt == 0) {
    pen_fail(PEN_EXIT_LOST, "%u of %u ranks came to port %u of this host in time",
             connected_ranks(config, peers), pen_process_count(config->membership->current),
             pen_first_port(config->plan));
  }
  give_up_absent(config, peers);
  *end_ns = after_s(AGAIN_S);
}

/* Whether ranks of a host have no command yet. */
static bool misses(const struct pen_control_config *config, const struct pen_peers *peers,
                   uint32_t host) {
  const struct pen_membership *membership = config->membership;
  uint32_t come =
      host == membership->own ? pen_host_ranks(membership, host, membership->only).count : 0;
  for (uint32_t p = 0; p < peers->count; p++) {
    const struct pen_peer_command *peer = &peers->command[p];
    come += peer->host == host && !peer->arrives ? peer->ranks.count : 0;
  }
  return come < pen_host_ranks(membership, host, PEN_NONE).count || !has_come(config, peers, host);
}

/* Names at most three of the hosts that are missing. */
static void report_waiting(const struct pen_control_config *config, const struct pen_peers *peers) {
  const struct pen_membership *membership = config->membership;
  char names[3 * PEN_HOST_BYTES + 64];
  uint32_t count = 0;
  size_t used = 0;
  for (uint32_t p = 0; p < membership->current->host_count; p++) {
    const uint32_t host = membership->places[p].host;
    const bool vacant = host == PEN_NONE;
    if ((vacant || misses(config, peers, host)) && count++ < 3) {
      used += (size_t)snprintf(names + used, sizeof names - used, "%s%.64s", count > 1 ? ", " : "",
                               vacant ? "a spare" : pen_host_name(config->plan, host));
    }
  }
  if (count > 3) {
    snprintf(names + used, sizeof names - used, " and %u more", count - 3);
  }
  if (count > 0) {
    pen_warn("host %s waits for %s", pen_host_name(config->plan, membership->own), names);
  }
}

/* Waits for all other commands. A command with another plan has RIGHT_PLAN_S to be replaced by one
 * with the right plan. */
static void serve(const struct pen_control_config *config, struct pen_peers *peers,
                  const char *address, uint64_t end_ns) {
  struct pen_proved_command command;
  struct pen_peer_command who;
  uint32_t other_plan = PEN_NONE;
  struct pen_waiting waiting = pen_waiting_begin();
  pen_control_server_open(&peers->server, config, address, pen_first_port(config->plan));
  fall_back(config, peers);
  while (connected_ranks(config, peers) < pen_process_count(config->membership->current) ||
         !have_hosts_come(config, peers) || !have_holders_come(config, peers)) {
    check_time(config, peers, &end_ns, other_plan);
    if (pen_waiting_is_long(&waiting)) {
      report_waiting(config, peers);
    }
    pen_arrivals_take_all(config, peers);
    place_spares(config, peers);
    if (!pen_control_server_poll(&peers->server, ACCEPT_MS, &command)) {
      continue;
    }
    const uint32_t verdict = admit(config, peers, &command, &who);
    if (verdict == PEN_EXIT_DIGEST) {
      const uint64_t soon_ns = after_s(RIGHT_PLAN_S);
      end_ns = soon_ns < end_ns ? soon_ns : end_ns;
      other_plan = who.ranks.first;
      pen_control_refuse(&peers->server, &who.link, "it runs another plan");
    } else if (verdict == PEN_EXIT_LOST) {
      pen_control_refuse(&peers->server, &who.link,
                         "it has ended, or the run has gone on without it");
    } else if (verdict == PEN_EXIT_USAGE) {
      pen_fail(PEN_EXIT_USAGE, "rank %u is started by two commands", who.ranks.first);
    }
  }
  const struct pen_place place = pen_place_open(config, peers, address);
  pen_place_set(config->membership, &place);
  for (uint32_t p = 0; p < peers->count; p++) {
    if (!peers->command[p].arrives) {
      pen_place_set(config->membership, &peers->command[p].place);
    }
  }
  for (uint32_t p = 0; p < peers->count; p++) {
    if (!peers->command[p].arrives) {
      pen_places_send(config, &peers->command[p]);
    }
  }
  peers->listens = config->membership->current->spare_count > 0;
  if (!peers->listens) {
    pen_control_server_close(&peers->server);
  }
}

void pen_rendezvous_poll(const struct pen_control_config *config, struct pen_peers *peers) {
  struct pen_proved_command command;
  struct pen_peer_command who;
  if (!peers->listens || !pen_control_server_poll(&peers->server, 0, &command)) {
    return;
  }
  const uint32_t verdict = admit(config, peers, &command, &who);
  if (verdict != 0 && verdict != COMES_EARLY) {
    pen_control_refuse(&peers->server, &who.link, "the run needs no such command");
  }
}

void pen_rendezvous_forget(struct pen_peer_command *peer) {
  pen_control_link_close(&peer->link);
  peer->finished = true;
}

int pen_rendezvous_arrive(const struct pen_control_config *config, struct pen_peer_command *peer) {
  const int taken = pen_arrivals_take(peer);
  if (taken > 0) {
    pen_places_send(config, peer);
  }
  return taken;
}

/* ---- the others ---- */

/* False: the server is not reached. One that ends later is broken. */
static bool join(const struct pen_control_config *config, struct pen_peers *peers, uint32_t server,
                 uint64_t end_ns) {
  struct pen_control_link link;
  if (!pen_control_connect(config, server, pen_host_name(config->plan, server),
                           pen_first_port(config->plan), end_ns, &link)) {
    return false;
  }
  pen_place_set_address(config, &link, peers->address);
  const struct pen_place place = pen_place_open(config, peers, peers->address);
  pen_control_link_limit(&link, peers->places_s);
  peers->is_broken = !pen_place_send(&link, &place) ||
                     !pen_places_await(config, &link, server, after_s(peers->places_s)) ||
                     !pen_places_receive(config, &link);
  peers->error = errno;
  pen_arrivals_add(peers, &(struct pen_peer_command){
                              .link = link,
                              .host = server,
                              .only = PEN_NONE,
                              .ranks = pen_host_ranks(config->membership, server, PEN_NONE)});
  return true;
}

static void leave(struct pen_peers *peers) {
  pen_control_link_close(&peers->command[--peers->count].link);
  pen_place_close(peers);
}

static bool waits_for_ranks(const struct pen_control_config *config) {
  const struct pen_membership *membership = config->membership;
  return pen_host_ranks(membership, membership->own, membership->only).count == 0;
}

/* The one that serves, as far as a spare knows, is tried first; each refuses at once where it does
 * not serve. */
static void join_any(const struct pen_control_config *config, struct pen_peers *peers,
                     uint64_t end_ns) {
  const uint32_t count = pen_host_and_spare_count(config->plan);
  const uint32_t first = pen_membership_server(config->membership);
  for (uint32_t tried = 0;; tried++) {
    const uint32_t host = (first + tried) % count;
    if (host != config->membership->own &&
        atomic_load(&config->membership->states[host]) == PEN_HOST_LIVES &&
        join(config, peers, host, pen_now_ns())) {
      if (!peers->is_broken) {
        return;
      }
      leave(peers);
    }
    if (pen_now_ns() > end_ns) {
      pen_fail(PEN_EXIT_LOST, "no host of the run is reached at port %u (cluster.hosts)",
               pen_first_port(config->plan));
    }
    if (tried % count == count - 1) {
      usleep(ROUND_US);
    }
  }
}

static bool serves(const struct pen_control_config *config) {
  const struct pen_membership *membership = config->membership;
  return pen_membership_server(membership) == membership->own &&
         (membership->only == PEN_NONE || membership->only == 0);
}

static void fail_to_join(const struct pen_control_config *config, uint32_t server) {
  const struct pen_membership *membership = config->membership;
  pen_fail(PEN_EXIT_LOST,
           "rank %u cannot reach the first host, %s, at port %u (cluster.hosts, cluster.port)",
           pen_host_ranks(membership, membership->own, membership->only).first,
           pen_host_name(config->plan, server), pen_first_port(config->plan));
}

void pen_rendezvous(const struct pen_control_config *config, struct pen_peers *peers,
                    double timeout_s) {
  struct pen_membership *membership = config->membership;
  const bool again = config->attempt > 0;
  const uint64_t first_end_ns = after_s(timeout_s);
  uint64_t wait_s = AGAIN_S;
  peers->places_s = PLACES_S + (again ? 0 : timeout_s);
  peers->most = pen_process_count(config->plan) + pen_host_and_spare_count(config->plan);
  peers->command =
      pen_allocate(peers->most, sizeof *peers->command, "the connection to other hosts");
  if (config->plan->interface[0] != '\0') {
    pen_place_set_listen_address(config, peers); /* looks up names, which may take long */
  }
  /* Spares continue without the only host of a fallback. */
  const bool waits = waits_for_ranks(config) && pen_membership_has_ranks(membership);
  while (!waits && !serves(config)) {
    const uint32_t server = pen_membership_server(membership);
    if (join(config, peers, server, again ? after_s((double)wait_s) : first_end_ns)) {
      return;
    }
    wait_s += AGAIN_S; /* the next one may have waited for this one as long */
    if (!again) {
      fail_to_join(config, server);
    }
    give_up(config, server);
    if (!pen_membership_can_continue(membership)) {
      pen_fail(PEN_EXIT_LOST, "the run cannot go on: no spare is left for a lost host");
    }
  }
  if (waits) {
    join_any(config, peers, again ? after_s(2 * AGAIN_S) : first_end_ns);
    return;
  }
  peers->serves = true;
  pen_membership_vacate(membership);
  pen_place_set_listen_address(config, peers);
  serve(config, peers, peers->address, again ? after_s(AGAIN_S) : first_end_ns);
}

void pen_peers_close(struct pen_peers *peers) {
  for (uint32_t p = 0; p < peers->count; p++) {
    pen_control_link_close(&peers->command[p].link);
  }
  pen_place_close(peers);
  if (peers->listens) {
    pen_control_server_close(&peers->server);
  }
}
