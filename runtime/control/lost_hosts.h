/* lost_hosts.h: detects that the command of another host is lost, by its connection or its silence,
 * and reports it: the lines of its ranks, the state of its host, and the end of the run. */
#ifndef PEN_LOST_HOSTS_H
#define PEN_LOST_HOSTS_H

#include <stdint.h>

#include "runtime/comm/shared_control.h"
#include "runtime/control/control_connect.h"
#include "runtime/control/rendezvous.h"

/* Why the ranks of a host are lost: its connection ended without a GOODBYE; the other side has
 * acknowledged nothing (control_link.h), so the link may be cut, and the host alive; the host
 * answers, but its processes are stopped. */
enum pen_host_loss { PEN_LOSS_CLOSED, PEN_LOSS_UNREACHED, PEN_LOSS_STOPPED };

/* What a command watches the others by. */
struct pen_watched_hosts {
  const struct pen_control_config *config;
  struct pen_shared *shared;
  struct pen_peers *peers;
};

/* Reports a lost host; aborts the run (75) unless it has no ranks. */
void pen_lost_host_report(const struct pen_watched_hosts *hosts, struct pen_peer_command *peer,
                          enum pen_host_loss loss);

/* The connection to a peer ended with this errno, as pen_control_link_receive(). With a link that
 * is cut, hosts that are silent as well are lost. */
void pen_lost_hosts_of_link(const struct pen_watched_hosts *hosts, struct pen_peer_command *peer,
                            int error);

/* A pass of the thread, `passed_ns` after the last one: reports the hosts that have sent nothing
 * for config->silence_s. */
void pen_lost_hosts_pass(const struct pen_watched_hosts *hosts, uint64_t passed_ns);

/* Takes the state of a lost host that another command has found, from its FAILURE. */
void pen_lost_host_note(const struct pen_control_config *config,
                        const struct pen_control_message *message);

#endif
