/* replicas.c: do replicas compute the same gradients, however they are scheduled, and does none
 * deadlock?
 *
 * All replicas run the tables of one plan, so the list of a rank is also the list of its peers. The
 * data-parallel collectives of a list are numbered from 1. A collective that waits for collective E
 * of its peers knows that all of them have completed their lists up to E, and nothing more. From
 * that:
 *
 *   complete   nothing is accumulated into the gradients of a stage after its GRAD_READY
 *   summed     REDUCE_SCATTER, which reads the gradients of the peers, knows their GRAD_READY
 *   grouped    with several shard groups: REDUCE_GROUPS, which reads the sums of the
 *              other groups, knows them; GATHER_GROUPS, which reads its results, knows it
 *   gathered   ALL_GATHER_GRAD, which reads the sums of the peers, knows their REDUCE_SCATTER
 *   free       UPDATE, which clears the gradients for the next step, knows all collectives of its
 *              peers that read them
 *   updated    if moments are sharded, each replica updates its shard of a weight:
 *              ALL_GATHER_WEIGHT, which reads the shards of the peers, knows their UPDATE, comes
 *              once for each stage that keeps unsharded weights, and before SEND_V. What it
 *              reads remains: the next UPDATE of a peer knows a later collective
 *   unsharded  if weights are sharded, every action that reads the weights of a stage is between
 *              its UNSHARD and its RESHARD. UNSHARD knows the UPDATE of its peers in the
 *              previous step (E is 0 or more), and their next UPDATE knows it. memory.c checks
 *              the contents of the bytes
 *   acyclic    no deadlock: E comes before the action that waits for it. Take an order in which
 *              the actions of one replica can run one by one (the other checks prove that there
 *              is one), and let all replicas run each action of it before any runs the next:
 *              every action finds what it waits for. What is complete stays complete, so any
 *              other order ends alike
 *
 * Each collective comes once for each stage of the rank. That the sum is taken replica by replica
 * is up to the runtime. */
#include "gen/verify/internal.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/shard.h"

/* The list of a rank up to `action`. Numbers count the collectives from 1; 0: not yet. */
struct collective_order {
  const struct pen_rank_context *b;
  uint32_t action;
  uint32_t ended;                     /* collectives before `action` */
  uint32_t updated;                   /* the number of UPDATE */
  uint32_t unsharded;                 /* the number of the last UNSHARD */
  uint32_t within;                    /* the number of the last collective within a program */
  bool *is_unsharded;                 /* [stage]: between UNSHARD and RESHARD */
  uint32_t *number[PEN_ACTION_KINDS]; /* [stage]: the number of the collective of that kind */
};

#define PROBLEM(e, ...) \
  pen_problem_note((e)->b->checked->problem, (e)->b->rank, (e)->action, __VA_ARGS__)

/* A collective as text, `3GRAD_READY`. */
static const char *collective_text(char text[32], uint8_t kind, uint32_t stage) {
  return pen_problem_action(text, &(struct pen_action){.kind = kind, .stage = (uint16_t)stage});
}

