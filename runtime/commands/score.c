/* score.c: log-probabilities by token, and their sums by document (see score.h).
 *
 * What the ranks of the last stage find in a step (score_rows.h) is written in the order of the
 * windows.
 * The windows of a packed file hold documents in another order than the input, so all results are
 * kept to the end. Replicas that run together, since their weights are sharded, score their own
 * windows, and the last rank of the first one writes the results of all; from other hosts they come
 * by the control connections (struct pen_results). */
#include "runtime/commands/score.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/text_writer.h"
#include "runtime/commands/score_logits.h"
#include "runtime/commands/score_rows.h"
#include "runtime/data/target_mask.h"
#include "runtime/data/windows.h"
#include "runtime/observe/step_log.h"
#include "runtime/storage/tensor_splits.h"

enum { DIGITS = 17 }; /* so that a number reads back exactly */

/* What a token was given: -ln p, unless nothing predicts it. */
struct token_score {
  bool predicted;
  double minus_log;
};

/* The document that is being written. */
struct document {
  uint64_t index, first_token, tokens, scored;
  double sum;
};

static struct {
  const char *path;
  int descriptor;
  bool ends; /* documents end with a token: */
  int64_t end_of_text;
  bool computes; /* this rank does, as one of the last stage */
  bool writes;   /* this rank does */
  struct pen_writer out;
  struct document document;
  uint64_t scored, not_finite; /* tokens */
  double sum;
  /* of a packed file: */
  struct token_score *kept; /* of every token of every split */
  uint64_t *kept_first;     /* [document]: where the split begins in `kept` */
  uint64_t *order;          /* [document]: the splits in the order of the input */
  uint64_t *first_entry; /* [document]: where the split begins in that order, tokens that two splits
                            have counted once */
} score;

/* Opens --output. "-" is standard output: the parent prints the result there after the ranks have
 * ended. */
static int open_output(const char *path) {
  const bool is_stdout = strcmp(path, "-") == 0;
  const int descriptor = is_stdout ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
                                   : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    pen_fail(PEN_EXIT_CANNOT_CREATE, "--output %s: %s", path, strerror(errno));
  }
  struct stat output, result;
  if (!is_stdout && fstat(descriptor, &output) == 0 && fstat(STDOUT_FILENO, &result) == 0 &&
      S_ISREG(output.st_mode) && pen_file_same(&output, &result)) {
    pen_fail(PEN_EXIT_USAGE,
             "--output %s: is standard output, where the result goes; --output - writes both there",
             path);
  }
  return descriptor;
}

/* Sets run->results, of which `reader` is the rank that reads all. */
static void open_results(struct pen_run *run, uint32_t reader) {
  const uint64_t bytes = pen_score_rows_bytes(run->plan, run->profile);
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pen_check(memory != MAP_FAILED, "no memory for the scores of two steps");
  pen_score_rows_open(run->plan, run->profile, memory);
  run->results =
      (struct pen_results){.memory = memory,
                           .block_bytes = bytes / 2 / pen_group_size(run->plan, PEN_DATA),
                           .reader = reader};
}

void pen_score_open(struct pen_run *run, uint32_t reader) {
  const struct pen_options *options = run->options;
  open_results(run, reader);
  if (!pen_rank_set_has(&run->local, reader)) {
    return;
  }
  score.path = options->output;
  score.ends = options->given.end_of_text;
  score.end_of_text = (int64_t)options->end_of_text;
  score.descriptor = open_output(options->output);
  pen_score_logits_open(run);
}

/* ---- packed files ---- */

static const struct pen_packed_document *splits; /* for the comparison */

static int by_input(const void *a, const void *b) {
  const struct pen_packed_document *x = &splits[*(const uint64_t *)a],
                                   *y = &splits[*(const uint64_t *)b];
  if (x->number != y->number) {
    return x->number < y->number ? -1 : 1;
  }
  return (x->first > y->first) - (x->first < y->first);
}

