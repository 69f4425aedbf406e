/* partition.c: layers to stages, stages to ranks: properties over many sizes and some known
 * results; balance by time against all partitions. */
#include <stdio.h>
#include <math.h>

#include "gen/model/model.h"
#include "gen/partition/balance.h"
#include "gen/partition/block_cost.h"
#include "gen/families/families.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/timing/timing.h"
#include "gen/topology/topology.h"
#include "gen/topology/schedule_table.h"
#include "tests/support/plan_fixture.h"

static const struct pen_partition *divide(int64_t ranks, int64_t stages_per_rank, int64_t layers,
                                          int64_t pre, int64_t post, enum pen_placement placement) {
  struct pen_topology topology = {.pipeline_ranks = ranks,
                                  .pipeline_stages_per_rank = stages_per_rank,
                                  .pipeline_microbatches = 3,
                                  .pipeline_placement = placement,
                                  .data_parallel_shard = PEN_SHARD_NONE,
                                  .model_family = PEN_FAMILY_mlp,
                                  .model_layers = layers,
                                  .partition_virtual_pre = pre,
                                  .partition_virtual_post = post};
  return partition_topology(&topology);
}

static int64_t count_of(const struct pen_partition *partition, uint32_t stage) {
  return (int64_t)partition->stages.span[stage].past_last_layer -
         partition->stages.span[stage].first_layer;
}

/* Spans are end to end, none is empty, and with virtual layers no stage has more than one above
 * another, the early ones first. */
static void check_even(const struct pen_partition *partition, int64_t layers, int64_t pre,
                       int64_t post) {
  uint32_t last = partition->stage_count - 1, next = 0;
  int64_t before = INT64_MAX, first = 0;
  for (uint32_t stage = 0; stage <= last; stage++) {
    assert_int_equal(partition->stages.span[stage].first_layer, next);
    next = partition->stages.span[stage].past_last_layer;
    assert_true(count_of(partition, stage) >= 1);
    int64_t share =
        count_of(partition, stage) + (stage == 0 ? pre : 0) + (stage == last ? post : 0);
    if (stage == 0) first = share;
    assert_true(share <= before && share >= first - 1);
    before = share;
  }
  assert_int_equal(next, layers);
}

static void layers_are_even(void **state) {
  (void)state;
  for (int64_t stages = 1; stages <= 12; stages++)
    for (int64_t layers = stages; layers <= 40; layers++)
      for (int64_t pre = 0; pre < 4; pre++)
        for (int64_t post = 0; post < 4; post++) {
          int64_t total = layers + pre + post, least = total / stages, extra = total % stages;
          if (stages > 1 && (least + (extra > 0) <= pre || least <= post))
            continue; /* an empty stage: refused */
          check_even(divide(stages, 1, layers, pre, post, PEN_PLACEMENT_LOOP), layers, pre, post);
        }
}

static void known_spans(void **state) {
  (void)state;
  const struct pen_partition *p = divide(4, 1, 10, 0, 0, PEN_PLACEMENT_LOOP); /* 3 3 2 2 */
  assert_int_equal(count_of(p, 0), 3);
  assert_int_equal(count_of(p, 1), 3);
  assert_int_equal(count_of(p, 2), 2);
  assert_int_equal(count_of(p, 3), 2);
  p = divide(4, 1, 10, 1, 2, PEN_PLACEMENT_LOOP); /* 13 = 4 3 3 3; 3 3 3 1 */
  assert_int_equal(count_of(p, 0), 3);
  assert_int_equal(count_of(p, 1), 3);
  assert_int_equal(count_of(p, 2), 3);
  assert_int_equal(count_of(p, 3), 1);
  p = divide(1, 1, 3, 2, 2, PEN_PLACEMENT_LOOP); /* both come off the only stage */
  assert_int_equal(count_of(p, 0), 3);
}

