/* run.h: what all ranks of a run know. A command fills it, supervise/ starts the ranks, and
 * rank_main.c is what each does. */
#ifndef PEN_RUN_H
#define PEN_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/base/files.h"
#include "runtime/base/options.h"
#include "runtime/comm/shared_control.h"
#include "runtime/control/local_ranks.h"
#include "runtime/control/membership.h"
#include "runtime/control/handshake.h"
#include "runtime/data/bucket.h"
#include "runtime/data/step_inputs.h"
#include "runtime/observe/log_tail.h"
#include "runtime/observe/restart_event.h"
#include "runtime/plan/plan.h"
#include "runtime/storage/kept_files.h"
#include "runtime/storage/memory_checkpoint.h"
#include "runtime/storage/checkpoint_state.h"

struct pen_command_hooks; /* op_hook.h */

/* Evaluation between steps of training. */
struct pen_run_evaluation {
  struct pen_buckets buckets; /* none: the run does not evaluate */
  struct pen_data data;
  uint64_t steps; /* of one evaluation */
  /* Of the last of the buckets: `opened` and `stepped`; null: none. */
  const struct pen_command_hooks *hooks;
};

/* Samples between steps of training. */
struct pen_run_sampling {
  struct pen_buckets buckets; /* none: the run writes no samples */
  struct pen_data data;       /* without tokens: hooks read the samples instead */
  /* `choose` gives PEN_NONE when all samples have ended, `left`, on rank 0, writes them. */
  const struct pen_command_hooks *hooks;
};

/* With a process that uses the library. */
struct pen_run_library {
  unsigned char *all;            /* the mailbox, whole */
  struct pen_named_input *named; /* what `data` and that of evaluation have, of the caller's */
};

/* From where a run has started. */
struct pen_run_begin {
  uint64_t first_step, cursor, steps;
  struct pen_update_counts updates;
  const char *checkpoint_path;
};

/* When a fallback was taken, until its ranks start: what this command had for the plan before. */
struct pen_run_old {
  const struct pen_plan *plan; /* null: the plan is the same */
  struct pen_rank_set ranks;
  struct pen_memory_checkpoints memory, mirrored;
};

/* What all ranks of a run know. Made by the parent, inherited by the ranks, constant from then on
 * (except for shared memory). */
struct pen_run {
  const struct pen_plan *plan;   /* that the ranks run: the binary's, or one of its fallbacks */
  const struct pen_plan *placed; /* that `local` and `memory` are of */
  struct pen_buckets buckets;    /* what steps may run */
  const struct pen_profile
      *profile; /* the last of them: that of the longest sequence, unless another is forced */
  const struct pen_options *options;
  struct pen_rank_set local; /* the ranks that this command starts */
  struct pen_secret secret;  /* with several hosts */
  struct pen_membership membership;
  struct pen_shared shared;
  struct pen_results results; /* of score: becomes shared.results */
  uint32_t prompts_checksum;  /* of generate and of samples: of all prompts' tokens */
  struct pen_data data;
  const struct pen_run_library *library; /* null: no process uses one */
  struct pen_run_evaluation evaluation;
  struct pen_run_evaluation scoring; /* library: scores, where the model's loss gives none */
  struct pen_run_sampling sampling;
  struct pen_folder_id checkpoints;      /* that this command has locked */
  const char *checkpoint_path;           /* folder to load from, or null */
  const char *weights_path;              /* file to load weights from, or null */
  bool shapes_alone;                     /* the weights are compared by: no config.json */
  struct pen_kept_files kept;            /* of the folder that the run began from */
  bool announces;                        /* rank 0 says what it runs on */
  uint64_t first_step;                   /* optimizer steps before this run, or this restart */
  uint64_t steps;                        /* of this run, from there */
  uint64_t cursor;                       /* of its first step */
  struct pen_update_counts updates;      /* before it */
  int log_descriptor, trace_descriptor;  /* or -1 */
  const struct pen_command_hooks *hooks; /* or null */
  struct pen_trace *measured;            /* of the command measure: a ring that the parent reads */
  bool alone;       /* each process has its own, and exchanges nothing with other tensor ranks */
  uint64_t zero_ns; /* of the trace's clock: when the process began */
  pid_t parent;
  bool saves_only;            /* the ranks make no step: they save the state in memory */
  struct pen_run_begin begin; /* before the first restart */
  struct pen_restart restart;
  uint64_t sent_bytes;                    /* before the last restart, by all ranks */
  struct pen_log_tail logged;             /* before a restart */
  struct pen_memory_checkpoints memory;   /* --recover-every: of this command's ranks */
  struct pen_memory_checkpoints mirrored; /* with several hosts: of those of the host before */
  struct pen_run_old old;
};

#endif
