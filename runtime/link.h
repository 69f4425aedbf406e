/* link.h: how the rows of a queue (queue.h) reach other ranks: what transport.h is for a rank on the CPU, in calls that are enqueued. Nothing
 * here waits on the host; after open nothing allocates. What an implementation enqueues may not differ from step to step. */
#ifndef PEN_LINK_H
#define PEN_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/queue.h"

struct pen_link_kind {
  const char *name; /* as the topology's cluster.transport */
  /* Rows SEND_F, SEND_B: behind what is on the queue's stream, when the home is free: the message to its home, then the news of it. What
   * comes on the stream from here on may write where the message came from. */
  void (*send)(struct pen_link *link, uint32_t message);
  /* Rows RECV_F, RECV_B: the home is free from here on. */
  void (*credit)(struct pen_link *link, uint32_t message);
  /* Rows WAIT_F, WAIT_B: what comes on the stream waits for the message. */
  void (*wait)(struct pen_link *link, uint32_t message);
  /* Row PUBLISH: own entries of the board to all ranks' boards; GATHER: what comes waits for all ranks' entries. */
  void (*publish)(struct pen_link *link);
  void (*gather)(struct pen_link *link);
};

struct pen_link {
  const struct pen_link_kind *kind;
  struct pen_queue *queue;
  const struct pen_profile *profile;
  uint32_t rank;
};

#endif
