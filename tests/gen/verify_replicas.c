/* verify_replicas.c: defects of the data-parallel collectives of a plan; each is rejected with its
 * own message. */
#include "gen/verify/verify.h"
#include "gen/topology/schedule_table.h"
#include "tests/support/broken.h"
#include "tests/support/collective_plans.h"

static bool has_replicas(const struct broken_plan *p) {
  return p->plan->replica_count > 1 && p->profile->kind == PEN_TRAIN;
}

static uint32_t row_of_kind(struct broken_plan *p, int kind) {
  return has_replicas(p) ? some_row(p, kind, kind) : PEN_NONE;
}

static bool drop_one(struct broken_plan *p, int kind) {
  uint32_t row = row_of_kind(p, kind);
  if (row == PEN_NONE) return false;
  drop_action(p, row);
  return true;
}

static bool never_told(struct broken_plan *p) { return drop_one(p, PEN_GRAD_READY); }
static bool never_summed(struct broken_plan *p) { return drop_one(p, PEN_REDUCE_SCATTER); }
static bool never_gathered(struct broken_plan *p) { return drop_one(p, PEN_ALL_GATHER_GRAD); }

/* The last action before the step ends becomes another REDUCE_SCATTER of the same stage. */
static bool summed_twice(struct broken_plan *p) {
  uint32_t row = row_of_kind(p, PEN_REDUCE_SCATTER), norm = row_of_kind(p, PEN_NORM);
  if (row == PEN_NONE || norm == PEN_NONE) return false;
  struct pen_action *grown = pen_new(p->tables->action_count + 1, sizeof *grown);
  memcpy(grown, p->action, norm * sizeof *grown);
  grown[norm] = p->action[row];
  memcpy(grown + norm + 1, p->action + norm, (p->tables->action_count - norm) * sizeof *grown);
  p->tables->actions = grown;
  p->tables->action_count++;
  return true;
}

/* GRAD_READY before the last microbatch: swapped with the last action that accumulates. */
static bool reported_early(struct broken_plan *p) {
  uint32_t row = row_of_kind(p, PEN_GRAD_READY), last = row;
  while (last != PEN_NONE && last-- > 0)
    if ((p->action[last].kind == PEN_B || p->action[last].kind == PEN_W) &&
        p->action[last].stage == p->action[row].stage)
      break;
  if (row == PEN_NONE || last == PEN_NONE || p->action[last].overlaps ||
      (last > 0 && p->action[last - 1].overlaps))
    return false;
  move_action(p, row, last);
  return true;
}

static bool sets_known(struct broken_plan *p, int kind, int64_t less) {
  uint32_t row = row_of_kind(p, kind);
  if (row == PEN_NONE) return false;
  p->action[row].awaited_collective = (uint32_t)(p->action[row].awaited_collective - less);
  return true;
}

static bool sum_does_not_wait(struct broken_plan *p) {
  uint32_t row = row_of_kind(p, PEN_REDUCE_SCATTER);
  if (row == PEN_NONE) return false;
  p->action[row].awaited_collective = 0;
  return true;
}

static bool gathers_early(struct broken_plan *p) { return sets_known(p, PEN_ALL_GATHER_GRAD, 1); }
static bool never_brought(struct broken_plan *p) { return drop_one(p, PEN_ALL_GATHER_WEIGHT); }
static bool brought_early(struct broken_plan *p) { return sets_known(p, PEN_ALL_GATHER_WEIGHT, 1); }

/* Weights are gathered before their update. */
static bool brought_before_update(struct broken_plan *p) {
  uint32_t row = row_of_kind(p, PEN_ALL_GATHER_WEIGHT), update = row_of_kind(p, PEN_UPDATE);
  if (row == PEN_NONE || update == PEN_NONE) return false;
  move_action(p, row, update);
  return true;
}

/* The matrix is sent before the others' shards of it have come. */
static bool sent_in_part(struct broken_plan *p) {
  uint32_t row = row_of_kind(p, PEN_ALL_GATHER_WEIGHT), sent = row_of_kind(p, PEN_SEND_V);
  if (row == PEN_NONE || sent == PEN_NONE) return false;
  for (row = 0; p->action[row].kind != PEN_ALL_GATHER_WEIGHT ||
                p->action[row].stage != p->action[sent].stage;)
    row++;
  move_action(p, row, sent);
  return true;
}

/* Rows of the other sharding. */
static bool another_sharding(struct broken_plan *p) {
  if (!has_replicas(p)) return false;
  p->plan->sharding = p->plan->sharding == PEN_SHARD_NONE ? PEN_SHARD_OPTIMIZER : PEN_SHARD_NONE;
  return true;
}

