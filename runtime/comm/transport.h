/* transport.h: how a rank reaches the others. One kind for each way there is (shm.c now; ipc, nccl,
 * mpi are to come), one end for each rank. Steps are counted from 0 in the run. A call that may
 * block returns false when the run was aborted meanwhile: the rank then leaves. After open nothing
 * here allocates. */
#ifndef PEN_TRANSPORT_H
#define PEN_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/comm/shared_control.h"
#include "runtime/plan/plan.h"

struct pen_transport;

struct pen_transport_kind {
  const char *name; /* as the topology's cluster.transport */

  /* Rows SEND_F, SEND_B: blocks until the message's home is free, puts it there, tells the
   * receiver. */
  bool (*send)(struct pen_transport *end, const struct pen_message *message, uint64_t step);
  /* Rows RECV_F, RECV_B: the message's home is free from here on; tells the sender if it wants to
   * know. */
  void (*credit)(struct pen_transport *end, const struct pen_message *message);
  /* Rows WAIT_F, WAIT_B: blocks until the message stands in its home. */
  bool (*wait)(struct pen_transport *end, const struct pen_message *message, uint64_t step);

  /* The board of a step: own entries may be written until publish(), others' be read after
   * gather(). Entries: see plan.h. */
  double *(*board)(struct pen_transport *end, uint64_t step);
  void (*publish)(struct pen_transport *end, uint64_t step);
  bool (*gather)(struct pen_transport *end, uint64_t step);
  bool (*gathered)(struct pen_transport *end, uint64_t step); /* would gather() return at once? */
  /* The rank that logs says that it has read a step's board; the others wait before they write over
   * it. */
  void (*logged)(struct pen_transport *end);
  bool (*board_free)(struct pen_transport *end, uint64_t step);

  /* The first rank of each replica, before it sends anything of a step: that of replica 0 says that
   * it begins the step, and so has decided whether it is the last; the others wait for it. */
  bool (*begun)(struct pen_transport *end, uint64_t step);

  /* Between peers (plan.h, "Replicas"). Blocks until each has ended `count` rows of the exchange in
   * this step. */
  bool (*peers_reached)(struct pen_transport *end, uint32_t count);
  void (*exchanged)(struct pen_transport *end); /* this rank has ended one */
  /* The arena of the peer in a replica, of which the first shared_bytes are readable; one's own for
   * the own replica. */
  unsigned char *(*peer_arena)(struct pen_transport *end, uint32_t replica);

  /* Blocks until every rank has come here. Between steps only. */
  bool (*barrier)(struct pen_transport *end);
  void (*close)(struct pen_transport *end);
};

struct pen_transport {
  const struct pen_transport_kind *kind;
  const struct pen_plan *plan;
  const struct pen_profile *profile;
  const struct pen_shared *shared;
  struct pen_shared own_shared; /* what that may point at: the memory as the profile sees it */
  struct pen_rank_state *self;  /* where this rank says how far it is */
  unsigned char *arena;
  uint32_t rank, replica;    /* in the plan; which of its replicas */
  uint32_t global;           /* replica*rank_count + rank */
  uint32_t exchanged_before; /* rows of the exchange that this rank had ended when the step began */
};

/* Opens the end of the rank with that global rank over shared memory; `arena` is where its own
 * memory lies, whose first receive_bytes are its window of `shared`. Ends may be in processes or in
 * threads. Allocates. */
struct pen_transport *pen_shm_open(const struct pen_plan *plan, const struct pen_profile *profile,
                                   const struct pen_shared *shared, uint32_t global,
                                   unsigned char *arena);

/* A barrier in which all ranks compare their plans' digests. Returns the lowest global rank whose
 * digest differs from this rank's, PEN_NONE when all agree; *aborted when the run was. */
uint32_t pen_transport_agree(struct pen_transport *end, bool *aborted);

#endif
