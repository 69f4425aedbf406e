/* data.c: token windows and normals, the inputs of a step (see data.h). */
#include "runtime/data/step_inputs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/storage/initial_weights.h"

enum { HEADER_INTS = 256, HEADER_BYTES = 4 * HEADER_INTS, HEADER_SHORTEST_BYTES = 8 };

/* llm.c's headers: of tokens of 16 bits, and of those of 32 bits, as its Llama 3 has them. */
static const struct plain {
  int32_t magic, version;
  uint32_t token_bytes;
} plains[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static int32_t little_endian_i32(const unsigned char *from) {
  return (int32_t)((uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
                   (uint32_t)from[3] << 24);
}

uint32_t pen_data_token(const struct pen_data *data, uint64_t index) {
  const unsigned char *from = data->tokens + index * data->token_bytes;
  uint32_t low = (uint32_t)from[0] | (uint32_t)from[1] << 8;
  return data->token_bytes == 2 ? low : low | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

/* Checks the header of a plain file, and sets the bytes of a token; returns the count of tokens. */
static uint64_t check_header(struct pen_data *data, const char *path, const unsigned char *header,
                             uint64_t file_bytes) {
  if (file_bytes < HEADER_BYTES) {
    pen_fail(PEN_EXIT_DATA, "%s: %" PRIu64 " bytes: a token file has a header of %d bytes", path,
             file_bytes, HEADER_BYTES);
  }
  int32_t magic = little_endian_i32(header), version = little_endian_i32(header + 4),
          count = little_endian_i32(header + 8);
  for (size_t i = 0; i < sizeof plains / sizeof plains[0]; i++) {
    if (magic == plains[i].magic && version == plains[i].version) {
      data->token_bytes = plains[i].token_bytes;
    }
  }
  if (data->token_bytes == 0) {
    pen_fail(PEN_EXIT_DATA,
             "%s: not a token file: it starts with %d, version %d; expected %d, version %d, or %d, "
             "version %d, or %s",
             path, magic, version, plains[0].magic, plains[0].version, plains[1].magic,
             plains[1].version, PEN_PACKED_MAGIC);
  }
  uint64_t expected = HEADER_BYTES + (uint64_t)(count < 0 ? 0 : count) * data->token_bytes;
  if (count < 0 || file_bytes != expected) {
    pen_fail(PEN_EXIT_DATA,
             "%s: %" PRIu64 " bytes: its header counts %d tokens, which take %" PRIu64 " bytes",
             path, file_bytes, count, expected);
  }
  return (uint64_t)count;
}

static void take_plain(struct pen_data *data, const char *path, const unsigned char *file,
                       uint64_t file_bytes, bool to_end) {
  uint64_t count = check_header(data, path, file, file_bytes), targets = count == 0 ? 0 : count - 1;
  data->token_count = count;
  data->window_count = targets / data->sequence + (to_end && targets % data->sequence > 0);
  if (to_end && targets == 0) {
    pen_fail(PEN_EXIT_DATA,
             "%s: %" PRIu64 " tokens: the first is foretold by nothing, so two are needed", path,
             count);
  }
  if (data->window_count == 0) {
    pen_fail(PEN_EXIT_DATA,
             "%s: %" PRIu64 " tokens: one window of sequence %" PRIu64 " needs %" PRIu64, path,
             count, data->sequence, data->sequence + 1);
  }
  data->tokens = file + HEADER_BYTES;
}

/* What the file holds must fit what the plan was made for. */
static void take_packed(struct pen_data *data, const struct pen_plan *plan, const char *path,
                        const unsigned char *file, uint64_t file_bytes) {
  pen_packed_check(&data->packed, path, file, file_bytes);
  const struct pen_packed_header *header = data->packed.header;
  if (header->window_count == 0) {
    pen_fail(PEN_EXIT_DATA, "%s: it has no windows", path);
  }
  if (header->longest > data->sequence) {
    pen_fail(PEN_EXIT_DATA,
             "%s: windows of up to %" PRIu32 " tokens: sequences of this binary hold %" PRIu64,
             path, header->longest, data->sequence);
  }
  for (uint64_t w = 0; w < header->window_count && !plan->packed; w++) {
    if (data->packed.windows[w].document_count > 1) {
      pen_fail(PEN_EXIT_DATA,
               "%s: window %" PRIu64 " holds %" PRIu32
               " documents: this binary was built with batch.packed = false",
               path, w, data->packed.windows[w].document_count);
    }
  }
  if (header->target_count == 0) {
    pen_fail(PEN_EXIT_DATA,
             "%s: no window has a target: each of its %" PRIu64
             " documents is one token, which nothing foretells",
             path, header->document_count);
  }
  data->token_bytes = header->token_bytes;
  data->window_count = header->window_count;
  data->tokens = data->packed.tokens;
}

static void open_tokens(struct pen_data *data, const struct pen_plan *plan, const char *path,
                        bool to_end) {
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status;
  if (descriptor < 0 || fstat(descriptor, &status) != 0) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: %s", path, strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: not a regular file", path);
  }
  if (status.st_size < HEADER_SHORTEST_BYTES) {
    pen_fail(PEN_EXIT_DATA, "%s: %jd bytes: a token file has a header of %d bytes", path,
             (intmax_t)status.st_size, HEADER_BYTES);
  }
  const unsigned char *file =
      mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  pen_check(file != MAP_FAILED, "%s: cannot map %jd bytes", path, (intmax_t)status.st_size);
  close(descriptor);
  data->path = path;
  if (memcmp(file, PEN_PACKED_MAGIC, HEADER_SHORTEST_BYTES) == 0) {
    take_packed(data, plan, path, file, (uint64_t)status.st_size);
  } else {
    take_plain(data, path, file, (uint64_t)status.st_size, to_end);
  }
}

static void open_data(struct pen_data *data, const struct pen_plan *plan, uint64_t sequence,
                      const char *path, uint64_t seed, bool to_end) {
  *data =
      (struct pen_data){.sequence = sequence, .vocab = plan->vocab, .microbatch = plan->microbatch};
  pen_key(data->normal_key[0], seed, "x");
  pen_key(data->normal_key[1], seed, "y");
  if (path != NULL) {
    open_tokens(data, plan, path, to_end);
  }
}

void pen_data_open(struct pen_data *data, const struct pen_plan *plan, uint64_t sequence,
                   const char *path, uint64_t seed) {
  open_data(data, plan, sequence, path, seed, false);
}

void pen_data_open_to_end(struct pen_data *data, const struct pen_plan *plan, uint64_t sequence,
                          const char *path, uint64_t seed) {
  open_data(data, plan, sequence, path, seed, true);
}

uint64_t pen_data_step_windows(const struct pen_plan *plan, const struct pen_profile *profile) {
  return (uint64_t)plan->replica_count * profile->microbatch_count * plan->microbatch;
}

uint64_t pen_data_longest(const struct pen_data *data, uint64_t first, uint64_t count) {
  if (data->packed.header == NULL) {
    return data->sequence;
  }
  uint64_t longest = 0;
  for (uint64_t w = 0; w < count; w++) {
    uint64_t length = data->packed.windows[(first + w) % data->window_count].length;
    longest = length > longest ? length : longest;
  }
  return longest;
}

uint64_t pen_data_targets(const struct pen_data *data, uint64_t first, uint64_t count) {
  if (data->packed.header == NULL) {
    return count * data->sequence;
  }
  uint64_t targets = 0;
  for (uint64_t w = 0; w < count; w++) {
    targets += data->packed.windows[(first + w) % data->window_count].target_count;
  }
  return targets;
}

void pen_data_begin_step(struct pen_data *data, uint64_t cursor, uint64_t count) {
  data->cursor = cursor;
  data->step_targets = pen_data_targets(data, cursor, count);
}

/* The window that row `row` of the current microbatch reads, as it is counted: not yet folded into
 * the file. */
static uint64_t window_of(const struct pen_data *data, uint64_t row) {
  return data->cursor + data->row_microbatch * data->microbatch + row;
}

/* Copies `count` tokens of the file. */
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

/* Fills one row of a kind of input, of `sequence` numbers, from window `w` of the file. */
typedef void fill_row(const struct pen_data *data, int32_t *row, uint64_t w);

static void fill_rows(const struct pen_call *call, fill_row *plain, fill_row *packed) {
  const struct pen_data *data = call->prepared;
  int32_t *to = call->operand[0];
  uint64_t rows = (uint64_t)call->dim[0] / data->sequence;
  for (uint64_t row = 0; row < rows; row++) {
    uint64_t w = window_of(data, row) % data->window_count;
    (data->packed.header == NULL ? plain : packed)(data, to + row * data->sequence, w);
  }
}

/* The file's tokens from `first` on, and behind its end `padding`: only a last window of what is
 * left reaches there. */
static void plain_row(const struct pen_data *data, int32_t *row, uint64_t first, int32_t padding) {
  uint64_t left = data->token_count - first, count = left < data->sequence ? left : data->sequence;
  copy_tokens(data, row, first, count);
  for (uint64_t t = count; t < data->sequence; t++) {
    row[t] = padding;
  }
}

static void plain_tokens(const struct pen_data *data, int32_t *row, uint64_t w) {
  plain_row(data, row, w * data->sequence, 0);
}

static void plain_targets(const struct pen_data *data, int32_t *row, uint64_t w) {
  plain_row(data, row, w * data->sequence + 1, PEN_IGNORED_TARGET);
}

/* A window of a plain file is one document. */
static void plain_starts(const struct pen_data *data, int32_t *row, uint64_t w) {
  (void)w;
  memset(row, 0, data->sequence * sizeof *row);
}

/* What follows the window is token 0: nothing that has a target sees it. */
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
    copy_tokens(data, row + at, window->first_token + at + 1, document[d].length - 1);
  }
}

