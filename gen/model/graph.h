/* model.h: a stage as ops and values; the small builder that families use; what derive adds.
 *
 * A value is a named tensor. Ops are struct pen_op of plan.h whose operands are indices into the
 * stage's values. Values are in single-assignment form; which of them share memory is derive's
 * decision (`storage`).
 */
#ifndef PEN_MODEL_H
#define PEN_MODEL_H

#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"
#include "gen/model/stages.h"

struct pen_declared; /* gen/families/families.h */

enum pen_role {
  PEN_ROLE_ACTIVATION, /* lives within one microbatch */
  PEN_ROLE_WEIGHT,     /* or, of dtype bf16, the copy of one that products read */
  PEN_ROLE_GRADIENT,   /* a weight's gradient accumulator */
  PEN_ROLE_CONSTANT,   /* made once at start; values of the same name on one rank are one tensor */
  PEN_ROLE_LOSS,
};

struct pen_value {
  const char *name;
  const char *prefix; /* of the part of the model that it was made in: "layers.3.", or "" */
  uint32_t block; /* of the model's, that it was made in; the stage's past_last_block: by derive */
  uint8_t dtype, role;
  uint64_t elements, bytes;
  uint32_t weight;   /* WEIGHT, GRADIENT: index into the stage's weights; else PEN_NONE */
  uint32_t gradient; /* of a weight, or its copy: the accumulator (PEN_NONE: frozen); of a value:
                        set by the loss, see pen_graph_loss */
  bool needs_gradient;
  /* settled by derive: */
  uint8_t base;     /* enum pen_base */
  uint32_t storage; /* the value whose memory this one uses; itself when it has its own */
};

struct pen_op_list {
  struct pen_op *op;
  size_t count, capacity;
};

/* The programs of a stage. B is I then W, op by op. EVAL is F with nothing kept. START fills
 * constants. */
enum pen_program_index { PEN_PROGRAM_F, PEN_PROGRAM_I, PEN_PROGRAM_W, PEN_PROGRAM_B, PEN_PROGRAMS };

/* The program that a compute action runs; -1: the row is none. */
static inline int pen_program_of(int action_kind) {
  switch (action_kind) {
    case PEN_F: return PEN_PROGRAM_F;
    case PEN_I: return PEN_PROGRAM_I;
    case PEN_W: return PEN_PROGRAM_W;
    case PEN_B: return PEN_PROGRAM_B;
    default: return -1;
  }
}

/* An input of the step and the value that holds a microbatch's part of it. */
struct pen_datum {
  const struct pen_declared *declared;
  uint32_t value;
  uint16_t kind; /* of the op that makes it, with its dims and what it costs; PEN_OP_COUNT: made at
                    start */
  int64_t dim[PEN_DIMS_MAX];
  double flops;
};

struct pen_graph {
  const struct pen_topology *topology;
  uint32_t stage, stage_count;
  bool training;
  uint8_t dtype; /* enum pen_dtype: model.dtype */
  int64_t rows;  /* tokens in a microbatch */
  const struct pen_stages *stages;
  uint32_t block;          /* the one whose ops are emitted, while they are */
  const char *prefix;      /* put before the names of values: "layers.3." */
  struct pen_datum *datum; /* inputs of the step that were asked for */
  size_t datum_count, datum_capacity;
  struct pen_value *value;
  size_t value_count, value_capacity;
  bool recomputes;     /* memory.recompute: F keeps nothing for the backward */
  bool input_is_given; /* nothing trains before the stage: its input needs no gradient
                          (gen/partition/block_cost.c alone) */
  struct pen_op_list forward, start, program[PEN_PROGRAMS];
  uint32_t recompute_op_count[PEN_PROGRAMS]; /* ops at the head of a program that run F again */
  struct pen_weight *weight; /* names, shapes, start values; offsets come in layout */
  size_t weight_count, weight_capacity;
  uint32_t tied; /* index of the last of them where it is the embedding's, used again by the head;
                    else PEN_NONE */
  uint32_t input, output, output_gradient, input_gradient; /* values, or PEN_NONE */
};

/* ---- for families ---- */

/* The value of an input that the family and the block at hand declare; its op is emitted when the
 * stage's first block asks. */
uint32_t pen_graph_data(struct pen_graph *graph, const struct pen_declared *declared);
/* A weight of one or two dimensions (second 0: one). Two-dimensional weights decay. */
uint32_t pen_graph_weight(struct pen_graph *graph, const char *name, int64_t rows, int64_t columns,
                          int initial, double deviation);
/* The embedding's weight (rows, columns) once more, for the head, with a gradient of the head's own
 * (struct pen_tie). After all others. */
uint32_t pen_graph_tied_weight(struct pen_graph *graph, const char *name, int64_t rows,
                               int64_t columns);

