/* torch_csv.c: compute orders as the compute-only CSV of torch.distributed.pipelining.
 *
 * One row per rank, in the order of the ranks. A cell is an action, <stage><kind><microbatch> with
 * the kinds F, B, I and W; or an overlapping pair, (0F7;7B3)OVERLAP_F_B; or empty, which is idle
 * time in PyTorch and means nothing for an order. Cells may be quoted; rows may end in CR LF.
 * Source: PyTorch 2.6 and later, torch/distributed/pipelining/schedules.py,
 * PipelineScheduleMulti._load_csv and _Action. */
#include "gen/schedule/torch_csv.h"

#include <stdio.h>
#include <string.h>

#include "gen/schedule/action_text.h"
#include "gen/topology/literal.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/partition/partition.h"
#include "gen/schedule/order.h"
#include "runtime/plan/plan.h"

void pen_csv_print(FILE *out, const struct pen_order *order) {
  char text[32];
  for (uint32_t rank = 0; rank < order->rank_count; rank++) {
    for (uint32_t index = 0; index < order->count[rank]; index++) {
      const struct pen_compute *action = &order->action[rank][index];
      bool second = index > 0 && action[-1].overlaps;
      pen_action_format(text, action->kind, action->stage, action->microbatch);
      fprintf(out, "%s%s%s%s",
              second      ? ";"
              : index > 0 ? ","
                          : "",
              action->overlaps ? "(" : "", text, second ? ")OVERLAP_F_B" : "");
    }
    fputc('\n', out);
  }
}

/* ---- the reader ---- */

enum { CELL_BYTES_MAX = 80 }; /* no valid cell is longer */

struct csv_reader {
  const char *path;
  const struct pen_partition *partition;
  const char *placement;
  struct pen_order *order;
  uint32_t **column;        /* [rank][action]: from 1 */
  uint8_t *seen;            /* [stage * microbatches + microbatch]: kinds as bits */
  uint32_t rank, at_column; /* position; the column from 1 */
  char cell[CELL_BYTES_MAX + 1];
  const char *cell_at; /* the cell in the file, for messages */
  size_t cell_bytes;
  bool trains;
};

#define FAIL(r, format, ...)                                                          \
  pen_stop(PEN_EXIT_DATA, "%s: row %u (rank %u), column %u (%s): " format, (r)->path, \
           (r)->rank + 1, (r)->rank, (r)->at_column,                                  \
           pen_literal_shown((r)->cell_at, (r)->cell_bytes), __VA_ARGS__)

/* Fails unless the stage is on the row's rank, the microbatch exists and the action is new. */
static void check_cell_action(const struct csv_reader *r, const struct pen_action *action) {
  const struct pen_partition *p = r->partition;
  char text[32];
  if (action->kind > PEN_W) FAIL(r, "%s", "a compute-only CSV has no sends and receives");
  if (action->stage >= p->stage_count)
    FAIL(r, "there is no stage %u, the topology has %u", action->stage, p->stage_count);
  if (p->rank_of[action->stage] != r->rank)
    FAIL(r, "stage %u is on rank %u, with pipeline.placement = \"%s\"", action->stage,
         p->rank_of[action->stage], r->placement);
  if (action->microbatch >= p->microbatch_count)
    FAIL(r, "there is no microbatch %u, the topology has %u", action->microbatch,
         p->microbatch_count);
  unsigned seen = r->seen[(size_t)action->stage * p->microbatch_count + action->microbatch],
           kind = action->kind;
  if (seen >> kind & 1)
    FAIL(r, "%s is in this row already",
         pen_action_format(text, (int)kind, action->stage, action->microbatch));
  unsigned other = kind == PEN_B ? 1 << PEN_I | 1 << PEN_W : kind == PEN_F ? 0 : 1 << PEN_B;
  if (seen & other)
    FAIL(r, "a backward is either B, or I and W: %s is in this row already",
         pen_action_format(text, kind == PEN_B ? seen >> PEN_I & 1 ? PEN_I : PEN_W : PEN_B,
                           action->stage, action->microbatch));
}

/* Adds the action `text` to the row. */
static struct pen_compute *add_action(struct csv_reader *r, const char *text) {
  struct pen_action action;
  const char *at = text;
  if (!pen_action_parse(&at, &action) || *at)
    FAIL(r, "%s", "no action such as 3F1, 3B1, 3I1, 3W1 or (3F1;4B0)OVERLAP_F_B, and not empty");
  check_cell_action(r, &action);
  uint32_t rank = r->rank, n = r->order->count[rank]++;
  PEN_RESERVE(r->order->action[rank], n + 1);
  PEN_RESERVE(r->column[rank], n + 1);
  r->column[rank][n] = r->at_column;
  r->order->action[rank][n] =
      (struct pen_compute){action.kind, false, action.stage, action.microbatch};
  r->seen[(size_t)action.stage * r->partition->microbatch_count + action.microbatch] |=
      (uint8_t)(1 << action.kind);
  r->trains |= action.kind != PEN_F;
  return &r->order->action[rank][n];
}

