/* described_ops.c: appends the ops of a block of a description (see described_ops.h).
 *
 * Most ops are appended as their row says, with the dims that their operands have in this step. The
 * others are those of which the families know more: a constant is computed at start, attention may
 * read a cache, and the head and the loss depend on the step: in generation they have the last
 * token of each sequence, and with model.loss_rows they are one op. */
#include "gen/families/described_ops.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/families/described_inputs.h"
#include "gen/families/described_operands.h"
#include "gen/families/language.h"
#include "gen/model/append.h"
#include "gen/model/builder.h"
#include "gen/model/experts.h"
#include "gen/model/op_signature.h"
#include "gen/model/outputs.h"
#include "gen/topology/message.h"
#include "runtime/plan/plan.h"

/* An op with what it reads, and its dims in this step. */
struct sized_op {
  const struct pen_kind_op *op;
  int kind;
  uint32_t input[PEN_OPERANDS_MAX];
  int64_t dim[PEN_DIMS_MAX];
  double real[PEN_REALS_MAX];
};

/* ---- ops ---- */

/* An op of whole sequences that does not say where documents start reads across them. */
static void check_documents(const struct pen_block_ops *e, const struct pen_kind_op *op) {
  const struct pen_signature *signature = pen_signature_of(op->row->kind);
  if (e->graph->topology->batch_packed && pen_signature_dim(signature, "batch") >= 0 &&
      pen_signature_operand(signature, "starts") < 0)
    pen_description_fail(e->block->kind->description, e->block->kind->from, op->from,
                         "it has no operand starts, with batch.packed = true");
}

static struct pen_read_shape shape_of(const struct pen_graph *graph, uint32_t value) {
  if (value == PEN_NONE) return (struct pen_read_shape){.given = false};
  struct pen_read_shape shape = {.given = true, .elements = graph->value[value].elements};
  if (graph->value[value].role != PEN_ROLE_WEIGHT) return shape;
  const struct pen_weight *weight = &graph->weight[graph->value[value].weight];
  shape.dim_count = weight->dim_count;
  memcpy(shape.dim, weight->dim, sizeof weight->dim);
  return shape;
}

static int64_t *dim_of(struct sized_op *sized, const char *name) {
  return &sized->dim[pen_signature_dim(pen_signature_of(sized->kind), name)];
}

/* A sequence has no more tokens than a table of positions. With `sequence` 1 a run is of one. */
static void check_positions(const struct pen_block_ops *e, struct sized_op *sized) {
  const struct pen_topology *t = e->graph->topology;
  const struct pen_kind *kind = e->block->kind;
  const int64_t rows = *dim_of(sized, "positions") - *dim_of(sized, "offset");
  if (pen_has_one_row(sized->op)) {
    if (*dim_of(sized, "sequence") != 1 || rows < 1 ||
        sized->op->operand[2].source != PEN_OPERAND_ABSENT)
      pen_description_fail(kind->description, kind->from, sized->op->from,
                           "sequence: 1, or absent: all tokens have the row `offset`, one that the "
                           "table has, and starts is absent");
    *dim_of(sized, "run") = 1;
  } else if (rows < t->sequence) {
    pen_topology_fail(t, "model.sequence", "at most %lld, the positions that %s has",
                      (long long)(rows > 0 ? rows : 0), kind->description->path);
  }
}

/* A sequence has the tokens that an op selects. */
static void check_selection(const struct pen_block_ops *e, struct sized_op *sized) {
  const struct pen_topology *t = e->graph->topology;
  const int64_t first = *dim_of(sized, "first"),
                past = *dim_of(sized, "tokens") + (first > 0 ? first : 0);
  if (first < 0 || past > t->sequence)
    pen_topology_fail(t, "model.sequence", "at least %lld, the tokens that %s selects of",
                      (long long)past, e->block->kind->description->path);
}

static struct sized_op size_op(struct pen_block_ops *e, const struct pen_kind_op *op) {
  const struct pen_kind *kind = e->block->kind;
  struct sized_op sized = {.op = op, .kind = op->row->kind};
  struct pen_read_shape read[PEN_OPERANDS_MAX] = {{0}};
  check_documents(e, op);
  for (int k = 0; k < pen_signature_of(op->row->kind)->input_count; k++) {
    sized.input[k] = pen_input_value(e, op, k);
    read[k] = shape_of(e->graph, sized.input[k]);
  }
  const struct pen_step_sizes sizes = pen_step_sizes_of(e->graph, op->of_samples);
  const char *wrong = pen_row_dims(op->row, op->from, read, &sizes, sized.dim, sized.real);
  if (wrong) pen_description_fail(kind->description, kind->from, op->from, "%s", wrong);
  if (op->row->appended == PEN_APPENDED_POINTWISE)
    sized.dim[pen_signature_dim(pen_signature_of(sized.kind), "program")] = op->program;
  if (sized.kind == PEN_OP_POSITION) check_positions(e, &sized);
  if (sized.kind == PEN_OP_SELECT_TOKENS) check_selection(e, &sized);
  return sized;
}

