/* list_schedule.c: list scheduling: builds a complete order from a few parameters.
 *
 * Time goes forward: the rank whose next action can start first runs it, so the arrival times of
 * messages from other ranks are known. A free rank runs the I or F that can start first; if it
 * would wait longer than its patience, or if the limit forbids an F, it runs an outstanding W. An F
 * is allowed while the forwards in flight on the rank are fewer than the rule's number, and while
 * the rest of the limit is enough for the later actions of the same microbatch on the rank. A
 * backward is split; for stages where B needs less memory than I and W it is whole if the rule says
 * so, or if there is no memory for I and W. A rule may delay the F or I of some stages in favour of
 * those of others (seeds.c). With one forward in flight a rank holds one microbatch
 * and the outstanding W, so the build succeeds under any limit that holds one microbatch. Source:
 * the heuristic of Qi et al. 2023, arXiv 2401.10241, section 3.1 (use up the limit before the first
 * I; then an I, an F, and W as memory allows), with the warm-up of each rank and the use of W as
 * parameters of the search. */
#include "gen/search/list_schedule.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

#include <math.h>
#include <string.h>

/* The action that a rank can run next; start is INFINITY: none. */
struct next_action {
  double start, key; /* key: by which actions are compared */
  int kind;
  uint32_t stage;
};

struct pen_search_builder {
  const struct pen_search_problem *search;
  const struct pen_search_rule *rule;
  uint32_t *next[PEN_SEARCH_KINDS]; /* [stage] the microbatch to run next */
  double *forward, *backward; /* [stage * microbatches + microbatch] when its input, or gradient,
                                 arrives; INFINITY: unknown */
  double *free_at, *held;     /* [rank] */
  double *later;            /* [stage] what the rank's later stages need of the limit after its F */
  uint32_t *count, *flight; /* [rank] */
  struct next_action
      *choice; /* [rank] it changes when the rank runs an action or a message arrives */
};

static bool forward_fits(const struct pen_search_builder *b, uint32_t rank, uint32_t stage) {
  const struct pen_hold *hold = &b->search->budget->hold[stage][PEN_PROGRAM_F];
  double limit = b->search->budget->limit[rank] * (1 + 1e-9);
  double needed = fmax(pen_budget_least(b->search->budget, stage), hold->remains + b->later[stage]);
  if (b->held[rank] + needed > limit) return false;
  double flight =
      floor(b->rule->flights ? b->rule->flights[rank] : b->rule->flight - b->rule->slope * rank);
  /* The later stages of a rank continue microbatches that are in flight. */
  return stage >= b->search->rank_count || b->flight[rank] < (flight < 1 ? 1 : flight);
}

enum { NO_ROOM = -1 };

/* The kind of the stage's next backward. I may need memory too, where more is kept for W than F
 * left; then B, or an outstanding W, comes first. Weight gradients are in ascending order: no B
 * before an outstanding W. */
static int backward_kind(const struct pen_search_builder *b, uint32_t rank, uint32_t stage) {
  const struct pen_hold *hold = b->search->budget->hold[stage];
  double limit = b->search->budget->limit[rank] * (1 + 1e-9), held = b->held[rank];
  bool may = b->search->whole[stage],
       rises = b->next[PEN_PROGRAM_I][stage] == b->next[PEN_PROGRAM_W][stage];
  bool whole = may && rises && held + hold[PEN_PROGRAM_B].peak <= limit;
  bool split = held + (may ? fmax(hold[PEN_PROGRAM_I].peak,
                                  hold[PEN_PROGRAM_I].remains + hold[PEN_PROGRAM_W].peak)
                           : hold[PEN_PROGRAM_I].peak) <=
               limit;
  if (whole && (b->rule->whole || !split)) return PEN_PROGRAM_B;
  return split ? PEN_PROGRAM_I : NO_ROOM;
}

static struct next_action delayed(const struct pen_search_builder *b, double start, int kind,
                                  uint32_t stage) {
  const double *delay = b->rule->delay;
  size_t index = (kind == PEN_PROGRAM_F ? 0 : b->search->stage_count) + stage;
  return (struct next_action){start, start + (delay ? delay[index] : 0), kind, stage};
}

/* Keeps the choice with the smaller key; on a tie the one that the rule prefers. */
static void keep_earlier(struct next_action *best, struct next_action other, bool on_tie) {
  if (other.key < best->key || (other.key == best->key && on_tie)) *best = other;
}

static struct next_action choose_action(const struct pen_search_builder *b, uint32_t rank) {
  const struct pen_search_problem *c = b->search;
  uint32_t per_rank = c->stages_per_rank, m = c->microbatch_count;
  struct next_action back = {INFINITY, INFINITY, PEN_PROGRAM_I, 0},
                     ahead = {INFINITY, INFINITY, PEN_PROGRAM_F, 0},
                     weight = {INFINITY, INFINITY, PEN_PROGRAM_W, 0};
  double now = b->free_at[rank];
  for (uint32_t local = 0; local < per_rank; local++) {
    uint32_t stage = c->stages[(size_t)rank * per_rank + local];
    uint32_t f = b->next[PEN_PROGRAM_F][stage], i = b->next[PEN_PROGRAM_I][stage],
             w = b->next[PEN_PROGRAM_W][stage];
    int kind = i < f ? backward_kind(b, rank, stage) : NO_ROOM;
    if (kind != NO_ROOM)
      keep_earlier(&back, delayed(b, fmax(now, b->backward[(size_t)stage * m + i]), kind, stage),
                   b->rule->deep_first);
    if (f < m && forward_fits(b, rank, stage))
      keep_earlier(&ahead,
                   delayed(b, fmax(now, b->forward[(size_t)stage * m + f]), PEN_PROGRAM_F, stage),
                   b->rule->deep_first);
    if (w < i) keep_earlier(&weight, (struct next_action){now, now, PEN_PROGRAM_W, stage}, false);
  }
  struct next_action best = ahead;
  keep_earlier(&best, back, b->rule->backward_first);
  if (weight.start < INFINITY &&
      best.start >
          now + b->rule->patience * c->type[PEN_PROGRAM_W * c->stage_count + weight.stage].cost)
    return weight;
  return best;
}

