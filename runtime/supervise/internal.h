/* internal.h: what the watchdog knows of the ranks, for the files of supervise/. */
#ifndef PEN_SUPERVISE_INTERNAL_H
#define PEN_SUPERVISE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/comm/shared_control.h"
#include "runtime/rank/run.h"

/* A rank's process. Durations grow by the time between two polls. */
struct pen_watched_rank {
  pid_t pid;
  bool exited;
  bool killed; /* by this command */
  bool stopped;
  uint64_t stopped_ns;
  uint64_t finished;      /* actions, at the last poll */
  uint64_t no_action_ns;  /* since it finished an action */
  uint64_t stalled_ns;    /* since it finished an action or waited for a rank */
  uint64_t connecting_ns; /* since it began to connect */
  uint32_t heartbeat;     /* at the last poll */
  uint64_t heartbeat_ns;  /* since its heartbeat changed; 0 while it has none */
  uint64_t device_ns;     /* of stalled_ns: how long it has waited for its device without a break */
};

struct pen_watchdog {
  struct pen_run *run;
  struct pen_watched_rank *ranks; /* [rank_count] */
  uint32_t rank_count;
  uint32_t local_count, exited_count; /* of this command */
  uint64_t now_ns;
  uint32_t lost;           /* PEN_NONE: no rank has failed */
  char cause[64];          /* of its failure */
  uint64_t interrupted_ns; /* when the first SIGINT came; 0: none came */
  bool force_quit;         /* a second SIGINT came more than a second later */
  uint64_t unread_ns;      /* since then, how long a rank has waited for a reader */
  uint32_t **send_index;   /* see pen_stall_index_sends() */
};

/* watchdog.c: supervises the ranks, which are the processes `pids`, until all have exited. Returns
 * the run's exit status. The signals of signals.h are blocked. */
int pen_supervise_ranks(struct pen_run *run, const pid_t *pids);

/* processes.c: whether this command has started the rank. */
bool pen_watchdog_is_local(const struct pen_watchdog *watchdog, uint32_t rank);

/* processes.c: records that a rank has failed, unless one has before. */
void pen_watchdog_set_lost(struct pen_watchdog *watchdog, uint32_t rank, const char *cause);

/* processes.c: reports a rank that has failed to all hosts (docs/contracts.md section 10, "Lost
 * rank"). Returns whether the line is to be printed here. */
bool pen_watchdog_record(const struct pen_watchdog *watchdog, uint32_t rank, const char *cause,
                         uint32_t waiter, char line[PEN_FAILURE_LINE_BYTES]);

/* processes.c: records which processes have exited, stopped or continued since the last call. */
void pen_watchdog_reap(struct pen_watchdog *watchdog);

/* stall.c: [profiles][messages]: the index of the action that sends it, in its rank's list.
 * Allocates. Null on one host, but with transport nccl. */
uint32_t **pen_stall_index_sends(const struct pen_plan *plan);
void pen_stall_free_index(const struct pen_plan *plan, uint32_t **send_index);

/* stall.c: adds `passed_ns` to the durations of each rank; a rank that stays stopped is lost. */
void pen_stall_count_time(struct pen_watchdog *watchdog, uint64_t passed_ns);

/* stall.c: records as lost a local rank that has stalled for the timeout. */
void pen_stall_check(struct pen_watchdog *watchdog);

#endif
