/* verify_rows.c: are the rows complete, each in its place, and do sends and receives match?
 *
 * The rows are taken as they stand; nothing is known of how they were made, and the same is asked
 * of a plan of ours and of what --actions gives. In this order, each part resting on those before
 * it:
 *
 *   1. each row by itself: its kind exists, its stage and microbatch too, the stage is on this
 * rank, a message that it names crosses ranks, and no row stands twice. Notes where each stands
 *   2. pairs a|b: two compute rows, one behind the other, neither of which needs the other, and not
 * both adding to one gradient
 *   3. each stage and microbatch: one F; when training one B, or one I and one W, in that order
 * behind F
 *   4. each border of stages and microbatch: where both are on one rank the maker stands before the
 * reader; else maker before SEND, and RECV before WAIT before reader (bare rows may lack the WAIT)
 *   5. the step's end: NORM, PUBLISH, WAIT_NORM and UPDATE, each once where it is needed and in
 * order (a tied matrix's: verify_tie.c)
 *   6. each directed pair of ranks: messages are received in the order in which they are sent,
 * since a channel is a queue
 *
 * That every row is there and matched says nothing of whether the ranks ever get to it:
 * verify_deadlock.c does. The first thing wrong is reported at the row that shows it, in the words
 * of --print=actions. Linear in rows. */
#include <stdlib.h>

#include "gen/verify/internal.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"
#include "gen/schedule/action_text.h"

static const char *word(char text[32], const struct pen_action *row) {
  return pen_action_text(text, row->kind, row->stage, row->microbatch);
}

/* ---- pairs of ranks ---- */

static int compare_pairs(const void *a, const void *b) {
  const struct pen_pair *x = a, *y = b;
  if (x->from_rank != y->from_rank) return x->from_rank < y->from_rank ? -1 : 1;
  return (x->to_rank > y->to_rank) - (x->to_rank < y->to_rank);
}

static uint32_t pair_index(const struct pen_checked *c, uint32_t from, uint32_t to) {
  struct pen_pair key = {from, to};
  return (uint32_t)((struct pen_pair *)bsearch(&key, c->pair, c->pair_count, sizeof key,
                                               compare_pairs) -
                    c->pair);
}

const uint8_t pen_direction_send[PEN_DIRECTIONS] = {PEN_SEND_F, PEN_SEND_B, PEN_SEND_G, PEN_SEND_V},
              pen_direction_receive[PEN_DIRECTIONS] = {PEN_RECV_F, PEN_RECV_B, PEN_RECV_G,
                                                       PEN_RECV_V},
              pen_direction_wait[PEN_DIRECTIONS] = {PEN_WAIT_F, PEN_WAIT_B, PEN_WAIT_G, PEN_WAIT_V};

static void add_pairs(struct pen_checked *c, uint32_t *count, uint32_t one, uint32_t other) {
  if (one == other) return;
  c->pair[(*count)++] = (struct pen_pair){one, other};
  c->pair[(*count)++] = (struct pen_pair){other, one};
}

/* Lists every directed pair of ranks with neighbouring stages, or with the ends of a tied matrix
 * that learns, once. */
static void list_pairs(struct pen_checked *c) {
  uint32_t count = 0, kept = 0, last = c->stage_count - 1;
  c->pair = pen_new(2 * (size_t)c->stage_count + 2, sizeof *c->pair);
  for (int way = 0; way < PEN_DIRECTIONS; way++)
    c->direction_pair[way] = pen_new(c->stage_count, sizeof **c->direction_pair);
  for (uint32_t stage = 0; stage < last; stage++)
    add_pairs(c, &count, c->rank_of[stage], c->rank_of[stage + 1]);
  if (c->joins) add_pairs(c, &count, c->rank_of[0], c->rank_of[last]);
  qsort(c->pair, count, sizeof *c->pair, compare_pairs);
  for (uint32_t index = 0; index < count; index++)
    if (kept == 0 || compare_pairs(&c->pair[kept - 1], &c->pair[index]) != 0)
      c->pair[kept++] = c->pair[index];
  c->pair_count = kept;
  for (uint32_t stage = 0; stage < c->stage_count; stage++) {
    bool sends[PEN_DIRECTIONS] = {stage<last, stage> 0, c->joins && stage == last,
                                  c->joins && stage == 0};
    for (int way = 0; way < PEN_DIRECTIONS; way++) {
      uint32_t own = c->rank_of[stage],
               to = sends[way] ? c->rank_of[pen_reader(c, way, stage)] : own;
      c->direction_pair[way][stage] = to == own ? PEN_NONE : pair_index(c, own, to);
    }
  }
}

