/* head_loss.c: fused linear cross-entropy: the head's product and its loss, a chunk of rows at a
 * time, so that the logits of a microbatch are never in memory at once.
 *
 * A chunk has dim `chunk` rows, the last one perhaps fewer. For each chunk, in rising order:
 *     all                 logits = x w^T; their loss; if a gradient is needed, softmax - one-hot
 *                         replaces the logits
 *     HEAD_LOSS, _B       dx = logits w, if dx is present
 *     HEAD_LOSS_DW, _B    dw += logits^T x
 * B has 3 products with the size of all logits; I and W together have 4. TOKEN_LOGP has LOGP in
 * place of the loss, and its gradients LOGP_DX, whose result replaces the logits. Each is the
 * device's own operation, prepared for that number of rows; the losses of chunks are added in
 * rising order.
 *
 * Workspace: | logits of a chunk, of the op's dtype | an f64 for each chunk | the operations'
 * workspace |, each aligned to PEN_ALIGNMENT_BYTES. A chunk of a tensor is aligned too, since
 * `chunk` is a multiple of PEN_HEAD_CHUNK.
 *
 * Of split weights each op has a split of the vocabulary. The maximum over all splits must be known
 * before the exponentials are summed, and their sum before the loss, so the logits of a chunk are
 * computed three times: by HEAD_MAXIMUM, HEAD_SUM and HEAD_LOSS_COLUMNS. dx is a partial sum.
 */
#include "kernels/head_loss.h"

#include <assert.h>
#include <stdlib.h>

/* The operations on a chunk. The result of PRODUCT stays in the workspace. */
enum { PRODUCT, LOSS, INPUT, WEIGHT, PARTS };
enum { X, W, NONE = -1 };

/* An operand of the operation LOSS. */
enum chunk_operand_kind { ABSENT, LOGITS, BY_ROW, OF_ALL_ROWS, OF_CHUNK, GRADIENT };
struct chunk_operand {
  enum chunk_operand_kind kind; /* OF_CHUNK: an f64 for each chunk; GRADIENT: in place of LOGITS */
  int operand;                  /* of the call: BY_ROW, OF_ALL_ROWS */
  size_t element_bytes;         /* BY_ROW */
  bool has_choices;             /* BY_ROW: dim[4] elements a row; else one */
};

enum { LOSS_OPERANDS = 7 };
#define ROW_OF(k, type) \
  { .kind = BY_ROW, .operand = (k), .element_bytes = sizeof(type) }
#define CHOICES_OF(k, type) \
  { .kind = BY_ROW, .operand = (k), .element_bytes = sizeof(type), .has_choices = true }
static const struct chunk_operand
    cross_entropy[LOSS_OPERANDS] = {{.kind = LOGITS},
                                    ROW_OF(2, int32_t),
                                    {.kind = OF_ALL_ROWS, .operand = 3},
                                    {.kind = OF_CHUNK},
                                    {.kind = GRADIENT}},
    cross_entropy_columns[LOSS_OPERANDS] = {{.kind = LOGITS},
                                            ROW_OF(2, int32_t),
                                            {.kind = OF_ALL_ROWS, .operand = 3},
                                            ROW_OF(4, float),
                                            ROW_OF(5, double),
                                            {.kind = OF_CHUNK},
                                            {.kind = GRADIENT}},
    logits_maximum[LOSS_OPERANDS] = {{.kind = LOGITS}, ROW_OF(2, float), ROW_OF(3, float)},
    logits_sum[LOSS_OPERANDS] = {{.kind = LOGITS}, ROW_OF(2, float), ROW_OF(3, double)},
    logp[LOSS_OPERANDS] = {{.kind = LOGITS},
                           CHOICES_OF(2, int32_t),
                           CHOICES_OF(3, float),
                           ROW_OF(4, float),
                           ROW_OF(5, float)},
    logp_dx[LOSS_OPERANDS] = {CHOICES_OF(4, float),   ROW_OF(5, float), {.kind = LOGITS},
                              CHOICES_OF(2, int32_t), ROW_OF(3, float), {.kind = ABSENT},
                              {.kind = LOGITS}};

struct head_loss_rule {
  enum pen_op_kind kind, loss; /* of the op; of the operation LOSS */
  const struct chunk_operand *loss_operand;
  int writes[PARTS]; /* the operand that each operation writes; NONE: it does not run, or stays */
};

