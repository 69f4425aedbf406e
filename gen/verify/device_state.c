/* verify_step.c: the step part of every arena (plan.h): there where the device has memory of its
 * own, and nowhere else; each of its pieces as large as what is put there; and a feed for every
 * data op of every program. That the part lies apart from all else verify_persistent.c says. */
#include <string.h>

#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"
#include "runtime/plan/plan.h"

static bool in_order(uint64_t first, uint64_t bytes, uint64_t past) {
  return first <= past && bytes <= past - first;
}

/* The most words that the flags of any profile are: messages twice, all processes, and for each
 * replica the rows of the exchange. */
static uint64_t most_words(const struct pen_plan *plan, uint32_t rank) {
  uint64_t most = 0, processes = (uint64_t)plan->replica_count * plan->rank_count;
  for (uint32_t p = 0; p < plan->profile_count; p++) {
    const struct pen_rank_program *tables = &plan->profiles[p].ranks[rank];
    uint64_t exchanging = 0, words;
    for (uint32_t i = 0; i < tables->action_count; i++) switch (tables->actions[i].kind) {
        case PEN_UPDATE:
        case PEN_GRAD_READY:
        case PEN_REDUCE_SCATTER:
        case PEN_ALL_GATHER_GRAD:
        case PEN_ALL_GATHER_WEIGHT:
        case PEN_UNSHARD: exchanging++;
      }
    words = 2 * (uint64_t)plan->profiles[p].message_count + processes +
            (plan->replica_count > 1 ? plan->replica_count * exchanging : 0);
    if (words > most) most = words;
  }
  return most;
}

/* For each peer the largest shard of a gradient of the rank's, where it comes by nccl. */
static uint64_t staging(const struct pen_plan *plan, uint32_t rank) {
  uint64_t most = 0;
  if (strcmp(plan->transport, "nccl") != 0) return 0;
  for (uint32_t i = 0; i < plan->weight_count; i++)
    for (uint32_t replica = 0;
         replica < plan->replica_count && plan->weights[i].rank == rank && !plan->weights[i].frozen;
         replica++) {
      uint64_t bytes = pen_shard_of(plan, i, replica).count * sizeof(float);
      if (bytes > most) most = bytes;
    }
  return (plan->replica_count - 1) * pen_aligned(most);
}

/* The pieces follow each other, and each has room for what plan.h puts there. */
static bool check_pieces(const struct pen_plan *plan, uint32_t rank, struct pen_problem *problem) {
  const struct pen_rank_memory *m = &plan->memory[rank];
  uint64_t own_board = (plan->weight_count + (uint64_t)plan->loss_count) * sizeof(double),
           reduce = 0;
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    uint64_t wanted =
        (plan->weights[i].count + PEN_NORM_BLOCK - 1) / PEN_NORM_BLOCK * sizeof(double);
    if (plan->weights[i].rank == rank && wanted > reduce) reduce = wanted;
  }
  const struct {
    const char *name;
    uint64_t first, bytes, past;
  } piece[] = {
      {"the head of the feed", m->staged_input_offset, sizeof(struct pen_adamw),
       m->staged_input_offset + m->staged_input_bytes},
      {"the end of the feed", m->staged_input_offset, m->staged_input_bytes, m->step_stats_offset},
      {"the board", m->step_stats_offset, plan->replica_count * own_board, m->settings_offset},
      {"the settings", m->settings_offset, sizeof(struct pen_adamw), m->reduce_offset},
      {"the workspace of NORM", m->reduce_offset, reduce, m->flags_offset},
      {"the flags", m->flags_offset, most_words(plan, rank) * sizeof(uint32_t),
       m->shard_staging_offset},
      {"the staging", m->shard_staging_offset, staging(plan, rank),
       m->staged_input_offset + m->device_control_bytes},
  };
  for (size_t i = 0; i < sizeof piece / sizeof *piece; i++) {
    if (piece[i].first % PEN_ALIGNMENT_BYTES)
      return pen_problem_note(
          problem, rank, PEN_NONE, "%s of the step part stands at %llu, not a multiple of %d",
          piece[i].name, (unsigned long long)piece[i].first, PEN_ALIGNMENT_BYTES);
    if (!in_order(piece[i].first, piece[i].bytes, piece[i].past))
      return pen_problem_note(
          problem, rank, PEN_NONE,
          "%s of the step part needs %llu bytes from %llu on, but the next begins at %llu",
          piece[i].name, (unsigned long long)piece[i].bytes, (unsigned long long)piece[i].first,
          (unsigned long long)piece[i].past);
  }
  own_board = pen_aligned(own_board);
  uint64_t pinned = PEN_STEPS_AHEAD * (m->staged_input_bytes + own_board) + PEN_ALIGNMENT_BYTES +
                    PEN_STAGING_BYTES;
  if (m->snapshot_bytes) pinned += PEN_STAGING_BYTES; /* the thread that writes it has its own */
  if (m->pinned_bytes < pinned || m->staged_input_bytes % PEN_ALIGNMENT_BYTES)
    return pen_problem_note(problem, rank, PEN_NONE,
                            "%llu bytes of pinned memory, but feeds, boards and staging take %llu",
                            (unsigned long long)m->pinned_bytes, (unsigned long long)pinned);
  return true;
}

static bool same_op(const struct pen_staged_input *feed, const struct pen_op *op) {
  return feed->kind == op->kind && feed->dtype == op->dtype &&
         memcmp(feed->dim, op->dim, sizeof op->dim) == 0;
}