/* Notes what the last op has made of the op of the description, by the names that it has there. */
static void note_outputs(struct pen_block_ops *e, const struct pen_kind_op *op) {
  const struct pen_op *made = &e->graph->forward.op[e->graph->forward.count - 1];
  const uint32_t *output = made->operand + pen_signature_of(made->kind)->input_count;
  for (int n = 0; n < pen_described_outputs(op->row->kind); n++) {
    e->graph->value[output[n]].name = pen_local_name(e->graph, op->from->output[n]);
    e->value[op->first_output + (uint32_t)n] = output[n];
  }
}

static void append_row(struct pen_block_ops *e, const struct sized_op *sized) {
  struct pen_graph *graph = e->graph;
  const struct pen_signature *signature = pen_signature_of(sized->kind);
  pen_append_forward(graph, sized->kind, sized->op->from->output[0], sized->input, sized->dim,
                     signature->dim_count);
  struct pen_op *made = &graph->forward.op[graph->forward.count - 1];
  memcpy(made->real, sized->real, sizeof made->real);
  note_outputs(e, sized->op);
}

static void append_attention(struct pen_block_ops *e, struct sized_op *sized) {
  const uint32_t *input = sized->input;
  if (sized->op->of_samples) { /* no text has them, and so no cache */
    *dim_of(sized, "window") = *dim_of(sized, "sequence");
    append_row(e, sized);
    return;
  }
  e->value[sized->op->first_output] =
      pen_op_attention(e->graph, sized->op->from->output[0], input[0], input[1], input[2], input[3],
                       *dim_of(sized, "heads"), *dim_of(sized, "kv_heads"),
                       *dim_of(sized, "head_dim"), *dim_of(sized, "window"));
  struct pen_op *made = &e->graph->forward.op[e->graph->forward.count - 1];
  memcpy(made->real, sized->real, sizeof made->real);
}

/* The counts of choices of a router whose weight has that name in the unit. */
static uint32_t router_counts(struct pen_block_ops *e, const char *router) {
  static const char ending[] = ".weight";
  const size_t bytes = strlen(router), end = sizeof ending - 1;
  const char *name = pen_ends_in(router, ending, end)
                         ? pen_text("%s%.*s", e->prefix, (int)(bytes - end), router)
                         : pen_text("%s%s.counts", e->prefix, router);
  const uint32_t counts = pen_graph_router_counts(e->graph, name);
  const struct pen_description *d = e->block->kind->description;
  if (counts != PEN_NONE && pen_described_weight_find(d, name))
    pen_topology_fail(e->graph->topology, "model.aux_scope",
                      "not \"step\", with %s: its weight %s has the name of a router's counts of "
                      "choices",
                      d->path, name);
  return counts;
}

/* Its sizes are settings (gen/topology/described_experts.h). */
static void append_experts(struct pen_block_ops *e, const struct pen_kind_op *op) {
  enum { X, ROUTER, BIAS, GATE, UP, DOWN, ADDEND, READS };
  uint32_t input[READS], counts = PEN_NONE;
  for (int k = 0; k < READS; k++) {
    if (k == GATE) counts = router_counts(e, op->operand[ROUTER].weight);
    input[k] = pen_input_value(e, op, k);
  }
  const struct pen_expert_weights weights = {input[ROUTER], input[BIAS], counts,
                                             input[GATE],   input[UP],   input[DOWN]};
  e->value[op->first_output] =
      pen_op_experts(e->graph, op->from->output[0], input[X], &weights, input[ADDEND]);
}

/* One of the losses that have shares of their own; the last op is the last of them. */
static void append_loss(struct pen_block_ops *e, struct sized_op *sized) {
  const struct pen_kind *kind = e->block->kind;
  const struct pen_signature *signature = pen_signature_of(sized->kind);
  const uint32_t share = sized->input[pen_signature_operand(signature, "share")];
  e->loss = pen_op_add_loss(e->graph, sized->kind, sized->input, sized->dim, signature->dim_count,
                            share, e->loss, sized->op == &kind->op[kind->op_count - 1]);
}

/* ---- log-probabilities ---- */

/* The LOGP of a block that alone reads what a LINEAR of the block makes, in the last unit; null: it
 * is none, or not alone. */
