/* plan.h: the plan: the tables that penstock-gen writes and the ranks run.
 *
 * One plan serves all ranks of a deployment. It has one or more profiles: train, eval, both again
 * for each further sequence-length bucket, and generation: over a cache, and at several lengths. In
 * each profile every rank has a list of actions, the programs that they run, and the place of every
 * byte. The runtime makes no decision of its own except which profile a step uses. plan.def lists
 * the tables.
 *
 * Memory. A rank has one arena, addressed by byte offsets from 0:
 *
 *     0             receive_bytes                             persistent_end            arena_bytes
 *     | receive region | weights, gradients, moments, constants, losses | activations and scratch |
 *     | peers write    | the rank's own, for the whole run              | one layout a profile    |
 *
 * Activations and scratch may also lie in the receive region, in actions during which no message
 * can arrive at their bytes. No buffer crosses its end. In the profiles of generation the arena
 * ends with the cache of keys and values, which steps keep. The address of a tensor is arena +
 * frame.base[tensor.base] + tensor.offset, with the frame of the action that runs.
 *
 * Types. A tensor and an op each have a dtype; that of the op is ":t" in its signature (ops.def).
 * In a bf16 plan these are bf16: activations and their gradients, and for each weight that a matrix
 * product reads a copy (bf16_offset; its tensor has the weight's name with ".bf16" added). These
 * are f32: the weights themselves (which the files hold and the optimizer updates), their gradients
 * and moments, weights that no matrix product reads (tables, gains, biases), statistics of norms
 * and attention, and constants. Losses are f64. The bf16 copies are written when weights come from
 * a file or a seed, and by UPDATE.
 *
 * Messages. A message has a target_offset in the receive region of its receiver, which the sender
 * knows. (That of SEND_V is the copy of a tied matrix that the head reads, just after the receive
 * region.) On a channel, a directed pair of ranks, messages leave and arrive in the order of
 * `sequence`. The n-th message of step k (both from 0) has arrived when the channel's count of
 * arrivals is at least k*message_count + n + 1. A sender may write the target
 *   (a) of a message with a credit, once the channel's count of credits is at least
 *       k*credit_count + credit + 1: the receiver has run the RECV;
 *   (b) of a message without one, at once: verify has proved that the last use of the target is
 *       before an action of the receiver that the sender knows of by a message or WAIT_NORM.
 * Both hold across consecutive steps of a profile. A step of another profile begins after every
 * rank has completed the step before; k counts the steps of one profile.
 *
 * Splits. With tensor_parallel.splits above 1 matrices are split by rows or columns, and so are
 * the vocabulary's. A split is a weight by itself: it has values, gradients, moments and shards of
 * its own. Splits of a tensor are consecutive in the table, rising. The files hold the whole
 * tensor: element e of a split is its element run_first + e / run_count * run_stride + e %
 * run_count, and the offsets in the files are those of the tensor. Of a tied matrix each split has
 * a row in `ties`; what SEND_G and SEND_V send of the splits lies side by side, each aligned, so
 * that one message has all of it.
 *
 * Stacks. A matrix of all experts of a layer is one weight, and in the files a tensor an expert.
 * The name of the weight has a `*` where the name of a tensor has its number; tensor_dim is that of
 * each. They are consecutive in the files, too, rising. The step statistics, and the checksums of a
 * checkpoint, have an entry a tensor; without stacks an entry a weight.
 *
 * Processes. groups.def has the coordinates of a process, its number, the global rank, and its
 * groups. Its pipeline rank is the "rank" of the tables, its data rank that of its replica.
 *
 * Tensor ranks. A rank is tensor_ranks processes (tensor_parallel.ranks), which run the same
 * tables. Of the splits of a tensor, whose number they divide, each tensor rank has a run of
 * consecutive ones, rising; the tensors of the tables are those of tensor rank 0, and the others
 * have theirs at the same offsets, those of ties too. Weights that are not split are on each tensor
 * rank. UPDATE of a matrix of Muon needs all its splits: exchanges bring them to the workspace of
 * one tensor rank, and what it has made of them back, in place of the gradients; both are in the
 * first shared_bytes of the arena. A tensor rank sends its messages, and its splits of a tied
 * matrix, to the same tensor rank of the other ranks.
 *
 * Replicas. A replica is a pipeline of rank_count ranks with tables, arenas and messages of its
 * own, all of this plan. Its peers are the same rank of the other replicas; what they read is in
 * the first shared_bytes of its arena. A sharded tensor has one shard a replica (shard.h). A
 * replica keeps only its own shard, at the tensor's offset; the space is that of the largest shard,
 * so that one plan serves all replicas. data_parallel.shard says whether moments, and values and
 * bf16 copies, are sharded. What programs read of sharded weights is whole in base UNSHARDED
 * between UNSHARD and RESHARD. Collectives are counted from 1 in the list of a rank; an action with
 * awaited_collective E begins after each peer has completed E collectives of this step and all
 * collectives of earlier steps.
 */
