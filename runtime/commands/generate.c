/* generate.c: samples tokens and prints them (see generate.h).
 *
 * Four ops have hooks: TOKENS and POSITIONS get what the step reads of the texts instead of a file,
 * LAST_TOKENS which row of each gives the next token. These are sampled from the logits of
 * CROSS_ENTROPY, which have the rows of the step; on a device after the step, by fetching them:
 * nothing overwrites them. The rank of the last stage publishes the tokens (pen_sampled_of()), also
 * to other hosts. All ranks take them, step after step, before they decide on a step that needs
 * them, and so agree on the texts and on the steps.
 *
 * With --stream a step without texts lets all ranks get what the one that draws reads meanwhile of
 * the next prompt: the entries have this in place of tokens.
 *
 * Of tensor ranks each computes some columns of the logits. The hook is then on
 * CROSS_ENTROPY_COLUMNS, and puts them into memory that the tensor ranks share, from which the
 * first one samples after the step. In the step it has got the loss of every other, which follows
 * the hook; meanwhile others may be in the next step, whose columns have memory of their own, and
 * end it only with the first one. On a device the hook copies
 * the columns to pinned memory, from which each puts them there after the step; the first one
 * waits for all, then samples. */
#include "kernels/kernels.h"
#include "runtime/commands/generate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/commands/columns.h"
#include "runtime/commands/draw.h"
#include "runtime/commands/generation_step.h"
#include "runtime/commands/logits.h"
#include "runtime/commands/prompt_stream.h"
#include "runtime/commands/text_reports.h"
#include "runtime/commands/texts.h"
#include "runtime/device/stream_state.h"
#include "runtime/exec/op_hook.h"

/* Operands of CROSS_ENTROPY and CROSS_ENTROPY_COLUMNS. */
enum { LOGITS = 0, LOSS = 3, COLUMNS_LOSS = 5 };

static struct {
  const struct pen_buckets *buckets; /* of the run */
  const struct pen_options *options;
  struct pen_text_list texts;
  struct pen_generation_plan plan;
  struct pen_generation_step steps[PEN_GROUPS_MAX]; /* the last ones, modulo */
  struct pen_generation_step *step;                 /* the current one */
  uint64_t taken;                                   /* steps whose tokens the texts have */
  struct pen_draw draw;
  struct {
    struct pen_op_hook tokens, positions, last_tokens, loss, columns_loss;
    const unsigned char *logits;       /* on a device: of the rank of the last stage */
    struct pen_pinned_columns columns; /* on a device, of one of several tensor ranks */
  } shapes[PEN_BUCKETS_MAX];
  uint32_t shape_count; /* profiles with hooks */
  uint32_t global, replica;
  float *logits;                    /* [vocab] */
  unsigned char *row;               /* [vocab] of the model's dtype: what is fetched */
  struct pen_joined_columns joined; /* of splits */
  bool keeps_columns;               /* the step's logits are in `joined` */
  bool samples;                     /* the command is train */
  bool streams;                     /* more prompts may come */
  bool listens;                     /* the current step is one in which a part of one comes */
  uint64_t start_ns;                /* of the first step */
} generation;

void pen_generate_open(const struct pen_run *run, const struct pen_buckets *buckets,
                       const struct pen_options *options, const struct pen_prompts *prompts) {
  generation.buckets = buckets;
  generation.options = options;
  generation.texts = pen_texts_open(run->plan, options, prompts);
  generation.streams = options->stream;
  pen_joined_columns_open(&generation.joined, run->plan, buckets);
}

uint64_t pen_generate_steps(void) {
  uint64_t steps = 1; /* each reads a token, and there may be one more after the last text */
  if (generation.streams) {
    return INT64_MAX;
  }
  for (uint64_t i = 0; i < generation.texts.count; i++) {
    steps += generation.texts.text[i].capacity;
  }
  return steps;
}

/* ---- within a step ---- */

/* After the last text there may be one more step, whose result is not used. */
static bool at_end(void) { return generation.step->row_count == 0; }

