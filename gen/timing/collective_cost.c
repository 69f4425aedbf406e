/* collective_cost.c: the bytes and costs of the collectives of each stage.
 *
 * The bytes are sums over the rows of gen/partition/puts.h, of actions and of ops in programs.
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
#include "gen/model/exchanges.h"
#include "gen/model/op_signature.h"
#include "gen/partition/puts.h"
#include "gen/timing/collective_bytes.h"
#include "gen/timing/cost.h"
#include "gen/timing/measured_links.h"
#include "gen/model/splits.h"
#include "runtime/plan/puts.h"

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

/* The members of a group of a stage, and how their cuts follow from the elements of a weight. */
struct stage_group {
  struct pen_collective_group members;
  uint32_t first, shards, shard_groups; /* the data rank of the first member; sizes */
};

/* Adds to bytes [member] what each has a cut of. */
static void add_cuts(const struct stage_group *g, const struct pen_put *put,
                     const struct pen_weight *weight, uint64_t *bytes) {
  const struct pen_division d = pen_division_of(weight, g->shards);
  for (uint32_t m = 0; m < g->members.count; m++)
    bytes[m] += pen_cut_at(d, put->weight, g->shard_groups, put->group, g->first, m).count *
                pen_dtype_bytes(put->dtype);
}

static enum pen_collective_form form_of(const struct pen_put *put) {
  return put->kind == PEN_PUT_ADD ? PEN_FORM_REDUCE_SCATTER : PEN_FORM_ALL_GATHER;
}

/* ---- collectives within programs ---- */

/* A program whose ops run one after the other, collectives beside kernels: when each is complete,
 * from the program's start. */
