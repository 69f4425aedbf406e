/* building_block.c: from the block of one microbatch to whole orders, for schedules of two stages a
 * rank in a V. */
#include "gen/schedule/internal.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/schedule/order.h"
#include "runtime/plan/plan.h"

/* The paper's method, time in ticks of one F, I or W:
 *   repeat   microbatch n runs the block's F down, F up, I up and I down at offset + 6 n on each
 * rank: the three actions of two stages fill six ticks, and no two of F and I of a rank fall on one
 * tick. Each W takes the first tick that is left; reorder  in the order of time each action moves
 * to the earliest free tick after what it needs, while a rank never holds more than `limit` stage
 * activations (F runs until W has run). The middle is full; the ends close up; squeeze  each rank
 * keeps the order of F and I that results, and runs each as soon as it can: when what it needs was
 * made before this tick and, an F, when the rank holds less than `limit`. In any other tick it runs
 * the oldest W that waits, if any. `limit` is the most that the repeated block holds. It never
 * stops a rank for good: when no W waits, the rank holds no more than at that place of the
 * reordered block. Source: Qi, Wan, Amar, Lin, Pipeline Parallelism with Controllable Memory, 2024,
 * arXiv 2405.15362, sections 3 and 4. */

enum { F_DOWN, F_UP, I_UP, I_DOWN, PARTS, WEIGHT = PARTS };

/* One rank at work. */
struct lane {
  uint32_t *time[PARTS + 1];  /* [microbatch], of W [place in `weight`]: the tick */
  uint8_t *event;             /* [tick]: part + 1, as repeated; 0: free */
  bool *taken;                /* [tick], as reordered */
  uint32_t *held;             /* [tick]: stage activations, as reordered */
  uint32_t next[PARTS + 1];   /* of each part and of W */
  struct pen_compute *weight; /* the rank's W in the order of its I; stage is the local one */
  uint32_t weight_count;
  uint32_t now_held;
};

struct run {
  const struct pen_composer *composer;
  uint32_t limit, tick_count;
  struct lane *lane;         /* [rank] */
  uint32_t (*before)[PARTS]; /* [rank]: `next` as of this tick's start */
};

static bool is_forward(int part) { return part == F_DOWN || part == F_UP; }
static uint32_t local_stage(int part) { return part == F_DOWN || part == I_DOWN ? 0 : 1; }

static void add_weight(struct lane *lane, int part, uint32_t microbatch) {
  lane->weight[lane->weight_count++] =
      (struct pen_compute){.stage = (uint16_t)local_stage(part), .microbatch = microbatch};
}

/* Which rank makes what a part needs: coming down the rank before, going up the rank after; at
 * either end of the V it is the part before on the same rank (`*needed`). PEN_NONE: F down on the
 * first rank needs nothing. */
static uint32_t maker_of(const struct run *run, uint32_t rank, int part, int *needed) {
  bool from_above = part == F_DOWN || part == I_UP;
  *needed = part;
  if (rank != (from_above ? 0 : run->composer->rank_count - 1))
    return from_above ? rank - 1 : rank + 1;
  *needed = part - 1;
  return part == F_DOWN ? PEN_NONE : rank;
}

/* ---- repeat ---- */

static void repeat(struct run *run, struct lane *lane, const struct pen_building_block *block) {
  uint32_t microbatches = run->composer->microbatch_count, held = 0, placed = 0;
  lane->event = pen_new(run->tick_count, sizeof *lane->event);
  lane->taken = pen_new(run->tick_count, sizeof *lane->taken);
  lane->held = pen_new(run->tick_count, sizeof *lane->held);
  lane->weight = pen_new(2 * (size_t)microbatches, sizeof *lane->weight);
  lane->time[WEIGHT] = pen_new(2 * (size_t)microbatches, sizeof **lane->time);
  for (int part = 0; part < PARTS; part++) {
    lane->time[part] = pen_new(microbatches, sizeof **lane->time);
    for (uint32_t n = 0; n < microbatches; n++) {
      lane->time[part][n] = block->offset[part] + PEN_BLOCK_TICKS * n;
      lane->event[lane->time[part][n]] = (uint8_t)(part + 1);
    }
  }
  uint32_t count[PARTS] = {0};
  for (uint32_t tick = 0; tick < run->tick_count; tick++) {
    int part = lane->event[tick] - 1;
    bool weight = part < 0 && placed < lane->weight_count;
    if (part >= 0 && !is_forward(part)) add_weight(lane, part, count[part]);
    if (part >= 0) count[part]++;
    if (weight) lane->event[lane->time[WEIGHT][placed++] = tick] = WEIGHT + 1;
    lane->taken[tick] = part >= 0 || weight;
    lane->held[tick] = held += part >= 0 && is_forward(part);
    held -= weight;
  }
}

/* ---- reorder ---- */