static void open_packed(const struct pen_packed *packed) {
  uint64_t documents = packed->header->document_count, tokens = 0;
  score.kept_first = calloc(documents + 1, sizeof *score.kept_first);
  score.order = calloc(documents + 1, sizeof *score.order);
  score.first_entry = calloc(documents + 1, sizeof *score.first_entry);
  pen_check(score.kept_first != NULL && score.order != NULL && score.first_entry != NULL,
            "no memory for %" PRIu64 " documents", documents);
  for (uint64_t d = 0; d < documents; d++) {
    score.kept_first[d] = tokens;
    score.order[d] = d;
    tokens += packed->documents[d].length;
  }
  splits = packed->documents;
  qsort(score.order, documents, sizeof *score.order, by_input);
  for (uint64_t i = 0, entry = 0; i < documents; i++) {
    const struct pen_packed_document *split = &splits[score.order[i]];
    entry -= split->first != 0;
    score.first_entry[score.order[i]] = entry;
    entry += split->length;
  }
  score.kept =
      pen_allocate(tokens + 1, sizeof *score.kept, "the scores of %" PRIu64 " tokens", tokens);
}

/* Keeps what a window's tokens were given: the one at `at` predicts the next. */
static void keep_window(const struct pen_packed *packed, uint64_t w, const double *found) {
  const struct pen_packed_window *window = &packed->windows[w];
  uint64_t at = 0;
  for (uint64_t d = window->first_document; d < window->first_document + window->document_count;
       d++) {
    struct token_score *kept = score.kept + score.kept_first[d];
    for (uint64_t t = 1; t < packed->documents[d].length; t++) {
      kept[t] = (struct token_score){
          .predicted = pen_target_counts(packed->mask, window->first_token + at + t),
          .minus_log = found[at + t - 1]};
    }
    at += packed->documents[d].length;
  }
}

static void opened(const struct pen_run *run, struct pen_vm *vm) {
  const struct pen_plan *plan = run->plan;
  if (pen_last_stage_rank(plan, run->profile) != vm->rank) {
    return;
  }
  score.computes = true;
  pen_score_rows_hook(vm);
  score.writes = pen_last_stage_process(plan, run->profile) == vm->endpoint->global;
  if (run->data.packed.header != NULL && (score.writes || pen_score_logits_wanted())) {
    open_packed(&run->data.packed);
  }
  if (pen_score_logits_wanted()) {
    pen_score_logits_prepare(vm, score.first_entry,
                             pen_has_splits(plan) ? pen_score_microbatch_rows(vm) : 1);
  }
  if (score.writes) {
    pen_writer_open(&score.out, score.descriptor);
  }
}

/* ---- documents ---- */

static void end_document(void) {
  struct document *document = &score.document;
  char sum[PEN_JSON_NUMBER_BYTES];
  pen_json_any_number(sum, sizeof sum, DIGITS, document->sum);
  pen_writer_print(&score.out,
                   "],\"tokens\":%" PRIu64 ",\"scored\":%" PRIu64 ",\"log_probability\":%s}\n",
                   document->tokens, document->scored, sum);
  *document = (struct document){.index = document->index + 1,
                                .first_token = document->first_token + document->tokens};
}

/* The next token of the file. */
static void add_token(struct token_score token, bool ends) {
  struct document *document = &score.document;
  char text[PEN_JSON_NUMBER_BYTES] = "null";
  if (document->tokens == 0) {
    pen_writer_print(
        &score.out, "{\"document\":%" PRIu64 ",\"first_token\":%" PRIu64 ",\"log_probabilities\":[",
        document->index, document->first_token);
  }
  if (token.predicted) {
    pen_json_any_number(text, sizeof text, DIGITS, 0.0 - token.minus_log); /* not -0 */
    document->sum -= token.minus_log;
    document->scored++;
    score.sum += token.minus_log;
    score.scored++;
    score.not_finite += !isfinite(token.minus_log);
  }
  pen_writer_print(&score.out, "%s%s", document->tokens == 0 ? "" : ",", text);
  document->tokens++;
  if (ends) {
    end_document();
  }
}