/* Which action of a stage must come before which. */
struct collective_rule {
  uint8_t kind, needs;
  bool knows;                  /* the needed action of the peers, too */
  bool whole, sharded;         /* applies where moments are whole; where they are sharded */
  bool by_step, by_microbatch; /* where gradients are summed so */
  bool grouped;                /* only where there are several shard groups */
  const char *why;
};
#define ADDED "peers may still add to the gradients that it reads"
#define SUMMED "peers may not have summed what it reads"
#define NORMED "the gradients are not summed yet"
#define CLEARED "peers may still read the gradients that it clears"
static const struct collective_rule rules[] = {
    {PEN_REDUCE_SCATTER, PEN_GRAD_READY, true, true, true, true, false, false, ADDED},
    {PEN_REDUCE_GROUPS, PEN_REDUCE_SCATTER, true, true, true, true, false, true, SUMMED},
    {PEN_REDUCE_GROUPS, PEN_GRAD_READY, true, true, true, false, true, true, SUMMED},
    {PEN_GATHER_GROUPS, PEN_REDUCE_GROUPS, true, true, true, true, true, true, SUMMED},
    {PEN_ALL_GATHER_GRAD, PEN_REDUCE_SCATTER, true, true, false, true, false, false, SUMMED},
    {PEN_ALL_GATHER_GRAD, PEN_GRAD_READY, true, true, false, false, true, false, SUMMED},
    {PEN_ALL_GATHER_GRAD, PEN_GATHER_GROUPS, true, true, false, true, true, true, SUMMED},
    {PEN_NORM, PEN_REDUCE_SCATTER, false, true, true, true, false, false, NORMED},
    {PEN_NORM, PEN_GATHER_GROUPS, false, true, true, true, true, true, NORMED},
    {PEN_UPDATE, PEN_ALL_GATHER_GRAD, true, true, false, true, true, false, CLEARED},
    {PEN_UPDATE, PEN_REDUCE_SCATTER, true, false, true, true, false, false, CLEARED},
    {PEN_UPDATE, PEN_GATHER_GROUPS, true, true, true, true, true, true, CLEARED},
};

static bool has_groups(const struct pen_plan *plan) {
  return pen_group_size(plan, PEN_SAME_SHARD) > 1;
}

/* Whether a rule applies to a plan. */
static bool rule_applies(const struct collective_rule *rule, const struct pen_plan *plan) {
  return (pen_moments_are_sharded(plan) ? rule->sharded : rule->whole) &&
         (plan->reduces_microbatches ? rule->by_microbatch : rule->by_step) &&
         (!rule->grouped || has_groups(plan));
}

/* One rule of an action, for one stage. */
static bool check_rule(const struct collective_order *e, const struct pen_action *action,
                       const struct collective_rule *rule, uint32_t stage) {
  uint32_t number = e->number[rule->needs][stage];
  char text[32];
  if (number == 0)
    return PROBLEM(e, "%s does not come before it: %s", collective_text(text, rule->needs, stage),
                   rule->why);
  if (rule->knows && action->awaited_collective < number)
    return PROBLEM(e, "it waits for collective %u of its peers, but %s is collective %u: %s",
                   action->awaited_collective, collective_text(text, rule->needs, stage), number,
                   rule->why);
  return true;
}

static bool check_collective_rules(const struct collective_order *e,
                                   const struct pen_action *action) {
  bool of_stage = pen_kind_has_stage(action->kind);
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    for (uint32_t stage = 0; rules[i].kind == action->kind && rule_applies(&rules[i], e->b->plan) &&
                             stage < e->b->checked->stage_count;
         stage++)
      if (e->b->checked->rank_of[stage] == e->b->rank && (!of_stage || stage == action->stage) &&
          !check_rule(e, action, &rules[i], stage))
        return false;
  return true;
}

/* Does a stage keep trainable weights unsharded? */
static bool keeps_unsharded(const struct pen_rank_context *b, uint32_t stage) {
  for (uint32_t n = 0; n < b->own_weight_count; n++) {
    const struct pen_weight *weight = &b->plan->weights[b->own_weight[n]];
    if (weight->stage == stage && !weight->frozen &&
        (!weight->value_sharded || (weight->bf16_offset != UINT64_MAX && !weight->bf16_sharded)))
      return true;
  }
  return false;
}

