/* blocks.h: what a family declares: the named tensors of its model and its blocks, in order.
 *
 * A block is the smallest part of a model that a stage may begin with. It takes one value from the
 * block before and gives one to the block after. The first block takes none; the last gives none
 * and ends the model with a loss. Anything else that a block reads is a weight, a constant, or an
 * input of the step that the family declares. Stages send each other what passes between blocks.
 */
#ifndef PEN_BLOCKS_H
#define PEN_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

struct pen_graph;    /* gen/model/graph.h */
struct pen_topology; /* gen/topology/topology.h */

enum {
  PEN_REPLICATED = -1, /* a tensor that every microbatch gets whole */
  PEN_OF_MODEL = 255,  /* in place of a dtype: model.dtype */
  PEN_BLOCK_READS_MAX = 4
};

/* Which stages get an input of the step. */
enum pen_receivers { PEN_TO_FIRST, PEN_TO_LAST, PEN_TO_EVERY };

/* A named tensor, by its shape over one step of one replica. */
struct pen_declared {
  const char *name;
  const char *extents; /* parted by blanks: numbers, or names of the table in shapes.c: "batch
                          sequence hidden" */
  int split;     /* the extent, from 0, that the microbatches share out evenly; or PEN_REPLICATED */
  uint8_t dtype; /* enum pen_dtype, as on the wire, or PEN_OF_MODEL */
  /* of inputs alone: */
  uint8_t receivers;                         /* enum pen_receivers */
  uint32_t (*emit)(struct pen_graph *graph); /* the op that makes a microbatch's part of it, or at
                                                start what all share */
  bool (*wanted)(
      const struct pen_topology *topology); /* whether the step brings it; null: always */
};

/* A kind of block; a null name ends a list. */
struct pen_block_kind {
  const char *name;
  /* Emits the forward ops; x is what the block takes. Returns what it gives; PEN_NONE when it ends
   * the model. */
  uint32_t (*emit)(struct pen_graph *graph, uint32_t layer, uint32_t x);
  const struct pen_declared *takes, *gives; /* null: nothing */
  const struct pen_declared
      *reads[PEN_BLOCK_READS_MAX]; /* inputs of the step, before the first null */
};

struct pen_family {
  const char *name; /* as in families.def */
  const struct pen_block_kind *before, *layer,
      *after;                /* once at the start; of every layer; once at the end */
  const char *layers_prefix; /* a layer's name is this and its number: "model.layers." */
  const struct pen_declared *const *input; /* what the step brings; ends with null */
  const char *embedding; /* the weight (vocab, hidden) that a tied head reads; null: none */
  /* The checkpoint's config.json, as Hugging Face's transformers would want it. */
  char *(*config_json)(const struct pen_topology *topology);
};

/* One block of a model. */
struct pen_model_block {
  const char *name; /* "model.layers.3.mlp" */
  uint32_t layer;   /* whose part it is; PEN_NONE: before or after all layers */
  bool begins_layer;
  const struct pen_block_kind *kind;
};

#endif
