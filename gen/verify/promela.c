/* promela.c: --print=promela: one step of a plan's communication as a model in Promela, so that a
 * model checker can be asked whether verify_deadlock.c is right. SPIN (Holzmann, The SPIN Model
 * Checker, 2003) walks through every interleaving of the processes below and reports an "invalid
 * end state" where all are blocked and one is not at its end. No property of the system is used to
 * cut the search short; the verifier, by contrast, runs one interleaving and argues that any other
 * ends alike.
 *
 *   spin -DMODEL=1 -run FILE    one-sided puts with credits: a process a rank, rows in order
 *   spin -DMODEL=2 -run FILE    rendezvous: besides, a process for sends and one for receives of
 * each rank with each other rank spin -DMODEL=3 -run FILE    rendezvous: besides, one process a
 * rank for all its communication
 *
 * On top stands what the verifier says of each. In 2 and 3 a rank posts a communication row and
 * goes on; the lane meets the other rank's lane in a channel without buffer.
 *
 * Of several replicas one is modelled, which is said on top, too: all run the same rows, and the
 * rows of the exchange between them, of which exchange.c argues that they add no deadlock, are left
 * out. */
#include <stdio.h>
#include <inttypes.h>
#include <stdarg.h>

#include "gen/verify/promela.h"
#include "gen/verify/internal.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "runtime/plan/plan.h"
#include "gen/partition/partition.h"
#include "gen/lower/lower.h"
#include "gen/schedule/action_text.h"

enum { PROCESSES_MAX = 255 }; /* SPIN's */

struct model {
  FILE *out;
  const struct pen_checked *c;
  uint32_t *number[PEN_DIRECTIONS]; /* [pen_place() of its SEND] of the message */
  uint32_t message_count;
  size_t *hold_next; /* [rank] */
};

static bool talks(const struct pen_action *row) {
  return pen_is_send(row->kind) || pen_is_receive(row->kind);
}

/* The message that a row sends, receives, waits for or reads; PEN_NONE: none. */
static uint32_t message_of(const struct model *m, const struct pen_action *row) {
  struct pen_wanted wanted;
  if (!pen_message_of_action(m->c, row, &wanted)) return PEN_NONE;
  return m->number[wanted.way][pen_place(m->c, pen_direction_send[wanted.way], wanted.from_stage,
                                         row->microbatch)];
}

static uint32_t pair_of(const struct model *m, const struct pen_action *row) {
  struct pen_wanted wanted;
  pen_message_of_action(m->c, row, &wanted);
  return m->c->direction_pair[wanted.way][wanted.from_stage];
}

static void number_messages(struct model *m) {
  const struct pen_checked *c = m->c;
  for (int way = 0; way < PEN_DIRECTIONS; way++)
    m->number[way] =
        pen_new(pen_place(c, pen_direction_send[way], c->stage_count, 0), sizeof(uint32_t));
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    for (uint32_t index = 0; index < c->count[rank]; index++) {
      const struct pen_action *row = &c->row[rank][index];
      if (pen_is_send(row->kind))
        m->number[pen_direction_of(row->kind)]
                 [pen_place(c, row->kind, row->stage, row->microbatch)] = m->message_count++;
    }
}

/* ---- lines ---- */

__attribute__((format(printf, 3, 4))) static void line(const struct model *m,
                                                       const struct pen_action *row,
                                                       const char *format, ...) {
  char text[32];
  va_list list;
  fputs("  ", m->out);
  va_start(list, format);
  vfprintf(m->out, format, list);
  va_end(list);
  fprintf(m->out, "; /* %s */\n", pen_action_text(text, row->kind, row->stage, row->microbatch));
}

static void step_end(const struct model *m, const struct pen_action *row) {
  if (row->kind == PEN_PUBLISH) line(m, row, "published++");
  if (row->kind == PEN_WAIT_NORM) line(m, row, "published == %" PRIu32, m->c->rank_count);
}

/* ---- one-sided puts ---- */

static bool has_credit(const struct model *m, const struct pen_action *send) {
  const bool *credited = m->c->credited[pen_direction_of(send->kind)];
  return !credited || credited[pen_place(m->c, send->kind, send->stage, send->microbatch)];
}

static void put_row(const struct model *m, const struct pen_action *row) {
  uint32_t message = message_of(m, row);
  step_end(m, row);
  if (message == PEN_NONE) return;
  if (pen_is_receive(row->kind)) {
    line(m, row, "given[%" PRIu32 "] = true", message);
  } else if (pen_is_send(row->kind)) {
    if (has_credit(m, row)) line(m, row, "given[%" PRIu32 "]", message);
    line(m, row, "arrived[%" PRIu32 "] = true", message);
  } else {
    line(m, row, "arrived[%" PRIu32 "]", message);
  }
}

/* ---- rendezvous ---- */

static void rendezvous_row(struct model *m, uint32_t rank, uint32_t index) {
  const struct pen_checked *c = m->c;
  const struct pen_action *row = &c->row[rank][index];
  step_end(m, row);
  if (talks(row)) line(m, row, "posted[%" PRIu32 "]++", rank);
  bool reads = pen_is_compute(row->kind) || row->kind == PEN_WAIT_G || row->kind == PEN_WAIT_V;
  if (!reads && row->kind != PEN_UPDATE && row->kind != PEN_UNSHARD) return;
  if (reads && message_of(m, row) != PEN_NONE)
    line(m, row, "arrived[%" PRIu32 "]", message_of(m, row));
  size_t *next = &m->hold_next[rank];
  for (; c->hold && *next < c->hold_count[rank] && c->hold[rank][*next].row == index; (*next)++)
    line(m, row, "arrived[%" PRIu32 "]",
         message_of(m, &c->row[rank][c->hold[rank][*next].send_row]));
}