static const struct head_loss_rule rules[] = {
    {PEN_OP_HEAD_LOSS, PEN_OP_CROSS_ENTROPY, cross_entropy, {NONE, 4, 5, NONE}},
    {PEN_OP_HEAD_LOSS_DW, PEN_OP_CROSS_ENTROPY, cross_entropy, {NONE, NONE, NONE, 4}},
    {PEN_OP_HEAD_LOSS_B, PEN_OP_CROSS_ENTROPY, cross_entropy, {NONE, 4, 5, 6}},
    {PEN_OP_HEAD_MAXIMUM, PEN_OP_LOGITS_MAXIMUM, logits_maximum, {NONE, NONE, NONE, NONE}},
    {PEN_OP_HEAD_SUM, PEN_OP_LOGITS_SUM, logits_sum, {NONE, NONE, NONE, NONE}},
    {PEN_OP_HEAD_LOSS_COLUMNS,
     PEN_OP_CROSS_ENTROPY_COLUMNS,
     cross_entropy_columns,
     {NONE, 6, 7, NONE}},
    {PEN_OP_HEAD_LOSS_COLUMNS_DW,
     PEN_OP_CROSS_ENTROPY_COLUMNS,
     cross_entropy_columns,
     {NONE, NONE, NONE, 6}},
    {PEN_OP_HEAD_LOSS_COLUMNS_B,
     PEN_OP_CROSS_ENTROPY_COLUMNS,
     cross_entropy_columns,
     {NONE, 6, 7, 8}},
    {PEN_OP_TOKEN_LOGP, PEN_OP_LOGP, logp, {NONE, NONE, NONE, NONE}},
    {PEN_OP_TOKEN_LOGP_DX, PEN_OP_LOGP_DX, logp_dx, {NONE, NONE, 7, NONE}},
    {PEN_OP_TOKEN_LOGP_DW, PEN_OP_LOGP_DX, logp_dx, {NONE, NONE, NONE, 6}},
    {PEN_OP_TOKEN_LOGP_B, PEN_OP_LOGP_DX, logp_dx, {NONE, NONE, 7, 8}},
};

struct head_loss_op {
  enum pen_op_kind kind; /* PEN_OP_COUNT: none */
  int64_t dim[PEN_DIMS_MAX];
};

struct head_loss {
  const struct head_loss_rule *rule;
  const struct pen_device *device;
  size_t element_bytes, dx_bytes;     /* of an element of x; of dx, which of a split is f32 */
  size_t losses_offset, parts_offset; /* in the workspace */
  pen_kernel *kernel[PARTS];
  void *prepared[2][PARTS]; /* of a full chunk, of a shorter last one */
};

/* Null: the kind is none of these. */
static const struct head_loss_rule *rule_of(enum pen_op_kind kind) {
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (rules[i].kind == kind) return &rules[i];
  return NULL;
}

bool pen_is_head_loss(enum pen_op_kind kind) { return rule_of(kind) != NULL; }

enum pen_op_kind pen_head_loss_calls(enum pen_op_kind kind) {
  const struct head_loss_rule *rule = rule_of(kind);
  return rule == NULL || rule->writes[LOSS] == NONE ? PEN_OP_COUNT : rule->loss;
}

static void list_parts(struct head_loss_op part[PARTS], const struct head_loss_rule *rule,
                       int64_t rows, const int64_t *dim) {
  part[PRODUCT] = (struct head_loss_op){PEN_OP_LINEAR, {rows, dim[1], dim[2]}};
  part[LOSS] = (struct head_loss_op){rule->loss, {rows, dim[2], dim[4], dim[5]}};
  part[INPUT] = (struct head_loss_op){rule->writes[INPUT] == NONE ? PEN_OP_COUNT : PEN_OP_LINEAR_DX,
                                      {rows, dim[1], dim[2]}};
  part[WEIGHT] = (struct head_loss_op){
      rule->writes[WEIGHT] == NONE ? PEN_OP_COUNT : PEN_OP_LINEAR_DW, {rows, dim[1], dim[2]}};
}

static size_t losses_offset_of(enum pen_dtype dtype, const int64_t *dim) {
  return pen_aligned((size_t)(dim[3] * dim[2]) * pen_dtype_bytes(dtype));
}

static size_t chunks_of(const int64_t *dim) { return (size_t)((dim[0] + dim[3] - 1) / dim[3]); }

size_t pen_head_loss_workspace(const struct pen_device *device, enum pen_op_kind kind,
                               enum pen_dtype dtype, const int64_t dim[PEN_DIMS_MAX]) {
  struct head_loss_op part[PARTS];
  size_t most = 0;
  list_parts(part, rule_of(kind), dim[3], dim);
  for (int i = 0; i < PARTS; i++) {
    const size_t bytes = part[i].kind == PEN_OP_COUNT
                             ? 0
                             : device->workspace_bytes(part[i].kind, dtype, part[i].dim);
    most = bytes > most ? bytes : most;
  }
  return losses_offset_of(dtype, dim) + pen_aligned(chunks_of(dim) * sizeof(double)) + most;
}

