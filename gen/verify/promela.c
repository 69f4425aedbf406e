/* promela.c: --print=promela: one step of a plan's communication as a model in Promela, so that a
 * model checker can confirm the results of deadlock.c. SPIN (Holzmann, The SPIN Model Checker,
 * 2003) explores every interleaving of the processes below and reports an "invalid end state" where
 * all are blocked and one is not at its end. The model uses no property of the system to shorten
 * the search; the verifier runs one interleaving and argues that any other ends alike.
 *
 *   spin -DMODEL=1 -run FILE    one-sided puts with credits: a process a rank, actions in order
 *   spin -DMODEL=2 -run FILE    rendezvous: also a process for sends and one for receives of each
 *                               rank with each other rank
 *   spin -DMODEL=3 -run FILE    rendezvous: also one process a rank for all its communication
 *
 * The first lines give the verifier's result for each. In 2 and 3 a rank posts a communication
 * action and continues; the lane meets the lane of the other rank in a channel without buffer.
 *
 * Of several replicas one is modelled, which the first lines say, too: all run the same actions,
 * and the data-parallel collectives, which add no deadlock (replicas.c), are left out. */
#include <stdio.h>
#include <inttypes.h>
#include <stdarg.h>

#include "gen/verify/promela.h"
#include "gen/verify/internal.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/base/escape.h"
#include "runtime/plan/plan.h"

enum { PROCESSES_MAX = 255 }; /* SPIN's */

struct promela_model {
  FILE *out;
  const struct pen_check_context *c;
  uint32_t *number[PEN_DIRECTIONS]; /* [pen_action_key() of its SEND] of the message */
  uint32_t message_count;
  size_t *hazard_next; /* [rank] */
};

static bool has_message(const struct pen_action *action) {
  return pen_is_send(action->kind) || pen_is_receive(action->kind);
}

/* The message that a action sends, receives, waits for or reads; PEN_NONE: none. */
static uint32_t message_number(const struct promela_model *m, const struct pen_action *action) {
  struct pen_message_key key;
  if (!pen_message_of_action(m->c, action, &key)) return PEN_NONE;
  return m->number[key.direction][pen_action_key(m->c, pen_direction_send[key.direction],
                                                 key.from_stage, action->microbatch)];
}

static uint32_t pair_of(const struct promela_model *m, const struct pen_action *action) {
  struct pen_message_key key;
  pen_message_of_action(m->c, action, &key);
  return m->c->direction_pair[key.direction][key.from_stage];
}

static void number_messages(struct promela_model *m) {
  const struct pen_check_context *c = m->c;
  for (int direction = 0; direction < PEN_DIRECTIONS; direction++)
    m->number[direction] = pen_new(
        pen_action_key(c, pen_direction_send[direction], c->stage_count, 0), sizeof(uint32_t));
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    for (uint32_t index = 0; index < c->count[rank]; index++) {
      const struct pen_action *action = &c->action[rank][index];
      if (pen_is_send(action->kind))
        m->number[pen_direction_of(action->kind)][pen_action_key(
            c, action->kind, action->stage, action->microbatch)] = m->message_count++;
    }
}

/* ---- lines ---- */

/* A statement, with the action that it comes from. */
__attribute__((format(printf, 3, 4))) static void write_statement(const struct promela_model *m,
                                                                  const struct pen_action *action,
                                                                  const char *format, ...) {
  char text[32];
  va_list list;
  fputs("  ", m->out);
  va_start(list, format);
  vfprintf(m->out, format, list);
  va_end(list);
  fprintf(m->out, "; /* %s */\n", pen_problem_action(text, action));
}

static void write_step_end(const struct promela_model *m, const struct pen_action *action) {
  if (action->kind == PEN_PUBLISH) write_statement(m, action, "published++");
  if (action->kind == PEN_WAIT_NORM)
    write_statement(m, action, "published == %" PRIu32, m->c->rank_count);
}

/* ---- one-sided puts ---- */

static bool has_credit(const struct promela_model *m, const struct pen_action *send) {
  const bool *credited = m->c->credited[pen_direction_of(send->kind)];
  return !credited || credited[pen_action_key(m->c, send->kind, send->stage, send->microbatch)];
}

static void write_put_action(const struct promela_model *m, const struct pen_action *action) {
  uint32_t message = message_number(m, action);
  write_step_end(m, action);
  if (message == PEN_NONE) return;
  if (pen_is_receive(action->kind)) {
    write_statement(m, action, "given[%" PRIu32 "] = true", message);
  } else if (pen_is_send(action->kind)) {
    if (has_credit(m, action)) write_statement(m, action, "given[%" PRIu32 "]", message);
    write_statement(m, action, "arrived[%" PRIu32 "] = true", message);
  } else {
    write_statement(m, action, "arrived[%" PRIu32 "]", message);
  }
}

/* ---- rendezvous ---- */

