/* plans.h: what tests of the generator share: small topologies and partitions, and random numbers
 * with a printed seed. */
#ifndef PEN_PLANS_H
#define PEN_PLANS_H

#include <stdio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gen/base/arena.h"
#include "gen/families/families.h"
#include "gen/partition/block_cost.h"
#include "gen/partition/partition.h"
#include "gen/schedule/order.h"
#include "gen/schedule/schedule.h"
#include "gen/schedule/action_text.h"
#include "gen/search/search.h"
#include "gen/topology/topology.h"

/* The folder of the tests' files: top_srcdir, or the current folder. */
const char *tests_path(const char *name);

/* Stages to ranks in a loop or in a V, one layer for each stage. */
struct pen_partition *make_partition(uint32_t ranks, uint32_t stages_per_rank,
                                     uint32_t microbatches, bool zigzag);

/* The partition of a topology, as the generator computes it. */
struct pen_partition *partition_topology(const struct pen_topology *topology);

enum pen_schedule_kind schedule_named(const char *name);

/* What a schedule requires of a topology; warmup 0: not set. */
struct pen_topology *make_topology(const char *schedule, int warmup, bool zero_bubble);

/* The order of a schedule on its own placement. */
struct pen_order *make_order(const char *schedule, int warmup, bool zero_bubble, uint32_t ranks,
                             uint32_t stages_per_rank, uint32_t microbatches,
                             struct pen_partition **partition);

/* Searches for an order of a partition without training, by costs of its stages. */
struct pen_search *search_order(const struct pen_topology *topology,
                                const struct pen_partition *partition,
                                const struct pen_stage_cost *cost,
                                const struct pen_search_effort *effort);

/* The order as golden/ and --print=actions write it: `RANK: 0F0 ...` lines. */
char *order_text(const struct pen_order *order);

/* xorshift64*: small, fast, the same everywhere. */
uint64_t draw(uint64_t *seed, uint64_t below);

#endif