static struct pen_weight *own_weight(struct broken_plan *p, bool cut) {
  struct pen_weight *weights = WRITABLE(struct pen_weight, p->plan->weights);
  for (unsigned tries = 0; has_replicas(p) && p->plan->sharding != PEN_SHARD_NONE && tries < 200;
       tries++) {
    struct pen_weight *weight = &weights[draw(p->seed, p->plan->weight_count)];
    if (weight->rank == p->rank && weight->value_sharded == cut) return weight;
  }
  return NULL;
}

static bool cut_what_is_read(struct broken_plan *p) {
  struct pen_weight *weight = own_weight(p, false);
  if (weight) weight->value_sharded = true;
  return weight != NULL;
}

static bool whole_in_the_room_of_a_shard(struct broken_plan *p) {
  struct pen_weight *weight = own_weight(p, true);
  if (weight) weight->value_sharded = false;
  return weight != NULL;
}

/* The moments of one weight begin within those of another: a shard without room of its own. */
static bool shards_overlap(struct broken_plan *p) {
  struct pen_weight *weight = own_weight(p, false), *other = own_weight(p, false);
  if (!weight || !other || weight == other || weight->frozen || other->frozen) return false;
  weight->exp_avg_offset = other->exp_avg_sq_offset;
  return true;
}

static bool computes(const struct pen_action *row) { return row->kind < PEN_W; }

/* The first compute action of the stage after UNSHARD moves before it. */
static bool used_early(struct broken_plan *p) {
  uint32_t row = row_of_kind(p, PEN_UNSHARD), use = row;
  if (row == PEN_NONE) return false;
  while (!computes(&p->action[use]) || p->action[use].stage != p->action[row].stage) use++;
  if (p->action[use].overlaps || p->action[use - 1].overlaps) return false;
  move_action(p, row, use);
  return true;
}

static bool used_late(struct broken_plan *p) {
  uint32_t row = row_of_kind(p, PEN_RESHARD), use = row;
  if (row == PEN_NONE) return false;
  while (!computes(&p->action[use]) || p->action[use].stage != p->action[row].stage) use--;
  if (p->action[use].overlaps || (use > 0 && p->action[use - 1].overlaps)) return false;
  move_action(p, row, use);
  return true;
}

static bool never_whole(struct broken_plan *p) { return drop_one(p, PEN_UNSHARD); }
static bool never_given_up(struct broken_plan *p) { return drop_one(p, PEN_RESHARD); }

static bool whole_twice(struct broken_plan *p) {
  uint32_t row = row_of_kind(p, PEN_UNSHARD);
  if (row == PEN_NONE) return false;
  struct pen_action *grown = pen_new(p->tables->action_count + 1, sizeof *grown);
  memcpy(grown, p->action, (row + 1) * sizeof *grown);
  memcpy(grown + row + 1, p->action + row, (p->tables->action_count - row) * sizeof *grown);
  p->tables->actions = grown;
  p->tables->action_count++;
  return true;
}

static bool whole_of_the_future(struct broken_plan *p) {
  uint32_t row = row_of_kind(p, PEN_UNSHARD), update = row_of_kind(p, PEN_UPDATE);
  if (row == PEN_NONE || update == PEN_NONE) return false;
  p->action[row].awaited_collective = p->action[update].awaited_collective + 1;
  return true;
}

static bool updated_while_read(struct broken_plan *p) {
  uint32_t row = row_of_kind(p, PEN_UNSHARD), update = row_of_kind(p, PEN_UPDATE);
  if (row == PEN_NONE || update == PEN_NONE) return false;
  p->action[update].awaited_collective = 0;
  return true;
}

static bool whole_elsewhere(struct broken_plan *p) {
  uint32_t row = row_of_kind(p, PEN_UNSHARD);
  if (row == PEN_NONE) return false;
  set_base(p, row, PEN_BASE_UNSHARDED, base_of(p, row, PEN_BASE_UNSHARDED) + PEN_ALIGNMENT_BYTES);
  return true;
}

static bool another_stages_weights(struct broken_plan *p) {
  uint32_t row = row_of_kind(p, PEN_UNSHARD);
  for (uint16_t stage = 0; row != PEN_NONE && stage < p->plan->stage_count; stage++)
    if (p->profile->stages[stage].rank == p->rank && stage != p->action[row].stage) {
      p->action[row].stage = stage;
      return true;
    }
  return false;
}

static bool value_not_shared(struct broken_plan *p) {
  struct pen_weight *weight = own_weight(p, false);
  if (!weight || weight->frozen) return false;
  uint64_t past = weight->value_offset + (weight->count * sizeof(float) + 63) / 64 * 64;
  struct pen_rank_memory *memory = &WRITABLE(struct pen_rank_memory, p->plan->memory)[p->rank];
  if (past > memory->shared_bytes) return false;
  memory->shared_bytes = past - PEN_ALIGNMENT_BYTES;
  return true;
}

