/* step_inputs.c: token windows and normals, the inputs of a step (see step_inputs.h). */
#include "kernels/kernels.h"
#include "runtime/data/step_inputs.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/base/futex_counter.h"
#include "runtime/data/target_mask.h"
#include "runtime/data/windows.h"

enum {
  CHUNK = 1024, /* elements that are converted at a time */
  INPUT_DIM = 1,
  WIDTH_DIM = 2 /* of TOKENS, TARGETS and INPUT, and of INPUT, in kernels/ops.def */
};

/* The last epoch, from 2, that begins among these windows of a file; 0: none does. */
static uint64_t epoch_begun(const struct pen_data *data, uint64_t first, uint64_t count) {
  if (data->tokens == NULL || first + count == 0) {
    return 0;
  }
  const uint64_t before = first == 0 ? 0 : (first - 1) / data->window_count,
                 last = (first + count - 1) / data->window_count;
  return last > before ? last + 1 : 0;
}

/* Sets the shares of a step; of its microbatches those of the last one. Returns whether there are
 * any that are not 0. */
static bool set_shares(struct pen_data *data) {
  const uint64_t count = data->loss_of_microbatch ? data->microbatch : data->step_windows,
                 past = data->cursor + data->step_windows;
  bool any = false;
  for (uint64_t first = data->cursor; first < past; first += count) {
    any = pen_data_shares(data, first, count, data->share) || any;
  }
  return any;
}

void pen_data_prepare_step(struct pen_data *data, uint64_t cursor, uint64_t count) {
  data->cursor = cursor;
  data->step_windows = count;
  data->step_targets = data->step_losses = pen_data_targets(data, cursor, count);
  data->step_samples = data->named != NULL && data->path != NULL ? count : 0;
  if (data->share_count > 0) {
    data->step_losses = set_shares(data) ? count : 0;
  }
  data->epoch = epoch_begun(data, cursor, count);
  data->last_epoch = data->tokens != NULL && data->window_count > 0
                         ? 1 + (cursor + count - 1) / data->window_count
                         : 0;
  data->read_ns = 0;
}

/* The position of the window that row `row` of the current microbatch reads. */
static uint64_t position_of(const struct pen_data *data, uint64_t row) {
  return data->cursor + (data->first_microbatch + data->microbatch_index) * data->microbatch + row;
}

/* Copies `count` tokens of the file from `first` on. */
typedef void copy_run(const struct pen_data *data, int32_t *to, uint64_t first, uint64_t count);

static void copy_tokens(const struct pen_data *data, int32_t *to, uint64_t first, uint64_t count) {
  for (uint64_t t = 0; t < count; t++) {
    uint32_t token = pen_data_token(data, first + t);
    if (__builtin_expect(token >= data->vocab, 0)) {
      pen_fail(PEN_EXIT_DATA, "%s: token %" PRIu64 " is %u: the model's vocab is %" PRIu64,
               data->path, first + t, token, data->vocab);
    }
    to[t] = (int32_t)token;
  }
}

/* The same for targets: those that do not count are ignored. */
static void copy_targets(const struct pen_data *data, int32_t *to, uint64_t first, uint64_t count) {
  copy_tokens(data, to, first, count);
  for (uint64_t t = 0; data->mask != NULL && t < count; t++) {
    if (!pen_target_counts(data->mask, first + t)) {
      to[t] = PEN_IGNORED_TARGET;
    }
  }
}

/* Fills one row of a kind of input, of `sequence` numbers, from window `w` of the file. */
typedef void fill_row(const struct pen_data *data, int32_t *row, uint64_t w);

