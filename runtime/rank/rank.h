/* rank.h: what the process of one rank does, from fork to exit.
 *
 * In: struct pen_run, which the parent made before it forked. Out: an exit status, and what the run
 * writes: log, trace, checkpoints, texts. A rank opens its memory, device and transport
 * and compares options with the other ranks (rank_open.h), seals, runs steps, and
 * between steps saves (saving.h, save.h, snapshot.h), evaluates (evaluate.h), samples (samples.h)
 * and serves the library (requests.h). To follow a microbatch from the token file to the weights,
 * read on from run_step() in rank_main.c into the executor's step (runtime/exec/host_executor.c),
 * the handlers (runtime/exec/handlers.c) and the data ops (runtime/data/step_inputs.c). */
#ifndef PEN_RANK_H
#define PEN_RANK_H

#include <stdint.h>

#include "runtime/comm/endpoint.h"
#include "runtime/device/device.h"
#include "runtime/exec/audit.h"
#include "runtime/exec/exec.h"
#include "runtime/observe/step_log.h"
#include "runtime/rank/run.h"

/* The state of a rank's process. */
struct pen_rank {
  const struct pen_run *run;
  struct pen_endpoint endpoint;
  struct pen_stream_state *stream_state;      /* null on the CPU */
  struct pen_vm vms[3 * PEN_BUCKETS_MAX + 1]; /* one a bucket; then those of evaluation, samples and
                                                 scoring */
  uint32_t vm_count;
  struct pen_audit audit; /* --audit */
  const char *kernels;    /* a line that names the chosen ones */
  struct pen_vm *vm;      /* of the step that runs */
  uint64_t cursor;        /* the first window of the next step */
  uint64_t run_step;      /* steps of the run so far, those between steps of training, too */
  uint32_t requests;      /* of the library, that were served (requests.h) */
  struct pen_log log, evaluation_log;
};

/* Runs the rank; never returns. */
_Noreturn void pen_rank_main(const struct pen_run *run, uint32_t global);

#endif
