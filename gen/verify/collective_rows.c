/* collective_rows.c: whether a row of `collectives`, with its rows of `puts`, is as it is needed
 * (see collective_rows.h). */
#include "gen/verify/collective_rows.h"

#include "gen/base/arena.h"
#include "runtime/plan/shard.h"

void pen_need_put(struct pen_moves *m, struct pen_put put) {
  PEN_RESERVE(m->put, m->count + 1);
  m->put[m->count++] = put;
}

/* The first column that differs, but those of the staging memory; null: none. */
static const char *first_difference(const struct pen_put *row, const struct pen_put *needed) {
#define COMPARE(column) \
  if (row->column != needed->column) return #column
  COMPARE(kind);
  COMPARE(group);
  COMPARE(dtype);
  COMPARE(from_base);
  COMPARE(from);
  COMPARE(to_base);
  COMPARE(to);
  COMPARE(weight);
  COMPARE(owner);
  COMPARE(from_sharded);
  COMPARE(to_sharded);
  COMPARE(count);
  COMPARE(bytes);
  COMPARE(from_stride);
  COMPARE(to_stride);
  COMPARE(from_member);
  COMPARE(to_member);
#undef COMPARE
  return NULL;
}

/* ---- staging memory ---- */

/* The bytes of the largest cut of a put's weight. */
static uint64_t largest_cut(const struct pen_plan *plan, const struct pen_put *put) {
  const uint64_t shard = pen_largest_shard(
      pen_division_of(&plan->weights[put->weight], pen_group_size(plan, PEN_SHARD)));
  return sizeof(float) * (put->group == PEN_SAME_SHARD
                              ? pen_largest_shard((struct pen_division){
                                    shard, 0, pen_group_size(plan, PEN_SAME_SHARD), 1})
                              : shard);
}

static bool check_staging(const struct pen_moves *m, const struct pen_collective *row) {
  const struct pen_rank_memory *memory = m->b->memory;
  const struct pen_put *puts = m->b->tables->puts + row->first_put;
  const uint64_t end = memory->staged_input_offset + memory->device_control_bytes,
                 room = end - memory->shard_staging_offset;
  uint64_t used = 0;
  for (uint32_t i = 0; i < row->put_count; i++) {
    if (puts[i].kind != PEN_PUT_ADD || !pen_peers_send_shards(m->b->plan)) continue;
    const uint64_t bytes = largest_cut(m->b->plan, &puts[i]),
                   others = pen_group_size(m->b->plan, puts[i].group) - 1;
    if (puts[i].staging < used || puts[i].staging % PEN_ALIGNMENT_BYTES ||
        puts[i].staging_stride % PEN_ALIGNMENT_BYTES || puts[i].staging > room ||
        puts[i].staging_stride > room || puts[i].staging + bytes > puts[i].staging_stride ||
        others * puts[i].staging_stride > room)
      return PEN_MOVES_PROBLEM(m,
                               "has put %u of collective %u, whose staging memory is not its own",
                               i, (unsigned)(row - m->b->tables->collectives));
    if (row->together) used = puts[i].staging + bytes;
  }
  return true;
}

/* ---- rows ---- */

bool pen_check_collective_row(struct pen_moves *m, uint32_t index,
                              const struct pen_collective *needed) {
  const struct pen_rank_program *tables = m->b->tables;
  const struct pen_collective *row = &tables->collectives[index];
  const uint64_t owner = m->owner_of[index];
  m->owner_of[index] = m->owner;
  if (owner == m->owner) { /* the same action again */
    m->count = 0;
    return true;
  }
  if (owner) return PEN_MOVES_PROBLEM(m, "has collective %u, which is another's", index);
  if (row->group != needed->group || row->waits != needed->waits ||
      row->completes != needed->completes || row->awaited != needed->awaited)
    return PEN_MOVES_PROBLEM(m, "has collective %u, which does not wait or signal as it should",
                             index);
  if (row->begins != needed->begins || (row->event == PEN_NONE) != (needed->event == PEN_NONE))
    return PEN_MOVES_PROBLEM(
        m, "has collective %u, which does not begin or end its sequence as it should", index);
  if (row->event != PEN_NONE && (row->event >= tables->event_count || m->event_used[row->event]))
    return PEN_MOVES_PROBLEM(m, "has collective %u, whose event %u is another's", index,
                             row->event);
  if (row->event != PEN_NONE) m->event_used[row->event] = true;
  if (row->put_count != m->count)
    return PEN_MOVES_PROBLEM(m, "has collective %u of %u puts, but %zu are needed", index,
                             row->put_count, m->count);
  for (uint32_t i = 0; i < row->put_count; i++) {
    const char *wrong = first_difference(&tables->puts[row->first_put + i], &m->put[i]);
    if (wrong)
      return PEN_MOVES_PROBLEM(m, "has put %u of collective %u, whose column %s is wrong", i, index,
                               wrong);
  }
  m->count = 0;
  return check_staging(m, row);
}

struct pen_put pen_put_in_place(int kind, int group, uint8_t dtype, uint32_t weight,
                                uint64_t offset, bool is_sharded) {
  return (struct pen_put){.kind = (uint8_t)kind,
                          .group = (uint8_t)group,
                          .dtype = dtype,
                          .from_base = PEN_BASE_PERSISTENT,
                          .from = offset,
                          .to_base = PEN_BASE_PERSISTENT,
                          .to = offset,
                          .weight = weight,
                          .from_sharded = is_sharded,
                          .to_sharded = is_sharded};
}
