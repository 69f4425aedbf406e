/* mirror.h: train --recover-every with several hosts: each host's copies of its ranks' states
 * (storage/memory_checkpoint.h) are also in memory of the command of the next host, so that they
 * outlive the host. A connection of control_link.h from each host to the next carries them; a
 * thread of the command sends, another one receives.
 *
 *     a host                                          the next host
 *       WANT step, or 0                        --->
 *                                              <---   STEP cursor, COPY of each rank, if wanted
 *       STEP cursor, COPY of each rank         --->
 *                                              <---   DONE                                  ... */
#ifndef PEN_MIRROR_H
#define PEN_MIRROR_H

#include "runtime/control/control_accept.h"
#include "runtime/storage/memory_checkpoint.h"

/* What both ends of the connections know. */
struct pen_mirror_config {
  struct pen_control_config control;
  struct pen_control_server *server;             /* where the host before connects; it stays open */
  const struct pen_memory_checkpoints *own;      /* of this command's ranks */
  const struct pen_memory_checkpoints *mirrored; /* of those of the host before */
  uint64_t
      wanted_step; /* whose copies of this command's ranks the next host has; 0: none are needed */
  const struct pen_shared *shared; /* an abort of the run ends the wait for the next host */
};

struct pen_mirror;

/* Connects this command to that of the next host, and returns when it has the copies that it wants,
 * when the run is aborted, or when the next host is not reached; warns of that where it wants none.
 * A thread serves the host before. Call before the ranks start, when the control connections are
 * watched (control_tcp.h). Allocates. */
struct pen_mirror *pen_mirror_open(const struct pen_mirror_config *config);

/* Whether it has the copies that it wants. */
bool pen_mirror_is_complete(const struct pen_mirror *mirror);

/* After the ranks have started: sends each complete copy. Null is allowed, here and below. */
void pen_mirror_start(struct pen_mirror *mirror);

/* In a rank's process: closes the sockets, which are the command's. */
void pen_mirror_leave(struct pen_mirror *mirror);

/* When the ranks have exited. */
void pen_mirror_close(struct pen_mirror *mirror);

#endif
