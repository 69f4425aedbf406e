/* collective_cost.c: the bytes and costs of the collectives of each stage.
 *
 * The bytes are those of runtime/exec/replicas.c. A replica owns one shard of each tensor
 * (runtime/plan/shard.h):
 *
 *   REDUCE_SCATTER, ALL_GATHER_GRAD   the f32 gradients of the weights that are trained
 *   REDUCE_GROUPS, GATHER_GROUPS      the same of one shard, between shard groups
 *   ALL_GATHER_WEIGHT                 what all replicas keep whole of these weights: the value,
 *                                     unless it is sharded, and the bf16 copy, unless it is
 *   UNSHARD                           what programs read of sharded weights
 *   ALL_GATHER, REDUCE_SCATTER ops    within programs: the same of one unit
 *   exchanges of tensor ranks         within programs (gen/model/exchanges.h)
 *
 * A byte costs costs.byte between two ranks of one host and costs.byte_host between hosts. The
 * defaults are in flops: on a CPU, whose core computes about 100 Gflop/s and moves 10 Gbyte/s, 10;
 * on a GPU that computes 400 Tflop/s, 2000 for 200 Gbyte/s (NVLink) and 8000 for 50 Gbyte/s (a
 * network adapter of 400 Gbit/s for each). A flop costs what it does on average over the forwards
 * of all stages. An exchange of tensor ranks costs what was measured for one of as many bytes, if
 * the costs are measured. */
#include "gen/timing/collective_cost.h"

#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/families/families.h"
#include "gen/model/exchanges.h"
#include "gen/model/op_signature.h"
#include "gen/model/unit_collectives.h"
#include "gen/partition/training.h"
#include "gen/timing/collective_bytes.h"
#include "gen/timing/cost.h"
#include "gen/timing/measured_links.h"
#include "gen/model/pieces.h"
#include "runtime/plan/shard.h"

/* Flops that cost as much as a byte. */
static const struct byte_flops {
  double byte, byte_host;
} byte_flops[PEN_DEVICES] = {[PEN_DEVICE_CPU] = {10, 10}, [PEN_DEVICE_CUDA] = {2000, 8000}};

struct pen_byte_cost pen_byte_cost_of(const struct pen_topology *topology,
                                      const struct pen_partition *partition,
                                      struct pen_graph *const *graph,
                                      const struct pen_stage_cost *cost) {
  double flops = 0, forward = 0;
  const struct byte_flops *of = &byte_flops[topology->cluster_device];
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    flops += pen_program_flops(&graph[s]->program[PEN_PROGRAM_F]);
    forward += cost[s].forward - cost[s].within[PEN_PROGRAM_F];
  }
  double flop = flops > 0 ? forward / flops : 0;
  return (struct pen_byte_cost){
      topology->has_costs_byte ? topology->costs_byte : of->byte * flop,
      topology->has_costs_byte_host ? topology->costs_byte_host : of->byte_host * flop,
      topology->measured_exchanges};
}

/* ---- bytes ---- */

/* The members of a collective of a stage, and the bytes of their shards of what each kind moves. */
struct stage_shards {
  struct pen_collective_group group;
  uint64_t *bytes[PEN_COLLECTIVES]; /* [member] */
};

static void add_shards(struct stage_shards *shards, int kind, const struct pen_weight *weight,
                       uint32_t index, uint64_t element_bytes) {
  uint64_t *bytes = shards->bytes[pen_collective_index(kind)];
  uint32_t replicas = shards->group.count;
  for (uint32_t d = 0; d < replicas && element_bytes > 0; d++)
    bytes[d] += pen_shard_at(weight->count, replicas, pen_shard_index(index, d, replicas)).count *
                element_bytes;
}

/* Bytes of an element of a weight that ALL_GATHER_WEIGHT gathers; `head`: the last stage's graph.
 */
