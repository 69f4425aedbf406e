/* control.h: the memory that all ranks of a run on one host share: one memfd without a name, made
 * by the parent before it forks, so that nothing is left behind however the run ends.
 *
 *     | control | rank states | flags of the channels | boards | checksums |  shared part of rank
 * 0's arena | rank 1's | ...
 *
 * A rank is here a process of the deployment: see plan.h, "Replicas". Where there is one replica
 * its rank in the plan is the same.
 *
 * Everything that is not const here is atomic, or guarded by a flag: board entries and checksums by
 * `published` and `arrived`. */
#ifndef PEN_CONTROL_H
#define PEN_CONTROL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/futex_counter.h"
#include "runtime/plan/plan.h"

/* How many steps' boards are kept: where no WAIT_NORM parts the steps, a rank may run so far ahead
 * of the rank that logs. */
enum { PEN_STEP_STATS_DEPTH = 4 };

enum { PEN_CHECKSUM_BYTES = 32, PEN_HOST_BYTES = 64, PEN_DRAWN = 2 };

/* In rows_wait_for: for rows of that rank, whatever they send. */
#define PEN_WAITS_FOR_ACTIONS (1u << 31)

/* What a rank is about. Only within steps does the parent watch for progress: a slow disk is no
 * stall. A rank on a device that connects to the others, which reads nothing, may take
 * PEN_BOOTSTRAP_TIMEOUTS times as long. */
enum pen_phase {
  PEN_PHASE_START,
  PEN_PHASE_CONNECT,
  PEN_PHASE_STEPS,
  PEN_PHASE_SAVE,
  PEN_PHASE_END
};
enum { PEN_BOOTSTRAP_TIMEOUTS = 10 };

/* What it is about as it connects; none: not known. */
enum pen_bootstrap_stage {
  PEN_CONNECT_NONE,
#define PEN_BOOTSTRAP_STAGE(what, text) PEN_CONNECT_##what,
#include "runtime/comm/bootstrap.def"
#undef PEN_BOOTSTRAP_STAGE
};

/* The same with which turn of it this is, and with which channel of the profile, or PEN_NONE: who
 * has less is behind. */
static inline uint64_t pen_bootstrap_stage_set(enum pen_bootstrap_stage what, uint32_t turn,
                                               uint32_t channel) {
  return (uint64_t)what << 56 | (uint64_t)turn << 32 | channel;
}

/* What a rank starts from, where several commands start the ranks: see start.h. */
enum { PEN_FINGERPRINT_MAX = 13 };
struct pen_start {
  uint64_t step;                        /* of the checkpoint; 0: none */
  uint8_t checkpoint[PEN_DIGEST_BYTES]; /* of its tensors' checksums */
  uint64_t said[PEN_FINGERPRINT_MAX];   /* by options */
};

/* What a rank tells of itself, for the lost line. Written by the rank alone, relaxed; that it waits
 * no more, when it has left, by its parent. */
struct pen_rank_state {
  _Alignas(PEN_FLAG_BYTES) _Atomic uint64_t finished; /* actions done since the first step began */
  _Atomic uint64_t left; /* on a device: of what it has begun, actions from which all has left */
  _Atomic uint64_t step_began;    /* what both were when the step began */
  _Atomic uint32_t profile;       /* which of the plan's the step runs */
  _Atomic uint32_t waits_for;     /* rank + 1 while it waits, else 0 */
  _Atomic uint64_t awaits;        /* while it waits on a flag: pen_awaits(), else 0 */
  _Atomic uint32_t rows_wait_for; /* on a device, while it waits: whom its rows wait for, apart from
                                     what they send */
  _Atomic uint32_t phase;         /* enum pen_phase */
  _Atomic uint64_t connecting;    /* on a device, while it connects: pen_bootstrap_stage_set() */
  _Atomic uint32_t on_device; /* 1 while its host waits for its device, or gives it calls, else 0 */
  _Atomic uint32_t
      tellings; /* on a device: while its host does nothing but tell, how often it has; else 0 */
  _Atomic uint32_t drawn[PEN_DRAWN]; /* generate: tokens that its last steps drew, by turns; guarded
                                        by `arrived` */
  int32_t process; /* its pid, and the host it is on: set when the process starts */
  char host[PEN_HOST_BYTES];
  struct pen_flag published;        /* steps whose board entries stand */
  struct pen_flag arrived;          /* barriers entered */
  struct pen_flag exchanged;        /* rows of the exchange between replicas that have ended */
  uint8_t digest[PEN_DIGEST_BYTES]; /* the plan's, valid after the first barrier */
  struct pen_start start;           /* likewise */
  unsigned char memory_name[PEN_SHARED_NAME_BYTES]; /* transport ipc: of its arena, likewise */
};

