/* model.h: turns the blocks of a model into the graph of each stage: ops, values, programs.
 *
 * In: the topology and the blocks that each stage holds (stages.h). A family (gen/families/)
 * declares the blocks (blocks.h) and calls builder.h for their forward ops. Out: a struct pen_graph
 * for each stage (graph.h): the programs F, I, W and B, the weights, and the segment and storage of
 * each value; layout assigns the offsets. stage_io.h lists the tensors that enter and leave a
 * stage.
 *
 * Order of the passes: builder (with splits, split_head and sequence, for weights that are split
 * and tokens that are shared), backward (with recompute and fused_loss), unit_collectives,
 * exchanges, liveness. They know an op by its row in kernels/ops.def: op_signature and
 * gradient_rules.
 */
#ifndef PEN_MODEL_H
#define PEN_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/model/graph.h"

/* The forward ops of one stage: those of its blocks, in order. Fails (78) if the ops contradict
 * what the family declares. */
struct pen_graph *pen_stage_graph(const struct pen_topology *topology,
                                  const struct pen_stages *stages, uint32_t stage, bool training);
/* The complete graph of another tensor rank: the ops and values of the first, with other dims. */
struct pen_graph *pen_tensor_rank_graph(const struct pen_graph *first, uint32_t tensor_rank);
/* Adds the programs (training: F, I, W, B; else only F) and assigns segments and storage. */
void pen_stage_programs(struct pen_graph *graph);
/* The complete graphs of all stages: [stage]. */
struct pen_graph **pen_graphs_of(const struct pen_topology *topology,
                                 const struct pen_stages *stages, bool training);

#endif