static const struct pen_kind_op *logp_of(const struct pen_kind_block *block,
                                         const struct pen_kind_op *product) {
  const struct pen_kind *kind = block->kind;
  const uint32_t past_read = kind->value[product->first_output].past_read;
  if (kind->gives != PEN_NONE || product->row->kind != PEN_OP_LINEAR || product->of_samples ||
      product->rows != 1 || product->operand[2].source != PEN_OPERAND_ABSENT ||
      product < kind->op + block->first || past_read == 0 || past_read > block->past)
    return NULL;
  const struct pen_kind_op *last = &kind->op[past_read - 1];
  for (const struct pen_kind_op *op = product + 1; op < last; op++)
    for (int k = 0; k < PEN_OPERANDS_MAX; k++)
      if (op->operand[k].source == PEN_OPERAND_VALUE &&
          op->operand[k].value == product->first_output)
        return NULL;
  return last->row->kind == PEN_OP_LOGP ? last : NULL;
}

/* The LINEAR with which a LOGP is one op by model.loss_rows; null: with none. */
static const struct pen_kind_op *product_of(const struct pen_block_ops *e,
                                            const struct pen_kind_op *logp) {
  const struct pen_kind *kind = e->block->kind;
  const struct pen_kind_operand *logits = &logp->operand[0];
  if (logp->row->kind != PEN_OP_LOGP || logits->source != PEN_OPERAND_VALUE ||
      pen_language_chunk(e->graph) == 0 || kind->value[logits->value].maker == PEN_NONE)
    return NULL;
  const struct pen_kind_op *product = &kind->op[kind->value[logits->value].maker];
  return logp_of(e->block, product) == logp ? product : NULL;
}

/* LOGP, or TOKEN_LOGP, of the product of x and the weight: by chunks with model.loss_rows. */
static void append_token_logp(struct pen_block_ops *e, const struct pen_kind_op *op, uint32_t x,
                              uint32_t weight, uint32_t targets) {
  struct pen_graph *graph = e->graph;
  const struct pen_weight *shape = &graph->weight[graph->value[weight].weight];
  const int64_t rows = pen_step_sizes_of(graph, op->of_samples).rows,
                chunk = op->of_samples ? 0 : pen_language_chunk(graph),
                width = (int64_t)shape->dim[1], vocab = (int64_t)shape->dim[0],
                choices = (int64_t)graph->value[targets].elements / rows;
  const char *name = op->from->output[0];
  if (chunk > 0) {
    pen_append_forward(graph, PEN_OP_TOKEN_LOGP, name, (uint32_t[]){x, weight, targets},
                       (int64_t[]){rows, width, vocab, chunk, choices}, 5);
  } else {
    const uint32_t logits = pen_op_linear(graph, pen_text("%s.logits", name), x, weight, PEN_NONE);
    pen_append_forward(graph, PEN_OP_LOGP, name, (uint32_t[]){logits, targets},
                       (int64_t[]){rows, vocab, choices}, 3);
  }
  note_outputs(e, op);
}

static void append_op(struct pen_block_ops *e, const struct pen_kind_op *op) {
  const struct pen_kind_op *product = product_of(e, op);
  if (product) {
    append_token_logp(e, op, pen_input_value(e, product, 0), pen_input_value(e, product, 1),
                      pen_input_value(e, op, 1));
    return;
  }
  if (pen_language_chunk(e->graph) > 0 && logp_of(e->block, op)) {
    pen_input_value(e, op, 1); /* the weights are in the order of the ops */
    return;
  }
  if (op->row->appended == PEN_APPENDED_EXPERTS) {
    append_experts(e, op);
    return;
  }
  struct sized_op sized = size_op(e, op);
  if (op->row->appended == PEN_APPENDED_TOKEN_LOGP)
    append_token_logp(e, op, sized.input[0], sized.input[1], sized.input[2]);
  else if (op->row->appended == PEN_APPENDED_ATTENTION)
    append_attention(e, &sized);
  else if (op->row->appended == PEN_APPENDED_LOSS)
    append_loss(e, &sized);
  else
    append_row(e, &sized);
}

/* ---- the logits ---- */

/* Whether the block ends the model with the logits and their cross-entropy: with losses that have
 * shares only in the profiles that read texts. */
static bool ends_with_logits(const struct pen_block_ops *e) {
  const struct pen_kind *kind = e->block->kind;
  const struct pen_topology *t = e->graph->topology;
  const bool has_product = kind->product != PEN_NONE && kind->product >= e->block->first &&
                           kind->product < e->block->past;
  return has_product && (kind->head != PEN_NONE || t->generates || t->scores);
}

static uint32_t targets_value(struct pen_block_ops *e) {
  const struct pen_kind *kind = e->block->kind;
  return kind->head != PEN_NONE ? pen_input_value(e, &kind->op[kind->op_count - 1], 1)
                                : pen_graph_data(e->graph, &pen_described_text_targets);
}