/* What rank 0 has told of the last step, for train --watch. Written by it alone. */
struct pen_progress {
  _Atomic uint64_t step; /* optimizer steps, from 1 */
  _Atomic double loss, norm, learning_rate, tokens_per_second, left_s;
};

/* The run's few words. */
struct pen_control {
  _Alignas(PEN_FLAG_BYTES) _Atomic uint32_t abort_status; /* not 0: every rank leaves with it */
  _Atomic uint32_t stop_requested;                        /* a signal asked for the end */
  _Atomic uint64_t last_step; /* steps are counted from 0 in the run; UINT64_MAX: not known yet */
  _Atomic uint64_t
      last_evaluation_step; /* of the evaluation at hand, by the count of all steps of the run */
  _Atomic uint32_t saving;  /* a checkpoint is half-written */
  _Atomic uint64_t
      saved_step; /* optimizer steps in the run's last checkpoint; 0: it has saved none */
  _Atomic uint32_t save_status; /* why the checkpoint at hand cannot be: an exit status, or 0 */
  struct pen_flag decided;      /* steps of which rank 0 has said whether they are the last */
  uint64_t spin_ns;             /* how long a waiting rank spins before it sleeps */
  uint64_t start_ns;            /* zero of the trace's clock */
  struct pen_progress told;
  unsigned char nccl_id[128]; /* transport nccl: rank 0's, valid after the first barrier */
  struct pen_flag begun;      /* steps, evaluation's too, that rank 0 has begun */
  struct pen_flag logged;     /* steps that rank 0 has logged: their boards are free */
  double loss_sum; /* eval's and score's result, for the parent: valid when all have left */
  uint64_t target_count, step_count;
};

/* A process's view of it. */
struct pen_shared {
  int descriptor;
  unsigned char *memory;
  size_t bytes;
  struct pen_control *control;
  struct pen_rank_state *ranks; /* [process_count] */
  struct pen_rank_state
      *writers; /* [process_count]: of the threads that write snapshots: their barriers */
  struct pen_flag *arrivals; /* [replica][channel_stride]: messages that stand in their homes */
  struct pen_flag *credits;  /* the same: homes given free */
  uint32_t channel_count, channel_stride; /* of all replicas; of one */
  double *board;         /* [PEN_STEP_STATS_DEPTH][replica][weight_count + loss_count] */
  size_t board_count;    /* entries of one step */
  uint8_t *checksums;    /* [weight_count][3][PEN_CHECKSUM_BYTES], for checkpoints */
  size_t *window_offset; /* [process_count], into memory; page aligned */
  uint32_t process_count;
};

/* The row of its step that a rank does next. */
static inline uint64_t pen_action_index(const struct pen_rank_state *state) {
  return atomic_load(&state->finished) - atomic_load(&state->step_began);
}

/* Which flag a rank waits on until it stands at `count`: never 0, where the control stands. */
static inline uint64_t pen_awaits(const struct pen_shared *shared, const struct pen_flag *flag,
                                  uint32_t count) {
  const size_t offset = (size_t)((const unsigned char *)flag - shared->memory);
  return (uint64_t)(offset / PEN_FLAG_BYTES) << 32 | count;
}

/* Whether it has come: who says then that he waits is about to go on, or has stalled. */
static inline bool pen_has_come(const struct pen_shared *shared,
                                const struct pen_rank_state *state) {
  const uint64_t awaits = atomic_load_explicit(&state->awaits, memory_order_relaxed);
  const void *flag = shared->memory + (size_t)(awaits >> 32) * PEN_FLAG_BYTES;
  return awaits != 0 && pen_flag_reached(flag, (uint32_t)awaits);
}

/* How much of a rank's arena, from its start, others may write or read, in whole pages: see
 * shared_bytes in plan.h. */
size_t pen_shared_bytes(const struct pen_plan *plan, uint32_t rank);

/* Makes the memory for all profiles' channels and all ranks' windows and maps it; pages come when
 * touched. Allocates. */
void pen_shared_open(struct pen_shared *shared, const struct pen_plan *plan);

/* The same memory as one profile of the plan sees it: its own channels alone. */
struct pen_shared pen_shared_of(const struct pen_shared *shared, const struct pen_plan *plan,
                                const struct pen_profile *profile);
void pen_shared_close(struct pen_shared *shared);

/* Sets the status that all ranks are to leave with, once; false when another was first. Wakes
 * whoever sleeps. May be called from any process. */
bool pen_shared_abort(const struct pen_shared *shared, uint32_t status);

#endif