#ifndef PEN_PLAN_H
#define PEN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kernels/ops.h"
#include "runtime/plan/groups.h"
#include "runtime/plan/transports.h"

enum {
  PEN_DIGEST_BYTES = 32,
  PEN_WEIGHT_DIMS_MAX = 2,
  PEN_FILE_DIMS_MAX = 4,  /* of a weight in files */
  PEN_INPUT_DIMS_MAX = 4, /* of a sample */
  PEN_PAGE_BYTES = 4096,
  PEN_PROMPTS_MAX = 64, /* texts that a step of generation continues */
  PEN_GROUPS_MAX = 64,  /* groups of so many texts in flight */
  PEN_TENSOR_NAME_BYTES = 512,
};
#define PEN_NONE UINT32_MAX /* no such index: program, message, tensor, credit */

enum pen_action_kind {
#define PEN_ACTION(kind, text, printed, meaning) PEN_##kind,
#include "runtime/plan/actions.def"
  PEN_ACTION_KINDS
};

enum pen_base {
#define PEN_BASE(name, text, meaning) PEN_BASE_##name,
#include "runtime/plan/bases.def"
  PEN_BASES
};

/* What replicas shard instead of each keeping all of it (data_parallel.shard). */
enum pen_sharding {
#define PEN_SHARDING(name, text, meaning) PEN_SHARD_##name,
#include "runtime/plan/choices.def"
  PEN_SHARDINGS
};

/* How the ranks of a host are bound to cores (cluster.bind). */
enum pen_bind_mode {
#define PEN_BIND(name, text, meaning) PEN_BIND_##name,
#include "runtime/plan/choices.def"
  PEN_BIND_LIST, /* the plan's cores */
  PEN_BIND_MODES
};
static inline const char *pen_bind_text(int mode) {
  static const char *const text[PEN_BIND_MODES] = {
#define PEN_BIND(name, text, meaning) text,
#include "runtime/plan/choices.def"
      "list"};
  return text[mode];
}

/* Kinds of actions: first those with a stage and a microbatch, then those of the end of the step,
 * then those with a stage alone. */
static inline bool pen_kind_has_stage(int kind) {
  return kind < PEN_NORM || kind >= PEN_GRAD_READY;
}
static inline bool pen_kind_has_microbatch(int kind) { return kind < PEN_NORM; }
/* Collectives of the replicas, if there are several. */
static inline bool pen_kind_is_collective(int kind) {
  return kind == PEN_UPDATE || (kind >= PEN_GRAD_READY && kind != PEN_RESHARD);
}
/* Collectives that read the arenas of peers. */
static inline bool pen_kind_reads_peers(int kind) {
  return kind >= PEN_REDUCE_SCATTER && kind <= PEN_UNSHARD;
}
/* What an action does with its message. */
static inline bool pen_kind_sends(int kind) {
  return kind == PEN_SEND_F || kind == PEN_SEND_B || kind == PEN_SEND_G || kind == PEN_SEND_V;
}
static inline bool pen_kind_receives(int kind) {
  return kind == PEN_RECV_F || kind == PEN_RECV_B || kind == PEN_RECV_G || kind == PEN_RECV_V;
}
static inline bool pen_kind_waits(int kind) {
  return kind == PEN_WAIT_F || kind == PEN_WAIT_B || kind == PEN_WAIT_G || kind == PEN_WAIT_V;
}