/* Runs an action. Returns how many of F, I and W it is. */
static uint32_t run_choice(struct pen_search_builder *b, uint32_t rank, struct next_action choice,
                           uint32_t *list) {
  const struct pen_search_problem *c = b->search;
  bool whole = choice.kind == PEN_PROGRAM_B;
  uint32_t m = c->microbatch_count, stage = choice.stage,
           type = (uint32_t)choice.kind * c->stage_count + stage;
  uint32_t kind = whole ? PEN_PROGRAM_I : (uint32_t)choice.kind,
           microbatch = b->next[kind][stage]++;
  double end = choice.start + c->type[type].cost;
  list[(size_t)rank * c->count + b->count[rank]++] = pen_search_cell_of(c, kind, stage, microbatch);
  if (whole) b->next[PEN_PROGRAM_W][stage]++;
  b->free_at[rank] = end;
  b->held[rank] += c->budget->hold[stage][choice.kind].remains;
  if (choice.kind == PEN_PROGRAM_F) {
    b->flight[rank]++;
    if (stage + 1 < c->stage_count)
      b->forward[(size_t)(stage + 1) * m + microbatch] = end + c->type[type].send;
    else
      b->backward[(size_t)stage * m + microbatch] = end;
  } else if (kind == PEN_PROGRAM_I) {
    b->flight[rank]--;
    if (stage > 0) b->backward[(size_t)(stage - 1) * m + microbatch] = end + c->type[type].send;
  }
  return whole ? 2 : 1;
}

struct pen_search_builder *pen_search_builder(const struct pen_search_problem *c) {
  size_t cells = (size_t)c->stage_count * c->microbatch_count, ranks = c->rank_count;
  struct pen_search_builder *b = pen_new(1, sizeof *b);
  *b = (struct pen_search_builder){.search = c,
                                   .forward = pen_new(cells, sizeof(double)),
                                   .backward = pen_new(cells, sizeof(double)),
                                   .free_at = pen_new(ranks, sizeof(double)),
                                   .held = pen_new(ranks, sizeof(double)),
                                   .later = pen_new(c->stage_count, sizeof(double)),
                                   .count = pen_new(ranks, sizeof(uint32_t)),
                                   .flight = pen_new(ranks, sizeof(uint32_t)),
                                   .choice = pen_new(ranks, sizeof *b->choice)};
  for (int kind = 0; kind < PEN_SEARCH_KINDS; kind++)
    b->next[kind] = pen_new(c->stage_count, sizeof(uint32_t));
  for (uint32_t rank = 0; rank < ranks; rank++)
    for (uint32_t local = c->stages_per_rank - 1; local-- > 0;) {
      const uint32_t *stage = c->stages + (size_t)rank * c->stages_per_rank + local;
      const struct pen_hold *above = &c->budget->hold[stage[1]][PEN_PROGRAM_F];
      b->later[stage[0]] =
          fmax(pen_budget_least(c->budget, stage[1]), above->remains + b->later[stage[1]]);
    }
  return b;
}

static void reset_builder(struct pen_search_builder *b) {
  const struct pen_search_problem *c = b->search;
  size_t cells = (size_t)c->stage_count * c->microbatch_count;
  for (size_t cell = 0; cell < cells; cell++) {
    b->forward[cell] = cell < c->microbatch_count ? 0 : INFINITY;
    b->backward[cell] = INFINITY;
  }
  for (int kind = 0; kind < PEN_SEARCH_KINDS; kind++)
    memset(b->next[kind], 0, c->stage_count * sizeof(uint32_t));
  memset(b->free_at, 0, c->rank_count * sizeof(double));
  memset(b->held, 0, c->rank_count * sizeof(double));
  memset(b->count, 0, c->rank_count * sizeof(uint32_t));
  memset(b->flight, 0, c->rank_count * sizeof(uint32_t));
  for (uint32_t rank = 0; rank < c->rank_count; rank++) b->choice[rank] = choose_action(b, rank);
}

bool pen_search_build(struct pen_search_builder *b, const struct pen_search_rule *rule,
                      uint32_t *list) {
  const struct pen_search_problem *c = b->search;
  b->rule = rule;
  reset_builder(b);
  uint64_t left = (uint64_t)c->rank_count * c->count;
  while (left > 0) {
    uint32_t rank = 0;
    for (uint32_t other = 1; other < c->rank_count; other++)
      if (b->choice[other].start < b->choice[rank].start) rank = other;
    struct next_action choice = b->choice[rank];
    if (choice.start == INFINITY) return false;
    left -= run_choice(b, rank, choice, list);
    uint32_t consumer = c->type[(uint32_t)choice.kind * c->stage_count + choice.stage].consumer;
    b->choice[rank] = choose_action(b, rank);
    if (consumer != PEN_NONE) b->choice[consumer] = choose_action(b, consumer);
  }
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    for (uint32_t i = b->count[rank]; i < c->count; i++)
      list[(size_t)rank * c->count + i] = PEN_NONE;
  return true;
}

uint64_t pen_search_build_work(const struct pen_search_problem *c) {
  return (uint64_t)c->rank_count * c->count * (4 + c->stages_per_rank + c->rank_count / 16);
}
