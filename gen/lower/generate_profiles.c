/* generation.c: the profiles that the command generate runs: one window of one sequence through the
 * stages, forward only.
 *
 * A text grows by a token a step, and a step costs what its window holds. A causal model's logits
 * do not depend on what follows them, and positions count from the window's first token, so any
 * window that holds the whole text gives the same. Hence windows of several lengths: the model's
 * sequence, which slides over a longer text, and each a quarter of the one above, down to the last
 * that is no shorter than PEN_GENERATION_LEAST. A quarter, not half: the quick steps are few
 * anyway, and every profile costs the generator a layout and a proof.
 *
 * A microbatch of one sequence keeps the step short: a text's next token needs the one before it,
 * so nothing else could fill more. The rows go like those of evaluation, over the same weights in
 * the same arena. */
#include "gen/lower/generate_profiles.h"

#include <string.h>

#include "gen/families/families.h"
#include "gen/model/op_signature.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/schedule.h"
#include "gen/lower/lower.h"
#include "gen/topology/topology.h"
#include "gen/topology/shapes.h"

/* A plan that foretells tokens. */
static bool can_generate(const struct pen_topology *topology,
                         const struct pen_partition *partition) {
  return pen_family_needs_tokens(partition->stages.family) &&
         strcmp(topology->model_loss, "cross_entropy") == 0;
}

size_t pen_generation(const struct pen_topology *topology, const struct pen_partition *partition,
                      const struct pen_training *training, struct pen_profile_input *profile) {
  size_t count = 0;
  if (!can_generate(topology, partition)) return 0;
  for (int64_t sequence = topology->model_sequence; count == 0 || sequence >= PEN_GENERATION_LEAST;
       sequence /= 4) {
    struct pen_topology *window = pen_topology_of_window(topology, sequence);
    window->model_loss_rows = 0; /* the command looks at the logits */
    struct pen_partition *one = pen_new(1, sizeof *one);
    *one = *partition;
    one->microbatch_count = 1;
    profile[count++] =
        (struct pen_profile_input){pen_text("generate_%lld", (long long)sequence),
                                   PEN_GENERATE,
                                   pen_lower_forward(pen_compose_forward(one), one, training),
                                   pen_graphs_of(window, &one->stages, false),
                                   window,
                                   one};
  }
  return count;
}
