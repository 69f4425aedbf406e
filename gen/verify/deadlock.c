/* verify_deadlock.c: do all ranks reach the end of a step, in each of the three models of
 * communication?
 *
 * In all three a rank runs its compute rows in order, and a row blocks until what it waits for has
 * happened; nothing that has happened can un-happen. In such a monotone system the order of
 * progress does not matter: run whatever can run until nothing can. Either all is done, or what is
 * left waits for itself.
 *
 *   puts        a send blocks until its credit has come (it has one unless proved needless), then
 * is there at once; a receive row never blocks; what reads a message blocks until it was sent
 *   rendezvous  communication rows go to a lane, in the order of the rows, once all compute rows
 * before them have ended. The first of a lane ends when its mate on the other rank is first of its
 * lane too. What reads a message blocks until its receive has ended (of a tied matrix's messages:
 * its WAIT row); a row that overwrites what a send reads blocks until that send has ended. Lanes:
 * one for sends and one for receives with each other rank, or one a rank
 */
#include "gen/verify/internal.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"
#include "gen/schedule/action_text.h"

/* What a rank's run and the lanes have come to. */
struct state {
  const struct pen_checked *c;
  const char *model;
  uint32_t *next;  /* [rank] first row that has not run (rendezvous: communication rows count as run
                      once they are in a lane) */
  uint32_t *stack; /* ranks to look at */
  bool *stacked;
  uint32_t stack_count, published;
  /* rendezvous: */
  bool one_lane;
  uint32_t lane_count, *lane_first, *lane_next, *lane_row,
      *lane_rank; /* [lane], rows in lane_row[lane_first..lane_first of next) */
  uint32_t *lane_stack, lane_stack_count;
  bool **ended;      /* [rank][row] communication rows that have met */
  size_t *hold_next; /* [rank] */
};

/* What a row waits for: a row of a rank. */
struct cause {
  uint32_t rank, row;
  bool found, unfinished_send;
};

static void look_at(struct state *s, uint32_t rank) {
  if (s->stacked[rank]) return;
  s->stacked[rank] = true;
  s->stack[s->stack_count++] = rank;
}

static struct state begin(const struct pen_checked *c, const char *model) {
  struct state s = {.c = c, .model = model};
  s.next = pen_new(c->rank_count, sizeof *s.next);
  s.stack = pen_new(c->rank_count, sizeof *s.stack);
  s.stacked = pen_new(c->rank_count, sizeof *s.stacked);
  for (uint32_t rank = c->rank_count; rank-- > 0;) look_at(&s, rank);
  return s;
}

/* What was allocated; a problem's message is made before. Returns `fine`. */
static bool end(struct state *s, bool fine) {
  void *const arrays[] = {s->next,      s->stack,    s->stacked,   s->lane_first,
                          s->lane_next, s->lane_row, s->lane_rank, s->lane_stack};
  for (size_t index = 0; index < sizeof arrays / sizeof *arrays; index++) pen_free(arrays[index]);
  for (uint32_t rank = 0; s->ended && rank < s->c->rank_count; rank++) pen_free(s->ended[rank]);
  return fine;
}

static const struct pen_ends *ends_of(const struct pen_checked *c, uint32_t rank, uint32_t row) {
  return &c->ends[rank][row];
}

/* The two ends of a message as causes. */
static struct cause sending(const struct pen_checked *c, const struct pen_ends *ends) {
  return (struct cause){c->pair[ends->pair].from_rank, ends->send_row, true, false};
}
static struct cause receiving(const struct pen_checked *c, const struct pen_ends *ends) {
  return (struct cause){c->pair[ends->pair].to_rank, ends->receive_row, true, false};
}

/* A rank that has not published yet, for WAIT_NORM. */
static struct cause unpublished(const struct state *s) {
  for (uint32_t rank = 0; rank < s->c->rank_count; rank++)
    for (uint32_t row = s->next[rank]; row < s->c->count[rank]; row++)
      if (s->c->row[rank][row].kind == PEN_PUBLISH) return (struct cause){rank, row, true, false};
  return (struct cause){0};
}

static bool gather_waits(const struct state *s, const struct pen_action *row) {
  return row->kind == PEN_WAIT_NORM && s->published < s->c->rank_count;
}

/* Says which rank waits where for what, and where the rank that should provide it stands. */
static bool report(const struct state *s, uint32_t rank, uint32_t index, struct cause cause) {
  const struct pen_checked *c = s->c;
  char wanted[32], other[32] = "its end";
  if (!cause.found) return pen_problem_note(c->problem, rank, index, "deadlock with %s", s->model);
  const struct pen_action *row = &c->row[cause.rank][cause.row];
  pen_action_text(wanted, row->kind, row->stage, row->microbatch);
  if (s->next[cause.rank] < c->count[cause.rank]) {
    const struct pen_action *at = &c->row[cause.rank][s->next[cause.rank]];
    pen_action_text(other, at->kind, at->stage, at->microbatch);
  }
  return pen_problem_note(
      c->problem, rank, index, "deadlock with %s: it waits for %s%s of rank %u, which waits at %s",
      s->model, cause.unfinished_send ? "the end of " : "", wanted, cause.rank, other);
}

