/* building_block.c: composes a whole order from the actions of one microbatch (the building block),
 * for schedules with two stages per rank in a V. */
#include "gen/schedule/internal.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/schedule/order.h"
#include "gen/topology/schedule_table.h"
#include "runtime/plan/plan.h"

/* The paper's method. Time counts in ticks; F, I and W take one tick each.
 *
 *   repeat   Microbatch n runs the block's F down, F up, I up and I down at offset + 6 n on each
 *            rank. The three actions of two stages fill six ticks, and no two of F and I of a rank
 *            are on the same tick. Each W takes the first free tick.
 *   reorder  In the order of time, each action moves to the earliest free tick after its inputs,
 *            while a rank never holds more than `limit` stage activations (from F to W).
 *   squeeze  Each rank keeps this order of F and I, and runs each as soon as it can: when its
 *            inputs were made before this tick and, for an F, when the rank holds less than
 *            `limit`. In any other tick it runs the oldest outstanding W, if any.
 *
 * `limit` is the most that the repeated block holds. It never stops a rank for good: when no W is
 * outstanding, the rank holds no more than at that position of the reordered block.
 * Source: Qi, Wan, Amar, Lin, Pipeline Parallelism with Controllable Memory, 2024, arXiv
 * 2405.15362, sections 3 and 4. */

enum { F_DOWN, F_UP, I_UP, I_DOWN, PARTS, WEIGHT = PARTS };

/* The progress of one rank. */
struct block_rank {
  uint32_t *time[PARTS + 1];  /* the tick: [microbatch]; of W [index in `weight`] */
  uint8_t *event;             /* [tick]: part + 1, after repeat; 0: free */
  bool *taken;                /* [tick], after reorder */
  uint32_t *held;             /* [tick]: stage activations, after reorder */
  uint32_t next[PARTS + 1];   /* of each part and of W */
  struct pen_compute *weight; /* the rank's W in the order of its I; stage is the local one */
  uint32_t weight_count;
  uint32_t now_held;
};

struct block_schedule {
  const struct pen_composer *composer;
  uint32_t limit, tick_count;
  struct block_rank *rank_state; /* [rank] */
  uint32_t (*before)[PARTS];     /* [rank]: `next` at the start of this tick */
};

static bool is_forward(int part) { return part == F_DOWN || part == F_UP; }
static uint32_t local_stage(int part) { return part == F_DOWN || part == I_DOWN ? 0 : 1; }

static void add_weight(struct block_rank *rank_state, int part, uint32_t microbatch) {
  rank_state->weight[rank_state->weight_count++] =
      (struct pen_compute){.stage = (uint16_t)local_stage(part), .microbatch = microbatch};
}

/* The rank that makes the input of a part: the previous rank on the way down, the next rank on the
 * way up; at either end of the V the same rank, by its previous part. Sets `*needed`, that part.
 * PEN_NONE: F down on the first rank has no input. */
static uint32_t maker_of(const struct block_schedule *run, uint32_t rank, int part, int *needed) {
  bool from_above = part == F_DOWN || part == I_UP;
  *needed = part;
  if (rank != (from_above ? 0 : run->composer->rank_count - 1))
    return from_above ? rank - 1 : rank + 1;
  *needed = part - 1;
  return part == F_DOWN ? PEN_NONE : rank;
}

/* ---- repeat ---- */

static void repeat_block(struct block_schedule *run, struct block_rank *rank_state,
                         const struct pen_building_block *block) {
  uint32_t microbatches = run->composer->microbatch_count, held = 0, placed = 0;
  rank_state->event = pen_new(run->tick_count, sizeof *rank_state->event);
  rank_state->taken = pen_new(run->tick_count, sizeof *rank_state->taken);
  rank_state->held = pen_new(run->tick_count, sizeof *rank_state->held);
  rank_state->weight = pen_new(2 * (size_t)microbatches, sizeof *rank_state->weight);
  rank_state->time[WEIGHT] = pen_new(2 * (size_t)microbatches, sizeof **rank_state->time);
  for (int part = 0; part < PARTS; part++) {
    rank_state->time[part] = pen_new(microbatches, sizeof **rank_state->time);
    for (uint32_t n = 0; n < microbatches; n++) {
      rank_state->time[part][n] = block->offset[part] + PEN_BLOCK_TICKS * n;
      rank_state->event[rank_state->time[part][n]] = (uint8_t)(part + 1);
    }
  }
  uint32_t count[PARTS] = {0};
  for (uint32_t tick = 0; tick < run->tick_count; tick++) {
    int part = rank_state->event[tick] - 1;
    bool weight = part < 0 && placed < rank_state->weight_count;
    if (part >= 0 && !is_forward(part)) add_weight(rank_state, part, count[part]);
    if (part >= 0) count[part]++;
    if (weight) rank_state->event[rank_state->time[WEIGHT][placed++] = tick] = WEIGHT + 1;
    rank_state->taken[tick] = part >= 0 || weight;
    rank_state->held[tick] = held += part >= 0 && is_forward(part);
    held -= weight;
  }
}

/* ---- reorder ---- */

