/* internal.h: what the files of gen/joint/ share. */
#ifndef PEN_JOINT_INTERNAL_H
#define PEN_JOINT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gen/joint/joint.h"
#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/search/budget_bytes.h"
#include "gen/schedule/order.h"
#include "gen/search/progress.h"
#include "gen/timing/cost_model.h"
#include "gen/timing/memory_budget.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

/* A choice while it is searched for: stage s holds what is between places at[s] and at[s + 1]. */
struct pen_joint_cut {
  uint32_t *at;       /* [stage_count + 1] */
  uint8_t *recompute; /* [stage_count] enum pen_recompute_kind */
};

/* What an order takes. */
struct pen_joint_time {
  double objective;
  double simulated; /* the makespan, or the span if that is the objective */
};

/* The value of a choice with an order. */
struct pen_joint_value {
  double excess; /* bytes above the limit on the rank with the most; 0: within it */
  struct pen_joint_time time;
};

/* One run of blocks as a stage. */
struct pen_joint_stage {
  struct pen_graph *graph;
  struct pen_stage_cost cost; /* pen_cost_of_stage() */
  struct pen_stage_hold hold; /* if there is a limit of memory */
};

struct pen_joint_stages; /* stage_cache.c */

/* All that the search for a choice reads, and its scratch. */
struct pen_joint {
  const struct pen_topology *topology;
  struct pen_cost_source source;
  const struct pen_partition *base; /* placement; its blocks are those of no particular cut */
  uint32_t *place, place_count;     /* pen_partition_places() */
  bool cuts;                        /* the cut is open */
  bool *open;                       /* [stage] what it recomputes is open */
  bool has_open;                    /* of any stage */
  bool by_span, by_step;            /* the objective: the span; the step with norm and optimizer, by
                                       costs that have them; else the makespan */
  uint32_t stage_count, rank_count;
  struct pen_joint_stages *stages;
  double *slack;      /* [rank] bytes by which the layout exceeds the estimate */
  double *most_slack; /* [rank] with which the best choice still fits by the estimate */
  bool limited;       /* there is a limit, and the estimate of bytes holds */
  uint64_t work;      /* done so far, in actions timed */
  uint64_t starts;    /* orders that annealing may begin with, tried so far */
  uint64_t seed;
  struct pen_search_progress progress; /* of the choices that were laid out, by the objective */
  struct pen_joint_judge *judge;
  struct pen_joint_sums *sums; /* level.c; NULL: not yet needed */
};

/* ---- stage_cache.c ---- */

struct pen_joint_stages *pen_joint_stages(const struct pen_cost_source *source,
                                          const struct pen_partition *base);

/* Stage `stage` with blocks [first, past). It is built once; later calls return the same. */
const struct pen_joint_stage *pen_joint_stage_of(struct pen_joint_stages *stages, uint32_t stage,
                                                 uint32_t first, uint32_t past, uint8_t recompute);

/* ---- judge.c ---- */

struct pen_joint_judge *pen_joint_new_judge(struct pen_joint *joint);

/* The partition, graphs and costs of a cut; valid until the next call. */
struct pen_joint_built {
  const struct pen_partition *partition;
  struct pen_graph *const *graph; /* [stage] */
  struct pen_cost_model cost;
  const struct pen_training *training;
  const struct pen_stage_hold *hold; /* [stage] */
};
struct pen_joint_built pen_joint_build(struct pen_joint *joint, const struct pen_partition *placed,
                                       const struct pen_joint_cut *cut);

/* What an order takes by its simulation; an objective of INFINITY: it cannot run. */
struct pen_joint_time pen_joint_time_of(const struct pen_joint *joint,
                                        const struct pen_joint_built *built,
                                        const struct pen_order *order,
                                        const struct pen_timing *timing);

/* The value of a cut with an order on a placement. */
struct pen_joint_value pen_joint_judge(struct pen_joint *joint, const struct pen_partition *placed,
                                       const struct pen_joint_cut *cut,
                                       const struct pen_order *order);

/* A lower bound of the bytes by which a layout exceeds the limit; with pairs, or without an
 * estimate of bytes, below 0. */
double pen_joint_least_excess(struct pen_joint *joint, const struct pen_partition *placed,
                              const struct pen_joint_cut *cut, const struct pen_order *order);

