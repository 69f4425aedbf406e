/* internal.h: what the parts of the verifier share. They use plan.h and the .def lists alone, and
 * nothing that the other passes made.
 *
 *   verify.c           the two entries, and the parts in order
 *   verify_rows.c      one rank's rows by themselves, then against the others: completeness, order,
 * matching verify_deadlock.c  the three models of communication verify_tables.c    programs, ops,
 * tensors, messages, channels: each entry by itself verify_persistent.c what persists, and which
 * tensor lies on which weight verify_tie.c       the rows, the places and the messages of a tied
 * matrix verify_trace.c     one program in one frame: what it reads from outside and what it leaves
 * behind verify_arrivals.c  from when on each message may come verify_memory.c    every byte of
 * every arena over two steps verify_replicas.c  the rows of the exchange between replicas
 *   verify_profiles.c  a step of one profile behind a step of another
 *   verify_step.c      what a device with memory of its own is fed
 */
#ifndef PEN_VERIFY_INTERNAL_H
#define PEN_VERIFY_INTERNAL_H

#include <stdio.h>

#include "gen/verify/verify.h"
#include "runtime/plan/plan.h"

struct pen_partition; /* gen/partition/partition.h */

enum {
  PEN_MICROBATCH_KINDS = PEN_NORM
}; /* the kinds that have a stage and a microbatch: F ... WAIT_B */

struct pen_pair {
  uint32_t from_rank, to_rank;
};

/* A compute row that must not start before an earlier SEND row of its rank has ended: it overwrites
 * what the send reads. */
struct pen_hold {
  uint32_t row, send_row;
};

/* The ends of the message that a row sends, receives, waits for or, if it computes, needs. */
struct pen_ends {
  uint32_t pair;                  /* PEN_NONE: there is no such message */
  uint32_t send_row, receive_row; /* on the ranks of the pair */
};

/* What messages carry: what F and what B hands on; the gradient of a tied matrix's head, and its
 * copy. */
enum pen_direction {
  PEN_DIRECTION_FORWARD,
  PEN_DIRECTION_BACKWARD,
  PEN_DIRECTION_TIED_GRADIENT,
  PEN_DIRECTION_TIED_WEIGHT,
  PEN_DIRECTIONS
};

/* The rows of one profile, taken apart. */
struct pen_checked {
  struct pen_problem *problem;
  const struct pen_action *const *row; /* [rank][count] */
  const uint32_t *count, *rank_of;
  uint32_t rank_count, stage_count, microbatch_count;
  int profile_kind;
  bool finished; /* a finished plan: waits and the step's end must be there */
  bool joins;    /* finished: a tied matrix learns */
  uint32_t
      *place[PEN_MICROBATCH_KINDS]; /* [pen_place()]: row + 1, on the rank of the stage; 0: none */
  /* Directed pairs of ranks that share a border of stages, or a tied matrix; which pair each
   * message uses. */
  struct pen_pair *pair;
  uint32_t pair_count;
  uint32_t *direction_pair[PEN_DIRECTIONS]; /* [sending stage]; PEN_NONE: same rank, or no reader */
  struct pen_ends **ends;                   /* [rank][row] */
  /* For the rendezvous models; null where unknown. Sorted by row. */
  struct pen_hold **hold; /* [rank] */
  size_t *hold_count;
  const bool
      *credited[PEN_DIRECTIONS]; /* [pen_place() of its SEND]; null: every message has a credit */
};

/* Notes the problem and returns false. */
bool pen_problem_note(struct pen_problem *problem, uint32_t rank, uint32_t action,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));

static inline size_t pen_stage_microbatch(const struct pen_checked *c, uint32_t stage,
                                          uint32_t microbatch) {
  return (size_t)stage * c->microbatch_count + microbatch;
}

/* Where place[kind] has a stage and microbatch: the rows of a tied matrix stand once a step. */
static inline bool pen_is_of_tie(int kind) { return kind >= PEN_SEND_G && kind <= PEN_WAIT_V; }
static inline size_t pen_place(const struct pen_checked *c, int kind, uint32_t stage,
                               uint32_t microbatch) {
  return pen_is_of_tie(kind) ? stage : pen_stage_microbatch(c, stage, microbatch);
}

/* The row of a kind on the rank of `stage`, or PEN_NONE. */
static inline uint32_t pen_action_index(const struct pen_checked *c, int kind, uint32_t stage,
                                        uint32_t microbatch) {
  return c->place[kind][pen_place(c, kind, stage, microbatch)] - 1;
}

