/* actions_random.c: random changes to written orders, through --actions and all later passes: the
 * text of
 * --print=actions of random topologies is mutated, read back, checked, laid out, verified and
 * executed by a machine (symbolic_machine.h). An accepted order must train what its text computes
 * in all three models of communication (symbolic.h), which is what the topology trains; a refused
 * order must not, and has a message.
 */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gen/model/model.h"
#include "gen/schedule/action_text.h"
#include "gen/emit/emit.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/schedule.h"
#include "gen/lower/lower.h"
#include "gen/verify/verify.h"
#include "runtime/plan/plan.h"
#include "tests/support/symbolic_machine.h"
#include "tests/support/symbolic.h"

enum { TOPOLOGIES = 150, MUTANTS = 12, RUNS = 3, WRONG_RUN = 1 };

/* ---- words ---- */

static struct words words_of(const struct whole *w) {
  uint32_t ranks = w->partition->rank_count;
  struct words words = {w->partition, pen_new(ranks, sizeof *words.word),
                        pen_new(ranks, sizeof *words.count)};
  for (uint32_t rank = 0; rank < ranks; rank++) {
    const struct pen_rank_program *list = &w->plan->profiles[0].ranks[rank];
    words.word[rank] = pen_new(list->action_count + 8, sizeof **words.word); /* some may be added */
    for (uint32_t i = 0; i < list->action_count; i++) {
      const struct pen_action *a = &list->actions[i];
      if (a->kind <= PEN_RECV_B)
        words.word[rank][words.count[rank]++] =
            (struct word){a->kind, a->stage, a->microbatch, a->overlaps};
    }
  }
  return words;
}

static struct words copy_of(const struct words *words) {
  uint32_t ranks = words->partition->rank_count;
  struct words copy = {words->partition, pen_new(ranks, sizeof *copy.word),
                       pen_new(ranks, sizeof *copy.count)};
  for (uint32_t rank = 0; rank < ranks; rank++) {
    copy.count[rank] = words->count[rank];
    copy.word[rank] = pen_new(words->count[rank] + 8, sizeof **copy.word);
    memcpy(copy.word[rank], words->word[rank], words->count[rank] * sizeof **copy.word);
  }
  return copy;
}

static void write_words(const struct words *words, FILE *file) {
  char text[32];
  for (uint32_t rank = 0; rank < words->partition->rank_count; rank++) {
    fprintf(file, "%u:", rank);
    for (uint32_t i = 0; i < words->count[rank]; i++) {
      const struct word *w = &words->word[rank][i];
      fprintf(file, "%c%s", i > 0 && w[-1].overlaps ? '|' : ' ',
              pen_action_format(text, w->kind, w->stage, w->microbatch));
    }
    fputc('\n', file);
  }
}

/* ---- mutations ---- */

static uint32_t some_rank(const struct words *words, uint64_t *seed) {
  uint32_t rank = (uint32_t)draw(seed, words->partition->rank_count);
  return words->count[rank] ? rank : PEN_NONE;
}

static void put_word(struct words *words, uint32_t rank, uint32_t at, struct word word) {
  memmove(words->word[rank] + at + 1, words->word[rank] + at,
          (words->count[rank]++ - at) * sizeof word);
  words->word[rank][at] = word;
}

static struct word take_word(struct words *words, uint32_t rank, uint32_t at) {
  struct word word = words->word[rank][at];
  memmove(words->word[rank] + at, words->word[rank] + at + 1,
          (--words->count[rank] - at) * sizeof word);
  return word;
}

static void swap_next(struct words *words, uint32_t rank, uint32_t at, uint64_t *seed) {
  (void)seed;
  if (at + 1 < words->count[rank]) put_word(words, rank, at + 1, take_word(words, rank, at));
}

static void swap_any(struct words *words, uint32_t rank, uint32_t at, uint64_t *seed) {
  uint32_t other = (uint32_t)draw(seed, words->count[rank]);
  struct word word = words->word[rank][at];
  words->word[rank][at] = words->word[rank][other];
  words->word[rank][other] = word;
}

