/* replicas.c: do the collectives of data ranks find what they read, and is nothing used while peers
 * read or write it, however the ranks are scheduled? Does none deadlock?
 *
 * All data ranks run the tables of one plan, so the list of a rank is also the list of its peers.
 * The collectives of a list, those within programs included, are numbered from 1. A collective that
 * waits for collective E of its peers knows that all of them have completed their lists up to E,
 * and nothing more. The rules:
 *
 *   in use     (in_use.h) of the gradients and weights of a stage: what is read and written
 *              follows from the rows of the collectives, from what B, W and ADD_TIED_GRAD add to,
 *              and from what UPDATE writes, which clears all gradients. When the step ends, all
 *              reads of gradients are known: the next step adds to them at once
 *   gathered   if moments are sharded, each data rank updates its shard of a weight:
 *              ALL_GATHER_WEIGHT comes once for each stage that keeps unsharded weights, after
 *              UPDATE and before SEND_V
 *   unsharded  if weights are sharded, every action that reads the weights of a stage is between
 *              its UNSHARD and its RESHARD. memory.c checks the contents of the bytes
 *   acyclic    no deadlock: E comes before the action that waits for it. Take an order in which
 *              the actions of one replica can run one by one (the other checks prove that there is
 *              one), and let all replicas run each action of it before any runs the next: every
 *              action finds what it waits for. What is complete stays complete, so any other order
 *              ends alike. Tensor ranks wait only for what the others do at the same place of the
 *              same list, or before it: the same order runs the lists of all side by side
 *
 * Each collective comes once for each stage of the rank. Which sums are complete is checked by
 * gradient_sums.c. */
#include "gen/verify/internal.h"
#include "gen/base/arena.h"
#include "gen/verify/in_use.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/shard.h"

/* Of a tensor that has shards a data rank distinguishes three parts: the shards of the others of
 * its group, the piece of its own shard that it sums over the groups, and the rest of its shard. */
enum { OTHERS = 1, REST = 2, PIECE = 4, SHARD = REST | PIECE, ALL = OTHERS | SHARD, PARTS = 3 };

/* The gradients of a stage, and its weights with their copies. */
enum { GRADIENTS, WEIGHTS, TENSORS };
static const char *const tensor_text[TENSORS] = {"gradients", "weights"};

/* Which parts of a peer's tensors a collective, or those of a program, reads, and which of its own
 * it writes. Of a program, how many it ends, and for which of these it waits last. */
struct effect {
  uint8_t reads[TENSORS], writes[TENSORS];
  struct pen_signals signals;
  uint32_t last; /* collectives ended before its last put */
};

/* The list of a rank up to `action`. Numbers count the collectives from 1; 0: not yet. */
struct collective_order {
  const struct pen_rank_context *b;
  uint32_t action;
  uint32_t ended;                     /* collectives before `action` */
  uint32_t known;                     /* ... that all peers are known to have ended */
  uint32_t updated;                   /* the number of UPDATE */
  uint32_t in_programs;               /* the number of the last collective within a program */
  bool *is_unsharded;                 /* [stage]: between UNSHARD and RESHARD */
  uint32_t *number[PEN_ACTION_KINDS]; /* [stage]: the number of the collective of that kind */
  struct pen_in_use (*in_use)[TENSORS][PARTS]; /* [stage] */
  const struct effect *within;                 /* [program] */
};

#define PROBLEM(e, ...) \
  pen_problem_note((e)->b->checked->problem, (e)->b->rank, (e)->action, __VA_ARGS__)

/* A collective as text, `3GRAD_READY`. */
static const char *collective_text(char text[32], uint8_t kind, uint32_t stage) {
  return pen_problem_action(text, &(struct pen_action){.kind = kind, .stage = (uint16_t)stage});
}

/* ---- in use ---- */

static int tensor_of(const struct pen_rank_context *b, const struct pen_put *put) {
  return put->kind == PEN_PUT_ADD || put->from == b->plan->weights[put->weight].gradient_offset
             ? GRADIENTS
             : WEIGHTS;
}

/* Adds the puts of a row. What peers have of one microbatch is op_trace.c's. */
static void add_effect(const struct pen_rank_context *b, const struct pen_collective *row,
                       struct effect *effect) {
  for (uint32_t i = row->first_put; i < row->first_put + row->put_count; i++) {
    const struct pen_put *put = &b->tables->puts[i];
    const bool adds = put->kind == PEN_PUT_ADD, groups = put->group == PEN_SAME_SHARD;
    const uint8_t own = groups ? PIECE : SHARD, others = groups ? REST : OTHERS;
    if (put->weight == PEN_NONE) continue;
    effect->last = effect->signals.ended;
    if (put->from_base == PEN_BASE_PERSISTENT)
      effect->reads[tensor_of(b, put)] |= adds ? others : own;
    if (put->to_base == PEN_BASE_PERSISTENT)
      effect->writes[tensor_of(b, put)] |= adds ? own : others;
  }
  pen_signals_wait(&effect->signals, row);
  pen_signals_give(&effect->signals, row, false);
}