/* The most microbatches of a step that is fed it. */
static uint32_t most_microbatches(const struct pen_plan *plan,
                                  const struct pen_staged_input *feed) {
  uint32_t most = 0;
  for (uint32_t p = 0; p < plan->profile_count; p++) {
    const struct pen_rank_program *tables = &plan->profiles[p].ranks[feed->rank];
    for (uint32_t i = 0; i < tables->op_count; i++)
      if (plan->profiles[p].microbatch_count > most && same_op(feed, &tables->ops[i]))
        most = plan->profiles[p].microbatch_count;
  }
  return most;
}

/* Feeds lie in the feed behind its head, in rising order, and each holds every microbatch. */
static bool check_feeds(const struct pen_plan *plan, uint32_t rank, struct pen_problem *problem) {
  const struct pen_rank_memory *m = &plan->memory[rank];
  uint64_t at = m->staged_input_offset + sizeof(struct pen_adamw),
           past = m->staged_input_offset + m->staged_input_bytes;
  for (uint32_t i = 0; i < plan->staged_input_count; i++) {
    const struct pen_staged_input *feed = &plan->feeds[i];
    if (feed->rank != rank) continue;
    if (feed->kind >= PEN_OP_COUNT || !pen_signature_of(feed->kind)->is_data)
      return pen_problem_note(problem, rank, PEN_NONE, "feed %u is of no data op", i);
    const struct pen_signature *signature = pen_signature_of(feed->kind);
    if (feed->operand >= signature->operand_count || feed->operand < signature->input_count)
      return pen_problem_note(problem, rank, PEN_NONE, "feed %u (%s) is of no output", i,
                              signature->kind);
    uint64_t bytes = pen_operand_bytes(&signature->operand[feed->operand], feed->dtype, feed->dim),
             all;
    uint32_t microbatches = most_microbatches(plan, feed);
    if (microbatches == 0)
      return pen_problem_note(problem, rank, PEN_NONE, "feed %u (%s) is of no op", i,
                              signature->kind);
    if (feed->bytes != bytes || feed->microbatch_bytes < bytes ||
        feed->microbatch_bytes % PEN_ALIGNMENT_BYTES || feed->offset % PEN_ALIGNMENT_BYTES ||
        __builtin_mul_overflow(feed->microbatch_bytes, (uint64_t)microbatches, &all) ||
        feed->offset < at || !in_order(feed->offset, all, past))
      return pen_problem_note(problem, rank, PEN_NONE,
                              "feed %u (%s) does not hold %u microbatches within the feed", i,
                              signature->kind, microbatches);
    at = feed->offset + all;
  }
  return true;
}

/* Is feed `index` the first of an op's, and are all of its outputs there, in order? */
static bool feeds_op(const struct pen_plan *plan, uint32_t index, uint32_t rank,
                     const struct pen_op *op) {
  const struct pen_signature *signature = pen_signature_of(op->kind);
  for (int k = signature->input_count; k < signature->operand_count; k++, index++) {
    const struct pen_staged_input *feed = &plan->feeds[index];
    if (index >= plan->staged_input_count || feed->rank != rank || feed->operand != k ||
        !same_op(feed, op))
      return false;
  }
  return true;
}

/* Every data op finds its feeds. */
static bool check_data_ops(const struct pen_plan *plan, const struct pen_profile *profile,
                           uint32_t rank, struct pen_problem *problem) {
  const struct pen_rank_program *tables = &profile->ranks[rank];
  for (uint32_t index = 0; index < tables->op_count; index++) {
    const struct pen_op *op = &tables->ops[index];
    bool found = !pen_signature_of(op->kind)->is_data;
    for (uint32_t i = 0; i < plan->staged_input_count && !found; i++)
      found = feeds_op(plan, i, rank, op);
    if (!found)
      return pen_problem_note(problem, rank, PEN_NONE, "%s: op %u (%s) has no feed", profile->name,
                              index, pen_signature_of(op->kind)->kind);
  }
  return true;
}

static bool check_none(const struct pen_plan *plan, uint32_t rank, struct pen_problem *problem) {
  const struct pen_rank_memory *m = &plan->memory[rank];
  if (plan->staged_input_count == 0 &&
      (m->staged_input_offset | m->staged_input_bytes | m->step_stats_offset | m->settings_offset |
       m->reduce_offset | m->flags_offset | m->shard_staging_offset | m->device_control_bytes |
       m->pinned_bytes) == 0)
    return true;
  return pen_problem_note(problem, rank, PEN_NONE,
                          "a step part, but the device (%s) has no memory of its own",
                          plan->device);
}

bool pen_check_device_control(const struct pen_plan *plan, struct pen_problem *problem) {
  bool feeds = pen_device_copies_data_op(plan->device);
  for (uint32_t i = 0; i < plan->staged_input_count; i++)
    if (plan->feeds[i].rank >= plan->rank_count)
      return pen_problem_note(problem, PEN_NONE, PEN_NONE, "feed %u is of rank %u of %u", i,
                              plan->feeds[i].rank, plan->rank_count);
  for (uint32_t rank = 0; rank < plan->rank_count; rank++) {
    if (!feeds && !check_none(plan, rank, problem)) return false;
    if (feeds && (!check_pieces(plan, rank, problem) || !check_feeds(plan, rank, problem)))
      return false;
    for (uint32_t i = 0; feeds && i < plan->profile_count; i++)
      if (!check_data_ops(plan, &plan->profiles[i], rank, problem)) return false;
  }
  return true;
}