static void given_lists_are_used(void **state) {
  (void)state;
  int64_t list[] = {0, 5, 2, 0};
  struct pen_topology topology = {.pipeline_ranks = 2,
                                  .pipeline_stages_per_rank = 2,
                                  .pipeline_microbatches = 1,
                                  .pipeline_placement = PEN_PLACEMENT_V,
                                  .data_parallel_shard = PEN_SHARD_NONE,
                                  .model_family = PEN_FAMILY_mlp,
                                  .model_layers = 7,
                                  .partition_virtual_pre = 9,
                                  .partition_layers = {.count = 4, .value = list}};
  const struct pen_partition *partition = partition_topology(&topology);
  for (uint32_t stage = 0; stage < 4; stage++)
    assert_int_equal(count_of(partition, stage), list[stage]);
  assert_int_equal(partition->stages.span[3].past_last_layer, 7);
}

/* Each rank has stages_per_rank stages; a loop continues with the next rank, a V reverses at the
 * last rank. */
static void stages_are_placed(void **state) {
  (void)state;
  for (uint32_t ranks = 1; ranks <= 9; ranks++)
    for (uint32_t per_rank = 1; per_rank <= 5; per_rank++) {
      const struct pen_partition *loop =
          divide(ranks, per_rank, ranks * per_rank, 0, 0, PEN_PLACEMENT_LOOP);
      const struct pen_partition *v =
          divide(ranks, per_rank, ranks * per_rank, 0, 0, PEN_PLACEMENT_V);
      uint32_t held[9] = {0}, stages = ranks * per_rank;
      assert_int_equal(v->rank_of[0], 0);
      for (uint32_t stage = 0; stage < stages; stage++) {
        assert_int_equal(loop->rank_of[stage], stage % ranks);
        assert_true(v->rank_of[stage] < ranks);
        held[v->rank_of[stage]]++;
        if (stage == 0) continue;
        int64_t step = (int64_t)v->rank_of[stage] - v->rank_of[stage - 1];
        int64_t wanted = stage % ranks == 0 ? 0 : stage / ranks % 2 ? -1 : 1;
        assert_int_equal(step, wanted);
        if (stage < 2 * ranks && stage >= ranks)
          assert_int_equal(v->rank_of[stage], 2 * ranks - 1 - stage);
      }
      for (uint32_t rank = 0; rank < ranks; rank++) assert_int_equal(held[rank], per_rank);
    }
}

/* ---- blocks ---- */

/* Runs of blocks are end to end and none is empty, whatever the rule; layers count where they
 * begin. */
static void check_blocks(const struct pen_partition *p) {
  uint32_t next = 0, layer = 0;
  for (uint32_t stage = 0; stage < p->stage_count; stage++) {
    const struct pen_span *span = &p->stages.span[stage];
    assert_int_equal(span->first_block, next);
    assert_true(span->past_last_block > next);
    assert_int_equal(span->first_layer, layer);
    for (; next < span->past_last_block; next++) layer += p->stages.block[next].begins_layer;
    assert_int_equal(span->past_last_layer, layer);
  }
  assert_int_equal(next, p->stages.block_count);
}

static struct pen_topology *rotary(const char *family, unsigned layers, const char *settings) {
  return read_topology(
      pen_text("pipeline = { ranks = 3; microbatches = 4; schedule = \"1f1b\"; };\n"
               "model = { family = \"%s\"; layers = %u; hidden = 32; heads = 4; kv_heads = 2; "
               "ffn = 48; vocab = 512;"
               " sequence = 8; %s",
               family, layers, settings));
}

static struct pen_topology *llama(const char *settings) { return rotary("llama", 5, settings); }

static const char tail[] =
    "};\nbatch = { microbatch = 2; };\noptimizer = { learning_rate = 1e-3; steps = 10; };\n";

static const char chunked_tail[] =
    "};\nbatch = { microbatch = 12; };\noptimizer = { learning_rate = 1e-3; steps = 10; };\n";

static const char *begins(const struct pen_partition *p, uint32_t stage) {
  return p->stages.block[p->stages.span[stage].first_block].name;
}