/* `(a;b)OVERLAP_F_B`. */
static void add_pair(struct csv_reader *r) {
  char first[CELL_BYTES_MAX + 1], second[CELL_BYTES_MAX + 1];
  const char *middle = strchr(r->cell, ';'), *end = strchr(r->cell, ')');
  if (!middle || !end || end < middle || strcmp(end, ")OVERLAP_F_B") != 0)
    FAIL(r, "%s", "a pair that overlaps is written (3F1;4B0)OVERLAP_F_B");
  snprintf(first, sizeof first, "%.*s", (int)(middle - r->cell - 1), r->cell + 1);
  snprintf(second, sizeof second, "%.*s", (int)(end - middle - 1), middle + 1 + (middle[1] == ' '));
  if (middle[1] == ' ') second[strlen(second) - 1] = 0;
  struct pen_compute a = *add_action(r, first), b = *add_action(r, second);
  if (a.stage == b.stage && (a.kind == PEN_B || a.kind == PEN_W) &&
      (b.kind == PEN_B || b.kind == PEN_W))
    FAIL(r, "both add to the gradients of stage %u, and so cannot overlap", a.stage);
  r->order->action[r->rank][r->order->count[r->rank] - 2].overlaps = true;
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* One cell, [at, end), without its comma. */
static void read_cell(struct csv_reader *r, const char *at, const char *end) {
  while (at < end && is_space(*at)) at++;
  while (at < end && is_space(end[-1])) end--;
  if (end - at >= 2 && *at == '"' && end[-1] == '"') at++, end--;
  size_t bytes = (size_t)(end - at);
  if (bytes == 0) return;
  r->cell_at = at;
  r->cell_bytes = bytes;
  if (r->rank >= r->partition->rank_count)
    FAIL(r, "there are %u ranks, and a row for each", r->partition->rank_count);
  if (bytes > CELL_BYTES_MAX || memchr(at, 0, bytes)) FAIL(r, "%s", "no action, and not empty");
  memcpy(r->cell, at, bytes);
  r->cell[bytes] = 0;
  if (*at == '(')
    add_pair(r);
  else
    add_action(r, r->cell);
}

/* Reads all rows; empty rows at the end do not count. */
static void read_rows(struct csv_reader *r, const char *text, size_t bytes) {
  const char *end = text + bytes;
  uint32_t rows = 0;
  for (r->rank = 0; text < end; r->rank++) {
    const char *row_end = memchr(text, '\n', (size_t)(end - text));
    if (!row_end) row_end = end;
    bool empty = true;
    for (const char *at = text; at < row_end; at++) empty = empty && (is_space(*at) || *at == ',');
    r->at_column = 1;
    for (const char *cell = text; cell <= row_end; r->at_column++) {
      const char *comma = memchr(cell, ',', (size_t)(row_end - cell));
      read_cell(r, cell, comma ? comma : row_end);
      cell = (comma ? comma : row_end) + 1;
    }
    if (!empty) rows = r->rank + 1;
    text = row_end < end ? row_end + 1 : end;
  }
  if (rows < r->partition->rank_count)
    pen_stop(PEN_EXIT_DATA,
             "%s: row %u (rank %u) is missing: there are %u ranks, and a row for each", r->path,
             rows + 1, rows, r->partition->rank_count);
}

/* ---- completeness ---- */

/* The first kind that is missing among those that a stage and microbatch has, as bits; -1: none. */
static int missing_kind(unsigned seen, bool trains) {
  unsigned input = 1 << PEN_I, weight = 1 << PEN_W;
  if (!(seen & 1 << PEN_F)) return PEN_F;
  if (!trains || seen & 1 << PEN_B) return -1;
  if (!(seen & (input | weight))) return PEN_B;
  if (!(seen & input)) return PEN_I;
  return seen & weight ? -1 : PEN_W;
}

static void check_complete(const struct csv_reader *r) {
  const struct pen_partition *p = r->partition;
  char text[32];
  for (uint32_t stage = 0; stage < p->stage_count; stage++)
    for (uint32_t microbatch = 0; microbatch < p->microbatch_count; microbatch++) {
      int missing =
          missing_kind(r->seen[(size_t)stage * p->microbatch_count + microbatch], r->trains);
      if (missing < 0) continue;
      pen_stop(PEN_EXIT_DATA, "%s: row %u (rank %u): %s is missing", r->path, p->rank_of[stage] + 1,
               p->rank_of[stage], pen_action_format(text, missing, stage, microbatch));
    }
}

struct pen_csv *pen_csv_read(const char *path, const char *text, size_t bytes,
                             const struct pen_partition *partition, const char *placement) {
  uint32_t ranks = partition->rank_count;
  struct pen_order *order = pen_new(1, sizeof *order);
  *order = (struct pen_order){ranks, pen_new(ranks, sizeof *order->count),
                              pen_new(ranks, sizeof *order->action)};
  struct csv_reader r = {
      .path = path,
      .partition = partition,
      .placement = placement,
      .order = order,
      .column = pen_new(ranks, sizeof *r.column),
      .seen =
          pen_new((size_t)partition->stage_count * partition->microbatch_count, sizeof *r.seen)};
  read_rows(&r, text, bytes);
  check_complete(&r);
  struct pen_csv *csv = pen_new(1, sizeof *csv);
  *csv = (struct pen_csv){path, order, r.column};
  return csv;
}

/* ---- orders that cannot finish ---- */

/* The kinds, as bits, of the actions that can run; [stage * microbatches + microbatch]. */
static uint8_t *kinds_done(const struct pen_order *order, const struct pen_partition *p,
                           const uint32_t *done) {
  uint8_t *kinds = pen_new((size_t)p->stage_count * p->microbatch_count, sizeof *kinds);
  for (uint32_t rank = 0; rank < order->rank_count; rank++)
    for (uint32_t index = 0; index < done[rank]; index++) {
      const struct pen_compute *action = &order->action[rank][index];
      kinds[(size_t)action->stage * p->microbatch_count + action->microbatch] |=
          (uint8_t)(1 << action->kind);
    }
  return kinds;
}

struct dependency {
  const struct pen_partition *partition;
  const uint8_t *done, *seen; /* kinds_done() of what can run, and of the whole order */
};

/* Finds the first input of an action that is not done. False: all are done. */
static bool find_missing_input(const struct dependency *d, const struct pen_compute *action,
                               struct pen_compute *need) {
  size_t microbatches = d->partition->microbatch_count,
         own = action->stage * microbatches + action->microbatch;
  unsigned backward = 1 << PEN_B | 1 << PEN_I;
  *need = *action;
  if (action->kind == PEN_F) {
    need->stage--;
    return action->stage > 0 && !(d->done[own - microbatches] & 1 << PEN_F);
  }
  need->kind = action->kind == PEN_W ? PEN_I : PEN_F;
  if (!(d->done[own] & 1 << need->kind)) return true;
  if (action->kind == PEN_W || action->stage + 1u == d->partition->stage_count) return false;
  need->stage++;
  need->kind = d->seen[own + microbatches] & 1 << PEN_B ? PEN_B : PEN_I;
  return !(d->done[own + microbatches] & backward);
}

void pen_csv_fail_deadlock(const struct pen_csv *csv, const struct pen_partition *p,
                           const uint32_t *done) {
  const struct pen_order *order = csv->order;
  struct dependency d = {p, kinds_done(order, p, done), kinds_done(order, p, order->count)};
  uint32_t found = PEN_NONE;
  struct pen_compute need = {0}, other;
  /* Prefer a rank that waits for itself. */
  for (uint32_t rank = 0; rank < p->rank_count; rank++) {
    const struct pen_compute *action = &order->action[rank][done[rank]];
    if (done[rank] == order->count[rank]) continue;
    if (!find_missing_input(&d, action, &other) &&
        !(action->overlaps && find_missing_input(&d, action + 1, &other)))
      continue;
    if (found != PEN_NONE && (p->rank_of[need.stage] == found || p->rank_of[other.stage] != rank))
      continue;
    found = rank;
    need = other;
  }
  char text[32], needed[32];
  const struct pen_compute *action = &order->action[found][done[found]];
  uint32_t maker = p->rank_of[need.stage];
  pen_stop(PEN_EXIT_DATA,
           "%s: row %u (rank %u), column %u (%s): needs %s, which has not run by then: row %u "
           "stops at column %u",
           csv->path, found + 1, found, csv->column[found][done[found]],
           pen_action_format(text, action->kind, action->stage, action->microbatch),
           pen_action_format(needed, need.kind, need.stage, need.microbatch), maker + 1,
           csv->column[maker][done[maker]]);
}
