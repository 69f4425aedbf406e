/* lost_hosts.c: which hosts are lost, and the lines that say so (see lost_hosts.h). */
#include "runtime/control/lost_hosts.h"

#include <errno.h>
#include <stdio.h>

#include "runtime/base/check.h"
#include "runtime/comm/failure_text.h"
#include "runtime/control/control_sync.h"
#include "runtime/control/failure_report.h"

/* A pass of the thread counts for at most PASS_MS of silence: no host is lost because this one was
 * stopped. With a silent host, others that are silent for ALSO_SILENT_MS are lost. */
enum { PASS_MS = 120, ALSO_SILENT_MS = 1000 };

/* Writes the line for the ranks of a lost host, which they may not have reported themselves. */
static void write_lost_line(const struct pen_watched_hosts *hosts,
                            const struct pen_peer_command *peer, const char *cause,
                            char line[PEN_FAILURE_LINE_BYTES]) {
  const struct pen_rank_set *ranks = &peer->ranks;
  uint32_t lost = ranks->first, waiter = PEN_NONE;
  char *host = hosts->shared->ranks[lost].host;
  if (host[0] == '\0') {
    snprintf(host, PEN_HOST_BYTES, "%s", hosts->config->plan->hosts[peer->host]);
  }
  for (uint32_t r = lost; r < ranks->process_count; r = pen_rank_set_next(ranks, r + 1)) {
    atomic_store(&hosts->shared->ranks[r].waits_for, 0); /* a lost rank waits for no rank */
  }
  for (uint32_t r = lost; r < ranks->process_count && waiter == PEN_NONE;
       r = pen_rank_set_next(ranks, r + 1)) {
    waiter = pen_failure_waiter(hosts->config->membership->current, hosts->shared, r);
    lost = waiter == PEN_NONE ? lost : r;
  }
  pen_failure_line(line, PEN_FAILURE_LINE_BYTES, hosts->config->membership->current, hosts->shared,
                   lost, cause, waiter);
}

void pen_lost_host_report(const struct pen_watched_hosts *hosts, struct pen_peer_command *peer,
                          enum pen_host_loss loss) {
  char line[PEN_FAILURE_LINE_BYTES], cause[PEN_HOST_BYTES + 32];
  const enum pen_host_state state = loss == PEN_LOSS_CLOSED ? PEN_HOST_LOST : PEN_HOST_SILENT;
  peer->finished = true;
  atomic_store(&hosts->config->membership->states[peer->host], state);
  snprintf(cause, sizeof cause, "%shost %.*s lost", loss == PEN_LOSS_UNREACHED ? "link to " : "",
           PEN_HOST_BYTES, hosts->config->plan->hosts[peer->host]);
  if (peer->ranks.count == 0) {
    pen_warn("%s: it has no ranks, and the run goes on", cause);
    return;
  }
  write_lost_line(hosts, peer, cause, line);
  const bool first =
      pen_failure_record(hosts->shared, peer->ranks.first, pen_lost_host(peer->host, state), line);
  pen_shared_abort(hosts->shared, PEN_EXIT_LOST);
  if (first) {
    pen_failure_say(line);
  }
}

static void report_silent_hosts(const struct pen_watched_hosts *hosts, double silence_s,
                                enum pen_host_loss loss) {
  for (uint32_t p = 0; p < hosts->peers->count; p++) {
    struct pen_peer_command *peer = &hosts->peers->command[p];
    if (!peer->finished && (double)peer->silent_ns >= silence_s * 1e9) {
      pen_lost_host_report(hosts, peer, loss);
    }
  }
}

void pen_lost_hosts_of_link(const struct pen_watched_hosts *hosts, struct pen_peer_command *peer,
                            int error) {
  const bool is_link = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH,
             is_stopped = error == EAGAIN; /* pen_control_link_limit() */
  pen_lost_host_report(hosts, peer,
                       is_link      ? PEN_LOSS_UNREACHED
                       : is_stopped ? PEN_LOSS_STOPPED
                                    : PEN_LOSS_CLOSED);
  if (is_link) {
    report_silent_hosts(hosts, ALSO_SILENT_MS / 1e3, PEN_LOSS_UNREACHED);
  }
}

void pen_lost_hosts_pass(const struct pen_watched_hosts *hosts, uint64_t passed_ns) {
  const double silence_s = hosts->config->silence_s, also_s = ALSO_SILENT_MS / 1e3;
  const uint64_t pass_ns = PASS_MS * 1000000ull;
  bool is_silent = false;
  for (uint32_t p = 0; p < hosts->peers->count; p++) {
    struct pen_peer_command *peer = &hosts->peers->command[p];
    peer->silent_ns += passed_ns < pass_ns ? passed_ns : pass_ns;
    is_silent = is_silent || (!peer->finished && (double)peer->silent_ns >= silence_s * 1e9);
  }
  if (is_silent) {
    report_silent_hosts(hosts, silence_s < also_s ? silence_s : also_s, PEN_LOSS_STOPPED);
  }
}

void pen_lost_host_note(const struct pen_control_config *config,
                        const struct pen_control_message *message) {
  const uint32_t host = (uint32_t)message->number;
  if (message->kind == PEN_MESSAGE_FAILURE && message->number != 0 &&
      host < pen_host_and_spare_count(config->plan)) {
    atomic_store(&config->membership->states[host],
                 message->number >> 32 == PEN_HOST_LOST ? PEN_HOST_LOST : PEN_HOST_SILENT);
  }
}