static void move_near(struct words *words, uint32_t rank, uint32_t at, uint64_t *seed) {
  uint32_t to = at + (uint32_t)draw(seed, 6);
  if (to < words->count[rank]) put_word(words, rank, to, take_word(words, rank, at));
}

static void move_any(struct words *words, uint32_t rank, uint32_t at, uint64_t *seed) {
  struct word word = take_word(words, rank, at);
  put_word(words, rank, (uint32_t)draw(seed, words->count[rank] + 1), word);
}

/* Two microbatches change places, on every rank or on one alone. */
static void rename_all(struct words *words, uint32_t rank, uint32_t at, uint64_t *seed) {
  uint32_t one = words->word[rank][at].microbatch,
           other = (uint32_t)draw(seed, words->partition->microbatch_count);
  bool everywhere = draw(seed, 2);
  for (uint32_t r = 0; r < words->partition->rank_count; r++)
    for (uint32_t i = 0; (r == rank || everywhere) && i < words->count[r]; i++) {
      uint32_t *microbatch = &words->word[r][i].microbatch;
      *microbatch = *microbatch == one ? other : *microbatch == other ? one : *microbatch;
    }
}

static void drop(struct words *words, uint32_t rank, uint32_t at, uint64_t *seed) {
  (void)seed;
  take_word(words, rank, at);
}

static void repeat(struct words *words, uint32_t rank, uint32_t at, uint64_t *seed) {
  put_word(words, rank, (uint32_t)draw(seed, words->count[rank] + 1), words->word[rank][at]);
}

static void change_kind(struct words *words, uint32_t rank, uint32_t at, uint64_t *seed) {
  words->word[rank][at].kind = (int)draw(seed, PEN_RECV_B + 1);
}

static void change_microbatch(struct words *words, uint32_t rank, uint32_t at, uint64_t *seed) {
  words->word[rank][at].microbatch = (uint32_t)draw(seed, words->partition->microbatch_count + 1u);
}

static void change_stage(struct words *words, uint32_t rank, uint32_t at, uint64_t *seed) {
  words->word[rank][at].stage = (uint32_t)draw(seed, words->partition->stage_count + 1u);
}

static void change_rank(struct words *words, uint32_t rank, uint32_t at, uint64_t *seed) {
  uint32_t other = (uint32_t)draw(seed, words->partition->rank_count);
  put_word(words, other, (uint32_t)draw(seed, words->count[other] + 1 - (other == rank)),
           take_word(words, rank, at));
}

static void change_pair(struct words *words, uint32_t rank, uint32_t at, uint64_t *seed) {
  (void)seed;
  words->word[rank][at].overlaps ^= at + 1 < words->count[rank];
}

/* A message and its receive go elsewhere together: an order that is often as good. */
static void move_message(struct words *words, uint32_t rank, uint32_t at, uint64_t *seed) {
  struct word word = words->word[rank][at];
  if (word.kind != PEN_SEND_F && word.kind != PEN_SEND_B) return;
  move_near(words, rank, at, seed);
  uint32_t stage = word.kind == PEN_SEND_F ? word.stage + 1 : word.stage - 1;
  if (stage >= words->partition->stage_count) return;
  uint32_t other = words->partition->rank_of[stage];
  for (uint32_t i = 0; i < words->count[other]; i++) {
    const struct word *w = &words->word[other][i];
    if (w->stage != stage || w->microbatch != word.microbatch ||
        w->kind != word.kind + PEN_RECV_F - PEN_SEND_F)
      continue;
    move_near(words, other, i, seed);
    return;
  }
}

/* An I and a W become a B, or a B both. */
static void change_split(struct words *words, uint32_t rank, uint32_t at, uint64_t *seed) {
  struct word word = words->word[rank][at];
  if (word.kind == PEN_B) {
    words->word[rank][at].kind = PEN_I;
    word.kind = PEN_W;
    word.overlaps = false;
    put_word(words, rank, at + 1 + (uint32_t)draw(seed, words->count[rank] - at), word);
  }
  for (uint32_t i = at; word.kind == PEN_I && i < words->count[rank]; i++) {
    const struct word *w = &words->word[rank][i];
    if (w->kind != PEN_W || w->stage != word.stage || w->microbatch != word.microbatch) continue;
    take_word(words, rank, i);
    words->word[rank][at].kind = PEN_B;
    return;
  }
}