static uint64_t whole_bytes(const struct pen_partition *partition, const struct pen_graph *graph,
                            const struct pen_graph *head, size_t weight) {
  bool tied = pen_weight_is_tied(graph, (uint32_t)weight);
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
  for (uint32_t w = 0; w < graph->weight_count; w++) {
    const struct pen_weight *weight = &graph->weight[w];
    if (!pen_graph_has_weight(graph, w) || !pen_sums_gradient(weight, PEN_DATA) ||
        pen_is_tied_head(graph, w))
      continue;
    uint32_t index = first_weight + w;
    add_shards(shards, PEN_REDUCE_SCATTER, weight, index, sizeof(float));
    add_shards(shards, PEN_ALL_GATHER_WEIGHT, weight, index,
               whole_bytes(partition, graph, head, w));
  }
  memcpy(shards->bytes[pen_collective_index(PEN_ALL_GATHER_GRAD)],
         shards->bytes[pen_collective_index(PEN_REDUCE_SCATTER)],
         shards->group.count * sizeof(uint64_t)); /* the same bytes */
  add_unsharded(shards, partition, graph, first_weight);
}

/* ---- collectives within programs ---- */

/* A program whose ops run one after the other, collectives beside kernels: when each is complete,
 * from the program's start. */
struct program_run {
  const struct stage_shards *shards;
  const struct pen_graph *graph;
  const struct pen_op_list *program;
  uint32_t first_weight;
  struct pen_byte_cost byte;
  double
      given[PEN_WITHIN]; /* by the topology: the cost of a byte of a whole tensor; below 0: none */
  double flop;           /* the cost of one */
  double computed, exchanged;
  uint32_t *sequence_of;                 /* [value]: of collectives, the last that names it */
  double *ended;                         /* [sequence] */
  uint32_t sequence;                     /* the last one; 0: none yet */
  struct pen_collectives_within *within; /* [PEN_WITHIN] */
};

static bool is_collective_op(int kind) {
  return kind == PEN_OP_ALL_GATHER || kind == PEN_OP_REDUCE_SCATTER ||
         kind == PEN_OP_SIGNAL_PEERS || kind == PEN_OP_WAIT_PEERS;
}

/* Runs a group of ops of one kind, from `op` on; returns past the last. */
static size_t run_group(struct program_run *run, size_t op) {
  const int kind = run->program->op[op].kind;
  const bool gathers = kind == PEN_OP_ALL_GATHER;
  const uint32_t replicas = run->shards->group.count;
  struct pen_collectives_within *within =
      &run->within[gathers ? PEN_WITHIN_WEIGHTS : PEN_WITHIN_GRADIENTS];
  const double given = run->given[gathers ? PEN_WITHIN_WEIGHTS : PEN_WITHIN_GRADIENTS];
  double whole = 0;
  uint64_t *bytes = pen_new(replicas, sizeof *bytes);
  struct pen_sent_bytes *sent = pen_new(replicas, sizeof *sent);
  for (; op < run->program->count && run->program->op[op].kind == kind; op++) {
    const struct pen_op *member = &run->program->op[op];
    const struct pen_value *kept = &run->graph->value[member->operand[gathers ? 0 : 1]];
    const uint32_t index = run->first_weight + kept->weight;
    run->sequence_of[member->operand[gathers ? 1 : 0]] = run->sequence;
    whole += (double)member->dim[0] * pen_dtype_bytes(kept->dtype);
    for (uint32_t d = 0; d < replicas; d++)
      bytes[d] +=
          pen_shard_at((uint64_t)member->dim[0], replicas, pen_shard_index(index, d, replicas))
              .count *
          pen_dtype_bytes(kept->dtype);
  }
  pen_collective_sent(gathers ? PEN_FORM_ALL_GATHER : PEN_FORM_REDUCE_SCATTER, &run->shards->group,
                      bytes, sent);
  double cost = given >= 0 ? given * whole
                           : pen_collective_time(&run->shards->group, sent, run->byte.within,
                                                 run->byte.between);
  within->calls++;
  within->sent += sent[0].within + sent[0].between;
  within->cost += cost;
  run->exchanged += cost;
  pen_free(bytes);
  pen_free(sent);
  return op;
}

/* Runs a sequence of collectives, which begins when the kernels before it are complete. */
static size_t run_sequence(struct program_run *run, size_t op) {
  run->sequence++;
  run->exchanged = fmax(run->exchanged, run->computed);
  while (op < run->program->count && is_collective_op(run->program->op[op].kind)) {
    const int kind = run->program->op[op].kind;
    op = kind == PEN_OP_ALL_GATHER || kind == PEN_OP_REDUCE_SCATTER ? run_group(run, op) : op + 1;
  }
  run->ended[run->sequence] = run->exchanged;
  return op;
}

