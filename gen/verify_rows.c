/* verify_rows.c: are the rows complete, each in its place, and do sends and receives match? */
#include <stdlib.h>

#include "gen/verify.h"

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
  return (uint32_t)((struct pen_pair *)bsearch(&key, c->pair, c->pair_count, sizeof key, compare_pairs) - c->pair);
}

/* Lists every directed pair of ranks with neighbouring stages, once. */
static void list_pairs(struct pen_checked *c) {
  uint32_t count = 0, kept = 0;
  c->pair = pen_new(2 * (size_t)c->stage_count, sizeof *c->pair);
  c->forward_pair = pen_new(c->stage_count, sizeof *c->forward_pair);
  c->backward_pair = pen_new(c->stage_count, sizeof *c->backward_pair);
  for (uint32_t stage = 0; stage + 1 < c->stage_count; stage++) {
    uint32_t lower = c->rank_of[stage], upper = c->rank_of[stage + 1];
    if (lower == upper) continue;
    c->pair[count++] = (struct pen_pair){lower, upper};
    c->pair[count++] = (struct pen_pair){upper, lower};
  }
  qsort(c->pair, count, sizeof *c->pair, compare_pairs);
  for (uint32_t index = 0; index < count; index++)
    if (kept == 0 || compare_pairs(&c->pair[kept - 1], &c->pair[index]) != 0) c->pair[kept++] = c->pair[index];
  c->pair_count = kept;
  for (uint32_t stage = 0; stage < c->stage_count; stage++) {
    uint32_t own = c->rank_of[stage];
    bool up = stage + 1 < c->stage_count && c->rank_of[stage + 1] != own, down = stage > 0 && c->rank_of[stage - 1] != own;
    c->forward_pair[stage] = up ? pair_index(c, own, c->rank_of[stage + 1]) : PEN_NONE;
    c->backward_pair[stage] = down ? pair_index(c, own, c->rank_of[stage - 1]) : PEN_NONE;
  }
}

bool pen_message_of_row(const struct pen_checked *c, const struct pen_action *row, struct pen_wanted *wanted) {
  static const struct {
    bool any, backward, sends;
  } kinds[PEN_CELL_KINDS] = {
      [PEN_F] = {true, false, false},      [PEN_B] = {true, true, false},       [PEN_I] = {true, true, false},
      [PEN_SEND_F] = {true, false, true},  [PEN_RECV_F] = {true, false, false}, [PEN_WAIT_F] = {true, false, false},
      [PEN_SEND_B] = {true, true, true},   [PEN_RECV_B] = {true, true, false},  [PEN_WAIT_B] = {true, true, false},
  };
  if (row->kind >= PEN_CELL_KINDS || !kinds[row->kind].any) return false;
  bool backward = kinds[row->kind].backward;
  uint32_t from = row->stage;
  if (!kinds[row->kind].sends) {
    if (backward ? row->stage + 1u == c->stage_count : row->stage == 0) return false;
    from = backward ? row->stage + 1u : row->stage - 1u;
  }
  if (!pen_crosses(c, backward, from)) return false;
  *wanted = (struct pen_wanted){backward, from, pen_reader(backward, from)};
  return true;
}

/* ---- each row by itself ---- */

static bool check_row(struct pen_checked *c, uint32_t rank, uint32_t index) {
  const struct pen_action *row = &c->row[rank][index];
  struct pen_wanted wanted;
  char text[32];
  if (row->kind >= PEN_ACTION_KINDS) return pen_wrong(c->problem, rank, index, "there is no kind %u of action", row->kind);
  bool forward = row->kind == PEN_F || row->kind == PEN_SEND_F || row->kind == PEN_RECV_F || row->kind == PEN_WAIT_F ||
                 row->kind == PEN_PUBLISH || row->kind == PEN_GATHER;
  if (c->profile_kind != PEN_TRAIN && !forward) return pen_wrong(c->problem, rank, index, "a plan without training runs forwards alone");
  if (row->kind >= PEN_CELL_KINDS) return true;
  if (row->stage >= c->stage_count) return pen_wrong(c->problem, rank, index, "there is no stage %u of %u", row->stage, c->stage_count);
  if (row->microbatch >= c->microbatch_count)
    return pen_wrong(c->problem, rank, index, "there is no microbatch %u of %u", row->microbatch, c->microbatch_count);
  if (c->rank_of[row->stage] != rank)
    return pen_wrong(c->problem, rank, index, "stage %u is on rank %u", row->stage, c->rank_of[row->stage]);
  if (!pen_is_compute(row->kind) && !pen_message_of_row(c, row, &wanted))
    return pen_wrong(c->problem, rank, index, "there is no such message: no neighbour stage on another rank");
  uint32_t *place = &c->place[row->kind][pen_cell(c, row->stage, row->microbatch)];
  if (*place) return pen_wrong(c->problem, rank, index, "%s stands twice, first as action %u", word(text, row), *place - 1);
  *place = index + 1;
  return true;
}

/* ---- pairs ---- */