void *pen_head_loss_prepare(const struct pen_device *device, enum pen_op_kind kind,
                            enum pen_dtype dtype, const int64_t dim[PEN_DIMS_MAX]) {
  static const double none[PEN_REALS_MAX];
  struct head_loss *head = calloc(1, sizeof *head);
  if (head == NULL) return NULL;
  head->rule = rule_of(kind);
  head->device = device;
  head->element_bytes = pen_dtype_bytes(dtype);
  const bool of_split = head->rule->loss == PEN_OP_CROSS_ENTROPY_COLUMNS;
  head->dx_bytes = of_split ? pen_dtype_bytes(PEN_F32) : head->element_bytes;
  head->losses_offset = losses_offset_of(dtype, dim);
  head->parts_offset = head->losses_offset + pen_aligned(chunks_of(dim) * sizeof(double));
  assert(pen_head_loss_workspace(device, kind, dtype, dim) <=
         device->workspace_bytes(kind, dtype, dim));
  for (int form = 0; form < 2; form++) {
    const int64_t rows = form == 0 && dim[0] >= dim[3] ? dim[3] : dim[0] % dim[3];
    struct head_loss_op part[PARTS];
    list_parts(part, head->rule, rows, dim);
    for (int i = 0; i < PARTS && rows > 0; i++)
      if (part[i].kind != PEN_OP_COUNT) {
        const enum pen_dtype own =
            i == INPUT && of_split && dtype == PEN_BF16 ? PEN_BF16_PARTIAL : dtype;
        head->kernel[i] = device->kernel_of(part[i].kind, own);
        head->prepared[form][i] = device->prepare(part[i].kind, own, part[i].dim, none);
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

/* The operand that an operation writes; null: none, or absent. */
static void *result_of(const struct pen_call *call, int part) {
  const struct head_loss *head = call->prepared;
  return head->rule->writes[part] == NONE ? NULL : call->operand[head->rule->writes[part]];
}

/* Operand k of the operation LOSS, on rows from `first` on. */
static void *loss_operand(const struct pen_call *call, int k, int64_t first, bool needs_gradient) {
  const struct head_loss *head = call->prepared;
  const struct chunk_operand *of = &head->rule->loss_operand[k];
  switch (of->kind) {
    case LOGITS: return call->workspace;
    case GRADIENT: return needs_gradient ? call->workspace : NULL;
    case OF_ALL_ROWS: return call->operand[of->operand];
    case OF_CHUNK:
      return (double *)((char *)call->workspace + head->losses_offset) + first / call->dim[3];
    case BY_ROW:
      return call->operand[of->operand] == NULL
                 ? NULL
                 : (char *)call->operand[of->operand] +
                       (size_t)first * (of->has_choices ? (size_t)call->dim[4] : 1) *
                           of->element_bytes;
    default: return NULL;
  }
}

/* A chunk: `rows` rows from row `first` on. */
static void run_chunk(const struct pen_call *call, int64_t first, int64_t rows) {
  const struct head_loss *head = call->prepared;
  const int64_t *dim = call->dim;
  const int form = rows < dim[3];
  const size_t elements = (size_t)(first * dim[1]);
  char *const x = (char *)call->operand[X] + elements * head->element_bytes, *const dx = result_of(
                                                                                 call, INPUT);
  void *const logits = call->workspace, *const w = call->operand[W],
              *const dw = result_of(call, WEIGHT);
  struct pen_call product = {.operand = {x, w, NULL, logits}, .dim = {rows, dim[1], dim[2]}};
  struct pen_call loss = {.dim = {rows, dim[2], dim[4], dim[5]}};
  for (int k = 0; k < LOSS_OPERANDS; k++)
    loss.operand[k] = loss_operand(call, k, first, dx != NULL || dw != NULL);
  run_part(call, PRODUCT, form, &product);
  run_part(call, LOSS, form, &loss);
  if (dx != NULL) {
    const bool adds = head->rule->loss == PEN_OP_LOGP_DX; /* the operand before dx */
    char *const addend = adds ? call->operand[head->rule->writes[INPUT] - 1] : NULL;
    run_part(call, INPUT, form,
             &(struct pen_call){
                 .operand = {logits, w, addend ? addend + elements * head->dx_bytes : NULL,
                             dx + elements * head->dx_bytes},
                 .dim = {rows, dim[1], dim[2]}});
  }
  if (dw != NULL)
    run_part(call, WEIGHT, form,
             &(struct pen_call){.operand = {logits, x, dw}, .dim = {rows, dim[1], dim[2]}});
}

void pen_head_loss(const struct pen_call *call) {
  const struct head_loss *head = call->prepared;
  const int64_t *dim = call->dim;
  assert(head != NULL && dim[3] > 0);
  for (int64_t first = 0; first < dim[0]; first += dim[3])
    run_chunk(call, first, dim[0] - first < dim[3] ? dim[0] - first : dim[3]);
  if (result_of(call, LOSS) != NULL)
    head->device->sum_doubles(result_of(call, LOSS),
                              (const double *)((char *)call->workspace + head->losses_offset),
                              chunks_of(dim), call->stream);
}

void pen_head_loss_replace(void *prepared_head, pen_kernel *run, void *own, pen_kernel **kernel,
                           void **prepared) {
  struct head_loss *head = prepared_head;
  *kernel = head->kernel[LOSS];
  *prepared = head->prepared[0][LOSS] != NULL ? head->prepared[0][LOSS] : head->prepared[1][LOSS];
  assert(head->prepared[0][LOSS] == NULL || head->prepared[1][LOSS] == NULL ||
         head->prepared[0][LOSS] == head->prepared[1][LOSS]);
  head->kernel[LOSS] = run;
  head->prepared[0][LOSS] = head->prepared[1][LOSS] = own;
}
