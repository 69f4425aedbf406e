/* verify_replicas.c: do replicas come to one gradient, whenever each of them runs, and does none
 * wait for ever?
 *
 * All replicas run the tables of one plan, so what a rank's list says holds for its peers too. A
 * row of the exchange that waits for row E of its peers knows that all that stands up to that row
 * in the list has been done by all of them, and nothing more. From that:
 *
 *   whole     nothing adds to a stage's gradient behind its GRAD_READY
 *   summed    REDUCE_SCATTER, which reads the peers' gradients, knows their GRAD_READY
 *   gathered  ALL_GATHER_GRAD, which reads the peers' sums, knows their REDUCE_SCATTER
 *   free      UPDATE, which clears the gradients for the next step, knows all rows of its peers
 * that read them updated   where moments are cut, each updates its shard of a weight:
 * ALL_GATHER_WEIGHT, which reads the others', knows their UPDATE, stands once for each stage that
 * keeps weights whole, and above SEND_V. What it reads stays: the next UPDATE of a peer knows a
 * later row unsharded where weights are cut, every row that reads a stage's stands between UNSHARD
 * and RESHARD. UNSHARD knows the peers' UPDATE of the step before (E is 0, or more), and their next
 * UPDATE knows it. What its bytes hold is seen to by verify_memory.c no wait for ever: E stands
 * above the row that waits for it. Take an order in which the rows of one replica can run one by
 * one (the other parts prove that there is one), and let all replicas run each row of it before any
 * runs the next: every row finds what it waits for. Rows only wait for what stays done, so any
 * other order ends alike.
 *
 * Each of these rows stands once for each stage of the rank. That they add up replica by replica is
 * the runtime's doing. */
#include "gen/verify/internal.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

/* A rank's list as far as it was read. Numbers count the rows of the exchange from 1; 0: not yet.
 */
struct exchange {
  const struct pen_rank_context *b;
  uint32_t row;
  uint32_t ended;                     /* rows of the exchange above `row` */
  uint32_t updated;                   /* number of UPDATE */
  uint32_t unsharded;                 /* that of the last UNSHARD */
  bool *whole;                        /* [stage]: between UNSHARD and RESHARD */
  uint32_t *number[PEN_ACTION_KINDS]; /* [stage]: of the stage's row of that kind */
};

#define WRONG(e, ...) \
  pen_problem_note((e)->b->checked->problem, (e)->b->rank, (e)->row, __VA_ARGS__)

static const char *const kind_text[PEN_ACTION_KINDS] = {
#define PEN_ACTION(kind, text, printed, meaning) [PEN_##kind] = text,
#include "runtime/plan/actions.def"
};

/* Which row of a stage must stand above which. */
struct rule {
  uint8_t kind, needs;
  bool knows;      /* not the own row alone: the peers' too */
  bool whole, cut; /* holds where moments are whole; where they are cut */
  const char *why;
};
static const struct rule rules[] = {
    {PEN_REDUCE_SCATTER, PEN_GRAD_READY, true, true, true,
     "peers may still add to the gradients that it reads"},
    {PEN_ALL_GATHER_GRAD, PEN_REDUCE_SCATTER, true, true, false,
     "peers may not have summed what it reads"},
    {PEN_NORM, PEN_REDUCE_SCATTER, false, true, true, "the gradients are not summed yet"},
    {PEN_UPDATE, PEN_ALL_GATHER_GRAD, true, true, false,
     "peers may still read the gradients that it clears"},
    {PEN_UPDATE, PEN_REDUCE_SCATTER, true, false, true,
     "peers may still read the gradients that it clears"},
};

static uint32_t known(const struct pen_action *row) {
  return row->message == PEN_NONE ? 0 : row->message;
}