static bool clears_early(struct broken_plan *p) { return sets_known(p, PEN_UPDATE, 1); }
static bool waits_for_itself(struct broken_plan *p) { return sets_known(p, PEN_UPDATE, -1); }

/* A REDUCE_SCATTER that waits for a later action of its peers. */
static bool waits_for_the_future(struct broken_plan *p) {
  uint32_t row = row_of_kind(p, PEN_REDUCE_SCATTER);
  if (row == PEN_NONE) return false;
  uint32_t update = row_of_kind(p, PEN_UPDATE);
  if (update != PEN_NONE) p->action[row].awaited_collective = p->action[update].awaited_collective;
  return true;
}

static bool norm_before_the_sum(struct broken_plan *p) {
  uint32_t row = row_of_kind(p, PEN_NORM), first = PEN_NONE;
  for (uint32_t i = 0; row != PEN_NONE && i < row; i++)
    if (p->action[i].kind == PEN_REDUCE_SCATTER)
      first = i; /* the last REDUCE_SCATTER, with no later computation */
  if (first == PEN_NONE) return false;
  for (uint32_t i = first; i < row; i++)
    if (p->action[i].kind < PEN_NORM) return false;
  move_action(p, row, first);
  return true;
}

static bool anothers_stage(struct broken_plan *p) {
  uint32_t row = row_of_kind(p, PEN_GRAD_READY);
  if (row == PEN_NONE) return false;
  for (uint16_t stage = 0; stage < p->plan->stage_count; stage++)
    if (p->profile->stages[stage].rank != p->rank) p->action[row].stage = stage;
  return true;
}

static bool gradients_not_shared(struct broken_plan *p) {
  if (!has_replicas(p)) return false;
  WRITABLE(struct pen_rank_memory, p->plan->memory)[p->rank].shared_bytes -= PEN_ALIGNMENT_BYTES;
  return true;
}

static bool no_replicas(struct broken_plan *p) {
  if (!has_replicas(p)) return false;
  p->plan->replica_count = 1;
  p->plan->shard_ranks = 1;
  return true;
}

static const struct defect defects[] = {
    {"a gradient that is never announced to peers",
     never_told,
     {"in use: ", "deadlock: it waits for collective"}},
    {"a gradient that is never summed",
     never_summed,
     {"in use: ", "summed: ", "deadlock: it waits for collective"}},
    {"sums that are never gathered",
     never_gathered,
     {"in use: ", "summed: ", "deadlock: it waits for collective"}},
    {"a gradient summed twice", summed_twice, {"is listed twice in a step"}},
    {"a gradient reported before it is whole", reported_early, {"in use: "}},
    {"a sum that does not wait", sum_does_not_wait, {"in use: "}},
    {"sums gathered early", gathers_early, {"in use: "}},
    {"gradients cleared early", clears_early, {"in use: "}},
    {"updated shards that are never brought",
     never_brought,
     {"ALL_GATHER_WEIGHT is missing", "ALL_GATHER_WEIGHT does not come before it",
      "deadlock: it waits for collective"}},
    {"weights gathered before peers have updated",
     brought_early,
     {"in use: ", "UPDATE does not come before it"}},
    {"weights gathered before the update",
     brought_before_update,
     {"in use: ", "UPDATE does not come before it", "deadlock: it waits for collective"}},
    {"a matrix sent with old shards", sent_in_part, {"shards of the weight that it sends are old"}},
    {"rows of another sharding",
     another_sharding,
     {"of the arena are shared", "in use: ", "summed: ", "must be whole",
      "no program reads it there", "does not come before it", "is missing at the step's end",
      "overlaps", "in use: "}},
    {"a weight cut that programs read",
     cut_what_is_read,
     {"but it must be whole", "but no weight, gradient or constant is at its address"}},
    {"a whole weight in the room of a shard",
     whole_in_the_room_of_a_shard,
     {"no program reads it there", "is not a sharded weight of the rank", "but no weight, gradient",
      "of the arena are shared"}},
    {"shards that overlap", shards_overlap, {"overlaps"}},
    {"a weight used before it is whole", used_early, {"are not unsharded"}},
    {"a weight used when it is given up", used_late, {"are not unsharded"}},
    {"weights that are never brought together",
     never_whole,
     {"are not unsharded", "deadlock: it waits for collective"}},
    {"weights that are never given up",
     never_given_up,
     {"RESHARD is missing", "are unsharded already"}},
    {"weights brought together twice", whole_twice, {"are unsharded already"}},
    {"weights that wait for what comes after",
     whole_of_the_future,
     {"deadlock: it waits for collective"}},
    {"shards updated while peers read them", updated_while_read, {"in use: "}},
    {"weights brought elsewhere",
     whole_elsewhere,
     {"reads ", "outside the receive region and the activation part", "frees", "waits for",
      "sends"}},
    {"another stage's weights",
     another_stages_weights,
     {"are not unsharded", "are unsharded already"}},
    {"weights outside the shared part", value_not_shared, {"of the arena are shared, but"}},
    {"a row that waits for itself", waits_for_itself, {"deadlock: it waits for collective"}},
    {"a sum that waits for what comes after",
     waits_for_the_future,
     {"deadlock: it waits for collective"}},
    {"a norm before the sum", norm_before_the_sum, {"summed: "}},
    {"another rank's stage", anothers_stage, {"is not on this rank"}},
    {"gradients outside the shared part", gradients_not_shared, {"of the arena are shared, but"}},
    {"an exchange without replicas",
     no_replicas,
     {"there are no replicas", "a single replica cannot shard",
      "cannot be divided into groups of"}},
};