/* [program]: the effects of its rows. */
static const struct effect *effects_of_programs(const struct pen_rank_context *b) {
  struct effect *effect = pen_new((size_t)b->tables->program_count + 1, sizeof *effect);
  for (uint32_t p = 0; p < b->tables->program_count; p++) {
    const struct pen_program *program = &b->tables->programs[p];
    for (uint32_t op = program->first_op; op < program->first_op + program->op_count; op++) {
      const struct pen_collective *row = pen_collective_of(b->tables, &b->tables->ops[op]);
      if (row && row->group == PEN_DATA) add_effect(b, row, &effect[p]);
    }
  }
  return effect;
}

/* Reads parts of the peers' tensors of a stage, or writes those of its own, after so many
 * collectives, knowing that the peers have ended collective `known`. */
static bool use_parts(const struct collective_order *e, uint32_t stage, const uint8_t *parts,
                      enum pen_user user, uint32_t known, uint32_t ended) {
  for (int t = 0; t < TENSORS; t++)
    for (int p = 0; p < PARTS; p++) {
      const char *wrong = parts[t] >> p & 1
                              ? pen_use(&e->in_use[stage][t][p], user, user == PEN_OWN,
                                        (struct pen_signals){ended, known})
                              : NULL;
      if (wrong)
        return PROBLEM(e, "in use: %s %s of stage %u%s, knowing their collective %u, %s",
                       user == PEN_OTHERS      ? "it reads"
                       : e->action == PEN_NONE ? "the next step writes"
                                               : "it writes",
                       tensor_text[t], stage, user == PEN_OWN ? "" : " of its peers", known, wrong);
    }
  return true;
}

static bool use_of_own(const struct collective_order *e, uint32_t stage, const uint8_t *parts,
                       uint32_t ended) {
  return use_parts(e, stage, parts, PEN_OWN, e->known, ended);
}

static const uint8_t gradients[TENSORS] = {[GRADIENTS] = ALL};

static void know(struct collective_order *e, uint32_t number) {
  if (number > e->known) e->known = number;
}

static bool use_by_compute(struct collective_order *e, const struct pen_action *action) {
  const struct effect *within = &e->within[action->program];
  const bool adds = action->kind == PEN_B || action->kind == PEN_W;
  if (within->signals.known) know(e, e->ended + within->signals.known);
  return use_parts(e, action->stage, within->reads, PEN_OTHERS, 0, e->ended + within->last) &&
         use_of_own(e, action->stage, within->writes, e->ended + within->last) &&
         (!adds || e->b->plan->reduces_microbatches ||
          use_of_own(e, action->stage, gradients, e->ended));
}

/* A collective, with what UPDATE does to all stages. */
static bool use_by_collective(struct collective_order *e, const struct pen_action *action) {
  const uint8_t updated[TENSORS] = {
      [GRADIENTS] = ALL, [WEIGHTS] = pen_moments_are_sharded(e->b->plan) ? SHARD : ALL};
  struct effect effect = {.last = 0};
  know(e, action->awaited_collective);
  if (action->kind == PEN_GRAD_READY) /* says that they are complete, however they became so */
    return use_of_own(e, action->stage, gradients, e->ended);
  if (action->kind != PEN_UPDATE) {
    add_effect(e->b, &e->b->tables->collectives[action->collective], &effect);
    return use_parts(e, action->stage, effect.reads, PEN_OTHERS, action->awaited_collective,
                     e->ended) &&
           use_of_own(e, action->stage, effect.writes, e->ended);
  }
  for (uint32_t stage = 0; stage < e->b->checked->stage_count; stage++)
    if (e->b->checked->rank_of[stage] == e->b->rank && !use_of_own(e, stage, updated, e->ended))
      return false;
  return true;
}

/* ---- what is complete ---- */

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