struct program_run {
  const struct stage_group *group;
  const struct pen_put_source *source;
  const struct pen_graph *graph;
  const struct pen_op_list *program;
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
  const uint32_t replicas = run->group->members.count;
  struct pen_collectives_within *within =
      &run->within[gathers ? PEN_WITHIN_WEIGHTS : PEN_WITHIN_GRADIENTS];
  const double given = run->given[gathers ? PEN_WITHIN_WEIGHTS : PEN_WITHIN_GRADIENTS];
  double whole = 0;
  uint64_t *bytes = pen_new(replicas, sizeof *bytes);
  struct pen_sent_bytes *sent = pen_new(replicas, sizeof *sent);
  struct pen_put put = {.kind = 0};
  for (; op < run->program->count && run->program->op[op].kind == kind; op++) {
    const struct pen_op *member = &run->program->op[op];
    put = pen_put_of_op(run->source, member);
    run->sequence_of[member->operand[gathers ? 1 : 0]] = run->sequence;
    whole += (double)member->dim[0] * pen_dtype_bytes(put.dtype);
    add_cuts(run->group, &put, &run->graph->weight[put.weight - run->source->first_weight], bytes);
  }
  pen_collective_sent(form_of(&put), &run->group->members, bytes, sent);
  double cost = given >= 0 ? given * whole
                           : pen_collective_time(&run->group->members, sent, run->byte.within,
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

/* The bytes that a member sends to all others in the exchange of tensor ranks that begins at an op.
 */
static uint64_t exchange_sent(const struct pen_graph *graph, const struct pen_op *op) {
  const struct pen_put_source source = {.graph = graph};
  const struct pen_put put = pen_put_of_op(&source, op);
  return put.count * put.bytes * (pen_graph_tensor_ranks(graph) - 1);
}

double pen_exchange_cost(uint32_t tensor_ranks, double sent, const struct pen_byte_cost *byte) {
  const double measured = pen_measured_exchange_ms(byte->exchanges, tensor_ranks, sent);
  return measured < 0 ? sent * byte->within : measured;
}

double pen_exchanges_cost(const struct pen_graph *graph, int program,
                          const struct pen_byte_cost *byte) {
  const struct pen_op_list *list = &graph->program[program];
  double sum = 0;
  for (size_t i = 0; i < list->count; i++) {
    const size_t ops = pen_exchange_ops(graph, &list->op[i]);
    if (ops == 0) continue;
    sum += pen_exchange_cost(pen_graph_tensor_ranks(graph),
                             (double)exchange_sent(graph, &list->op[i]), byte);
    i += ops - 1;
  }
  return sum;
}

/* Runs an exchange of so many ops; returns past it. */
static size_t run_exchange(struct program_run *run, size_t op, size_t ops) {
  struct pen_collectives_within *within = &run->within[PEN_WITHIN_TENSOR];
  const uint64_t sent = exchange_sent(run->graph, &run->program->op[op]);
  const double cost =
      pen_exchange_cost(pen_graph_tensor_ranks(run->graph), (double)sent, &run->byte);
  within->calls++;
  within->sent += sent;
  within->cost += cost;
  run->computed += cost;
  return op + ops;
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
    const size_t exchange_ops = pen_exchange_ops(run->graph, op);
    if (exchange_ops) {
      i = run_exchange(run, i, exchange_ops);
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

/* A stage while its costs are found. */
struct stage_costs {
  const struct pen_partition *partition;
  struct pen_put_source source;
  uint32_t stage;
  uint32_t *host; /* [member] of the group */
  struct stage_group group;
  struct pen_byte_cost byte;
  struct pen_collective_cost *cost;
};

/* Chooses the members of a group: that of member `index` of the first group of the other kind. */
static void choose_group(struct stage_costs *s, int group, uint32_t index) {
  const struct pen_group_sizes sizes = PEN_SIZES(s->partition);
  const uint32_t rank = pen_group_process(&sizes, 0, PEN_PIPELINE, s->partition->rank_of[s->stage]),
                 first = pen_group_process(&sizes, rank,
                                           group == PEN_SHARD ? PEN_SAME_SHARD : PEN_SHARD, index);
  s->group = (struct stage_group){.members = {pen_group_size(&sizes, group), s->host},
                                  .first = pen_group_member(&sizes, first, PEN_DATA),
                                  .shards = pen_group_size(&sizes, PEN_SHARD),
                                  .shard_groups = pen_group_size(&sizes, PEN_SAME_SHARD)};
  pen_group_hosts(&sizes, s->partition->host_of, first, group, s->host);
}

/* The costs of an action: of several groups of members the greatest, and what the first member of
 * the first group sends. */
static void cost_action(struct stage_costs *s, int kind) {
  const int k = pen_collective_index(kind);
  struct pen_stage_puts list = {.count = 0};
  pen_list_puts(&s->source, kind, &list);
  const uint32_t replicas = pen_group_size(s->partition, PEN_DATA);
  uint64_t *bytes = pen_new(replicas + 1, sizeof *bytes);
  struct pen_sent_bytes *sent = pen_new(replicas + 1, sizeof *sent);
  for (uint32_t g = 0, past = 1; list.count && g < past; g++) {
    const struct pen_put *first = &list.put[0].row;
    choose_group(s, first->group, g);
    past = pen_group_size(s->partition, first->group == PEN_SHARD ? PEN_SAME_SHARD : PEN_SHARD);
    memset(bytes, 0, s->group.members.count * sizeof *bytes);
    for (size_t i = 0; i < list.count; i++) {
      const uint32_t weight = list.put[i].row.weight - s->source.first_weight;
      add_cuts(&s->group, &list.put[i].row, &s->source.graph->weight[weight], bytes);
    }
    pen_collective_sent(form_of(first), &s->group.members, bytes, sent);
    if (g == 0) s->cost->sent[k] = sent[0].within + sent[0].between;
    s->cost->cost[k] = fmax(s->cost->cost[k], pen_collective_time(&s->group.members, sent,
                                                                  s->byte.within, s->byte.between));
  }
  pen_free(bytes);
  pen_free(sent);
  pen_free(list.put);
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

/* The collectives within the programs, of the first shard group. */
static void cost_programs(struct stage_costs *s, const struct pen_stage_cost *stage_cost) {
  const struct pen_graph *graph = s->source.graph;
  const struct pen_topology *topology = graph->topology;
  const double gather = given_byte(graph, topology->costs_gather, PEN_OP_ALL_GATHER),
               reduce = given_byte(graph, topology->costs_reduce, PEN_OP_REDUCE_SCATTER);
  choose_group(s, PEN_SHARD, 0);
  for (int p = 0; p < PEN_PROGRAMS; p++)
    find_within(
        &(struct program_run){
            .group = &s->group,
            .source = &s->source,
            .graph = graph,
            .program = &graph->program[p],
            .byte = s->byte,
            .given = {[PEN_WITHIN_WEIGHTS] = gather, [PEN_WITHIN_GRADIENTS] = reduce},
            .within = s->cost->within[p]},
        kernel_cost(stage_cost, p));
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
  struct pen_collective_cost *collective = pen_new(partition->stage_count, sizeof *collective);
  struct stage_costs s = {
      .partition = partition,
      .source = {.partition = partition, .head = graph[partition->stage_count - 1]},
      .host = pen_new(pen_group_size(partition, PEN_DATA), sizeof *s.host),
      .byte = pen_byte_cost_of(topology, partition, graph, cost)};
  for (; s.stage < partition->stage_count; s.stage++) {
    s.source.graph = graph[s.stage];
    s.cost = &collective[s.stage];
    for (int kind = PEN_REDUCE_SCATTER; kind <= PEN_UNSHARD; kind++) cost_action(&s, kind);
    cost_programs(&s, &cost[s.stage]);
    take_given(topology, s.stage, s.cost);
    s.source.first_weight += (uint32_t)pen_own_weights(graph[s.stage]);
  }
  pen_free(s.host);
  return collective;
}

static bool has_collectives_within(const struct pen_graph *graph) {
  for (int p = 0; p < PEN_PROGRAMS; p++)
    for (size_t i = 0; i < graph->program[p].count; i++)
      if (is_collective_op(graph->program[p].op[i].kind) ||
          pen_exchange_ops(graph, &graph->program[p].op[i]))
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
