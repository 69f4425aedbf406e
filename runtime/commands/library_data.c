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
    const bool is_tensor = weight->split == 0 && pen_is_of_model(weight);
    if (is_tensor && to != NULL) {
      to[count] = (struct pen_mailbox_weight){.weight = i, .elements = pen_tensor_elements(weight)};
      const uint64_t *shape = pen_file_shape(weight, &to[count].dim_count);
      memcpy(to[count].dim, shape, to[count].dim_count * sizeof *shape);
      snprintf(to[count].name, sizeof to[count].name, "%s", weight->tensor);
    }
    count += is_tensor;
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

/* ---- scores ---- */

/* By which profile there are scores; null: the model has none. */
static const struct pen_profile *scored;

static void opened_scoring(const struct pen_run *run, struct pen_vm *vm) {
  if (vm->profile == scored && pen_last_stage_rank(run->plan, scored) == vm->rank) {
    pen_score_rows_hook(vm);
  }
}

/* All hosts get what the last stage has found. */
static bool stepped_scoring(const struct pen_run *run, struct pen_vm *vm) {
  struct pen_mailbox *mailbox = run->options->mailbox;
  const unsigned char *found = (const unsigned char *)pen_score_rows_found(vm);
  const uint64_t offset = (uint64_t)(found - run->library->all);
  pen_score_rows_fetch(vm);
  if (vm->endpoint->global == run->local.first) {
    mailbox->scored_offset = offset;
  }
  return pen_endpoint_give_all(vm->endpoint, offset, mailbox->score_count * sizeof(double),
                               pen_last_stage_rank(run->plan, scored) == vm->rank);
}

static bool op_reads(const struct pen_op *op, uint32_t input) {
  enum { INPUT_DIM = 1 }; /* of TOKENS, TARGETS and INPUT in kernels/ops.def, from 1 */
  return (op->kind == PEN_OP_TOKENS || op->kind == PEN_OP_TARGETS || op->kind == PEN_OP_INPUT) &&
         op->dim[INPUT_DIM] == (int64_t)input + 1;
}

static bool profile_reads(const struct pen_plan *plan, const struct pen_profile *profile,
                          uint32_t input) {
  bool reads = false;
  for (uint32_t r = 0; r < plan->rank_count && !reads; r++) {
    const struct pen_rank_program *program = &profile->ranks[r];
    for (uint32_t i = 0; i < program->op_count && !reads; i++) {
      reads = op_reads(&program->ops[i], input);
    }
  }
  return reads;
}

/* The input with a target of each token; null: there is none. */
static const struct pen_mailbox_input *text_targets(const struct pen_mailbox *mailbox,
                                                    uint64_t sequence) {
  for (uint32_t i = 0; i < mailbox->input_count; i++) {
    if (mailbox->inputs[i].may_ignore && mailbox->inputs[i].elements == sequence) {
      return &mailbox->inputs[i];
    }
  }
  return NULL;
}

/* Scores are found by the evaluation, if its loss is the cross-entropy of texts; else by a profile
 * of their own, which reads what the logits need, and targets. */
static void describe_scoring(struct pen_run *run) {
  const struct pen_plan *plan = run->plan;
  struct pen_mailbox *mailbox = run->options->mailbox;
  const struct pen_buckets buckets = pen_buckets_of(plan, pen_scored_kind(plan));
  const struct pen_profile *longest = buckets.profile[buckets.count - 1];
  const struct pen_mailbox_input *targets = text_targets(mailbox, longest->sequence);
  const bool own = longest->kind == PEN_SCORE;
  if (!pen_library_reads_texts(plan) || targets == NULL) {
    return;
  }
  scored = longest;
  if (own) {
    run->scoring.buckets = (struct pen_buckets){.profile = {scored}, .count = 1};
  }
  mailbox->score_count = pen_data_step_windows(plan, scored) * scored->sequence;
  mailbox->samples[PEN_SAMPLES_OF_SCORES] = pen_data_step_windows(plan, scored);
  for (uint32_t i = 0; i < mailbox->input_count; i++) {
    mailbox->inputs[i].scored =
        !own || &mailbox->inputs[i] == targets || profile_reads(plan, scored, i);
  }
}

/* When the mailbox is whole. */
static void open_scoring(struct pen_run *run) {
  const struct pen_mailbox *mailbox = run->options->mailbox;
  struct pen_data *data = &run->scoring.data;
  static const struct pen_command_hooks hooks = {.opened = opened_scoring,
                                                 .stepped = stepped_scoring};
  if (scored != NULL) {
    pen_score_rows_open(run->plan, scored, run->library->all + mailbox->scores_offset);
  }
  if (run->scoring.buckets.count > 0) {
    run->scoring.hooks = &hooks;
    pen_data_open_given(data, run->plan, scored->sequence, run->options->seed, run->library->named,
                        mailbox->input_count, mailbox->samples[PEN_SAMPLES_OF_SCORES]);
    data->share_count = 0;
    data->named_targets = data->named + (text_targets(mailbox, scored->sequence) - mailbox->inputs);
  }
}

/* ---- what steps give back ---- */

static bool stepped(const struct pen_run *run, struct pen_vm *vm) {
  pen_library_outputs_take(run, vm);
  return true;
}

static bool evaluated(const struct pen_run *run, struct pen_vm *vm) {
  pen_library_outputs_take(run, vm);
  return run->options->mailbox->request != PEN_REQUEST_SCORE || stepped_scoring(run, vm);
}

static const struct pen_command_hooks step_hooks = {.stepped = stepped};
static const struct pen_command_hooks evaluation_hooks = {.opened = opened_scoring,
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
  if (run->local.count == 0) {
    pen_fail(PEN_EXIT_USAGE, "a library needs ranks on its host, and this one is a spare");
  }
  mailbox->rank_count = run->local.count;
  mailbox->samples[PEN_SAMPLES_OF_STEP] = windows[0];
  mailbox->samples[PEN_SAMPLES_OF_EVALUATION] = windows[1];
  mailbox->weights_offset = pen_named_inputs_describe(plan, sequence, mailbox);
  describe_scoring(run);
  mailbox->weight_count = describe_weights(plan, NULL);
  mailbox->values_offset = pen_mailbox_aligned(
      mailbox->weights_offset + mailbox->weight_count * sizeof(struct pen_mailbox_weight));
  mailbox->scores_offset =
      pen_mailbox_aligned(mailbox->values_offset + largest_weight(plan) * sizeof(float));
  const uint64_t texts_end = pen_library_generation_describe(
      run, mailbox->scores_offset + (scored != NULL ? pen_score_rows_bytes(plan, scored) : 0));
  unsigned char *all =
      pen_mailbox_lengthen(mailbox, pen_library_outputs_place(run, most, texts_end));
  describe_weights(plan, (struct pen_mailbox_weight *)(all + mailbox->weights_offset));
  static struct pen_run_library library;
  library = (struct pen_run_library){all, pen_named_inputs_given(plan, mailbox, all)};
  run->library = &library;
  pen_library_outputs_open(run, most);
  run->hooks = mailbox->output_count > 0 ? &step_hooks : NULL;
  evaluation->hooks = &evaluation_hooks;
  open_scoring(run);
  if (pen_library_reads_texts(plan)) {
    pen_library_generation_open(run);
  }
  pen_data_open_given(&run->data, plan, sequence, seed, library.named, mailbox->input_count,
                      mailbox->samples[PEN_SAMPLES_OF_STEP]);
  pen_data_open_given(&evaluation->data, plan, sequence, seed, library.named, mailbox->input_count,
                      mailbox->samples[PEN_SAMPLES_OF_EVALUATION]);
}