/* The collectives that suit the sharding of the plan, and ALL_GATHER_WEIGHT after UPDATE. */
static bool check_sharding(const struct collective_order *e, const struct pen_action *action) {
  bool sharded = pen_moments_are_sharded(e->b->plan);
  if (action->kind == (sharded ? PEN_ALL_GATHER_GRAD : PEN_ALL_GATHER_WEIGHT))
    return PROBLEM(e, "moments are %s, so no action may gather the peers' %s",
                   sharded ? "sharded" : "whole", sharded ? "sums" : "weights");
  if (action->kind == PEN_REDUCE_SCATTER && e->b->plan->reduces_microbatches)
    return PROBLEM(e, "the gradients of stage %u are summed by its programs", action->stage);
  if ((action->kind == PEN_REDUCE_GROUPS || action->kind == PEN_GATHER_GROUPS) &&
      !has_groups(e->b->plan))
    return PROBLEM(e, "all replicas are one group, which has summed the gradients");
  if (action->kind == PEN_UPDATE && action->awaited_collective < e->within)
    return PROBLEM(e,
                   "it waits for collective %u of its peers, but their programs complete "
                   "collective %u: peers may still read what it updates",
                   action->awaited_collective, e->within);
  if (action->kind == PEN_UPDATE && action->awaited_collective < e->unsharded)
    return PROBLEM(e,
                   "it waits for collective %u of its peers, but UNSHARD is collective %u: peers "
                   "may still read "
                   "the shards that it updates",
                   action->awaited_collective, e->unsharded);
  if (action->kind == PEN_ALL_GATHER_WEIGHT &&
      (e->updated == 0 || action->awaited_collective < e->updated))
    return PROBLEM(
        e,
        "it waits for collective %u of its peers, but UPDATE is collective %u: peers may not have "
        "updated what it reads",
        action->awaited_collective, e->updated);
  if (action->kind == PEN_SEND_V && sharded && !e->number[PEN_ALL_GATHER_WEIGHT][action->stage])
    return PROBLEM(
        e,
        "%uALL_GATHER_WEIGHT does not come before it: shards of the weight that it sends are old",
        action->stage);
  return true;
}

/* The shards that the peers have updated are gathered. */
static bool check_gathered(struct collective_order *e) {
  for (uint32_t stage = 0;
       pen_moments_are_sharded(e->b->plan) && stage < e->b->checked->stage_count; stage++)
    if (!e->number[PEN_ALL_GATHER_WEIGHT][stage] && keeps_unsharded(e->b, stage)) {
      e->action = PEN_NONE;
      return PROBLEM(
          e, "%uALL_GATHER_WEIGHT is missing at the step's end: the next step finds old weights",
          stage);
    }
  return true;
}

/* Does a program read unsharded weights? */
static bool program_reads_unsharded(const struct pen_rank_context *b,
                                    const struct pen_program *program) {
  for (uint32_t op = program->first_op; op < program->first_op + program->op_count; op++)
    for (int k = 0; k < PEN_OPERANDS_MAX; k++) {
      uint32_t tensor = b->tables->ops[op].operand[k];
      if (tensor != PEN_NONE && b->tables->tensors[tensor].base == PEN_BASE_UNSHARDED) return true;
    }
  return false;
}

static bool check_unshard(struct collective_order *e, const struct pen_action *action) {
  bool unshards = action->kind == PEN_UNSHARD;
  if (action->stage >= e->b->checked->stage_count ||
      e->b->checked->rank_of[action->stage] != e->b->rank)
    return PROBLEM(e, "stage %u is not on this rank", action->stage);
  if (action->microbatch != 0)
    return PROBLEM(e, "it has no microbatch, but names %u", action->microbatch);
  if (e->b->plan->sharding != PEN_SHARD_WEIGHTS) return PROBLEM(e, "weights are not sharded");
  if (e->b->plan->gathers_units) return PROBLEM(e, "programs gather the weights themselves");
  if (e->is_unsharded[action->stage] == unshards)
    return PROBLEM(e, "the weights of stage %u %s", action->stage,
                   unshards ? "are unsharded already" : "are not unsharded");
  e->is_unsharded[action->stage] = unshards;
  if (!unshards) return true;
  if (action->awaited_collective > e->ended)
    return PROBLEM(e,
                   "deadlock: it waits for collective %u of its peers, but only %u come before it",
                   action->awaited_collective, e->ended);
  if (e->updated)
    return PROBLEM(e, "it comes after UPDATE: some shards may be of this step, others of the next");
  e->unsharded = ++e->ended;
  return true;
}

static uint32_t program_collectives(const struct pen_rank_context *b,
                                    const struct pen_program *program) {
  uint32_t count = 0;
  for (uint32_t op = program->first_op; op < program->first_op + program->op_count; op++)
    count += b->tables->ops[op].kind == PEN_OP_SIGNAL_PEERS;
  return count;
}

