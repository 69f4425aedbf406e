/* shared_control.h: the memory that all ranks of a run on one host share: an unnamed memfd, made by
 * the parent before it forks, so nothing remains however the run ends.
 *
 *     | control | rank states | channel counters | step statistics | checksums |  shared part of
 * rank 0's arena | rank 1's | ...
 *
 * A rank is a process of the deployment, counted over all replicas (plan.h, "Replicas"). Everything
 * that is not constant is atomic, or guarded by a counter: step statistics by `published`,
 * checksums by `arrived`. */
#ifndef PEN_SHARED_CONTROL_H
#define PEN_SHARED_CONTROL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/futex_counter.h"
#include "runtime/comm/step_timing.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/rank_set.h"

/* Steps whose statistics are kept: without WAIT_NORM a rank may run so many steps ahead of the rank
 * that logs. */
enum { PEN_STEP_STATS_DEPTH = 4 };

enum {
  PEN_CHECKSUM_BYTES = 32,
  PEN_HOST_BYTES = 64,
  PEN_ADDRESS_BYTES = 64, /* a network address as text */
  PEN_SAMPLED_STEPS = 2 * PEN_GROUPS_MAX,
  PEN_FABRIC_ADDRESS_BYTES = 88
};

/* A bit of actions_wait_for: the rank waits for the actions of that rank, whatever they send. */
#define PEN_WAITS_FOR_ACTIONS (1u << 31)

/* The phase of a rank. The watchdog expects progress within steps only: a slow disk is no stall.
 * While a rank on a device connects to the others it may take PEN_BOOTSTRAP_TIMEOUTS times as long.
 */
enum pen_phase {
  PEN_PHASE_START,
  PEN_PHASE_CONNECT,
  PEN_PHASE_STEPS,
  PEN_PHASE_SAVE,
  PEN_PHASE_OUTPUT, /* it waits for the reader of what it writes, or for its input */
  PEN_PHASE_END
};

enum { PEN_BOOTSTRAP_TIMEOUTS = 10 };

/* The stage of a rank that connects to the others; NONE: not known. */
enum pen_bootstrap_stage {
  PEN_CONNECT_NONE,
#define PEN_BOOTSTRAP_STAGE(what, text) PEN_CONNECT_##what,
#include "runtime/comm/bootstrap.def"
#undef PEN_BOOTSTRAP_STAGE
};

/* A stage, its repetition, and the channel of the profile that it connects, or PEN_NONE, as one
 * number: the rank with the least number is the one that the others wait for. */
static inline uint64_t pen_bootstrap_stage_set(enum pen_bootstrap_stage what, uint32_t turn,
                                               uint32_t channel) {
  return (uint64_t)what << 56 | (uint64_t)turn << 32 | channel;
}

/* A stop that no signal requested: generate has all its tokens. */
enum { PEN_STOP_BY_COMMAND = 1 << 16 };

/* How a rank is slower than its plan, relative to the others. LINK: the messages that it sends. */
enum pen_slow_kind { PEN_SLOW_NONE, PEN_SLOW_COMPUTE, PEN_SLOW_LINK, PEN_SLOW_DATA };

/* What a rank starts from, where several commands start the ranks: see runtime/rank/rank_open.c. */
enum { PEN_FINGERPRINT_MAX = 24, PEN_KERNELS_TEXT_BYTES = 128 };
struct pen_startup_fingerprint {
  uint64_t step;                         /* of the checkpoint; 0: none */
  uint64_t folder_mark;                  /* of the folder that it saves to; 0: none */
  uint8_t checkpoint[PEN_DIGEST_BYTES];  /* of its tensors' checksums */
  uint64_t options[PEN_FINGERPRINT_MAX]; /* a number for each option that must agree */
  char kernels[PEN_KERNELS_TEXT_BYTES];  /* instruction set and libraries; empty on a device */
};

/* What a process that uses the library asks of the ranks of its command. */
struct pen_asked {
  uint64_t request;       /* enum pen_request + 1; 0: the rank is not the first of its command */
  uint64_t learning_rate; /* its bits */
  uint64_t samples;       /* a checksum of them */
};

/* A part of the library's mailbox that a rank has written for the callers of all hosts. */
struct pen_mailbox_part {
  uint64_t offset, bytes;
};

/* Bytes of a part, at most. */
enum { PEN_MAILBOX_PART_BYTES = 1 << 18 };