static void fill_rows(const struct pen_call *call, fill_row *plain, fill_row *packed) {
  struct pen_data *data = call->prepared;
  const uint64_t start_ns = pen_now_ns();
  int32_t *to = call->operand[0];
  uint64_t rows = (uint64_t)call->dim[0] / data->sequence;
  for (uint64_t row = 0; row < rows; row++) {
    const struct pen_file_window window = pen_data_locate(data, position_of(data, row));
    (window.file->packed.header == NULL ? plain : packed)(window.file, to + row * data->sequence,
                                                          window.index);
  }
  /* Where blocks are measured without a file, of an input of samples. */
  memset(to + rows * data->sequence, 0,
         ((uint64_t)call->dim[0] - rows * data->sequence) * sizeof *to);
  data->read_ns += pen_now_ns() - start_ns;
}

/* The file's tokens from `first` on, and after its end `padding`, in an incomplete last window. */
static void plain_row(const struct pen_data *data, copy_run *copy, int32_t *row, uint64_t first,
                      int32_t padding) {
  uint64_t left = data->token_count - first, count = left < data->sequence ? left : data->sequence;
  copy(data, row, first, count);
  for (uint64_t t = count; t < data->sequence; t++) {
    row[t] = padding;
  }
}

static void plain_tokens(const struct pen_data *data, int32_t *row, uint64_t w) {
  plain_row(data, copy_tokens, row, w * data->sequence, 0);
}

static void plain_targets(const struct pen_data *data, int32_t *row, uint64_t w) {
  plain_row(data, copy_targets, row, w * data->sequence + 1, PEN_IGNORED_TARGET);
}

/* A window of a plain file is one document, unless the file has an index of them. */
static void plain_starts(const struct pen_data *data, int32_t *row, uint64_t w) {
  if (data->indexed.index == NULL) {
    memset(row, 0, data->sequence * sizeof *row);
  } else {
    pen_indexed_starts(&data->indexed, w * data->sequence, data->sequence, row);
  }
}

/* Tokens after the window are 0; no token with a target attends to them. */
static void packed_tokens(const struct pen_data *data, int32_t *row, uint64_t w) {
  const struct pen_packed_window *window = &data->packed.windows[w];
  pen_packed_check_window(&data->packed, data->path, w);
  copy_tokens(data, row, window->first_token, window->length);
  memset(row + window->length, 0, (data->sequence - window->length) * sizeof *row);
}

static void packed_targets(const struct pen_data *data, int32_t *row, uint64_t w) {
  const struct pen_packed_window *window = &data->packed.windows[w];
  const struct pen_packed_document *document = &data->packed.documents[window->first_document];
  pen_packed_check_window(&data->packed, data->path, w);
  for (uint64_t t = 0; t < data->sequence; t++) {
    row[t] = PEN_IGNORED_TARGET;
  }
  uint64_t at = 0;
  for (uint32_t d = 0; d < window->document_count; at += document[d].length, d++) {
    copy_targets(data, row + at, window->first_token + at + 1, document[d].length - 1);
  }
}

static void packed_starts(const struct pen_data *data, int32_t *row, uint64_t w) {
  const struct pen_packed_window *window = &data->packed.windows[w];
  const struct pen_packed_document *document = &data->packed.documents[window->first_document];
  uint64_t start = 0, past = document[0].length;
  uint32_t d = 0;
  for (uint64_t t = 0; t < data->sequence; t++) {
    if (t == past && d + 1 < window->document_count) { /* the padding belongs to the last one */
      start = past;
      past += document[++d].length;
    }
    row[t] = (int32_t)start;
  }
}

/* The input that a data op reads: its own, or that of its kind. */
static uint32_t input_index(const struct pen_call *call, uint32_t plain) {
  return call->dim[INPUT_DIM] > 0 ? (uint32_t)call->dim[INPUT_DIM] - 1 : plain;
}

/* Fills one sample of a microbatch from an input of a file, by its index in the plan. */
typedef void fill_sample(const struct pen_file_window *window, uint32_t input, void *to);