/* In which order every stage runs the backwards of its microbatches, in which its gradients add
 * them: bits depend on it. */
enum pen_backward_order { PEN_BACKWARDS_RISING, PEN_BACKWARDS_FALLING, PEN_BACKWARDS_GIVEN };

/* What a profile is for. */
enum pen_profile_kind {
#define PEN_PROFILE_KIND(kind, meaning) PEN_##kind,
#include "runtime/plan/profiles.def"
  PEN_PROFILE_KINDS
};

/* What a stage keeps for its backward (memory.recompute). */
enum pen_recompute_kind {
#define PEN_RECOMPUTE_KIND(name, text, meaning) PEN_RECOMPUTE_##name,
#include "runtime/plan/recompute.def"
  PEN_RECOMPUTE_KINDS
};
static inline const char *pen_recompute_text(int kind) {
  static const char *const text[] = {
#define PEN_RECOMPUTE_KIND(name, text, meaning) text,
#include "runtime/plan/recompute.def"
  };
  return text[kind];
}

/* How the bytes of a put move. */
enum pen_put_kind {
#define PEN_PUT_KIND(name, meaning) PEN_PUT_##name,
#include "runtime/plan/puts.def"
  PEN_PUT_KINDS
};

/* What data have of an input. */
enum pen_input_dtype {
#define PEN_INPUT_DTYPE(name, text, also, ids, values) PEN_INPUT_##name,
#include "runtime/plan/inputs.def"
  PEN_INPUT_DTYPES
};

/* What the share of a loss is over. */
enum pen_share_kind {
#define PEN_SHARE(name, text, of_input, meaning) PEN_SHARE_##name,
#include "runtime/plan/shares.def"
  PEN_SHARE_KINDS
};
enum { PEN_SHARES_MAX = 16 };

/* CONSTANT: each element is the weight's `deviation`. */
enum pen_initial {
  PEN_INITIAL_NORMAL,
  PEN_INITIAL_ONES,
  PEN_INITIAL_ZEROS,
  PEN_INITIAL_CONSTANT,
  PEN_INITIAL_GIVEN /* by files alone: a run that starts without them ends */
};

enum pen_optimizer_kind {
#define PEN_OPTIMIZER(name, text, moment, second, meaning) PEN_OPTIMIZER_##name,
#include "runtime/plan/optimizer.def"
  PEN_OPTIMIZERS
};

enum pen_decay {
#define PEN_DECAY(name, text, meaning) PEN_DECAY_##name,
#include "runtime/plan/optimizer.def"
  PEN_DECAYS
};

enum pen_norm_kind {
#define PEN_NORM_KIND(name, text, meaning) PEN_NORM_##name,
#include "runtime/plan/optimizer.def"
  PEN_NORM_KINDS
};

/* The device control block. On a device with memory of its own the host runs up to PEN_STEPS_AHEAD
 * steps ahead of what the device has reported. The persistent part of the arena then has, in this
 * order, each on PEN_ALIGNMENT_BYTES:
 *
 *     staged_input_offset   a struct pen_adamw, then the staged inputs; the host copies them each
 *                           step
 *     step_stats_offset     step statistics, f64: the rank's own entries, then those of all ranks
 *     settings_offset       the struct pen_adamw of this step
 *     reduce_offset         workspace of NORM
 *     flags_offset          u32 flags of the transport, which peers write
 *     shard_staging_offset  where peers' memory cannot be read (pen_peers_send_shards): from each
 *                           other replica of the shard group, a shard of a gradient, or of all
 *                           gradients of a unit one after the other, each as large as the largest
 *
 * The flags are those of the profile that runs: arrivals [messages], credits [messages], published
 * [processes], with replicas, collectives completed [replica][collectives of the rank's list], and,
 * with several tensor ranks, exchanges signalled [2][tensor rank], alternately.
 *
 * On the CPU the block has the shard staging alone.
 *
 * Pinned host memory has, each on PEN_ALIGNMENT_BYTES: PEN_STEPS_AHEAD times the staged inputs, as
 * many step statistics of one replica, the progress counters (u32 each: actions done; actions whose
 * sends have completed), and PEN_STAGING_BYTES for checkpoints (twice with a snapshot: the thread
 * that writes it has its own). */
