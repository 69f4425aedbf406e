/* layout.c: the ratio of placed to live bytes over a grid of models; the packer alone, with random
 * rectangles. `tests/gen/layout wide [NAME]` uses a larger grid, of the models whose name starts
 * with NAME, and prints each case (make bench-layout). */
#include <stdio.h>
#include <glob.h>

#include "gen/search/budget_bytes.h"
#include "gen/model/model.h"
#include "gen/layout/pack.h"
#include "gen/views/live_ranges.h"
#include "gen/base/arena.h"
#include "gen/verify/verify.h"
#include "runtime/plan/plan.h"
#include "tests/support/plan_fixture.h"
#include "gen/partition/training.h"

/* ---- the grid ---- */

#define SHARED "data_parallel = { replicas = 2; shard = \"weights\"; reshard = \"use\"; };\n"

struct layout_case {
  const char *name, *family, *more,
      *beside; /* more: settings of the model; beside: other groups, or null */
  unsigned layers_a_stage, hidden, heads, kv_heads, ffn, vocab, sequence, microbatch;
};

static const struct layout_case shapes[] = {
    {"mlp", "mlp", "", NULL, 1, 64, 1, 1, 1, 64, 16, 2},
    {"mlp, 3 layers a stage", "mlp", "", NULL, 3, 32, 1, 1, 1, 64, 64, 1},
    {"llama", "llama", "", NULL, 1, 64, 4, 2, 176, 256, 64, 2},
    {"llama, 2 layers a stage", "llama", "", NULL, 2, 128, 8, 4, 352, 1024, 128, 1},
    {"llama, vocabulary 8192", "llama", "", NULL, 1, 128, 4, 4, 512, 8192, 64, 2},
    {"llama, long", "llama", "", NULL, 3, 64, 4, 1, 176, 512, 512, 1},
    {"llama, tiny", "llama", "", NULL, 1, 16, 2, 2, 64, 64, 16, 1},
    {"llama, bf16, shared", "llama", "dtype = \"bf16\";", SHARED, 2, 128, 8, 4, 352, 1024, 128, 1},
    {"qwen2", "qwen2", "", NULL, 2, 128, 8, 2, 352, 1024, 128, 1},
    {"gemma3_text", "gemma3_text", "window = 40;", NULL, 2, 128, 8, 2, 352, 1024, 128, 1},
    {"gpt2", "gpt2", "", NULL, 2, 512, 8, 8, 2048, 50257, 512, 4},
    {"gpt2, bf16, shared", "gpt2", "dtype = \"bf16\";", SHARED, 1, 512, 8, 8, 2048, 50257, 512, 2},
    {"mlp, tiny", "mlp", "", NULL, 1, 8, 1, 1, 1, 64, 4, 1},
};

/* Head and embedding are one tensor: its gradient is the largest message by far, where the two are
 * on different ranks. */
static const struct layout_case tied_shapes[] = {
    {"gpt2, tied", "gpt2", "tie_embeddings = true;", NULL, 2, 512, 8, 8, 2048, 50257, 512, 1},
    {"llama, tied", "llama", "tie_embeddings = true;", NULL, 1, 128, 4, 2, 352, 4096, 64, 4},
};

struct case_of_schedule {
  const char *schedule, *more;
  unsigned stages_per_rank;
};

static const struct case_of_schedule schedules[] = {
    {"gpipe", "", 1},
    {"1f1b", "", 1},
    {"1f1b", "", 2},
    {"1f1b", "zero_bubble = true;", 1},
    {"1f1b", "warmup = 2;", 1},
    {"looped_bfs", "", 2},
    {"zero_bubble_v", "", 2},
    {"dual_pipe_v", "", 2},
    {"zb_h1", "", 1},
    {"zb_h2", "", 1},
    {"v_half", "", 2},
    {"v_min", "", 2},
    {"inference", "", 1},
    {"inference", "", 2},
    {"1f1b", "recompute = \"full\";", 1},
    {"zero_bubble_v", "recompute = \"full\";", 2},
    {"dual_pipe_v", "recompute = \"full\";", 2},
    {"1f1b", "recompute = \"layer\";", 1},
    {"zero_bubble_v", "recompute = \"attention\";", 2},
};