static void fill_samples(const struct pen_call *call, fill_sample *fill, uint32_t input,
                         size_t element_bytes) {
  struct pen_data *data = call->prepared;
  const uint64_t start_ns = pen_now_ns();
  unsigned char *to = call->operand[0];
  for (uint64_t row = 0; row < data->microbatch; row++) {
    const struct pen_file_window window = pen_data_locate(data, position_of(data, row));
    fill(&window, input, to);
    to += window.file->named[input].elements * element_bytes;
  }
  data->read_ns += pen_now_ns() - start_ns;
}

static void sample_ids(const struct pen_file_window *window, uint32_t input, void *to) {
  pen_named_ids(&window->file->named[input], window->file->path, window->index, false, to);
}

static void sample_targets(const struct pen_file_window *window, uint32_t input, void *to) {
  pen_named_ids(&window->file->named[input], window->file->path, window->index, true, to);
}

static void sample_f32(const struct pen_file_window *window, uint32_t input, void *to) {
  const struct pen_named_input *named = &window->file->named[input];
  pen_named_values(named, window->index, 0, named->elements, to);
}

static void sample_bf16(const struct pen_file_window *window, uint32_t input, void *to) {
  const struct pen_named_input *named = &window->file->named[input];
  float chunk[CHUNK];
  for (uint64_t done = 0; done < named->elements; done += CHUNK) {
    const size_t n = named->elements - done < CHUNK ? (size_t)(named->elements - done) : CHUNK;
    pen_named_values(named, window->index, done, n, chunk);
    pen_f32_to_bf16((uint16_t *)to + done, chunk, n);
  }
}

/* Whether a data op reads samples: its input, if it has one, may be that of texts (score). */
static bool reads_samples(const struct pen_call *call) {
  const struct pen_data *data = call->prepared;
  return data->named != NULL;
}

static void tokens_op(const struct pen_call *call) {
  if (reads_samples(call)) {
    fill_samples(call, sample_ids, input_index(call, PEN_PLAIN_TOKENS), sizeof(int32_t));
  } else {
    fill_rows(call, plain_tokens, packed_tokens);
  }
}

/* Where the file is read once, the last step may read windows of its start again: no target of them
 * counts a second time. */
static void ignore_past_end(const struct pen_data *data, const struct pen_call *call) {
  int32_t *to = call->operand[0];
  for (uint64_t t = 0; data->to_end && t < (uint64_t)call->dim[0]; t++) {
    if (position_of(data, t / data->sequence) >= data->window_count) {
      to[t] = PEN_IGNORED_TARGET;
    }
  }
}

static void targets_op(const struct pen_call *call) {
  const struct pen_data *data = call->prepared;
  double *share = call->operand[1];
  if (reads_samples(call)) {
    fill_samples(call, sample_targets, input_index(call, PEN_PLAIN_TARGETS), sizeof(int32_t));
  } else {
    fill_rows(call, plain_targets, packed_targets);
    ignore_past_end(data, call);
  }
  *share = data->loss_is_sum         ? 1.0
           : data->step_targets == 0 ? 0.0
                                     : 1.0 / (double)data->step_targets;
}

static void share_op(const struct pen_call *call) {
  const struct pen_data *data = call->prepared;
  double share[PEN_SHARES_MAX], *const to = call->operand[0];
  *to = data->share[call->dim[0]];
  if (data->loss_of_microbatch) {
    pen_data_shares(data, position_of(data, 0), data->microbatch, share);
    *to = share[call->dim[0]] * (double)data->microbatch / (double)data->step_windows;
  }
}

/* Without a file, where blocks are measured: zeros. */
static void input_of(const struct pen_call *call, fill_sample *fill, size_t element_bytes) {
  if (reads_samples(call)) {
    fill_samples(call, fill, input_index(call, 0), element_bytes);
  } else {
    memset(call->operand[0], 0,
           (uint64_t)call->dim[0] * (uint64_t)call->dim[WIDTH_DIM] * element_bytes);
  }
}

