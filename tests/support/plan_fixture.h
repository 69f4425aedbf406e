/* plan_fixture.h: generates a finished plan from the text of a topology, by the passes of the
 * generator, for tests that inspect plans. */
#ifndef PEN_PLAN_FIXTURE_H
#define PEN_PLAN_FIXTURE_H

#include <unistd.h>

#include "gen/timing/cost.h"
#include "gen/layout/layout.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/schedule/schedule.h"
#include "gen/timing/timing.h"
#include "gen/lower/lower.h"
#include "gen/topology/topology.h"
#include "gen/topology/shapes.h"
#include "runtime/plan/plan.h"
#include "tests/support/plans.h"

/* Reads a topology from text, through a temporary file; the second with settings, PATH=VALUE. */
struct pen_topology *read_topology(const char *text);
struct pen_topology *read_topology_with(const char *text, const char *const *set, size_t count);

/* A plan and what it was made from; `order` and `timing` are of its first profile. */
struct whole {
  struct pen_topology *topology;
  struct pen_partition *partition;
  const struct pen_training *training;
  struct pen_stage_cost *cost;
  struct pen_order *order;
  struct pen_timing *timing;
  struct pen_plan *plan;
};

/* All passes on a topology's text but verify; both profiles of every shape, or eval alone when the
 * schedule does not train; and those of generation. `change`, if any, gets the graphs of the first
 * shape's stages before they are laid out. */
struct whole make_whole_with(struct pen_topology *topology,
                             void (*change)(struct pen_graph *graph));

struct whole make_whole_of(struct pen_topology *topology);

struct whole make_whole(const char *text);

struct pen_plan *make_plan(const char *text);

/* Topology text for tests: mlp or llama, small; with the words "no clip", "tied", "bf16", "cuda"
 * and "nccl" as comments in `more`, such a one. For the CPU otherwise, whatever configure found:
 * what CUDA's libraries want makes small plans large. */
const char *topology_text(const char *family, const char *schedule, unsigned ranks, unsigned stages,
                          unsigned microbatches, const char *more);

#endif
