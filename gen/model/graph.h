/* graph.h: a stage as ops and values.
 *
 * A value is a named tensor. Ops are struct pen_op (runtime/plan/plan.h) whose operands are indices
 * of the stage's values. Values are in single-assignment form; liveness.c decides which of them
 * share memory (`storage`).
 */
#ifndef PEN_GRAPH_H
#define PEN_GRAPH_H

#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"
#include "gen/model/stages.h"

struct pen_declared; /* gen/model/blocks.h */

enum pen_role {
  PEN_ROLE_ACTIVATION, /* live within one microbatch */
  PEN_ROLE_WEIGHT,     /* or, of dtype bf16, the copy that matrix products read */
  PEN_ROLE_GRADIENT,   /* a weight's gradient accumulator */
  PEN_ROLE_CONSTANT,   /* computed once at start; values of the same name on one rank are one tensor
                        */
  PEN_ROLE_LOSS,
  PEN_ROLE_COUNTS, /* of a step, how often each expert of a layer is chosen */
  PEN_ROLE_CACHE,  /* keys or values of a layer, kept from step to step */
};

/* What each member of a group of processes has of a value: all of it, a part of its elements,
 * or a part of its sum. In the tensor group, a part is that of a split of the weights; parts of a
 * sequence's tokens are in sequence.h. */
enum pen_value_place { PEN_WHOLE, PEN_SPLIT, PEN_PARTIAL };

struct pen_value {
  const char *name;
  const char *prefix; /* of its layer: "layers.3.", or "" */
  uint32_t block;     /* its block; the stage's past_last_block: added by backward.c */
  uint8_t dtype, role;
  uint64_t elements, bytes;
  uint32_t weight;   /* WEIGHT, GRADIENT: index into the stage's weights; else PEN_NONE */
  uint32_t loss_row; /* LOSS: of the loss table (runtime/plan/plan.h); COUNTS: of `routers` */
  uint32_t gradient; /* of a weight or its copy: the accumulator (PEN_NONE: frozen); of an
                        activation: the gradient that the loss computes */
  uint32_t copy;     /* of a weight: its copy in the dtype of the ops; PEN_NONE: it has none yet */
  bool needs_gradient;
  bool is_given;             /* by a block to the next block */
  bool is_named;             /* by model.outputs (outputs.h) */
  bool is_result;            /* and kept to the end of the step */
  bool of_samples;           /* and has no tokens: a row of each sample */
  uint8_t place[PEN_GROUPS]; /* enum pen_value_place. PARTIAL among data ranks: the gradient of one
                                microbatch, which they read */
  uint32_t split;            /* which, from the tensor rank's first, if it is split or a part of a
                                sum over splits; else PEN_NONE */
  bool is_slot;              /* a tensor rank puts it into its slot here, */
  uint32_t slot;             /* of this number, from 0: see exchanges.c */
  bool is_copy,
      is_recomputed; /* of a value of the forward ops, in I or B; F makes the latter too */
  /* set by liveness.c: */
  uint8_t base;     /* enum pen_base */
  uint32_t storage; /* the value whose memory this one uses; itself when it has its own */
  uint64_t within;  /* bytes from the start of that memory: of a part (PEN_PARTS of ops.def) */
};

struct pen_op_list {
  struct pen_op *op;
  size_t count;
};

/* The programs of a stage. B is I and W, op by op. */
enum pen_program_index { PEN_PROGRAM_F, PEN_PROGRAM_I, PEN_PROGRAM_W, PEN_PROGRAM_B, PEN_PROGRAMS };

/* The program that a compute action runs; -1: it is not a compute action. */
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
  uint16_t kind; /* of the op that computes it, with its dims and flops; PEN_OP_COUNT: computed at
                    start */
  int64_t dim[PEN_DIMS_MAX];
  double flops;
};

struct pen_graph {
  const struct pen_topology *topology;
  uint32_t stage, stage_count;
  bool training;
  uint8_t dtype; /* enum pen_dtype: model.dtype, of ops that read no value which is f32 */
  int64_t rows;  /* tokens in a microbatch */
  const struct pen_stages *stages;
  uint32_t splits;         /* tensor_parallel.splits */
  uint32_t own_splits;     /* of these, those of a tensor rank: whose ops the programs have */
  uint32_t tensor_rank;    /* which one the programs are of */
  uint32_t token_ranks;    /* tensor ranks that share the tokens of values between the matrices
                              (sequence.h): all, or 1 */
  uint32_t split;          /* whose ops are being emitted; PEN_NONE: of none */
  uint32_t block;          /* the block whose ops are being emitted */
  const char *prefix;      /* put before the names of values: "layers.3." */
  struct pen_datum *datum; /* inputs of the step that blocks read */
  size_t datum_count;
  struct pen_value *value;
  size_t value_count;
  uint8_t recompute;   /* enum pen_recompute_kind */
  bool input_is_given; /* no weight before the stage is trained: its input needs no gradient (only
                          in gen/partition/block_cost.c) */
  struct pen_op_list forward, start, program[PEN_PROGRAMS];
  size_t fused_op_count;     /* the last forward ops that training runs in I or B, not in F: a fused
                                loss (fused_loss.h) */
  struct pen_weight *weight; /* names, shapes, initial values; layout sets the offsets */
  size_t weight_count;
  uint32_t tied; /* the first of the last weights, which are the embedding's, for the head: one, or
                    its splits; PEN_NONE: none is */
  uint32_t input, output, output_gradient, input_gradient; /* values, or PEN_NONE */
  uint32_t output_count, *outputs; /* values of model.outputs (outputs.h), or PEN_NONE */
};

/* How many tensor ranks share the splits. */
static inline uint32_t pen_graph_tensor_ranks(const struct pen_graph *graph) {
  return graph->splits / graph->own_splits;
}

/* Whether a weight of the stage is one of the embedding's, for the head. */
static inline bool pen_is_tied_head(const struct pen_graph *graph, size_t weight) {
  return weight < graph->weight_count && weight >= graph->tied;
}

/* How many weights a stage owns: all but those. */
static inline size_t pen_own_weights(const struct pen_graph *graph) {
  return graph->tied == PEN_NONE ? graph->weight_count : graph->tied;
}

/* Adds a value and returns its index. Fails (78) if the tensor is too large. */
uint32_t pen_graph_value(struct pen_graph *graph, const char *name, uint8_t dtype, uint8_t role,
                         uint64_t elements);
/* Appends an op without operands; valid until the next op is appended to the list. */
struct pen_op *pen_op_append(struct pen_op_list *list, int kind);
/* Whether a value is an input of the op; PEN_NONE is not. */
bool pen_op_reads(const struct pen_op *op, uint32_t value);
/* Floating-point operations of a program, for the cost model. */
double pen_program_flops(const struct pen_op_list *program);

#endif