static void write_rendezvous_action(struct promela_model *m, uint32_t rank, uint32_t index) {
  const struct pen_check_context *c = m->c;
  const struct pen_action *action = &c->action[rank][index];
  write_step_end(m, action);
  if (has_message(action)) write_statement(m, action, "posted[%" PRIu32 "]++", rank);
  bool reads =
      pen_is_compute(action->kind) || action->kind == PEN_WAIT_G || action->kind == PEN_WAIT_V;
  if (!reads && action->kind != PEN_UPDATE && action->kind != PEN_UNSHARD) return;
  if (reads && message_number(m, action) != PEN_NONE)
    write_statement(m, action, "arrived[%" PRIu32 "]", message_number(m, action));
  size_t *next = &m->hazard_next[rank];
  for (; c->hazard && *next < c->hazard_count[rank] && c->hazard[rank][*next].action == index;
       (*next)++)
    write_statement(m, action, "arrived[%" PRIu32 "]",
                    message_number(m, &c->action[rank][c->hazard[rank][*next].send_action]));
}

/* A lane: the communication of a rank with one pair of ranks in one direction; with `pair`
 * PEN_NONE, all of it. */
static void write_lane(const struct promela_model *m, uint32_t rank, uint32_t pair, bool receives) {
  const struct pen_check_context *c = m->c;
  uint32_t posted = 0;
  if (pair == PEN_NONE)
    fprintf(m->out, "\nactive proctype lane_%" PRIu32 "() {\n", rank);
  else
    fprintf(m->out, "\nactive proctype lane_%" PRIu32 "_%s_%" PRIu32 "() {\n", rank,
            receives ? "from" : "to", receives ? c->pair[pair].from_rank : c->pair[pair].to_rank);
  for (uint32_t index = 0; index < c->count[rank]; index++) {
    const struct pen_action *action = &c->action[rank][index];
    if (!has_message(action)) continue;
    posted++;
    if (pair != PEN_NONE &&
        (pair_of(m, action) != pair || pen_is_receive(action->kind) != receives))
      continue;
    write_statement(m, action, "posted[%" PRIu32 "] >= %" PRIu32, rank, posted);
    if (pen_is_send(action->kind))
      write_statement(m, action, "pair_%" PRIu32 "!%" PRIu32, pair_of(m, action),
                      message_number(m, action));
    else
      write_statement(m, action,
                      "atomic { pair_%" PRIu32 "?%" PRIu32 "; arrived[%" PRIu32 "] = true }",
                      pair_of(m, action), message_number(m, action), message_number(m, action));
  }
  fputs("  skip\n}\n", m->out);
}

/* ---- the model ---- */

static void write_ranks(struct promela_model *m, bool puts) {
  for (uint32_t rank = 0; rank < m->c->rank_count; rank++) {
    fprintf(m->out, "\nactive proctype rank_%" PRIu32 "() {\n", rank);
    for (uint32_t index = 0; index < m->c->count[rank]; index++) {
      if (puts)
        write_put_action(m, &m->c->action[rank][index]);
      else
        write_rendezvous_action(m, rank, index);
    }
    fputs("  skip\n}\n", m->out);
  }
}

/* The results of the verifier for the three models. */
static void write_verdicts(FILE *out, const struct pen_check_context *c) {
  static const char *const models[] = {"one-sided puts with credits",
                                       "rendezvous, one lane a directed pair of ranks",
                                       "rendezvous, one lane a rank"};
  for (int model = 1; model <= 3; model++) {
    bool passes = model == 1 ? pen_check_puts(c) : pen_check_lanes(c, model == 3);
    fprintf(out, " *   %d  %s: %s\n", model, models[model - 1],
            passes ? "no deadlock" : "deadlock");
  }
}

static void write_promela_model(FILE *out, const char *name, const struct pen_check_context *c,
                                uint32_t replicas) {
  struct promela_model m = {
      .out = out, .c = c, .hazard_next = pen_new(c->rank_count, sizeof(size_t))};
  if (c->rank_count + 2 * (uint64_t)c->pair_count > PROCESSES_MAX)
    pen_stop(PEN_EXIT_TOPOLOGY,
             "%s: pipeline.ranks, pipeline.stages_per_rank: --print=promela is for small plans: "
             "SPIN has "
             "at most %d processes, this model %" PRIu64,
             name, PROCESSES_MAX, c->rank_count + 2 * (uint64_t)c->pair_count);
  number_messages(&m);
  fprintf(out,
          "/* %s: its communication, one step, for SPIN. spin -DMODEL=N -run FILE finds an invalid "
          "end state where there is a deadlock.\n"
          " * N, and the result of the verifier:\n",
          pen_comment_text(name));
  write_verdicts(out, c);
  if (replicas > 1)
    fprintf(out,
            " * One of %" PRIu32
            " replicas is modelled: they run the same actions. Their data-parallel collectives are "
            "left "
            "out.\n",
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
  struct pen_check_context checked;
  if (!pen_check_profile(plan, &plan->profiles[0], &problem, &checked))
    pen_stop(PEN_EXIT_INTERNAL, "penstock-gen: internal error: %s", problem.reason);
  write_promela_model(out, plan->name, &checked, pen_group_size(plan, PEN_DATA));
}

bool pen_promela_actions(FILE *out, const char *name, const struct pen_action_lists *lists,
                         uint32_t replicas) {
  struct pen_problem problem;
  struct pen_check_context checked;
  if (!pen_check_lists(lists, &problem, &checked)) return false;
  if (out) write_promela_model(out, name, &checked, replicas);
  return true;
}
