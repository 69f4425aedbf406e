/* deadlock.c: do all ranks reach the end of a step, in each of three models of communication?
 *
 * In all three a rank runs its compute actions in order, and an action blocks until what it waits
 * for has happened; what has happened cannot be undone. In such a monotone system the order of
 * progress does not matter: run whatever can run until nothing can. Either everything is complete,
 * or the rest waits for itself.
 *
 *   puts        a send blocks until its credit has arrived (if its message has one), then its
 *               message has arrived; a receive never blocks; an action that reads a message blocks
 *               until the message was sent
 *   rendezvous  communication actions are queued in a lane, in order, after all compute actions
 *               before them. The first action of a lane ends when its peer on the other rank is the
 *               first of its lane, too. An action that reads a message blocks until the receive has
 *               ended (for a tied weight: its WAIT does); an action that overwrites what a send
 *               reads blocks until that send has ended. There is one lane for sends to and one for
 *               receives from each other rank, or one lane a rank */
#include "gen/verify/internal.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

/* The progress of all ranks and lanes. */
struct deadlock_state {
  const struct pen_check_context *c;
  const char *model;
  uint32_t *next;  /* [rank]: the first action that has not run (rendezvous: communication has run
                      once it is queued) */
  uint32_t *stack; /* ranks that may be able to run */
  bool *stacked;
  uint32_t stack_count, published;
  /* rendezvous: */
  bool one_lane;
  uint32_t lane_count, *lane_first, *lane_next, *lane_action,
      *lane_rank; /* [lane], actions in lane_action[lane_first..lane_first of next) */
  uint32_t *lane_stack, lane_stack_count;
  bool **ended;        /* [rank][action]: communication that has ended */
  size_t *hazard_next; /* [rank] */
};

/* The action of another rank that an action waits for. */
struct blocker {
  uint32_t rank, action;
  bool found, unfinished_send;
};

static void enqueue_rank(struct deadlock_state *s, uint32_t rank) {
  if (s->stacked[rank]) return;
  s->stacked[rank] = true;
  s->stack[s->stack_count++] = rank;
}

static struct deadlock_state start_state(const struct pen_check_context *c, const char *model) {
  struct deadlock_state s = {.c = c, .model = model};
  s.next = pen_new(c->rank_count, sizeof *s.next);
  s.stack = pen_new(c->rank_count, sizeof *s.stack);
  s.stacked = pen_new(c->rank_count, sizeof *s.stacked);
  for (uint32_t rank = c->rank_count; rank-- > 0;) enqueue_rank(&s, rank);
  return s;
}

/* Frees the state and returns `fine`. */
static bool free_deadlock_state(struct deadlock_state *s, bool fine) {
  void *const arrays[] = {s->next,      s->stack,       s->stacked,   s->lane_first,
                          s->lane_next, s->lane_action, s->lane_rank, s->lane_stack};
  for (size_t index = 0; index < sizeof arrays / sizeof *arrays; index++) pen_free(arrays[index]);
  for (uint32_t rank = 0; s->ended && rank < s->c->rank_count; rank++) pen_free(s->ended[rank]);
  return fine;
}

static const struct pen_message_ends *message_ends_of(const struct pen_check_context *c,
                                                      uint32_t rank, uint32_t action) {
  return &c->ends[rank][action];
}

/* The two ends of a message. */
static struct blocker send_of(const struct pen_check_context *c,
                              const struct pen_message_ends *ends) {
  return (struct blocker){c->pair[ends->pair].from_rank, ends->send_action, true, false};
}
static struct blocker receive_of(const struct pen_check_context *c,
                                 const struct pen_message_ends *ends) {
  return (struct blocker){c->pair[ends->pair].to_rank, ends->receive_action, true, false};
}

