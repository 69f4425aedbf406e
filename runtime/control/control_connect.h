/* control_connect.h: connects a command to the first host's (control_accept.h), and exchanges
 * proofs of the run's secret (handshake.h). */
#ifndef PEN_CONTROL_CONNECT_H
#define PEN_CONTROL_CONNECT_H

#include <stdint.h>

#include "runtime/control/control_link.h"
#include "runtime/control/membership.h"

/* What an end says of itself. */
struct pen_control_config {
  const struct pen_plan *plan; /* of the binary */
  const struct pen_secret *secret;
  struct pen_membership *membership;
  uint32_t attempt; /* restarts of the run so far */
  bool mirrors;     /* each host's copies of states are also on the next host (mirror.h) */
  double silence_s; /* a host that sends nothing for so long is lost */
};

/* Connects to the command of a host, at this address or name and port, until `end_ns`. False: it
 * is not reached until then. Fails (64) where it has another secret, another version or refuses the
 * ranks, (75) where the run has gone on without this host, (76) where it has another plan. */
bool pen_control_connect(const struct pen_control_config *config, uint32_t host,
                         const char *address, uint16_t at_port, uint64_t end_ns,
                         struct pen_control_link *link);

#endif
