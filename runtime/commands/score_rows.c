/* score_rows.c: a hook on the last stage's op CROSS_ENTROPY runs it row by row, which gives -ln p
 * of each token instead of the sum; of split weights, on CROSS_ENTROPY_COLUMNS of each split, of
 * which one has the target, on one of the tensor ranks. The losses of splits are exchanged after
 * the hook: a tensor rank that has ended a step finds what all have found. A device leaves what it
 * has found in host memory, from where it is taken after the step. */
#include "kernels/kernels.h"
#include "runtime/commands/score_rows.h"

#include "runtime/base/check.h"
#include "runtime/commands/logits.h"
#include "runtime/commands/score_logits.h"
#include "runtime/data/windows.h"
#include "runtime/exec/op_hook.h"
#include "runtime/storage/tensor_splits.h"

static struct {
  struct pen_op_hook hook;
  double *found;        /* -ln p of each target that counts, [2][windows of a step][sequence] */
  uint64_t found_count; /* of one step */
  size_t microbatch_rows;
  size_t row; /* of the microbatch, or of a split of it: the next call's first */
  struct {
    double *minus_log; /* [splits] each: 0 where the target is in another split */
    int32_t *target;
    unsigned char *logits;          /* with --logits: of a split after the other, its tokens each */
    size_t splits, split_tokens;    /* of this tensor rank; of the last split maybe fewer */
    size_t first_token, past_token; /* of this tensor rank */
  } fetched; /* [microbatches][microbatch_rows] pinned: where a device leaves a step's */
} step;

static uint64_t found_count(const struct pen_plan *plan, const struct pen_profile *profile) {
  return pen_data_step_windows(plan, profile) * profile->sequence;
}

uint64_t pen_score_rows_bytes(const struct pen_plan *plan, const struct pen_profile *profile) {
  uint64_t bytes;
  pen_check(!__builtin_mul_overflow(found_count(plan, profile), 2 * sizeof *step.found, &bytes) &&
                bytes <= SIZE_MAX,
            "too many tokens a step");
  return bytes;
}

void pen_score_rows_open(const struct pen_plan *plan, const struct pen_profile *profile,
                         void *results) {
  step.found_count = found_count(plan, profile);
  step.found = results;
}

double *pen_score_rows_found(const struct pen_vm *vm) {
  return step.found + (vm->run_step & 1) * step.found_count;
}

/* A microbatch's rows come in order, by one call or by several, those of a split before the next.
 */
static size_t next_row(size_t rows) {
  const size_t first = step.row;
  step.row = (first + rows) % step.microbatch_rows;
  return first;
}

/* CROSS_ENTROPY and CROSS_ENTROPY_COLUMNS: the operands that have an element for each row, with its
 * bytes, and the loss; the dim that is the first token. -1: none. */
struct loss_form {
  enum pen_op_kind kind;
  struct {
    int operand;
    size_t bytes;
  } by_row[3];
  int loss, first_token;
};

static const struct loss_form whole_loss = {PEN_OP_CROSS_ENTROPY,
                                            {{1, sizeof(int32_t)}, {-1, 0}, {-1, 0}},
                                            3,
                                            -1},
                              split_loss = {
                                  PEN_OP_CROSS_ENTROPY_COLUMNS,
                                  {{1, sizeof(int32_t)}, {3, sizeof(float)}, {4, sizeof(double)}},
                                  5,
                                  2};

static const struct loss_form *loss_form_of(const struct pen_plan *plan) {
  return pen_has_splits(plan) ? &split_loss : &whole_loss;
}

/* Whether the split with these tokens has the result of a row: one does, of a target that counts.
 */
static bool has_target(int32_t target, size_t first, size_t count) {
  return target != PEN_IGNORED_TARGET && (size_t)target >= first && (size_t)target - first < count;
}

/* ---- on a device ---- */

static size_t fetched_rows(const struct pen_vm *vm) {
  return vm->profile->microbatch_count * step.microbatch_rows;
}

/* After the loss, which writes that of each row, an f64, to its workspace (kernels/cuda). */
static void fetch_rows(const struct pen_call *call) {
  const struct pen_op_hook *hook = call->prepared;
  const struct pen_vm *vm = hook->context;
  const struct loss_form *form = loss_form_of(vm->plan);
  const size_t rows = (size_t)call->dim[0], tokens = (size_t)call->dim[1],
               first_token = form->first_token < 0 ? 0 : (size_t)call->dim[form->first_token],
               first = (size_t)vm->data.microbatch_index * step.microbatch_rows + next_row(rows),
               before = first_token - step.fetched.first_token,
               split = before / step.fetched.split_tokens;
  struct pen_call own = *call;
  own.prepared = hook->prepared;
  hook->kernel(&own);
  vm->device->copy_out(step.fetched.minus_log + split * fetched_rows(vm) + first, call->workspace,
                       rows * sizeof(double), call->stream);
  vm->device->copy_out(step.fetched.target + first, call->operand[1], rows * sizeof(int32_t),
                       call->stream);
  if (step.fetched.logits != NULL) {
    const size_t bytes = pen_dtype_bytes(vm->plan->dtype);
    vm->device->copy_out(step.fetched.logits + (fetched_rows(vm) * before + first * tokens) * bytes,
                         call->operand[0], rows * tokens * bytes, call->stream);
  }
}