static void blocks_are_named(void **state) {
  (void)state;
  const struct pen_partition *p = partition_topology(llama(
      pen_text("%spartition = { before = (\"model.layers.1.mlp\", \"model.layers.4\"); };", tail)));
  check_blocks(p);
  assert_int_equal(p->stages.block_count, 13);
  assert_string_equal(begins(p, 0), "model.embed_tokens");
  assert_string_equal(begins(p, 1), "model.layers.1.mlp");
  assert_string_equal(begins(p, 2), "model.layers.4.self_attn");
  assert_int_equal(p->stages.span[0].past_last_layer, 2);
  assert_int_equal(p->stages.span[1].past_last_layer, 4);
  p = partition_topology(
      llama(pen_text("%spartition = { before = (\"model.layers.0\", \"lm_head\"); };", tail)));
  check_blocks(p);
  assert_int_equal(p->stages.span[0].past_last_layer, 0);
  assert_string_equal(begins(p, 2), "lm_head");
}

/* With unit "block" the blocks within layers are even, and a virtual layer counts for as many as a
 * layer has. */
static void blocks_are_even(void **state) {
  (void)state;
  for (uint32_t ranks = 1; ranks <= 7; ranks++)
    for (uint32_t pre = 0; pre < 2; pre++) {
      struct pen_topology *t =
          llama(pen_text("%spartition = { unit = \"block\"; virtual_pre = %u; };", tail, pre));
      t->pipeline_ranks = ranks;
      if (ranks > 1 && (10 + 2 * pre + ranks - 1) / ranks <= 2 * pre)
        continue; /* nothing for stage 0: refused */
      const struct pen_partition *p = partition_topology(t);
      check_blocks(p);
      uint32_t total = 10 + 2 * pre;
      for (uint32_t stage = 0; stage < ranks; stage++) {
        uint32_t held = p->stages.span[stage].past_last_block - p->stages.span[stage].first_block;
        if (stage == 0) held += 2 * pre - 1; /* without the embedding */
        if (stage + 1 == ranks) held -= 2;   /* without norm and head */
        assert_int_equal(held, total / ranks + (stage < total % ranks));
      }
    }
}

/* ---- balance ---- */

/* A chain whose parts cost the sum of their items, with a factor for each stage. */
struct items {
  double item[12], factor[6];
};

static double items_cost(const void *context, uint32_t stage, uint32_t first, uint32_t past) {
  const struct items *items = context;
  double sum = 0;
  for (uint32_t i = first; i < past; i++) sum += items->item[i];
  return sum * items->factor[stage];
}

/* The best of all cuts from `stage` on, by greatest time, then by squares of what it is over
 * `greatest`. */
struct best {
  double greatest, squares;
};

static void try_all(const struct items *items, uint32_t stages, const uint32_t *place,
                    uint32_t count, uint32_t stage, uint32_t from, struct best so_far,
                    struct best *best) {
  if (stage == stages) {
    if (so_far.greatest < best->greatest ||
        (so_far.greatest == best->greatest && so_far.squares < best->squares))
      *best = so_far;
    return;
  }
  bool last = stage + 1 == stages;
  for (uint32_t to = last ? count : from + 1; to <= count - (stages - 1 - stage); to++) {
    double cost = items_cost(items, stage, place[from], place[to]);
    struct best next = {fmax(so_far.greatest, cost), so_far.squares + cost * cost};
    try_all(items, stages, place, count, stage + 1, to, next, best);
  }
}

