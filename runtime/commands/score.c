/* score.c: log-probabilities by token, and their sums by document (see score.h).
 *
 * A hook on the last stage's op CROSS_ENTROPY runs it row by row, which gives -ln p of each token
 * instead of the sum; of split weights, on CROSS_ENTROPY_COLUMNS of each piece, of which one has
 * the target, on one of the tensor ranks. The results are kept for a step and then written in the
 * order of the windows. The losses of pieces are exchanged after the hook: a tensor rank that has
 * ended a step finds what all have found.
 * The windows of a packed file hold documents in another order than the input, so all results are
 * kept to the end. Replicas that run together, since their weights are sharded, score their own
 * windows, and the last rank of the first one writes the results of all; from other hosts they come
 * by the control connections (struct pen_results). */
#include "kernels/kernels.h"
#include "runtime/commands/score.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/text_writer.h"
#include "runtime/commands/logits.h"
#include "runtime/commands/score_logits.h"
#include "runtime/observe/step_log.h"
#include "runtime/exec/op_hook.h"
#include "runtime/storage/tensor_pieces.h"

enum { NUMBER_BYTES = 40 };

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
  struct pen_op_hook hook;
  /* Results of a step, shared by all ranks: struct pen_results, a replica after the other. */
  double *found; /* -ln p of each target, [2][windows of a step][sequence]; NaN: not scored */
  uint64_t found_count; /* of one step */
  size_t microbatch_rows;
  size_t row; /* of the microbatch, or of a piece of it: the next call's first */
  struct {
    double *minus_log; /* [pieces] each: 0 where the target is in another piece */
    int32_t *target;
    unsigned char *logits;          /* with --logits: of a piece after the other, its tokens each */
    size_t pieces, piece_tokens;    /* of this tensor rank; of the last piece maybe fewer */
    size_t first_token, past_token; /* of this tensor rank */
  } fetched;   /* [microbatches][microbatch_rows] pinned: where a device leaves a step's */
  bool writes; /* this rank does */
  struct pen_writer out;
  struct document document;
  uint64_t scored;
  double sum;
  /* of a packed file: */
  double *kept;          /* -ln p of every token of every piece; NaN: not scored */
  uint64_t *kept_first;  /* [document]: where the piece begins in `kept` */
  uint64_t *order;       /* [document]: the pieces in the order of the input */
  uint64_t *first_entry; /* [document]: where the piece begins in that order, tokens that two pieces
                            have counted once */
} score;