/* Those whose first and last stage are on different ranks. */
static const struct case_of_schedule tied_schedules[] = {
    {"gpipe", "", 1},      {"1f1b", "", 1},  {"1f1b", "", 2},
    {"looped_bfs", "", 2}, {"zb_h1", "", 1}, {"zb_h2", "", 1},
};

/* How many layers more than stages there are: stages then differ. They are cut by count, so that
 * they differ by no more. */
static const unsigned uneven[] = {0, 1};

static bool recomputes(const struct case_of_schedule *c) {
  return strncmp(c->more, "recompute", strlen("recompute")) == 0;
}

static const char *text_of(const struct layout_case *shape, const struct case_of_schedule *c,
                           unsigned ranks, unsigned microbatches, unsigned more_layers) {
  return pen_text(
      "pipeline = { ranks = %u; stages_per_rank = %u; microbatches = %u; schedule = \"%s\"; %s "
      "};\n%s"
      "model = { family = \"%s\"; layers = %u; hidden = %u; heads = %u; kv_heads = %u; ffn = %u; "
      "vocab = %u; sequence = %u; %s };\n"
      "batch = { microbatch = %u; };\noptimizer = { learning_rate = 1e-3; steps = 10; };\n"
      "partition = { balance = \"count\"; };\n%s",
      ranks, c->stages_per_rank, microbatches, c->schedule, recomputes(c) ? "" : c->more,
      recomputes(c) ? pen_text("memory = { %s };\n", c->more) : "", shape->family,
      shape->layers_a_stage * ranks * c->stages_per_rank + more_layers, shape->hidden, shape->heads,
      shape->kv_heads, shape->ffn, shape->vocab, shape->sequence, shape->more, shape->microbatch,
      shape->beside ? shape->beside : "");
}

static bool keeps_little(const struct case_of_schedule *c) {
  return strcmp(c->schedule, "inference") == 0 || recomputes(c);
}

static double ratio_of(const struct pen_plan *plan, uint32_t rank) {
  return (double)plan->memory[rank].arena_bytes / (double)plan->memory[rank].live_bytes;
}

/* The worst ratio over the ranks of a case's plan. */
static double worst_ratio(const struct pen_plan *plan, uint32_t *worst) {
  double most = 0;
  for (uint32_t rank = 0; rank < plan->rank_count; rank++) {
    double ratio = ratio_of(plan, rank);
    if (ratio <= most) continue;
    most = ratio;
    *worst = rank;
  }
  return most;
}

/* The most bytes that the blocks of one row have in any profile on a rank, with the slots, what
 * persists, and in generation the cache. */
static uint64_t most_in_a_row(const struct pen_plan *plan, uint32_t rank) {
  uint64_t most = 0;
  for (uint32_t p = 0; p < plan->profile_count; p++) {
    uint32_t rows = plan->profiles[p].ranks[rank].action_count;
    struct pen_live_buffers lives = pen_live_buffers_of(plan, &plan->profiles[p], rank);
    uint64_t *in_use = pen_new(rows + 1u, sizeof *in_use);
    const struct pen_action *action = plan->profiles[p].ranks[rank].actions;
    for (size_t i = 0; i < lives.count; i++) {
      uint32_t first = lives.range[i].first, last = lives.range[i].last;
      if (first > 0 && action[first - 1].overlaps)
        first--; /* of a pair, both are at work at once */
      if (action[last].overlaps) last++;
      for (uint32_t row = first; row <= last; row++)
        if (lives.range[i].offset >= plan->memory[rank].persistent_end)
          in_use[row] += pen_aligned(lives.range[i].bytes);
    }
    const bool generates = pen_profile_kind_generates(plan->profiles[p].kind);
    const uint64_t cache = generates ? plan->memory[rank].cache_bytes : 0;
    for (uint32_t row = 0; row < rows; row++)
      if (in_use[row] + cache > most) most = in_use[row] + cache;
  }
  return most + plan->memory[rank].persistent_end;
}

/* The most that ops of the rank have for their library at once, in any profile: one op, or two of a
 * pair. */
