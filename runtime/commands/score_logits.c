/* score_logits.c: the logits of each token (see score_logits.h). */
#include "runtime/commands/score_logits.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/text_writer.h"
#include "runtime/commands/logits.h"
#include "runtime/data/windows.h"
#include "runtime/storage/safetensors.h"
#include "runtime/storage/tensor_splits.h"

enum { HEADER_BYTES = 512, DIGITS = 9, CHUNK_BYTES = 4096 };

/* One of the K largest logits. A record of a row has K, in falling order, of each tensor rank, of
 * its own tokens; if these are fewer than K, the others are none. */
struct ranked {
  uint32_t past_id; /* id + 1; 0: none, as in what a file holds before it is written */
  float logit;
};

static struct {
  const char *path;          /* null: no --logits */
  char unfinished[PATH_MAX]; /* FILE.tmp */
  int descriptor;            /* of the records */
  uint32_t top;              /* K, at most the vocab */
  size_t record_bytes, vocab;
  uint64_t first_record; /* bytes before it */
  uint64_t entry_count;
  const uint64_t *first_entry; /* [document], or null */
  float *row;                  /* [vocab]: of a bf16 model, as f32 */
  size_t row_count;
  struct ranked *ranked; /* [row_count][top]: of rows of which splits were added; or a record */
  /* Of a rank: its tokens, and how many of its logits a record has. */
  size_t first_token, past_token;
  uint32_t own_top;
} logits = {.descriptor = -1};

bool pen_score_logits_wanted(void) { return logits.path != NULL; }

static _Noreturn void fail_write(void) {
  const int cause = errno;
  unlink(logits.unfinished);
  pen_fail(PEN_EXIT_CANNOT_WRITE, "--logits %s: %s", logits.path, strerror(cause));
}

/* ---- the file ---- */

/* Each token once: a later split of a document begins with the last token of the split before. */
static uint64_t count_entries(const struct pen_data *data) {
  const struct pen_packed *packed = &data->packed;
  uint64_t count = packed->header == NULL ? data->token_count : 0;
  for (uint64_t d = 0; packed->header != NULL && d < packed->header->document_count; d++) {
    count += packed->documents[d].length - (packed->documents[d].first != 0);
  }
  return count;
}

static int create(void) {
  const int descriptor =
      open(logits.unfinished, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor < 0) {
    pen_fail(PEN_EXIT_CANNOT_CREATE, "--logits %s: cannot create %s: %s", logits.path,
             logits.unfinished, strerror(errno));
  }
  return descriptor;
}

/* The whole file is reserved, so that a full disk is noticed before anything is computed. */
static void start_tensor(void) {
  char header[HEADER_BYTES];
  const uint64_t count = logits.entry_count, bytes = count * logits.record_bytes;
  snprintf(header, sizeof header,
           "{\"logits\":{\"dtype\":\"F32\",\"shape\":[%" PRIu64 ",%zu],\"data_offsets\":[0,%" PRIu64
           "]},\"predicted\":{\"dtype\":\"U8\",\"shape\":[%" PRIu64 "],\"data_offsets\":[%" PRIu64
           ",%" PRIu64 "]}}",
           count, logits.vocab, bytes, count, bytes, bytes + count);
  if (pen_safetensors_start(logits.descriptor, header, HEADER_BYTES) != 0 ||
      pen_file_reserve(logits.descriptor, HEADER_BYTES + bytes + count) != 0) {
    fail_write();
  }
}

void pen_score_logits_open(const struct pen_run *run) {
  const struct pen_options *options = run->options;
  struct stat present;
  if (options->logits == NULL) {
    return;
  }
  if (run->plan->host_count > 1 && pen_group_size(run->plan, PEN_DATA) > 1) {
    pen_fail(PEN_EXIT_USAGE,
             "--logits %s: the replicas, whose weights are sharded, are on %u hosts; they must be "
             "on one",
             options->logits, run->plan->host_count);
  }
  if (stat(options->logits, &present) == 0 && !S_ISREG(present.st_mode)) {
    pen_fail(PEN_EXIT_USAGE, "--logits %s: not a regular file", options->logits);
  }
  logits.path = options->logits;
  logits.vocab = run->plan->vocab;
  logits.top =
      options->logits_top < logits.vocab ? (uint32_t)options->logits_top : (uint32_t)logits.vocab;
  logits.record_bytes =
      logits.top == 0 ? logits.vocab * sizeof(float)
                      : pen_group_size(run->plan, PEN_TENSOR) * logits.top * sizeof(struct ranked);
  logits.first_record = logits.top == 0 ? HEADER_BYTES : 0;
  logits.entry_count = count_entries(&run->data);
  if (pen_path_suffix(logits.unfinished, logits.path, ".tmp") != 0) {
    pen_fail(PEN_EXIT_CANNOT_CREATE, "--logits %s: %s", logits.path, strerror(errno));
  }
  pen_files_report_size_limit();
  logits.descriptor = create();
  if (logits.top == 0) {
    start_tensor();
  } else {
    unlink(logits.unfinished); /* the records are not the result: FILE.tmp is made of them */
  }
}