static void packed_starts(const struct pen_data *data, int32_t *row, uint64_t w) {
  const struct pen_packed_window *window = &data->packed.windows[w];
  const struct pen_packed_document *document = &data->packed.documents[window->first_document];
  uint64_t start = 0, past = document[0].length;
  uint32_t d = 0;
  for (uint64_t t = 0; t < data->sequence; t++) {
    if (t == past &&
        d + 1 < window->document_count) { /* after the last comes padding, which belongs to it */
      start = past;
      past += document[++d].length;
    }
    row[t] = (int32_t)start;
  }
}

static void tokens_op(const struct pen_call *call) { fill_rows(call, plain_tokens, packed_tokens); }

static void targets_op(const struct pen_call *call) {
  const struct pen_data *data = call->prepared;
  double *share = call->operand[1];
  fill_rows(call, plain_targets, packed_targets);
  *share = data->step_targets == 0 ? 0.0 : 1.0 / (double)data->step_targets;
}

static void starts_op(const struct pen_call *call) { fill_rows(call, plain_starts, packed_starts); }

/* Normals of one window, from `first` of its stream on, in the op's dtype. */
typedef void normals(void *to, uint64_t count, uint64_t first, const uint32_t key[2]);

static void normals_f32(void *to, uint64_t count, uint64_t first, const uint32_t key[2]) {
  pen_normal(to, count, first, key, 1.0);
}