/* The result of a row, where it is this tensor rank that has it, and its logits. */
static void take_row(const struct pen_vm *vm, size_t r, double *found) {
  const size_t count = fetched_rows(vm), past = step.fetched.past_token,
               bytes = pen_dtype_bytes(vm->plan->dtype);
  const int32_t target = step.fetched.target[r];
  double minus_log = 0.0;
  for (size_t p = 0; p < step.fetched.splits; p++) {
    const size_t before = p * step.fetched.split_tokens, first = step.fetched.first_token + before,
                 tokens = past - first < step.fetched.split_tokens ? past - first
                                                                   : step.fetched.split_tokens;
    minus_log += step.fetched.minus_log[p * count + r];
    if (step.fetched.logits != NULL) {
      pen_score_logits_add(vm, vm->replica * count + r,
                           step.fetched.logits + (count * before + r * tokens) * bytes, first,
                           tokens);
    }
  }
  if (has_target(target, step.fetched.first_token, past - step.fetched.first_token)) {
    found[r] = minus_log;
  }
}

void pen_score_rows_fetch(const struct pen_vm *vm) {
  if (step.fetched.target == NULL) {
    return; /* the CPU's row has done it, or another rank */
  }
  const size_t count = fetched_rows(vm);
  for (size_t r = 0; r < count; r++) {
    take_row(vm, r, pen_score_rows_found(vm) + vm->replica * count);
  }
}

static void open_fetched(const struct pen_vm *vm) {
  const size_t count = fetched_rows(vm);
  const uint32_t splits = pen_splits_of(vm->plan), tensor_rank = vm->endpoint->tensor_rank;
  step.fetched.splits = pen_local_split_count(vm->plan, splits);
  step.fetched.split_tokens = (vm->plan->vocab + splits - 1) / splits;
  step.fetched.first_token = pen_first_token(vm->plan, tensor_rank);
  step.fetched.past_token = pen_first_token(vm->plan, tensor_rank + 1);
  step.fetched.minus_log = vm->device->allocate_host(step.fetched.splits * count * sizeof(double));
  step.fetched.target = vm->device->allocate_host(count * sizeof(int32_t));
  pen_check(step.fetched.minus_log != NULL && step.fetched.target != NULL,
            "no pinned memory for the scores of %zu tokens", count);
  if (pen_score_logits_wanted()) {
    step.fetched.logits = vm->device->allocate_host(count * pen_logit_row_bytes(vm->plan));
    pen_check(step.fetched.logits != NULL, "no pinned memory for the logits of %zu tokens", count);
  }
}

/* ---- on the CPU ---- */

/* The loss of a row of the call, with the logits at `logits`. */
static double loss_of_row(const struct pen_call *call, const struct loss_form *form, size_t r,
                          void *logits) {
  const struct pen_op_hook *hook = call->prepared;
  double loss = 0.0;
  struct pen_call one = *call;
  one.operand[0] = logits;
  for (size_t i = 0; i < sizeof form->by_row / sizeof *form->by_row; i++) {
    const int k = form->by_row[i].operand;
    if (k >= 0) {
      one.operand[k] = (unsigned char *)call->operand[k] + r * form->by_row[i].bytes;
    }
  }
  one.operand[form->loss] = &loss;
  one.dim[0] = 1;
  one.prepared = hook->prepared;
  hook->kernel(&one);
  return loss;
}

/* One row a call. Each row's loss is computed from that row alone, so the sum in rising order has
 * the bits of one call. */
static void score_rows(const struct pen_call *call) {
  const struct pen_op_hook *hook = call->prepared;
  const struct pen_vm *vm = hook->context;
  const struct loss_form *form = loss_form_of(vm->plan);
  const size_t rows = (size_t)call->dim[0], tokens = (size_t)call->dim[1],
               row_bytes = tokens * pen_dtype_bytes(vm->plan->dtype),
               first_token = form->first_token < 0 ? 0 : (size_t)call->dim[form->first_token];
  const int32_t *targets = call->operand[1];
  const size_t first =
      (size_t)(vm->data.first_microbatch + vm->data.microbatch_index) * step.microbatch_rows +
      next_row(rows);
  double *found = pen_score_rows_found(vm) + first;
  double sum = 0.0;
  for (size_t r = 0; r < rows; r++) {
    unsigned char *logits = (unsigned char *)call->operand[0] + r * row_bytes;
    if (pen_score_logits_wanted()) {
      pen_score_logits_add(vm, first + r, logits, first_token, tokens);
    }
    const double loss = loss_of_row(call, form, r, logits);
    sum += loss;
    if (has_target(targets[r], first_token, tokens)) {
      found[r] = loss;
    }
  }
  *(double *)call->operand[form->loss] = sum;
}

size_t pen_score_microbatch_rows(const struct pen_vm *vm) {
  return (size_t)vm->plan->microbatch * vm->profile->sequence;
}

void pen_score_rows_hook(struct pen_vm *vm) {
  step.microbatch_rows = pen_score_microbatch_rows(vm);
  step.hook = (struct pen_op_hook){.run = score_rows, .context = vm};
  if (vm->device->asynchronous) {
    step.hook.run = fetch_rows;
    open_fetched(vm);
  }
  pen_vm_hook(vm, loss_form_of(vm->plan)->kind, &step.hook);
}