void pen_score_logits_close(void) {
  if (logits.descriptor >= 0) {
    unlink(logits.unfinished);
  }
}

/* ---- within a step ---- */

void pen_score_logits_prepare(const struct pen_vm *vm, const uint64_t *first_entry, size_t rows) {
  const uint32_t tensor_rank = vm->endpoint->tensor_rank,
                 tensor_ranks = pen_group_size(vm->plan, PEN_TENSOR);
  logits.first_entry = first_entry;
  logits.first_token = pen_first_token(vm->plan, tensor_rank);
  logits.past_token = pen_first_token(vm->plan, tensor_rank + 1);
  logits.own_top = logits.past_token - logits.first_token < logits.top
                       ? (uint32_t)(logits.past_token - logits.first_token)
                       : logits.top;
  logits.row = calloc(logits.vocab, sizeof *logits.row);
  logits.row_count = rows;
  logits.ranked =
      calloc((rows > tensor_ranks ? rows : tensor_ranks) * logits.top + 1u, sizeof *logits.ranked);
  pen_check(logits.row != NULL && logits.ranked != NULL, "no memory for %zu logits", logits.vocab);
}

/* The entry that a row of a window predicts, or UINT64_MAX: none. */
static uint64_t entry_of(const struct pen_data *data, uint64_t window_index, uint64_t at) {
  const struct pen_packed *packed = &data->packed;
  if (window_index >= data->window_count) {
    return UINT64_MAX; /* the last step reads past the end of the file */
  }
  if (packed->header == NULL) {
    const uint64_t entry = window_index * data->sequence + at + 1;
    return entry < data->token_count ? entry : UINT64_MAX;
  }
  const struct pen_packed_window *window = &packed->windows[window_index];
  uint64_t d = window->first_document;
  const uint64_t past = d + window->document_count;
  for (; d < past && at >= packed->documents[d].length; d++) {
    at -= packed->documents[d].length;
  }
  return d < past && at + 1 < packed->documents[d].length ? logits.first_entry[d] + at + 1
                                                          : UINT64_MAX;
}

/* A total order, in which NaN is the largest. */
static bool is_larger(struct ranked one, struct ranked other) {
  const bool is_nan = isnan(one.logit), other_is_nan = isnan(other.logit);
  if (is_nan != other_is_nan) {
    return is_nan;
  }
  return one.logit > other.logit ||
         ((is_nan || one.logit == other.logit) && one.past_id < other.past_id);
}

/* Lets the entry at `at` of a heap[count] sink, so that each is smaller than those below it. */
static void sink(struct ranked *heap, uint32_t count, uint32_t at) {
  for (uint32_t below; (below = 2 * at + 1) < count; at = below) {
    below += below + 1 < count && is_larger(heap[below], heap[below + 1]);
    if (is_larger(heap[below], heap[at])) {
      return;
    }
    const struct ranked swap = heap[at];
    heap[at] = heap[below];
    heap[below] = swap;
  }
}

/* Adds logits, from token `first` on, to the K largest so far: a heap with the smallest at its top
 * (Williams 1964). */
static void rank_logits(struct ranked *heap, const float *row, size_t first, size_t count) {
  const uint32_t top = logits.own_top;
  const size_t before = first - logits.first_token;
  uint32_t filled = before < top ? (uint32_t)before : top;
  for (size_t i = 0; i < count; i++) {
    const struct ranked next = {(uint32_t)(first + i) + 1, row[i]};
    if (filled < top) {
      heap[filled++] = next;
      for (uint32_t at = filled == top ? top / 2 : 0; at-- > 0;) {
        sink(heap, top, at);
      }
    } else if (is_larger(next, heap[0])) {
      heap[0] = next;
      sink(heap, top, 0);
    }
  }
}

/* Sorts them in falling order. */
static void sort_ranked(struct ranked *heap) {
  for (uint32_t count = logits.own_top; count-- > 1;) {
    const struct ranked smallest = heap[0];
    heap[0] = heap[count];
    heap[count] = smallest;
    sink(heap, count, 0);
  }
}

/* Writes a part of a record, from byte `at` on. */
static void write_part(const void *part, size_t bytes, uint64_t entry, size_t at) {
  if (pen_file_write_at(logits.descriptor, part, bytes,
                        logits.first_record + entry * logits.record_bytes + at) != 0) {
    fail_write();
  }
}

void pen_score_logits_add(const struct pen_vm *vm, uint64_t row_index, const void *row,
                          size_t first, size_t count) {
  const uint64_t sequence = vm->profile->sequence;
  const uint64_t entry =
      entry_of(&vm->data, vm->data.cursor + row_index / sequence, row_index % sequence);
  if (entry == UINT64_MAX) {
    return;
  }
  const float *floats = pen_logit_row(vm->plan, row, count, logits.row);
  if (logits.top == 0) {
    write_part(floats, count * sizeof *floats, entry, first * sizeof *floats);
    return;
  }
  struct ranked *heap = logits.ranked + row_index % logits.row_count * logits.top;
  rank_logits(heap, floats, first, count);
  if (first + count == logits.past_token) {
    sort_ranked(heap);
    write_part(heap, logits.own_top * sizeof *heap, entry,
               vm->endpoint->tensor_rank * logits.top * sizeof *heap);
  }
}