/* One rule of the row at hand, for one stage. */
static bool check_rule(const struct exchange *e, const struct pen_action *row,
                       const struct rule *rule, uint32_t stage) {
  uint32_t number = e->number[rule->needs][stage];
  if (number == 0)
    return WRONG(e, "%u%s does not stand above it: %s", stage, kind_text[rule->needs], rule->why);
  if (rule->knows && known(row) < number)
    return WRONG(e, "it waits for row %u of the exchange, but %u%s is row %u: %s", known(row),
                 stage, kind_text[rule->needs], number, rule->why);
  return true;
}

static bool check_rules(const struct exchange *e, const struct pen_action *row) {
  bool of_stage = pen_kind_has_stage(row->kind), cut = pen_moments_are_sharded(e->b->plan);
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    for (uint32_t stage = 0; rules[i].kind == row->kind && (cut ? rules[i].cut : rules[i].whole) &&
                             stage < e->b->checked->stage_count;
         stage++)
      if (e->b->checked->rank_of[stage] == e->b->rank && (!of_stage || stage == row->stage) &&
          !check_rule(e, row, &rules[i], stage))
        return false;
  return true;
}

/* Whether a stage keeps weights whole that learn. */
static bool keeps_whole(const struct pen_rank_context *b, uint32_t stage) {
  for (uint32_t n = 0; n < b->own_weight_count; n++) {
    const struct pen_weight *weight = &b->plan->weights[b->own_weight[n]];
    if (weight->stage == stage && !weight->frozen &&
        (!weight->value_sharded || (weight->bf16_offset != UINT64_MAX && !weight->bf16_sharded)))
      return true;
  }
  return false;
}

/* Who wants which rows, and ALL_GATHER_WEIGHT behind UPDATE. */
static bool check_sharing(const struct exchange *e, const struct pen_action *row) {
  bool cut = pen_moments_are_sharded(e->b->plan);
  if (row->kind == (cut ? PEN_ALL_GATHER_GRAD : PEN_ALL_GATHER_WEIGHT))
    return WRONG(e, "moments are %s, so nobody wants the peers' %s", cut ? "cut" : "whole",
                 cut ? "sums" : "weights");
  if (row->kind == PEN_UPDATE && known(row) < e->unsharded)
    return WRONG(e,
                 "it waits for row %u of the exchange, but UNSHARD is row %u: peers may still read "
                 "the shards that it updates",
                 known(row), e->unsharded);
  if (row->kind == PEN_ALL_GATHER_WEIGHT && (e->updated == 0 || known(row) < e->updated))
    return WRONG(e,
                 "it waits for row %u of the exchange, but UPDATE is row %u: peers may not have "
                 "updated what it reads",
                 known(row), e->updated);
  if (row->kind == PEN_SEND_V && cut && !e->number[PEN_ALL_GATHER_WEIGHT][row->stage])
    return WRONG(
        e, "%uGATHER_VALUE does not stand above it: shards of the weight that it sends are old",
        row->stage);
  return true;
}

/* What UPDATE has left to the peers is gathered. */
static bool check_gathered(struct exchange *e) {
  for (uint32_t stage = 0;
       pen_moments_are_sharded(e->b->plan) && stage < e->b->checked->stage_count; stage++)
    if (!e->number[PEN_ALL_GATHER_WEIGHT][stage] && keeps_whole(e->b, stage)) {
      e->row = PEN_NONE;
      return WRONG(e, "%uGATHER_VALUE is missing at the step's end: the next finds old weights",
                   stage);
    }
  return true;
}

/* Whether a program reads weights that are cut. */
static bool reads_cut(const struct pen_rank_context *b, const struct pen_program *program) {
  for (uint32_t op = program->first_op; op < program->first_op + program->op_count; op++)
    for (int k = 0; k < PEN_OPERANDS_MAX; k++) {
      uint32_t tensor = b->tables->ops[op].operand[k];
      if (tensor != PEN_NONE && b->tables->tensors[tensor].base == PEN_BASE_UNSHARDED) return true;
    }
  return false;
}