/* Lets all ranks run, each until it blocks, which `cause` says of the row that it is at; true: all
 * have come to their ends. */
static bool run_all(struct state *s, void (*run)(struct state *s, uint32_t rank),
                    struct cause (*cause)(struct state *s, uint32_t rank, uint32_t index)) {
  while (s->stack_count > 0) {
    uint32_t rank = s->stack[--s->stack_count];
    s->stacked[rank] = false;
    run(s, rank);
  }
  for (uint32_t rank = 0; rank < s->c->rank_count; rank++)
    if (s->next[rank] < s->c->count[rank])
      return report(s, rank, s->next[rank], cause(s, rank, s->next[rank]));
  return true;
}

/* ---- one-sided puts ---- */

/* What a row waits for; not found: nothing. */
static struct cause put_cause(struct state *s, uint32_t rank, uint32_t index) {
  const struct pen_checked *c = s->c;
  const struct pen_action *row = &c->row[rank][index];
  const struct pen_ends *ends = ends_of(c, rank, index);
  if (gather_waits(s, row)) return unpublished(s);
  if (ends->pair == PEN_NONE || pen_is_receive(row->kind)) return (struct cause){0};
  bool sends = pen_is_send(row->kind);
  const bool *credited = sends ? c->credited[pen_direction_of(row->kind)] : NULL;
  if (credited && !credited[pen_place(c, row->kind, row->stage, row->microbatch)])
    return (struct cause){0};
  struct cause cause = sends ? receiving(c, ends) : sending(c, ends);
  return s->next[cause.rank] > cause.row ? (struct cause){0} : cause;
}

/* Lets a rank run until it blocks. */
static void run_puts(struct state *s, uint32_t rank) {
  const struct pen_checked *c = s->c;
  while (s->next[rank] < c->count[rank]) {
    uint32_t index = s->next[rank];
    const struct pen_action *row = &c->row[rank][index];
    if (put_cause(s, rank, index).found) return;
    s->next[rank]++;
    if (pen_is_send(row->kind)) look_at(s, receiving(c, ends_of(c, rank, index)).rank);
    if (pen_is_receive(row->kind)) look_at(s, sending(c, ends_of(c, rank, index)).rank);
    if (row->kind == PEN_PUBLISH && ++s->published == c->rank_count)
      for (uint32_t other = 0; other < c->rank_count; other++) look_at(s, other);
  }
}

bool pen_check_puts(const struct pen_checked *c) {
  struct state s = begin(c, "one-sided puts");
  return end(&s, run_all(&s, run_puts, put_cause));
}

/* ---- rendezvous ---- */

static uint32_t lane_of(const struct state *s, uint32_t rank, uint32_t row) {
  return s->one_lane
             ? rank
             : 2 * ends_of(s->c, rank, row)->pair + pen_is_receive(s->c->row[rank][row].kind);
}

static bool uses_lane(const struct pen_action *row) {
  return pen_is_send(row->kind) || pen_is_receive(row->kind);
}

/* Lists each lane's rows in order. */
static void make_lanes(struct state *s) {
  const struct pen_checked *c = s->c;
  uint32_t total = 0;
  s->lane_count = s->one_lane ? c->rank_count : 2 * c->pair_count;
  s->lane_first = pen_new((size_t)s->lane_count + 1, sizeof(uint32_t));
  s->lane_next = pen_new((size_t)s->lane_count + 1, sizeof(uint32_t));
  s->lane_rank = pen_new((size_t)s->lane_count + 1, sizeof(uint32_t));
  s->ended = pen_new(c->rank_count, sizeof *s->ended);
  s->hold_next = pen_new(c->rank_count, sizeof *s->hold_next);
  for (uint32_t rank = 0; rank < c->rank_count; rank++) {
    s->ended[rank] = pen_new((size_t)c->count[rank] + 1, sizeof(bool));
    for (uint32_t row = 0; row < c->count[rank]; row++)
      if (uses_lane(&c->row[rank][row])) {
        s->lane_first[lane_of(s, rank, row) + 1]++;
        total++;
      }
  }
  for (uint32_t lane = 0; lane < s->lane_count; lane++) {
    s->lane_first[lane + 1] += s->lane_first[lane];
    s->lane_next[lane] = s->lane_first[lane];
  }
  s->lane_row = pen_new((size_t)total + 1, sizeof(uint32_t));
  s->lane_stack = pen_new((size_t)2 * total + 1, sizeof(uint32_t));
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    for (uint32_t row = 0; row < c->count[rank]; row++)
      if (uses_lane(&c->row[rank][row])) {
        uint32_t lane = lane_of(s, rank, row);
        s->lane_rank[lane] = rank;
        s->lane_row[s->lane_next[lane]++] = row;
      }
  for (uint32_t lane = 0; lane < s->lane_count; lane++) s->lane_next[lane] = s->lane_first[lane];
}