/* ---- after the last step ---- */

static void write_predicted(const unsigned char *values, size_t count, uint64_t entry) {
  if (pen_file_write_at(logits.descriptor, values, count,
                        logits.first_record + logits.entry_count * logits.record_bytes + entry) !=
      0) {
    fail_write();
  }
}

/* The row of a token that nothing predicts is of NaN, so that it is not taken for logits. */
static void write_unpredicted(uint64_t entry) {
  static const unsigned char no = 0;
  for (size_t i = 0; i < logits.vocab; i++) {
    logits.row[i] = NAN;
  }
  write_part(logits.row, logits.record_bytes, entry, 0);
  write_predicted(&no, 1, entry);
}

/* The tensor `predicted`, and the rows that it tells apart. */
static void finish_tensors(const struct pen_packed *packed) {
  unsigned char yes[CHUNK_BYTES];
  memset(yes, 1, sizeof yes);
  for (uint64_t entry = 0, left; (left = logits.entry_count - entry) > 0;) {
    const size_t count = left < sizeof yes ? (size_t)left : sizeof yes;
    write_predicted(yes, count, entry);
    entry += count;
  }
  if (packed->header == NULL) {
    write_unpredicted(0);
    return;
  }
  for (uint64_t d = 0; d < packed->header->document_count; d++) {
    if (packed->documents[d].first == 0) {
      write_unpredicted(logits.first_entry[d]);
    }
  }
}

/* The largest logit of a record that has not been taken: of each of so many tensor ranks the first
 * taken[] ones have. */
static struct ranked take_largest(const struct ranked *record, uint32_t tensor_ranks,
                                  uint32_t *taken) {
  struct ranked largest = {0, 0.0F};
  uint32_t of = 0;
  for (uint32_t m = 0; m < tensor_ranks; m++) {
    const struct ranked next =
        taken[m] < logits.top ? record[m * logits.top + taken[m]] : (struct ranked){0, 0.0F};
    if (next.past_id != 0 && (largest.past_id == 0 || is_larger(next, largest))) {
      largest = next;
      of = m;
    }
  }
  taken[of]++;
  return largest;
}

static void write_line(struct pen_writer *out, const struct ranked *record, uint32_t tensor_ranks,
                       uint32_t *taken) {
  memset(taken, 0, tensor_ranks * sizeof *taken);
  pen_writer_text(out, record->past_id == 0 ? "null\n" : "[");
  for (uint32_t i = 0; record->past_id != 0 && i < logits.top; i++) {
    const struct ranked next = take_largest(record, tensor_ranks, taken);
    char text[PEN_JSON_NUMBER_BYTES];
    pen_json_any_number(text, sizeof text, DIGITS, (double)next.logit);
    pen_writer_print(out, "%s[%" PRIu32 ", %s]%s", i == 0 ? "" : ", ", next.past_id - 1, text,
                     i + 1 < logits.top ? "" : "]\n");
  }
}

/* Makes FILE.tmp of the records. Returns its descriptor. */
static int write_lines(uint32_t tensor_ranks) {
  struct pen_writer out;
  uint32_t *taken =
      pen_allocate(tensor_ranks, sizeof *taken, "the logits of %u tensor ranks", tensor_ranks);
  const int descriptor = create();
  pen_writer_open(&out, descriptor);
  for (uint64_t entry = 0; entry < logits.entry_count; entry++) {
    memset(logits.ranked, 0, logits.record_bytes); /* past the end of the file */
    if (pen_file_read_at(logits.descriptor, logits.ranked, logits.record_bytes,
                         entry * logits.record_bytes) < 0) {
      fail_write();
    }
    write_line(&out, logits.ranked, tensor_ranks, taken);
  }
  if (pen_writer_flush(&out) != 0) {
    fail_write();
  }
  free(taken);
  return descriptor;
}

void pen_score_logits_finish(const struct pen_vm *vm) {
  int descriptor = logits.descriptor;
  if (vm->data.cursor + pen_data_step_windows(vm->plan, vm->profile) < vm->data.window_count) {
    pen_warn("--logits %s: not written, since the rest of %s was not read", logits.path,
             vm->data.path);
    return;
  }
  if (logits.top == 0) {
    finish_tensors(&vm->data.packed);
  } else {
    descriptor = write_lines(pen_group_size(vm->plan, PEN_TENSOR));
  }
  if (pen_file_sync_close(descriptor, 0) != 0 || rename(logits.unfinished, logits.path) != 0 ||
      pen_folder_sync_of(logits.path) != 0) {
    fail_write();
  }
}
