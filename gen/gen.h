/* gen.h: the generator's passes and what flows between them. Each pass is one file and one pure
 * function:
 *
 *   topology   file + overrides           -> struct pen_topology (settled settings)
 * gen/topology/read.c partition  topology, family's blocks  -> blocks over stages, stages over
 * ranks           gen/partition/partition.c, gen/partition/balance.c model      topology, a stage's
 * blocks -> forward ops and tensors of the stage            gen/model/builder.c, gen/families/
 *   shapes     topology, partition        -> named tensors at every border of stages
 * gen/model/tensor_shapes.c derive     forward ops                -> programs F, I, W, B, eval's F;
 * tensors' lives   gen/model/backward.c compose    topology, placement        -> compute order of
 * every rank                     gen/schedule/compose.c, gen/schedules/ simulate   order, costs ->
 * when each action starts and ends                gen/timing/simulate.c exchange   order, costs,
 * timing       -> where replicas sum their gradients, and when    gen/timing/gradient_exchange.c,
 * gen/timing/replica_step.c lower      order, timing, exchange    -> rows: with sends, receives,
 * waits, step's end   gen/lower/lower.c generation topology, partition        -> rows and programs
 * of single windows, for generate gen/lower/generate_profiles.c layout     rows, programs -> slots,
 * credits, offsets: a struct pen_plan      gen/layout/layout.c verify     the finished plan ->
 * nothing, or the first thing wrong with it       gen/verify/verify.c emit       plan, timing -> C
 * tables, or any picture of them                gen/emit/plan_c.c, gen/output.c
 *
 * Memory: everything lives until the generator ends; pen_new() zeroes, and fails rather than return
 * null.
 */
#ifndef PEN_GEN_H
#define PEN_GEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

#define PEN_VERSION_TEXT "0.1"

/* Exit statuses of design.md section 10. */
enum {
  PEN_EXIT_USAGE = 64,
  PEN_EXIT_DATA = 65,
  PEN_EXIT_NO_INPUT = 66,
  PEN_EXIT_CREATE = 73,
  PEN_EXIT_WRITE = 74,
  PEN_EXIT_TOPOLOGY = 78
};

/* ---- memory.c ---- */
void *pen_new(size_t count, size_t bytes); /* zeroed; count*bytes checked */
void *pen_grow_to(void *array, size_t *capacity, size_t needed,
                  size_t bytes); /* doubles; new part zeroed */
static inline void *pen_grow(void *array, size_t *capacity, size_t needed, size_t bytes) {
  return needed <= *capacity ? array : pen_grow_to(array, capacity, needed, bytes);
}
char *pen_text(const char *format, ...)
    __attribute__((format(printf, 1,
                          2))); /* until pen_free_all(): neither to be freed nor to grow */