static struct pen_text *text_of(const struct pen_generation_row *row) {
  return &generation.texts.text[row->text];
}

/* Tokens after those that are read are 0: earlier ones do not attend to them. */
static void read_tokens(const struct pen_call *call) {
  const struct pen_vm *vm = ((const struct pen_op_hook *)call->prepared)->context;
  const uint64_t sequence = vm->profile->sequence;
  int32_t *to = call->operand[0];
  memset(to, 0, (uint64_t)call->dim[0] * sizeof *to);
  for (uint32_t r = 0; r < generation.step->row_count; r++) {
    const struct pen_generation_row *row = &generation.step->row[r];
    for (uint64_t t = 0; t < row->count; t++) {
      to[r * sequence + t] = (int32_t)text_of(row)->token[row->first + t];
    }
  }
}

static void read_positions(const struct pen_call *call) {
  const int64_t sequence = call->dim[0] / call->dim[1];
  int32_t *starts = call->operand[0], *slot = call->operand[1];
  for (int64_t r = 0; r < call->dim[1]; r++) {
    const struct pen_generation_row *row = &generation.step->row[r];
    const bool used = r < generation.step->row_count;
    slot[r] = used ? (int32_t)row->slot : -1;
    for (int64_t t = 0; t < sequence; t++) {
      starts[r * sequence + t] = used ? -(int32_t)row->first : 0;
    }
  }
}

/* No target: the loss is not used. The last token that is read of a text gives the next one. */
static void read_last_tokens(const struct pen_call *call) {
  int32_t *target = call->operand[0], *index = call->operand[2];
  for (int64_t r = 0; r < call->dim[0]; r++) {
    const bool used = r < generation.step->row_count;
    target[r] = PEN_IGNORED_TARGET;
    index[r] =
        (int32_t)(r * call->dim[1] + (used ? (int64_t)generation.step->row[r].count - 1 : 0));
  }
  *(double *)call->operand[1] = 0.0;
}

static bool draws(void) { return !at_end() && generation.replica == 0; }

static uint32_t shape_of(const struct pen_vm *vm) {
  uint32_t s = 0;
  while (generation.shapes[s].loss.context != vm) {
    s++;
  }
  return s;
}

/* Where the tensor ranks put a row of the logits of a step. */
static float *joined_row(const struct pen_vm *vm, uint32_t r) {
  return pen_joined_columns_row(&generation.joined, vm->run_step, r);
}

/* Of splits: puts columns of the rows that are sampled where all tensor ranks see them. */
static void join_columns(const struct pen_vm *vm, const struct pen_columns *own) {
  const size_t row_bytes = own->count * pen_dtype_bytes(vm->plan->dtype);
  for (uint32_t r = 0; r < generation.step->row_count && draws(); r++) {
    if (generation.step->row[r].samples) {
      memcpy(joined_row(vm, r) + own->first,
             pen_logit_row(vm->plan, own->logits + r * row_bytes, own->count, generation.logits),
             own->count * sizeof(float));
    }
  }
  generation.keeps_columns = true;
}

static void keep_columns(const struct pen_call *call) {
  const struct pen_vm *vm = ((const struct pen_op_hook *)call->prepared)->context;
  const struct pen_columns own = pen_columns_of(call);
  join_columns(vm, &own);
  *(double *)call->operand[COLUMNS_LOSS] = 0.0;
}

static void publish(const struct pen_vm *vm, uint32_t r, uint32_t token) {
  atomic_store_explicit(&pen_sampled_of(vm->endpoint->shared, vm->run_step)[r], token,
                        memory_order_relaxed);
}

/* Of the rank that samples: others may read the tokens of the step. Those of a step that they may
 * still need are not written over. */
static bool published(struct pen_vm *vm) {
  struct pen_endpoint *endpoint = vm->endpoint;
  pen_futex_counter_set(&endpoint->self->drawn, (uint32_t)vm->run_step + 1);
  pen_shared_notify(endpoint->shared);
  return vm->run_step < PEN_GROUPS_MAX ||
         pen_endpoint_gather(endpoint, vm->run_step - PEN_GROUPS_MAX);
}

