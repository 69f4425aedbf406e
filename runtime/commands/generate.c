/* generate.c: samples tokens one by one and prints them (see generate.h).
 *
 * Three ops have hooks: TOKENS and TARGETS read the current sample instead of a file, and the next
 * token is sampled from the logits of CROSS_ENTROPY; on a device after the step, by fetching the
 * one row, which nothing overwrites. The rank of the last stage publishes the token in its state,
 * also to other hosts. All ranks read it after the step, and so agree on the current text, its
 * length and its window. There are two entries, used alternately: before an entry is written again,
 * all ranks have begun a later step. */
#include "kernels/kernels.h"
#include "runtime/commands/generate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/base/key.h"
#include "runtime/commands/sample.h"
#include "runtime/commands/texts.h"
#include "runtime/device/stream_state.h"
#include "runtime/exec/op_hook.h"

enum { LOGITS = 0, LOSS = 3 };

static struct {
  const struct pen_options *options;
  struct pen_text_list texts;
  uint64_t key;
  struct {
    struct pen_op_hook tokens, targets, loss;
    const unsigned char *logits; /* on a device: of the rank of the last stage */
  } taps[PEN_BUCKETS_MAX];
  uint32_t shape_count; /* profiles with hooks */
  uint32_t rank, replica;
  double *weights;    /* [vocab] */
  float *logits;      /* [vocab] */
  unsigned char *row; /* [vocab] of the model's dtype: what is fetched */
  uint64_t current;   /* the text of the current step; may be past the last */
  uint64_t taken;     /* steps whose tokens are known */
  uint64_t start_ns;  /* of the first step */
} generation;

void pen_generate_open(const struct pen_plan *plan, const struct pen_options *options,
                       const struct pen_prompts *prompts) {
  uint32_t key[2];
  pen_key(key, options->seed, "generate");
  generation.options = options;
  generation.key = (uint64_t)key[1] << 32 | key[0];
  generation.texts = pen_texts_open(plan, options, prompts);
}

/* ---- within a step ---- */

/* After the last text there may be one more step, whose result is not used. */
static bool at_end(void) { return generation.current == generation.texts.count; }

static struct pen_text *current_text(void) {
  return &generation.texts.text[at_end() ? 0 : generation.current];
}

/* The first token that the window holds. */
static uint64_t window_start(const struct pen_vm *vm) {
  const uint64_t written = current_text()->written;
  return written > vm->profile->sequence ? written - vm->profile->sequence : 0;
}

static void read_window(const struct pen_call *call) {
  const struct pen_vm *vm = ((const struct pen_op_hook *)call->prepared)->context;
  uint64_t first = window_start(vm), count = current_text()->written - first;
  const uint32_t *from = current_text()->token + first;
  int32_t *to = call->operand[0];
  for (uint64_t t = 0; t < (uint64_t)call->dim[0]; t++) {
    to[t] = t < count ? (int32_t)from[t] : 0; /* earlier tokens do not attend to later ones */
  }
}

/* No target: the loss is not used. */
static void no_targets(const struct pen_call *call) {
  int32_t *to = call->operand[0];
  for (int64_t r = 0; r < call->dim[0]; r++) {
    to[r] = PEN_IGNORED_TARGET;
  }
  *(double *)call->operand[1] = 0.0;
}

static size_t row_bytes(const struct pen_vm *vm) {
  return vm->plan->vocab * (vm->plan->dtype == PEN_BF16 ? sizeof(uint16_t) : sizeof(float));
}

/* The offset in the logits of the row that predicts the sample's next token. */
static size_t row_offset(const struct pen_vm *vm) {
  return (current_text()->written - window_start(vm) - 1) * row_bytes(vm);
}

/* One row of logits, as f32. */
static const float *as_floats(const struct pen_vm *vm, const void *row) {
  if (vm->plan->dtype != PEN_BF16) {
    return row;
  }
  pen_bf16_to_f32(generation.logits, row, vm->plan->vocab);
  return generation.logits;
}

static bool draws(void) { return !at_end() && generation.replica == 0; }

static void draw_from(const struct pen_vm *vm, const void *row) {
  const struct pen_options *options = generation.options;
  const struct pen_text *text = current_text();
  const double uniform =
      pen_uniform(generation.key, generation.current, text->written - text->prompt->token_count);
  const size_t token = pen_sample(as_floats(vm, row), vm->plan->vocab, options->temperature,
                                  options->top_k, uniform, generation.weights);
  atomic_store_explicit(&vm->endpoint->self->sampled[vm->run_step % PEN_SAMPLED_TOKENS],
                        (uint32_t)token, memory_order_relaxed);
}

static void draw_next(const struct pen_call *call) {
  const struct pen_vm *vm = ((const struct pen_op_hook *)call->prepared)->context;
  if (draws()) {
    draw_from(vm, (const unsigned char *)call->operand[LOGITS] + row_offset(vm));
  }
  *(double *)call->operand[LOSS] = 0.0;
}

