/* verify_muon.c: what the matrices of Muon need, and that the verifier rejects a plan with less
 * memory, with something else in it, or where a matrix is not one. */
#include "runtime/plan/shard.h"
#include "tests/support/broken.h"

/* The first reason that the verifier gives; "" if it accepts the plan. */
static const char *reason_of(const struct pen_plan *plan) {
  struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
  return pen_verify(plan, &problem) ? "" : pen_text("%s", problem.reason);
}

static void assert_rejects(const struct pen_plan *plan, const char *reason) {
  if (!strstr(reason_of(plan), reason)) fail_msg("\"%s\" lacks: %s", reason_of(plan), reason);
}

static struct pen_plan *muon_plan(const char *family, const char *optimizer) {
  return make_plan(pen_text(
      "pipeline = { ranks = 2; microbatches = 4; schedule = \"1f1b\"; };"
      "model = { family = \"%s\"; layers = 2; hidden = 64; heads = 4; ffn = 160; vocab = 257;"
      " sequence = 64; }; batch = { microbatch = 2; }; cluster = { device = \"cpu\"; };"
      "optimizer = { learning_rate = 1e-3; steps = 1; name = \"%s\"; };",
      family, optimizer));
}

static struct pen_weight *weight_of(const struct pen_plan *plan, const char *ending) {
  for (uint32_t i = 0; i < plan->weight_count; i++)
    if (pen_ends_in(plan->weights[i].name, ending, strlen(ending)))
      return WRITABLE(struct pen_weight, &plan->weights[i]);
  fail_msg("no weight ends in %s", ending);
  return NULL;
}

/* 64 x 160: the matrix twice, two squares, and the panels of a product in one thread. */
enum {
  LLAMA_BYTES =
      2 * 4 * 64 * 160 + 8 * 64 * 64 + 192 + 4 * 160 * 64 + 160 * 160 + 4 * 64 * 160 + 64 * 64 + 256
};

static void the_workspace_is_that_of_the_largest_matrix(void **state) {
  (void)state;
  struct pen_plan *plan = muon_plan("llama", "muon");
  struct pen_rank_memory *memory = WRITABLE(struct pen_rank_memory, &plan->memory[1]);
  assert_string_equal(reason_of(plan), "");
  assert_int_equal(memory->muon_bytes, pen_aligned(LLAMA_BYTES));
  memory->muon_bytes -= PEN_ALIGNMENT_BYTES;
  assert_rejects(plan, "the workspace of UPDATE has");
  memory->muon_bytes += PEN_ALIGNMENT_BYTES;
  memory->muon_offset -= PEN_ALIGNMENT_BYTES;
  assert_rejects(plan, "the workspace of UPDATE overlaps");
  memory->muon_offset = memory->persistent_end;
  assert_rejects(plan, "the workspace of UPDATE is outside the persistent part");
  pen_free_all();
}

static void only_matrices_of_layers_have_muon(void **state) {
  (void)state;
  struct pen_plan *plan = muon_plan("llama", "muon");
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    const struct pen_weight *weight = &plan->weights[i];
    const bool muon = strstr(weight->name, ".layers.") && !strstr(weight->name, "norm");
    assert_int_equal(weight->optimizer, muon ? PEN_OPTIMIZER_MUON : PEN_OPTIMIZER_ADAMW);
    assert_int_equal(weight->moment_count, muon ? 1 : 2);
  }
  weight_of(plan, "q_proj.weight")->moment_count = 2;
  assert_rejects(plan, "q_proj.weight has 2 moments, not 1");
  weight_of(plan, "q_proj.weight")->moment_count = 1;
  weight_of(plan, "layernorm.weight")->optimizer = PEN_OPTIMIZER_MUON;
  assert_rejects(plan, "layernorm.weight, which is not a whole matrix");
  pen_free_all();
}

static void parts_are_equal(void **state) {
  (void)state;
  struct pen_plan *plan = muon_plan("gpt2", "muon");
  struct pen_weight *joined = weight_of(plan, "c_attn.weight");
  assert_string_equal(reason_of(plan), "");
  assert_int_equal(joined->matrix_parts, 3);
  assert_int_equal(weight_of(plan, "c_fc.weight")->matrix_parts, 1);
  joined->matrix_parts = 5;
  assert_rejects(plan, "c_attn.weight has 192 columns, which are not 5 parts");
  joined->matrix_parts = 0;
  assert_rejects(plan, "which are not 0 parts");
  joined->matrix_parts = 3;
  weight_of(plan, "wte.weight")->matrix_parts = 3;
  assert_rejects(plan, "wte.weight has 3 parts, but muon does not update it");
  pen_free_all();
}

