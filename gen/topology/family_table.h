/* family_table.h: the table of model families (families.def) as data. gen/families/ builds the
 * models. */
#ifndef PEN_FAMILY_TABLE_H
#define PEN_FAMILY_TABLE_H

#include <stdbool.h>

#include "gen/topology/settings.h"

/* Which layers may have a sliding window of attention. */
enum pen_window_layers {
  PEN_WINDOW_NO_LAYER,
  PEN_WINDOW_EVERY_LAYER,
  PEN_WINDOW_LOCAL_LAYERS /* only some, which have positions of another base, too */
};

/* The experts of a family's layers. */
enum pen_expert_kind {
  PEN_EXPERTS_NONE,
  PEN_EXPERTS_SCORED, /* with softmax scores; model.router_normalize, and layers may be without */
  PEN_EXPERTS_NORMALIZED, /* with these divided by their sum, in all layers */
  PEN_EXPERTS_GROUPED,    /* with sigmoid scores, a bias, groups, and shared experts */
  PEN_EXPERTS_DESCRIBED   /* those of the description, if it has some */
};

struct pen_family_row {
  const char *name;
  bool needs_tokens; /* the model reads tokens: it has heads, a vocabulary and a sequence */
  bool rotary;       /* rotary positions */
  enum pen_window_layers windows;
  bool ties;          /* default of model.tie_embeddings */
  enum pen_loss loss; /* default of model.loss */
  bool splits;        /* its weights may be split (tensor_parallel) */
  bool biases;        /* it may have model.attention_bias and model.mlp_bias */
  enum pen_expert_kind experts;
};

const struct pen_family_row *pen_family_row_of(enum pen_family_kind kind);

#endif