/* The ops that end the model, from the product of the logits on. */
static void append_head(struct pen_block_ops *e) {
  struct pen_graph *graph = e->graph;
  const struct pen_kind *kind = e->block->kind;
  const struct pen_kind_op *product = &kind->op[kind->product], *logits = &kind->op[kind->logits];
  uint32_t x = pen_input_value(e, product, 0);
  if (graph->topology->generates) x = pen_op_last_tokens(graph, x, targets_value(e));
  const uint32_t weight = pen_input_value(e, product, 1);
  if (product == logits && pen_language_chunk(graph) > 0) {
    pen_op_head_loss(graph, x, weight, targets_value(e), pen_language_chunk(graph));
    return;
  }
  e->value[product->first_output] = pen_op_linear(
      graph, product->row->kind == PEN_OP_LINEAR ? product->from->output[0] : "logits", x, weight,
      PEN_NONE);
  for (const struct pen_kind_op *op = product + 1; op <= logits; op++)
    if (!kind->needed || kind->needed[op - kind->op]) append_op(e, op);
  pen_op_cross_entropy(graph, e->value[logits->first_output], targets_value(e));
}

/* Adds the weights of a block in the order of its ops. The weight that the embedding has, too,
 * comes after all other weights of a stage. */
static void add_weights(struct pen_block_ops *e, const struct pen_description *d) {
  for (uint32_t i = e->block->first; i < e->block->past; i++)
    for (int k = 0; k < PEN_OPERANDS_MAX; k++) {
      const struct pen_kind_op *op = &e->block->kind->op[i];
      if (op->operand[k].source == PEN_OPERAND_WEIGHT &&
          (!d->tied ||
           strcmp(pen_text("%s%s", e->prefix, op->operand[k].weight), d->tied->tied) != 0))
        pen_weight_value(e, op, k);
    }
}

/* The ops of the block, and in the last block what ends the model. */
static void append_ops(struct pen_block_ops *e) {
  const struct pen_kind *kind = e->block->kind;
  const bool ends = ends_with_logits(e), has_all = !kind->needed || !ends;
  for (uint32_t i = e->block->first; i < e->block->past; i++) {
    if (kind->op[i].row->appended == PEN_APPENDED_CONSTANT || !(has_all || kind->needed[i]))
      continue;
    if (ends && i == kind->product) {
      append_head(e);
      break;
    }
    append_op(e, &kind->op[i]);
  }
}

/* The values that ops of the block have made. */
static void name_values(const struct pen_block_ops *e) {
  const struct pen_kind *kind = e->block->kind;
  if (e->graph->topology->model_outputs.count == 0) return;
  for (uint32_t v = 0; v < kind->value_count; v++)
    if (v != e->block->takes && e->value[v] != PEN_NONE)
      pen_output_made(e->graph, pen_text("%s%s", e->prefix, kind->value[v].name), e->value[v],
                      kind->value[v].of_samples);
  for (uint32_t a = 0; a < kind->alias_count; a++) {
    const uint32_t v = kind->alias[a].value;
    if (v != e->block->takes && e->value[v] != PEN_NONE)
      pen_output_alias(e->graph, pen_text("%s%s", e->prefix, kind->alias[a].name),
                       pen_text("%s%s", e->prefix, kind->value[v].name));
  }
}

uint32_t pen_described_emit(struct pen_graph *graph, uint32_t layer, uint32_t x) {
  (void)layer;
  const struct pen_model_block *of = &graph->stages->block[graph->block];
  const struct pen_kind_block *block = (const struct pen_kind_block *)(const void *)of->kind;
  const struct pen_kind *kind = block->kind;
  struct pen_block_ops e = {.graph = graph,
                            .block = block,
                            .prefix = of->prefix,
                            .value = pen_new(kind->value_count, sizeof *e.value),
                            .other = pen_new(kind->value_count, sizeof *e.other),
                            .loss = PEN_NONE};
  for (uint32_t v = 0; v < kind->value_count; v++) e.value[v] = e.other[v] = PEN_NONE;
  if (block->passes) x = pen_op_scale(graph, "taken", x, 1.0); /* whose gradients are two tensors */
  if (block->takes != PEN_NONE) e.value[block->takes] = x;
  if (kind->product != PEN_NONE &&
      (kind->description->tied || (kind->needed && ends_with_logits(&e))))
    add_weights(&e, kind->description);
  append_ops(&e);
  name_values(&e);
  const uint32_t given =
      block->gives == PEN_NONE ? PEN_NONE : pen_value_as(&e, block->gives, graph->dtype);
  pen_free(e.value);
  pen_free(e.other);
  return given;
}
