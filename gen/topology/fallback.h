/* fallback.h: fallbacks: the topology with a few settings changed, which a run uses when more hosts
 * are lost than spares are left (train --restarts). */
#ifndef PEN_FALLBACK_H
#define PEN_FALLBACK_H

#include <stdbool.h>
#include <stddef.h>

#include "gen/topology/settings.h"
#include "gen/topology/topology.h"
#include "gen/topology/value.h"

enum { PEN_FALLBACKS_MAX = 16 };

struct pen_fallback_change {
  const struct pen_setting *setting;
  struct pen_written_value value;
  struct pen_origin origin;
};

/* A group of `fallback`, as the file has it. */
struct pen_fallback {
  struct pen_fallback_change *change;
  size_t count;
};

/* Whether a fallback may have the setting: others would change the model, the data or the sums.
 * Some it may only repeat: pen_fallback_resolve() checks them. */
bool pen_fallback_may_change(const struct pen_setting *setting);
/* What it may change, for messages. */
extern const char pen_fallback_allowed[];

void pen_fallback_add(struct pen_fallback *fallback, const struct pen_fallback_change *change);

/* The origin of the fallback's change of the setting; null: it does not change it. */
const struct pen_origin *pen_fallback_origin(const struct pen_fallback *fallback,
                                             const struct pen_setting *setting);

/* How many fallbacks of the file change the setting so far, by the same name. Null: 0. */
size_t pen_fallback_count_changes(const struct pen_topology *topology,
                                  const struct pen_fallback_change *change);

/* Before a fallback changes the setting: removes what other settings say for its old value alone:
 * with another schedule, placement, warm-up, zero_bubble and file are the schedule's defaults. */
void pen_fallback_forget(struct pen_topology *topology, const struct pen_setting *setting);

/* Sets what a fallback has of the resolved main topology: shapes, splits, and hosts, as many as its
 * ranks need. Lists of costs for another number of stages are removed. Fails (78) where it changes
 * a setting of the cluster that it may only repeat, and where it needs more hosts than there are,
 * spares included. */
void pen_fallback_resolve(struct pen_topology *topology, const struct pen_topology *main);

#endif
