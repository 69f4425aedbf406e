/* candidates.h: all candidates: every pipeline with every way in which its replicas may share. */
#ifndef PEN_CANDIDATES_H
#define PEN_CANDIDATES_H

#include "gen/base/error.h"
#include "gen/planner/bounds.h"
#include "gen/planner/planner.h"

/* The ways in which so many replicas of so many ranks may share: one for a pipeline without
 * replicas. */
struct pen_sharing {
  int64_t replicas, ranks;
  struct pen_choice *choice; /* [count] */
  struct pen_sharing_terms *terms;
  size_t count;
};

struct pen_pipeline {
  struct pen_choice choice;
  const struct pen_sharing *sharing;
  uint64_t first; /* the index of its first candidate */
  double bound;   /* of the step of each of them */
};

struct pen_candidates {
  struct pen_pipeline *pipeline; /* [count] */
  size_t count;
  uint64_t total;      /* candidates */
  size_t sharing_most; /* of a pipeline */
  struct pen_cuts *cuts;
  struct pen_refusal refusal; /* of the last that is none; status 0: there was none */
};

struct pen_candidates pen_candidates_of(const struct pen_planner *planner);

/* The complete choice of a candidate. */
struct pen_choice pen_candidate_choice(const struct pen_pipeline *pipeline, size_t shared);

#endif