/* The PUBLISH that WAIT_NORM waits for. */
static struct blocker unpublished_rank(const struct deadlock_state *s) {
  for (uint32_t rank = 0; rank < s->c->rank_count; rank++)
    for (uint32_t action = s->next[rank]; action < s->c->count[rank]; action++)
      if (s->c->action[rank][action].kind == PEN_PUBLISH)
        return (struct blocker){rank, action, true, false};
  return (struct blocker){0};
}

static bool waits_for_norms(const struct deadlock_state *s, const struct pen_action *action) {
  return action->kind == PEN_WAIT_NORM && s->published < s->c->rank_count;
}

/* Reports which rank waits where for what, and where the rank waits that should provide it. */
static bool report_deadlock(const struct deadlock_state *s, uint32_t rank, uint32_t index,
                            struct blocker blocker) {
  const struct pen_check_context *c = s->c;
  char wanted[32], other[32] = "its end";
  if (!blocker.found)
    return pen_problem_note(c->problem, rank, index, "deadlock with %s", s->model);
  const struct pen_action *action = &c->action[blocker.rank][blocker.action];
  pen_problem_action(wanted, action);
  if (s->next[blocker.rank] < c->count[blocker.rank]) {
    const struct pen_action *at = &c->action[blocker.rank][s->next[blocker.rank]];
    pen_problem_action(other, at);
  }
  return pen_problem_note(
      c->problem, rank, index, "deadlock with %s: it waits for %s%s of rank %u, which waits at %s",
      s->model, blocker.unfinished_send ? "the end of " : "", wanted, blocker.rank, other);
}

/* Runs every rank until it blocks; `blocker` says why an action blocks. Returns true when all
 * ranks have ended. */
static bool run_all(struct deadlock_state *s, void (*run)(struct deadlock_state *s, uint32_t rank),
                    struct blocker (*blocker)(struct deadlock_state *s, uint32_t rank,
                                              uint32_t index)) {
  while (s->stack_count > 0) {
    uint32_t rank = s->stack[--s->stack_count];
    s->stacked[rank] = false;
    run(s, rank);
  }
  for (uint32_t rank = 0; rank < s->c->rank_count; rank++)
    if (s->next[rank] < s->c->count[rank])
      return report_deadlock(s, rank, s->next[rank], blocker(s, rank, s->next[rank]));
  return true;
}

/* ---- one-sided puts ---- */

/* What an action waits for; `found` is false when it waits for nothing. */
static struct blocker put_blocker(struct deadlock_state *s, uint32_t rank, uint32_t index) {
  const struct pen_check_context *c = s->c;
  const struct pen_action *action = &c->action[rank][index];
  const struct pen_message_ends *ends = message_ends_of(c, rank, index);
  if (waits_for_norms(s, action)) return unpublished_rank(s);
  if (ends->pair == PEN_NONE || pen_is_receive(action->kind)) return (struct blocker){0};
  bool sends = pen_is_send(action->kind);
  const bool *credited = sends ? c->credited[pen_direction_of(action->kind)] : NULL;
  if (credited && !credited[pen_action_key(c, action->kind, action->stage, action->microbatch)])
    return (struct blocker){0};
  struct blocker blocker = sends ? receive_of(c, ends) : send_of(c, ends);
  return s->next[blocker.rank] > blocker.action ? (struct blocker){0} : blocker;
}

/* Runs a rank until it blocks. */
static void run_puts(struct deadlock_state *s, uint32_t rank) {
  const struct pen_check_context *c = s->c;
  while (s->next[rank] < c->count[rank]) {
    uint32_t index = s->next[rank];
    const struct pen_action *action = &c->action[rank][index];
    if (put_blocker(s, rank, index).found) return;
    s->next[rank]++;
    if (pen_is_send(action->kind))
      enqueue_rank(s, receive_of(c, message_ends_of(c, rank, index)).rank);
    if (pen_is_receive(action->kind))
      enqueue_rank(s, send_of(c, message_ends_of(c, rank, index)).rank);
    if (action->kind == PEN_PUBLISH && ++s->published == c->rank_count)
      for (uint32_t other = 0; other < c->rank_count; other++) enqueue_rank(s, other);
  }
}