static void open_results(struct pen_run *run, uint32_t reader) {
  uint64_t elements;
  score.found_count = pen_data_step_windows(run->plan, run->profile) * run->profile->sequence;
  pen_check(!__builtin_mul_overflow(score.found_count, 2 * sizeof *score.found, &elements) &&
                elements <= SIZE_MAX,
            "too many tokens a step");
  score.found = mmap(NULL, elements, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pen_check(score.found != MAP_FAILED, "no memory for the scores of %" PRIu64 " tokens",
            2 * score.found_count);
  run->results = (struct pen_results){
      .memory = (unsigned char *)score.found,
      .block_bytes = score.found_count / run->plan->replica_count * sizeof *score.found,
      .reader = reader};
}

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

/* ---- within a step ---- */

/* The results of the current step. */
static double *found_of(const struct pen_vm *vm) {
  return score.found + (vm->run_step & 1) * score.found_count;
}

/* A microbatch's rows come in order, by one call or by several, those of a piece before the next.
 */
static size_t next_row(size_t rows) {
  const size_t first = score.row;
  score.row = (first + rows) % score.microbatch_rows;
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
                              piece_loss = {
                                  PEN_OP_CROSS_ENTROPY_COLUMNS,
                                  {{1, sizeof(int32_t)}, {3, sizeof(float)}, {4, sizeof(double)}},
                                  5,
                                  2};

static const struct loss_form *loss_form_of(const struct pen_plan *plan) {
  return pen_has_pieces(plan) ? &piece_loss : &whole_loss;
}

/* Whether the piece with these tokens has the result of a row: one does. */
static bool has_target(int32_t target, size_t first, size_t count) {
  const size_t token = target == PEN_IGNORED_TARGET ? 0 : (size_t)target;
  return token >= first && token - first < count;
}

/* ---- on a device ---- */

static size_t fetched_rows(const struct pen_vm *vm) {
  return vm->profile->microbatch_count * score.microbatch_rows;
}

/* After the loss, which writes that of each row, an f64, to its workspace (kernels/cuda). */
static void fetch_rows(const struct pen_call *call) {
  const struct pen_op_hook *hook = call->prepared;
  const struct pen_vm *vm = hook->context;
  const struct loss_form *form = loss_form_of(vm->plan);
  const size_t rows = (size_t)call->dim[0], tokens = (size_t)call->dim[1],
               first_token = form->first_token < 0 ? 0 : (size_t)call->dim[form->first_token],
               first = (size_t)vm->data.microbatch_index * score.microbatch_rows + next_row(rows),
               before = first_token - score.fetched.first_token,
               piece = before / score.fetched.piece_tokens;
  struct pen_call own = *call;
  own.prepared = hook->prepared;
  hook->kernel(&own);
  vm->device->copy_out(score.fetched.minus_log + piece * fetched_rows(vm) + first, call->workspace,
                       rows * sizeof(double), call->stream);
  vm->device->copy_out(score.fetched.target + first, call->operand[1], rows * sizeof(int32_t),
                       call->stream);
  if (score.fetched.logits != NULL) {
    const size_t bytes = pen_dtype_bytes(vm->plan->dtype);
    vm->device->copy_out(
        score.fetched.logits + (fetched_rows(vm) * before + first * tokens) * bytes,
        call->operand[0], rows * tokens * bytes, call->stream);
  }
}

/* The result of a row, where it is this tensor rank that has it, and its logits. */
static void take_row(const struct pen_vm *vm, size_t r, double *found) {
  const size_t count = fetched_rows(vm), past = score.fetched.past_token,
               bytes = pen_dtype_bytes(vm->plan->dtype);
  const int32_t target = score.fetched.target[r];
  double minus_log = 0.0;
  for (size_t p = 0; p < score.fetched.pieces; p++) {
    const size_t before = p * score.fetched.piece_tokens,
                 first = score.fetched.first_token + before,
                 tokens = past - first < score.fetched.piece_tokens ? past - first
                                                                    : score.fetched.piece_tokens;
    minus_log += score.fetched.minus_log[p * count + r];
    if (score.fetched.logits != NULL) {
      pen_score_logits_add(vm, vm->replica * count + r,
                           score.fetched.logits + (count * before + r * tokens) * bytes, first,
                           tokens);
    }
  }
  if (has_target(target, score.fetched.first_token, past - score.fetched.first_token)) {
    found[r] = target == PEN_IGNORED_TARGET ? (double)NAN : minus_log;
  }
}

/* Called after the step. */
static void take_fetched(const struct pen_vm *vm) {
  if (score.fetched.target == NULL) {
    return; /* the CPU's row has done it, or another rank */
  }
  const size_t count = fetched_rows(vm);
  for (size_t r = 0; r < count; r++) {
    take_row(vm, r, found_of(vm) + vm->replica * count);
  }
}

static void open_fetched(const struct pen_vm *vm) {
  const size_t count = fetched_rows(vm);
  const uint32_t pieces = pen_partials_of(vm->plan), member = vm->endpoint->tensor_rank;
  score.fetched.pieces = pieces / vm->plan->tensor_ranks;
  score.fetched.piece_tokens = (vm->plan->vocab + pieces - 1) / pieces;
  score.fetched.first_token = pen_first_token(vm->plan, member);
  score.fetched.past_token = pen_first_token(vm->plan, member + 1);
  score.fetched.minus_log =
      vm->device->allocate_host(score.fetched.pieces * count * sizeof(double));
  score.fetched.target = vm->device->allocate_host(count * sizeof(int32_t));
  pen_check(score.fetched.minus_log != NULL && score.fetched.target != NULL,
            "no pinned memory for the scores of %zu tokens", count);
  if (pen_score_logits_wanted()) {
    score.fetched.logits = vm->device->allocate_host(count * pen_logit_row_bytes(vm->plan));
    pen_check(score.fetched.logits != NULL, "no pinned memory for the logits of %zu tokens", count);
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
      (size_t)(vm->data.first_microbatch + vm->data.microbatch_index) * score.microbatch_rows +
      next_row(rows);
  double *found = found_of(vm) + first;
  double sum = 0.0;
  for (size_t r = 0; r < rows; r++) {
    unsigned char *logits = (unsigned char *)call->operand[0] + r * row_bytes;
    if (pen_score_logits_wanted()) {
      pen_score_logits_add(vm, first + r, logits, first_token, tokens);
    }
    double loss = loss_of_row(call, form, r, logits);
    sum += loss;
    if (targets[r] == PEN_IGNORED_TARGET) {
      loss = (double)NAN;
    }
    if (has_target(targets[r], first_token, tokens)) {
      found[r] = loss;
    }
  }
  *(double *)call->operand[form->loss] = sum;
}

/* ---- packed files ---- */

static const struct pen_packed_document *pieces; /* for the comparison */

static int by_input(const void *a, const void *b) {
  const struct pen_packed_document *x = &pieces[*(const uint64_t *)a],
                                   *y = &pieces[*(const uint64_t *)b];
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
  pieces = packed->documents;
  qsort(score.order, documents, sizeof *score.order, by_input);
  for (uint64_t i = 0, entry = 0; i < documents; i++) {
    const struct pen_packed_document *piece = &pieces[score.order[i]];
    entry -= piece->first != 0;
    score.first_entry[score.order[i]] = entry;
    entry += piece->length;
  }
  score.kept = calloc(tokens + 1, sizeof *score.kept);
  pen_check(score.kept != NULL, "no memory for the scores of %" PRIu64 " tokens", tokens);
}

/* Keeps what a window's tokens were given: the one at `at` predicts the next. */
static void keep_window(const struct pen_packed *packed, uint64_t w, const double *found) {
  const struct pen_packed_window *window = &packed->windows[w];
  uint64_t at = 0;
  for (uint64_t d = window->first_document; d < window->first_document + window->document_count;
       d++) {
    double *kept = score.kept + score.kept_first[d];
    kept[0] = (double)NAN;
    for (uint64_t t = 1; t < packed->documents[d].length; t++) {
      kept[t] = found[at + t - 1];
    }
    at += packed->documents[d].length;
  }
}

static void opened(const struct pen_run *run, struct pen_vm *vm) {
  const struct pen_plan *plan = run->plan;
  if (pen_last_stage_rank(plan, run->profile) != vm->rank) {
    return;
  }
  score.microbatch_rows = (size_t)plan->microbatch * run->profile->sequence;
  score.hook = (struct pen_op_hook){.run = score_rows, .context = vm};
  if (vm->device->asynchronous) {
    score.hook.run = fetch_rows;
    open_fetched(vm);
  }
  pen_vm_hook(vm, loss_form_of(plan)->kind, &score.hook);
  score.writes = pen_last_stage_process(plan, run->profile) == vm->endpoint->global;
  if (run->data.packed.header != NULL && (score.writes || pen_score_logits_wanted())) {
    open_packed(&run->data.packed);
  }
  if (pen_score_logits_wanted()) {
    pen_score_logits_prepare(vm, score.first_entry,
                             pen_has_pieces(plan) ? score.microbatch_rows : 1);
  }
  if (score.writes) {
    pen_writer_open(&score.out, score.descriptor);
  }
}

/* ---- documents ---- */

static void put(const char *name, uint64_t number) {
  pen_writer_text(&score.out, name);
  pen_writer_number(&score.out, number);
}

static void end_document(void) {
  struct document *document = &score.document;
  char sum[NUMBER_BYTES];
  pen_json_number(sum, sizeof sum, document->sum);
  put("],\"tokens\":", document->tokens);
  put(",\"scored\":", document->scored);
  pen_writer_text(&score.out, ",\"log_probability\":");
  pen_writer_text(&score.out, sum);
  pen_writer_text(&score.out, "}\n");
  *document = (struct document){.index = document->index + 1,
                                .first_token = document->first_token + document->tokens};
}

/* The next token of the file; `minus_log` is NaN where nothing predicts it. */
static void add_token(double minus_log, bool ends) {
  struct document *document = &score.document;
  char text[NUMBER_BYTES] = "null";
  if (document->tokens == 0) {
    put("{\"document\":", document->index);
    put(",\"first_token\":", document->first_token);
    pen_writer_text(&score.out, ",\"log_probabilities\":[");
  }
  if (!isnan(minus_log)) {
    pen_json_number(text, sizeof text, 0.0 - minus_log); /* not -0 */
    document->sum -= minus_log;
    document->scored++;
    score.sum += minus_log;
    score.scored++;
  }
  pen_writer_text(&score.out, document->tokens == 0 ? "" : ",");
  pen_writer_text(&score.out, text);
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

/* Documents in the order of the input. A later piece begins with the token that the piece before
 * ended with. */
static void write_packed(const struct pen_packed *packed) {
  for (uint64_t i = 0; i < packed->header->document_count; i++) {
    uint64_t d = score.order[i];
    const struct pen_packed_document *piece = &packed->documents[d];
    if (score.document.tokens > 0 && piece->first == 0) {
      end_document();
    }
    score.document.index = piece->number;
    for (uint32_t t = piece->first != 0; t < piece->length; t++) {
      add_token(score.kept[score.kept_first[d] + t], false);
    }
  }
}

static void take_step(const struct pen_run *run, struct pen_vm *vm) {
  const double *found = found_of(vm);
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
    add_token((double)NAN, score.ends && pen_data_token(&vm->data, 0) == score.end_of_text);
  }
  for (uint64_t w = 0; w < windows && vm->data.cursor + w < vm->data.window_count; w++) {
    /* Ends are those of the tokens: a target may be ignored. The last window may hold less. */
    uint64_t first = (vm->data.cursor + w) * sequence + 1, left = vm->data.token_count - first;
    for (uint64_t t = 0; t < sequence && t < left; t++) {
      add_token(found[w * sequence + t],
                score.ends && pen_data_token(&vm->data, first + t) == score.end_of_text);
    }
  }
  flush();
}

/* After a barrier all replicas have their results; on a device all tensor ranks have taken theirs.
 */
static bool stepped(const struct pen_run *run, struct pen_vm *vm) {
  take_fetched(vm);
  if (vm->device->asynchronous && run->plan->tensor_ranks > 1 &&
      !pen_endpoint_barrier(vm->endpoint)) {
    return false;
  }
  if (score.microbatch_rows > 0 && vm->endpoint->tensor_rank == 0) {
    atomic_store(&vm->endpoint->self->results_step, vm->run_step + 1);
  }
  if (run->plan->replica_count > 1 && !pen_endpoint_barrier(vm->endpoint)) {
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
  control->target_count = score.scored;
}

const struct pen_command_hooks pen_score_hooks = {
    .opened = opened, .stepped = stepped, .left = left};
