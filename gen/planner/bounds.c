/* bounds.c: what no candidate of a pipeline can beat, in time and in memory.
 *
 * A candidate may be left out if a bound shows that it cannot be among the best, so each bound must
 * be proved. Of the step:
 *
 *   pipeline    A rank runs all F, I and W of its stages. Before them, the forwards of all stages
 *               before its lowest run on other ranks. If the backward is not split, all backwards
 *               of stages before its lowest run after its last action, which is a B: all work of
 *               the rank is before that. Recomputation adds to I. Where it changes the cut, the
 *               busiest rank still has at least the average of all ranks' work, by their speeds.
 *   alone       The order without replicas. Collectives are further elements of the lists of ranks,
 *               and those within programs lengthen these. A simulated step is a longest path
 *               through lists and messages, which neither can shorten.
 *   tensor      Programs wait for the exchanges of tensor ranks, which no choice of the replicas
 *               changes: they count as work of the cut (cut.c), also by measured costs.
 *   exchange    A rank runs its collectives beside its work. Of a collective, all n members
 *               together send each byte of a tensor n - 1 times; the slowest takes at least the
 *               average. With C the least sum of the costs of a byte from one member to each of the
 *               others, that is the tensor's bytes x C / n.
 *
 *   measured    By measured costs a collective of a stage takes what was measured for the bytes of
 *               its gradients, whichever it is (measured_links.c); or a byte takes what it does for
 *               those of the largest stage, where fewer data ranks share than there are.
 *   within      A program with collectives takes at least as long as these: they run one after the
 *               other, and the program waits for each (unit_collectives.c). It gathers each weight
 *               that it reads at least once, and reduces each gradient that it makes.
 *   update      By measured costs of blocks a rank has NORM after its list, and UPDATE after the
 * NORM of all ranks (gen/timing/step_time.c). The step is at least the bound of a rank's list with
 * its NORM, and then the longest UPDATE. Of n data ranks that share a rank's elements one has at
 * least an n-th.
 *
 * Of a rank's arena: weights with their copies, gradients and moments, or a shard of them, which is
 * at least an n-th of a tensor; and the activations and messages that are live at one action
 * (struct pen_stage_buffers). What gen/layout/ rounds up, and what collectives need, is not
 * counted.
 */
#include "gen/planner/bounds.h"

#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/schedule/schedule.h"
#include "gen/timing/collective_cost.h"
#include "gen/timing/cost.h"
#include "gen/topology/schedule_table.h"

/* ---- pipelines ---- */

struct pen_pipeline_shape pen_pipeline_shape_of(const struct pen_planner *planner,
                                                const struct pen_choice *pipeline) {
  const struct pen_axes *axes = planner->axes;
  const struct pen_schedule *schedule = pen_choice_schedule(axes, pipeline);
  struct pen_pipeline_shape shape = {
      .topology = *planner->written,
      .ranks = (uint32_t)pen_choice_ranks(axes, pipeline),
      .stages_per_rank = (uint32_t)pen_axis_number(axes, pipeline, PEN_AXIS_stages),
      .microbatches = (uint32_t)pen_choice_microbatches(axes, pipeline),
      .replicas = (uint32_t)pen_axis_number(axes, pipeline, PEN_AXIS_replicas)};
  const struct pen_reals *speed = &planner->written->cluster_speed;
  if (speed->count) shape.speed = speed->value;
  shape.topology.pipeline_schedule = (enum pen_schedule_kind)(schedule - pen_schedules);
  shape.zigzag = pen_choice_zigzag(axes, pipeline);
  shape.splits = pen_schedule_splits(schedule, planner->written);
  return shape;
}

static double speed_of(const struct pen_pipeline_shape *shape, uint32_t rank) {
  return shape->speed ? shape->speed[rank] : 1;
}

static double trained_elements(const struct pen_stage_elements *elements) {
  return elements->count[0][1] + elements->count[1][1];
}

/* The time of all work if the ranks shared it as their speeds allow. */
static double shared_work(const struct pen_cut *cut, const struct pen_pipeline_shape *shape) {
  double work = 0, speeds = 0;
  for (uint32_t s = 0; s < cut->stage_count; s++)
    work += cut->cost[s].forward + pen_backward_cost(&cut->cost[s]);
  for (uint32_t r = 0; r < shape->ranks; r++) speeds += speed_of(shape, r);
  return work * shape->microbatches / speeds;
}