/* The first tick after the inputs of the n-th action of a part. */
static uint32_t earliest(const struct block_schedule *run, uint32_t rank, int part, uint32_t n) {
  const struct block_rank *rank_state = &run->rank_state[rank];
  uint32_t first = n > 0 ? rank_state->time[part][n - 1] + 1 : 0, made = 0;
  if (part == WEIGHT) {
    made = rank_state->time[rank_state->weight[n].stage == 0 ? I_DOWN : I_UP]
                           [rank_state->weight[n].microbatch] +
           1;
  } else {
    int needed;
    uint32_t maker = maker_of(run, rank, part, &needed);
    if (maker != PEN_NONE) made = run->rank_state[maker].time[needed][n] + 1;
  }
  return made > first ? made : first;
}

static void move_earlier(struct block_schedule *run, uint32_t rank, int part, uint32_t n) {
  struct block_rank *rank_state = &run->rank_state[rank];
  uint32_t from = rank_state->time[part][n], to = from, first = earliest(run, rank, part, n);
  for (uint32_t tick = from; tick-- > first;) {
    if (part < PARTS && is_forward(part) && rank_state->held[tick] >= run->limit) break;
    if (!rank_state->taken[tick]) to = tick;
  }
  if (to == from) return;
  rank_state->taken[from] = false;
  rank_state->taken[to] = true;
  rank_state->time[part][n] = to;
  for (uint32_t tick = to; part < PARTS && is_forward(part) && tick < from; tick++)
    rank_state->held[tick]++;
  for (uint32_t tick = to + 1; part == WEIGHT && tick <= from; tick++) rank_state->held[tick]--;
}

static void reorder_actions(struct block_schedule *run) {
  for (uint32_t tick = 0; tick < run->tick_count; tick++)
    for (uint32_t rank = 0; rank < run->composer->rank_count; rank++) {
      struct block_rank *rank_state = &run->rank_state[rank];
      if (rank_state->event[tick])
        move_earlier(run, rank, rank_state->event[tick] - 1,
                     rank_state->next[rank_state->event[tick] - 1]++);
    }
}

/* ---- squeeze ---- */

/* The next F or I of the rank: the part with the least time; PARTS: all are done. */
static int next_part(const struct block_schedule *run, const struct block_rank *rank_state) {
  int least = PARTS;
  for (int part = 0; part < PARTS; part++)
    if (rank_state->next[part] < run->composer->microbatch_count &&
        (least == PARTS || rank_state->time[part][rank_state->next[part]] <
                               rank_state->time[least][rank_state->next[least]]))
      least = part;
  return least;
}

static bool input_is_ready(const struct block_schedule *run, uint32_t rank, int part,
                           uint32_t microbatch) {
  int needed;
  uint32_t maker = maker_of(run, rank, part, &needed);
  return maker == PEN_NONE || run->before[maker][needed] > microbatch;
}

/* One tick of one rank. */
static void run_tick(struct block_schedule *run, uint32_t rank) {
  struct block_rank *rank_state = &run->rank_state[rank];
  int part = next_part(run, rank_state);
  if (part < PARTS && input_is_ready(run, rank, part, rank_state->next[part]) &&
      !(is_forward(part) && rank_state->now_held >= run->limit)) {
    uint32_t microbatch = rank_state->next[part]++;
    pen_order_add(run->composer, rank, is_forward(part) ? PEN_F : PEN_I, local_stage(part),
                  microbatch);
    rank_state->now_held += is_forward(part);
    if (!is_forward(part)) add_weight(rank_state, part, microbatch);
  } else if (rank_state->next[WEIGHT] < rank_state->weight_count) {
    const struct pen_compute *oldest = &rank_state->weight[rank_state->next[WEIGHT]++];
    pen_order_add(run->composer, rank, PEN_W, oldest->stage, oldest->microbatch);
    rank_state->now_held--;
  }
}

static void squeeze_actions(struct block_schedule *run) {
  uint32_t ranks = run->composer->rank_count;
  for (uint32_t rank = 0; rank < ranks; rank++) {
    struct block_rank *rank_state = &run->rank_state[rank];
    for (int part = 0; part <= PARTS; part++) rank_state->next[part] = 0;
    rank_state->weight_count = 0;
  }
  uint64_t left = 1, ticks = 2 * (uint64_t)run->tick_count;
  for (; left > 0; ticks--) {
    if (ticks == 0)
      pen_stop(PEN_EXIT_INTERNAL,
               "penstock-gen: internal error: the building block of schedule %s stalls",
               pen_schedule_of(run->composer->topology->pipeline_schedule)->name);
    for (uint32_t rank = 0; rank < ranks; rank++)
      for (int part = 0; part < PARTS; part++)
        run->before[rank][part] = run->rank_state[rank].next[part];
    left = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
      run_tick(run, rank);
      left += run->composer->rank_capacity - run->composer->order->count[rank];
    }
  }
}

void pen_compose_building_block(const struct pen_composer *composer,
                                const struct pen_building_block *block, uint32_t limit) {
  uint32_t ranks = composer->rank_count, last = 0;
  for (uint32_t rank = 0; rank < ranks; rank++)
    if (block[rank].offset[I_DOWN] > last) last = block[rank].offset[I_DOWN];
  /* After the last I at most all W remain. */
  struct block_schedule run = {
      composer, limit, last + (PEN_BLOCK_TICKS + 2) * composer->microbatch_count,
      pen_new(ranks, sizeof *run.rank_state), pen_new(ranks, sizeof *run.before)};
  for (uint32_t rank = 0; rank < ranks; rank++)
    repeat_block(&run, &run.rank_state[rank], &block[rank]);
  reorder_actions(&run);
  squeeze_actions(&run);
}