bool pen_message_of_action(const struct pen_checked *c, const struct pen_action *row,
                           struct pen_wanted *wanted) {
  static const struct {
    bool any;
    uint8_t way;
    bool sends;
  } kinds[PEN_MICROBATCH_KINDS] = {
      [PEN_F] = {true, PEN_DIRECTION_FORWARD, false},
      [PEN_B] = {true, PEN_DIRECTION_BACKWARD, false},
      [PEN_I] = {true, PEN_DIRECTION_BACKWARD, false},
      [PEN_SEND_F] = {true, PEN_DIRECTION_FORWARD, true},
      [PEN_RECV_F] = {true, PEN_DIRECTION_FORWARD, false},
      [PEN_WAIT_F] = {true, PEN_DIRECTION_FORWARD, false},
      [PEN_SEND_B] = {true, PEN_DIRECTION_BACKWARD, true},
      [PEN_RECV_B] = {true, PEN_DIRECTION_BACKWARD, false},
      [PEN_WAIT_B] = {true, PEN_DIRECTION_BACKWARD, false},
      [PEN_SEND_G] = {true, PEN_DIRECTION_TIED_GRADIENT, true},
      [PEN_RECV_G] = {true, PEN_DIRECTION_TIED_GRADIENT, false},
      [PEN_WAIT_G] = {true, PEN_DIRECTION_TIED_GRADIENT, false},
      [PEN_SEND_V] = {true, PEN_DIRECTION_TIED_WEIGHT, true},
      [PEN_RECV_V] = {true, PEN_DIRECTION_TIED_WEIGHT, false},
      [PEN_WAIT_V] = {true, PEN_DIRECTION_TIED_WEIGHT, false},
  };
  if (row->kind >= PEN_MICROBATCH_KINDS || !kinds[row->kind].any) return false;
  enum pen_direction way = kinds[row->kind].way;
  uint32_t from = row->stage, last = c->stage_count - 1;
  if (pen_is_of_tie(row->kind) && row->microbatch != 0) return false;
  if (!kinds[row->kind].sends) {
    if (way == PEN_DIRECTION_FORWARD ? row->stage == 0
                                     : way == PEN_DIRECTION_BACKWARD && row->stage == last)
      return false;
    from = way == PEN_DIRECTION_FORWARD    ? row->stage - 1u
           : way == PEN_DIRECTION_BACKWARD ? row->stage + 1u
                                           : last - row->stage;
  }
  if (!pen_crosses(c, way, from)) return false;
  *wanted = (struct pen_wanted){way, from, pen_reader(c, way, from)};
  return true;
}

/* ---- each row by itself ---- */

static bool check_row(struct pen_checked *c, uint32_t rank, uint32_t index) {
  const struct pen_action *row = &c->row[rank][index];
  struct pen_wanted wanted;
  char text[32];
  if (row->kind >= PEN_ACTION_KINDS)
    return pen_problem_note(c->problem, rank, index, "there is no kind %u of action", row->kind);
  bool forward = row->kind == PEN_F || row->kind == PEN_SEND_F || row->kind == PEN_RECV_F ||
                 row->kind == PEN_WAIT_F || row->kind == PEN_PUBLISH ||
                 row->kind == PEN_WAIT_NORM || row->kind == PEN_UNSHARD || row->kind == PEN_RESHARD;
  if (c->profile_kind != PEN_TRAIN && !forward)
    return pen_problem_note(c->problem, rank, index, "a plan without training runs forwards alone");
  if (row->kind >= PEN_MICROBATCH_KINDS) return true;
  if (row->stage >= c->stage_count)
    return pen_problem_note(c->problem, rank, index, "there is no stage %u of %u", row->stage,
                            c->stage_count);
  if (row->microbatch >= c->microbatch_count)
    return pen_problem_note(c->problem, rank, index, "there is no microbatch %u of %u",
                            row->microbatch, c->microbatch_count);
  if (c->rank_of[row->stage] != rank)
    return pen_problem_note(c->problem, rank, index, "stage %u is on rank %u", row->stage,
                            c->rank_of[row->stage]);
  if (!pen_is_compute(row->kind) && !pen_message_of_action(c, row, &wanted))
    return pen_problem_note(c->problem, rank, index, "there is no such message: no %s",
                            pen_is_of_tie(row->kind)
                                ? "tied matrix that learns, its head on another rank"
                                : "neighbour stage on another rank");
  uint32_t *place = &c->place[row->kind][pen_place(c, row->kind, row->stage, row->microbatch)];
  if (*place)
    return pen_problem_note(c->problem, rank, index, "%s stands twice, first as action %u",
                            word(text, row), *place - 1);
  *place = index + 1;
  return true;
}