static void balance_is_exact(void **state) {
  (void)state;
  uint64_t seed = 20261121;
  for (unsigned round = 0; round < 3000; round++) {
    struct items items;
    uint32_t stages = 1 + (uint32_t)draw(&seed, 6),
             count = stages + (uint32_t)draw(&seed, 8 - (stages > 4 ? 2 : 0)), first[6];
    uint32_t place[13], end = count < 12 ? count : 12;
    if (count > 12) continue;
    for (uint32_t i = 0; i < 12; i++)
      items.item[i] = round % 3 == 0 ? 1 : (double)draw(&seed, round % 3 == 1 ? 4 : 1000);
    if (round % 4 == 0) items.item[end - 1] = 5000; /* a head that outweighs all else */
    for (uint32_t s = 0; s < 6; s++)
      items.factor[s] = round % 5 == 0 ? 1 + (double)draw(&seed, 3) : 1;
    for (uint32_t i = 0; i <= end; i++) place[i] = i;
    struct best best = {INFINITY, INFINITY}, none = {0, 0};
    try_all(&items, stages, place, end, 0, 0, none, &best);
    pen_balance(stages, place, end, items_cost, &items, first);
    double greatest = 0, squares = 0;
    assert_int_equal(first[0], 0);
    for (uint32_t s = 0; s < stages; s++) {
      uint32_t past = s + 1 < stages ? first[s + 1] : end;
      assert_true(past > first[s]);
      double cost = items_cost(&items, s, first[s], past);
      greatest = fmax(greatest, cost);
      squares += cost * cost;
    }
    if (greatest != best.greatest || squares > best.squares * (1 + 1e-5) + 1e-9)
      fail_msg("round %u: greatest %g, squares %g; there is %g, %g", round, greatest, squares,
               best.greatest, best.squares);
  }
}

/* Of cuts that are equally good the one whose early stages hold more. */
static void ties_favor_earlier_stages(void **state) {
  (void)state;
  struct items items = {.factor = {1, 1, 1, 1, 1, 1}};
  uint32_t place[12], first[4], wanted[4] = {0, 3, 6, 8};
  for (uint32_t i = 0; i < 12; i++) items.item[i] = 1, place[i] = i;
  pen_balance(4, place, 10, items_cost, &items, first);
  assert_memory_equal(first, wanted, sizeof wanted);
}

/* What block_cost.c predicts of a run of blocks is what the built stage costs. */
static void check_costs(struct pen_topology *t, int recompute) {
  t->memory_recompute =
      (struct pen_chosen){.count = 3, .value = (int[]){recompute, recompute, recompute}};
  t->pipeline_ranks = 3;
  struct pen_partition *p = partition_topology(t);
  bool splits = pen_schedule_splits(pen_schedule_of(t->pipeline_schedule), t);
  struct pen_block_costs *costs = pen_block_costs(t, p->stages.family, splits);
  struct pen_span span[3];
  struct pen_stages part = p->stages;
  part.span = span;
  part.stage_count = 3;
  for (uint32_t first = 0; first < p->stages.block_count; first++)
    for (uint32_t past = first + 1; past <= p->stages.block_count; past++) {
      uint32_t stage = first == 0 ? 0 : past == p->stages.block_count ? 2 : 1;
      if (first == 0 && past == p->stages.block_count) part.stage_count = 1;
      span[stage] = (struct pen_span){.first_block = first, .past_last_block = past};
      struct pen_graph *graph = pen_stage_graph(t, &part, stage, t->trains);
      pen_stage_programs(graph);
      double built = 1e-9 * pen_program_flops(&graph->program[PEN_PROGRAM_F]),
             predicted = pen_span_cost(costs, stage, first, past);
      for (int program = splits ? PEN_PROGRAM_I : PEN_PROGRAM_B;
           program < (splits ? PEN_PROGRAM_B : PEN_PROGRAMS); program++)
        built += 1e-9 * pen_program_flops(&graph->program[program]);
      if (fabs(built - predicted) > 1e-12 * built)
        fail_msg("%s %s: blocks %u to %u: %.17g, predicted %.17g",
                 pen_enum_text(pen_enum_family_kind, (int)t->model_family),
                 pen_recompute_text(recompute), first, past, built, predicted);
      part.stage_count = 3;
    }
}

static const char *const frozen[] = {
    "", "frozen = (\"embed_tokens.weight\");",
    "frozen = (\"layers.0.input_layernorm.weight\", \"embed_tokens.weight\");",
    "frozen = (\"mlp.down_proj.weight\", \"q_proj.weight\", \"norm.weight\");"};