/* The state of a rank, written by that rank and read by the watchdog, the dashboard and the other
 * ranks: the words of shared_control.def. */
struct pen_rank_state {
#define PEN_RANK_COUNTER(name) struct pen_futex_counter name;
#define PEN_HOST_COUNTER(name) struct pen_futex_counter name;
#define PEN_RANK_WORD(type, name) _Atomic type name;
#define PEN_HOST_WORD(type, name) _Atomic type name;
#define PEN_RANK_DATA(type, name, suffix) type name suffix;
#include "runtime/comm/shared_control.def"
  unsigned char memory_name[PEN_SHARED_NAME_BYTES]; /* transport ipc: of its arena, valid after the
                                                       first barrier */
};

/* Results of the last logged step, for train --watch and --metrics. Written by rank 0. */
struct pen_progress {
  _Atomic uint32_t version; /* odd while the others change */
  _Atomic uint64_t step;    /* optimizer steps, from 1 */
  _Atomic uint64_t targets; /* of the step; 0: it has neither loss nor norm */
  _Atomic double loss, norm, learning_rate, tokens_per_second, step_seconds, left_s;
  _Atomic double expert_load; /* 0: the plan has no experts */
};

/* The report of a lost rank: see control/failure_report.h. */
enum { PEN_FAILURES_MAX = 16, PEN_FAILURE_LINE_BYTES = 768 };
struct pen_failure {
  _Atomic uint32_t complete;
  uint32_t rank;
  uint64_t host; /* 0, or lost with the rank: pen_lost_host() */
  char line[PEN_FAILURE_LINE_BYTES];
};

/* The words of the run. */
struct pen_control {
#define PEN_CONTROL_COUNTER(name) struct pen_futex_counter name;
#define PEN_CONTROL_WORD(type, name) _Atomic type name;
#define PEN_CONTROL_DATA(type, name, suffix) type name suffix;
#define PEN_CONTROL_REQUEST(name) _Atomic uint32_t name;
#include "runtime/comm/shared_control.def"
  uint64_t spin_ns;  /* how long a waiting rank spins before it sleeps */
  uint64_t start_ns; /* zero of the trace's clock */
  struct pen_progress progress;
  _Atomic uint64_t lost_ns;   /* when this command detected a failure; 0: none */
  _Atomic uint32_t run_ended; /* 1: the command that a spare is connected to has ended the run */
  _Atomic uint32_t failure_count;
  struct pen_failure failures[PEN_FAILURES_MAX];
  double loss_sum; /* result of eval and score, for the parent: valid when all ranks have exited */
  uint64_t target_count, token_count, step_count;
  uint64_t
      not_finite_count; /* of these: targets (score) or steps (eval) whose loss is not finite */
};

/* Score: what the ranks of the last stage compute in a step, for one of them to write to a file.
 * The ranks of a command share the memory; other commands send the blocks of theirs to the
 * reader's. */
struct pen_results {
  unsigned char *memory; /* [2][replicas] blocks: those of odd steps have their own, so that
                            the next step may run while they are read. Null: there are none */
  size_t block_bytes;
  uint32_t reader; /* a global rank */
};

static inline unsigned char *pen_results_block(const struct pen_results *results,
                                               const struct pen_plan *plan, uint64_t step,
                                               uint32_t replica) {
  return results->memory +
         ((step & 1) * pen_group_size(plan, PEN_DATA) + replica) * results->block_bytes;
}

/* The mapping of the shared memory in a process. */
struct pen_shared {
  int descriptor;
  unsigned char *memory;
  size_t bytes;
  struct pen_control *control;
  struct pen_rank_state *ranks;   /* [process_count] */
  struct pen_rank_state *writers; /* [process_count]: of the threads that write snapshots, for their
                                     barriers */
  struct pen_futex_counter *arrivals; /* [pipeline][channel_stride]: messages that have arrived */
  struct pen_futex_counter *credits;  /* the same: receive slots that were released */
  /* The same, of transport shm: the last large message that was begun, by what `arrivals` will be,
   * and how many of its bytes are there. */
  struct pen_futex_counter *begun, *bytes_there;
  uint32_t channel_count, channel_stride; /* of all pipelines; of one */
  _Atomic uint32_t *sampled;              /* [PEN_SAMPLED_STEPS][PEN_PROMPTS_MAX]: of generate, see
                                             pen_sampled_of() */
  double *step_stats;                     /* [PEN_STEP_STATS_DEPTH][replica][entries + losses] */
  size_t step_stats_count;                /* entries of one step */
  uint8_t *checksums;                     /* [entries][3][PEN_CHECKSUM_BYTES], for checkpoints */
  size_t *receive_region_offset;          /* [process_count], into memory; page aligned */
  uint32_t process_count;
  struct pen_results results;
  unsigned char *mailbox; /* of the library (runtime/base/mailbox.h), whole; null: there is none */
  uint64_t mailbox_bytes;
  int changed;                     /* with several hosts: an eventfd, which wakes the thread of
                                      control/control_tcp.h; else -1 */
  struct pen_rank_set local;       /* whose processes map this memory: of one command */
  char address[PEN_ADDRESS_BYTES]; /* with several hosts: where the others reach this one */
};