/* ---- pairs ---- */

/* Does one action need at once what the other makes, or do both add to one weight gradient? (What
 * one needs of the other by way of a third action is out of order, or a deadlock, since nothing
 * stands between the two.) */
static bool at_odds(const struct pen_action *a, const struct pen_action *b) {
  bool adds = (a->kind == PEN_B || a->kind == PEN_W) && (b->kind == PEN_B || b->kind == PEN_W);
  if (a->stage == b->stage && (adds || a->microbatch == b->microbatch)) return true;
  if (a->microbatch != b->microbatch) return false;
  bool neighbours = a->stage + 1 == b->stage || b->stage + 1 == a->stage;
  return neighbours && a->kind != PEN_W && b->kind != PEN_W &&
         (a->kind == PEN_F) == (b->kind == PEN_F);
}

/* What overlaps is a pair of compute rows, one behind the other, neither of which needs the other.
 */
static bool check_pair(const struct pen_checked *c, uint32_t rank, uint32_t index) {
  const struct pen_action *row = &c->row[rank][index];
  char text[2][32];
  if (!row->overlaps) return true;
  if (!pen_is_compute(row->kind))
    return pen_problem_note(c->problem, rank, index, "%s overlaps, but only F, B, I and W may",
                            word(text[0], row));
  if (index + 1 == c->count[rank] || !pen_is_compute(row[1].kind))
    return pen_problem_note(c->problem, rank, index,
                            "%s overlaps the next action, but no F, B, I or W comes next",
                            word(text[0], row));
  if (row[1].overlaps)
    return pen_problem_note(c->problem, rank, index,
                            "%s is the first of more than two that overlap", word(text[0], row));
  if (at_odds(row, row + 1))
    return pen_problem_note(
        c->problem, rank, index,
        "%s cannot overlap %s: one needs what the other makes, or both add to one gradient",
        word(text[0], row), word(text[1], row + 1));
  return true;
}

/* ---- the step's end ---- */

/* ADD_TIED_GRAD, NORM, PUBLISH, WAIT_NORM and UPDATE come last, each at most once; in a finished
 * plan each where it is needed. Behind them stands only what brings a tied matrix's copy
 * (verify_tie.c). */
static bool check_end(const struct pen_checked *c, uint32_t rank) {
  uint32_t place[PEN_ACTION_KINDS] = {0}, first = PEN_NONE;
  char text[32];
  for (uint32_t index = 0; index < c->count[rank]; index++) {
    const struct pen_action *row = &c->row[rank][index];
    if (row->kind < PEN_MICROBATCH_KINDS) {
      if (first == PEN_NONE || (row->kind >= PEN_SEND_V && row->kind <= PEN_WAIT_V)) continue;
      return pen_problem_note(c->problem, rank, index, "%s comes after the step's end",
                              word(text, row));
    }
    if (row->kind >= PEN_GRAD_READY) continue; /* verify_replicas.c */
    if (place[row->kind])
      return pen_problem_note(c->problem, rank, index, "%s stands twice in a step",
                              word(text, row));
    place[row->kind] = index + 1;
    if (first == PEN_NONE) first = index;
  }
  if (!c->finished) return true;
  bool train = c->profile_kind == PEN_TRAIN;
  if (!place[PEN_PUBLISH])
    return pen_problem_note(c->problem, rank, PEN_NONE, "PUBLISH is missing at the step's end");
  if (train && (!place[PEN_NORM] || place[PEN_NORM] > place[PEN_PUBLISH]))
    return pen_problem_note(c->problem, rank, PEN_NONE,
                            "NORM must come before PUBLISH at the step's end");
  if (train && (!place[PEN_UPDATE] || place[PEN_UPDATE] < place[PEN_PUBLISH]))
    return pen_problem_note(c->problem, rank, PEN_NONE,
                            "UPDATE must come after PUBLISH at the step's end");
  if (place[PEN_WAIT_NORM] ? place[PEN_WAIT_NORM] < place[PEN_PUBLISH] : rank == 0)
    return pen_problem_note(c->problem, rank, PEN_NONE,
                            "WAIT_NORM must come after PUBLISH at the step's end");
  return true;
}

