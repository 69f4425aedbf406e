/* collective_cost.c: the bytes and costs of the collectives of each stage.
 *
 * The bytes are those of runtime/exec/replicas.c. A replica owns one shard of each tensor
 * (runtime/plan/shard.h):
 *
 *   REDUCE_SCATTER, ALL_GATHER_GRAD   the f32 gradients of the weights that are trained
 *   ALL_GATHER_WEIGHT                 what all replicas keep whole of these weights: the value,
 *                                     unless it is sharded, and the bf16 copy, unless it is
 *   UNSHARD                           what programs read of sharded weights
 *
 * A byte costs costs.byte between two ranks of one host and costs.byte_host between hosts. The
 * defaults are in flops: on a CPU, whose core computes about 100 Gflop/s and moves 10 Gbyte/s, 10;
 * on a GPU that computes 400 Tflop/s, 2000 for 200 Gbyte/s (NVLink) and 8000 for 50 Gbyte/s (a
 * network adapter of 400 Gbit/s for each). A flop costs what it does on average over the forwards
 * of all stages. */
#include "gen/timing/collective_cost.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/families/families.h"
#include "gen/partition/training.h"
#include "gen/timing/collective_bytes.h"
#include "gen/timing/cost.h"
#include "runtime/plan/shard.h"

/* Flops that cost as much as a byte. */
static const struct byte_flops {
  const char *device;
  double byte, byte_host;
} byte_flops[] = {{"cpu", 10, 10}, {"cuda", 2000, 8000}};

/* The cost of a byte within and between hosts. */
struct byte_cost {
  double within, between;
};

static struct byte_cost byte_cost_of(const struct pen_topology *topology,
                                     const struct pen_partition *partition,
                                     struct pen_graph *const *graph,
                                     const struct pen_stage_cost *cost) {
  double flops = 0, forward = 0;
  const struct byte_flops *of = byte_flops;
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    flops += pen_program_flops(&graph[s]->program[PEN_PROGRAM_F]);
    forward += cost[s].forward;
  }
  double flop = flops > 0 ? forward / flops : 0;
  if (strcmp(topology->cluster_device, of->device) != 0) of++;
  return (struct byte_cost){
      topology->has_costs_byte ? topology->costs_byte : of->byte * flop,
      topology->has_costs_byte_host ? topology->costs_byte_host : of->byte_host * flop};
}

/* ---- bytes ---- */

/* The replicas of the rank of a stage, and the bytes of their shards of what each collective moves.
 */
struct stage_shards {
  struct pen_collective_group group;
  uint64_t *bytes[PEN_COLLECTIVES]; /* [replica] */
};

static void add_shards(struct stage_shards *shards, int kind, const struct pen_weight *weight,
                       uint32_t index, uint64_t element_bytes) {
  uint64_t *bytes = shards->bytes[pen_collective_index(kind)];
  uint32_t replicas = shards->group.count;
  for (uint32_t d = 0; d < replicas && element_bytes > 0; d++)
    bytes[d] += pen_shard_at(weight->count, replicas, pen_shard_index(index, d, replicas)).count *
                element_bytes;
}

/* Whether embedding and head share this weight of a stage. */
static bool is_tied(const struct pen_graph *graph, size_t weight) {
  const char *embedding =
      graph->topology->model_tie_embeddings ? graph->stages->family->embedding : NULL;
  return embedding && strcmp(graph->weight[weight].name, embedding) == 0;
}

/* Bytes of an element of a weight that ALL_GATHER_WEIGHT gathers; `head`: the last stage's graph.
 */
static uint64_t whole_bytes(const struct pen_partition *partition, const struct pen_graph *graph,
                            const struct pen_graph *head, size_t weight) {
  bool tied = is_tied(graph, weight);
  const struct pen_weight *reader =
      tied && head->tied != PEN_NONE ? &head->weight[head->tied] : &graph->weight[weight];
  bool has_bf16 = reader->bf16_offset != UINT64_MAX;
  bool shards_value = !tied && (has_bf16 ? partition->sharding != PEN_SHARD_NONE
                                         : partition->sharding == PEN_SHARD_WEIGHTS),
       shards_bf16 = !tied && partition->sharding == PEN_SHARD_WEIGHTS;
  return (shards_value ? 0 : sizeof(float)) + (has_bf16 && !shards_bf16 ? sizeof(uint16_t) : 0);
}

/* [value]: a program reads it. */
static bool *find_read_values(const struct pen_graph *graph) {
  bool *read = pen_new(graph->value_count + 1, sizeof *read);
  for (int p = 0; p < PEN_PROGRAMS; p++)
    for (size_t i = 0; i < graph->program[p].count; i++)
      for (int k = 0; k < PEN_OPERANDS_MAX; k++)
        if (graph->program[p].op[i].operand[k] != PEN_NONE)
          read[graph->program[p].op[i].operand[k]] = true;
  return read;
}