static uint32_t tapped(const struct pen_vm *vm) {
  uint32_t s = 0;
  while (generation.taps[s].loss.context != vm) {
    s++;
  }
  return s;
}

/* On a device, in place of CROSS_ENTROPY: records the address of the logits, which is the same in
 * every step of a profile. */
static void note_logits(const struct pen_call *call) {
  generation.taps[tapped(((const struct pen_op_hook *)call->prepared)->context)].logits =
      call->operand[LOGITS];
}

/* After a step on a device: fetches the row and samples from it. */
static bool fetch_and_draw(const struct pen_run *run, struct pen_vm *vm) {
  (void)run;
  const unsigned char *logits = generation.taps[tapped(vm)].logits;
  if (logits == NULL || !draws()) {
    return true;
  }
  const uint64_t first = (uint64_t)(logits - vm->arena) + row_offset(vm);
  for (size_t at = 0, bytes; at < row_bytes(vm); at += bytes) {
    bytes = row_bytes(vm) - at < PEN_STAGING_BYTES ? row_bytes(vm) - at : PEN_STAGING_BYTES;
    memcpy(generation.row + at, pen_stream_read(vm->stream_state, first + at, bytes), bytes);
  }
  draw_from(vm, generation.row);
  return true;
}

/* ---- between steps ---- */

static uint32_t drawing_rank(const struct pen_run *run) {
  return pen_last_stage_rank(run->plan, run->profile);
}

/* Whether this rank prints the texts: the one that samples them. Other replicas only provide
 * weights. */
static bool shows(const struct pen_run *run) {
  return drawing_rank(run) == generation.rank && generation.replica == 0;
}

static void opened(const struct pen_run *run, struct pen_vm *vm) {
  const struct pen_plan *plan = run->plan;
  uint32_t s = generation.shape_count++;
  generation.rank = vm->rank;
  generation.replica = vm->replica;
  generation.taps[s].tokens = (struct pen_op_hook){.run = read_window, .context = vm};
  generation.taps[s].targets = (struct pen_op_hook){.run = no_targets, .context = vm};
  generation.taps[s].loss = (struct pen_op_hook){
      .run = !vm->device->asynchronous ? draw_next : note_logits, .context = vm};
  if (generation.weights == NULL) {
    generation.weights = calloc(plan->vocab, sizeof *generation.weights);
    generation.logits = calloc(plan->vocab, sizeof *generation.logits);
    generation.row = calloc(plan->vocab, sizeof(float));
  }
  pen_check(generation.weights != NULL && generation.logits != NULL && generation.row != NULL,
            "no memory for %u logits", plan->vocab);
  pen_vm_hook(vm, PEN_OP_TOKENS, &generation.taps[s].tokens);
  pen_vm_hook(vm, PEN_OP_TARGETS, &generation.taps[s].targets);
  pen_vm_hook(vm, PEN_OP_CROSS_ENTROPY, &generation.taps[s].loss);
}

/* Appends the token of the last step. */
static void take_token(const struct pen_run *run) {
  struct pen_text *text = current_text();
  pen_text_append(
      &generation.texts, text,
      atomic_load_explicit(
          &run->shared.ranks[drawing_rank(run)].sampled[generation.taken++ % PEN_SAMPLED_TOKENS],
          memory_order_relaxed));
  generation.current += text->ended;
}

/* The bucket of the shortest sequence that holds the sample, or the longest. The run ends with the
 * last sample. */
static uint32_t choose(const struct pen_run *run, uint64_t step) {
  uint32_t s = 0;
  if (step == 0) {
    generation.start_ns = pen_now_ns();
  } else {
    take_token(run);
  }
  if (shows(run)) {
    pen_texts_show(&generation.texts);
  }
  if (at_end()) {
    atomic_store(&run->shared.control->stop_requested, 1);
  }
  while (s + 1 < run->buckets.count &&
         run->buckets.profile[s]->sequence < current_text()->written) {
    s++;
  }
  return s;
}

/* The new tokens of all texts, and their rate. */
static void report_rate(void) {
  uint64_t count = 0;
  const double seconds = (double)(pen_now_ns() - generation.start_ns) * 1e-9;
  for (uint64_t i = 0; i < generation.texts.count; i++) {
    const struct pen_text *text = &generation.texts.text[i];
    count += text->written - text->prompt->token_count;
  }
  fprintf(stderr, "%" PRIu64 " tokens  %.0f tokens/s\n", count, (double)count / seconds);
}

/* The token of the last step is still to be appended, unless the step was past the end. */
static void left(const struct pen_run *run, struct pen_vm *vm) {
  (void)vm;
  if (!at_end()) {
    take_token(run);
  }
  if (!shows(run)) {
    return;
  }
  pen_texts_show(&generation.texts);
  pen_texts_close(&generation.texts);
  if (!generation.options->quiet) {
    report_rate();
  }
}

const struct pen_command_hooks pen_generate_hooks = {
    .opened = opened, .choose = choose, .stepped = fetch_and_draw, .left = left};