static void flush(void) {
  if (pen_writer_flush(&score.out) != 0) {
    pen_fail(PEN_EXIT_CANNOT_WRITE, "--output %s: %s", score.path, strerror(errno));
  }
}

/* Documents in the order of the input. A later split begins with the token that the split before
 * ended with. */
static void write_packed(const struct pen_packed *packed) {
  for (uint64_t i = 0; i < packed->header->document_count; i++) {
    uint64_t d = score.order[i];
    const struct pen_packed_document *split = &packed->documents[d];
    if (score.document.tokens > 0 && split->first == 0) {
      end_document();
    }
    score.document.index = split->number;
    for (uint32_t t = split->first != 0; t < split->length; t++) {
      add_token(score.kept[score.kept_first[d] + t], false);
    }
  }
}

static void take_step(const struct pen_run *run, struct pen_vm *vm) {
  const double *found = pen_score_rows_found(vm);
  uint64_t sequence = run->profile->sequence,
           windows = pen_data_step_windows(run->plan, run->profile);
  const struct pen_packed *packed = &vm->data.packed;
  for (uint64_t w = 0;
       packed->header != NULL && w < windows && vm->data.cursor + w < vm->data.window_count; w++) {
    keep_window(packed, vm->data.cursor + w, found + w * sequence);
  }
  if (packed->header != NULL) {
    return;
  }
  if (vm->data.cursor == 0) {
    add_token((struct token_score){.predicted = false},
              score.ends && pen_data_token(&vm->data, 0) == score.end_of_text);
  }
  for (uint64_t w = 0; w < windows && vm->data.cursor + w < vm->data.window_count; w++) {
    /* Ends are those of the tokens: a target may be ignored. The last window may hold less. */
    uint64_t first = (vm->data.cursor + w) * sequence + 1, left = vm->data.token_count - first;
    for (uint64_t t = 0; t < sequence && t < left; t++) {
      add_token((struct token_score){.predicted = pen_target_counts(vm->data.mask, first + t),
                                     .minus_log = found[w * sequence + t]},
                score.ends && pen_data_token(&vm->data, first + t) == score.end_of_text);
    }
  }
  flush();
}

/* After a barrier all replicas have their results; on a device all tensor ranks have taken theirs.
 */
static bool stepped(const struct pen_run *run, struct pen_vm *vm) {
  pen_score_rows_fetch(vm);
  if (vm->device->asynchronous && pen_group_size(run->plan, PEN_TENSOR) > 1 &&
      !pen_endpoint_barrier(vm->endpoint)) {
    return false;
  }
  if (score.computes && vm->endpoint->tensor_rank == 0) {
    atomic_store(&vm->endpoint->self->results_step, vm->run_step + 1);
  }
  if (pen_group_size(run->plan, PEN_DATA) > 1 && !pen_endpoint_barrier(vm->endpoint)) {
    return false;
  }
  if (score.writes) {
    take_step(run, vm);
  }
  return true;
}

static void left(const struct pen_run *run, struct pen_vm *vm) {
  if (!score.writes) {
    return;
  }
  if (vm->data.packed.header != NULL) {
    write_packed(&vm->data.packed);
  }
  if (score.document.tokens > 0) {
    end_document();
  }
  flush();
  if (close(score.descriptor) != 0) {
    pen_fail(PEN_EXIT_CANNOT_WRITE, "--output %s: %s", score.path, strerror(errno));
  }
  if (pen_score_logits_wanted()) {
    pen_score_logits_finish(vm);
  }
  struct pen_control *control = run->shared.control;
  control->loss_sum = score.sum;
  control->target_count = control->token_count = score.scored;
  control->not_finite_count = score.not_finite;
}

const struct pen_command_hooks pen_score_hooks = {
    .gives_result = true, .opened = opened, .stepped = stepped, .left = left};