double pen_pipeline_bound(const struct pen_cut *cut, const struct pen_pipeline_shape *shape,
                          bool exact) {
  double most = 0, head = 0, tail = 0, elements_most = 0;
  if (cut->overlap >= 0) return 0;
  if (!exact) return shared_work(cut, shape);
  for (uint32_t r = 0; r < shape->ranks; r++) {
    const double speed = speed_of(shape, r);
    double work = 0, elements = 0;
    for (uint32_t turn = 0; turn < shape->stages_per_rank; turn++) {
      const uint32_t s = pen_placed_stage(shape->ranks, shape->zigzag, r, turn);
      work += cut->cost[s].forward + pen_backward_cost(&cut->cost[s]);
      elements += trained_elements(&cut->elements[s]);
    }
    const double end = head + shape->microbatches * work / speed,
                 norm = cut->norm_element * elements / shape->replicas;
    most = fmax(most, end + fmax(norm, shape->splits ? 0 : tail));
    elements_most = fmax(elements_most, elements);
    head += cut->cost[r].forward / speed;
    tail += pen_backward_cost(&cut->cost[r]) / speed;
  }
  return most + cut->update_element * elements_most / shape->replicas;
}

/* ---- collectives ---- */

struct pen_members pen_members_of(const struct pen_group_sizes *sizes, const uint32_t *host_of,
                                  uint32_t process, int group) {
  const uint32_t count = pen_group_size(sizes, group);
  struct pen_members members = {count, count - 1, host_of ? 0 : count - 1};
  uint32_t *host = pen_new(count, sizeof *host);
  pen_group_hosts(sizes, host_of, process, group, host);
  for (uint32_t d = 0; host_of && d < count; d++) {
    uint32_t near = 0;
    for (uint32_t e = 0; e < count; e++) near += e != d && host[d] == host[e];
    if (near < members.least_near) members.least_near = near;
    if (near > members.most_near) members.most_near = near;
  }
  pen_free(host);
  return members;
}

/* The least over members of the cost of a byte to each of the others, divided by the members. */
static double member_cost(const struct pen_members *members, struct pen_byte_cost byte) {
  const double others = members->count - 1.0, least = members->least_near,
               most = members->most_near;
  return fmin(least * byte.within + (others - least) * byte.between,
              most * byte.within + (others - most) * byte.between) /
         members->count;
}

/* Which collectives a stage has that are actions: one that reduces gradients, and one that gathers
 * them, or values. */
struct stage_collectives {
  bool reduces, gathers_gradients, gathers_values;
};

static struct stage_collectives collectives_of(const struct pen_cut *cut,
                                               const struct pen_sharing_terms *terms) {
  const bool shards_moments =
      terms->sharding == PEN_SHARD_OPTIMIZER || terms->sharding == PEN_SHARD_GRADIENTS;
  return (struct stage_collectives){
      .reduces = !terms->reduces_microbatches,
      .gathers_gradients = terms->sharding == PEN_SHARD_NONE,
      .gathers_values = shards_moments || (terms->sharding == PEN_SHARD_WEIGHTS &&
                                           !terms->gathers_units && !cut->ties)};
}

/* The least time of a rank's collectives that are actions, for each trained element of its stages;
 * `byte`: the cost of one. */
static double exchange_of_element(const struct pen_cut *cut, const struct pen_sharing_terms *terms,
                                  uint32_t rank, struct pen_byte_cost byte) {
  const struct stage_collectives has = collectives_of(cut, terms);
  const double gradient = sizeof(float), value = cut->is_bf16 ? sizeof(uint16_t) : sizeof(float),
               cost = member_cost(&terms->shards[rank], byte);
  double sum = 0;
  if (has.reduces) sum += gradient * cost;
  if (has.gathers_gradients) sum += gradient * cost;
  if (has.gathers_values) sum += value * cost;
  if (terms->groups->count > 1)
    sum += 2 * gradient * member_cost(&terms->groups[rank], byte) / terms->shards->count;
  return sum;
}

static double gradient_bytes(const struct pen_cut *cut, uint32_t stage) {
  return trained_elements(&cut->elements[stage]) * sizeof(float);
}

