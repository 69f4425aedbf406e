/* fuse.c: makes one product of the LINEARs of one value whose results one op reads: gate and up of
 * a gated linear unit; q, k and v of an attention.
 *
 * The results become the columns of one tensor, which the op and the ROPEs before it read by
 * stride. The weights stay as they are: tensors, initial values, files and shards are by weight. A
 * product needs them, and their gradients, one after the other in memory (PEN_PARTS of ops.def). So
 * they must be consecutive weights, each of them trained or none, of whole multiples of the
 * alignment in each dtype. Products that another op follows before they meet (biases of Qwen2,
 * norms of heads of Qwen3 and Gemma 3), and those of splits, stay apart.
 *
 * The rule depends on the model and the device alone. The gradient of x is one sum where it was one
 * a weight, which changes its bits: all ranks and replicas of a model fuse alike. */
#include "gen/model/fuse.h"

#include "gen/base/arena.h"
#include "gen/model/append.h"
#include "gen/model/op_signature.h"

enum { PRODUCTS_MAX = 3, NOT_FOUND = -1 };

/* An op whose first inputs are the results of products, and the op that reads them as one. */
struct fusion {
  int reader, fused;
  size_t products;
  const char *name;
  bool rotates; /* ROPE comes between, for all products but the last */
};

static const struct fusion fusions[] = {
#define PEN_FUSED(kind, fused, products, name, rotates) \
  {PEN_OP_##kind, PEN_OP_##fused, products, name, rotates},
#include "kernels/ops.def"
};

/* The ops that a fusion replaces: places in the forward list. */
struct fused_ops {
  const struct fusion *fusion;
  size_t reader, product[PRODUCTS_MAX], rope[PRODUCTS_MAX];
};

static struct pen_op *op_at(const struct pen_graph *graph, size_t op) {
  return &graph->forward.op[op];
}

/* The op of that kind, from `first` on, whose first output is a value that one op alone reads, and
 * model.outputs does not name. */
static int64_t maker_of(const struct pen_graph *graph, size_t first, int kind, uint32_t value) {
  int64_t maker = NOT_FOUND;
  int readers = 0;
  for (size_t i = first; i < graph->forward.count; i++) {
    const struct pen_op *op = op_at(graph, i);
    if (op->kind == kind && op->operand[pen_signature_of(kind)->input_count] == value)
      maker = (int64_t)i;
    readers += pen_op_reads(op, value);
  }
  return readers == 1 && !graph->value[value].is_named ? maker : NOT_FOUND;
}

/* Finds the ops of a fusion, which has the reader. */
static bool find_ops(const struct pen_graph *graph, size_t first, struct fused_ops *found) {
  enum { X_OPERAND = 0 };
  for (size_t n = 0; n < found->fusion->products; n++) {
    uint32_t value = op_at(graph, found->reader)->operand[n];
    if (found->fusion->rotates && n + 1 < found->fusion->products) {
      const int64_t rope = maker_of(graph, first, PEN_OP_ROPE, value);
      if (rope == NOT_FOUND) return false;
      found->rope[n] = (size_t)rope;
      value = op_at(graph, found->rope[n])->operand[X_OPERAND];
    }
    const int64_t product = maker_of(graph, first, PEN_OP_LINEAR, value);
    if (product == NOT_FOUND) return false;
    found->product[n] = (size_t)product;
  }
  return true;
}

/* Whether the rotations differ in their heads alone. */
static bool same_rotations(const struct pen_graph *graph, const struct fused_ops *ops) {
  enum { TABLE = 1, STARTS = 2 };
  if (!ops->fusion->rotates) return true;
  const struct pen_op *q = op_at(graph, ops->rope[0]), *k = op_at(graph, ops->rope[1]);
  return q->operand[TABLE] == k->operand[TABLE] && q->operand[STARTS] == k->operand[STARTS];
}

/* Whether products may be one, by their operands x, weight and addend. */
static bool may_fuse(const struct pen_graph *graph, const struct fused_ops *ops) {
  enum { X, WEIGHT, ADDEND, ALIGNED_COUNT = PEN_ALIGNMENT_BYTES / sizeof(uint16_t) };
  const struct pen_op *one = op_at(graph, ops->product[0]);
  const uint32_t index = graph->value[one->operand[WEIGHT]].weight;
  for (size_t n = 0; n < ops->fusion->products; n++) {
    const struct pen_op *op = op_at(graph, ops->product[n]);
    const struct pen_weight *weight = &graph->weight[index + n];
    if (op->operand[X] != one->operand[X] || op->operand[ADDEND] != PEN_NONE ||
        graph->value[op->operand[WEIGHT]].weight != index + n ||
        weight->frozen != graph->weight[index].frozen || weight->count % ALIGNED_COUNT != 0)
      return false;
  }
  return same_rotations(graph, ops);
}

/* A new op, with a value for each of its outputs, in the place of another. Returns its first
 * output. */
static uint32_t put_op(struct pen_graph *graph, size_t place, int kind, const char *name,
                       const uint32_t *input, const int64_t dim[PEN_DIMS_MAX]) {
  struct pen_op_list made = {0};
  const struct pen_op *op = pen_append_with_outputs(graph, &made, kind, pen_local_name(graph, name),
                                                    input, dim, PEN_DIMS_MAX, PEN_ROLE_ACTIVATION);
  *op_at(graph, place) = *op;
  const uint32_t output = op->operand[pen_signature_of(kind)->input_count];
  pen_free(made.op);
  return output;
}

/* The product of all, in the place of the first. Returns its result. */
static uint32_t put_product(struct pen_graph *graph, const struct fused_ops *ops) {
  const struct pen_op first = *op_at(graph, ops->product[0]);
  uint32_t input[PRODUCTS_MAX + 1] = {first.operand[0], PEN_NONE, PEN_NONE, PEN_NONE};
  int64_t dim[PEN_DIMS_MAX] = {first.dim[0], first.dim[1]};
  for (size_t n = 0; n < ops->fusion->products; n++) {
    const struct pen_op *op = op_at(graph, ops->product[n]);
    input[1 + n] = op->operand[1];
    dim[2] += op->dim[2];
    dim[3 + n] = op->dim[2];
  }
  return put_op(graph, ops->product[0], PEN_OP_LINEAR_FUSED, ops->fusion->name, input, dim);
}

/* The rotation of all heads but those of v, in the place of that of q. Returns its result. */
static uint32_t put_rope(struct pen_graph *graph, const struct fused_ops *ops, uint32_t x) {
  const struct pen_op q = *op_at(graph, ops->rope[0]), *k = op_at(graph, ops->rope[1]);
  const int64_t heads = q.dim[2], kv_heads = k->dim[2],
                dim[PEN_DIMS_MAX] = {q.dim[0], q.dim[1], heads + 2 * kv_heads, q.dim[3], q.dim[4],
                                     heads,    kv_heads};
  return put_op(graph, ops->rope[0], PEN_OP_ROPE_QKV, pen_text("%s_rope", ops->fusion->name),
                (uint32_t[]){x, q.operand[1], q.operand[2]}, dim);
}

/* The op that reads all, with the outputs of the one that it replaces. */
static void put_reader(struct pen_graph *graph, const struct fused_ops *ops, uint32_t x) {
  const struct pen_op was = *op_at(graph, ops->reader);
  const struct pen_signature *from = pen_signature_of(was.kind),
                             *to = pen_signature_of(ops->fusion->fused);
  struct pen_op op = was;
  op.kind = (uint16_t)ops->fusion->fused;
  for (int k = 0; k < PEN_OPERANDS_MAX; k++) op.operand[k] = PEN_NONE;
  op.operand[0] = x;
  for (int k = 1; k < to->operand_count; k++)
    op.operand[k] = was.operand[k + from->operand_count - to->operand_count];
  if (ops->fusion->rotates) {
    op.dim[pen_signature_dim(to, "all")] = was.dim[2] + 2 * was.dim[3];
  } else {
    const int64_t rows = op_at(graph, ops->product[0])->dim[0];
    op.dim[0] = rows;
    op.dim[1] = was.dim[0] / rows;
  }
  *op_at(graph, ops->reader) = op;
}

/* Leaves out the ops that the first product, and the first rotation, have replaced. */
static void drop_replaced(struct pen_graph *graph, size_t first, const struct fused_ops *ops) {
  size_t kept = first;
  for (size_t i = first; i < graph->forward.count; i++) {
    bool replaced = ops->fusion->rotates && i == ops->rope[1];
    for (size_t n = 1; n < ops->fusion->products; n++) replaced = replaced || i == ops->product[n];
    if (!replaced) *op_at(graph, kept++) = *op_at(graph, i);
  }
  graph->forward.count = kept;
}

static const struct fusion *fusion_of(const struct pen_op *reader) {
  for (size_t i = 0; i < sizeof fusions / sizeof *fusions; i++)
    if (fusions[i].reader == reader->kind) return &fusions[i];
  return NULL;
}

void pen_fuse_products(struct pen_graph *graph, size_t first_op) {
  if (pen_device_row(graph->topology->cluster_device)->on_host || graph->splits > 1) return;
  for (size_t i = first_op; i < graph->forward.count; i++) {
    struct fused_ops ops = {.fusion = fusion_of(op_at(graph, i)), .reader = i};
    if (!ops.fusion || !find_ops(graph, first_op, &ops) || !may_fuse(graph, &ops)) continue;
    uint32_t all = put_product(graph, &ops);
    if (ops.fusion->rotates) all = put_rope(graph, &ops, all);
    put_reader(graph, &ops, all);
    drop_replaced(graph, first_op, &ops);
    i = first_op; /* places have moved */
  }
}
