/* gradient_sums.c: is every gradient the sum over each microbatch and data rank, once, in the
 * stated order, and does the norm count each of its elements once?
 *
 * What one microbatch adds is checked by gradients.c; that each microbatch is added once, by
 * memory.c; that a collective finds what it reads complete, by replicas.c. All data ranks run the
 * same list. Of the gradients of a stage a data rank distinguishes three parts: the split of its
 * shard that it sums over the groups, the rest of its shard, and the other shards. Each is the sum
 * of so many data ranks' gradients (struct part_sums), from the list alone:
 *
 *   start            with sums once a step: one data rank, its own. With sums by microbatch the
 *                    programs sum their own shard over the group, the data ranks rising within each
 *                    microbatch (REDUCE_SCATTER in ops.def), and leave the other shards empty
 *   REDUCE_SCATTER   its own shard, of one data rank each: the sum over the group
 *   REDUCE_GROUPS    its own split, of one group each: the sum over the groups
 *   GATHER_GROUPS    the rest of the shard: what the other groups have in their splits
 *   ALL_GATHER_GRAD  the other shards: what the tensor ranks of the group have in theirs
 *
 * In each of these data ranks and groups rise (actions.def). The rules here, with which
 * messages begin:
 *
 *   ordered   a stage runs B, or W, of its microbatches in the plan's order (plan.def,
 *             backward_order), so that every gradient adds them in it; and I, where that adds to
 *             gradients of weights
 *   summed    at NORM the data rank's own shard, at UPDATE all that it updates, is the sum over all
 *             data ranks; no sum is made twice
 *   grouped   the plan sums a trained weight's gradient over the data ranks, whose windows differ,
 *             and over no other group
 *   tied      the head's gradient is added to the embedding's before both are summed over data
 *             ranks or groups
 *   counted   NORM adds its own shard of each of the rank's weights, in the first group alone. So
 *             each element is counted once if each weight is in the table once, has the elements
 *             of its dims, and the shards of a group are consecutive; and in the model's order if
 *             the table is in the order of the file */
#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/sort.h"
#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"
#include "gen/verify/splits.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/shard.h"

/* ---- ordered ---- */

/* [program]: whether it is an I that adds to gradients of weights. */
static bool *find_adding_programs(const struct pen_rank_context *b) {
  bool *adds = pen_new(b->tables->program_count + 1u, sizeof *adds);
  for (uint32_t p = 0; p < b->tables->program_count; p++) {
    const struct pen_program *program = &b->tables->programs[p];
    for (uint32_t n = 0; n < program->op_count && program->kind == PEN_I; n++) {
      const struct pen_op *op = &b->tables->ops[program->first_op + n];
      const struct pen_signature *signature = pen_signature_of(op->kind);
      for (int k = signature->input_count; k < signature->operand_count; k++)
        adds[p] = adds[p] || (signature->operand[k].accumulates && op->operand[k] != PEN_NONE &&
                              b->use[op->operand[k]] == PEN_USE_GRADIENT);
    }
  }
  return adds;
}

/* How many backwards of a stage have added to what W makes, and to what I makes; B adds to both. */
struct added_so_far {
  uint32_t in_w, in_i;
};

static bool check_number(const struct pen_rank_context *b, uint32_t index, uint32_t number) {
  const uint32_t count = b->checked->microbatch_count;
  const bool falls = b->plan->backward_order == PEN_BACKWARDS_FALLING;
  return b->plan->backward_order == PEN_BACKWARDS_GIVEN ||
         b->tables->actions[index].microbatch == (falls ? count - 1 - number : number) ||
         pen_problem_note(b->checked->problem, b->rank, index,
                          "ordered: it is number %u of its stage, but the gradients of the plan "
                          "add their microbatches in %s order",
                          number, falls ? "falling" : "rising");
}

static bool check_order(const struct pen_rank_context *b) {
  struct added_so_far *added = pen_new(b->checked->stage_count, sizeof *added); /* [stage] */
  bool *adds_in_i = find_adding_programs(b), fine = true;
  for (uint32_t index = 0; index < b->tables->action_count && fine; index++) {
    const struct pen_action *action = &b->tables->actions[index];
    const bool whole = action->kind == PEN_B;
    if (whole || action->kind == PEN_W) fine = check_number(b, index, added[action->stage].in_w++);
    if (fine && (whole || action->kind == PEN_I)) {
      const uint32_t number = added[action->stage].in_i++;
      fine = whole || !adds_in_i[action->program] || check_number(b, index, number);
    }
  }
  pen_free(added);
  pen_free(adds_in_i);
  return fine;
}