enum { PEN_STEPS_AHEAD = 2, PEN_STAGING_BYTES = 4 << 20 };

/* What the generator predicts for a step of the first profile, in `unit`, collectives of the
 * replicas included. No rank acts on it. */
struct pen_forecast {
  const char *unit;   /* "in ms" */
  double makespan;    /* of the step */
  double exchanging;  /* the collectives, on the rank with the most */
  double exposed;     /* by how much the collectives lengthen the step */
  const double *busy; /* [rank_count]: F, I, W and B of a rank */
  /* Floating-point operations of the step, without what is computed again, by one tensor rank of
   * each rank of one replica; and what a rank computes at most, in 10^12 a second. 0: not known. */
  double flops, peak_tflops;
  /* [rank_count][2 * actions F, I, W and B of the rank's list]: start and end of each of these. */
  const double *const *times;
};

/* Step statistics. Each replica has one f64 a tensor ("Stacks"; of its shard of the gradient the
 * sum of squares or the largest magnitude, written by the owner), then the loss table: rows of
 * loss_count f64, one a microbatch (0 past the microbatches of the profile). Row 0 has the loss,
 * written by the rank of the last stage; then each layer of `router_losses` has two, written by the
 * rank of its stage, and 0 unless the profile trains. After the loss table each of `routers` has
 * one f64 an expert, written by the rank of its stage: the choices of the step, 0 unless the
 * profile trains. Every rank can read them after WAIT_NORM. */

/* The tables. */
#define PEN_TABLE(tag, kind, name, rows, meaning) struct pen_##tag {
#define PEN_COLUMN(tag, type, field, format, meaning) type field;
#define PEN_ARRAY(tag, type, field, count, format, meaning) type field[count];
#define PEN_FIELD(tag, declaration, meaning) declaration;
#define PEN_TABLE_END(tag) \
  }                        \
  ;
#include "runtime/plan/plan.def"

/* The element of the tensor that an element of a weight is. */
static inline uint64_t pen_tensor_element(const struct pen_weight *weight, uint64_t element) {
  return weight->run_first + element / weight->run_count * weight->run_stride +
         element % weight->run_count;
}

/* The tensors of the files that a weight is: 1, also of a split of one. */
static inline uint32_t pen_tensor_count(const struct pen_weight *weight) {
  return weight->stack > 0 ? weight->stack : 1;
}

/* The elements of the tensor that a weight is, or is a split of; of all tensors of a stack. */
static inline uint64_t pen_tensor_elements(const struct pen_weight *weight) {
  return pen_tensor_count(weight) * weight->tensor_dim[0] *
         (weight->dim_count > 1 ? weight->tensor_dim[1] : 1);
}

/* The shape of one of them in files. */
static inline const uint64_t *pen_file_shape(const struct pen_weight *weight, uint32_t *count) {
  *count = weight->file_dim_count > 0 ? weight->file_dim_count : weight->dim_count;
  return weight->file_dim_count > 0 ? weight->file_dim : weight->tensor_dim;
}

/* The elements of one of them. */
static inline uint64_t pen_one_tensor_elements(const struct pen_weight *weight) {
  return pen_tensor_elements(weight) / pen_tensor_count(weight);
}

/* Whether it is a tensor of the model, and of its file: not so counts of choices, which are none of
 * its parameters, and have a moment alone in a checkpoint. */
static inline bool pen_is_of_model(const struct pen_weight *weight) {
  return weight->optimizer != PEN_OPTIMIZER_CHOICES;
}