/* Numbers the collectives within a compute action, which program_collectives.c checks; two such
 * actions of a pair would run them in no known order. */
static bool check_within(struct collective_order *e, const struct pen_action *action,
                         const uint32_t *within) {
  const uint32_t count = within[action->program], before = count ? e->ended : 0;
  if (action->awaited_collective != before)
    return PROBLEM(e, "it names %u collectives before it, but there are %u",
                   action->awaited_collective, before);
  if (count && action->overlaps && within[action[1].program])
    return PROBLEM(e, "it overlaps the next action, but both have collectives");
  e->ended += count;
  if (count) e->within = e->ended;
  if (count && e->updated)
    return PROBLEM(e, "it comes after UPDATE: some shards may be of this step, others of the next");
  return true;
}

/* A compute action finds the weights of its stage unsharded; at the end of a step none are. */
static bool check_use(struct collective_order *e, const struct pen_action *action,
                      const bool *reads) {
  if (!reads[action->program] || e->is_unsharded[action->stage]) return true;
  return PROBLEM(e, "it reads the weights of stage %u, which are not unsharded", action->stage);
}

static bool check_resharded(struct collective_order *e) {
  for (uint32_t stage = 0; stage < e->b->checked->stage_count; stage++)
    if (e->is_unsharded[stage]) {
      e->action = PEN_NONE;
      return PROBLEM(e, "%uRESHARD is missing at the step's end", stage);
    }
  return true;
}

/* A collective, or an action of the end of the step. */
static bool check_collective(struct collective_order *e, const struct pen_action *action) {
  if (action->kind == PEN_SEND_V) return check_sharding(e, action);
  if (action->kind == PEN_UNSHARD || action->kind == PEN_RESHARD) return check_unshard(e, action);
  bool of_stage = pen_kind_has_stage(action->kind);
  char text[32];
  if (of_stage && (action->stage >= e->b->checked->stage_count ||
                   e->b->checked->rank_of[action->stage] != e->b->rank))
    return PROBLEM(e, "stage %u is not on this rank", action->stage);
  if (of_stage && action->microbatch != 0)
    return PROBLEM(e, "it has no microbatch, but names %u", action->microbatch);
  if (of_stage && e->number[action->kind][action->stage])
    return PROBLEM(e, "%s is listed twice in a step",
                   collective_text(text, action->kind, action->stage));
  if (pen_kind_is_collective(action->kind) && action->awaited_collective > e->ended)
    return PROBLEM(e,
                   "deadlock: it waits for collective %u of its peers, but only %u come before it",
                   action->awaited_collective, e->ended);
  if (!check_sharding(e, action) || !check_collective_rules(e, action)) return false;
  if (!pen_kind_is_collective(action->kind)) return true;
  e->ended++;
  if (of_stage) e->number[action->kind][action->stage] = e->ended;
  if (action->kind == PEN_UPDATE) e->updated = e->ended;
  return true;
}

static void extend_to(uint64_t *past, uint64_t offset, uint64_t bytes) {
  if (bytes > 0 && offset + bytes > *past) *past = offset + bytes;
}

