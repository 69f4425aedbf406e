/* puts.h: which bytes a row of `puts` moves, from one member of its group to another. All that
 * depends on these bytes, calls this: the runtime, what is sent in a step, the verifier.
 *
 * Blocks. Member s has for member r `count` blocks, which begin at from + r * from_member, and come
 * to to + s * to_member. A gather has from_member 0, an all-to-all has each other's block.
 *
 * Elements. Each member of a group has a cut of a weight: of SHARD its shard; of SAME_SHARD a shard
 * of its shard (shard.h). READ moves the cut of the member that has it, ADD that of the member that
 * adds. A member of TENSOR has splits of a matrix of Muon; WRITE moves the whole of one, from each
 * to the owner of the matrix, to its place there (to_member), or back (from_member); nothing where
 * another data rank has all of the matrix. */
#ifndef PEN_PUTS_H
#define PEN_PUTS_H

#include "runtime/plan/plan.h"
#include "runtime/plan/shard.h"

/* Of a weight, by its index, the elements that a member of a group of a data rank has a cut of,
 * with so many shard groups. */
static inline struct pen_shard pen_cut_at(struct pen_division d, uint32_t weight, uint32_t groups,
                                          int group, uint32_t data_rank, uint32_t member) {
  const uint32_t owner = group == PEN_SHARD ? member : data_rank % d.shards;
  const struct pen_shard shard = pen_shard_in(d, pen_shard_index(d, weight, owner));
  if (group == PEN_SHARD) return shard;
  const struct pen_shard cut = pen_shard_at(shard.count, groups, member);
  return (struct pen_shard){shard.first + cut.first, cut.count};
}

/* `count` blocks of `bytes`: where the first is in the arena of the member that has it, and where
 * it comes in that of the other; and from one to the next. */
struct pen_move {
  uint64_t from, to, count, bytes, from_stride, to_stride;
};

/* The weight of a put at a process: the tables have that of the first tensor rank. */
static inline uint32_t pen_put_weight(const struct pen_plan *plan, const struct pen_put *put,
                                      uint32_t global) {
  return pen_local_weight(plan, put->weight, pen_group_member(plan, global, PEN_TENSOR));
}

/* Bytes from where a tensor of a weight is to its element `first`, at a process. */
static inline uint64_t pen_element_place(const struct pen_plan *plan, const struct pen_put *put,
                                         uint32_t process, bool is_sharded, uint64_t first) {
  const struct pen_shard kept = pen_kept_of(plan, pen_put_weight(plan, put, process),
                                            pen_group_member(plan, process, PEN_SHARD), is_sharded);
  return (first - kept.first) * pen_dtype_bytes(put->dtype);
}

/* Sets the bytes of such a split. */
static inline struct pen_move pen_move_of_split(const struct pen_plan *plan,
                                                const struct pen_put *put, struct pen_move move,
                                                uint32_t global, uint32_t from, uint32_t to) {
  const bool gathers = put->to_member > 0;
  const uint32_t split = pen_local_weight(plan, put->weight, gathers ? from : to);
  move.count = 1;
  move.bytes =
      (gathers ? to : from) + 1 != put->owner
          ? 0
          : sizeof(float) * pen_kept_of(plan, split, pen_group_member(plan, global, PEN_DATA),
                                        pen_moments_are_sharded(plan))
                                .count;
  return move;
}

/* What a put moves from one member of a group of the process to another, or the same, in an action
 * of that frame. An ADD's comes to the staging memory, but its own to where the sum is. */
static inline struct pen_move pen_move_of(const struct pen_plan *plan, const struct pen_put *put,
                                          const struct pen_frame *frame, uint32_t global,
                                          uint32_t from, uint32_t to) {
  struct pen_move move = {frame->base[put->from_base] + put->from,
                          frame->base[put->to_base] + put->to,
                          put->count,
                          put->bytes,
                          put->from_stride,
                          put->to_stride};
  move.from += to * put->from_member;
  move.to += from * put->to_member;
  if (put->weight == PEN_NONE) return move;
  if (put->group == PEN_TENSOR) return pen_move_of_split(plan, put, move, global, from, to);
  const bool adds = put->kind == PEN_PUT_ADD;
  const uint32_t weight = pen_put_weight(plan, put, global);
  const struct pen_shard cut =
      pen_cut_at(pen_division_of(&plan->weights[weight], pen_group_size(plan, PEN_SHARD)), weight,
                 pen_group_size(plan, PEN_SAME_SHARD), put->group,
                 pen_group_member(plan, global, PEN_DATA), adds ? to : from);
  const uint32_t sender = pen_group_process(plan, global, put->group, from),
                 receiver = pen_group_process(plan, global, put->group, to);
  move.count = 1;
  move.bytes = cut.count * pen_dtype_bytes(put->dtype);
  move.from += pen_element_place(plan, put, sender, put->from_sharded, cut.first);
  if (!adds || from == to)
    move.to += pen_element_place(plan, put, receiver, put->to_sharded, cut.first);
  else
    move.to = plan->memory[pen_table_rank(plan, global)].shard_staging_offset + put->staging +
              (from - (from > to)) * put->staging_stride;
  return move;
}

/* The bytes that a process sends to the other members. */
static inline uint64_t pen_put_sent_bytes(const struct pen_plan *plan, const struct pen_put *put,
                                          uint32_t global) {
  static const struct pen_frame frame = {{0}};
  const uint32_t self = pen_group_member(plan, global, put->group);
  uint64_t bytes = 0;
  for (uint32_t m = 0; m < pen_group_size(plan, put->group); m++) {
    const struct pen_move move = pen_move_of(plan, put, &frame, global, self, m);
    bytes += m == self ? 0 : move.count * move.bytes;
  }
  return bytes;
}

#endif
