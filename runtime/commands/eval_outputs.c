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
#include "runtime/commands/outputs.h"
#include "runtime/data/windows.h"
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

/* Bytes after the header: of an output the samples of all steps follow those of the output before.
 */
static uint64_t first_byte(const struct pen_plan *plan, uint32_t n) {
  uint64_t bytes = 0;
  for (uint32_t before = 0; before < n; before++) {
    bytes += file.samples * pen_output_sample_bytes(plan, &plan->outputs[before]);
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
    used += (size_t)snprintf(header + used, bytes - used,
                             "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64 ",%u,%" PRIu64
                             "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
                             n == 0 ? "" : ",", output->name,
                             output->dtype == PEN_BF16 ? "BF16" : "F32", file.samples, output->rows,
                             output->width, first_byte(plan, n), first_byte(plan, n + 1));
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

/* ---- in the ranks ---- */

static void write_bytes(const struct pen_vm *vm, uint32_t output, uint64_t at, const void *from,
                        uint64_t bytes) {
  const struct pen_plan *plan = vm->plan;
  const uint64_t first = file.header_bytes + first_byte(plan, output) +
                         vm->data.cursor * pen_output_sample_bytes(plan, &plan->outputs[output]);
  if (pen_file_write_at(file.descriptor, from, bytes, first + at) != 0) {
    fail_write();
  }
}

static bool stepped(const struct pen_run *run, struct pen_vm *vm) {
  const bool has_last = pen_last_stage_rank(run->plan, vm->profile) == vm->rank;
  pen_outputs_give(vm, write_bytes);
  if (has_last && vm->replica == 0) {
    *file.written = vm->data.cursor + pen_data_step_windows(run->plan, vm->profile);
  }
  return true;
}

static const struct pen_command_hooks hooks = {.stepped = stepped};

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
  const uint32_t writers = pen_output_process_count(run);
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
