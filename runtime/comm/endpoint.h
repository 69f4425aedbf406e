/* endpoint.h: a process of the run as it sees the others: which rank it is, the memory that all
 * share (shared_control.h), and what the hosts of all ranks do together whatever the transport:
 * barriers, the statistics of a step, the log's flow control. A call that may block returns false
 * when the run was aborted meanwhile. */
#ifndef PEN_ENDPOINT_H
#define PEN_ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/comm/shared_control.h"
#include "runtime/plan/plan.h"

struct pen_endpoint {
  const struct pen_plan *plan;
  const struct pen_shared *shared;
  struct pen_rank_state *self; /* where this process publishes its progress */
  unsigned char *arena;        /* the rank's memory, on its device */
  uint32_t rank, replica;      /* in the plan; which of its replicas */
  uint32_t tensor_rank;        /* which member of the rank */
  uint32_t global;             /* the number of the process: plan.h */
  /* What the process does while it waits, so that its messages continue; null: nothing. */
  void (*progress)(void *context);
  void *progress_context;
  uint64_t waited_ns;            /* blocked in waits for other ranks, since the step began */
  struct pen_step_timing timing; /* of the step that runs */
};

/* The endpoint of the process with that global rank. Endpoints may be in processes or in threads of
 * one process. */
struct pen_endpoint pen_endpoint_of(const struct pen_plan *plan, const struct pen_shared *shared,
                                    uint32_t global, unsigned char *arena);

/* The process that is a member of one of this one's groups. */
static inline uint32_t pen_endpoint_process(const struct pen_endpoint *endpoint, int group,
                                            uint32_t member) {
  return pen_group_process(endpoint->plan, endpoint->global, group, member);
}

/* Waits until a counter that the process `peer` raises is at `needed`, and publishes meanwhile whom
 * this process waits for. */
bool pen_endpoint_wait(struct pen_endpoint *endpoint, struct pen_futex_counter *flag,
                       uint32_t needed, uint32_t peer);

/* The statistics of step `step` of the run, from 0: entries as plan.h has them. The process writes
 * its own entries until pen_endpoint_publish(), and reads those of others after
 * pen_endpoint_gather(), which waits for all. */
double *pen_endpoint_step_stats(struct pen_endpoint *endpoint, uint64_t step);
void pen_endpoint_publish(struct pen_endpoint *endpoint, uint64_t step);
bool pen_endpoint_gather(struct pen_endpoint *endpoint, uint64_t step);
bool pen_endpoint_has_gathered(struct pen_endpoint *endpoint, uint64_t step); /* does not wait */

/* The rank that logs has read the statistics of one more step; the others wait for that before they
 * write to the same memory in step `step`. */
void pen_endpoint_log_read(struct pen_endpoint *endpoint);
bool pen_endpoint_wait_log(struct pen_endpoint *endpoint, uint64_t step);

/* The first rank of each replica, before it sends anything of a step: global rank 0 says that it
 * begins the step, and so has decided whether it is the last; the others wait for it. */
bool pen_endpoint_begin_step(struct pen_endpoint *endpoint, uint64_t step);

/* Blocks until every rank has called it. Between steps only. */
bool pen_endpoint_barrier(struct pen_endpoint *endpoint);

/* Between steps, by all ranks alike: what those that `gives` have written of so many bytes of the
 * library's mailbox comes to all hosts. Every caller has made the bytes all ones before. Bytes and
 * offset are multiples of 4. */
bool pen_endpoint_give_all(struct pen_endpoint *endpoint, uint64_t offset, uint64_t bytes,
                           bool gives);

/* At a step's end: publishes endpoint->timing as that of step `step` of the run. */
void pen_endpoint_publish_timing(struct pen_endpoint *endpoint, uint64_t step);

/* A barrier in which all ranks compare their plans' digests. Returns the lowest global rank whose
 * digest differs from this rank's, PEN_NONE when all agree; *aborted when the run was. */
uint32_t pen_endpoint_compare_plans(struct pen_endpoint *endpoint, bool *aborted);

#endif