static void add_unsharded(struct stage_shards *shards, const struct pen_partition *partition,
                          const struct pen_graph *graph, uint32_t first_weight) {
  bool *read = find_read_values(graph);
  for (uint32_t v = 0; v < graph->value_count; v++) {
    const struct pen_value *value = &graph->value[v];
    if (read[v] && pen_value_is_unsharded(partition, graph, v))
      add_shards(shards, PEN_UNSHARD, &graph->weight[value->weight], first_weight + value->weight,
                 value->bytes / value->elements);
  }
  pen_free(read);
}

/* `first_weight`: the index in the plan of the stage's first weight. */
static void find_shards(struct stage_shards *shards, const struct pen_partition *partition,
                        const struct pen_graph *graph, const struct pen_graph *head,
                        uint32_t first_weight) {
  for (int k = 0; k < PEN_COLLECTIVES; k++)
    memset(shards->bytes[k], 0, shards->group.count * sizeof *shards->bytes[k]);
  for (uint32_t w = 0; w < graph->weight_count; w++) {
    const struct pen_weight *weight = &graph->weight[w];
    if (weight->frozen || w == graph->tied) continue;
    uint32_t index = first_weight + w;
    add_shards(shards, PEN_REDUCE_SCATTER, weight, index, sizeof(float));
    add_shards(shards, PEN_ALL_GATHER_GRAD, weight, index, sizeof(float));
    add_shards(shards, PEN_ALL_GATHER_WEIGHT, weight, index,
               whole_bytes(partition, graph, head, w));
  }
  add_unsharded(shards, partition, graph, first_weight);
}

/* ---- costs ---- */

static struct pen_collective_cost stage_costs(const struct stage_shards *shards,
                                              struct byte_cost byte, struct pen_sent_bytes *sent) {
  struct pen_collective_cost cost;
  for (int k = 0; k < PEN_COLLECTIVES; k++) {
    bool reduces = k == pen_collective_index(PEN_REDUCE_SCATTER);
    pen_collective_sent(reduces ? PEN_FORM_REDUCE_SCATTER : PEN_FORM_ALL_GATHER, &shards->group,
                        shards->bytes[k], sent);
    cost.sent[k] = sent[0].within + sent[0].between;
    cost.cost[k] = pen_collective_time(&shards->group, sent, byte.within, byte.between);
  }
  return cost;
}

/* Replaces the costs of a stage by those of the topology. */
static void take_given(const struct pen_topology *topology, uint32_t stage,
                       struct pen_collective_cost *cost) {
  for (int k = 0; k < PEN_COLLECTIVES; k++) {
    struct pen_reals given = k == pen_collective_index(PEN_REDUCE_SCATTER) ? topology->costs_reduce
                                                                           : topology->costs_gather;
    if (given.count) cost->cost[k] = given.value[given.count == 1 ? 0 : stage];
  }
}

struct pen_collective_cost *pen_collective_costs(const struct pen_topology *topology,
                                                 const struct pen_partition *partition,
                                                 struct pen_graph *const *graph,
                                                 const struct pen_stage_cost *cost) {
  uint32_t replicas = partition->replica_count, first_weight = 0;
  if (replicas <= 1) return NULL;
  struct pen_collective_cost *collective = pen_new(partition->stage_count, sizeof *collective);
  struct byte_cost byte = byte_cost_of(topology, partition, graph, cost);
  struct pen_sent_bytes *sent = pen_new(replicas, sizeof *sent);
  uint32_t *host = pen_new(replicas, sizeof *host);
  struct stage_shards shards = {{replicas, host}, {NULL}};
  for (int k = 0; k < PEN_COLLECTIVES; k++)
    shards.bytes[k] = pen_new(replicas, sizeof *shards.bytes[k]);
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    for (uint32_t d = 0; d < replicas && partition->host_of; d++)
      host[d] = partition->host_of[d * partition->rank_count + partition->rank_of[s]];
    find_shards(&shards, partition, graph[s], graph[partition->stage_count - 1], first_weight);
    collective[s] = stage_costs(&shards, byte, sent);
    take_given(topology, s, &collective[s]);
    first_weight += (uint32_t)graph[s]->weight_count - (graph[s]->tied != PEN_NONE);
  }
  for (int k = 0; k < PEN_COLLECTIVES; k++) pen_free(shards.bytes[k]);
  pen_free(sent);
  pen_free(host);
  return collective;
}