static uint64_t most_workspace(const struct pen_plan *plan, uint32_t rank) {
  uint64_t most = 0, at_once = 1;
  for (uint32_t p = 0; p < plan->profile_count; p++) {
    const struct pen_rank_program *tables = &plan->profiles[p].ranks[rank];
    for (uint32_t i = 0; i < tables->op_count; i++)
      if (tables->ops[i].workspace != PEN_NONE &&
          tables->tensors[tables->ops[i].workspace].bytes > most)
        most = tables->tensors[tables->ops[i].workspace].bytes;
    for (uint32_t row = 0; row < tables->action_count; row++)
      if (tables->actions[row].overlaps) at_once = 2;
  }
  return at_once * pen_aligned(most);
}

/* Ops that need nothing for their library. */
static void drop_workspaces(struct pen_graph *graph) {
  for (int p = 0; p < PEN_PROGRAMS; p++)
    for (size_t i = 0; i < graph->program[p].count; i++)
      if (graph->program[p].op[i].workspace != PEN_NONE)
        graph->value[graph->program[p].op[i].workspace].bytes = 1;
}

/* Why a rank is above 1.03; null: it may not be. A block has its bytes for whole rows, though not
 * all its values are there at the op with most: an output not yet, an input no more; and a slot
 * waits for its message. That weighs where little is kept besides; what the rows have is packed as
 * closely there as anywhere. And what one op has for its library is in one split, whatever small
 * blocks have free at that op: that weighs where the model is tiny and few microbatches are kept.
 * That it is so shows in the same plan of ops that need nothing, `light`: what it loses on that
 * rank is within the allowance, and so is what the plan itself loses beside its largest workspace.
 */
static const char *cause_of(const struct case_of_schedule *c, const struct pen_plan *plan,
                            const struct pen_plan *light, uint32_t rank) {
  if (keeps_little(c) &&
      (double)plan->memory[rank].arena_bytes <= 1.03 * (double)most_in_a_row(plan, rank))
    return "blocks last whole rows, and slots wait";
  const struct pen_rank_memory *other = &light->memory[rank], *own = &plan->memory[rank];
  if ((double)(other->arena_bytes - other->live_bytes) <= 0.03 * (double)own->live_bytes &&
      (double)(own->arena_bytes - most_workspace(plan, rank)) <= 1.03 * (double)own->live_bytes)
    return "one op's workspace is next to blocks that are partly free";
  return NULL;
}

struct tally {
  unsigned cases, above_1, above_3; /* above_3: ranks that no cause is known of */
  double worst, worst_kept, sum;    /* worst_kept: where backward keeps what F makes */
  const char *worst_name;
};

static void try_case(struct tally *tally, const struct layout_case *shape,
                     const struct case_of_schedule *c, unsigned ranks, unsigned microbatches,
                     unsigned more_layers, bool print) {
  char name[160];
  snprintf(name, sizeof name, "%-26s %-14s %-20s %2u x %u x %-3u %s", shape->name, c->schedule,
           c->more, ranks, c->stages_per_rank, microbatches, more_layers ? "uneven" : "");
  const char *text = text_of(shape, c, ranks, microbatches, more_layers);
  struct pen_plan *plan = make_plan(text);
  struct pen_problem problem;
  if (!pen_verify(plan, &problem))
    fail_msg("%s: rank %u, row %u: %s", name, problem.rank, problem.action, problem.reason);
  uint32_t rank = 0;
  double ratio = worst_ratio(plan, &rank);
  tally->cases++;
  tally->above_1 += ratio > 1.01;
  tally->sum += ratio;
  if (ratio > tally->worst) {
    tally->worst = ratio;
    tally->worst_name = strdup(name);
  }
  const struct pen_plan *light =
      ratio > 1.03 ? make_whole_with(read_topology(text), drop_workspaces).plan : NULL;
  for (uint32_t r = 0; r < plan->rank_count; r++) {
    const char *cause = ratio_of(plan, r) > 1.03 ? cause_of(c, plan, light, r) : "";
    tally->above_3 += !cause;
    if ((print && r == rank) || !cause || *cause)
      print_message("# %.4f rank %u  %s  %llu placed, %llu live%s%s\n", ratio_of(plan, r), r, name,
                    (unsigned long long)plan->memory[r].arena_bytes,
                    (unsigned long long)plan->memory[r].live_bytes, cause && !*cause ? "" : ": ",
                    cause ? cause : "no cause known");
  }
  tally->worst_kept = ratio > tally->worst_kept && !keeps_little(c) ? ratio : tally->worst_kept;
  pen_free_all();
}