/* The row of a stage's B, or of its I; PEN_NONE when it has neither. */
static inline uint32_t pen_backward_index(const struct pen_checked *c, uint32_t stage,
                                          uint32_t microbatch) {
  uint32_t row = pen_action_index(c, PEN_B, stage, microbatch);
  return row != PEN_NONE ? row : pen_action_index(c, PEN_I, stage, microbatch);
}

/* Does a message that `stage` makes go to another rank, and to which stage? */
static inline bool pen_crosses(const struct pen_checked *c, enum pen_direction way,
                               uint32_t stage) {
  return c->direction_pair[way][stage] != PEN_NONE;
}
static inline uint32_t pen_reader(const struct pen_checked *c, enum pen_direction way,
                                  uint32_t stage) {
  return way == PEN_DIRECTION_FORWARD    ? stage + 1
         : way == PEN_DIRECTION_BACKWARD ? stage - 1
                                         : c->stage_count - 1 - stage;
}

/* The rows of each way, and back. */
extern const uint8_t pen_direction_send[PEN_DIRECTIONS], pen_direction_receive[PEN_DIRECTIONS],
    pen_direction_wait[PEN_DIRECTIONS];
static inline enum pen_direction pen_direction_of(int send_kind) {
  return send_kind == PEN_SEND_F   ? PEN_DIRECTION_FORWARD
         : send_kind == PEN_SEND_B ? PEN_DIRECTION_BACKWARD
         : send_kind == PEN_SEND_G ? PEN_DIRECTION_TIED_GRADIENT
                                   : PEN_DIRECTION_TIED_WEIGHT;
}

/* The message that a row sends, receives, waits for or, if it computes, needs: its sending stage.
 * False when it has none. */
struct pen_wanted {
  enum pen_direction way;
  uint32_t from_stage, to_stage;
};
bool pen_message_of_action(const struct pen_checked *c, const struct pen_action *row,
                           struct pen_wanted *wanted);

static inline bool pen_is_compute(int kind) { return kind <= PEN_W; }
static inline bool pen_is_send(int kind) { return pen_kind_sends(kind); }
static inline bool pen_is_receive(int kind) { return pen_kind_receives(kind); }
static inline bool pen_is_wait(int kind) { return pen_kind_waits(kind); }

/* ---- the parts: each returns true, or notes the first problem ---- */

bool pen_check_actions(struct pen_checked *c);
/* Model (a) alone, then (b) and (c). */
bool pen_check_puts(const struct pen_checked *c);
bool pen_check_rendezvous(const struct pen_checked *c);
bool pen_check_lanes(const struct pen_checked *c, bool one_lane_a_rank);

/* What a persistent tensor is, found by its address. */
enum pen_use { PEN_USE_LOCAL, PEN_USE_WEIGHT, PEN_USE_GRADIENT, PEN_USE_CONSTANT };

/* One rank of one profile while its tables and bytes are checked. */
struct pen_rank_context {
  const struct pen_checked *checked;
  const struct pen_plan *plan;
  const struct pen_profile *profile;
  const struct pen_rank_program *tables;
  const struct pen_rank_memory *memory;
  uint32_t rank;
  const uint32_t *own_weight;   /* [own_weight_count]: the rank's among the plan's weights */
  const uint32_t *weight_place; /* [plan's weight]: its place among its rank's */
  uint32_t own_weight_count;
  uint8_t *use;     /* [tensor] enum pen_use */
  uint32_t *weight; /* [tensor] index into the plan's weights, or PEN_NONE; a head's gradient:
                       weight_count + its tie's */
  bool *received;   /* [tensor] comes by message */
  uint32_t
      *same_as; /* [tensor] the neighbour's tensor on this rank that is the same value, or itself */
};

/* ---- verify_persistent.c ---- */

/* Weights, gradients, moments, losses and constants of a rank lie in the persistent part and apart
 * from each other. */
bool pen_check_persistent(const struct pen_rank_context *b);
/* Finds what each persistent tensor lies on: fills `use` and `weight`; their bases were checked. */
bool pen_find_weights(struct pen_rank_context *b);
/* What a weight's gradient, or a head's, is called. */
const char *pen_gradient_name(const struct pen_plan *plan, uint32_t weight);

