/* verify_cache.c: the cache of keys and values: its size and place in plans, and that the verifier
 * rejects a plan whose profiles would read other keys than they mean. */
#include "gen/topology/topology.h"
#include "tests/support/broken.h"

/* Dims of ATTENTION_CACHED and ATTENTION_CACHED_QKV. */
enum { SLOTS = 6, POSITIONS = 7 };

static uint64_t seed = 5;

/* Two layers a stage, one stage a rank: the layers of a rank have one frame. */
static const char *topology_of(unsigned ranks, const char *dtype, unsigned prompts,
                               const char *device) {
  return pen_text(
      "pipeline = { ranks = %u; microbatches = 4; schedule = \"1f1b\"; };\n"
      "model = { family = \"llama\"; layers = %u; hidden = 32; heads = 4; kv_heads = 2; ffn = 48; "
      "vocab = 64; sequence = 32; dtype = \"%s\"; };\n"
      "batch = { microbatch = 2; };\noptimizer = { learning_rate = 1e-3; steps = 10; };\n"
      "cluster = { device = \"%s\"; };\ngenerate = { prompts = %u; };\n",
      ranks, 2 * ranks, dtype, device, prompts);
}

static bool attends(const struct pen_op *op) {
  return op->kind == PEN_OP_ATTENTION_CACHED || op->kind == PEN_OP_ATTENTION_CACHED_QKV;
}

/* Its operands, keys and values. */
static int keys_of(const struct pen_op *op) {
  return pen_signature_operand(pen_signature_of(op->kind), "keys");
}
static int values_of(const struct pen_op *op) { return keys_of(op) + 1; }

/* ---- what the verifier rejects ---- */

/* A random profile over a cache; or of several the first or last. */
static bool pick_profile(struct broken_plan *p, int which) {
  uint32_t found[8], count = 0;
  for (uint32_t i = 0; i < p->plan->profile_count; i++)
    if (p->plan->profiles[i].kind == PEN_CACHED) found[count++] = i;
  if (!count) return false;
  uint32_t index = found[which < 0 ? draw(p->seed, count) : (uint32_t)which % count];
  p->profile = WRITABLE(struct pen_profile, &p->plan->profiles[index]);
  p->rank = (uint32_t)draw(p->seed, p->plan->rank_count);
  p->tables = WRITABLE(struct pen_rank_program, &p->profile->ranks[p->rank]);
  p->action = WRITABLE(struct pen_action, p->tables->actions);
  return true;
}

/* A random attention over a cache, not `other`. */
static struct pen_op *some_attention(struct broken_plan *p, const struct pen_op *other) {
  uint32_t seen = 0;
  struct pen_op *op = NULL;
  for (uint32_t i = 0; i < p->tables->op_count; i++)
    if (attends(&ops_of(p)[i]) && &ops_of(p)[i] != other && draw(p->seed, ++seen) == 0)
      op = &ops_of(p)[i];
  return op;
}

static struct pen_tensor *operand_of(struct broken_plan *p, const struct pen_op *op, int k) {
  return WRITABLE(struct pen_tensor, &p->tables->tensors[op->operand[k]]);
}

static struct pen_rank_memory *memory_of(struct broken_plan *p) {
  return WRITABLE(struct pen_rank_memory, &p->plan->memory[p->rank]);
}

static int keys_or_values(struct broken_plan *p, const struct pen_op *op) {
  return keys_of(op) + (int)draw(p->seed, 2);
}

static bool shares_bytes(struct broken_plan *p) {
  struct pen_op *op = some_attention(p, NULL), *other = some_attention(p, op);
  if (!other) return false;
  operand_of(p, op, keys_or_values(p, op))->offset =
      operand_of(p, other, keys_or_values(p, other))->offset;
  return true;
}

static bool is_both(struct broken_plan *p) {
  struct pen_op *op = some_attention(p, NULL);
  op->operand[keys_of(op)] = op->operand[values_of(op)];
  return true;
}

static bool moves(struct broken_plan *p) {
  struct pen_op *op = some_attention(p, NULL);
  operand_of(p, op, keys_or_values(p, op))->offset += PEN_ALIGNMENT_BYTES;
  return true;
}

static bool swaps_keys_and_values(struct broken_plan *p) {
  struct pen_op *op = some_attention(p, NULL);
  uint32_t keys = op->operand[keys_of(op)];
  op->operand[keys_of(op)] = op->operand[values_of(op)];
  op->operand[values_of(op)] = keys;
  return true;
}

