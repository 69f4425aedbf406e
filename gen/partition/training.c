/* training.c: what a step does between replicas and at its end. */
#include "gen/model/append.h"
#include "gen/partition/training.h"

#include "gen/base/arena.h"
#include "gen/families/families.h"
#include "gen/model/unit_collectives.h"

const struct pen_training pen_training_none;

bool pen_value_is_unsharded(const struct pen_partition *partition, const struct pen_graph *graph,
                            uint32_t v) {
  const struct pen_value *value = &graph->value[v];
  return partition->sharding == PEN_SHARD_WEIGHTS && !partition->gathers_units &&
         value->role == PEN_ROLE_WEIGHT && !pen_weight_is_tied(graph, value->weight);
}

/* W computes gradients of weights from what F and I keep; but a fused loss (gen/model/fused_loss.c)
 * makes it compute the logits again. */
static bool reads_unsharded(const struct pen_partition *partition, const struct pen_graph *graph,
                            const struct pen_op_list *program) {
  for (size_t i = 0; i < program->count; i++)
    for (int k = 0; k < PEN_OPERANDS_MAX; k++)
      if (program->op[i].operand[k] != PEN_NONE &&
          pen_value_is_unsharded(partition, graph, program->op[i].operand[k]))
        return true;
  return false;
}

/* [stage * PEN_PROGRAMS + program]: how many collectives it completes. */
static const uint32_t *count_collectives(const struct pen_partition *partition,
                                         struct pen_graph *const *graph) {
  uint32_t *count = pen_new((size_t)partition->stage_count * PEN_PROGRAMS, sizeof *count);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++)
    for (int p = 0; p < PEN_PROGRAMS; p++)
      count[stage * PEN_PROGRAMS + p] = pen_program_collectives(&graph[stage]->program[p]);
  return count;
}

struct pen_training *pen_training_of(const struct pen_topology *t,
                                     const struct pen_partition *partition,
                                     struct pen_graph *const *graph) {
  struct pen_training *training = pen_new(1, sizeof *training);
  const char *embedding = partition->stages.family->embedding;
  bool *weights_in_w = pen_new(partition->stage_count, sizeof *weights_in_w);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++)
    weights_in_w[stage] =
        reads_unsharded(partition, graph[stage], &graph[stage]->program[PEN_PROGRAM_W]);
  *training =
      (struct pen_training){.adds_tied_gradient = t->model_tie_embeddings && embedding &&
                                                  t->trains && !pen_weight_is_frozen(t, embedding),
                            .waits_for_norm = t->trains && t->optimizer_clip_norm > 0,
                            .reshards_each_use = t->data_parallel_reshard == PEN_RESHARD_USE,
                            .exchanges = t->tensor_parallel_ranks > 1,
                            .weights_in_w = weights_in_w,
                            .program_collectives = count_collectives(partition, graph)};
  return training;
}