static void normals_bf16(void *to, uint64_t count, uint64_t first, const uint32_t key[2]) {
  enum { CHUNK = 1024 };
  float chunk[CHUNK];
  for (uint64_t done = 0; done < count; done += CHUNK) {
    size_t n = count - done < CHUNK ? (size_t)(count - done) : CHUNK;
    pen_normal(chunk, n, first + done, key, 1.0);
    pen_f32_to_bf16((uint16_t *)to + done, chunk, n);
  }
}

/* dims: rows width stream sequence. Each window takes its own stretch of the stream, so that a
 * window's numbers do not depend on the microbatch that reads it. */
static void normal_windows(const struct pen_call *call, normals *make, size_t element_bytes) {
  const struct pen_data *data = call->prepared;
  uint64_t width = (uint64_t)call->dim[1], stream = (uint64_t)call->dim[2],
           sequence = (uint64_t)call->dim[3];
  uint64_t rows = (uint64_t)call->dim[0] / sequence, window_numbers = sequence * width;
  unsigned char *to = call->operand[0];
  for (uint64_t row = 0; row < rows; row++) {
    uint64_t first = window_of(data, row) * window_numbers;
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
  static pen_kernel *const op[PEN_OP_COUNT] = {
      [PEN_OP_TOKENS] = tokens_op,
      [PEN_OP_TARGETS] = targets_op,
      [PEN_OP_STARTS] = starts_op,
      [PEN_OP_NORMAL] = normal_op,
  };
  return kind == PEN_OP_NORMAL && dtype == PEN_BF16 ? normal_bf16_op : op[kind];
}