/* The row at the head of a lane, if it may start; else PEN_NONE. */
static uint32_t started_head(const struct state *s, uint32_t lane) {
  if (s->lane_next[lane] == s->lane_first[lane + 1]) return PEN_NONE;
  uint32_t row = s->lane_row[s->lane_next[lane]];
  return row < s->next[s->lane_rank[lane]] ? row : PEN_NONE;
}

/* The other side of a communication row. */
static struct cause mate_of(const struct pen_checked *c, uint32_t rank, uint32_t row) {
  const struct pen_ends *ends = ends_of(c, rank, row);
  return pen_is_send(c->row[rank][row].kind) ? receiving(c, ends) : sending(c, ends);
}

/* Ends what can end from the head of a lane on. */
static void run_lanes(struct state *s, uint32_t first) {
  s->lane_stack[s->lane_stack_count++] = first;
  while (s->lane_stack_count > 0) {
    uint32_t lane = s->lane_stack[--s->lane_stack_count], row = started_head(s, lane),
             rank = s->lane_rank[lane];
    if (row == PEN_NONE) continue;
    struct cause mate = mate_of(s->c, rank, row);
    uint32_t other = lane_of(s, mate.rank, mate.row);
    if (started_head(s, other) != mate.row) continue;
    s->ended[rank][row] = s->ended[mate.rank][mate.row] = true;
    s->lane_next[lane]++;
    s->lane_next[other]++;
    look_at(s, rank);
    look_at(s, mate.rank);
    s->lane_stack[s->lane_stack_count++] = lane;
    s->lane_stack[s->lane_stack_count++] = other;
  }
}

/* The first unfinished send that a row must not overtake. Rows come in order, so ended ones are
 * passed for good. */
static struct cause hold_cause(struct state *s, uint32_t rank, uint32_t row) {
  const struct pen_checked *c = s->c;
  if (!c->hold) return (struct cause){0};
  size_t *next = &s->hold_next[rank];
  for (; *next < c->hold_count[rank] && c->hold[rank][*next].row <= row; (*next)++)
    if (!s->ended[rank][c->hold[rank][*next].send_row])
      return (struct cause){rank, c->hold[rank][*next].send_row, true, true};
  return (struct cause){0};
}

static struct cause rendezvous_cause(struct state *s, uint32_t rank, uint32_t index) {
  const struct pen_checked *c = s->c;
  const struct pen_action *row = &c->row[rank][index];
  const struct pen_ends *ends = ends_of(c, rank, index);
  if (gather_waits(s, row)) return unpublished(s);
  bool updates = row->kind == PEN_UPDATE || row->kind == PEN_UNSHARD;
  bool reads = pen_is_compute(row->kind) || row->kind == PEN_WAIT_G || row->kind == PEN_WAIT_V;
  if (!updates && !reads) return (struct cause){0};
  if (reads && ends->pair != PEN_NONE && !s->ended[rank][ends->receive_row]) {
    struct cause cause = sending(c, ends);
    cause.unfinished_send = true;
    return cause;
  }
  return hold_cause(s, rank, index);
}

static void run_rendezvous(struct state *s, uint32_t rank) {
  const struct pen_checked *c = s->c;
  while (s->next[rank] < c->count[rank]) {
    const struct pen_action *row = &c->row[rank][s->next[rank]];
    if (rendezvous_cause(s, rank, s->next[rank]).found) return;
    s->next[rank]++;
    if (uses_lane(row)) run_lanes(s, lane_of(s, rank, s->next[rank] - 1));
    if (row->kind == PEN_PUBLISH && ++s->published == c->rank_count)
      for (uint32_t other = 0; other < c->rank_count; other++) look_at(s, other);
  }
}

bool pen_check_lanes(const struct pen_checked *c, bool one_lane) {
  struct state s =
      begin(c, one_lane ? "rendezvous, one lane a rank" : "rendezvous, one lane a pair of ranks");
  s.one_lane = one_lane;
  make_lanes(&s);
  if (!run_all(&s, run_rendezvous, rendezvous_cause)) return end(&s, false);
  for (uint32_t lane = 0; lane < s.lane_count; lane++)
    if (s.lane_next[lane] < s.lane_first[lane + 1]) {
      uint32_t row = s.lane_row[s.lane_next[lane]];
      return end(&s, report(&s, s.lane_rank[lane], row, mate_of(c, s.lane_rank[lane], row)));
    }
  return end(&s, true);
}

/* What ends with one lane a rank ends with one a pair of ranks, too: all else being the same, a row
 * that is first of the one lane is first of its own, so whatever can run there can run here. The
 * model that asks less is looked at only to say which of the two is not met. */
bool pen_check_rendezvous(const struct pen_checked *c) {
  if (pen_check_lanes(c, true)) return true;
  struct pen_problem one_lane = *c->problem;
  if (pen_check_lanes(c, false)) *c->problem = one_lane;
  return false;
}