static bool check_unshard(struct exchange *e, const struct pen_action *row) {
  bool comes = row->kind == PEN_UNSHARD;
  if (row->stage >= e->b->checked->stage_count || e->b->checked->rank_of[row->stage] != e->b->rank)
    return WRONG(e, "stage %u is not on this rank", row->stage);
  if (row->microbatch != 0)
    return WRONG(e, "it is of no microbatch, but names %u", row->microbatch);
  if (e->b->plan->sharding != PEN_SHARD_WEIGHTS) return WRONG(e, "weights are not shared out");
  if (e->whole[row->stage] == comes)
    return WRONG(e, "the weights of stage %u %s", row->stage,
                 comes ? "are whole already" : "are not whole");
  e->whole[row->stage] = comes;
  if (!comes) return true;
  if (row->message == PEN_NONE)
    return WRONG(
        e, "it waits for nobody: peers may not have updated what it reads in the step before");
  if (row->message > e->ended)
    return WRONG(e,
                 "deadlock: it waits for row %u of its peers' exchange, but only %u stand above it",
                 row->message, e->ended);
  if (e->updated)
    return WRONG(e, "it stands behind UPDATE: some shards may be of this step, others of the next");
  e->unsharded = ++e->ended;
  return true;
}

/* What computes finds its stage's weights whole; at the end of a step none is. */
static bool check_use(struct exchange *e, const struct pen_action *row, const bool *reads) {
  if (!reads[row->program] || e->whole[row->stage]) return true;
  return WRONG(e,
               "it reads the weights of stage %u, which are not whole: no UNSHARD stands above it, "
               "or RESHARD does",
               row->stage);
}

static bool check_given_up(struct exchange *e) {
  for (uint32_t stage = 0; stage < e->b->checked->stage_count; stage++)
    if (e->whole[stage]) {
      e->row = PEN_NONE;
      return WRONG(e, "%uRESHARD is missing at the step's end", stage);
    }
  return true;
}

/* A row of the exchange, or of the step's end. */
static bool check_row(struct exchange *e, const struct pen_action *row) {
  if (row->kind == PEN_SEND_V) return check_sharing(e, row);
  if (row->kind == PEN_UNSHARD || row->kind == PEN_RESHARD) return check_unshard(e, row);
  bool of_stage = pen_kind_has_stage(row->kind);
  if (of_stage && (row->stage >= e->b->checked->stage_count ||
                   e->b->checked->rank_of[row->stage] != e->b->rank))
    return WRONG(e, "stage %u is not on this rank", row->stage);
  if (of_stage && row->microbatch != 0)
    return WRONG(e, "it is of no microbatch, but names %u", row->microbatch);
  if (of_stage && e->number[row->kind][row->stage])
    return WRONG(e, "%u%s stands twice in a step", row->stage, kind_text[row->kind]);
  if (pen_kind_is_collective(row->kind) && known(row) > e->ended)
    return WRONG(e,
                 "deadlock: it waits for row %u of its peers' exchange, but only %u stand above it",
                 known(row), e->ended);
  if (!check_sharing(e, row) || !check_rules(e, row)) return false;
  if (!pen_kind_is_collective(row->kind)) return true;
  e->ended++;
  if (of_stage) e->number[row->kind][row->stage] = e->ended;
  if (row->kind == PEN_UPDATE) e->updated = e->ended;
  return true;
}

/* The elements of the largest shard. */
static uint64_t most_of(const struct pen_plan *plan, const struct pen_weight *weight) {
  uint64_t most = 0;
  for (uint32_t replica = 0; replica < plan->replica_count; replica++) {
    uint64_t count = pen_shard_at(weight->count, plan->replica_count, replica).count;
    if (count > most) most = count;
  }
  return most;
}

static void reach(uint64_t *past, uint64_t offset, uint64_t bytes) {
  if (offset + bytes > *past) *past = offset + bytes;
}

/* What other ranks write, and what peers read, lies in the shared part of the arena, and nothing
 * else need. */