static void check_all_costs(int recompute) {
  for (size_t i = 0; i < sizeof frozen / sizeof *frozen; i++)
    check_costs(llama(pen_text("%s%s", frozen[i], tail)), recompute);
  check_costs(rotary("qwen2", 3, tail), recompute);
  check_costs(rotary("gemma3_text", 7, pen_text("window = 3; %s", tail)), recompute);
  struct pen_topology *mlp = read_topology(topology_text("mlp", "1f1b", 4, 1, 4, ""));
  check_costs(mlp, recompute);
  mlp->model_frozen = (struct pen_strings){
      .count = 2, .value = (const char *[]){"w1.weight", "layers.0.w2.weight"}};
  check_costs(mlp, recompute);
  for (int split = 0; split < 2;
       split++) { /* a head by chunks, whose logits are computed once in B, in I and in W */
    struct pen_topology *chunks = llama(pen_text("loss_rows = 32; %s", chunked_tail));
    chunks->pipeline_zero_bubble = split;
    check_costs(chunks, recompute);
    chunks->memory_recompute.count = 0;
    const struct pen_partition *p = partition_topology(chunks);
    struct pen_graph *const *graph = pen_graphs_of(chunks, &p->stages, true);
    const struct pen_stage_cost *cost = pen_costs(chunks, p, graph);
    for (uint32_t stage = 0; stage < 3; stage++) {
      double whole = 1e-9 * pen_program_flops(&graph[stage]->program[PEN_PROGRAM_B]);
      if (fabs(pen_backward_cost(&cost[stage]) - whole) > 1e-12 * whole)
        fail_msg("stage %u: B is not what its ops take", stage);
      if ((cost[stage].shared > 0) != (stage == 2))
        fail_msg("stage %u shares %g", stage, cost[stage].shared);
    }
  }
  check_costs(read_topology(topology_text("llama", "inference", 3, 1, 4, "")),
              recompute); /* F alone */
  check_costs(read_topology(topology_text("mlp", "inference", 3, 1, 4, "")), recompute);
}

/* Flops of attention are (2 head_dim + 10) w (2s - w) for each sequence and head, s the sequence
 * and w the window; one that is no shorter than the sequence is like none. */
static void a_window_saves_its_part_of_attention(void **state) {
  (void)state;
  double flops[3];
  static const char *const windows[] = {"window = 0;", "window = 8;", "window = 2;"};
  for (int i = 0; i < 3; i++) {
    struct pen_topology *t = rotary("mistral", 5, pen_text("%s %s", windows[i], tail));
    struct pen_graph *const *graph = pen_graphs_of(t, &partition_topology(t)->stages, true);
    flops[i] = pen_program_flops(&graph[1]->program[PEN_PROGRAM_F]);
  }
  const double heads = 2 * 4, head_dim = 8, layers = 2; /* of two sequences; of the stage */
  assert_true(flops[1] >= flops[0] && flops[1] <= flops[0]);
  const double saved = layers * heads * (2 * head_dim + 10) * (8 * 8 - 2 * (2 * 8 - 2));
  assert_true(fabs(flops[0] - flops[2] - saved) < 1e-6);
}

static void costs_are_predicted(void **state) {
  (void)state;
  check_all_costs(PEN_RECOMPUTE_NONE);
}

static void costs_of_recomputation_are_predicted(void **state) {
  (void)state;
  check_all_costs(PEN_RECOMPUTE_FULL);
  check_all_costs(PEN_RECOMPUTE_LAYER);
  check_all_costs(PEN_RECOMPUTE_ATTENTION);
}

/* The greatest stage time by the costs of the finished partition. */
static double slowest(const struct pen_topology *t, const struct pen_partition *p) {
  struct pen_stage_cost *cost = pen_costs(t, p, pen_graphs_of(t, &p->stages, true));
  double greatest = 0;
  for (uint32_t s = 0; s < p->stage_count; s++)
    greatest = fmax(greatest, cost[s].forward + cost[s].backward_input + cost[s].backward_weight);
  return greatest;
}