static struct pen_plan *sharded_plan(const char *settings) {
  return make_plan(pen_text(
      "pipeline = { ranks = 1; microbatches = 4; schedule = \"1f1b\"; };"
      "model = { family = \"llama\"; layers = 2; hidden = 64; heads = 4; ffn = 160; vocab = 257;"
      " sequence = 64; dtype = \"bf16\"; }; batch = { microbatch = 2; };"
      "cluster = { device = \"cpu\"; };"
      "optimizer = { learning_rate = 1e-3; steps = 1; name = \"muon\"; };"
      "data_parallel = { replicas = 2; %s };",
      settings));
}

/* Of 2 replicas each has some of the matrices; momentum of the same size has one place on both. */
static void owners_share_places(void **state) {
  (void)state;
  struct pen_plan *plan = sharded_plan("shard = \"optimizer\";");
  unsigned owned[2] = {0}, shared = 0;
  assert_string_equal(reason_of(plan), "");
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    const struct pen_weight *weight = &plan->weights[i];
    if (weight->optimizer != PEN_OPTIMIZER_MUON) continue;
    owned[weight->sole_owner - 1]++;
    assert_int_equal(pen_shard_of(plan, i, weight->sole_owner - 1).count, weight->count);
    assert_int_equal(pen_shard_of(plan, i, 2 - weight->sole_owner).count, 0);
    for (uint32_t k = 0; k < i; k++)
      shared += weight->exp_avg_offset == plan->weights[k].exp_avg_offset &&
                plan->weights[k].optimizer == PEN_OPTIMIZER_MUON;
  }
  assert_int_equal(owned[0] + owned[1], 14);
  assert_true(owned[0] > 0 && owned[1] > 0 && shared >= 5);
  struct pen_weight *k = weight_of(plan, "0.self_attn.k_proj.weight"),
                    *up = weight_of(plan, "0.mlp.up_proj.weight");
  const uint64_t offset = k->exp_avg_offset;
  const uint32_t owner = k->sole_owner;
  k->sole_owner = 3;
  assert_rejects(plan, "k_proj.weight has the sole owner 3 of 2");
  k->sole_owner = 0;
  assert_rejects(plan, "k_proj.weight, which is not a whole matrix");
  k->sole_owner = up->sole_owner;
  k->exp_avg_offset = up->exp_avg_offset;
  assert_rejects(plan, "overlaps");
  k->sole_owner = owner;
  k->exp_avg_offset = offset;
  weight_of(plan, "embed_tokens.weight")->sole_owner = 1;
  assert_rejects(plan, "embed_tokens.weight has the sole owner 1");
  pen_free_all();
}

/* So have gradients, copies and values where these are sharded, too; not those of one owner. */
static void all_shards_of_owners_share_places(void **state) {
  (void)state;
  struct pen_plan *plan = sharded_plan("shard = \"weights\"; reduce = \"microbatch\";");
  uint64_t *offset[3] = {0}, taken[3];
  unsigned shared[3] = {0};
  static const char *const reason[3] = {"is at the address", "copy", "value"};
  assert_string_equal(reason_of(plan), "");
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    struct pen_weight *w = WRITABLE(struct pen_weight, &plan->weights[i]);
    if (w->optimizer != PEN_OPTIMIZER_MUON) continue;
    for (uint32_t k = 0; k < i; k++) {
      const struct pen_weight *other = &plan->weights[k];
      shared[0] += w->gradient_offset == other->gradient_offset;
      shared[1] += w->bf16_offset == other->bf16_offset;
      shared[2] += w->value_offset == other->value_offset;
      if (!offset[0] && w->count == other->count && w->sole_owner == other->sole_owner) {
        offset[0] = &w->gradient_offset, taken[0] = other->gradient_offset;
        offset[1] = &w->bf16_offset, taken[1] = other->bf16_offset;
        offset[2] = &w->value_offset, taken[2] = other->value_offset;
      }
    }
  }
  assert_non_null(offset[0]);
  for (int i = 0; i < 3; i++) {
    const uint64_t own = *offset[i];
    assert_true(shared[i] >= 5);
    *offset[i] = taken[i];
    assert_rejects(plan, reason[i]);
    *offset[i] = own;
  }
  pen_free_all();
}