static bool check_shared(const struct pen_rank_context *b, bool exchanges) {
  uint64_t shared = b->memory->receive_bytes;
  for (uint32_t n = 0; n < b->own_weight_count && exchanges; n++) {
    const struct pen_weight *weight = &b->plan->weights[b->own_weight[n]];
    uint64_t bytes = pen_aligned(weight->count * sizeof(float));
    bool copied = weight->bf16_offset != UINT64_MAX;
    if (weight->bf16_sharded)
      reach(&shared, weight->bf16_offset, pen_aligned(most_of(b->plan, weight) * sizeof(uint16_t)));
    if (weight->value_sharded && !copied)
      reach(&shared, weight->value_offset, pen_aligned(most_of(b->plan, weight) * sizeof(float)));
    if (weight->frozen || weight->gradient_offset == UINT64_MAX) continue;
    reach(&shared, weight->gradient_offset, bytes);
    if (!pen_moments_are_sharded(b->plan)) continue;
    if (!weight->value_sharded) reach(&shared, weight->value_offset, bytes);
    if (copied && !weight->bf16_sharded)
      reach(&shared, weight->bf16_offset, pen_aligned(weight->count * sizeof(uint16_t)));
  }
  for (uint32_t n = 0; n < b->plan->tie_count; n++) {
    const struct pen_tie *tie = &b->plan->ties[n];
    const struct pen_weight *weight = &b->plan->weights[tie->weight];
    uint64_t past =
        tie->value_offset +
        pen_aligned(weight->count * (tie->dtype == PEN_BF16 ? sizeof(uint16_t) : sizeof(float)));
    if (tie->rank == b->rank && weight->rank != b->rank && past > shared) shared = past;
  }
  if (b->memory->shared_bytes == shared) return true;
  return pen_problem_note(
      b->checked->problem, b->rank, PEN_NONE,
      "%llu bytes of the arena are shared, but what others write or read takes %llu",
      (unsigned long long)b->memory->shared_bytes, (unsigned long long)shared);
}

bool pen_check_replicas(const struct pen_rank_context *b) {
  bool train = b->checked->profile_kind == PEN_TRAIN, replicas = b->plan->replica_count > 1;
  struct exchange e = {.b = b};
  for (int kind = PEN_GRAD_READY; kind < PEN_ACTION_KINDS; kind++)
    e.number[kind] = pen_new(b->checked->stage_count, sizeof(uint32_t));
  bool *reads = pen_new(b->tables->program_count + 1u, sizeof *reads);
  e.whole = pen_new(b->checked->stage_count, sizeof *e.whole);
  for (uint32_t program = 0; program < b->tables->program_count; program++)
    reads[program] = reads_cut(b, &b->tables->programs[program]);
  for (e.row = 0; e.row < b->tables->action_count; e.row++) {
    const struct pen_action *row = &b->tables->actions[e.row];
    if (!replicas && row->kind >= PEN_GRAD_READY)
      return WRONG(&e, "there are no replicas to exchange with");
    if (pen_is_compute(row->kind) && !check_use(&e, row, reads)) return false;
    if (replicas && !train && row->kind >= PEN_GRAD_READY && !check_row(&e, row)) return false;
    if (replicas && train && (row->kind >= PEN_NORM || row->kind == PEN_SEND_V) &&
        !check_row(&e, row))
      return false;
    if (row->kind == PEN_ADD_TIED_GRAD && e.number[PEN_GRAD_READY][0])
      return WRONG(&e, "it adds to the gradients of stage 0, which peers may read already");
    if ((row->kind == PEN_B || row->kind == PEN_W) && e.number[PEN_GRAD_READY][row->stage])
      return WRONG(&e, "it adds to the gradients of stage %u, which peers may read already",
                   row->stage);
  }
  return check_given_up(&e) && (!replicas || !train || check_gathered(&e)) &&
         check_shared(b, replicas);
}
