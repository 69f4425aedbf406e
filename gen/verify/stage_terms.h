/* stage_terms.h: what the programs of a stage compute for one microbatch, as terms. */
#ifndef PEN_STAGE_TERMS_H
#define PEN_STAGE_TERMS_H

#include "gen/verify/rank_context.h"
#include "gen/verify/terms.h"

/* What an op adds to the gradient of a weight, or of the head of a tied weight. */
struct pen_contribution {
  uint32_t weight; /* index into the plan's weights; weight_count + the tie of a head's gradient */
  uint32_t value;
  uint32_t op; /* index into the rank's ops */
};

/* A stage of one profile, after some of its programs ran. */
struct pen_stage_terms {
  const struct pen_rank_context *context;
  struct pen_terms *terms;
  uint32_t stage;
  uint32_t *value;   /* [tensor of the rank]: what it holds; 0: nothing yet */
  uint32_t *written; /* tensors that `value` has */
  size_t written_count, written_capacity;
  uint32_t *forward; /* terms of forward ops in the order in which they first ran */
  bool *is_listed;   /* [term]: whether `forward` has it */
  size_t forward_count, forward_capacity, listed_capacity;
  struct pen_contribution *contribution; /* in the order of the ops */
  size_t contribution_count, contribution_capacity;
  uint32_t loss;                /* the value in the loss table; 0: none yet */
  struct pen_piece_value *part; /* [value of the forward]: where it lies (pieces.c); null: whole */
};

/* Opens the stages of a rank. */
void pen_stage_terms_open(struct pen_stage_terms *s, const struct pen_rank_context *context,
                          struct pen_terms *terms);
void pen_stage_terms_close(struct pen_stage_terms *s);

/* Starts the microbatch of a stage: only constants, weights and what comes from the neighbours have
 * a value. */
bool pen_stage_terms_start(struct pen_stage_terms *s, uint32_t stage);

/* Runs a program of the stage after those before it. `action`: an action that runs it. Returns
 * false after it noted a problem. */
bool pen_stage_terms_run(struct pen_stage_terms *s, uint32_t program, uint32_t action);

/* The value of a tensor, or 0. */
uint32_t pen_stage_value(const struct pen_stage_terms *s, uint32_t tensor);

#endif