/* The memory budget of a built cut. */
struct pen_budget *pen_joint_budget(struct pen_joint *joint, const struct pen_joint_built *built,
                                    const double *slack);

/* Whether one value is better: closer to the limit, then a smaller objective. */
bool pen_joint_is_better(struct pen_joint_value one, struct pen_joint_value other);

/* Sets the slack from the layout of a cut and order: arena_bytes[rank]. Returns by how much the
 * largest arena exceeds the limit. */
double pen_joint_calibrate(struct pen_joint *joint, const struct pen_partition *placed,
                           const struct pen_joint_cut *cut, const struct pen_order *order,
                           const uint64_t *arena_bytes);

/* ---- cuts ---- */

struct pen_joint_cut pen_joint_new_cut(const struct pen_joint *joint);
void pen_joint_copy_cut(const struct pen_joint *joint, struct pen_joint_cut *to,
                        const struct pen_joint_cut *from);

/* A change: stages first ... last begin `shift` places later (first > 0); or, with first = last and
 * shift = 0, the stage recomputes `recompute`. */
struct pen_joint_change {
  uint32_t first, last;
  int shift;
  uint8_t recompute;
};

/* Draws a change that is allowed. False: this draw gives none. */
bool pen_joint_draw(const struct pen_joint *joint, const struct pen_joint_cut *cut, uint64_t *seed,
                    struct pen_joint_change *change);
void pen_joint_apply(struct pen_joint_cut *cut, const struct pen_joint_change *change);

/* ---- level.c ---- */

/* The loads of the ranks with a cut: a lower bound of the makespan, and so of the step. */
double pen_joint_bound(struct pen_joint *joint, const struct pen_partition *placed,
                       const struct pen_joint_cut *cut);

/* Changes `cut` so that the greatest load of a rank is small. */
void pen_joint_level(struct pen_joint *joint, const struct pen_partition *placed,
                     struct pen_joint_cut *cut, uint64_t work, uint64_t seed);

/* ---- exhaust.c ---- */

/* How many choices there are with an order; where there are very many, a smaller number of many. */
double pen_joint_choice_count(const struct pen_joint *joint);

/* Judges every choice that can be better than the best with the order. False: there are too many,
 * or it would take more work than `most`. */
bool pen_joint_exhaust(struct pen_joint *joint, const struct pen_partition *placed,
                       const struct pen_order *order, uint64_t most, struct pen_joint_cut *best,
                       struct pen_joint_value *value);

/* ---- improve.c ---- */

struct pen_joint_effort {
  uint64_t work; /* in actions timed */
  uint64_t seed;
};

/* The value as one number: the objective, larger the more it exceeds the limit. */
double pen_joint_energy(const struct pen_joint *joint, struct pen_joint_value value);

/* Improves a cut, whose value with the order is *value. */
void pen_joint_improve(struct pen_joint *joint, const struct pen_partition *placed,
                       const struct pen_order *order, const struct pen_joint_effort *effort,
                       struct pen_joint_cut *best, struct pen_joint_value *value);

/* ---- order.c ---- */

struct pen_joint_order {
  const struct pen_order *order; /* NULL: none is within the limit */
  const char *from;              /* what it was made from */
  struct pen_joint_time time;
  bool is_named; /* the order of a named schedule, which stays as it is */
};

struct pen_joint_orders {
  struct pen_joint_order *order;
  size_t count;
};

/* The best of the orders that the search starts from, within the estimated limit; `work`: of list
 * schedules. *named: those of all named schedules, within the limit or not; may be NULL. */
struct pen_joint_order pen_joint_start_order(struct pen_joint *joint,
                                             const struct pen_partition *placed,
                                             enum pen_placement placement,
                                             const struct pen_joint_cut *cut, uint64_t work,
                                             struct pen_joint_orders *named);

/* Improves the order of a cut; `temperature`: the first, in mean costs of an action. */
void pen_joint_anneal(struct pen_joint *joint, const struct pen_partition *placed,
                      const struct pen_joint_cut *cut, const struct pen_joint_effort *effort,
                      double temperature, struct pen_joint_order *order);

/* The order as the result of a search. */
struct pen_search *pen_joint_search(struct pen_joint *joint, const struct pen_partition *placed,
                                    enum pen_placement placement, const struct pen_joint_cut *cut,
                                    const struct pen_joint_order *order);

#endif