static const struct {
  const char *name;
  void (*change)(struct words *words, uint32_t rank, uint32_t at, uint64_t *seed);
} mutations[] = {
    {"swap with the next", swap_next},
    {"swap with any", swap_any},
    {"move near", move_near},
    {"move anywhere", move_any},
    {"rename", rename_all},
    {"drop", drop},
    {"repeat", repeat},
    {"change of kind", change_kind},
    {"change of microbatch", change_microbatch},
    {"change of stage", change_stage},
    {"change of rank", change_rank},
    {"change of pair", change_pair},
    {"move of a message", move_message},
    {"change of split", change_split},
};
enum { MUTATIONS = sizeof mutations / sizeof *mutations };

/* ---- the way through the generator ---- */

/* The child: all passes on a written order, and the machine. Ends the process as penstock-gen
 * would. */
static _Noreturn void take_order(const struct whole *w, const char *path, uint64_t seed) {
  const struct pen_partition *p = w->partition;
  struct pen_action **action;
  uint32_t *count;
  struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
  pen_actions_read(path, p, &action, &count);
  if (!pen_verify_actions(
          &(struct pen_action_lists){action, count, p->rank_of, p->rank_count, p->stage_count,
                                     p->microbatch_count, PEN_TRAIN},
          &problem))
    pen_stop(PEN_EXIT_DATA, "%s", problem.reason);
  struct pen_lowered *given = pen_lower_given(action, count, p, w->training, PEN_TRAIN);
  struct pen_profile_input profile[] = {
      {"train", PEN_TRAIN, given, pen_graphs_of(w->topology, &p->stages, true), w->topology, p},
      {"eval", PEN_EVAL, pen_lower_forward(pen_compose_forward(p), p, w->training, PEN_EVAL),
       pen_graphs_of(w->topology, &p->stages, false), w->topology, p},
  };
  struct pen_plan *plan = pen_layout(w->topology, p, profile, 2);
  plan->backward_order = PEN_BACKWARDS_GIVEN;
  pen_plan_digest(plan);
  if (!pen_verify(plan, &problem)) pen_stop(PEN_EXIT_DATA, "%s", problem.reason);
  static const struct pen_timing timing = {.complete = true};
  static const unsigned char source_digest[PEN_DIGEST_BYTES];
  const struct pen_emit_header header = {
      .command = "test", .source_digest = source_digest, .cost_unit = "s", .timing = &timing};
  pen_emit_c(fopen("/dev/null", "w"), plan, &header);
  for (unsigned run = 0; run < RUNS; run++)
    if (!machine_runs(plan, &plan->profiles[0], &seed)) _exit(WRONG_RUN);
  _exit(0);
}

/* Runs the child; its last message goes to said[256]. Returns its status; 128 + the number of a
 * signal. */
static int try_order(const struct whole *w, const struct words *words, uint64_t seed,
                     char said[256]) {
  char path[] = "/tmp/penstock-actions-XXXXXX";
  int file = mkstemp(path), way[2], status;
  assert_true(file >= 0 && pipe(way) == 0);
  FILE *out = fdopen(file, "w");
  write_words(words, out);
  fclose(out);
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(way[1], STDERR_FILENO);
    close(way[0]);
    take_order(w, path, seed);
  }
  close(way[1]);
  size_t bytes = 0;
  for (ssize_t more = 1; more > 0; bytes += more > 0 ? (size_t)more : 0)
    more = read(way[0], said + bytes, 255 - bytes);
  said[bytes] = 0;
  close(way[0]);
  assert_true(waitpid(child, &status, 0) == child);
  unlink(path);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- the property ---- */

