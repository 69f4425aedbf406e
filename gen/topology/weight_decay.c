/* weight_decay.c: the weight decay of each tensor. By default it is optimizer.weight_decay for
 * tensors of two dimensions and 0 for norm gains and biases (as in nanoGPT and llm.c). A group
 * "ENDING=DECAY" of optimizer.weight_decay_groups sets it for the tensors whose names have that
 * ending; the first group that matches counts. */
#include "gen/topology/weight_decay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/topology/message.h"

/* Whether the name has the group's ending. */
static bool has_ending(const char *group, const char *name) {
  return pen_ends_in(name, group, strcspn(group, "="));
}

double pen_weight_decay_of(const struct pen_topology *topology, const char *name, bool matrix) {
  const struct pen_strings *groups = &topology->optimizer_weight_decay_groups;
  for (size_t i = 0; i < groups->count; i++)
    if (has_ending(groups->value[i], name)) return strtod(strchr(groups->value[i], '=') + 1, NULL);
  return matrix ? topology->optimizer_weight_decay : 0;
}

void pen_weight_decay_check_groups(const struct pen_topology *topology) {
  const struct pen_strings *groups = &topology->optimizer_weight_decay_groups;
  for (size_t i = 0; i < groups->count; i++) {
    const char *equals = strchr(groups->value[i], '=');
    char *end = NULL;
    double decay = equals ? strtod(equals + 1, &end) : -1;
    bool number = equals && equals > groups->value[i] && strchr(".0123456789", equals[1]) &&
                  equals[1] && !*end;
    if (!number || !isfinite(decay))
      pen_topology_fail(
          topology, "optimizer.weight_decay_groups",
          "\"ENDING=DECAY\": an ending of tensor names and a finite number, 0 or more; not \"%s\"",
          groups->value[i]);
  }
}

void pen_weight_decay_check_names(const struct pen_topology *topology,
                                  const struct pen_weight *weights, uint32_t count) {
  const struct pen_strings *groups = &topology->optimizer_weight_decay_groups;
  for (size_t i = 0; i < groups->count; i++) {
    size_t matches = 0;
    for (uint32_t w = 0; w < count; w++) matches += has_ending(groups->value[i], weights[w].tensor);
    if (!matches)
      pen_topology_fail(
          topology, "optimizer.weight_decay_groups",
          "endings of the model's tensor names, such as \"%s\"; no name has the ending of \"%s\"",
          count ? weights[0].tensor : "", groups->value[i]);
  }
}
