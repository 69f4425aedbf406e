/* control_start.c: what the commands agree on before their ranks start (see control_start.h). */
#define _GNU_SOURCE
#include "runtime/control/control_start.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/base/futex_counter.h"
#include "runtime/control/internal.h"
#include "runtime/control/failure_report.h"
#include "runtime/control/redistribute.h"

/* Before the ranks start there are no heartbeats: the server is lost when it says nothing for so
 * many times as long as a host may. */
enum { SERVER_WAITS = 10 };

/* Another attempt is made without the command, also if it has no ranks: it may have states. */
static void lose_before_start(struct pen_control_tcp *tcp, struct pen_peer_command *peer,
                              int error) {
  pen_failure_detected(tcp->shared);
  pen_control_lose_link(tcp, peer, error);
  pen_shared_abort(tcp->shared, PEN_EXIT_LOST);
}

/* How long each command may say nothing. The server waits for all others, and those for it. */
static double wait_limit_s(const struct pen_control_tcp *tcp) {
  return tcp->peers.serves ? tcp->config.silence_s : SERVER_WAITS * tcp->config.silence_s;
}

/* A START that has not come. */
struct awaited_start {
  bool is_awaited;
  void *bytes;
  size_t count;
};

/* Takes what has arrived of a command: its START; or what a server says that has ended the attempt,
 * until it says that. */
static void take_start(struct pen_control_tcp *tcp, uint32_t index, struct awaited_start *start) {
  struct pen_peer_command *peer = &tcp->peers.command[index];
  struct pen_control_message message;
  const int taken = pen_control_take(tcp, peer, &message);
  const bool is_start = taken > 0 && message.kind == PEN_MESSAGE_START;
  if (is_start && message.bytes == start->count) {
    memcpy(start->bytes, peer->link.arriving.bytes, start->count);
    start->is_awaited = false;
  } else if (taken < 0 || is_start) {
    lose_before_start(tcp, peer, errno);
  } else if (taken > 0) {
    pen_control_apply(tcp, index, &message);
    if (pen_control_is_aborted(tcp) || peer->finished) {
      peer->finished = true;
      pen_shared_abort(tcp->shared, PEN_EXIT_LOST);
    }
  }
  start->is_awaited = start->is_awaited && !peer->finished;
}

/* Receives the STARTs of all commands that are to send one at the same time: none delays another
 * one. `starts`: [peers.count]. */
static void await_starts(struct pen_control_tcp *tcp, struct awaited_start *starts) {
  const struct timespec pause = {.tv_nsec = 1000 * PEN_CONTROL_POLL_US};
  const uint64_t limit_ns = (uint64_t)(wait_limit_s(tcp) * 1e9);
  uint32_t left = 1;
  for (uint64_t before_ns = pen_now_ns(), now_ns; left > 0; before_ns = now_ns) {
    left = 0;
    for (uint32_t p = 0; p < tcp->peers.count; p++) {
      const bool is_awaited = starts[p].is_awaited;
      tcp->polled[p] = (struct pollfd){.fd = is_awaited ? tcp->peers.command[p].link.socket : -1,
                                       .events = POLLIN};
      left += is_awaited;
    }
    ppoll(tcp->polled, left > 0 ? tcp->peers.count : 0, left > 0 ? &pause : &(struct timespec){0},
          NULL);
    now_ns = pen_now_ns();
    for (uint32_t p = 0; p < tcp->peers.count; p++) {
      struct pen_peer_command *peer = &tcp->peers.command[p];
      if (!starts[p].is_awaited) {
        continue;
      }
      peer->silent_ns += now_ns - before_ns;
      take_start(tcp, p, &starts[p]);
      if (starts[p].is_awaited && peer->silent_ns > limit_ns) {
        lose_before_start(tcp, peer, EAGAIN);
        starts[p].is_awaited = false;
      }
    }
  }
}

/* Of the commands with ranks, now or before; the others have nothing to offer. Also where one is
 * lost, all others have said theirs: the next that they say are their last words. */