bool pen_check_tables(const struct pen_checked *c, const struct pen_plan *plan,
                      const struct pen_profile *profile, struct pen_rank_context *bench);

/* One rank's rows of the exchange between replicas. */
bool pen_check_replicas(const struct pen_rank_context *bench);

/* A range of bytes that holds a tensor. `first`, `past`: arena offsets; verify_memory.c turns them
 * into cells. */
struct pen_extent {
  uint64_t first, past;
  uint32_t tensor; /* PEN_NONE: what no other row may read */
  uint8_t base;    /* enum pen_base: what its address counts from */
};

/* A program's operands that count from one base and are received, or are not: from the first byte
 * to behind the last, counted from the base. */
struct pen_operand_block {
  uint64_t first, past;
  uint8_t base;
  bool received;
};

/* What one program does in one frame, seen from outside: places in the tracer's lists. */
struct pen_trace {
  uint32_t read_first, read_count; /* extents that it reads from outside */
  uint32_t left_first, left_count; /* what its bytes hold afterwards */
  uint32_t weight_first,
      weight_count;     /* the weights whose gradients it adds to, once for each time */
  uint64_t loss_offset; /* where it leaves the loss; UINT64_MAX: nowhere */
};

struct pen_cached_trace; /* what tracing a program in one frame has found, to be moved into others
                          */

/* The traces of one program. */
struct pen_cached_traces {
  bool known;                      /* the blocks are */
  struct pen_operand_block *block; /* those that lie in the window or the activation part */
  size_t block_count;
  struct pen_cached_trace *first;
  uint32_t count;
};

/* One rank's traces, and what tracing needs. */
struct pen_tracer {
  const struct pen_rank_context *bench;
  struct pen_extent *extent;
  uint32_t *weight;
  size_t extent_count, extent_capacity, weight_count, weight_capacity;
  struct pen_extent *map; /* bytes that the program at hand has written, apart, by rising address */
  size_t map_count, map_capacity;
  uint32_t *written, *read, run;    /* [tensor] == run: by the program at hand */
  struct pen_cached_traces *moulds; /* [program] */
};

/* Empties a tracer for another rank; keeps its memory. */
void pen_tracer_start(struct pen_tracer *tracer, const struct pen_rank_context *bench);
/* Runs the program of a compute row over its frame. */
bool pen_trace_action(struct pen_tracer *tracer, uint32_t row, struct pen_trace *trace);
/* The ops that make the constants, once before the first step. */
bool pen_trace_start(struct pen_tracer *tracer);

/* Sets begin[step][message]: how many rows of the receiver, counted over two steps, are done before
 * the message may come. */
void pen_find_arrivals(const struct pen_checked *c, const struct pen_profile *profile,
                       uint32_t *const begin[2]);

/* Two steps of all ranks; fills the holds of `c`. `bench` is [rank]. */
bool pen_check_memory(struct pen_checked *c, const struct pen_rank_context *bench);

/* What profiles share; each by itself was checked. */
bool pen_check_profiles(const struct pen_plan *plan, struct pen_problem *problem);

/* Of a finished plan: the rows of a tied matrix against the others; then the places of its tensors;
 * its messages. */
bool pen_check_tie_actions(const struct pen_checked *c);
bool pen_check_ties(const struct pen_checked *c, const struct pen_plan *plan);
bool pen_check_tie_message(const struct pen_checked *c, const struct pen_plan *plan,
                           const struct pen_profile *profile, uint32_t rank, uint32_t row);
bool pen_check_join(const struct pen_checked *c, const struct pen_plan *plan,
                    const struct pen_profile *profile, uint32_t rank, uint32_t row);
/* Whether a tied matrix of the plan learns in a profile. */
bool pen_plan_joins(const struct pen_plan *plan, int profile_kind);
/* The step parts of all arenas; ops were checked. */
bool pen_check_device_control(const struct pen_plan *plan, struct pen_problem *problem);

/* ---- parts of the two entries, for promela.c ---- */

/* Bare rows, but for deadlock: fills `checked`. */
bool pen_verify_order(struct pen_action *const *action, const uint32_t *count,
                      const struct pen_partition *partition, int profile_kind,
                      struct pen_problem *problem, struct pen_checked *checked);
/* One profile of a finished plan, but for deadlock. */
bool pen_verify_before_deadlock(const struct pen_plan *plan, const struct pen_profile *profile,
                                struct pen_problem *problem, struct pen_checked *checked);

#endif
