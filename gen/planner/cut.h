/* cut.h: what is known of the stages of a cut. */
#ifndef PEN_CUT_H
#define PEN_CUT_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/partition/training.h"
#include "gen/planner/trial.h"
#include "gen/timing/collective_cost.h"
#include "gen/timing/timing.h"

/* Elements of a stage's weights, by what they have: a bf16 copy; a gradient and moments. */
struct pen_stage_elements {
  double count[2][2]; /* [has a copy][is trained] */
  double moments;     /* elements of all moments */
  double tied;        /* the head's gradient of a tied matrix */
};

/* Live bytes of a stage and microbatch as in struct pen_stage_buffers, with messages. */
struct pen_stage_live {
  int64_t peak[PEN_PROGRAMS], remains[PEN_PROGRAMS];
};

/* Bytes of whole tensors that a program reads of weights that may be gathered, and makes of
 * gradients. */
struct pen_stage_traffic {
  double weights[PEN_PROGRAMS], gradients[PEN_PROGRAMS];
};

/* The stages of a cut. All values are lower bounds for any pipeline with this cut and any sharing.
 */
struct pen_cut {
  bool valid; /* false: the model cannot be cut so */
  uint32_t stage_count;
  struct pen_stage_cost *cost; /* [stage_count] of the kernels, at speed 1, with what they wait for
                                  tensor ranks, or less (cut.c); the cheaper kind of
                                  message */
  struct pen_stage_live *live; /* [stage_count] */
  struct pen_stage_elements *elements;          /* [stage_count] */
  struct pen_stage_traffic *traffic;            /* [stage_count] */
  double overlap, update_element, norm_element; /* of struct pen_cost_model */
  struct pen_training training;                 /* without what depends on stages */
  struct pen_byte_cost byte;
  const struct pen_measured_links *collectives; /* that were measured; NULL: none */
  bool gives_exchange; /* the topology gives the costs of collectives, or blocks were measured, but
                          no collectives */
  bool is_measured;    /* the costs are a file's, with the collectives within programs */
  bool is_bf16, ties;
};

/* Fills in the numbers of a cut; cut->stage_count is set, and there is room for the stages. */
void pen_cut_fill(struct pen_cut *cut, const struct pen_trial *trial);

#endif
