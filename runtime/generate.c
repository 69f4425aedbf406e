/* generate.c: the sliding window over what has been written, and what is shown of it (see generate.h).
 *
 * Three ops are tapped: TOKENS and TARGETS read the samples instead of a file, and CROSS_ENTROPY's logits are drawn from instead of
 * summed up. The rank of the last stage writes the new tokens before it publishes the step; rank 0 reads them after it has gathered it. */
#include "runtime/generate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/check.h"
#include "runtime/files.h"
#include "runtime/initial.h"
#include "runtime/tap.h"

enum { LOGITS = 0, LOSS = 3, BYTE_VOCAB = 256 };

static struct {
  const struct pen_options *options;
  uint64_t samples, prompt, capacity; /* tokens of the prompt; of all */
  uint32_t *token;                    /* [samples][capacity], shared by all ranks */
  uint64_t key;
  struct pen_tap tokens, targets, loss;
  double *weights;                    /* [vocab] */
  float *logits;                      /* [vocab] */
} generation;

static uint32_t *sample_of(uint64_t sample) {
  return generation.token + sample * generation.capacity;
}

/* ---- the prompt ---- */

/* Reads a prompt of token numbers, or counts them (to null). */
static uint64_t read_numbers(const struct pen_plan *plan, const char *text, uint32_t *to) {
  uint64_t count = 0;
  for (const char *at = text + strspn(text, " "); *at != '\0'; at += strspn(at, " ")) {
    char *end;
    errno = 0;
    unsigned long long token = strtoull(at, &end, 10);
    if (*at < '0' || *at > '9' || errno != 0 || token >= plan->vocab || (*end != ' ' && *end != '\0')) {
      pen_fail(PEN_EXIT_USAGE, "--prompt: %.*s: token numbers below %u, parted by blanks", (int)strcspn(at, " "), at, plan->vocab);
    }
    if (to != NULL) {
      to[count] = (uint32_t)token;
    }
    count++;
    at = end;
  }
  return count;
}

static uint64_t read_bytes(const struct pen_plan *plan, const char *text, uint32_t *to) {
  uint64_t count = strlen(text);
  for (uint64_t i = 0; i < count; i++) {
    unsigned char byte = (unsigned char)text[i];
    if (byte >= plan->vocab) {
      pen_fail(PEN_EXIT_USAGE, "--prompt: byte %u: the model's vocab is %u", byte, plan->vocab);
    }
    if (to != NULL) {
      to[i] = byte;
    }
  }
  return count;
}