/* ---- each stage and microbatch ---- */

/* Fails with "WHAT is missing", at the row that shows it: `near`, else any of the same stage and
 * microbatch, else the rank's last. */
static bool missing(const struct pen_checked *c, int kind, uint32_t stage, uint32_t microbatch,
                    uint32_t near) {
  char text[32];
  uint32_t rank = c->rank_of[stage];
  for (int other = 0; near == PEN_NONE && other < PEN_MICROBATCH_KINDS; other++)
    near = pen_action_index(c, other, stage, microbatch);
  if (near == PEN_NONE && c->count[rank] > 0) near = c->count[rank] - 1;
  return pen_problem_note(c->problem, rank, near, "%s is missing",
                          pen_action_text(text, kind, stage, microbatch));
}

/* Fails unless row `first` of `kind` stands before row `second` on the rank of `stage`. */
static bool in_order(const struct pen_checked *c, uint32_t stage, uint32_t first, uint32_t second,
                     const char *why) {
  char text[2][32];
  if (first < second) return true;
  const struct pen_action *rows = c->row[c->rank_of[stage]];
  return pen_problem_note(c->problem, c->rank_of[stage], second, "%s stands before %s, %s",
                          word(text[0], &rows[second]), word(text[1], &rows[first]), why);
}

static bool check_compute(const struct pen_checked *c, uint32_t stage, uint32_t microbatch) {
  uint32_t f = pen_action_index(c, PEN_F, stage, microbatch),
           b = pen_action_index(c, PEN_B, stage, microbatch);
  uint32_t i = pen_action_index(c, PEN_I, stage, microbatch),
           w = pen_action_index(c, PEN_W, stage, microbatch);
  if (f == PEN_NONE) return missing(c, PEN_F, stage, microbatch, b != PEN_NONE ? b : i);
  if (c->profile_kind != PEN_TRAIN) return true;
  if (b != PEN_NONE && (i != PEN_NONE || w != PEN_NONE))
    return pen_problem_note(c->problem, c->rank_of[stage], i != PEN_NONE ? i : w,
                            "the whole backward stands as action %u too", b);
  if (b == PEN_NONE && i == PEN_NONE)
    return missing(c, w == PEN_NONE ? PEN_B : PEN_I, stage, microbatch, f);
  if (b == PEN_NONE && w == PEN_NONE) return missing(c, PEN_W, stage, microbatch, i);
  if (!in_order(c, stage, f, b != PEN_NONE ? b : i, "whose result it needs")) return false;
  return b != PEN_NONE || in_order(c, stage, i, w, "whose result it needs");
}

/* The message, or the hand-over on one rank, from a stage to the next reader. */
static bool check_transfer(const struct pen_checked *c, enum pen_direction way, uint32_t stage,
                           uint32_t microbatch) {
  bool backward = way == PEN_DIRECTION_BACKWARD;
  uint32_t reader = pen_reader(c, way, stage);
  uint32_t made = backward ? pen_backward_index(c, stage, microbatch)
                           : pen_action_index(c, PEN_F, stage, microbatch);
  uint32_t used = backward ? pen_backward_index(c, reader, microbatch)
                           : pen_action_index(c, PEN_F, reader, microbatch);
  if (!pen_crosses(c, way, stage)) return in_order(c, stage, made, used, "whose result it needs");
  uint32_t send = pen_action_index(c, pen_direction_send[way], stage, microbatch);
  uint32_t receive = pen_action_index(c, pen_direction_receive[way], reader, microbatch);
  uint32_t wait = pen_action_index(c, pen_direction_wait[way], reader, microbatch);
  if (send == PEN_NONE) return missing(c, pen_direction_send[way], stage, microbatch, made);
  if (receive == PEN_NONE) return missing(c, pen_direction_receive[way], reader, microbatch, used);
  if (!in_order(c, stage, made, send, "whose result it sends")) return false;
  if (!in_order(c, reader, receive, used, "whose message it needs")) return false;
  if (wait == PEN_NONE)
    return c->finished ? missing(c, pen_direction_wait[way], reader, microbatch, used) : true;
  return in_order(c, reader, receive, wait, "for whose message it waits") &&
         in_order(c, reader, wait, used, "which it needs");
}