/* Logits that are no numbers end the command generate: weights are damaged, or too large; a sample
 * of training ends there. */
static void draw_from(const struct pen_vm *vm, uint32_t r, const float *logits) {
  const struct pen_generation_row *row = &generation.step->row[r];
  const struct pen_text *text = text_of(row);
  const uint32_t token = pen_draw(&generation.draw, text, logits);
  if (token == PEN_NONE && !generation.samples) {
    pen_fail(PEN_EXIT_DATA,
             "text %" PRIu64 ": %zu of the %u logits after token %" PRIu64 " are not finite",
             row->text + 1, pen_draw_not_finite(&generation.draw, logits), vm->plan->vocab,
             text->written);
  }
  publish(vm, r, token);
}

/* From whole logits, of the model's dtype. */
static void draw_from_row(const struct pen_vm *vm, uint32_t r, const void *row) {
  draw_from(vm, r, pen_logit_row(vm->plan, row, vm->plan->vocab, generation.logits));
}

static void draw_next(const struct pen_call *call) {
  const struct pen_vm *vm = ((const struct pen_op_hook *)call->prepared)->context;
  const unsigned char *logits = call->operand[LOGITS];
  for (uint32_t r = 0; r < generation.step->row_count && draws(); r++) {
    if (generation.step->row[r].samples) {
      draw_from_row(vm, r, logits + r * pen_logit_row_bytes(vm->plan));
    }
  }
  *(double *)call->operand[LOSS] = 0.0;
}

/* On a device, in place of CROSS_ENTROPY: records the address of the logits, which is the same in
 * every step of a profile. */
static void note_logits(const struct pen_call *call) {
  generation.shapes[shape_of(((const struct pen_op_hook *)call->prepared)->context)].logits =
      call->operand[LOGITS];
}

/* The same of tensor ranks: copies a split's columns to pinned memory. */
static void fetch_columns(const struct pen_call *call) {
  const struct pen_vm *vm = ((const struct pen_op_hook *)call->prepared)->context;
  pen_columns_fetch(&generation.shapes[shape_of(vm)].columns, vm, call);
}

/* Fetches bytes of a device to generation.row. */
static void fetch_row(const struct pen_vm *vm, uint64_t first) {
  for (size_t at = 0, bytes; at < pen_logit_row_bytes(vm->plan); at += bytes) {
    bytes = pen_logit_row_bytes(vm->plan) - at < PEN_STAGING_BYTES
                ? pen_logit_row_bytes(vm->plan) - at
                : PEN_STAGING_BYTES;
    memcpy(generation.row + at, pen_stream_read(vm->stream_state, first + at, bytes), bytes);
  }
}

/* After a step on a device: fetches the rows of the logits that are sampled, one by one. */
static void fetch_and_draw(struct pen_vm *vm) {
  const unsigned char *logits = generation.shapes[shape_of(vm)].logits;
  for (uint32_t r = 0; r < generation.step->row_count && logits != NULL && draws(); r++) {
    if (generation.step->row[r].samples) {
      fetch_row(vm, (uint64_t)(logits - vm->arena) + r * pen_logit_row_bytes(vm->plan));
      draw_from_row(vm, r, generation.row);
    }
  }
}

/* ---- between steps ---- */

/* Whether this rank prints the texts: the one that samples them. Other replicas only provide
 * weights. */
static bool shows(const struct pen_run *run) {
  return pen_last_stage_process(run->plan, run->profile) == generation.global;
}

/* Of tensor ranks on a device, after the step. The one that samples waits for the others; these
 * need not wait for it, as above. False: the run was aborted. */
static bool join_fetched(const struct pen_run *run, const struct pen_vm *vm) {
  struct pen_endpoint *endpoint = vm->endpoint;
  const struct pen_pinned_columns *columns = &generation.shapes[shape_of(vm)].columns;
  const uint32_t needed = (uint32_t)vm->run_step + 1;
  bool going = true;
  for (uint32_t p = 0; p < columns->count; p++) {
    join_columns(vm, &columns->split[p]);
  }
  pen_futex_counter_set(&endpoint->self->joined, needed);
  for (uint32_t m = 0; m < pen_group_size(vm->plan, PEN_TENSOR) && shows(run) && going; m++) {
    const uint32_t peer = pen_endpoint_process(endpoint, PEN_TENSOR, m);
    going = pen_endpoint_wait(endpoint, &run->shared.ranks[peer].joined, needed, peer);
  }
  return going;
}