/* What the collectives of a stage that are actions take by measured costs, if all data ranks share.
 */
static double measured_exchange(const struct pen_cut *cut, const struct pen_pipeline_shape *shape,
                                const struct pen_sharing_terms *terms, uint32_t stage) {
  const struct stage_collectives has = collectives_of(cut, terms);
  const double bytes = gradient_bytes(cut, stage);
  double sum = 0;
  if (has.reduces)
    sum +=
        pen_measured_collective_ms(cut->collectives, PEN_MEASURED_REDUCE, shape->replicas, bytes);
  if (has.gathers_gradients || has.gathers_values)
    sum +=
        pen_measured_collective_ms(cut->collectives, PEN_MEASURED_GATHER, shape->replicas, bytes);
  return sum;
}

/* The cost of a byte between data ranks where fewer share than there are. */
static struct pen_byte_cost byte_of(const struct pen_cut *cut,
                                    const struct pen_pipeline_shape *shape) {
  struct pen_byte_cost byte = cut->byte;
  double most = 0;
  for (uint32_t s = 0; s < cut->stage_count; s++) most = fmax(most, gradient_bytes(cut, s));
  if (cut->collectives) byte.within = pen_measured_byte_ms(cut->collectives, shape->replicas, most);
  return byte;
}

/* By how much the collectives within its programs lengthen a stage's work on a microbatch at least;
 * `cost`: of a byte of a tensor. */
static double within_microbatch(const struct pen_cut *cut, uint32_t stage,
                                const struct pen_sharing_terms *terms, double cost, bool splits) {
  const struct pen_stage_cost *kernels = &cut->cost[stage];
  const struct pen_stage_traffic *traffic = &cut->traffic[stage];
  const double kernel[PEN_PROGRAMS] = {[PEN_PROGRAM_F] = kernels->forward,
                                       [PEN_PROGRAM_I] = kernels->backward_input,
                                       [PEN_PROGRAM_W] = kernels->backward_weight,
                                       [PEN_PROGRAM_B] = pen_backward_cost(kernels)};
  double more[PEN_PROGRAMS];
  for (int p = 0; p < PEN_PROGRAMS; p++) {
    const double bytes = (terms->gathers_units ? traffic->weights[p] : 0) +
                         (terms->reduces_microbatches ? traffic->gradients[p] : 0);
    more[p] = fmax(0, bytes * cost - kernel[p]);
  }
  const double split = more[PEN_PROGRAM_I] + more[PEN_PROGRAM_W], whole = more[PEN_PROGRAM_B];
  return more[PEN_PROGRAM_F] + (splits ? fmin(split, whole) : whole);
}

/* ---- memory ---- */

/* [rank]: the most bytes of activations that are live at one action. */
static int64_t *live_bytes(const struct pen_cut *cut, const struct pen_order *order) {
  int64_t *most = pen_new(order->rank_count, sizeof *most);
  for (uint32_t rank = 0; rank < order->rank_count; rank++) {
    int64_t held = 0;
    for (uint32_t i = 0; i < order->count[rank]; i++) {
      const struct pen_compute *action = &order->action[rank][i];
      const int program = pen_program_of(action->kind);
      const struct pen_stage_live *live = &cut->live[action->stage];
      if (held + live->peak[program] > most[rank]) most[rank] = held + live->peak[program];
      held += live->remains[program];
    }
  }
  return most;
}

/* What a stage's weights take at least (gen/layout/persistent.c). */
static double resident_bytes(const struct pen_stage_elements *elements,
                             const struct pen_sharing_terms *terms) {
  const double shard = terms->sharding == PEN_SHARD_NONE ? 1 : 1.0 / terms->shards->count;
  const double gradient =
      terms->reduces_microbatches && terms->sharding >= PEN_SHARD_GRADIENTS ? shard : 1;
  const bool weights = terms->sharding == PEN_SHARD_WEIGHTS;
  double bytes = sizeof(float) * (gradient * elements->tied + shard * elements->moments);
  for (int copy = 0; copy < 2; copy++)
    for (int learns = 0; learns < 2; learns++) {
      const double value = copy || weights ? shard : 1, of_copy = weights ? shard : 1;
      bytes += elements->count[copy][learns] * (sizeof(float) * (value + learns * gradient) +
                                                (copy ? sizeof(uint16_t) * of_copy : 0));
    }
  return bytes;
}