/* Does one action need at once what the other makes, or do both add to one weight gradient? (What one needs of the other by way of a
 * third action is out of order, or a deadlock, since nothing stands between the two.) */
static bool at_odds(const struct pen_action *a, const struct pen_action *b) {
  bool adds = (a->kind == PEN_B || a->kind == PEN_W) && (b->kind == PEN_B || b->kind == PEN_W);
  if (a->stage == b->stage && (adds || a->microbatch == b->microbatch)) return true;
  if (a->microbatch != b->microbatch) return false;
  bool neighbours = a->stage + 1 == b->stage || b->stage + 1 == a->stage;
  return neighbours && a->kind != PEN_W && b->kind != PEN_W && (a->kind == PEN_F) == (b->kind == PEN_F);
}

/* What overlaps is a pair of compute rows, one behind the other, neither of which needs the other. */
static bool check_pair(const struct pen_checked *c, uint32_t rank, uint32_t index) {
  const struct pen_action *row = &c->row[rank][index];
  char text[2][32];
  if (!row->overlaps) return true;
  if (!pen_is_compute(row->kind)) return pen_wrong(c->problem, rank, index, "%s overlaps, but only F, B, I and W may", word(text[0], row));
  if (index + 1 == c->count[rank] || !pen_is_compute(row[1].kind))
    return pen_wrong(c->problem, rank, index, "%s overlaps the next action, but no F, B, I or W comes next", word(text[0], row));
  if (row[1].overlaps) return pen_wrong(c->problem, rank, index, "%s is the first of more than two that overlap", word(text[0], row));
  if (at_odds(row, row + 1))
    return pen_wrong(c->problem, rank, index, "%s cannot overlap %s: one needs what the other makes, or both add to one gradient",
                     word(text[0], row), word(text[1], row + 1));
  return true;
}

/* ---- the step's end ---- */

/* NORM, PUBLISH, GATHER and UPDATE come last, each at most once; in a finished plan each where it is needed. */
static bool check_end(const struct pen_checked *c, uint32_t rank) {
  uint32_t place[PEN_ACTION_KINDS] = {0}, first = PEN_NONE;
  char text[32];
  for (uint32_t index = 0; index < c->count[rank]; index++) {
    const struct pen_action *row = &c->row[rank][index];
    if (row->kind < PEN_CELL_KINDS) {
      if (first == PEN_NONE) continue;
      return pen_wrong(c->problem, rank, index, "%s comes after the step's end", word(text, row));
    }
    if (place[row->kind]) return pen_wrong(c->problem, rank, index, "%s stands twice in a step", word(text, row));
    place[row->kind] = index + 1;
    if (first == PEN_NONE) first = index;
  }
  if (!c->finished) return true;
  bool train = c->profile_kind == PEN_TRAIN;
  if (!place[PEN_PUBLISH]) return pen_wrong(c->problem, rank, PEN_NONE, "PUBLISH is missing at the step's end");
  if (train && (!place[PEN_NORM] || place[PEN_NORM] > place[PEN_PUBLISH]))
    return pen_wrong(c->problem, rank, PEN_NONE, "NORM must come before PUBLISH at the step's end");
  if (train && (!place[PEN_UPDATE] || place[PEN_UPDATE] < place[PEN_PUBLISH]))
    return pen_wrong(c->problem, rank, PEN_NONE, "UPDATE must come after PUBLISH at the step's end");
  if (place[PEN_GATHER] ? place[PEN_GATHER] < place[PEN_PUBLISH] : rank == 0)
    return pen_wrong(c->problem, rank, PEN_NONE, "GATHER must come after PUBLISH at the step's end");
  return true;
}

/* ---- each stage and microbatch ---- */

/* Fails with "WHAT is missing", at the row that shows it: `near`, else any of the same stage and microbatch, else the rank's last. */
static bool missing(const struct pen_checked *c, int kind, uint32_t stage, uint32_t microbatch, uint32_t near) {
  char text[32];
  uint32_t rank = c->rank_of[stage];
  for (int other = 0; near == PEN_NONE && other < PEN_CELL_KINDS; other++) near = pen_row_of(c, other, stage, microbatch);
  if (near == PEN_NONE && c->count[rank] > 0) near = c->count[rank] - 1;
  return pen_wrong(c->problem, rank, near, "%s is missing", pen_action_text(text, kind, stage, microbatch));
}

/* Fails unless row `first` of `kind` stands before row `second` on the rank of `stage`. */
static bool in_order(const struct pen_checked *c, uint32_t stage, uint32_t first, uint32_t second, const char *why) {
  char text[2][32];
  if (first < second) return true;
  const struct pen_action *rows = c->row[c->rank_of[stage]];
  return pen_wrong(c->problem, c->rank_of[stage], second, "%s stands before %s, %s", word(text[0], &rows[second]),
                   word(text[1], &rows[first]), why);
}