/* Samples, after the step, where it was not done within; or reads a prompt. */
static bool stepped(const struct pen_run *run, struct pen_vm *vm) {
  generation.step->run_step = vm->run_step;
  fetch_and_draw(vm);
  if (pen_group_size(vm->plan, PEN_TENSOR) > 1 && vm->device->asynchronous &&
      !join_fetched(run, vm)) {
    return false;
  }
  if (!shows(run)) {
    return true;
  }
  for (uint32_t r = 0; generation.keeps_columns && r < generation.step->row_count; r++) {
    if (generation.step->row[r].samples) {
      draw_from(vm, r, joined_row(vm, r));
    }
  }
  if (generation.listens) {
    pen_prompt_stream_read(&run->shared, vm->plan->vocab,
                           pen_sampled_of(&run->shared, vm->run_step));
  }
  return published(vm);
}

/* What the loss of a step runs instead, of whole logits or of splits. */
static void hook_loss(struct pen_vm *vm, uint32_t s) {
  const bool after = vm->device->asynchronous;
  generation.shapes[s].loss =
      (struct pen_op_hook){.run = after ? note_logits : draw_next, .context = vm};
  generation.shapes[s].columns_loss =
      (struct pen_op_hook){.run = after ? fetch_columns : keep_columns, .context = vm};
  pen_vm_hook(vm, PEN_OP_CROSS_ENTROPY, &generation.shapes[s].loss);
  pen_vm_hook(vm, PEN_OP_CROSS_ENTROPY_COLUMNS, &generation.shapes[s].columns_loss);
}

static void opened(const struct pen_run *run, struct pen_vm *vm) {
  const struct pen_plan *plan = run->plan;
  uint32_t s = generation.shape_count++;
  generation.global = vm->endpoint->global;
  generation.replica = vm->replica;
  generation.shapes[s].tokens = (struct pen_op_hook){.run = read_tokens, .context = vm};
  generation.shapes[s].positions = (struct pen_op_hook){.run = read_positions, .context = vm};
  generation.shapes[s].last_tokens = (struct pen_op_hook){.run = read_last_tokens, .context = vm};
  pen_columns_open(&generation.shapes[s].columns, plan);
  if (generation.logits == NULL) {
    pen_draw_open(&generation.draw, generation.options, plan->vocab);
    generation.logits = calloc(plan->vocab, sizeof *generation.logits);
    generation.row = calloc(plan->vocab, sizeof(float));
  }
  pen_check(generation.logits != NULL && generation.row != NULL, "no memory for %u logits",
            plan->vocab);
  pen_vm_hook(vm, PEN_OP_TOKENS, &generation.shapes[s].tokens);
  pen_vm_hook(vm, PEN_OP_POSITIONS, &generation.shapes[s].positions);
  pen_vm_hook(vm, PEN_OP_LAST_TOKENS, &generation.shapes[s].last_tokens);
  hook_loss(vm, s);
}

/* Waits for what was published in a step. False: aborted. */
static bool await_step(const struct pen_run *run, struct pen_vm *vm, uint64_t run_step) {
  const uint32_t drawer = pen_last_stage_process(run->plan, run->profile);
  return pen_endpoint_wait(vm->endpoint, &run->shared.ranks[drawer].drawn, (uint32_t)run_step + 1,
                           drawer);
}

