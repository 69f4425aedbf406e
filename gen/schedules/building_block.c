/* building_block.c: from the block of one microbatch to whole orders, for schedules of two stages a rank in a V. */
#include "gen/schedules.h"

/* The paper's method in three steps, time in ticks of one F, I or W:
 *   repeat   microbatch n runs the block's F down, F up, I up and I down at offset + 6 n on each rank: the three actions of two stages
 *            fill six ticks, and no two of F and I of a rank fall on one tick;
 *   squeeze  each rank keeps that order of F and I, and runs each as soon as it can: when what it needs was made before this tick,
 *            and, an F, when the rank holds less than `limit` (F runs until W has run);
 *   fill     in any other tick the rank runs the oldest W that waits, if any.
 * `limit` is the most that the repeated block itself holds with W in the first free tick. It never stops the ranks for good: when no W
 * waits, a rank holds no more than at that place of the repeated block.
 * Source: Qi, Wan, Amar, Lin, Pipeline Parallelism with Controllable Memory, 2024, arXiv 2405.15362, sections 3 and 4; their
 * reordering of the ends, which saves a few ticks of the whole, is left out. */

enum { F_DOWN, F_UP, I_UP, I_DOWN, PARTS };

/* One rank at work. */
struct lane {
  uint32_t next[PARTS];                 /* microbatch */
  uint32_t held;                        /* stage activations */
  uint32_t waiting_first, waiting_past; /* of the rank's W, in the order of its I */
};

struct run {
  const struct pen_composer *composer;
  const struct pen_block *block; /* [rank] */
  uint32_t limit;
  struct lane *lane;      /* [rank] as of this tick's end */
  struct lane *before;    /* [rank] as of its start */
  struct pen_compute **weight; /* [rank][2 * microbatches]: stage is the local one */
};

/* The rank's next F or I: of the four parts the one whose time is least; PARTS when all are done. */
static int next_part(const struct run *run, uint32_t rank) {
  int least = PARTS;
  uint64_t least_time = UINT64_MAX;
  for (int part = 0; part < PARTS; part++) {
    uint32_t microbatch = run->lane[rank].next[part];
    uint64_t time = run->block[rank].offset[part] + (uint64_t)PEN_BLOCK_TICKS * microbatch;
    if (microbatch < run->composer->microbatch_count && time < least_time) {
      least = part;
      least_time = time;
    }
  }
  return least;
}

/* Down: from the rank before (at the top: from nothing, or from the part before on this rank). Up: from the rank after, likewise. */
static bool has_come(const struct run *run, uint32_t rank, int part, uint32_t microbatch) {
  bool from_above = part == F_DOWN || part == I_UP;
  uint32_t end = from_above ? 0 : run->composer->rank_count - 1;
  if (rank != end) return run->before[from_above ? rank - 1 : rank + 1].next[part] > microbatch;
  return part == F_DOWN || run->before[rank].next[part - 1] > microbatch;
}

static void run_weight(struct run *run, uint32_t rank) {
  struct lane *lane = &run->lane[rank];
  if (lane->waiting_first == lane->waiting_past) return;
  const struct pen_compute *oldest = &run->weight[rank][lane->waiting_first++];
  pen_order_add(run->composer, rank, PEN_W, oldest->stage, oldest->microbatch);
  lane->held--;
}

/* One tick of one rank. */
static void run_rank(struct run *run, uint32_t rank) {
  struct lane *lane = &run->lane[rank];
  int part = next_part(run, rank);
  bool forward = part == F_DOWN || part == F_UP;
  if (part == PARTS || !has_come(run, rank, part, lane->next[part]) || (forward && lane->held >= run->limit)) {
    run_weight(run, rank);
    return;
  }
  uint32_t microbatch = lane->next[part]++, local = part == F_DOWN || part == I_DOWN ? 0 : 1;
  pen_order_add(run->composer, rank, forward ? PEN_F : PEN_I, local, microbatch);
  if (forward) lane->held++;
  else run->weight[rank][lane->waiting_past++] = (struct pen_compute){.stage = (uint16_t)local, .microbatch = microbatch};
}

void pen_compose_block(const struct pen_composer *composer, const struct pen_block *block, uint32_t limit) {
  uint32_t ranks = composer->rank_count;
  struct run run = {composer, block, limit, pen_new(ranks, sizeof *run.lane), pen_new(ranks, sizeof *run.before),
                    pen_new(ranks, sizeof *run.weight)};
  for (uint32_t rank = 0; rank < ranks; rank++)
    run.weight[rank] = pen_new(2 * (size_t)composer->microbatch_count, sizeof **run.weight);
  uint64_t left = 6 * (uint64_t)composer->microbatch_count * ranks, ticks = left + 6 * (uint64_t)ranks;
  for (; left > 0; ticks--) {
    if (ticks == 0) pen_stop(70, "penstock-gen: this is our bug: the block of schedule %s stalls", composer->topology->pipeline_schedule);
    for (uint32_t rank = 0; rank < ranks; rank++) run.before[rank] = run.lane[rank];
    left = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
      run_rank(&run, rank);
      left += composer->rank_capacity - composer->order->count[rank];
    }
  }
}
