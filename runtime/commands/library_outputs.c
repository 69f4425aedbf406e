/* library_outputs.c: outputs in the mailbox of the library (see library_outputs.h). */
#include "runtime/commands/library_outputs.h"

#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/base/mailbox.h"
#include "runtime/base/stored_dtypes.h"
#include "runtime/commands/outputs.h"
#include "runtime/data/windows.h"

static unsigned char *all; /* the mailbox, whole */

static struct pen_mailbox_output *outputs_of(const struct pen_mailbox *mailbox) {
  return (struct pen_mailbox_output *)(all + mailbox->outputs_offset);
}

uint64_t pen_library_outputs_place(const struct pen_run *run, uint64_t samples, uint64_t begin) {
  const struct pen_plan *plan = run->plan;
  struct pen_mailbox *mailbox = run->options->mailbox;
  const bool here = pen_output_process_count(run) == pen_group_size(plan, PEN_DATA);
  mailbox->output_count = here ? plan->output_count : 0;
  mailbox->outputs_offset = pen_mailbox_aligned(begin);
  uint64_t end =
      mailbox->outputs_offset + mailbox->output_count * sizeof(struct pen_mailbox_output);
  for (uint32_t n = 0; n < mailbox->output_count; n++) {
    end = pen_mailbox_aligned(end) + samples * pen_output_sample_bytes(plan, &plan->outputs[n]);
  }
  return end;
}

void pen_library_outputs_open(const struct pen_run *run, uint64_t samples) {
  const struct pen_plan *plan = run->plan;
  const struct pen_mailbox *mailbox = run->options->mailbox;
  all = run->library->all;
  uint64_t end =
      mailbox->outputs_offset + mailbox->output_count * sizeof(struct pen_mailbox_output);
  for (uint32_t n = 0; n < mailbox->output_count; n++) {
    const struct pen_output *output = &plan->outputs[n];
    struct pen_mailbox_output *to = &outputs_of(mailbox)[n];
    *to = (struct pen_mailbox_output){
        .stored = output->dtype == PEN_BF16 ? PEN_STORED_BF16 : PEN_STORED_F32,
        .dim = {0, output->rows, output->width},
        .offset = pen_mailbox_aligned(end)};
    snprintf(to->name, sizeof to->name, "%s", output->name);
    end = to->offset + samples * pen_output_sample_bytes(plan, output);
  }
}

static void take(const struct pen_vm *vm, uint32_t output, uint64_t at, const void *from,
                 uint64_t bytes) {
  const struct pen_mailbox *mailbox = (const struct pen_mailbox *)all;
  (void)vm;
  memcpy(all + outputs_of(mailbox)[output].offset + at, from, bytes);
}

void pen_library_outputs_take(const struct pen_run *run, const struct pen_vm *vm) {
  const struct pen_mailbox *mailbox = run->options->mailbox;
  const bool first = vm->endpoint->global == run->local.first;
  for (uint32_t n = 0; n < mailbox->output_count && first; n++) {
    outputs_of(mailbox)[n].dim[0] = pen_data_step_windows(run->plan, vm->profile);
  }
  if (mailbox->output_count > 0) {
    pen_outputs_give(vm, take);
  }
}