bool pen_check_puts(const struct pen_check_context *c) {
  struct deadlock_state s = start_state(c, "one-sided puts");
  return free_deadlock_state(&s, run_all(&s, run_puts, put_blocker));
}

/* ---- rendezvous ---- */

static uint32_t lane_of(const struct deadlock_state *s, uint32_t rank, uint32_t action) {
  return s->one_lane ? rank
                     : 2 * message_ends_of(s->c, rank, action)->pair +
                           pen_is_receive(s->c->action[rank][action].kind);
}

static bool uses_lane(const struct pen_action *action) {
  return pen_is_send(action->kind) || pen_is_receive(action->kind);
}

/* Lists each lane's actions in order. */
static void make_lanes(struct deadlock_state *s) {
  const struct pen_check_context *c = s->c;
  uint32_t total = 0;
  s->lane_count = s->one_lane ? c->rank_count : 2 * c->pair_count;
  s->lane_first = pen_new((size_t)s->lane_count + 1, sizeof(uint32_t));
  s->lane_next = pen_new((size_t)s->lane_count + 1, sizeof(uint32_t));
  s->lane_rank = pen_new((size_t)s->lane_count + 1, sizeof(uint32_t));
  s->ended = pen_new(c->rank_count, sizeof *s->ended);
  s->hazard_next = pen_new(c->rank_count, sizeof *s->hazard_next);
  for (uint32_t rank = 0; rank < c->rank_count; rank++) {
    s->ended[rank] = pen_new((size_t)c->count[rank] + 1, sizeof(bool));
    for (uint32_t action = 0; action < c->count[rank]; action++)
      if (uses_lane(&c->action[rank][action])) {
        s->lane_first[lane_of(s, rank, action) + 1]++;
        total++;
      }
  }
  for (uint32_t lane = 0; lane < s->lane_count; lane++) {
    s->lane_first[lane + 1] += s->lane_first[lane];
    s->lane_next[lane] = s->lane_first[lane];
  }
  s->lane_action = pen_new((size_t)total + 1, sizeof(uint32_t));
  s->lane_stack = pen_new((size_t)2 * total + 1, sizeof(uint32_t));
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    for (uint32_t action = 0; action < c->count[rank]; action++)
      if (uses_lane(&c->action[rank][action])) {
        uint32_t lane = lane_of(s, rank, action);
        s->lane_rank[lane] = rank;
        s->lane_action[s->lane_next[lane]++] = action;
      }
  for (uint32_t lane = 0; lane < s->lane_count; lane++) s->lane_next[lane] = s->lane_first[lane];
}

/* The first action of a lane if it is queued; else PEN_NONE. */
static uint32_t started_head(const struct deadlock_state *s, uint32_t lane) {
  if (s->lane_next[lane] == s->lane_first[lane + 1]) return PEN_NONE;
  uint32_t action = s->lane_action[s->lane_next[lane]];
  return action < s->next[s->lane_rank[lane]] ? action : PEN_NONE;
}

/* The other end of a communication action. */
static struct blocker peer_of(const struct pen_check_context *c, uint32_t rank, uint32_t action) {
  const struct pen_message_ends *ends = message_ends_of(c, rank, action);
  return pen_is_send(c->action[rank][action].kind) ? receive_of(c, ends) : send_of(c, ends);
}

/* Ends all communication that can end, beginning with a lane. */
static void run_lanes(struct deadlock_state *s, uint32_t first) {
  s->lane_stack[s->lane_stack_count++] = first;
  while (s->lane_stack_count > 0) {
    uint32_t lane = s->lane_stack[--s->lane_stack_count], action = started_head(s, lane),
             rank = s->lane_rank[lane];
    if (action == PEN_NONE) continue;
    struct blocker peer = peer_of(s->c, rank, action);
    uint32_t other = lane_of(s, peer.rank, peer.action);
    if (started_head(s, other) != peer.action) continue;
    s->ended[rank][action] = s->ended[peer.rank][peer.action] = true;
    s->lane_next[lane]++;
    s->lane_next[other]++;
    enqueue_rank(s, rank);
    enqueue_rank(s, peer.rank);
    s->lane_stack[s->lane_stack_count++] = lane;
    s->lane_stack[s->lane_stack_count++] = other;
  }
}