/* Its tensors in the file of the model. */
static inline uint32_t pen_model_tensor_count(const struct pen_weight *weight) {
  return pen_is_of_model(weight) ? pen_tensor_count(weight) : 0;
}

/* Entries of the step statistics: the first of a weight, and all. */
static inline uint32_t pen_first_entry(const struct pen_plan *plan, uint32_t weight) {
  return weight + plan->weights[weight].stacked_before;
}
static inline uint32_t pen_entry_count(const struct pen_plan *plan) {
  return plan->weight_count + plan->stacked;
}

/* Writes the name of a tensor of a weight; false: it has no room. */
static inline bool pen_tensor_name(char *to, size_t bytes, const struct pen_weight *weight,
                                   uint32_t number) {
  const char *star = weight->stack > 0 ? strchr(weight->tensor, '*') : NULL;
  const int length = star ? snprintf(to, bytes, "%.*s%u%s", (int)(star - weight->tensor),
                                     weight->tensor, number, star + 1)
                          : snprintf(to, bytes, "%s", weight->tensor);
  return length >= 0 && (size_t)length < bytes;
}

static inline bool pen_has_message(const struct pen_action *action) {
  return pen_kind_sends(action->kind) || pen_kind_receives(action->kind) ||
         pen_kind_waits(action->kind) ||
         (action->kind == PEN_ADD_TIED_GRAD && action->message != PEN_NONE);
}

/* Whether a profile continues texts (enum pen_profile_kind). */
static inline bool pen_profile_kind_generates(int profile_kind) {
  return profile_kind == PEN_GENERATE || profile_kind == PEN_CACHED;
}

/* Whether a profile computes losses, of all sequences of a step, and no gradients. */
static inline bool pen_profile_kind_evaluates(int profile_kind) {
  return profile_kind == PEN_EVAL || profile_kind == PEN_SCORE;
}

/* The rank of the last stage, which has the predictions and the losses. */
static inline uint32_t pen_last_stage_rank(const struct pen_plan *plan,
                                           const struct pen_profile *profile) {
  return profile->stages[plan->stage_count - 1].rank;
}

/* Whether the gradient of a weight is summed over the members of a group. */
static inline bool pen_sums_gradient(const struct pen_weight *weight, int group) {
  return weight->sum_groups >> group & 1;
}

/* Whether two processes are in one group. */
static inline bool pen_in_group(const struct pen_plan *plan, uint32_t global, int group,
                                uint32_t other) {
  return pen_group_process(plan, global, group, 0) == pen_group_process(plan, other, group, 0);
}

/* Processes of the deployment; of a replica: the first of all are those of the first. */
static inline uint32_t pen_process_count(const struct pen_plan *plan) {
  return (uint32_t)pen_count_in(PEN_SIZES(plan), UINT32_MAX);
}
static inline uint32_t pen_replica_process_count(const struct pen_plan *plan) {
  return (uint32_t)pen_count_in(PEN_SIZES(plan), ~PEN_IN(DATA));
}
/* The rank, of those of the tables, that a process runs. */
static inline uint32_t pen_table_rank(const struct pen_plan *plan, uint32_t global) {
  return pen_group_member(plan, global, PEN_PIPELINE);
}

/* The process that has the predictions and the losses of the first replica. */
static inline uint32_t pen_last_stage_process(const struct pen_plan *plan,
                                              const struct pen_profile *profile) {
  return pen_group_process(plan, 0, PEN_PIPELINE, pen_last_stage_rank(plan, profile));
}

/* Pipelines, each of the processes of one pipeline group; and which one a process is in. */
static inline uint32_t pen_pipeline_count(const struct pen_plan *plan) {
  return (uint32_t)pen_count_in(PEN_SIZES(plan), ~PEN_IN(PIPELINE));
}
static inline uint32_t pen_pipeline_index(const struct pen_plan *plan, uint32_t global) {
  return pen_number_of(plan, pen_coordinates_of(plan, global), ~PEN_IN(PIPELINE));
}

/* The row of an op that is a collective, or a part of one, which the first of its ops runs; null:
 * it is none. */