static bool swaps_layers(struct broken_plan *p) {
  struct pen_op *op = some_attention(p, NULL), *other = some_attention(p, op);
  if (!other) return false;
  for (int k = keys_of(op); k <= values_of(op); k++) {
    struct pen_tensor *one = operand_of(p, op, k), *two = operand_of(p, other, k);
    uint64_t offset = one->offset;
    one->offset = two->offset;
    two->offset = offset;
  }
  return true;
}

static bool divides_otherwise(struct broken_plan *p) {
  for (uint32_t i = 0; i < p->tables->op_count; i++) {
    struct pen_op *op = &ops_of(p)[i];
    if (!attends(op)) continue;
    op->dim[SLOTS] *= 2;
    op->dim[POSITIONS] /= 2;
  }
  return true;
}

static bool is_scratch(struct broken_plan *p) {
  struct pen_op *op = some_attention(p, NULL);
  operand_of(p, op, keys_or_values(p, op))->base = PEN_BASE_SCRATCH;
  return true;
}

static bool keeps_an_activation(struct broken_plan *p) {
  enum { Q_OR_QKV = 0 };
  operand_of(p, some_attention(p, NULL), Q_OR_QKV)->base = PEN_BASE_CACHE;
  return true;
}

static bool moves_a_frame(struct broken_plan *p) {
  struct pen_op *op = some_attention(p, NULL);
  for (uint32_t row = 0; row < p->tables->action_count; row++) {
    if (p->action[row].kind != PEN_F) continue;
    const struct pen_program *program = &p->tables->programs[p->action[row].program];
    uint32_t index = (uint32_t)(op - ops_of(p));
    if (index < program->first_op || index >= program->first_op + program->op_count) continue;
    set_base(p, row, PEN_BASE_CACHE,
             base_of(p, row, PEN_BASE_CACHE) +
                 (draw(p->seed, 2) ? PEN_ALIGNMENT_BYTES : -PEN_ALIGNMENT_BYTES));
    return true;
  }
  return false;
}

static bool is_smaller(struct broken_plan *p) {
  memory_of(p)->cache_bytes -= PEN_ALIGNMENT_BYTES;
  return true;
}

static bool is_elsewhere(struct broken_plan *p) {
  memory_of(p)->cache_offset -= PEN_ALIGNMENT_BYTES;
  return true;
}

static bool is_in_the_weights(struct broken_plan *p) {
  const uint64_t offset = memory_of(p)->persistent_end - PEN_ALIGNMENT_BYTES;
  memory_of(p)->cache_bytes += memory_of(p)->cache_offset - offset;
  memory_of(p)->cache_offset = offset;
  return true;
}

static bool is_shared_by_scratch(struct broken_plan *p) {
  for (uint32_t row = 0; row < p->tables->action_count; row++)
    if (p->action[row].kind == PEN_F)
      set_base(p, row, PEN_BASE_SCRATCH, memory_of(p)->cache_offset);
  return true;
}

static bool is_another_kind(struct broken_plan *p) {
  p->profile->kind = PEN_GENERATE;
  return true;
}

static bool has_more_slots(struct broken_plan *p) {
  p->profile->slots++;
  return true;
}

static bool has_too_many_slots(struct broken_plan *p) {
  p->profile->slots = PEN_PROMPTS_MAX + 1;
  return true;
}

static bool has_another_sequence(struct broken_plan *p) {
  p->profile->sequence++;
  return true;
}

static bool has_more_groups(struct broken_plan *p) {
  p->plan->generated_groups++;
  return true;
}

static bool has_too_many_groups(struct broken_plan *p) {
  p->plan->generated_groups = draw(p->seed, 2) ? PEN_GROUPS_MAX + 1 : 0;
  return true;
}