/* Microbatches that a schedule takes: those of rounds of ranks, and twice the ranks for the V
 * schedules that want no fewer. */
static unsigned microbatches_of(const struct case_of_schedule *c, unsigned ranks, unsigned times) {
  bool rounds = c->stages_per_rank > 1;
  unsigned count = ranks * times;
  return rounds && times == 1 ? 2 * ranks : count;
}

static void report_tally(const struct tally *tally) {
  print_message(
      "# %u cases: worst %.4f (%s), of those that keep what F makes %.4f, mean %.4f, above 1.01: "
      "%u, ranks above 1.03 and not named: %u\n",
      tally->cases, tally->worst, tally->worst_name, tally->worst_kept, tally->sum / tally->cases,
      tally->above_1, tally->above_3);
}

/* Of the shapes whose name begins so. */
static struct tally walk_grid(bool wide, const char *only) {
  static const unsigned ranks[] = {1, 2, 3, 4, 8};
  struct tally tally = {0};
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    for (size_t c = 0; c < sizeof schedules / sizeof *schedules; c++)
      for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++)
        for (size_t u = 0; u < 2; u++)
          for (unsigned times = wide ? 1 : 2; times <= (wide ? 4u : 2u); times++) {
            if (strncmp(shapes[s].name, only, strlen(only)) != 0) continue;
            if (!wide && (s + c + r + u) % 4 != 0)
              continue; /* each value of each axis with a quarter of the others */
            try_case(&tally, &shapes[s], &schedules[c], ranks[r],
                     microbatches_of(&schedules[c], ranks[r], times), uneven[u], wide);
          }
  report_tally(&tally);
  return tally;
}

static void test_grid(void **state) {
  (void)state;
  assert_int_equal(walk_grid(false, "").above_3, 0);
}

/* The gradient of a tied head is as large as the embedding: its slot serves the saved blocks while
 * it has not been sent. */
static void test_tied(void **state) {
  (void)state;
  struct tally tally = {0};
  for (size_t s = 0; s < sizeof tied_shapes / sizeof *tied_shapes; s++)
    for (size_t c = 0; c < sizeof tied_schedules / sizeof *tied_schedules; c++)
      for (unsigned ranks = 2; ranks <= 4; ranks += 2)
        try_case(&tally, &tied_shapes[s], &tied_schedules[c], ranks,
                 microbatches_of(&tied_schedules[c], ranks, 2), 0, false);
  report_tally(&tally);
  assert_int_equal(tally.above_3, 0);
}

/* What the search takes for a rank's bytes covers what lives there, also where both of a pair have
 * their weights together at once. */
static void test_budget(void **state) {
  (void)state;
  const char *text =
      text_of(&(struct layout_case){"", "llama", "", SHARED "memory = { limit_mib = 4096; };\n", 1,
                                    256, 4, 4, 1024, 64, 16, 1},
              &(struct case_of_schedule){"dual_pipe_v", "", 2}, 2, 8, 0);
  struct whole w = make_whole(text);
  struct pen_budget *budget =
      pen_budget_of(w.topology, w.partition, w.training,
                    pen_graphs_of(w.topology, &w.partition->stages, true), NULL);
  for (uint32_t rank = 0; rank < 2; rank++) {
    const struct pen_rank_memory *memory = &w.plan->memory[rank];
    double live = (double)(memory->live_bytes - (memory->persistent_end - memory->receive_bytes)),
           limit = budget->limit[rank];
    budget->limit[rank] = live;
    assert_true(pen_budget_holds(budget, w.order));
    budget->limit[rank] = 0.97 * live;
    assert_false(pen_budget_holds(budget, w.order));
    budget->limit[rank] = limit;
  }
  pen_free_all();
}

/* ---- the topologies that are kept ---- */

static void test_topologies(void **state) {
  (void)state;
  const char *folder = getenv("top_srcdir");
  glob_t found;
  assert_int_equal(glob(pen_text("%s/topologies/*.cfg", folder ? folder : "."), 0, NULL, &found),
                   0);
  for (size_t i = 0; i < found.gl_pathc; i++) {
    if (strstr(found.gl_pathv[i], "_plan.cfg")) continue; /* penstock-plan completes it */
    struct pen_topology *topology = pen_topology_read(found.gl_pathv[i], NULL, 0);
    uint32_t rank = 0;
    double ratio = worst_ratio(make_whole_of(topology).plan, &rank);
    print_message("# %.4f rank %u  %s\n", ratio, rank, topology->name);
    /* Slots that the topology asks for are not the packer's loss. */
    if (ratio >= (topology->memory_extra_receive_buffers > 0 ? 1.02 : 1.01))
      fail_msg("%s: %.4f on rank %u", topology->name, ratio, rank);
    pen_free_all();
  }
  globfree(&found);
}