/* What an exchange of tensor ranks takes, which are on one host. */
static double exchange_cost(const struct pen_graph *graph, const struct pen_exchange *exchange,
                            const struct pen_byte_cost *byte) {
  const double sent = (double)exchange->sent,
               measured =
                   pen_measured_exchange_ms(byte->exchanges, pen_graph_tensor_ranks(graph), sent);
  return measured < 0 ? sent * byte->within : measured;
}

double pen_exchanges_cost(const struct pen_graph *graph, int program,
                          const struct pen_byte_cost *byte) {
  double sum = 0;
  for (size_t i = 0; i < graph->program[program].count; i++) {
    const struct pen_exchange exchange = pen_exchange_at(graph, &graph->program[program], i);
    if (!exchange.op_count) continue;
    sum += exchange_cost(graph, &exchange, byte);
    i += exchange.op_count - 1;
  }
  return sum;
}

/* Runs an exchange; returns past it. */
static size_t run_exchange(struct program_run *run, size_t op,
                           const struct pen_exchange *exchange) {
  struct pen_collectives_within *within = &run->within[PEN_WITHIN_TENSOR];
  const double cost = exchange_cost(run->graph, exchange, &run->byte);
  within->calls++;
  within->sent += exchange->sent;
  within->cost += cost;
  run->computed += cost;
  return op + exchange->op_count;
}

/* The collectives of a program, and the time by which they lengthen it: exchanges by what they
 * take, the others together by what is left, in proportion to what they take. `cost`: of its
 * kernels alone. */
static void find_within(struct program_run *run, double cost) {
  const struct pen_op_list *program = run->program;
  double flops = pen_program_flops(program);
  run->flop = flops > 0 ? cost / flops : 0;
  run->sequence_of = pen_new(run->graph->value_count + 1, sizeof *run->sequence_of);
  run->ended = pen_new(program->count + 2, sizeof *run->ended);
  for (size_t i = 0; i < program->count;) {
    const struct pen_op *op = &program->op[i];
    const struct pen_exchange exchange = pen_exchange_at(run->graph, program, i);
    if (exchange.op_count) {
      i = run_exchange(run, i, &exchange);
      continue;
    }
    if (is_collective_op(op->kind)) {
      i = run_sequence(run, i);
      continue;
    }
    if (op->kind == PEN_OP_WAIT_EVENT)
      run->computed = fmax(run->computed, run->ended[run->sequence_of[op->operand[0]]]);
    run->computed += run->flop * pen_signature_flops(pen_signature_of(op->kind), op->dim);
    i++;
  }
  struct pen_collectives_within *within = run->within;
  within[PEN_WITHIN_TENSOR].exposed = within[PEN_WITHIN_TENSOR].cost;
  double all = within[PEN_WITHIN_WEIGHTS].cost + within[PEN_WITHIN_GRADIENTS].cost,
         exposed = fmax(0, run->computed - run->flop * flops - within[PEN_WITHIN_TENSOR].cost);
  for (int kind = PEN_WITHIN_WEIGHTS; kind <= PEN_WITHIN_GRADIENTS && all > 0; kind++)
    within[kind].exposed = exposed * (within[kind].cost / all);
  pen_free(run->sequence_of);
  pen_free(run->ended);
}

/* The cost of the kernels of a program. */
static double kernel_cost(const struct pen_stage_cost *cost, int program) {
  const double of[PEN_PROGRAMS] = {[PEN_PROGRAM_F] = cost->forward,
                                   [PEN_PROGRAM_I] = cost->backward_input,
                                   [PEN_PROGRAM_W] = cost->backward_weight,
                                   [PEN_PROGRAM_B] = pen_backward_cost(cost)};
  return of[program] - cost->within[program];
}

/* ---- costs ---- */

/* The replicas' ranks of a stage while its costs are found. */
struct stage_members {
  const struct pen_partition *partition;
  uint32_t stage, first_weight;
  uint32_t *host; /* [member] of shards.group */
  struct stage_shards shards;
  struct pen_byte_cost byte;
};

/* Chooses the members of a group: that of member `other` of the first group of kind `others`. */
static void choose_members(struct stage_members *m, int group, int others, uint32_t other) {
  const struct pen_group_sizes sizes = PEN_SIZES(m->partition);
  const uint32_t rank = pen_group_process(&sizes, 0, PEN_PIPELINE, m->partition->rank_of[m->stage]);
  m->shards.group.count = pen_group_size(&sizes, group);
  pen_group_hosts(&sizes, m->partition->host_of, pen_group_process(&sizes, rank, others, other),
                  group, m->host);
  for (int k = 0; k < PEN_COLLECTIVES; k++)
    memset(m->shards.bytes[k], 0, m->shards.group.count * sizeof *m->shards.bytes[k]);
}

