/* eval_outputs.c: the outputs of an evaluation (see eval_outputs.h). The ranks of the last stage
 * write those of their replica after each step. */
#include "runtime/commands/eval_outputs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/data/windows.h"
#include "runtime/device/stream_state.h"
#include "runtime/exec/op_hook.h"
#include "runtime/storage/safetensors.h"

enum { ROW_TEXT_BYTES = 160 }; /* of an output in the header, beside its name */

static struct {
  const char *path;
  char unfinished[PATH_MAX]; /* FILE.tmp */
  int descriptor;            /* -1: another host writes it, or nobody */
  uint64_t header_bytes, samples;
  uint64_t *written; /* samples; the ranks and their parent share it */
} file = {.descriptor = -1};

static _Noreturn void fail_write(void) {
  const int cause = errno;
  unlink(file.unfinished);
  pen_fail(PEN_EXIT_CANNOT_WRITE, "--outputs %s: %s", file.path, strerror(cause));
}

static uint64_t sample_bytes(const struct pen_plan *plan, const struct pen_output *output) {
  return output->bytes / plan->microbatch;
}

/* Bytes after the header: of an output the samples of all steps follow those of the output before.
 */
static uint64_t first_byte(const struct pen_plan *plan, uint32_t n) {
  uint64_t bytes = 0;
  for (uint32_t before = 0; before < n; before++) {
    bytes += file.samples * sample_bytes(plan, &plan->outputs[before]);
  }
  return bytes;
}

/* The whole file is reserved, so that a full disk is noticed before anything is computed. */
static void start(const struct pen_plan *plan) {
  size_t bytes = PEN_ALIGNMENT_BYTES, used = 1;
  for (uint32_t n = 0; n < plan->output_count; n++) {
    bytes += ROW_TEXT_BYTES + strlen(plan->outputs[n].name);
  }
  char *header = pen_allocate(bytes, 1, "the header of %u outputs", plan->output_count);
  header[0] = '{';
  for (uint32_t n = 0; n < plan->output_count; n++) {
    const struct pen_output *output = &plan->outputs[n];
    used += (size_t)snprintf(
        header + used, bytes - used,
        "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64 ",%u,%" PRIu64
        "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
        n == 0 ? "" : ",", output->name, output->dtype == PEN_BF16 ? "BF16" : "F32", file.samples,
        plan->sequence, output->width, first_byte(plan, n), first_byte(plan, n + 1));
  }
  snprintf(header + used, bytes - used, "}");
  file.header_bytes = pen_aligned(sizeof(uint64_t) + used + 1);
  if (pen_safetensors_start(file.descriptor, header, file.header_bytes) != 0 ||
      pen_file_reserve(file.descriptor, file.header_bytes + first_byte(plan, plan->output_count)) !=
          0) {
    fail_write();
  }
  free(header);
}

/* How many of the replicas' processes of the last stage this host has. */
static uint32_t count_writers(const struct pen_run *run) {
  const uint32_t last = pen_last_stage_process(run->plan, run->profile);
  uint32_t count = 0;
  for (uint32_t d = 0; d < pen_group_size(run->plan, PEN_DATA); d++) {
    count += pen_rank_set_has(&run->local, pen_group_process(run->plan, last, PEN_DATA, d));
  }
  return count;
}

/* ---- in the ranks ---- */

static void opened(const struct pen_run *run, struct pen_vm *vm) {
  (void)run;
  (void)vm;
}

/* Writes what the arena has from `first` on. */
static void write_arena(const struct pen_vm *vm, uint64_t first, uint64_t count, uint64_t to) {
  for (uint64_t at = 0, bytes = count; at < count; at += bytes) {
    if (vm->stream_state != NULL) {
      bytes = count - at < PEN_STAGING_BYTES ? count - at : PEN_STAGING_BYTES;
    }
    const void *from = vm->stream_state != NULL
                           ? pen_stream_read(vm->stream_state, first + at, bytes)
                           : vm->arena + first + at;
    if (pen_file_write_at(file.descriptor, from, bytes, to + at) != 0) {
      fail_write();
    }
  }
}

static bool stepped(const struct pen_run *run, struct pen_vm *vm) {
  const struct pen_plan *plan = run->plan;
  const uint32_t microbatches = vm->profile->microbatch_count;
  if (pen_last_stage_rank(plan, vm->profile) != vm->rank) {
    return true;
  }
  for (uint32_t n = 0; n < plan->output_count; n++) {
    const struct pen_output *output = &plan->outputs[n];
    const uint64_t first = file.header_bytes + first_byte(plan, n);
    for (uint32_t m = 0; m < microbatches; m++) {
      const uint64_t sample =
          vm->data.cursor + ((uint64_t)vm->replica * microbatches + m) * plan->microbatch;
      write_arena(vm, output->offset + m * plan->output_stride, output->bytes,
                  first + sample * sample_bytes(plan, output));
    }
  }
  if (vm->replica == 0) {
    *file.written = vm->data.cursor + pen_data_step_windows(plan, vm->profile);
  }
  return true;
}

static void left(const struct pen_run *run, struct pen_vm *vm) {
  (void)run;
  (void)vm;
}

static const struct pen_command_hooks hooks = {.opened = opened, .stepped = stepped, .left = left};

/* ---- in the parent ---- */

void pen_eval_outputs_open(struct pen_run *run) {
  const char *path = run->options->outputs;
  struct stat present;
  if (path == NULL) {
    return;
  }
  if (run->plan->output_count == 0) {
    pen_fail(PEN_EXIT_USAGE,
             "--outputs %s: the plan of this binary keeps no outputs: model.outputs names none",
             path);
  }
  const uint32_t writers = count_writers(run);
  if (writers > 0 && writers < pen_group_size(run->plan, PEN_DATA)) {
    pen_fail(PEN_EXIT_USAGE, "--outputs %s: the replicas' last stages are on several hosts", path);
  }
  if (stat(path, &present) == 0 && !S_ISREG(present.st_mode)) {
    pen_fail(PEN_EXIT_USAGE, "--outputs %s: not a regular file", path);
  }
  run->hooks = &hooks;
  if (writers == 0) {
    return;
  }
  file.path = path;
  file.samples = run->steps * pen_data_step_windows(run->plan, run->profile);
  file.written =
      mmap(NULL, sizeof *file.written, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pen_check(file.written != MAP_FAILED, "no memory for a number");
  pen_files_report_size_limit();
  if (pen_path_suffix(file.unfinished, path, ".tmp") != 0 ||
      (file.descriptor =
           open(file.unfinished, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666)) < 0) {
    pen_fail(PEN_EXIT_CANNOT_CREATE, "--outputs %s: cannot create %s.tmp: %s", path, path,
             strerror(errno));
  }
  start(run->plan);
}

void pen_eval_outputs_close(const struct pen_run *run) {
  if (file.descriptor < 0) {
    return;
  }
  if (*file.written < file.samples) {
    unlink(file.unfinished);
    pen_warn("--outputs %s: not written, since the rest of %s was not read", file.path,
             run->data.path);
    return;
  }
  if (pen_file_sync_close(file.descriptor, 0) != 0 || rename(file.unfinished, file.path) != 0 ||
      pen_folder_sync_of(file.path) != 0) {
    fail_write();
  }
}