/* ---- the packer alone ---- */

static void test_packer(void **state) {
  (void)state;
  uint64_t seed = 20260101;
  for (unsigned round = 0; round < 300; round++) {
    size_t count = 1 + draw(&seed, 120), fixed = draw(&seed, 4);
    uint32_t rows = 1 + (uint32_t)draw(&seed, 60);
    uint64_t wall = fixed * 256, most = 0;
    struct pen_rectangle *r = pen_new(count + fixed, sizeof *r);
    for (size_t i = 0; i < fixed + count; i++) {
      uint32_t first = (uint32_t)draw(&seed, rows), length = (uint32_t)draw(&seed, rows - first);
      r[i] = (struct pen_rectangle){64 * (1 + draw(&seed, i < fixed ? 4 : 40)), first,
                                    first + length, i < fixed ? i * 256 : 0};
    }
    uint64_t bytes = pen_pack(r, fixed, fixed + count, wall, UINT64_MAX, 0, 20000);
    for (size_t i = fixed; i < fixed + count; i++) {
      if (r[i].offset + r[i].bytes > most) most = r[i].offset + r[i].bytes;
      assert_true(r[i].offset >= wall || r[i].offset + r[i].bytes <= wall);
      for (size_t k = 0; k < i; k++) {
        bool together = r[i].first <= r[k].last && r[k].first <= r[i].last;
        assert_true(!together || r[i].offset >= r[k].offset + r[k].bytes ||
                    r[k].offset >= r[i].offset + r[i].bytes);
      }
    }
    assert_true(bytes >= most);
    pen_free_all();
  }
}

/* A rectangle larger than the wall lies above it, however much room there is below, so there is
 * nothing to search for; and with two the search, which finds nothing better, ends. */
static void test_wall(void **state) {
  (void)state;
  enum { WALL = 1024, FIXED = 256, LARGE = 4096, ROWS = 10 };
  for (size_t large = 1; large <= 2; large++) {
    struct pen_rectangle r[] = {{FIXED, 0, 1, 0}, {LARGE, 0, ROWS - 1, 0}, {LARGE, 0, ROWS - 1, 0}};
    assert_int_equal(pen_pack(r, 1, 1 + large, WALL, UINT64_MAX, 0, 200000), WALL + large * LARGE);
    for (size_t i = 1; i <= large; i++) assert_true(r[i].offset >= WALL);
  }
}

/* Equal sizes need no more than are alive at once: interval colouring is exact. */
static void test_colouring(void **state) {
  (void)state;
  uint64_t seed = 7;
  for (unsigned round = 0; round < 50; round++) {
    enum { COUNT = 4000, ROWS = 900 };
    struct pen_rectangle *r = pen_new(COUNT, sizeof *r);
    unsigned alive[ROWS] = {0}, most = 0;
    for (size_t i = 0; i < COUNT; i++) {
      uint32_t first = (uint32_t)draw(&seed, ROWS),
               length = (uint32_t)draw(&seed, ROWS - first < 40 ? ROWS - first : 40);
      r[i] = (struct pen_rectangle){640, first, first + length, 0};
      for (uint32_t row = first; row <= first + length; row++)
        if (++alive[row] > most) most = alive[row];
    }
    assert_int_equal(pen_pack(r, 0, COUNT, 0, UINT64_MAX, 0, 0), most * 640);
    assert_true(pen_pack(r, 0, COUNT, 0, most * 640 - 1, 0, 0) == UINT64_MAX);
    pen_free_all();
  }
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "wide") == 0)
    return walk_grid(true, argc > 2 ? argv[2] : "").above_3 != 0;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_packer),    cmocka_unit_test(test_wall),
      cmocka_unit_test(test_colouring), cmocka_unit_test(test_grid),
      cmocka_unit_test(test_tied),      cmocka_unit_test(test_budget),
      cmocka_unit_test(test_topologies)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