static const struct defect defects[] = {
    {"two layers share bytes", shares_bytes, {"share bytes of the cache"}},
    {"keys are values", is_both, {"share bytes of the cache"}},
    {"keys or values moved", moves, {"share bytes of the cache", "outside the cache"}},
    {"keys and values swapped", swaps_keys_and_values, {"have different caches"}},
    {"two layers swapped", swaps_layers, {"have different caches"}},
    {"other slots", divides_otherwise, {"have different caches", "texts of"}},
    {"not kept", is_scratch, {"which is outside the cache"}},
    {"an activation kept", keeps_an_activation, {"which is in the cache"}},
    {"a frame moved", moves_a_frame, {"outside the cache", "share bytes", "different caches"}},
    {"less memory", is_smaller, {"not at the end"}},
    {"elsewhere", is_elsewhere, {"not at the end"}},
    {"in the weights", is_in_the_weights, {"not at the end"}},
    {"an activation in its place", is_shared_by_scratch, {"outside the activation part"}},
    {"a profile without a cache", is_another_kind, {"has no cache"}},
    {"more slots", has_more_slots, {"texts of"}},
    {"too many slots", has_too_many_slots, {"a step has at most"}},
    {"more groups", has_more_groups, {"texts of"}},
    {"no groups, or too many", has_too_many_groups, {"groups of texts are in flight"}},
    {"another sequence", has_another_sequence, {"texts of", "tokens of"}},
};

static void wrong_caches_are_rejected(void **state) {
  (void)state;
  enum { ROUNDS = 24 };
  for (size_t d = 0; d < sizeof defects / sizeof *defects; d++) {
    int applied = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
      struct pen_plan *plan = make_plan(topology_of(1 + round / 2 % 2, round % 2 ? "bf16" : "f32",
                                                    1 + round % 5, round / 4 % 2 ? "cuda" : "cpu"));
      struct broken_plan p = {.plan = plan, .seed = &seed};
      struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
      assert_true(pen_verify(plan, &problem));
      assert_true(pick_profile(&p, -1));
      if (!some_attention(&p, NULL) || !defects[d].apply(&p)) continue;
      applied++;
      if (pen_verify(plan, &problem))
        fail_msg("%s: accepted in %s, rank %u", defects[d].name, p.profile->name, p.rank);
      bool expected = false;
      for (int r = 0; r < 10 && defects[d].reasons[r]; r++)
        expected = expected || strstr(problem.reason, defects[d].reasons[r]);
      if (!expected) fail_msg("%s: %s", defects[d].name, problem.reason);
      pen_free_all();
    }
    if (applied == 0) fail_msg("%s: no plan has a place for it", defects[d].name);
  }
}

/* ---- what the generator makes ---- */

static uint32_t cached_profiles(const struct pen_plan *plan) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < plan->profile_count; i++) count += plan->profiles[i].kind == PEN_CACHED;
  return count;
}

/* 2 x layers x prompts x groups x sequence x kv_heads x head_dim numbers on all ranks together; a
 * group for each rank if nothing is said. */
static void the_cache_has_the_size_of_its_prompts(void **state) {
  (void)state;
  for (uint32_t round = 0; round < 16; round++) {
    const uint32_t prompts = round % 4, groups = round % 8 < 4 ? 2 : 3;
    struct pen_topology *t = read_topology(
        pen_text("%sgenerate = { prompts = %u; %s};\n",
                 topology_text("llama", "1f1b", 2, 2, 4, round < 8 ? "" : "/* cuda */"), prompts,
                 groups == 2 ? "" : "microbatches = 3; "));
    const uint64_t wanted = 2u * (uint64_t)t->model_layers * prompts * groups *
                            (uint64_t)t->model_sequence * (uint64_t)t->model_kv_heads *
                            (uint64_t)t->model_head_dim * sizeof(float);
    struct pen_plan *plan = make_whole_of(t).plan;
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < plan->rank_count; r++) bytes += plan->memory[r].cache_bytes;
    assert_int_equal(bytes, wanted);
    assert_int_equal(cached_profiles(plan) > 0, prompts > 0);
    pen_free_all();
  }
}

/* So that another group's step may run meanwhile. */
static void no_step_of_generation_waits_for_all_ranks(void **state) {
  (void)state;
  struct pen_plan *plan = make_plan(topology_text("llama", "1f1b", 4, 1, 4, ""));
  for (uint32_t i = 0; i < plan->profile_count; i++) {
    const struct pen_profile *profile = &plan->profiles[i];
    const bool generates = pen_profile_kind_generates(profile->kind);
    uint32_t waits = 0;
    for (uint32_t n = 0; n < profile->ranks[0].action_count; n++)
      waits += profile->ranks[0].actions[n].kind == PEN_WAIT_NORM;
    assert_int_equal(waits, generates ? 0 : 1);
  }
  pen_free_all();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(wrong_caches_are_rejected),
      cmocka_unit_test(the_cache_has_the_size_of_its_prompts),
      cmocka_unit_test(no_step_of_generation_waits_for_all_ranks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