/* The first unfinished send that an action must not overtake. Actions run in order, so each hazard
 * is skipped once. */
static struct blocker hazard_blocker(struct deadlock_state *s, uint32_t rank, uint32_t action) {
  const struct pen_check_context *c = s->c;
  if (!c->hazard) return (struct blocker){0};
  size_t *next = &s->hazard_next[rank];
  for (; *next < c->hazard_count[rank] && c->hazard[rank][*next].action <= action; (*next)++)
    if (!s->ended[rank][c->hazard[rank][*next].send_action])
      return (struct blocker){rank, c->hazard[rank][*next].send_action, true, true};
  return (struct blocker){0};
}

static struct blocker rendezvous_blocker(struct deadlock_state *s, uint32_t rank, uint32_t index) {
  const struct pen_check_context *c = s->c;
  const struct pen_action *action = &c->action[rank][index];
  const struct pen_message_ends *ends = message_ends_of(c, rank, index);
  if (waits_for_norms(s, action)) return unpublished_rank(s);
  bool updates = action->kind == PEN_UPDATE || action->kind == PEN_UNSHARD;
  bool reads =
      pen_is_compute(action->kind) || action->kind == PEN_WAIT_G || action->kind == PEN_WAIT_V;
  if (!updates && !reads) return (struct blocker){0};
  if (reads && ends->pair != PEN_NONE && !s->ended[rank][ends->receive_action]) {
    struct blocker blocker = send_of(c, ends);
    blocker.unfinished_send = true;
    return blocker;
  }
  return hazard_blocker(s, rank, index);
}

static void run_rendezvous(struct deadlock_state *s, uint32_t rank) {
  const struct pen_check_context *c = s->c;
  while (s->next[rank] < c->count[rank]) {
    const struct pen_action *action = &c->action[rank][s->next[rank]];
    if (rendezvous_blocker(s, rank, s->next[rank]).found) return;
    s->next[rank]++;
    if (uses_lane(action)) run_lanes(s, lane_of(s, rank, s->next[rank] - 1));
    if (action->kind == PEN_PUBLISH && ++s->published == c->rank_count)
      for (uint32_t other = 0; other < c->rank_count; other++) enqueue_rank(s, other);
  }
}

bool pen_check_lanes(const struct pen_check_context *c, bool one_lane) {
  struct deadlock_state s = start_state(
      c, one_lane ? "rendezvous, one lane a rank" : "rendezvous, one lane a pair of ranks");
  s.one_lane = one_lane;
  make_lanes(&s);
  if (!run_all(&s, run_rendezvous, rendezvous_blocker)) return free_deadlock_state(&s, false);
  for (uint32_t lane = 0; lane < s.lane_count; lane++)
    if (s.lane_next[lane] < s.lane_first[lane + 1]) {
      uint32_t action = s.lane_action[s.lane_next[lane]];
      return free_deadlock_state(&s, report_deadlock(&s, s.lane_rank[lane], action,
                                                     peer_of(c, s.lane_rank[lane], action)));
    }
  return free_deadlock_state(&s, true);
}

/* What completes with one lane a rank completes with one lane a pair of ranks: an action that is
 * the first of the one lane is the first of its own lane, too. The weaker model runs only to report
 * which of the two fails. */
bool pen_check_rendezvous(const struct pen_check_context *c) {
  if (pen_check_lanes(c, true)) return true;
  struct pen_problem one_lane = *c->problem;
  if (pen_check_lanes(c, false)) *c->problem = one_lane;
  return false;
}