static bool check_compute(const struct pen_checked *c, uint32_t stage, uint32_t microbatch) {
  uint32_t f = pen_row_of(c, PEN_F, stage, microbatch), b = pen_row_of(c, PEN_B, stage, microbatch);
  uint32_t i = pen_row_of(c, PEN_I, stage, microbatch), w = pen_row_of(c, PEN_W, stage, microbatch);
  if (f == PEN_NONE) return missing(c, PEN_F, stage, microbatch, b != PEN_NONE ? b : i);
  if (c->profile_kind != PEN_TRAIN) return true;
  if (b != PEN_NONE && (i != PEN_NONE || w != PEN_NONE))
    return pen_wrong(c->problem, c->rank_of[stage], i != PEN_NONE ? i : w, "the whole backward stands as action %u too", b);
  if (b == PEN_NONE && i == PEN_NONE) return missing(c, w == PEN_NONE ? PEN_B : PEN_I, stage, microbatch, f);
  if (b == PEN_NONE && w == PEN_NONE) return missing(c, PEN_W, stage, microbatch, i);
  if (!in_order(c, stage, f, b != PEN_NONE ? b : i, "whose result it needs")) return false;
  return b != PEN_NONE || in_order(c, stage, i, w, "whose result it needs");
}

/* The message, or the hand-over on one rank, from a stage to the next reader. */
static bool check_transfer(const struct pen_checked *c, bool backward, uint32_t stage, uint32_t microbatch) {
  static const int send_kind[] = {PEN_SEND_F, PEN_SEND_B}, receive_kind[] = {PEN_RECV_F, PEN_RECV_B},
                   wait_kind[] = {PEN_WAIT_F, PEN_WAIT_B};
  uint32_t reader = pen_reader(backward, stage);
  uint32_t made = backward ? pen_backward_row(c, stage, microbatch) : pen_row_of(c, PEN_F, stage, microbatch);
  uint32_t used = backward ? pen_backward_row(c, reader, microbatch) : pen_row_of(c, PEN_F, reader, microbatch);
  if (!pen_crosses(c, backward, stage)) return in_order(c, stage, made, used, "whose result it needs");
  uint32_t send = pen_row_of(c, send_kind[backward], stage, microbatch);
  uint32_t receive = pen_row_of(c, receive_kind[backward], reader, microbatch);
  uint32_t wait = pen_row_of(c, wait_kind[backward], reader, microbatch);
  if (send == PEN_NONE) return missing(c, send_kind[backward], stage, microbatch, made);
  if (receive == PEN_NONE) return missing(c, receive_kind[backward], reader, microbatch, used);
  if (!in_order(c, stage, made, send, "whose result it sends")) return false;
  if (!in_order(c, reader, receive, used, "whose message it needs")) return false;
  if (wait == PEN_NONE) return c->finished ? missing(c, wait_kind[backward], reader, microbatch, used) : true;
  return in_order(c, reader, receive, wait, "for whose message it waits") && in_order(c, reader, wait, used, "which it needs");
}

/* ---- messages of each pair of ranks ---- */

static bool check_channels(const struct pen_checked *c) {
  size_t cells = (size_t)c->stage_count * c->microbatch_count;
  uint32_t *sequence[2] = {pen_new(cells, sizeof(uint32_t)), pen_new(cells, sizeof(uint32_t))};
  uint32_t *sent = pen_new((size_t)c->pair_count + 1, sizeof *sent), *received = pen_new((size_t)c->pair_count + 1, sizeof *received);
  for (int pass = 0; pass < 2; pass++)
    for (uint32_t rank = 0; rank < c->rank_count; rank++)
      for (uint32_t index = 0; index < c->count[rank]; index++) {
        const struct pen_action *row = &c->row[rank][index];
        struct pen_wanted wanted;
        if (!(pass == 0 ? pen_is_send(row->kind) : pen_is_receive(row->kind)) || !pen_message_of_row(c, row, &wanted)) continue;
        uint32_t pair = (wanted.backward ? c->backward_pair : c->forward_pair)[wanted.from_stage];
        uint32_t *number = &sequence[wanted.backward][pen_cell(c, wanted.from_stage, row->microbatch)];
        if (pass == 0) {
          *number = sent[pair]++;
        } else if (*number != received[pair]++) {
          return pen_wrong(c->problem, rank, index, "its message is number %u of those from rank %u, but is received as number %u",
                           *number, c->pair[pair].from_rank, received[pair] - 1);
        }
      }
  return true;
}

bool pen_check_rows(struct pen_checked *c) {
  size_t cells = (size_t)c->stage_count * c->microbatch_count;
  list_pairs(c);
  for (int kind = 0; kind < PEN_CELL_KINDS; kind++) c->place[kind] = pen_new(cells, sizeof **c->place);
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
      if (stage + 1 < c->stage_count && !check_transfer(c, false, stage, microbatch)) return false;
      if (stage > 0 && c->profile_kind == PEN_TRAIN && !check_transfer(c, true, stage, microbatch)) return false;
    }
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    if (!check_end(c, rank)) return false;
  return check_channels(c);
}