/* Appends the tokens of the steps up to that many. */
static bool take_tokens(const struct pen_run *run, struct pen_vm *vm, uint64_t count) {
  for (; generation.taken < count; generation.taken++) {
    const struct pen_generation_step *step = &generation.steps[generation.taken % PEN_GROUPS_MAX];
    if (!await_step(run, vm, step->run_step)) {
      return false;
    }
    const _Atomic uint32_t *token = pen_sampled_of(&run->shared, step->run_step);
    for (uint32_t r = 0; r < step->row_count; r++) {
      if (step->row[r].samples) {
        pen_text_append(&generation.texts, text_of(&step->row[r]),
                        atomic_load_explicit(&token[r], memory_order_relaxed));
      }
    }
  }
  return true;
}

/* Takes a part of a prompt; when it is whole its texts begin. */
static bool take_prompt(const struct pen_run *run, struct pen_vm *vm) {
  const uint64_t run_step = generation.step->run_step;
  if (!await_step(run, vm, run_step)) {
    return false;
  }
  generation.taken++;
  const enum pen_prompt_part state = pen_prompt_stream_take(pen_sampled_of(&run->shared, run_step));
  generation.streams = state != PEN_PROMPT_NONE;
  if (state == PEN_PROMPT_WHOLE) {
    pen_texts_restart(&generation.texts);
    generation.plan.next_text = 0;
  }
  return true;
}

/* Decides what a step reads. False: aborted. */
static bool plan_step(const struct pen_run *run, struct pen_vm *vm, uint64_t step) {
  if (step == 0) {
    pen_generation_start(&generation.plan, generation.buckets, run->plan->generated_groups);
    generation.taken = 0;
    generation.plan.next_text = generation.streams ? generation.texts.count : 0;
    generation.start_ns = pen_now_ns();
  } else if (generation.listens && !take_prompt(run, vm)) {
    return false;
  }
  uint64_t needed;
  while (needed = pen_generation_needed(&generation.plan, &generation.texts),
         needed > generation.taken) {
    if (!take_tokens(run, vm, needed)) {
      return false;
    }
  }
  generation.step = &generation.steps[generation.plan.step_count % PEN_GROUPS_MAX];
  pen_generation_next(&generation.plan, &generation.texts, generation.step);
  generation.listens = at_end() && generation.streams;
  return true;
}

/* Chooses the profile and the tokens of a step. The run ends with the last text, or prompt. */
static bool choose(const struct pen_run *run, struct pen_vm *vm, uint64_t step, uint32_t *bucket) {
  if (!plan_step(run, vm, step)) {
    return false;
  }
  if (shows(run)) {
    pen_texts_show(&generation.texts);
  }
  if (at_end() && !generation.listens) {
    pen_shared_request_stop(&run->shared, PEN_STOP_BY_COMMAND);
  }
  *bucket = generation.step->bucket;
  return true;
}

/* The tokens of the last steps are still to be appended. */
static void left(const struct pen_run *run, struct pen_vm *vm) {
  if (!shows(run)) {
    return;
  }
  take_tokens(run, vm, generation.plan.step_count); /* they are this rank's own */
  pen_texts_show(&generation.texts);
  pen_texts_close(&generation.texts);
  if (!generation.options->quiet && !generation.options->stream) {
    pen_texts_report_rate(&generation.texts, pen_now_ns() - generation.start_ns);
  }
}

/* ---- samples of training ---- */

static bool choose_of_sample(const struct pen_run *run, struct pen_vm *vm, uint64_t step,
                             uint32_t *bucket) {
  if (step == 0) {
    generation.samples = true;
    pen_draw_set(&generation.draw, generation.options);
    pen_texts_restart(&generation.texts);
  }
  if (!plan_step(run, vm, step)) {
    return false;
  }
  *bucket = at_end() ? PEN_NONE : generation.step->bucket;
  return true;
}

static void write_samples(const struct pen_run *run, struct pen_vm *vm) {
  pen_texts_write_samples(&generation.texts, run, vm->optimizer_step);
}

const struct pen_text_list *pen_generated_texts(void) { return &generation.texts; }

const struct pen_command_hooks pen_sample_hooks = {
    .opened = opened, .choose = choose_of_sample, .stepped = stepped, .left = write_samples};

const struct pen_command_hooks pen_generate_hooks = {
    .opened = opened, .choose = choose, .stepped = stepped, .left = left};
