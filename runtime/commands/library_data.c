/* library_data.c: fills the mailbox of the library (see library_data.h). */
#include "runtime/commands/library_data.h"

#include <stdio.h>

#include "runtime/base/check.h"
#include "runtime/base/mailbox.h"
#include "runtime/commands/library_generation.h"
#include "runtime/commands/library_outputs.h"
#include "runtime/commands/score_rows.h"
#include "runtime/data/windows.h"
#include "runtime/exec/op_hook.h"

/* Weights as files have them: the splits of a tensor are one. */
static uint32_t describe_weights(const struct pen_plan *plan, struct pen_mailbox_weight *to) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    const struct pen_weight *weight = &plan->weights[i];
    if (weight->split == 0 && to != NULL) {
      to[count] = (struct pen_mailbox_weight){.weight = i,
                                              .dim_count = weight->dim_count,
                                              .dim = {weight->tensor_dim[0], weight->tensor_dim[1]},
                                              .elements = pen_tensor_elements(weight)};
      snprintf(to[count].name, sizeof to[count].name, "%s", weight->tensor);
    }
    count += weight->split == 0;
  }
  return count;
}

static uint64_t largest_weight(const struct pen_plan *plan) {
  uint64_t largest = 0;
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    const uint64_t elements = pen_tensor_elements(&plan->weights[i]);
    largest = elements > largest ? elements : largest;
  }
  return largest;
}

/* ---- what steps give back ---- */

static bool scores; /* an evaluation has them */

static bool stepped(const struct pen_run *run, struct pen_vm *vm) {
  pen_library_outputs_take(run, vm);
  return true;
}

static void opened_evaluation(const struct pen_run *run, struct pen_vm *vm) {
  if (scores && pen_last_stage_rank(run->plan, vm->profile) == vm->rank) {
    pen_score_rows_hook(vm);
  }
}

static bool evaluated(const struct pen_run *run, struct pen_vm *vm) {
  pen_library_outputs_take(run, vm);
  if (scores) {
    const unsigned char *found = (const unsigned char *)pen_score_rows_found(vm);
    pen_score_rows_fetch(vm);
    if (vm->endpoint->global == run->local.first) {
      run->options->mailbox->scored_offset = (uint64_t)(found - run->library->all);
    }
  }
  return true;
}

static const struct pen_command_hooks step_hooks = {.stepped = stepped};
static const struct pen_command_hooks evaluation_hooks = {.opened = opened_evaluation,
                                                          .stepped = evaluated};

void pen_library_data_open(struct pen_run *run) {
  const struct pen_plan *plan = run->plan;
  const uint64_t sequence = run->profile->sequence, seed = run->options->seed;
  struct pen_mailbox *mailbox = run->options->mailbox;
  struct pen_run_evaluation *evaluation = &run->evaluation;
  evaluation->buckets = pen_buckets_of(plan, PEN_EVAL);
  evaluation->steps = 1;
  const struct pen_profile *evaluated_profile =
      evaluation->buckets.profile[evaluation->buckets.count - 1]; /* the longest */
  const uint64_t windows[] = {pen_data_step_windows(plan, run->profile),
                              pen_data_step_windows(plan, evaluated_profile)};
  const uint64_t most = windows[0] > windows[1] ? windows[0] : windows[1];
  const bool reads = pen_library_reads_texts(plan);
  scores = reads && plan->host_count < 2 && pen_scored_kind(plan) == PEN_EVAL;
  if (run->local.count == 0) {
    pen_fail(PEN_EXIT_USAGE, "a library needs ranks on its host, and this one is a spare");
  }
  mailbox->rank_count = run->local.count;
  mailbox->host_count = plan->host_count;
  mailbox->samples[PEN_SAMPLES_OF_STEP] = windows[0];
  mailbox->samples[PEN_SAMPLES_OF_EVALUATION] = windows[1];
  mailbox->weights_offset = pen_named_inputs_describe(plan, sequence, mailbox);
  mailbox->weight_count = describe_weights(plan, NULL);
  mailbox->values_offset = pen_mailbox_aligned(
      mailbox->weights_offset + mailbox->weight_count * sizeof(struct pen_mailbox_weight));
  mailbox->scores_offset =
      pen_mailbox_aligned(mailbox->values_offset + largest_weight(plan) * sizeof(float));
  const uint64_t texts_end = pen_library_generation_describe(
      run, mailbox->scores_offset + (scores ? pen_score_rows_bytes(plan, evaluated_profile) : 0));
  unsigned char *all =
      pen_mailbox_lengthen(mailbox, pen_library_outputs_place(run, most, texts_end));
  describe_weights(plan, (struct pen_mailbox_weight *)(all + mailbox->weights_offset));
  static struct pen_run_library library;
  library = (struct pen_run_library){all, pen_named_inputs_given(plan, mailbox, all)};
  run->library = &library;
  pen_library_outputs_open(run, most);
  run->hooks = mailbox->output_count > 0 ? &step_hooks : NULL;
  evaluation->hooks = &evaluation_hooks;
  if (scores) {
    mailbox->score_count =
        mailbox->samples[PEN_SAMPLES_OF_EVALUATION] * evaluated_profile->sequence;
    pen_score_rows_open(plan, evaluated_profile, all + mailbox->scores_offset);
  }
  if (reads) {
    pen_library_generation_open(run);
  }
  pen_data_open_given(&run->data, plan, sequence, seed, library.named, mailbox->input_count,
                      mailbox->samples[PEN_SAMPLES_OF_STEP]);
  pen_data_open_given(&evaluation->data, plan, sequence, seed, library.named, mailbox->input_count,
                      mailbox->samples[PEN_SAMPLES_OF_EVALUATION]);
}