/* ---- candidates ---- */

/* [rank]: the least time of a rank's collectives. */
static double *least_exchange(const struct pen_cut *cut, const struct pen_pipeline_shape *shape,
                              const struct pen_partition *placed,
                              const struct pen_sharing_terms *terms, const double *elements) {
  double *exchange = pen_new(shape->ranks, sizeof *exchange);
  if (shape->replicas == 1 || cut->gives_exchange) return exchange;
  for (uint32_t s = 0; s < cut->stage_count && !cut->is_measured && cut->overlap < 0; s++) {
    const uint32_t rank = placed->rank_of[s];
    const double cost = member_cost(&terms->shards[rank], cut->byte);
    exchange[rank] += shape->microbatches * within_microbatch(cut, s, terms, cost, shape->splits);
  }
  if (cut->collectives && terms->groups->count == 1) {
    for (uint32_t s = 0; s < cut->stage_count; s++)
      exchange[placed->rank_of[s]] += measured_exchange(cut, shape, terms, s);
    return exchange;
  }
  const struct pen_byte_cost byte = byte_of(cut, shape);
  for (uint32_t rank = 0; rank < shape->ranks; rank++)
    exchange[rank] += elements[rank] * exchange_of_element(cut, terms, rank, byte);
  return exchange;
}

/* A lower bound of a candidate's step. `alone`: its order without replicas; `elements`: [rank]. */
static double step_bound(const struct pen_cut *cut, const struct pen_pipeline_shape *shape,
                         const struct pen_partition *placed, const struct pen_sharing_terms *terms,
                         const struct pen_order *order, const struct pen_timing *alone,
                         const double *elements) {
  double *exchange = least_exchange(cut, shape, placed, terms, elements);
  double normed = alone->makespan, update = 0;
  const double norm_part = cut->norm_element / terms->shards->count,
               update_part = cut->update_element /
                             (terms->sharding == PEN_SHARD_NONE ? 1 : (double)terms->shards->count);
  for (uint32_t rank = 0; rank < shape->ranks; rank++) {
    const double end = alone->end[rank][order->count[rank] - 1],
                 busy = alone->busy[rank] + exchange[rank];
    normed = fmax(normed, fmax(end, busy) + norm_part * elements[rank]);
    update = fmax(update, update_part * elements[rank]);
  }
  pen_free(exchange);
  return normed + update;
}

void pen_candidate_bounds_of(const struct pen_cut *cut, const struct pen_pipeline_shape *shape,
                             const struct pen_sharing_terms *terms, size_t count,
                             struct pen_candidate_bounds *bounds) {
  struct pen_partition partition = {.rank_count = shape->ranks,
                                    .stage_count = cut->stage_count,
                                    .stages_per_rank = shape->stages_per_rank,
                                    .microbatch_count = shape->microbatches,
                                    .replica_count = shape->replicas,
                                    .speed = shape->speed};
  const struct pen_partition *placed = pen_partition_placed(&partition, shape->zigzag);
  const struct pen_order *order = pen_compose(&shape->topology, placed);
  const struct pen_timing *alone = pen_simulate_collectives(
      order, placed, &cut->training, pen_costs_on_ranks(placed, cut->cost), NULL, cut->overlap);
  const int64_t *live = live_bytes(cut, order);
  double *resident = pen_new(shape->ranks, sizeof *resident),
         *elements = pen_new(shape->ranks, sizeof *elements);
  for (uint32_t s = 0; s < cut->stage_count; s++)
    elements[placed->rank_of[s]] += trained_elements(&cut->elements[s]);
  for (size_t i = 0; i < count; i++) {
    double most = 0;
    memset(resident, 0, shape->ranks * sizeof *resident);
    for (uint32_t s = 0; s < cut->stage_count; s++)
      resident[placed->rank_of[s]] += resident_bytes(&cut->elements[s], &terms[i]);
    for (uint32_t rank = 0; rank < shape->ranks; rank++)
      most = fmax(most, resident[rank] + (double)live[rank]);
    bounds->step[i] = step_bound(cut, shape, placed, &terms[i], order, alone, elements);
    bounds->arena_bytes[i] = (uint64_t)most;
  }
}