/* ---- messages of each pair of ranks ---- */

static bool check_channels(const struct pen_checked *c) {
  uint32_t **sequence = pen_new(c->rank_count, sizeof *sequence); /* [rank][row that sends] */
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    sequence[rank] = pen_new((size_t)c->count[rank] + 1, sizeof **sequence);
  uint32_t *sent = pen_new((size_t)c->pair_count + 1, sizeof *sent),
           *received = pen_new((size_t)c->pair_count + 1, sizeof *received);
  for (int pass = 0; pass < 2; pass++)
    for (uint32_t rank = 0; rank < c->rank_count; rank++)
      for (uint32_t index = 0; index < c->count[rank]; index++) {
        const struct pen_action *row = &c->row[rank][index];
        const struct pen_ends *ends = &c->ends[rank][index];
        if (!(pass == 0 ? pen_is_send(row->kind) : pen_is_receive(row->kind)) ||
            ends->pair == PEN_NONE)
          continue;
        uint32_t *number = &sequence[c->pair[ends->pair].from_rank][ends->send_row];
        if (pass == 0) {
          *number = sent[ends->pair]++;
        } else if (*number != received[ends->pair]++) {
          return pen_problem_note(
              c->problem, rank, index,
              "its message is number %u of those from rank %u, but is received as number %u",
              *number, c->pair[ends->pair].from_rank, received[ends->pair] - 1);
        }
      }
  for (uint32_t rank = 0; rank < c->rank_count; rank++) pen_free(sequence[rank]);
  return true;
}

/* Once all messages are known to be sent and received. */
static void find_ends(struct pen_checked *c) {
  c->ends = pen_new(c->rank_count, sizeof *c->ends);
  for (uint32_t rank = 0; rank < c->rank_count; rank++) {
    c->ends[rank] = pen_new((size_t)c->count[rank] + 1, sizeof **c->ends);
    for (uint32_t index = 0; index < c->count[rank]; index++) {
      const struct pen_action *row = &c->row[rank][index];
      struct pen_ends *ends = &c->ends[rank][index];
      struct pen_wanted wanted;
      ends->pair = PEN_NONE;
      if (!pen_message_of_action(c, row, &wanted)) continue;
      *ends = (struct pen_ends){
          c->direction_pair[wanted.way][wanted.from_stage],
          pen_action_index(c, pen_direction_send[wanted.way], wanted.from_stage, row->microbatch),
          pen_action_index(c, pen_direction_receive[wanted.way], wanted.to_stage, row->microbatch)};
    }
  }
}

bool pen_check_actions(struct pen_checked *c) {
  list_pairs(c);
  for (int kind = 0; kind < PEN_MICROBATCH_KINDS; kind++)
    c->place[kind] = pen_new(pen_place(c, kind, c->stage_count, 0), sizeof **c->place);
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    for (uint32_t index = 0; index < c->count[rank]; index++)
      if (!check_row(c, rank, index)) return false;
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    for (uint32_t index = 0; index < c->count[rank]; index++)
      if (!check_pair(c, rank, index)) return false;
  for (uint32_t stage = 0; stage < c->stage_count; stage++)
    for (uint32_t microbatch = 0; microbatch < c->microbatch_count; microbatch++)
      if (!check_compute(c, stage, microbatch)) return false;
  for (uint32_t stage = 0; stage < c->stage_count; stage++)
    for (uint32_t microbatch = 0; microbatch < c->microbatch_count; microbatch++) {
      if (stage + 1 < c->stage_count &&
          !check_transfer(c, PEN_DIRECTION_FORWARD, stage, microbatch))
        return false;
      if (stage > 0 && c->profile_kind == PEN_TRAIN &&
          !check_transfer(c, PEN_DIRECTION_BACKWARD, stage, microbatch))
        return false;
    }
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    if (!check_end(c, rank)) return false;
  if (c->finished && !pen_check_tie_actions(c)) return false;
  find_ends(c);
  return check_channels(c);
}