/* The workspace of splits is that of their matrix; each is a piece of it. */
static void splits_are_pieces(void **state) {
  (void)state;
  struct pen_plan *plan = sharded_plan("shard = \"optimizer\"; }; tensor_parallel = { splits = 2;");
  struct pen_weight *rows = weight_of(plan, "q_proj.weight[1]"),
                    *columns = weight_of(plan, "down_proj.weight[1]");
  const struct pen_rank_memory *memory = &plan->memory[0];
  assert_string_equal(reason_of(plan), "");
  assert_int_equal(memory->muon_bytes, pen_aligned(LLAMA_BYTES));
  assert_int_equal(rows->sole_owner, rows[-1].sole_owner);
  rows->sole_owner = 3 - rows->sole_owner;
  assert_rejects(plan, "q_proj.weight[1] is not a piece of the matrix");
  rows->sole_owner = 3 - rows->sole_owner;
  rows->weight_decay *= 2;
  assert_rejects(plan, "q_proj.weight[1] is not a piece of the matrix");
  rows->weight_decay /= 2;
  columns[0].matrix_parts = columns[-1].matrix_parts = 2;
  assert_rejects(plan, "down_proj.weight[0] is not a piece of the matrix");
  pen_free_all();
}

/* Tensor ranks in turn own a matrix, whose splits come to it and go back. */
static void exchanges_bring_each_matrix_to_one_owner(void **state) {
  (void)state;
  struct pen_plan *plan =
      sharded_plan("shard = \"optimizer\"; }; tensor_parallel = { ranks = 2; splits = 4;");
  struct pen_rank_program *tables = WRITABLE(struct pen_rank_program, &plan->profiles[0].ranks[0]);
  struct pen_collective *row =
      WRITABLE(struct pen_collective, &tables->collectives[tables->first_exchange]);
  struct pen_put *put = WRITABLE(struct pen_put, &tables->puts[row->first_put]);
  struct pen_rank_memory *memory = WRITABLE(struct pen_rank_memory, &plan->memory[0]);
  assert_string_equal(reason_of(plan), "");
  assert_true(tables->exchange_count >= 8 && tables->exchange_count % 2 == 0);
  assert_int_equal(memory->muon_bytes, pen_aligned(LLAMA_BYTES) + 4 * 64 * 160);
  assert_true(memory->muon_offset + memory->muon_bytes <= memory->shared_bytes);
  put->owner = 3;
  assert_rejects(plan, "moved: exchange");
  put->owner = put[2].owner; /* of the next matrix */
  assert_rejects(plan, "of an owner that has another matrix");
  put->owner = 1;
  put->to_member /= 2; /* on the second split */
  assert_rejects(plan, "whose column to_member is wrong");
  put->to_member *= 2;
  put->to += 4 * 64 * 160;
  assert_rejects(plan, "whose column to is wrong");
  put->to -= 4 * 64 * 160;
  put->weight = put[2].weight;
  assert_rejects(plan, "moved: exchange");
  put->weight = put[1].weight - 1;
  row->completes = false;
  assert_rejects(plan, "which does not wait or signal as it should");
  row->completes = true;
  tables->exchange_count -= 2;
  assert_rejects(plan, "to no owner");
  tables->exchange_count += 1;
  assert_rejects(plan, "of UPDATE, of");
  tables->exchange_count += 1;
  assert_string_equal(reason_of(plan), "");
  pen_free_all();
}

static void a_plan_without_muon_has_none(void **state) {
  (void)state;
  struct pen_plan *plan = muon_plan("gpt2", "adamw");
  struct pen_rank_memory *memory = WRITABLE(struct pen_rank_memory, &plan->memory[0]);
  assert_string_equal(reason_of(plan), "");
  assert_int_equal(memory->muon_bytes, 0);
  assert_int_equal(weight_of(plan, "c_attn.weight")->matrix_parts, 1);
  memory->muon_bytes = PEN_ALIGNMENT_BYTES;
  assert_rejects(plan, "the workspace of UPDATE has 64 bytes, not 0");
  pen_free_all();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_workspace_is_that_of_the_largest_matrix),
      cmocka_unit_test(only_matrices_of_layers_have_muon),
      cmocka_unit_test(parts_are_equal),
      cmocka_unit_test(owners_share_places),
      cmocka_unit_test(all_shards_of_owners_share_places),
      cmocka_unit_test(splits_are_pieces),
      cmocka_unit_test(exchanges_bring_each_matrix_to_one_owner),
      cmocka_unit_test(a_plan_without_muon_has_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