static struct whole some_whole(uint64_t *seed) {
  static const struct {
    const char *schedule, *more;
    uint32_t stages, rounds;
  } kinds[] = {{"1f1b", "", 1, 1},          {"1f1b", "zero_bubble = true;", 1, 1},
               {"1f1b", "", 2, 1},          {"zb_h2", "", 1, 2},
               {"zero_bubble_v", "", 2, 2}, {"dual_pipe_v", "", 2, 2},
               {"v_half", "", 2, 2},        {"v_min", "", 2, 2},
               {"gpipe", "", 1, 1},         {"looped_bfs", "", 3, 1},
               {"looped_bfs", "", 2, 2}};
  size_t which = draw(seed, sizeof kinds / sizeof *kinds);
  uint32_t ranks = 1 + (uint32_t)draw(seed, 3);
  const char *memory = draw(seed, 2)
                           ? ""
                           : pen_text("memory = { recompute = \"%s\"; };",
                                      pen_recompute_text(draw(seed, PEN_RECOMPUTE_KINDS)));
  const char *more = pen_text("%s%s", kinds[which].more, draw(seed, 2) ? "" : "/* no clip */");
  uint32_t microbatches = ranks * (kinds[which].rounds + (uint32_t)draw(seed, 2));
  const char *text =
      topology_text("mlp", kinds[which].schedule, ranks, kinds[which].stages, microbatches, more);
  return make_whole(pen_text("%s%s", text, memory));
}

/* A correct order is not refused, with two exceptions: a message has the same name at both ends,
 * even if a rank in between could have its own; and the two actions of a pair may not accumulate
 * into one gradient at once, which the text does not state. */
static bool refused_by_rule(void (*change)(struct words *, uint32_t, uint32_t, uint64_t *),
                            const char *said) {
  return (change == rename_all && strstr(said, "but is received as number")) ||
         (change == change_pair && strstr(said, "both add to one gradient"));
}

static void no_mutant_changes_what_is_trained(void **state) {
  (void)state;
  uint64_t seed = 1618033988;
  unsigned taken[MUTATIONS] = {0}, refused[MUTATIONS] = {0}, all_taken = 0;
  char said[256];
  for (unsigned round = 0; round < TOPOLOGIES; round++) {
    uint64_t first = seed;
    struct whole w = some_whole(&seed);
    struct words words = words_of(&w);
    int status = try_order(&w, &words, seed, said);
    if (status != 0 || !trains_right(&words))
      fail_msg("seed %lu, as it is: status %d: %s", (unsigned long)first, status, said);
    for (unsigned n = 0; n < MUTANTS; n++) {
      struct words mutant = copy_of(&words);
      uint64_t here = seed;
      size_t which = draw(&seed, MUTATIONS);
      const char *name = pen_text("topology of seed %lu, %s of seed %lu", (unsigned long)first,
                                  mutations[which].name, (unsigned long)here);
      for (uint64_t times = 1 + draw(&seed, 2); times > 0; times--) {
        uint32_t rank = some_rank(&mutant, &seed);
        if (rank != PEN_NONE)
          mutations[which].change(&mutant, rank, (uint32_t)draw(&seed, mutant.count[rank]), &seed);
      }
      bool right = trains_right(&mutant);
      status = try_order(&w, &mutant, seed, said);
      if (status == 0 && !right) fail_msg("%s: taken, but it trains something else", name);
      if (status != 0 && (status != PEN_EXIT_DATA || !said[0]))
        fail_msg("%s: status %d: %s", name, status, said);
      *(status == 0 ? &taken[which] : &refused[which]) += 1;
      if (status != 0 && right && !refused_by_rule(mutations[which].change, said))
        fail_msg("%s: refused, but it is right: %s", name, said);
    }
    pen_free_all();
  }
  for (size_t which = 0; which < MUTATIONS; which++) {
    print_message("# %s: taken %u, refused %u\n", mutations[which].name, taken[which],
                  refused[which]);
    all_taken += taken[which];
  }
  assert_true(all_taken > TOPOLOGIES);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(no_mutant_changes_what_is_trained)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