void pen_free(void *array);     /* early: for what is large and needed no more; null is fine */
void pen_free_all(void);
bool pen_ends_in(const char *text, const char *ending, size_t ending_bytes);
char *pen_hex(const uint8_t *bytes, size_t count); /* two small digits a byte */
/* Ends the generator: prints the message alone on a line of standard error. */
_Noreturn void pen_stop(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- sort.c ---- */

struct pen_keyed {
  uint64_t key;
  uint32_t index;
};

/* By rising key; equal ones keep their order. */
void pen_sort(struct pen_keyed *list, size_t count);

/* ---- partition.c ---- */

/* What a stage holds: blocks [first, past) of the model's, and the layers that begin in it. */
struct pen_span {
  uint32_t first_layer, past_last_layer;
  uint32_t first_block, past_last_block;
};

struct pen_family;      /* gen/families/families.h */
struct pen_model_block; /* there too */

struct pen_partition {
  uint32_t rank_count, stage_count, stages_per_rank, microbatch_count;
  uint32_t replica_count;     /* 0 counts as 1 */
  enum pen_sharding sharding; /* NONE where there is one replica, or nothing to share out */
  struct pen_span *span;      /* [stage_count] */
  uint32_t *rank_of;          /* [stage_count] */
  const struct pen_family *family;
  bool reshards_each_use; /* data_parallel.reshard */
  bool *weights_in_w; /* [stage]: its W reads weights that UNSHARD brings together, too; null until
                         the programs are known: none does */
  bool joins;   /* a tied matrix learns: the head's gradient is added to the embedding's once a step
                   (struct pen_tie) */
  bool gathers; /* no rank takes the optimizer's step before all have published their norms
                   (clip_norm) */
  const struct pen_model_block *block; /* all of the model's, in order */
  uint32_t block_count;
};

/* Loop: stage s on rank s mod ranks. V: stage s on rank s for s < ranks, else on 2*ranks-1-s (two
 * stages a rank; more: the zigzag goes on). Fails (78) when a stage would be left with nothing, or
 * a list does not fit. */
struct pen_partition *pen_partition(const struct pen_topology *topology);

/* The same with the blocks of a family that is perhaps not in the table. */
struct pen_partition *pen_partition_of(const struct pen_topology *topology,
                                       const struct pen_family *family);

/* Sets rank_of anew; what a stage holds does not depend on it. */
void pen_partition_place(struct pen_partition *partition, bool zigzag);

/* The stages of every rank, rising: [rank * stages_per_rank + local stage]. */
uint32_t *pen_partition_stages(const struct pen_partition *partition);

/* ---- model.c, derive.c: see model.h ---- */
struct pen_model;
struct pen_stage_programs;

/* ---- compose.c ---- */

/* One compute action; `overlaps` says that it forms a pair a|b with the action after it. */
struct pen_compute {
  uint8_t kind; /* PEN_F, PEN_B, PEN_I, PEN_W */
  bool overlaps;
  uint16_t stage;
  uint32_t microbatch;
};

struct pen_order {
  uint32_t rank_count;
  uint32_t *count;             /* [rank_count] */
  struct pen_compute **action; /* [rank_count][count] */
};

/* The compute order of the topology's schedule, by the rule of its row in schedules.def. Fails (78)
 * when the settings do not suit the schedule, saying which number must divide, exceed or equal
 * which. */
struct pen_order *pen_compose(const struct pen_topology *topology,
                              const struct pen_partition *partition);

/* Whether any two of its actions are a pair a|b. */
bool pen_order_has_pair(const struct pen_order *order);

/* Forward only: what eval runs on the same placement. */
struct pen_order *pen_compose_forward(const struct pen_partition *partition);

/* ---- simulate.c ---- */

/* Seconds, or whatever unit the file's costs are in, of one action of one stage. */
struct pen_stage_cost {
  double forward, backward_input, backward_weight;
  double send;   /* from the end of the action to the message's arrival at the other rank */
  double shared; /* what I and W both do when they are apart, and a fused B once; no more than
                    backward_weight */
};

/* What a fused B costs. */
static inline double pen_backward_cost(const struct pen_stage_cost *cost) {
  return cost->backward_input + cost->backward_weight - cost->shared;
}

struct pen_collectives;
struct pen_collective_cost;
struct pen_timing {
  bool complete;         /* false: the order can never finish; times of unreached actions are NaN */
  double **start, **end; /* [rank][compute action] */
  uint64_t **turn;    /* [rank][compute action]: place in one global order in which everything could
                         run one by one */
  double makespan;    /* end of the step (pen_tied_weight_tail) - first start over all ranks */
  double span;        /* greatest over ranks of last end - first start */
  double work;        /* the busiest rank's */
  double bubble;      /* (span-work)/span */
  double lower_bound; /* no order of these actions on this placement has a smaller makespan */
  double gap;         /* (makespan-lower_bound)/lower_bound */
  double *busy, *idle; /* [rank]; busy with F, I, W and B; idle = makespan - busy - exchanging */
  double *exchanging;  /* [rank]: in rows of the exchange between replicas; all 0 unless `whole` is
                          there */
  /* A step of replicas (step_timing.c): the rows of their exchange, and the same run with these
   * among the actions. Null: none. */
  const struct pen_collectives *exchange;
  const struct pen_order *whole_order;
  const struct pen_timing *whole;
  double exposed; /* how much shorter the makespan would be without the exchange */
};

/* Runs each rank's list in order: an action starts when its rank is free and what it needs has come
 * (F of s: F of s-1; B, I of s: B or I of s+1, and the own F; W: the own I). What comes from
 * another rank comes `send` of the producing stage later. A pair a|b takes overlap (or, with
 * overlap_cost < 0, the sum) and both end together. */
struct pen_timing *pen_simulate(const struct pen_order *order,
                                const struct pen_partition *partition,
                                const struct pen_stage_cost *cost, double overlap_cost);

/* The same but for the lower bound, of lists that hold rows of the exchange between replicas, too:
 * such a row starts when its rank is free. It finds its peers where it is itself, for all replicas
 * run alike. */
struct pen_timing *pen_simulate_collectives(const struct pen_order *order,
                                            const struct pen_partition *partition,
                                            const struct pen_stage_cost *cost,
                                            const struct pen_collective_cost *exchange_cost,
                                            double overlap_cost);

/* ---- step_end.c ---- */

/* [rank]: from the end of its last action until a training step is over, whatever the others do. */
double *pen_tied_weight_tail(const struct pen_partition *partition,
                             const struct pen_stage_cost *cost);

/* ---- exchange.c ---- */

/* What the exchange of a stage's gradients takes on its rank, in the unit of struct pen_stage_cost.
 */
struct pen_collective_cost {
  double reduce; /* REDUCE_SCATTER: add up the own shards of all replicas */
  double gather; /* ALL_GATHER_GRAD, ALL_GATHER_WEIGHT, UNSHARD: copy the shards of the others */
};

/* A row of the exchange between replicas, and before which compute action of its rank it stands;
 * past the last: behind all. */
#define PEN_AFTER_TIED_GRAD (PEN_NONE - 1)
#define PEN_AFTER_UPDATE PEN_NONE
struct pen_collective {
  uint32_t before; /* or one of these */
  uint8_t kind;
  uint16_t stage;
};

/* Those rows of every rank, in order. */
struct pen_collectives {
  uint32_t *count;             /* [rank] */
  struct pen_collective **row; /* [rank][count] */
};

/* Where sums and copies stand: in pauses that are long enough, in the first pause, behind all
 * actions (exchange.c). */
enum pen_collectives_rule {
  PEN_COLLECTIVES_FITTING,
  PEN_COLLECTIVES_FIRST,
  PEN_COLLECTIVES_LAST,
  PEN_COLLECTIVES_RULES
};

/* Where the replicas' gradients are summed. `timing` is that of the actions alone, `cost` [stage];
 * LAST wants neither. Null with one replica, and where nothing is trained. */
struct pen_collectives *pen_collectives_of(const struct pen_order *order,
                                           const struct pen_partition *partition,
                                           const struct pen_timing *timing,
                                           const struct pen_collective_cost *cost,
                                           enum pen_collectives_rule rule, int profile_kind);

/* ---- step_timing.c ---- */

/* pen_simulate(), and with replicas the exchange between them: by whatever rule the step is
 * shortest; `given`: by LAST. */
struct pen_timing *pen_simulate_step(const struct pen_order *order,
                                     const struct pen_partition *partition,
                                     const struct pen_stage_cost *cost,
                                     const struct pen_collective_cost *exchange_cost,
                                     double overlap_cost, int profile_kind, bool given);

/* ---- lower.c ---- */

/* Rows of every rank without frames, messages without places and credits. */
struct pen_lowered {
  uint32_t rank_count;
  uint32_t *count;
  struct pen_action **action; /* [rank_count][count]; program and frame are PEN_NONE */
  struct pen_message *message;
  uint32_t message_count;
  struct pen_channel *channel;
  uint32_t channel_count;
};

/* Adds sends, receives and waits in one global order (a message enters both ranks' lists at the
 * same turn), so that every model of section 3.8 is free of deadlock by construction; and the
 * step's end (kind: PEN_TRAIN or PEN_EVAL). By `timing`, which must be complete, every receive
 * stands when its message leaves. Replicas exchange as `timing` says, or else at the end. */
struct pen_lowered *pen_lower(const struct pen_order *order, const struct pen_partition *partition,
                              const struct pen_timing *timing, int profile_kind,
                              bool gather_before_update);

/* The same for eval, as if every stage took equally long: where a late stage is the slowest,
 * messages would else pile up before it in as many slots as there are microbatches, and to no end.
 */
struct pen_lowered *pen_lower_forward(const struct pen_order *order,
                                      const struct pen_partition *partition);

/* The same from rows that somebody wrote (--actions): they already hold sends and receives; only
 * waits and the step's end are added. Needs rows that pen_verify_actions() accepts. */
struct pen_lowered *pen_lower_given(struct pen_action *const *action, const uint32_t *count,
                                    const struct pen_partition *partition, int profile_kind,
                                    bool gather_before_update);

/* The compute actions of rows, as an order that can be simulated. */
struct pen_order *pen_order_of_actions(struct pen_action *const *action, const uint32_t *count,
                                       uint32_t rank_count);

/* ---- actions.c: `RANK: ACTION ACTION ...` ---- */

/* Reads a complete lowered order. Fails (65 bad text, 66 absent). Only the columns kind, overlaps,
 * stage and microbatch are set; every rank has a list. The stage of a row is the acting rank's own,
 * which is checked. */
void pen_actions_read(const char *path, const struct pen_partition *partition,
                      struct pen_action ***action, uint32_t **count);
/* Writes an action as in `6RECV_F3` into text[32]; returns text. */
const char *pen_action_text(char text[32], int kind, uint32_t stage, uint32_t microbatch);

/* ---- verify.c: shares nothing with the passes above ---- */

/* The first thing wrong with a plan. */
struct pen_problem {
  char reason[200];
  uint32_t rank;   /* PEN_NONE: of the plan as a whole */
  uint32_t action; /* index into that rank's rows, or PEN_NONE */
};

/* Order, completeness, matching and deadlock of bare rows (columns kind, overlaps, stage,
 * microbatch), before there is any memory. WAIT and step-end rows may be absent. Returns true when
 * all is well. */
bool pen_verify_actions(struct pen_action *const *action, const uint32_t *count,
                        uint32_t rank_count, uint32_t stage_count, uint32_t microbatch_count,
                        const uint32_t *rank_of, int profile_kind, struct pen_problem *problem);

/* All of section 3.8 on the finished plan, every profile: rows, messages, credits, programs,
 * tensors, slots, over two steps. */
bool pen_verify(const struct pen_plan *plan, struct pen_problem *problem);

#endif
