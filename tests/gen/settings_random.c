/* settings_random.c: random settings: a topology is refused with a message, or its plan is accepted
 * by the verifier: random schedules, splits between and within layers, frozen weights,
 * recomputation. */
#include <sys/wait.h>
#include <unistd.h>

#include "gen/families/families.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/verify/verify.h"
#include "tests/support/plan_fixture.h"

enum { ROUNDS = 600, LAYERS_MAX = 6 };

static const struct {
  const char *name;
  unsigned stages;
} schedules[] = {
    {"gpipe", 1},       {"1f1b", 1},        {"1f1b", 2},          {"1f1b", 3},
    {"looped_bfs", 1},  {"looped_bfs", 2},  {"zero_bubble_v", 2}, {"inference", 1},
    {"inference", 2},   {"dual_pipe_v", 2}, {"zb_h1", 1},         {"zb_h2", 1},
    {"interleaved", 2}, {"v_half", 2},      {"v_min", 2},
};
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

/* Some names of a list, each with one chance in `odds`, as elements of a libconfig list. */
static const char *some_of(uint64_t *seed, const char *const *name, size_t count, uint64_t odds) {
  const char *text = "";
  for (size_t i = 0; i < count; i++)
    if (draw(seed, odds) == 0) text = pen_text("%s%s\"%s\"", text, *text ? ", " : "", name[i]);
  return text;
}

/* partition.before with `wanted` names, in order. */
static const char *some_cuts(uint64_t *seed, const struct pen_family *family, uint32_t layers,
                             uint32_t wanted) {
  uint32_t count;
  const struct pen_model_block *block = pen_family_blocks(family, NULL, layers, &count);
  const char *text = "";
  for (uint32_t b = 1; b < count && wanted > 0; b++) {
    if (draw(seed, count - b) >= wanted) continue;
    text = pen_text("%s%s\"%s\"", text, *text ? ", " : "", block[b].name);
    wanted--;
  }
  return pen_text("before = (%s);", text);
}

static const char *some_topology(uint64_t *seed) {
  static const char *const frozen[2][5] = {
      {"w1.weight", "w2.weight", "w3.weight", "layers.0.w1.weight", "layers.0.w3.weight"},
      {"embed_tokens.weight", "norm.weight", "q_proj.weight", "down_proj.weight",
       "lm_head.weight"}};
  size_t which = draw(seed, SCHEDULES);
  static const enum pen_family_kind rotary[] = {PEN_FAMILY_llama, PEN_FAMILY_qwen2};
  bool has_tokens = draw(seed, 3) == 0;
  const enum pen_family_kind kind = has_tokens ? rotary[draw(seed, 2)] : PEN_FAMILY_mlp;
  const char *family = pen_enum_text(pen_enum_family_kind, (int)kind);
  unsigned ranks = 1 + (unsigned)draw(seed, 4), stages = schedules[which].stages,
           total = ranks * stages;
  uint32_t layers = 1 + (uint32_t)draw(seed, LAYERS_MAX);
  const char *partition = "";
  switch (draw(seed, 5)) {
    case 0: partition = "balance = \"time\";"; break;
    case 1: partition = "balance = \"time\"; unit = \"block\";"; break;
    case 2: partition = "unit = \"block\";"; break;
    case 3: partition = some_cuts(seed, pen_family_find(kind), layers, total - 1); break;
    default: break;
  }
  const char *recompute = "";
  for (unsigned s = 0; s < total; s++)
    recompute = pen_text("%s%s\"%s\"", recompute, s ? ", " : "",
                         pen_recompute_text(draw(seed, PEN_RECOMPUTE_KINDS)));
  return pen_text(
      "pipeline = { ranks = %u; stages_per_rank = %u; microbatches = %u; schedule = \"%s\"; "
      "zero_bubble = %s; };\n"
      "model = { family = \"%s\"; layers = %u; hidden = 16; heads = 2; kv_heads = 1; ffn = 24; "
      "vocab = 32; sequence = 4;"
      " dtype = \"%s\"; frozen = (%s); };\nbatch = { microbatch = %u; };\npartition = { %s "
      "};\nmemory = { recompute = (%s); };\n"
      "optimizer = { learning_rate = 1e-3; steps = 10; clip_norm = %u; };\n",
      ranks, stages, 1 + (unsigned)draw(seed, 8), schedules[which].name,
      draw(seed, 3) ? "false" : "true", family, layers, draw(seed, 3) ? "f32" : "bf16",
      draw(seed, 3) ? "" : some_of(seed, frozen[has_tokens], 5, 2), 1 + (unsigned)draw(seed, 2),
      partition, recompute, (unsigned)draw(seed, 2));
}

/* The result for a topology, in a child: 0 accepted, 1 wrong, 78 refused. `said` receives the
 * message, or what is wrong. */
static int try_topology(const char *text, char said[500]) {
  int ends[2], status;
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    struct pen_problem problem;
    dup2(ends[1], 2);
    bool proved = pen_verify(make_plan(text), &problem);
    if (!proved) dprintf(2, "%s", problem.reason);
    _exit(!proved);
  }
  close(ends[1]);
  ssize_t bytes = 0, more;
  while ((more = read(ends[0], said + bytes, (size_t)(499 - bytes))) > 0) bytes += more;
  said[bytes] = 0;
  close(ends[0]);
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void settings_are_refused_or_verified(void **state) {
  (void)state;
  uint64_t seed = 1123581321;
  unsigned proved = 0, refused = 0;
  for (unsigned round = 0; round < ROUNDS; round++) {
    uint64_t here = seed;
    const char *text = some_topology(&seed);
    char said[500];
    int status = try_topology(text, said);
    if (status != 0 && (status != PEN_EXIT_TOPOLOGY || *said == 0)) {
      print_message("# seed %lu: status %d, \"%s\"\n%s", (unsigned long)here, status, said, text);
      fail();
    }
    proved += status == 0;
    refused += status != 0;
  }
  print_message("# proved %u, refused %u\n", proved, refused);
  assert_true(proved > ROUNDS / 2 && refused > 10);
}

static int free_all(void **state) {
  (void)state;
  pen_free_all();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(settings_are_refused_or_verified)};
  return cmocka_run_group_tests(tests, NULL, free_all);
}