/* balance = "time" against each list of layers, and against each split between blocks. */
static void balance_by_time_is_optimal(void **state) {
  (void)state;
  struct pen_topology *t = llama(pen_text("%spartition = { balance = \"time\"; };", tail));
  double found = slowest(t, partition_topology(t)), least = INFINITY;
  t->partition_balance = PEN_BALANCE_COUNT;
  for (int64_t a = 0; a <= 5; a++)
    for (int64_t b = 1; a + b <= 5; b++) {
      int64_t list[] = {a, b, 5 - a - b};
      t->partition_layers = (struct pen_integers){3, list, PEN_UNSET};
      least = fmin(least, slowest(t, partition_topology(t)));
    }
  assert_true(fabs(found - least) <= 1e-12 * least);
  t = llama(pen_text("%spartition = { balance = \"time\"; unit = \"block\"; };", tail));
  const struct pen_partition *chosen = partition_topology(t);
  check_blocks(chosen);
  double by_blocks = slowest(t, chosen), least_by_blocks = INFINITY;
  t->partition_balance = PEN_BALANCE_COUNT;
  for (uint32_t a = 1; a < chosen->stages.block_count; a++)
    for (uint32_t b = a + 1; b < chosen->stages.block_count; b++) {
      const char *list[] = {chosen->stages.block[a].name, chosen->stages.block[b].name};
      t->partition_before = (struct pen_strings){.count = 2, .value = list};
      least_by_blocks = fmin(least_by_blocks, slowest(t, partition_topology(t)));
    }
  assert_true(fabs(by_blocks - least_by_blocks) <= 1e-12 * least_by_blocks);
  assert_true(by_blocks <
              found); /* the head weighs as much as a layer and a half: halves fit better */
}

static void assert_same_cut(const struct pen_partition *a, const struct pen_partition *b) {
  for (uint32_t s = 0; s < a->stage_count; s++)
    assert_int_equal(a->stages.span[s].first_block, b->stages.span[s].first_block);
}

/* What replicas share does not move a cut, even where sums over replicas are much of the work. */
static void sharing_moves_no_cut(void **state) {
  (void)state;
  struct pen_topology *t = read_topology(
      "pipeline = { ranks = 2; microbatches = 4; schedule = \"gpipe\"; };\n"
      "model = { family = \"llama\"; layers = 3; hidden = 16; heads = 2; ffn = 32; vocab = 64; "
      "sequence = 1; };\nbatch = { microbatch = 1; };\ndata_parallel = { replicas = 2; };\n"
      "optimizer = { learning_rate = 1e-3; steps = 10; };\n"
      "partition = { balance = \"time\"; unit = \"block\"; };\n");
  for (t->model_layers = 3; t->model_layers < 10; t->model_layers++) {
    t->data_parallel_reduce = PEN_REDUCE_STEP;
    t->data_parallel_shard = PEN_SHARD_NONE;
    t->data_parallel_unit = PEN_GATHER_STAGE;
    const struct pen_partition *by_step = partition_topology(t);
    t->data_parallel_reduce = PEN_REDUCE_MICROBATCH;
    assert_same_cut(partition_topology(t), by_step);
    t->data_parallel_shard = PEN_SHARD_WEIGHTS;
    t->data_parallel_unit = PEN_GATHER_LAYER;
    assert_same_cut(partition_topology(t), by_step);
  }
}

static int free_all(void **state) {
  (void)state;
  pen_free_all();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(layers_are_even),
                                     cmocka_unit_test(known_spans),
                                     cmocka_unit_test(given_lists_are_used),
                                     cmocka_unit_test(stages_are_placed),
                                     cmocka_unit_test(blocks_are_named),
                                     cmocka_unit_test(blocks_are_even),
                                     cmocka_unit_test(balance_is_exact),
                                     cmocka_unit_test(ties_favor_earlier_stages),
                                     cmocka_unit_test(costs_are_predicted),
                                     cmocka_unit_test(a_window_saves_its_part_of_attention),
                                     cmocka_unit_test(costs_of_recomputation_are_predicted),
                                     cmocka_unit_test(balance_by_time_is_optimal),
                                     cmocka_unit_test(sharing_moves_no_cut)};
  return cmocka_run_group_tests(tests, NULL, free_all);
}