/* ---- summed, tied ---- */

/* How many data ranks' gradients each part is the sum of. */
struct part_sums {
  uint32_t split, shard, others;
};

/* The list of a rank up to `action`. */
struct sum_state {
  const struct pen_rank_context *b;
  uint32_t action;
  struct part_sums *of; /* [stage] */
};

#define PROBLEM(s, ...) \
  pen_problem_note((s)->b->checked->problem, (s)->b->rank, (s)->action, __VA_ARGS__)

static struct part_sums sums_at_start(const struct pen_plan *plan) {
  const uint32_t group = pen_group_size(plan, PEN_SHARD);
  return plan->reduces_microbatches ? (struct part_sums){group, group, 0}
                                    : (struct part_sums){1, 1, 1};
}

static bool add_over_group(const struct sum_state *s, struct part_sums *sums) {
  if (sums->split != 1 || sums->shard != 1)
    return PROBLEM(s, "summed: it sums shards that are sums over %u replicas already", sums->split);
  sums->split = sums->shard = pen_group_size(s->b->plan, PEN_SHARD);
  return true;
}

static bool add_over_groups(const struct sum_state *s, struct part_sums *sums) {
  if (sums->split != pen_group_size(s->b->plan, PEN_SHARD))
    return PROBLEM(s, "summed: it sums splits over the groups, but they are sums over %u replicas",
                   sums->split);
  sums->split = pen_group_size(s->b->plan, PEN_DATA);
  return true;
}

/* Gradients of a stage, `what` they are for. */
static bool check_summed(const struct sum_state *s, uint32_t stage, bool others, const char *what) {
  const struct pen_plan *plan = s->b->plan;
  const struct part_sums *sums = &s->of[stage];
  const uint32_t all = pen_group_size(plan, PEN_DATA);
  const bool has_others = others && pen_group_size(plan, PEN_SHARD) > 1;
  if (sums->split == all && sums->shard == all && (!has_others || sums->others == all)) return true;
  return PROBLEM(
      s,
      "summed: %s: the gradients of stage %u are sums over %u replicas in its own split, %u in its "
      "own shard and %u in the other shards, not over all %u",
      what, stage, sums->split, sums->shard, sums->others, all);
}

static bool check_stages_summed(const struct sum_state *s, bool others, const char *what) {
  for (uint32_t stage = 0; stage < s->b->checked->stage_count; stage++)
    if (s->b->checked->rank_of[stage] == s->b->rank && !check_summed(s, stage, others, what))
      return false;
  return true;
}

static bool run_action(const struct sum_state *s) {
  const struct pen_action *action = &s->b->tables->actions[s->action];
  const struct pen_plan *plan = s->b->plan;
  struct part_sums *sums = &s->of[pen_kind_has_stage(action->kind) ? action->stage : 0];
  const struct part_sums start = sums_at_start(plan);
  switch (action->kind) {
    case PEN_REDUCE_SCATTER: return add_over_group(s, sums);
    case PEN_REDUCE_GROUPS: return add_over_groups(s, sums);
    case PEN_GATHER_GROUPS: sums->shard = sums->split; return true;
    case PEN_ALL_GATHER_GRAD:
      sums->others = sums->split < sums->shard ? sums->split : sums->shard;
      return true;
    case PEN_ADD_TIED_GRAD:
      return memcmp(sums, &start, sizeof start) == 0 ||
             PROBLEM(s, "tied: the embedding's gradient is a sum over replicas already");
    case PEN_NORM: return check_stages_summed(s, false, "the norm counts parts of sums");
    case PEN_UPDATE:
      return check_stages_summed(s, !pen_moments_are_sharded(plan), "it updates by parts of sums");
    default: return true;
  }
}

static bool check_sums(const struct pen_rank_context *b) {
  struct sum_state s = {.b = b, .of = pen_new(b->checked->stage_count, sizeof *s.of)};
  for (uint32_t stage = 0; stage < b->checked->stage_count; stage++)
    s.of[stage] = sums_at_start(b->plan);
  for (s.action = 0; s.action < b->tables->action_count; s.action++)
    if (!run_action(&s)) return false;
  pen_free(s.of);
  return true;
}

/* ---- counted ---- */

static uint64_t name_key(const char *name) {
  uint64_t key = 14695981039346656037u; /* FNV-1a */
  for (; *name; name++) key = (key ^ (uint8_t)*name) * 1099511628211u;
  return key;
}