static void defects_are_rejected(void **state) {
  (void)state;
  reject_all(defects, sizeof defects / sizeof defects[0], 27182818);
}

/* ---- weights that W reads ---- */

/* A schedule with a split backward, sharded weights, and a head with 40 rows of logits, in chunks
 * of 32 or at once. */
struct sharing {
  const struct pen_schedule *schedule;
  const char *reshard, *dtype;
  uint32_t replicas;
  bool chunks, tied;
};

static struct whole share_weights(const struct sharing *s) {
  uint32_t stages = s->schedule->stages_minimum;
  return make_whole(
      pen_text("pipeline = { ranks = 4; stages_per_rank = %u; microbatches = 8; schedule = \"%s\"; "
               "zero_bubble = true; };\n"
               "model = { family = \"llama\"; layers = 8; hidden = 16; heads = 2; kv_heads = 1; "
               "ffn = 24; vocab = 32; sequence = 40; loss_rows = %u;"
               " dtype = \"%s\"; tie_embeddings = %s; };\n"
               "batch = { microbatch = 1; };\noptimizer = { learning_rate = 1e-3; steps = 10; "
               "};\ncluster = { device = \"cpu\"; };\n"
               "data_parallel = { replicas = %u; shard = \"weights\"; reshard = \"%s\"; };\n",
               stages, s->schedule->name, s->chunks ? 32 : 0, s->dtype, s->tied ? "true" : "false",
               s->replicas, s->reshard));
}

/* How often a stage's weights are brought together for a W, which is more than it needs of any
 * stage but that of a head in chunks. */
static unsigned uses_by_w(const struct whole *w) {
  unsigned uses = 0;
  for (uint32_t rank = 0; rank < w->plan->rank_count; rank++)
    for (uint32_t row = 0; row < w->plan->profiles[0].ranks[rank].action_count; row++) {
      const struct pen_action *action = &w->plan->profiles[0].ranks[rank].actions[row],
                              *next = action + 1;
      if (action->kind != PEN_UNSHARD) continue;
      while (next->kind > PEN_W || next->stage != action->stage) next++;
      if (next->kind == PEN_W && action->stage + 1u < w->partition->stage_count)
        fail_msg("stage %u is brought together for a W", action->stage);
      uses += next->kind == PEN_W;
    }
  return uses;
}

static void check_sharing(const struct sharing *s, unsigned *uses) {
  struct whole w = share_weights(s);
  struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
  if (!pen_verify(w.plan, &problem))
    fail_msg("%s, %u replicas, reshard %s, %s%s%s: rank %u, row %u: %s", s->schedule->name,
             s->replicas, s->reshard, s->dtype, s->chunks ? ", chunks" : "",
             s->tied ? ", tied" : "", problem.rank, problem.action, problem.reason);
  unsigned own = uses_by_w(&w);
  if (own > 0 && (!s->chunks || s->tied))
    fail_msg("%s: %u times weights for a W that reads none", s->schedule->name, own);
  *uses += own;
  pen_free_all();
}

/* Where the head makes its logits by chunks, W makes them again, with the weights that F and I had.
 */
static void a_head_in_chunks_finds_its_weights(void **state) {
  (void)state;
  unsigned uses = 0, schedules = 0;
  for (uint32_t i = 0; i < pen_schedule_count; i++) {
    const struct pen_schedule *schedule = &pen_schedules[i];
    if (!schedule->trains || schedule->given != PEN_GIVEN_BY_RULE ||
        schedule->split == PEN_SPLIT_NEVER)
      continue;
    schedules++;
    for (unsigned bits = 0; bits < 32; bits++)
      check_sharing(
          &(struct sharing){schedule, bits & 1 ? "use" : "step", bits & 16 ? "bf16" : "f32",
                            bits & 2 ? 3 : 2, bits & 4, bits & 8},
          &uses);
  }
  print_message("# %u schedules, weights brought together for a W %u times\n", schedules, uses);
  assert_true(schedules >= 8 && uses > 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(defects_are_rejected),
                                     cmocka_unit_test(a_head_in_chunks_finds_its_weights)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