/* Adds the costs of the kinds that move bytes: of several groups of members the greatest, and what
 * the first member of the first group sends. */
static void add_costs(const struct stage_members *m, bool is_first,
                      struct pen_collective_cost *cost) {
  struct pen_sent_bytes *sent = pen_new(m->shards.group.count, sizeof *sent);
  for (int k = 0; k < PEN_COLLECTIVES; k++) {
    bool reduces = k == pen_collective_index(PEN_REDUCE_SCATTER) ||
                   k == pen_collective_index(PEN_REDUCE_GROUPS);
    pen_collective_sent(reduces ? PEN_FORM_REDUCE_SCATTER : PEN_FORM_ALL_GATHER, &m->shards.group,
                        m->shards.bytes[k], sent);
    if (is_first) cost->sent[k] += sent[0].within + sent[0].between;
    cost->cost[k] = fmax(cost->cost[k], pen_collective_time(&m->shards.group, sent, m->byte.within,
                                                            m->byte.between));
  }
  pen_free(sent);
}

/* Bytes of the whole tensors of a stage that ALL_GATHER ops gather, or REDUCE_SCATTER ops sum. */
static double whole_tensors(const struct pen_graph *graph, int kind) {
  bool *seen = pen_new(graph->value_count + 1, sizeof *seen);
  double bytes = 0;
  for (int p = 0; p < PEN_PROGRAMS; p++)
    for (size_t i = 0; i < graph->program[p].count; i++) {
      const struct pen_op *op = &graph->program[p].op[i];
      if (op->kind != kind) continue;
      uint32_t kept = op->operand[kind == PEN_OP_ALL_GATHER ? 0 : 1];
      if (!seen[kept]) bytes += (double)op->dim[0] * pen_dtype_bytes(graph->value[kept].dtype);
      seen[kept] = true;
    }
  pen_free(seen);
  return bytes;
}

/* The cost of a byte within programs if the topology gives that of a whole stage; -1: it does not.
 */
static double given_byte(const struct pen_graph *graph, struct pen_reals given, int kind) {
  double bytes = given.count ? whole_tensors(graph, kind) : 0;
  return bytes > 0 ? given.value[given.count == 1 ? 0 : graph->stage] / bytes : -1;
}

/* Each shard group. */
static void cost_groups(struct stage_members *m, const struct pen_graph *graph,
                        const struct pen_graph *head, struct pen_collective_cost *cost,
                        const struct pen_stage_cost *stage_cost) {
  const struct pen_topology *topology = graph->topology;
  const double gather = given_byte(graph, topology->costs_gather, PEN_OP_ALL_GATHER),
               reduce = given_byte(graph, topology->costs_reduce, PEN_OP_REDUCE_SCATTER);
  for (uint32_t g = 0; g < pen_group_size(m->partition, PEN_SAME_SHARD); g++) {
    choose_members(m, PEN_SHARD, PEN_SAME_SHARD, g);
    find_shards(&m->shards, m->partition, graph, head, m->first_weight);
    add_costs(m, g == 0, cost);
    for (int p = 0; p < PEN_PROGRAMS && g == 0; p++)
      find_within(
          &(struct program_run){
              .shards = &m->shards,
              .graph = graph,
              .program = &graph->program[p],
              .first_weight = m->first_weight,
              .byte = m->byte,
              .given = {[PEN_WITHIN_WEIGHTS] = gather, [PEN_WITHIN_GRADIENTS] = reduce},
              .within = cost->within[p]},
          kernel_cost(stage_cost, p));
  }
}

