/* data.c: token windows and normals, the inputs of a step (see data.h). */
#include "runtime/data.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/check.h"
#include "runtime/initial.h"

enum { HEADER_INTS = 256, HEADER_BYTES = 4 * HEADER_INTS, TOKEN_MAGIC = 20240520, TOKEN_VERSION = 1, TOKEN_BYTES = 2 };

static int32_t little_endian_i32(const unsigned char *from) {
  return (int32_t)((uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24);
}

uint32_t pen_data_token(const struct pen_data *data, uint64_t index) {
  const unsigned char *from = (const unsigned char *)(data->tokens + index);
  return (uint32_t)from[0] | (uint32_t)from[1] << 8;
}

/* Reads and checks the header; returns the count of tokens. */
static uint64_t check_header(const char *path, int descriptor, uint64_t file_bytes) {
  unsigned char header[12];
  if (file_bytes < HEADER_BYTES || pread(descriptor, header, sizeof header, 0) != (ssize_t)sizeof header) {
    pen_fail(PEN_EXIT_DATA, "%s: %" PRIu64 " bytes: a token file has a header of %d bytes", path, file_bytes, HEADER_BYTES);
  }
  int32_t magic = little_endian_i32(header), version = little_endian_i32(header + 4), count = little_endian_i32(header + 8);
  if (magic != TOKEN_MAGIC || version != TOKEN_VERSION) {
    pen_fail(PEN_EXIT_DATA, "%s: not a token file: it starts with %d, version %d; expected %d, version %d", path, magic, version,
             TOKEN_MAGIC, TOKEN_VERSION);
  }
  uint64_t expected = HEADER_BYTES + (uint64_t)(count < 0 ? 0 : count) * TOKEN_BYTES;
  if (count < 0 || file_bytes != expected) {
    pen_fail(PEN_EXIT_DATA, "%s: %" PRIu64 " bytes: its header counts %d tokens, which take %" PRIu64 " bytes", path, file_bytes,
             count, expected);
  }
  return (uint64_t)count;
}

static void open_tokens(struct pen_data *data, const char *path) {
  int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  struct stat status;
  if (descriptor < 0 || fstat(descriptor, &status) != 0) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: %s", path, strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: not a regular file", path);
  }
  uint64_t count = check_header(path, descriptor, (uint64_t)status.st_size);
  data->window_count = count == 0 ? 0 : (count - 1) / data->sequence;
  if (data->window_count == 0) {
    pen_fail(PEN_EXIT_DATA, "%s: %" PRIu64 " tokens: one window of sequence %" PRIu64 " needs %" PRIu64, path, count,
             data->sequence, data->sequence + 1);
  }
  unsigned char *memory = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  pen_check(memory != MAP_FAILED, "%s: cannot map %jd bytes", path, (intmax_t)status.st_size);
  close(descriptor);
  data->path = path;
  data->tokens = (const uint16_t *)(memory + HEADER_BYTES);
}

void pen_data_open(struct pen_data *data, const struct pen_plan *plan, const char *path, uint64_t seed) {
  *data = (struct pen_data){.sequence = plan->sequence, .vocab = plan->vocab, .microbatch = plan->microbatch};
  pen_key(data->normal_key[0], seed, "x");
  pen_key(data->normal_key[1], seed, "y");
  if (path != NULL) {
    open_tokens(data, path);
  }
}

uint64_t pen_data_step_windows(const struct pen_plan *plan) {
  return (uint64_t)plan->microbatch_count * plan->microbatch;
}

uint64_t pen_data_targets(const struct pen_data *data, uint64_t first, uint64_t count) {
  (void)first;
  return count * data->sequence;
}

void pen_data_begin_step(struct pen_data *data, uint64_t cursor, uint64_t count) {
  data->cursor = cursor;
  data->step_targets = pen_data_targets(data, cursor, count);
}

/* The window that row `row` of the current microbatch reads, as it is counted: not yet folded into the file. */
static uint64_t window_of(const struct pen_data *data, uint64_t row) {
  return data->cursor + data->row_microbatch * data->microbatch + row;
}

/* Copies rows of `sequence` tokens, each window's from `shift` on. */
static void copy_tokens(const struct pen_call *call, uint64_t shift) {
  const struct pen_data *data = call->prepared;
  int32_t *to = call->operand[0];
  uint64_t rows = (uint64_t)call->dim[0] / data->sequence;
  for (uint64_t row = 0; row < rows; row++) {
    uint64_t first = window_of(data, row) % data->window_count * data->sequence + shift;
    for (uint64_t t = 0; t < data->sequence; t++) {
      uint32_t token = pen_data_token(data, first + t);
      if (__builtin_expect(token >= data->vocab, 0)) {
        pen_fail(PEN_EXIT_DATA, "%s: token %" PRIu64 " is %u: the model's vocab is %" PRIu64, data->path, first + t, token,
                 data->vocab);
      }
      to[row * data->sequence + t] = (int32_t)token;
    }
  }
}

static void tokens_op(const struct pen_call *call) {
  copy_tokens(call, 0);
}

static void targets_op(const struct pen_call *call) {
  const struct pen_data *data = call->prepared;
  double *share = call->operand[1];
  copy_tokens(call, 1);
  *share = 1.0 / (double)data->step_targets;
}

/* A window of a plain file is one document. */
static void starts_op(const struct pen_call *call) {
  memset(call->operand[0], 0, (size_t)call->dim[0] * sizeof(int32_t));
}

/* dims: rows width stream sequence. Each window takes its own stretch of the stream, so that a window's numbers do not depend
 * on the microbatch that reads it. */
static void normal_op(const struct pen_call *call) {
  const struct pen_data *data = call->prepared;
  uint64_t width = (uint64_t)call->dim[1], stream = (uint64_t)call->dim[2], sequence = (uint64_t)call->dim[3];
  uint64_t rows = (uint64_t)call->dim[0] / sequence, window_numbers = sequence * width;
  float *to = call->operand[0];
  for (uint64_t row = 0; row < rows; row++) {
    uint64_t first = window_of(data, row) * window_numbers;
    pen_normal(to + row * window_numbers, window_numbers, first, data->normal_key[stream & 1], 1.0);
  }
}

pen_kernel *pen_data_op(unsigned kind) {
  static pen_kernel *const op[PEN_OP_COUNT] = {
      [PEN_OP_TOKENS] = tokens_op,
      [PEN_OP_TARGETS] = targets_op,
      [PEN_OP_STARTS] = starts_op,
      [PEN_OP_NORMAL] = normal_op,
  };
  return op[kind];
}