/* The tokens that one rank samples in a step of the run, by row; guarded by its counter `drawn`. It
 * writes an entry again when all ranks have begun a step PEN_GROUPS_MAX steps later: they have read
 * what it was. */
static inline _Atomic uint32_t *pen_sampled_of(const struct pen_shared *shared, uint64_t step) {
  return shared->sampled + step % PEN_SAMPLED_STEPS * PEN_PROMPTS_MAX;
}

static inline bool pen_is_local(const struct pen_shared *shared, uint32_t global) {
  return pen_rank_set_has(&shared->local, global);
}

/* The index in its step of the action that a rank runs next. */
static inline uint64_t pen_action_index(const struct pen_rank_state *state) {
  return atomic_load(&state->finished) - atomic_load(&state->step_began);
}

/* A counter and the count that a rank waits for, as one number; never 0, which is the control's
 * place.
 */
static inline uint64_t pen_awaited_counter(const struct pen_shared *shared,
                                           const struct pen_futex_counter *counter,
                                           uint32_t count) {
  const size_t offset = (size_t)((const unsigned char *)counter - shared->memory);
  return (uint64_t)(offset / PEN_FUTEX_COUNTER_BYTES) << 32 | count;
}

/* Whether the counter that a rank waits for has reached its count: the rank is about to continue,
 * or it has stalled. */
static inline bool pen_awaited_counter_reached(const struct pen_shared *shared,
                                               const struct pen_rank_state *state) {
  const uint64_t awaited = atomic_load_explicit(&state->awaited_counter, memory_order_relaxed);
  const void *counter = shared->memory + (size_t)(awaited >> 32) * PEN_FUTEX_COUNTER_BYTES;
  return awaited != 0 && pen_futex_counter_reached(counter, (uint32_t)awaited);
}

/* Bytes of a rank's arena, from its start, that other ranks write or read, in whole pages: see
 * shared_bytes in plan.h. */
size_t pen_shared_bytes(const struct pen_plan *plan, uint32_t rank);

/* Makes and maps the memory for the channels of all profiles and the receive regions of all ranks;
 * pages are allocated when touched. Fails (71). */
void pen_shared_open(struct pen_shared *shared, const struct pen_plan *plan);

/* The same memory with the channels of one profile of the plan. */
struct pen_shared pen_shared_of(const struct pen_shared *shared, const struct pen_plan *plan,
                                const struct pen_profile *profile);
void pen_shared_close(struct pen_shared *shared);

/* After a change that ranks on other hosts may wait for: the thread that copies the words to them
 * need not wait for its next poll. */
void pen_shared_notify(const struct pen_shared *shared);

/* Requests the end of the run after the step that runs; the first cause is kept. Any process may
 * call it, in a signal handler, too. */
static inline void pen_shared_request_stop(const struct pen_shared *shared, uint32_t cause) {
  uint32_t none = 0;
  atomic_compare_exchange_strong(&shared->control->stop_requested, &none, cause);
}

/* The signal that requested the end of the run; 0: none. */
static inline int pen_shared_stop_signal(const struct pen_shared *shared) {
  const uint32_t cause = atomic_load(&shared->control->stop_requested);
  return cause == PEN_STOP_BY_COMMAND ? 0 : (int)cause;
}

/* Sets the exit status with which all ranks leave; the first caller's is kept, and the others get
 * false. Wakes every rank. Any process may call it. */
bool pen_shared_abort(const struct pen_shared *shared, uint32_t status);

#endif