static void input_op(const struct pen_call *call) { input_of(call, sample_f32, sizeof(float)); }
static void input_bf16_op(const struct pen_call *call) {
  input_of(call, sample_bf16, sizeof(uint16_t));
}

static void starts_op(const struct pen_call *call) { fill_rows(call, plain_starts, packed_starts); }

/* Without a hook of the command: sequences from their start, each in its own slot. */
static void positions_op(const struct pen_call *call) {
  int32_t *slot = call->operand[1];
  memset(call->operand[0], 0, (size_t)call->dim[0] * sizeof(int32_t));
  for (int64_t r = 0; r < call->dim[1]; r++) {
    slot[r] = (int32_t)r;
  }
}

/* Without a hook of the command: the last row of each sequence. */
static void last_tokens_op(const struct pen_call *call) {
  int32_t *target = call->operand[0], *index = call->operand[2];
  for (int64_t r = 0; r < call->dim[0]; r++) {
    target[r] = PEN_IGNORED_TARGET;
    index[r] = (int32_t)((r + 1) * call->dim[1] - 1);
  }
  *(double *)call->operand[1] = 0.0;
}

/* Normals of one window, from `first` of its stream on, in the op's dtype. */
typedef void normals(void *to, uint64_t count, uint64_t first, const uint32_t key[2]);

static void normals_f32(void *to, uint64_t count, uint64_t first, const uint32_t key[2]) {
  pen_normal(to, count, first, key, 1.0);
}

static void normals_bf16(void *to, uint64_t count, uint64_t first, const uint32_t key[2]) {
  float chunk[CHUNK];
  for (uint64_t done = 0; done < count; done += CHUNK) {
    size_t n = count - done < CHUNK ? (size_t)(count - done) : CHUNK;
    pen_normal(chunk, n, first + done, key, 1.0);
    pen_f32_to_bf16((uint16_t *)to + done, chunk, n);
  }
}

/* dims: rows width stream sequence. Each window has its own part of the stream, so that its numbers
 * do not depend on the microbatch that reads it. */
static void normal_windows(const struct pen_call *call, normals *make, size_t element_bytes) {
  const struct pen_data *data = call->prepared;
  uint64_t width = (uint64_t)call->dim[1], stream = (uint64_t)call->dim[2],
           sequence = (uint64_t)call->dim[3];
  uint64_t rows = (uint64_t)call->dim[0] / sequence, window_numbers = sequence * width;
  unsigned char *to = call->operand[0];
  for (uint64_t row = 0; row < rows; row++) {
    uint64_t first = position_of(data, row) * window_numbers;
    make(to + row * window_numbers * element_bytes, window_numbers, first,
         data->normal_key[stream & 1]);
  }
}

static void normal_op(const struct pen_call *call) {
  normal_windows(call, normals_f32, sizeof(float));
}
static void normal_bf16_op(const struct pen_call *call) {
  normal_windows(call, normals_bf16, sizeof(uint16_t));
}

pen_kernel *pen_data_op(unsigned kind, unsigned dtype) {
  static const struct {
    pen_kernel *f32, *bf16; /* by the dtype of the op; bf16 null: it has no other */
  } op[PEN_OP_COUNT] = {
      [PEN_OP_TOKENS] = {tokens_op, NULL},           [PEN_OP_TARGETS] = {targets_op, NULL},
      [PEN_OP_STARTS] = {starts_op, NULL},           [PEN_OP_POSITIONS] = {positions_op, NULL},
      [PEN_OP_LAST_TOKENS] = {last_tokens_op, NULL}, [PEN_OP_NORMAL] = {normal_op, normal_bf16_op},
      [PEN_OP_INPUT] = {input_op, input_bf16_op},    [PEN_OP_SHARE] = {share_op, NULL},
  };
  return dtype == PEN_BF16 && op[kind].bf16 != NULL ? op[kind].bf16 : op[kind].f32;
}