static inline const struct pen_collective *pen_collective_of(const struct pen_rank_program *tables,
                                                             const struct pen_op *op) {
  static const bool is_collective[PEN_OP_COUNT] = {
#define PEN_COLLECTIVE_OP(kind, dims, reals, signature, flops, meaning) [PEN_OP_##kind] = true,
#include "kernels/ops.def"
  };
  return is_collective[op->kind] ? &tables->collectives[op->collective] : NULL;
}

/* The collectives of the data ranks that the program of an action completes. */
static inline uint32_t pen_collectives_within(const struct pen_rank_program *tables,
                                              const struct pen_action *action) {
  uint32_t count = 0;
  if (action->kind <= PEN_W) {
    const struct pen_program *program = &tables->programs[action->program];
    for (uint32_t op = program->first_op; op < program->first_op + program->op_count; op++) {
      const struct pen_collective *row = pen_collective_of(tables, &tables->ops[op]);
      count += row && row->group == PEN_DATA && row->completes;
    }
  }
  return count;
}

/* Of the splits of a tensor, how many a tensor rank has. */
static inline uint32_t pen_local_split_count(const struct pen_plan *plan, uint32_t splits) {
  return splits / pen_group_size(plan, PEN_TENSOR);
}
/* The first tensor rank that has a weight. */
static inline uint32_t pen_first_tensor_rank(const struct pen_plan *plan,
                                             const struct pen_weight *weight) {
  return weight->split * pen_group_size(plan, PEN_TENSOR) / weight->split_count;
}
/* The weight that a tensor rank has where the first has `weight`, an index. */
static inline uint32_t pen_local_weight(const struct pen_plan *plan, uint32_t weight,
                                        uint32_t tensor_rank) {
  const uint32_t splits = plan->weights[weight].split_count;
  return weight + (splits == 1 ? 0 : tensor_rank * pen_local_split_count(plan, splits));
}
/* The weight that the first tensor rank has where another has `weight`, an index: it is as large.
 */
static inline uint32_t pen_first_tensor_rank_weight(const struct pen_plan *plan, uint32_t weight) {
  const struct pen_weight *of = &plan->weights[weight];
  return weight - pen_first_tensor_rank(plan, of) * pen_local_split_count(plan, of->split_count);
}
/* The ties of a tensor rank: its splits of the matrix that embedding and head share. How many, the
 * same for all; and those of a process. */
static inline uint32_t pen_local_tie_count(const struct pen_plan *plan) {
  return pen_local_split_count(plan, plan->tie_count);
}
static inline const struct pen_tie *pen_own_ties(const struct pen_plan *plan, uint32_t global) {
  return plan->ties + pen_group_member(plan, global, PEN_TENSOR) * pen_local_tie_count(plan);
}
/* Whether a tensor rank has what a weight is: a split of its own, or what is not split. Whether a
 * process has a weight; whether it is the first tensor rank that has it, which counts it in the
 * norm and saves it. */
static inline bool pen_has_split(const struct pen_plan *plan, const struct pen_weight *weight,
                                 uint32_t global) {
  return weight->split_count == 1 ||
         pen_first_tensor_rank(plan, weight) == pen_group_member(plan, global, PEN_TENSOR);
}
static inline bool pen_has_weight(const struct pen_plan *plan, const struct pen_weight *weight,
                                  uint32_t global) {
  return weight->rank == pen_table_rank(plan, global) && pen_has_split(plan, weight, global);
}
static inline bool pen_owns_weight(const struct pen_plan *plan, const struct pen_weight *weight,
                                   uint32_t global) {
  return weight->rank == pen_table_rank(plan, global) &&
         pen_first_tensor_rank(plan, weight) == pen_group_member(plan, global, PEN_TENSOR);
}

/* Hosts that train and spare hosts: the same for all plans of a binary; 0 where all ranks are
 * always on one host. */
static inline uint32_t pen_host_and_spare_count(const struct pen_plan *plan) {
  return plan->host_count + plan->spare_count;
}

/* The plan of this binary. */
extern const struct pen_plan pen_plan;

#endif