uint32_t op_tokens(struct pen_graph *graph);  /* (rows) i32 */
uint32_t op_targets(struct pen_graph *graph); /* (rows) i32 */
uint32_t op_normal(struct pen_graph *graph, const char *name, int64_t width,
                   int stream); /* (rows, width) */
uint32_t op_embedding(struct pen_graph *graph, const char *name, uint32_t tokens, uint32_t table);
/* x (rows, in) times the weight (out, in) transposed, plus addend (rows, out) unless PEN_NONE. */
uint32_t op_linear(struct pen_graph *graph, const char *name, uint32_t x, uint32_t weight,
                   uint32_t addend);
/* Every `width of the gain` elements of x are a row of their own. */
uint32_t op_rmsnorm(struct pen_graph *graph, const char *name, uint32_t x, uint32_t gain);
uint32_t op_rope_table(struct pen_graph *graph,
                       int64_t head_dim); /* constant (positions, head_dim) */
/* `starts` (rows) i32: where each token's document starts in its sequence; PEN_NONE: every sequence
 * is one document. */
uint32_t op_starts(struct pen_graph *graph);
uint32_t op_rope(struct pen_graph *graph, const char *name, uint32_t x, uint32_t table,
                 uint32_t starts, int64_t heads, int64_t head_dim);
uint32_t op_attention(struct pen_graph *graph, const char *name, uint32_t q, uint32_t k, uint32_t v,
                      uint32_t starts, int64_t heads, int64_t kv_heads, int64_t head_dim);
/* x (rows, in) times the weight (in, out), plus bias (out), plus addend (rows, out) unless
 * PEN_NONE. */
uint32_t op_affine(struct pen_graph *graph, const char *name, uint32_t x, uint32_t weight,
                   uint32_t bias, uint32_t addend);
uint32_t op_layernorm(struct pen_graph *graph, const char *name, uint32_t x, uint32_t gain,
                      uint32_t bias);
/* The row of the table (positions, width) of each token's position added. */
uint32_t op_position(struct pen_graph *graph, const char *name, uint32_t x, uint32_t table,
                     uint32_t starts);
void op_split(struct pen_graph *graph, const char *name, uint32_t x,
              uint32_t part[3]); /* x (rows, 3, width) */
uint32_t op_gelu_tanh(struct pen_graph *graph, const char *name, uint32_t x);
uint32_t op_swiglu(struct pen_graph *graph, const char *name, uint32_t gate, uint32_t up);
uint32_t op_gelu(struct pen_graph *graph, const char *name, uint32_t x);
uint32_t op_scale(struct pen_graph *graph, const char *name, uint32_t x, double factor);
uint32_t op_add(struct pen_graph *graph, const char *name, uint32_t x, uint32_t z);
/* Losses end the model: mean cross-entropy over the step's targets, or the sum of x. */
void op_cross_entropy(struct pen_graph *graph, uint32_t logits, uint32_t targets);
/* x (rows, in) times the weight (out, in), and the cross-entropy of that, `chunk` rows of logits at
 * a time. */
void op_head_loss(struct pen_graph *graph, uint32_t x, uint32_t weight, uint32_t targets,
                  int64_t chunk);
void op_sum_loss(struct pen_graph *graph, uint32_t x);

/* ---- the passes ---- */

/* Forward ops of one stage: those of its blocks, in order. Fails (78) when a family's ops are at
 * odds with what it declares. */
struct pen_graph *pen_model(const struct pen_topology *topology, const struct pen_stages *stages,
                            uint32_t stage, bool training);
/* The graphs of all stages, derived: [stage]. */
struct pen_graph **pen_graphs_of(const struct pen_topology *topology,
                                 const struct pen_stages *stages, bool training);
/* Adds the programs (training: F, I, W, B; else F alone) and settles bases and storage. */
void pen_backward(struct pen_graph *graph);
/* Floating-point operations of a program, for the cost model. */
double pen_program_flops(const struct pen_op_list *program);
/* Those that I and W both run, and B once: its logits, where a loss makes them by chunks
 * (late_loss.h). */
double pen_shared_flops(const struct pen_graph *graph);
/* Those of the ops that a recomputing stage's I (or B) runs again; 0 in any other. */
double pen_recomputed_flops(const struct pen_graph *graph);
/* Whether a weight of that name is one of model.frozen. */
bool pen_weight_is_frozen(const struct pen_topology *topology, const char *name);

/* ---- used by model.c and derive.c ---- */
uint32_t pen_graph_value(struct pen_graph *graph, const char *name, uint8_t dtype, uint8_t role,
                         uint64_t elements);
struct pen_op *pen_op_append(struct pen_op_list *list, int kind);

#endif