static void decide_state(struct pen_control_tcp *tcp, const struct pen_start_offer *own) {
  const uint32_t count = tcp->peers.count + 1u;
  struct awaited_start *starts =
      pen_allocate(count, sizeof *starts, "the connection to other hosts");
  tcp->offers = pen_allocate(count, sizeof *tcp->offers, "the connection to other hosts");
  tcp->offers[0] = *own;
  for (uint32_t p = 0; p < tcp->peers.count; p++) {
    struct pen_peer_command *peer = &tcp->peers.command[p];
    tcp->offers[p + 1] = (struct pen_start_offer){.host = PEN_NONE, .hosts = own->hosts};
    starts[p] =
        (struct awaited_start){peer->ranks.count > 0 || tcp->config.membership->held[peer->host],
                               &tcp->offers[p + 1], sizeof *tcp->offers};
  }
  await_starts(tcp, starts);
  free(starts);
  tcp->state = pen_start_state_of(tcp->offers, count);
}

static void receive_state(struct pen_control_tcp *tcp) {
  struct awaited_start start = {true, &tcp->state, sizeof tcp->state};
  if (tcp->peers.is_broken) {
    lose_before_start(tcp, &tcp->peers.command[0], tcp->peers.error);
  } else {
    await_starts(tcp, &start);
  }
}

/* After what the server has said in place of a redistribution. */
static void await_abort(struct pen_control_tcp *tcp, const struct pen_control_message *first) {
  struct pen_peer_command *server = &tcp->peers.command[0];
  if (!pen_control_link_take_after(&server->link, tcp->buffer_bytes, first)) {
    lose_before_start(tcp, server, errno);
  } else {
    await_starts(tcp, &(struct awaited_start){.is_awaited = true});
    pen_shared_abort(tcp->shared, PEN_EXIT_LOST);
  }
}

/* A spare that waits has nothing to offer, but is told the state. */
bool pen_control_tcp_agree(struct pen_control_tcp *tcp, const struct pen_start_offer *offer,
                           struct pen_start_state *state) {
  if (tcp == NULL) {
    *state = pen_start_state_of(offer, 1);
    return true;
  }
  for (uint32_t p = 0; p < tcp->peers.count; p++) { /* for what is received in redistributing */
    pen_control_link_limit(&tcp->peers.command[p].link, wait_limit_s(tcp));
  }
  if (tcp->peers.serves) {
    decide_state(tcp, offer);
    for (uint32_t p = 0; p < tcp->peers.count && !pen_control_is_aborted(tcp); p++) {
      if (pen_control_is_told(&tcp->peers.command[p])) {
        pen_control_send_state(tcp, &tcp->peers.command[p]);
      }
    }
  } else {
    struct pen_peer_command *server = &tcp->peers.command[0];
    const struct pen_control_message message = {.kind = PEN_MESSAGE_START, .bytes = sizeof *offer};
    if (tcp->shared->local.count > 0 || offer->held != 0) {
      pen_control_link_post(&server->link, &message, offer);
    }
    receive_state(tcp);
  }
  *state = tcp->state;
  return !pen_control_is_aborted(tcp);
}

bool pen_control_tcp_redistribute(struct pen_control_tcp *tcp,
                                  const struct pen_redistribution *states, bool takes_part) {
  struct pen_peer_command *lost = NULL;
  struct pen_control_message message;
  if (tcp->peers.serves) {
    lost = pen_redistribute_serve(states, &tcp->peers, tcp->offers);
  } else if (takes_part) {
    struct pen_peer_command *server = &tcp->peers.command[0];
    const enum pen_redistribute_end end = pen_redistribute_join(states, &server->link, &message);
    lost = end == PEN_REDISTRIBUTE_LOST ? server : NULL;
    if (end == PEN_REDISTRIBUTE_ENDED) {
      await_abort(tcp, &message);
    }
  }
  if (lost != NULL) {
    lose_before_start(tcp, lost, errno);
  }
  return !pen_control_is_aborted(tcp);
}