void pen_generate_open(const struct pen_plan *plan, const struct pen_options *options) {
  uint64_t (*read_prompt)(const struct pen_plan *plan, const char *text, uint32_t *to) = plan->vocab > BYTE_VOCAB ? read_numbers : read_bytes;
  uint32_t key[2];
  pen_key(key, options->seed, "generate");
  generation.options = options;
  generation.samples = options->samples;
  generation.key = (uint64_t)key[1] << 32 | key[0];
  generation.prompt = read_prompt(plan, options->prompt, NULL);
  if (generation.prompt == 0) {
    pen_fail(PEN_EXIT_USAGE, "--prompt '%s': at least one token", options->prompt);
  }
  uint64_t elements;
  if (__builtin_add_overflow(generation.prompt, options->tokens, &generation.capacity) ||
      __builtin_mul_overflow(generation.capacity, generation.samples, &elements) || elements > SIZE_MAX / sizeof(uint32_t)) {
    pen_fail(PEN_EXIT_USAGE, "--tokens %llu: more than memory holds", (unsigned long long)options->tokens);
  }
  void *memory = mmap(NULL, elements * sizeof(uint32_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pen_check(memory != MAP_FAILED, "no memory for %llu tokens", (unsigned long long)elements);
  generation.token = memory;
  for (uint64_t s = 0; s < generation.samples; s++) {
    read_prompt(plan, options->prompt, sample_of(s));
  }
}

/* ---- within a step ---- */

/* Tokens that there are before a step, and the first of them that its window reads. */
static uint64_t written(const struct pen_vm *vm) {
  return generation.prompt + vm->step;
}

static uint64_t window_start(const struct pen_vm *vm) {
  uint64_t count = written(vm);
  return count > vm->profile->sequence ? count - vm->profile->sequence : 0;
}

/* The sample in a row of the current microbatch; rows beyond the last sample repeat the first, and nobody looks at them. */
static uint64_t sample_in(const struct pen_vm *vm, uint64_t row) {
  return vm->data.row_microbatch * vm->plan->microbatch + row;
}

static void read_window(const struct pen_call *call) {
  const struct pen_vm *vm = ((const struct pen_tap *)call->prepared)->context;
  uint64_t sequence = vm->profile->sequence, rows = (uint64_t)call->dim[0] / sequence, first = window_start(vm), count = written(vm) - first;
  int32_t *to = call->operand[0];
  for (uint64_t r = 0; r < rows; r++) {
    uint64_t sample = sample_in(vm, r);
    const uint32_t *from = sample_of(sample < generation.samples ? sample : 0) + first;
    for (uint64_t t = 0; t < sequence; t++) {
      to[r * sequence + t] = t < count ? (int32_t)from[t] : 0; /* what follows is seen by nothing before it */
    }
  }
}

/* Nothing is foretold but by drawing. */
static void no_targets(const struct pen_call *call) {
  int32_t *to = call->operand[0];
  for (int64_t r = 0; r < call->dim[0]; r++) {
    to[r] = PEN_IGNORED_TARGET;
  }
  *(double *)call->operand[1] = 0.0;
}

/* One row of logits, as f32. */
static const float *row_of(const struct pen_vm *vm, const void *logits, uint64_t row) {
  uint64_t vocab = vm->plan->vocab;
  if (vm->plan->dtype != PEN_BF16) {
    return (const float *)logits + row * vocab;
  }
  pen_widen(generation.logits, (const uint16_t *)logits + row * vocab, vocab);
  return generation.logits;
}

static void draw_rows(const struct pen_call *call) {
  const struct pen_vm *vm = ((const struct pen_tap *)call->prepared)->context;
  const struct pen_options *options = generation.options;
  uint64_t sequence = vm->profile->sequence, rows = (uint64_t)call->dim[0] / sequence, last = written(vm) - window_start(vm) - 1;
  for (uint64_t r = 0; r < rows; r++) {
    uint64_t sample = sample_in(vm, r);
    if (sample < generation.samples) {
      const float *logits = row_of(vm, call->operand[LOGITS], r * sequence + last);
      double uniform = pen_uniform(generation.key, sample, vm->step);
      sample_of(sample)[written(vm)] =
          (uint32_t)pen_draw(logits, (size_t)call->dim[1], options->temperature, options->top_k, uniform, generation.weights);
    }
  }
  *(double *)call->operand[LOSS] = 0.0;
}

/* ---- what is shown ---- */

static void print(const char *text, size_t bytes) {
  if (pen_file_write(STDOUT_FILENO, text, bytes) != 0) {
    pen_fail(PEN_EXIT_CANNOT_WRITE, "cannot write to standard output: %s", strerror(errno));
  }
}

static void show(const struct pen_plan *plan, const uint32_t *tokens, uint64_t count) {
  char text[32];
  for (uint64_t t = 0; t < count; t++) {
    int bytes = plan->vocab > BYTE_VOCAB ? snprintf(text, sizeof text, "%u ", tokens[t]) : snprintf(text, sizeof text, "%c", (int)tokens[t]);
    bool unprintable = plan->vocab <= BYTE_VOCAB && (tokens[t] < 32 || tokens[t] == 127) && tokens[t] != '\n' && tokens[t] != '\t';
    if (unprintable && isatty(STDOUT_FILENO)) {
      text[0] = '?'; /* a model that knows little must not steer a terminal */
    }
    print(text, (size_t)bytes);
  }
}

static bool is_last_rank(const struct pen_run *run, const struct pen_vm *vm) {
  return run->profile->stages[run->plan->stage_count - 1].rank == vm->rank;
}

/* Tokens of a sample up to `count`, its end-of-text token the last. */
static uint64_t length_of(uint64_t sample, uint64_t count) {
  uint64_t length = generation.prompt;
  while (length < count && !(generation.options->given.end_of_text && sample_of(sample)[length] == generation.options->end_of_text)) {
    length++;
  }
  return length < count ? length + 1 : count;
}

static void opened(const struct pen_run *run, struct pen_vm *vm) {
  const struct pen_plan *plan = run->plan;
  generation.tokens = (struct pen_tap){.run = read_window, .context = vm};
  generation.targets = (struct pen_tap){.run = no_targets, .context = vm};
  generation.loss = (struct pen_tap){.run = draw_rows, .context = vm};
  generation.weights = calloc(plan->vocab, sizeof *generation.weights);
  generation.logits = calloc(plan->vocab, sizeof *generation.logits);
  pen_check(generation.weights != NULL && generation.logits != NULL, "no memory for %u logits", plan->vocab);
  pen_vm_tap(vm, PEN_OP_TOKENS, &generation.tokens);
  pen_vm_tap(vm, PEN_OP_TARGETS, &generation.targets);
  pen_vm_tap(vm, PEN_OP_CROSS_ENTROPY, &generation.loss);
  if (is_last_rank(run, vm) && generation.samples == 1) {
    show(plan, sample_of(0), generation.prompt);
  }
}

/* One sample is shown as it comes. When all have ended, so does the run. */
static void stepped(const struct pen_run *run, struct pen_vm *vm) {
  uint64_t count = written(vm) + 1, ended = 0;
  if (!is_last_rank(run, vm)) {
    return;
  }
  if (generation.samples == 1 && length_of(0, count) == count) {
    show(run->plan, sample_of(0) + count - 1, 1);
  }
  for (uint64_t s = 0; s < generation.samples && generation.options->given.end_of_text; s++) {
    ended += sample_of(s)[length_of(s, count) - 1] == generation.options->end_of_text && length_of(s, count) > generation.prompt;
  }
  if (ended == generation.samples) {
    atomic_store(&run->shared.control->stop_requested, 1);
  }
}

static void left(const struct pen_run *run, struct pen_vm *vm) {
  if (!is_last_rank(run, vm)) {
    return;
  }
  for (uint64_t s = 0; s < generation.samples && generation.samples > 1; s++) {
    char heading[64];
    int bytes = snprintf(heading, sizeof heading, "%s--- %llu\n", s == 0 ? "" : "\n", (unsigned long long)s + 1);
    print(heading, (size_t)bytes);
    show(run->plan, sample_of(s), length_of(s, written(vm) + 1));
  }
  print("\n", 1);
}

const struct pen_command_hooks pen_generate_hooks = {.opened = opened, .stepped = stepped, .left = left};