/* The replicas that have the same shard, one in each group. */
static void cost_pieces(struct stage_members *m, const struct pen_graph *graph,
                        struct pen_collective_cost *cost) {
  const uint32_t shards = pen_group_size(m->partition, PEN_SHARD),
                 groups = pen_group_size(m->partition, PEN_SAME_SHARD);
  for (uint32_t c = 0; c < shards && groups > 1; c++) {
    choose_members(m, PEN_SAME_SHARD, PEN_SHARD, c);
    for (uint32_t w = 0; w < graph->weight_count; w++) {
      if (!pen_graph_has_weight(graph, w) || !pen_sums_gradient(&graph->weight[w], PEN_DATA) ||
          pen_is_tied_head(graph, w))
        continue;
      uint64_t shard = pen_shard_at(graph->weight[w].count, shards,
                                    pen_shard_index(m->first_weight + w, c, shards))
                           .count;
      for (uint32_t g = 0; g < groups; g++) {
        uint64_t bytes = pen_shard_at(shard, groups, g).count * sizeof(float);
        m->shards.bytes[pen_collective_index(PEN_REDUCE_GROUPS)][g] += bytes;
        m->shards.bytes[pen_collective_index(PEN_GATHER_GROUPS)][g] += bytes;
      }
    }
    add_costs(m, c == 0, cost);
  }
}

/* Replaces the costs of a stage by those of the topology. */
static void take_given(const struct pen_topology *topology, uint32_t stage,
                       struct pen_collective_cost *cost) {
  for (int k = 0; k < PEN_COLLECTIVES; k++) {
    bool reduces = k == pen_collective_index(PEN_REDUCE_SCATTER) ||
                   k == pen_collective_index(PEN_REDUCE_GROUPS);
    struct pen_reals given = reduces ? topology->costs_reduce : topology->costs_gather;
    if (given.count) cost->cost[k] = given.value[given.count == 1 ? 0 : stage];
  }
}

static bool has_collectives(const struct pen_partition *partition) {
  return pen_group_size(partition, PEN_DATA) > 1 || pen_group_size(partition, PEN_TENSOR) > 1;
}

struct pen_collective_cost *pen_collective_costs(const struct pen_topology *topology,
                                                 const struct pen_partition *partition,
                                                 struct pen_graph *const *graph,
                                                 const struct pen_stage_cost *cost) {
  if (!has_collectives(partition)) return NULL;
  const uint32_t replicas = pen_group_size(partition, PEN_DATA);
  struct pen_collective_cost *collective = pen_new(partition->stage_count, sizeof *collective);
  uint32_t *host = pen_new(replicas, sizeof *host);
  struct stage_members m = {.partition = partition,
                            .host = host,
                            .shards = {.group = {.host = host}},
                            .byte = pen_byte_cost_of(topology, partition, graph, cost)};
  for (int k = 0; k < PEN_COLLECTIVES; k++)
    m.shards.bytes[k] = pen_new(replicas, sizeof *m.shards.bytes[k]);
  for (; m.stage < partition->stage_count; m.stage++) {
    cost_groups(&m, graph[m.stage], graph[partition->stage_count - 1], &collective[m.stage],
                &cost[m.stage]);
    cost_pieces(&m, graph[m.stage], &collective[m.stage]);
    take_given(topology, m.stage, &collective[m.stage]);
    m.first_weight += (uint32_t)pen_own_weights(graph[m.stage]);
  }
  for (int k = 0; k < PEN_COLLECTIVES; k++) pen_free(m.shards.bytes[k]);
  pen_free(host);
  return collective;
}

static bool has_collectives_within(const struct pen_graph *graph) {
  for (int p = 0; p < PEN_PROGRAMS; p++)
    for (size_t i = 0; i < graph->program[p].count; i++)
      if (is_collective_op(graph->program[p].op[i].kind) ||
          pen_exchange_at(graph, &graph->program[p], i).op_count)
        return true;
  return false;
}

void pen_add_collectives_within(const struct pen_topology *topology,
                                const struct pen_partition *partition,
                                struct pen_graph *const *graph, struct pen_stage_cost *cost) {
  bool any = false;
  if (has_collectives(partition))
    for (uint32_t s = 0; s < partition->stage_count && !any; s++)
      any = has_collectives_within(graph[s]);
  if (!any) return;
  const struct pen_collective_cost *collective =
      pen_collective_costs(topology, partition, graph, cost);
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    double *within = cost[s].within;
    for (int p = 0; p < PEN_PROGRAMS; p++)
      for (int kind = 0; kind < PEN_WITHIN; kind++)
        within[p] += collective[s].within[p][kind].exposed;
    cost[s].forward += within[PEN_PROGRAM_F];
    cost[s].backward_input += within[PEN_PROGRAM_I];
    cost[s].backward_weight += within[PEN_PROGRAM_W];
    cost[s].shared += within[PEN_PROGRAM_I] + within[PEN_PROGRAM_W] - within[PEN_PROGRAM_B];
  }
}
