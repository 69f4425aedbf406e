/* head_loss.c: the head's product and its cross-entropy, some rows at a time, so that the logits of a microbatch never stand in memory.
 *
 * The rows are cut into chunks of dim `chunk`, the last perhaps shorter. Of each chunk, in rising order:
 *     HEAD_LOSS      logits = x w^T; its loss, and softmax - one-hot in the logits' place; dx = that w, where a gradient is wanted
 *     HEAD_LOSS_DW   logits and their gradient once more; dw += that^T x
 * so the logits are multiplied out twice: 4 products where whole logits take 3. Each is the device's own operation on the chunk's rows, with
 * what the device prepared for that many; the chunks' losses are added in rising order.
 *
 * Workspace: | logits of a chunk, of the op's dtype | f64 a chunk | what the operations want |, each on PEN_ALIGNMENT_BYTES. A chunk of a
 * tensor begins on PEN_ALIGNMENT_BYTES, as tensors do, when `chunk` is a multiple of PEN_HEAD_CHUNK. */
#include "kernels/head_loss.h"

#include <assert.h>
#include <stdlib.h>

/* The operations on one chunk; the last is LINEAR_DX or LINEAR_DW. */
enum { PRODUCT, LOSS, GRADIENT, PARTS };

struct part {
  enum pen_op_kind kind;
  int64_t dim[PEN_DIMS_MAX];
};

struct head_loss {
  const struct pen_device *device;
  size_t element_bytes, losses_offset, parts_offset; /* in the workspace */
  pen_kernel *kernel[PARTS];
  void *prepared[2][PARTS]; /* of a whole chunk, of the last when it is shorter */
};

static size_t aligned(size_t bytes) { return (bytes + PEN_ALIGNMENT_BYTES - 1) / PEN_ALIGNMENT_BYTES * PEN_ALIGNMENT_BYTES; }

static size_t element_bytes_of(enum pen_dtype dtype) { return dtype == PEN_BF16 ? sizeof(uint16_t) : sizeof(float); }

static void list_parts(struct part part[PARTS], enum pen_op_kind kind, int64_t rows, const int64_t *dim) {
  part[PRODUCT] = (struct part){ PEN_OP_LINEAR, { rows, dim[1], dim[2] } };
  part[LOSS] = (struct part){ PEN_OP_CROSS_ENTROPY, { rows, dim[2] } };
  part[GRADIENT] = (struct part){ kind == PEN_OP_HEAD_LOSS ? PEN_OP_LINEAR_DX : PEN_OP_LINEAR_DW, { rows, dim[1], dim[2] } };
}

static size_t losses_offset_of(enum pen_dtype dtype, const int64_t *dim) { return aligned((size_t)(dim[3] * dim[2]) * element_bytes_of(dtype)); }

static size_t chunks_of(const int64_t *dim) { return (size_t)((dim[0] + dim[3] - 1) / dim[3]); }

size_t pen_head_loss_workspace(const struct pen_device *device, enum pen_op_kind kind, enum pen_dtype dtype, const int64_t dim[PEN_DIMS_MAX]) {
  struct part part[PARTS];
  size_t most = 0;
  list_parts(part, kind, dim[3], dim);
  for (int i = 0; i < PARTS; i++) {
    const size_t bytes = device->workspace_bytes(part[i].kind, dtype, part[i].dim);
    most = bytes > most ? bytes : most;
  }
  return losses_offset_of(dtype, dim) + aligned(chunks_of(dim) * sizeof(double)) + most;
}

void *pen_head_loss_prepare(const struct pen_device *device, enum pen_op_kind kind, enum pen_dtype dtype, const int64_t dim[PEN_DIMS_MAX]) {
  static const double none[PEN_REALS_MAX];
  struct head_loss *head = calloc(1, sizeof *head);
  if (head == NULL)
    return NULL;
  head->device = device;
  head->element_bytes = element_bytes_of(dtype);
  head->losses_offset = losses_offset_of(dtype, dim);
  head->parts_offset = head->losses_offset + aligned(chunks_of(dim) * sizeof(double));
  for (int form = 0; form < 2; form++) {
    const int64_t rows = form == 0 && dim[0] >= dim[3] ? dim[3] : dim[0] % dim[3];
    struct part part[PARTS];
    list_parts(part, kind, rows, dim);
    for (int i = 0; i < PARTS && rows > 0; i++) {
      head->kernel[i] = device->kernel_of(part[i].kind, dtype);
      head->prepared[form][i] = device->prepare(part[i].kind, dtype, part[i].dim, none);
    }
  }
  return head;
}

static void run_part(const struct pen_call *call, int part, int form, struct pen_call *own) {
  const struct head_loss *head = call->prepared;
  own->prepared = head->prepared[form][part];
  own->workspace = (char *)call->workspace + head->parts_offset;
  own->stream = call->stream;
  head->kernel[part](own);
}

/* From row `first` on: logits and their loss, then, where `gradient` says so, their gradient in their place. Returns whether the chunk is
 * whole (0) or the last (1). */
static int make_logits(const struct pen_call *call, int64_t first, int64_t rows, int gradient) {
  const struct head_loss *head = call->prepared;
  const int64_t *dim = call->dim;
  const int form = rows < dim[3];
  char *const x = (char *)call->operand[0] + (size_t)(first * dim[1]) * head->element_bytes;
  double *const loss = (double *)((char *)call->workspace + head->losses_offset) + first / dim[3];
  struct pen_call product = { .operand = { x, call->operand[1], NULL, call->workspace }, .dim = { rows, dim[1], dim[2] } };
  struct pen_call cross_entropy = { .operand = { call->workspace, (int32_t *)call->operand[2] + first, call->operand[3], loss,
                                                 gradient ? call->workspace : NULL },
                                    .dim = { rows, dim[2] } };
  run_part(call, PRODUCT, form, &product);
  run_part(call, LOSS, form, &cross_entropy);
  return form;
}

void pen_head_loss(const struct pen_call *call) {
  const struct head_loss *head = call->prepared;
  const int64_t *dim = call->dim;
  assert(head != NULL && dim[3] > 0);
  for (int64_t first = 0; first < dim[0]; first += dim[3]) {
    const int64_t rows = dim[0] - first < dim[3] ? dim[0] - first : dim[3];
    const int form = make_logits(call, first, rows, call->operand[5] != NULL);
    struct pen_call back = { .operand = { call->workspace, call->operand[1], NULL,
                                          (char *)call->operand[5] + (size_t)(first * dim[1]) * head->element_bytes },
                             .dim = { rows, dim[1], dim[2] } };
    if (call->operand[5] != NULL)
      run_part(call, GRADIENT, form, &back);
  }
  head->device->sum_doubles(call->operand[4], (const double *)((char *)call->workspace + head->losses_offset), chunks_of(dim), call->stream);
}

void pen_head_loss_dw(const struct pen_call *call) {
  const struct head_loss *head = call->prepared;
  const int64_t *dim = call->dim;
  assert(head != NULL && dim[3] > 0);
  for (int64_t first = 0; first < dim[0]; first += dim[3]) {
    const int64_t rows = dim[0] - first < dim[3] ? dim[0] - first : dim[3];
    const int form = make_logits(call, first, rows, 1);
    char *const x = (char *)call->operand[0] + (size_t)(first * dim[1]) * head->element_bytes;
    struct pen_call back = { .operand = { call->workspace, x, call->operand[4] }, .dim = { rows, dim[1], dim[2] } };
    run_part(call, GRADIENT, form, &back);
  }
}