/* Each weight is in the table once. */
static bool check_names(const struct pen_plan *plan, struct pen_problem *problem) {
  struct pen_keyed *sorted = pen_new(plan->weight_count + 1u, sizeof *sorted);
  for (uint32_t index = 0; index < plan->weight_count; index++)
    sorted[index] = (struct pen_keyed){name_key(plan->weights[index].name), index};
  pen_sort(sorted, plan->weight_count);
  for (uint32_t n = 1; n < plan->weight_count; n++) {
    const char *name = plan->weights[sorted[n].index].name;
    for (uint32_t other = n; other > 0 && sorted[other - 1].key == sorted[n].key; other--)
      if (strcmp(plan->weights[sorted[other - 1].index].name, name) == 0)
        return pen_problem_note(
            problem, PEN_NONE, PEN_NONE,
            "counted: %s is weight %u and weight %u: the norm would count it twice", name,
            sorted[other - 1].index, sorted[n].index);
  }
  pen_free(sorted);
  return true;
}

/* The elements are those of the dims, and each is in one shard of a group. */
static bool check_elements(const struct pen_plan *plan, const struct pen_weight *weight,
                           struct pen_problem *problem) {
  uint64_t elements = weight->dim_count == 0 || weight->dim_count > PEN_WEIGHT_DIMS_MAX ? 0 : 1,
           counted = 0;
  for (uint32_t n = 0; elements && n < weight->dim_count; n++)
    if (__builtin_mul_overflow(elements, weight->dim[n], &elements)) elements = 0;
  if (elements == 0 || elements != weight->count)
    return pen_problem_note(problem, weight->rank, PEN_NONE,
                            "counted: %s has %llu elements, but those of its dims are %llu",
                            weight->name, (unsigned long long)weight->count,
                            (unsigned long long)elements);
  const uint32_t shards = pen_group_size(plan, PEN_SHARD);
  for (uint32_t shard = 0; shard < shards; shard++) {
    const struct pen_shard own = pen_shard_in(pen_division_of(weight, shards), shard);
    if (own.count > 0 && own.first != counted) break;
    counted += own.count;
  }
  return counted == weight->count ||
         pen_problem_note(problem, weight->rank, PEN_NONE,
                          "counted: %s has %llu elements, but the norm counts %llu", weight->name,
                          (unsigned long long)weight->count, (unsigned long long)counted);
}

/* The table is in the order of the file, which is that of the model. Splits of a tensor have its
 * place; counts of choices have none. */
static bool check_place(const struct pen_plan *plan, uint32_t index, struct pen_problem *problem) {
  const struct pen_weight *weight = &plan->weights[index], *other = weight - (index > 0);
  while (other > plan->weights && !pen_is_of_model(other)) other--;
  const uint64_t before = index == 0 ? 0
                          : weight->split > 0
                              ? weight[-1].value_file
                              : other->value_file + pen_tensor_elements(other) * sizeof(float);
  if (!pen_is_of_model(weight) ? weight->value_file == UINT64_MAX
                               : (weight->split > 0 ? weight->value_file == before
                                                    : index == 0 || (before > other->value_file &&
                                                                     weight->value_file >= before)))
    return true;
  return pen_problem_note(
      problem, weight->rank, PEN_NONE,
      "counted: %s is after %s in the table, and in the norm, but not in the file", weight->name,
      other->name);
}

static bool check_grouped(const struct pen_weight *weight, struct pen_problem *problem) {
  const uint32_t all = weight->frozen ? 0 : PEN_IN(DATA);
  return weight->sum_groups == all ||
         pen_problem_note(problem, weight->rank, PEN_NONE,
                          "grouped: the gradient of %s is summed over the groups %#x, not %#x",
                          weight->name, weight->sum_groups, all);
}

static bool check_norm(const struct pen_plan *plan, struct pen_problem *problem) {
  if (!pen_check_split_table(plan, problem)) return false; /* then a split is after another */
  for (uint32_t index = 0; index < plan->weight_count; index++)
    if (!check_grouped(&plan->weights[index], problem) ||
        !check_elements(plan, &plan->weights[index], problem) || !check_place(plan, index, problem))
      return false;
  return check_names(plan, problem);
}

/* ---- a profile ---- */

bool pen_check_gradient_sums(const struct pen_check_context *c) {
  if (c->profile_kind != PEN_TRAIN) return true;
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    if (!check_order(&c->contexts[rank]) || !check_sums(&c->contexts[rank])) return false;
  return check_norm(c->contexts[0].plan, c->problem);
}