/* The first tick after all that the n-th of a part needs. */
static uint32_t earliest(const struct run *run, uint32_t rank, int part, uint32_t n) {
  const struct lane *lane = &run->lane[rank];
  uint32_t first = n > 0 ? lane->time[part][n - 1] + 1 : 0, made = 0;
  if (part == WEIGHT) {
    made = lane->time[lane->weight[n].stage == 0 ? I_DOWN : I_UP][lane->weight[n].microbatch] + 1;
  } else {
    int needed;
    uint32_t maker = maker_of(run, rank, part, &needed);
    if (maker != PEN_NONE) made = run->lane[maker].time[needed][n] + 1;
  }
  return made > first ? made : first;
}

static void move(struct run *run, uint32_t rank, int part, uint32_t n) {
  struct lane *lane = &run->lane[rank];
  uint32_t from = lane->time[part][n], to = from, first = earliest(run, rank, part, n);
  for (uint32_t tick = from; tick-- > first;) {
    if (part < PARTS && is_forward(part) && lane->held[tick] >= run->limit) break;
    if (!lane->taken[tick]) to = tick;
  }
  if (to == from) return;
  lane->taken[from] = false;
  lane->taken[to] = true;
  lane->time[part][n] = to;
  for (uint32_t tick = to; part < PARTS && is_forward(part) && tick < from; tick++)
    lane->held[tick]++;
  for (uint32_t tick = to + 1; part == WEIGHT && tick <= from; tick++) lane->held[tick]--;
}

static void reorder(struct run *run) {
  for (uint32_t tick = 0; tick < run->tick_count; tick++)
    for (uint32_t rank = 0; rank < run->composer->rank_count; rank++) {
      struct lane *lane = &run->lane[rank];
      if (lane->event[tick])
        move(run, rank, lane->event[tick] - 1, lane->next[lane->event[tick] - 1]++);
    }
}

/* ---- squeeze ---- */

/* The rank's next F or I: of the four parts the one whose time is least; PARTS when all are done.
 */
static int next_part(const struct run *run, const struct lane *lane) {
  int least = PARTS;
  for (int part = 0; part < PARTS; part++)
    if (lane->next[part] < run->composer->microbatch_count &&
        (least == PARTS ||
         lane->time[part][lane->next[part]] < lane->time[least][lane->next[least]]))
      least = part;
  return least;
}

static bool has_come(const struct run *run, uint32_t rank, int part, uint32_t microbatch) {
  int needed;
  uint32_t maker = maker_of(run, rank, part, &needed);
  return maker == PEN_NONE || run->before[maker][needed] > microbatch;
}

/* One tick of one rank. */
static void run_rank(struct run *run, uint32_t rank) {
  struct lane *lane = &run->lane[rank];
  int part = next_part(run, lane);
  if (part < PARTS && has_come(run, rank, part, lane->next[part]) &&
      !(is_forward(part) && lane->now_held >= run->limit)) {
    uint32_t microbatch = lane->next[part]++;
    pen_order_add(run->composer, rank, is_forward(part) ? PEN_F : PEN_I, local_stage(part),
                  microbatch);
    lane->now_held += is_forward(part);
    if (!is_forward(part)) add_weight(lane, part, microbatch);
  } else if (lane->next[WEIGHT] < lane->weight_count) {
    const struct pen_compute *oldest = &lane->weight[lane->next[WEIGHT]++];
    pen_order_add(run->composer, rank, PEN_W, oldest->stage, oldest->microbatch);
    lane->now_held--;
  }
}

static void squeeze(struct run *run) {
  uint32_t ranks = run->composer->rank_count;
  for (uint32_t rank = 0; rank < ranks; rank++) {
    struct lane *lane = &run->lane[rank];
    for (int part = 0; part <= PARTS; part++) lane->next[part] = 0;
    lane->weight_count = 0;
  }
  uint64_t left = 1, ticks = 2 * (uint64_t)run->tick_count;
  for (; left > 0; ticks--) {
    if (ticks == 0)
      pen_stop(70, "penstock-gen: this is our bug: the block of schedule %s stalls",
               run->composer->topology->pipeline_schedule);
    for (uint32_t rank = 0; rank < ranks; rank++)
      for (int part = 0; part < PARTS; part++) run->before[rank][part] = run->lane[rank].next[part];
    left = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
      run_rank(run, rank);
      left += run->composer->rank_capacity - run->composer->order->count[rank];
    }
  }
}

void pen_compose_building_block(const struct pen_composer *composer,
                                const struct pen_building_block *block, uint32_t limit) {
  uint32_t ranks = composer->rank_count, last = 0;
  for (uint32_t rank = 0; rank < ranks; rank++)
    if (block[rank].offset[I_DOWN] > last) last = block[rank].offset[I_DOWN];
  /* After the last I at most all W are left. */
  struct run run = {composer, limit, last + (PEN_BLOCK_TICKS + 2) * composer->microbatch_count,
                    pen_new(ranks, sizeof *run.lane), pen_new(ranks, sizeof *run.before)};
  for (uint32_t rank = 0; rank < ranks; rank++) repeat(&run, &run.lane[rank], &block[rank]);
  reorder(&run);
  squeeze(&run);
}