/* A lane: the rank's communication with one pair of ranks in one direction; with `pair` PEN_NONE,
 * all of it. */
static void write_lane(const struct model *m, uint32_t rank, uint32_t pair, bool receives) {
  const struct pen_checked *c = m->c;
  uint32_t posted = 0;
  if (pair == PEN_NONE)
    fprintf(m->out, "\nactive proctype lane_%" PRIu32 "() {\n", rank);
  else
    fprintf(m->out, "\nactive proctype lane_%" PRIu32 "_%s_%" PRIu32 "() {\n", rank,
            receives ? "from" : "to", receives ? c->pair[pair].from_rank : c->pair[pair].to_rank);
  for (uint32_t index = 0; index < c->count[rank]; index++) {
    const struct pen_action *row = &c->row[rank][index];
    if (!talks(row)) continue;
    posted++;
    if (pair != PEN_NONE && (pair_of(m, row) != pair || pen_is_receive(row->kind) != receives))
      continue;
    line(m, row, "posted[%" PRIu32 "] >= %" PRIu32, rank, posted);
    if (pen_is_send(row->kind))
      line(m, row, "pair_%" PRIu32 "!%" PRIu32, pair_of(m, row), message_of(m, row));
    else
      line(m, row, "atomic { pair_%" PRIu32 "?%" PRIu32 "; arrived[%" PRIu32 "] = true }",
           pair_of(m, row), message_of(m, row), message_of(m, row));
  }
  fputs("  skip\n}\n", m->out);
}

/* ---- the whole ---- */

static void write_ranks(struct model *m, bool puts) {
  for (uint32_t rank = 0; rank < m->c->rank_count; rank++) {
    fprintf(m->out, "\nactive proctype rank_%" PRIu32 "() {\n", rank);
    for (uint32_t index = 0; index < m->c->count[rank]; index++) {
      if (puts)
        put_row(m, &m->c->row[rank][index]);
      else
        rendezvous_row(m, rank, index);
    }
    fputs("  skip\n}\n", m->out);
  }
}

/* What the verifier says of the three models. */
static void write_verdicts(FILE *out, const struct pen_checked *c) {
  static const char *const models[] = {"one-sided puts with credits",
                                       "rendezvous, one lane a directed pair of ranks",
                                       "rendezvous, one lane a rank"};
  for (int model = 1; model <= 3; model++) {
    bool fine = model == 1 ? pen_check_puts(c) : pen_check_lanes(c, model == 3);
    fprintf(out, " *   %d  %s: %s\n", model, models[model - 1], fine ? "no deadlock" : "deadlock");
  }
}

static void write_model(FILE *out, const char *name, const struct pen_checked *c,
                        uint32_t replicas) {
  struct model m = {.out = out, .c = c, .hold_next = pen_new(c->rank_count, sizeof(size_t))};
  if (c->rank_count + 2 * (uint64_t)c->pair_count > PROCESSES_MAX)
    pen_stop(PEN_EXIT_TOPOLOGY,
             "%s: --print=promela is for small plans: SPIN has at most %d processes, this model "
             "%" PRIu64,
             name, PROCESSES_MAX, c->rank_count + 2 * (uint64_t)c->pair_count);
  number_messages(&m);
  fprintf(out,
          "/* %s: its communication, one step, for SPIN. spin -DMODEL=N -run FILE finds an invalid "
          "end state where there is a deadlock.\n"
          " * N, and what our verifier says:\n",
          name);
  write_verdicts(out, c);
  if (replicas > 1)
    fprintf(out,
            " * One of %" PRIu32
            " replicas is modelled: they run the same rows. Those of the exchange between them are "
            "left out.\n",
            replicas);
  fprintf(out,
          " */\n#ifndef MODEL\n#define MODEL 1\n#endif\n\nbit arrived[%" PRIu32
          "];\nbyte published;\n",
          m.message_count + 1);
  fprintf(out, "\n#if MODEL == 1\n\nbit given[%" PRIu32 "];\n", m.message_count + 1);
  write_ranks(&m, true);
  fprintf(out, "\n#else\n\nshort posted[%" PRIu32 "];\n", c->rank_count);
  for (uint32_t pair = 0; pair < c->pair_count; pair++)
    fprintf(out, "chan pair_%" PRIu32 " = [0] of { int };\n", pair);
  write_ranks(&m, false);
  fputs("\n#if MODEL == 2\n", out);
  for (uint32_t pair = 0; pair < c->pair_count; pair++) {
    write_lane(&m, c->pair[pair].from_rank, pair, false);
    write_lane(&m, c->pair[pair].to_rank, pair, true);
  }
  fputs("\n#else\n", out);
  for (uint32_t rank = 0; rank < c->rank_count; rank++) write_lane(&m, rank, PEN_NONE, false);
  fputs("\n#endif\n#endif\n", out);
}

void pen_promela(FILE *out, const struct pen_plan *plan) {
  struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
  struct pen_checked checked;
  if (!pen_verify_before_deadlock(plan, &plan->profiles[0], &problem, &checked))
    pen_stop(70, "penstock-gen: this is our bug: %s", problem.reason);
  write_model(out, plan->name, &checked, plan->replica_count);
}

bool pen_promela_actions(FILE *out, const char *name, const struct pen_lowered *rows,
                         const struct pen_partition *partition, int profile_kind) {
  struct pen_problem problem;
  struct pen_checked checked;
  if (!pen_verify_order(rows->action, rows->count, partition, profile_kind, &problem, &checked))
    return false;
  if (out) write_model(out, name, &checked, partition->replica_count);
  return true;
}
