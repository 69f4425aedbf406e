/* blocks.h: what a family declares: the named tensors of its model and its blocks, in order.
 *
 * A block is the smallest part of a model that a stage may begin with. It reads one value of the
 * previous block and returns one for the next block. The first block reads none; the last returns
 * none and ends the model with a loss. Everything else that a block reads is a weight, a constant,
 * or an input of the step that the family declares. Stages send each other the values between
 * blocks.
 */
#ifndef PEN_BLOCKS_H
#define PEN_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

struct pen_graph;    /* gen/model/graph.h */
struct pen_topology; /* gen/topology/topology.h */

enum {
  PEN_REPLICATED = -1, /* every microbatch gets the whole tensor */
  PEN_OF_MODEL = 255,  /* as a dtype: model.dtype */
  PEN_BLOCK_READS_MAX = 34
};

/* Which stages get an input of the step. */
enum pen_receivers { PEN_TO_FIRST, PEN_TO_LAST, PEN_TO_EVERY };

/* A named tensor, with its shape over one step of one replica. */
struct pen_declared {
  const char *name;
  const char *extents; /* separated by spaces: numbers, or names of the table in tensor_shapes.c:
                          "batch sequence hidden" */
  int split; /* the extent, from 0, that is divided evenly among the microbatches; or PEN_REPLICATED
              */
  uint8_t dtype; /* enum pen_dtype, as in messages, or PEN_OF_MODEL */
  /* only of inputs: */
  uint8_t receivers; /* enum pen_receivers */
  /* Emits the op that computes a microbatch's part of it, or once at start. */
  uint32_t (*emit)(struct pen_graph *graph, const struct pen_declared *declared);
  bool (*wanted)(const struct pen_topology *topology); /* whether the step has it; null: always */
};

/* A kind of block; a null name ends the list. */
struct pen_block_kind {
  const char *name;
  /* Emits the forward ops; x is the value that the block takes. Returns the value that it gives;
   * PEN_NONE: it ends the model. */
  uint32_t (*emit)(struct pen_graph *graph, uint32_t layer, uint32_t x);
  const struct pen_declared *takes, *gives; /* null: nothing */
  const struct pen_declared
      *reads[PEN_BLOCK_READS_MAX]; /* inputs of the step, before the first null */
};

struct pen_model_block;

struct pen_family {
  const char *name; /* as in families.def */
  /* A model that a description lists: [block_count] instead of the next members. The first `period`
   * layers have all kinds. */
  const struct pen_model_block *block;
  uint32_t block_count;
  const struct pen_block_kind *before, *layer,
      *after; /* once at the start; in every layer; once at the end */
  /* Layers whose kinds are others, with the same names: those for which is_other() holds; where it
   * is null every `period`-th, which has the same tensors. */
  const struct pen_block_kind *other_layer;
  bool (*is_other)(const struct pen_topology *topology, uint32_t layer);
  uint32_t period;           /* 0: none */
  const char *layers_prefix; /* a layer's name is this and its number: "model.layers." */
  const struct pen_declared *const *input; /* inputs of the step; ends with null */
  const char *embedding; /* the weight (vocab, hidden) that a tied head reads; null: none */
  /* The checkpoint's config.json; null: that of transformers' class (base/config_write.h). */
  char *(*config_json)(const struct pen_topology *topology);
};

/* One block of a model. */
struct pen_model_block {
  const char *name; /* "model.layers.3.mlp" */
  uint32_t layer;   /* its layer; PEN_NONE: before or after all layers */
  bool begins_layer;
  const struct pen_block_kind *kind;
  const char *prefix; /* described: of the names of its weights, "model.layers.3." */
};

#endif