/* The shared part of the arena holds what other ranks write and what peers read, and no more. */
static bool check_shared(const struct pen_rank_context *b, bool has_replicas) {
  uint64_t shared = b->memory->receive_bytes;
  for (uint32_t n = 0; n < b->own_weight_count && has_replicas; n++) {
    const struct pen_weight *weight = &b->plan->weights[b->own_weight[n]];
    bool copied = weight->bf16_offset != UINT64_MAX;
    if (weight->bf16_sharded)
      extend_to(&shared, weight->bf16_offset,
                pen_aligned(pen_stored_bytes(b->plan, weight, true) / 2));
    if (weight->value_sharded && !copied)
      extend_to(&shared, weight->value_offset,
                pen_aligned(pen_stored_bytes(b->plan, weight, true)));
    if (weight->frozen || weight->gradient_offset == UINT64_MAX) continue;
    if (!b->plan->reduces_microbatches || b->plan->sharding == PEN_SHARD_NONE ||
        pen_group_size(b->plan, PEN_SAME_SHARD) > 1)
      extend_to(&shared, weight->gradient_offset,
                pen_aligned(pen_stored_bytes(b->plan, weight, weight->gradient_sharded)));
    if (!pen_moments_are_sharded(b->plan)) continue;
    if (!weight->value_sharded)
      extend_to(&shared, weight->value_offset,
                pen_aligned(pen_value_bytes(b->plan, b->own_weight[n], PEN_F32)));
    if (copied && !weight->bf16_sharded)
      extend_to(&shared, weight->bf16_offset,
                pen_aligned(pen_value_bytes(b->plan, b->own_weight[n], PEN_BF16)));
  }
  if (b->memory->exchange_bytes)
    extend_to(&shared, b->memory->exchange_offset, b->memory->exchange_bytes);
  if (b->memory->partial_bytes)
    extend_to(&shared, b->memory->partial_offset, b->memory->partial_bytes);
  for (uint32_t n = 0; n < pen_member_tie_count(b->plan); n++) {
    const struct pen_tie *tie = &b->plan->ties[n];
    const struct pen_weight *weight = &b->plan->weights[tie->weight];
    if (tie->rank == b->rank && weight->rank != b->rank)
      extend_to(&shared, tie->value_offset,
                pen_aligned(pen_value_bytes(b->plan, tie->weight, tie->dtype)));
  }
  if (b->memory->shared_bytes == shared) return true;
  return pen_problem_note(
      b->checked->problem, b->rank, PEN_NONE,
      "%llu bytes of the arena are shared, but what others write or read takes %llu",
      (unsigned long long)b->memory->shared_bytes, (unsigned long long)shared);
}

bool pen_check_replicas(const struct pen_rank_context *b) {
  bool train = b->checked->profile_kind == PEN_TRAIN,
       replicas = pen_group_size(b->plan, PEN_DATA) > 1;
  struct collective_order e = {.b = b};
  for (int kind = PEN_GRAD_READY; kind < PEN_ACTION_KINDS; kind++)
    e.number[kind] = pen_new(b->checked->stage_count, sizeof(uint32_t));
  bool *reads = pen_new(b->tables->program_count + 1u, sizeof *reads);
  uint32_t *within = pen_new(b->tables->program_count + 1u, sizeof *within);
  e.is_unsharded = pen_new(b->checked->stage_count, sizeof *e.is_unsharded);
  for (uint32_t program = 0; program < b->tables->program_count; program++) {
    within[program] = program_collectives(b, &b->tables->programs[program]);
    reads[program] = program_reads_unsharded(b, &b->tables->programs[program]);
  }
  for (e.action = 0; e.action < b->tables->action_count; e.action++) {
    const struct pen_action *action = &b->tables->actions[e.action];
    if (!replicas && action->kind >= PEN_GRAD_READY) return PROBLEM(&e, "there are no replicas");
    if (pen_is_compute(action->kind) &&
        (!check_use(&e, action, reads) || !check_within(&e, action, within)))
      return false;
    if (replicas && !train && action->kind >= PEN_GRAD_READY && !check_collective(&e, action))
      return false;
    if (replicas && train && (action->kind >= PEN_NORM || action->kind == PEN_SEND_V) &&
        !check_collective(&e, action))
      return false;
    if (action->kind == PEN_ADD_TIED_GRAD && e.number[PEN_GRAD_READY][0])
      return PROBLEM(&e, "it adds to the gradients of stage 0, which peers may read already");
    if ((action->kind == PEN_B || action->kind == PEN_W) && e.number[PEN_GRAD_READY][action->stage])
      return PROBLEM(&e, "it adds to the gradients of stage %u, which peers may read already",
                     action->stage);
  }
  return check_resharded(&e) && (!replicas || !train || check_gathered(&e)) &&
         check_shared(b, replicas);
}