/* UPDATE knows the programs of its peers; ALL_GATHER_WEIGHT comes after it, and before SEND_V. */
static bool check_sharding(const struct collective_order *e, const struct pen_action *action) {
  const bool sharded = pen_moments_are_sharded(e->b->plan);
  if ((action->kind == PEN_REDUCE_GROUPS || action->kind == PEN_GATHER_GROUPS) &&
      pen_group_size(e->b->plan, PEN_SAME_SHARD) == 1)
    return PROBLEM(e, "all replicas are one group, which has summed the gradients%s", "");
  if (action->kind == PEN_UPDATE && action->awaited_collective < e->in_programs)
    return PROBLEM(e,
                   "in use: it waits for collective %u of its peers, but their programs end "
                   "collective %u",
                   action->awaited_collective, e->in_programs);
  if (action->kind == PEN_ALL_GATHER_WEIGHT && e->updated == 0)
    return PROBLEM(e, "UPDATE does not come before it%s", "");
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
  if (!use_by_collective(e, action)) return false;
  e->ended++;
  return true;
}

/* Numbers the collectives within a compute action, which program_collectives.c checks; two such
 * actions of a pair would run them in no known order. */
static bool check_within(struct collective_order *e, const struct pen_action *action) {
  const uint32_t count = e->within[action->program].signals.ended, before = count ? e->ended : 0;
  if (action->awaited_collective != before)
    return PROBLEM(e, "it names %u collectives before it, but there are %u",
                   action->awaited_collective, before);
  if (count && action->overlaps && e->within[action[1].program].signals.ended)
    return PROBLEM(e, "it overlaps the next action, but both have collectives");
  if (!use_by_compute(e, action)) return false;
  e->ended += count;
  if (count) e->in_programs = e->ended;
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

/* The next step adds to the gradients before it waits for anything. (UPDATE waits, and so knows all
 * reads of weights by then.) */
static bool check_free(struct collective_order *e) {
  e->action = PEN_NONE;
  for (uint32_t stage = 0; stage < e->b->checked->stage_count; stage++)
    if (!use_of_own(e, stage, gradients, e->ended)) return false;
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
  if (!check_sharding(e, action)) return false;
  if (!pen_kind_is_collective(action->kind)) return true;
  if (!use_by_collective(e, action)) return false;
  e->ended++;
  if (of_stage) e->number[action->kind][action->stage] = e->ended;
  if (action->kind == PEN_UPDATE) e->updated = e->ended;
  return true;
}

static void extend_to(uint64_t *past, uint64_t offset, uint64_t bytes) {
  if (bytes > 0 && offset + bytes > *past) *past = offset + bytes;
}

/* Tensor ranks write splits of matrices of Muon into each other's workspace of UPDATE, and to the
 * gradients. */
static void extend_to_matrices(const struct pen_rank_context *b, uint64_t *past) {
  extend_to(past, b->memory->muon_offset, b->memory->muon_bytes);
  for (uint32_t n = 0; n < b->own_weight_count && b->memory->muon_bytes; n++) {
    const struct pen_weight *weight = &b->plan->weights[b->own_weight[n]];
    if (weight->optimizer == PEN_OPTIMIZER_MUON && weight->gradient_offset != UINT64_MAX)
      extend_to(past, weight->gradient_offset,
                pen_aligned(pen_stored_bytes(b->plan, weight, weight->gradient_sharded)));
  }
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
  if (pen_group_size(b->plan, PEN_TENSOR) > 1) extend_to_matrices(b, &shared);
  if (b->memory->partial_bytes)
    extend_to(&shared, b->memory->partial_offset, b->memory->partial_bytes);
  for (uint32_t n = 0; n < pen_local_tie_count(b->plan); n++) {
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
  e.within = effects_of_programs(b);
  e.in_use = pen_new(b->checked->stage_count, sizeof *e.in_use);
  e.is_unsharded = pen_new(b->checked->stage_count, sizeof *e.is_unsharded);
  for (uint32_t program = 0; program < b->tables->program_count; program++)
    reads[program] = program_reads_unsharded(b, &b->tables->programs[program]);
  for (e.action = 0; e.action < b->tables->action_count; e.action++) {
    const struct pen_action *action = &b->tables->actions[e.action];
    if (!replicas && action->kind >= PEN_GRAD_READY) return PROBLEM(&e, "there are no replicas");
    if (pen_is_compute(action->kind) &&
        (!check_use(&e, action, reads) || !check_within(&e, action)))
      return false;
    if (replicas && !train && action->kind >= PEN_GRAD_READY && !check_collective(&e, action))
      return false;
    if (replicas && train && (action->kind >= PEN_NORM || action->kind == PEN_SEND_V) &&
        !check_collective(&e, action))
      return false;
    if (action->kind == PEN_ADD_TIED_GRAD && !use_of_own(&e, 0, gradients, e.ended)) return false;
  }
  return check_resharded(&e) && check_free(&e) && (!replicas || !train || check_gathered(&e)) &&
         check_shared(b, replicas);
}
