/* plan.h: the contract between generator and runtime: the tables that penstock-gen writes and the
 * runtime walks.
 *
 * One plan serves all ranks of one deployment. It holds one or more profiles (train, eval, both for
 * each further shape of a step, and generation for windows of several lengths): in each, every rank
 * has a list of actions (rows), the programs they run, and the place of every byte. The runtime
 * adds nothing and decides nothing, but for the shape of a step.
 *
 * Memory. A rank has one arena, addressed by byte offsets from 0:
 *
 *     0            receive_bytes          persistent_end                         arena_bytes
 *     | receive slots | weights, gradients, moments, constants, losses | activations and scratch |
 *     | peers write   |            own, for the whole run              | one layout a profile    |
 *
 * The window also holds activations and scratch in rows in which no message may come to their
 * bytes. Nothing lies across its end.
 *
 * A tensor's address is arena + frame.base[tensor.base] + tensor.offset, with the frame of the row
 * that runs.
 *
 * Types. Each tensor says its dtype, and so does each op: `dtype` is what ":t" stands for in its
 * signature (ops.def). In a plan of bf16 these are bf16: all activations and their gradients (what
 * is saved, what messages carry), and for each weight that a matrix product reads a copy, at
 * bf16_offset, named after the weight with ".bf16" behind it. f32 are: the weights themselves (all
 * that the files and the optimizer know), their gradients and moments, what is not multiplied as a
 * matrix (embedding and position tables, gains and biases are read from the weight itself),
 * statistics of norms and attention, and tables made at start; f64: the losses. The copies are made
 * when weights come from a file or a seed, and by UPDATE behind each weight's step; nobody else
 * writes them.
 *
 * Messages. Every message has a home: target_offset in the receiver's window, known to the sender.
 * (That of SEND_V is what the head reads of a tied matrix, right behind the window: peers may write
 * there too. It has no credit: its sender has heard of SEND_G.) On a channel (a directed pair of
 * ranks) messages leave and arrive in the order of `sequence`; the n-th of step k (both from 0) has
 * come when the channel's arrival count has reached k*message_count + n + 1. The sender may write a
 * home (a) when the message has a credit, after the receiver ran its RECV row: the channel's credit
 * count has reached k*credit_count + credit + 1; (b) when it has none, at once: verify has proved
 * that whatever was in the home before was last used before a row of the receiver that the sender
 * has heard of, by a message, or by WAIT_NORM. This holds across successive steps of a profile too.
 * A step of another profile may begin once every rank has ended the step before, and k counts the
 * steps of the profile alone; so do arrivals and credits.
 *
 * Replicas. Every replica is a pipeline of rank_count ranks with tables, arenas and messages of its
 * own, all by this plan: rank r of replica d is process d*rank_count + r of the deployment, its
 * global rank. What peers (the same rank of the other replicas) read of each other lies in the
 * first shared_bytes of the arena. They cut a tensor into shards, one for each replica, by
 * pen_shard_of(). With sharding, of what is cut a replica keeps its own shard alone, from the
 * tensor's offset on; the place is as large as the largest shard, pen_shard_most(), so that one
 * plan serves all. Moments are cut, and values and copies that say so. What programs read of a
 * weight of which that is cut lies in the activation part, base UNSHARDED, from UNSHARD to RESHARD.
 * A row that waits for row E of its peers' exchange (actions.def) may begin when each has ended E
 * rows of the exchange since the step began, and all of the steps before.
 */
#ifndef PEN_PLAN_H
#define PEN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

enum {
  PEN_DIGEST_BYTES = 32,
  PEN_WEIGHT_DIMS_MAX = 2,
  PEN_PAGE_BYTES = 4096,
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

/* What replicas share out among them instead of each holding the whole (data_parallel.shard). */
enum pen_sharding { PEN_SHARD_NONE, PEN_SHARD_OPTIMIZER, PEN_SHARD_WEIGHTS };

/* Kinds of rows: those with a stage and a microbatch come first, then those of the step's end, then
 * those of a stage alone. */
static inline bool pen_kind_has_stage(int kind) {
  return kind < PEN_NORM || kind >= PEN_GRAD_READY;
}
static inline bool pen_kind_has_microbatch(int kind) { return kind < PEN_NORM; }
/* Those of the exchange between replicas, where there are any. */
static inline bool pen_kind_is_collective(int kind) {
  return kind == PEN_UPDATE || (kind >= PEN_GRAD_READY && kind != PEN_RESHARD);
}
/* Of these, those that bring what peers have. */
static inline bool pen_kind_reads_peers(int kind) {
  return kind == PEN_REDUCE_SCATTER || kind == PEN_ALL_GATHER_GRAD ||
         kind == PEN_ALL_GATHER_WEIGHT || kind == PEN_UNSHARD;
}
/* What a row does with its message. */
static inline bool pen_kind_sends(int kind) {
  return kind == PEN_SEND_F || kind == PEN_SEND_B || kind == PEN_SEND_G || kind == PEN_SEND_V;
}
static inline bool pen_kind_receives(int kind) {
  return kind == PEN_RECV_F || kind == PEN_RECV_B || kind == PEN_RECV_G || kind == PEN_RECV_V;
}
static inline bool pen_kind_waits(int kind) {
  return kind == PEN_WAIT_F || kind == PEN_WAIT_B || kind == PEN_WAIT_G || kind == PEN_WAIT_V;
}

/* One row. What a kind uses of it stands in actions.def; nobody reads the rest. The columns that
 * few rows have come last: zeros at a row's end are not written, and large plans compile the
 * faster. */
struct pen_action {
  uint8_t kind;   /* enum pen_action_kind */
  uint16_t stage; /* the acting rank's own stage */
  uint32_t microbatch;
  uint32_t message; /* index into the profile's messages, or E of actions.def */
  uint32_t program; /* index into the rank's programs */
  uint32_t frame;   /* index into the rank's frames */
  bool overlaps; /* F, B, I, W: the first of a pair a|b. The next row, also one of these, may run at
                  * the same time: neither needs what the other makes, their bytes are apart, and
                  * what follows waits for both. Or they run in turn. */
};

/* The column is E in other rows. */
static inline bool pen_has_message(const struct pen_action *action) {
  return (pen_kind_has_microbatch(action->kind) || action->kind == PEN_ADD_TIED_GRAD) &&
         action->message != PEN_NONE;
}

/* Where the bases of one row lie, in bytes from the start of the arena. */
struct pen_frame {
  uint64_t base[PEN_BASES];
};

/* One named tensor of one stage (or, with base PERSISTENT, of the rank). Single assignment: within
 * one microbatch exactly one op writes it (or a message does), but for accumulators, which many add
 * to. A weight has its name in the files, its gradient that with ".grad" behind it. */
struct pen_tensor {
  const char *name;
  uint8_t dtype; /* enum pen_dtype */
  uint8_t base;  /* enum pen_base */
  uint64_t offset;
  uint64_t bytes;
};

/* One call of one kernel: operands are indices into the rank's tensors, PEN_NONE where absent, in
 * ops.def's order. */
struct pen_op {
  uint16_t kind; /* enum pen_op_kind */
  uint8_t dtype; /* enum pen_dtype: of the operands that are ":t" in the signature; PEN_F32 where
                    none is */
  uint32_t operand[PEN_OPERANDS_MAX];
  uint32_t workspace; /* tensor, or PEN_NONE */
  int64_t dim[PEN_DIMS_MAX];
  double real[PEN_REALS_MAX];
};

/* Consecutive ops, run in order. */
struct pen_program {
  uint16_t stage;
  uint8_t kind; /* PEN_F, PEN_B, PEN_I, PEN_W */
  uint32_t first_op, op_count;
  uint32_t recompute_op_count; /* ops at its head that run the stage's F again (memory.recompute) */
};

/* A stage as its rank sees it: which tensors meet the neighbours (PEN_NONE at the ends of the
 * model). Neighbours on the same rank hand over in place: the OUTPUT base of stage s is the INPUT
 * base of s+1, and likewise for gradients. */
struct pen_stage {
  uint32_t rank;
  uint32_t first_layer, past_last_layer;
  uint32_t input, output, output_gradient, input_gradient; /* indices into the rank's tensors */
  bool recomputes;                                         /* memory.recompute = "full" */
  const char
      *first_block; /* what it begins with: "model.layers.3.mlp"; layers count where they begin */
};

/* One message of one step. */
struct pen_message {
  uint8_t kind;   /* PEN_SEND_F, PEN_SEND_B, PEN_SEND_G or PEN_SEND_V */
  uint16_t stage; /* the sending stage */
  uint32_t microbatch;
  uint32_t channel;
  uint32_t sequence; /* place on the channel within the step, from 0 */
  uint32_t credit; /* place among the channel's credits within the step, or PEN_NONE: proved free */
  uint64_t source_offset, target_offset; /* in the sender's and in the receiver's arena */
  uint64_t bytes;
};

struct pen_channel {
  uint32_t from_rank, to_rank;
  uint32_t message_count, credit_count; /* in one step */
};

/* What one rank does in one profile. */
struct pen_rank_program {
  const struct pen_action *actions;
  const struct pen_program *programs;
  const struct pen_op *ops;
  const struct pen_tensor *tensors;
  const struct pen_frame *frames;
  uint32_t action_count, program_count, op_count, tensor_count, frame_count;
  uint32_t start_first_op, start_op_count; /* run once before the first step: constants */
};

/* What a profile is for. Evaluation and generation run forwards alone; a step of generation has one
 * microbatch of one sequence. */
enum pen_profile_kind {
#define PEN_PROFILE_KIND(kind, meaning) PEN_##kind,
#include "runtime/plan/profiles.def"
  PEN_PROFILE_KINDS
};

struct pen_profile {
  const char *name; /* "train", "eval" */
  uint8_t kind;
  const struct pen_stage *stages; /* [stage_count] */
  const struct pen_message *messages;
  const struct pen_channel *channels;
  const struct pen_rank_program *ranks; /* [rank_count] */
  uint32_t message_count, channel_count;
  uint32_t microbatch_count, sequence; /* its shape */
};

enum pen_initial { PEN_INITIAL_NORMAL, PEN_INITIAL_ONES, PEN_INITIAL_ZEROS };

/* One weight of the model, in model order (the order of the files, of the board and of the norm).
 * Offsets into the files are absolute; offsets into the arena are the owner's. A frozen weight has
 * no gradient, no moments and no place in the optimizer's file: UINT64_MAX. Nor has any weight a
 * gradient or moments in the arena of a plan without a train profile. */
struct pen_weight {
  const char *name; /* Hugging Face's */
  uint32_t stage, rank;
  uint32_t dim_count;
  uint64_t dim[PEN_WEIGHT_DIMS_MAX];
  uint64_t count;  /* elements */
  uint8_t initial; /* enum pen_initial */
  double deviation;
  bool frozen;
  double weight_decay;              /* 0: it does not decay */
  bool value_sharded, bf16_sharded; /* a replica keeps its own shard of the value, or of the bf16
                                       copy, alone: see "Replicas" */
  uint64_t value_offset, gradient_offset, exp_avg_offset, exp_avg_sq_offset; /* arena */
  uint64_t
      bf16_offset; /* arena: the bf16 copy that products read, `count` elements; UINT64_MAX: none */
  uint64_t value_file, exp_avg_file, exp_avg_sq_file; /* files */
};

/* A matrix that embedding and head share (model.tie_embeddings). The weight is the embedding's, on
 * the rank of the first stage, which alone updates and stores it. Each of the two adds to a
 * gradient of its own; ADD_TIED_GRAD adds them once a step. Where the head is on another rank it
 * reads a copy there: its gradient goes to the owner by SEND_G before the norm, the updated weight
 * comes back by SEND_V. */
struct pen_tie {
  uint32_t weight;                        /* index */
  uint32_t rank;                          /* the head's */
  uint8_t dtype;                          /* of what the head reads: the weight, or its bf16 copy */
  uint64_t value_offset, gradient_offset; /* the head's: what it reads (on one rank the owner's),
                                             its gradient (UINT64_MAX: none) */
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

struct pen_optimizer {
  double learning_rate, minimum_ratio, beta1, beta2, epsilon,
      clip_norm; /* weight decay: see struct pen_weight */
  uint64_t warmup_steps, steps, decay_steps;
  uint8_t decay; /* enum pen_decay */
  uint8_t norm;  /* enum pen_norm_kind: what clip_norm is compared with, and the log tells */
};

/* What the host gives a step where the device has memory of its own: one output of one data op (by
 * kind and dims) of a rank, for all microbatches of any step that has the op. The op then copies
 * its microbatch's part. The outputs of an op follow each other. */
struct pen_staged_input {
  uint32_t rank;
  uint16_t kind;    /* enum pen_op_kind */
  uint16_t operand; /* which of the op's, from 0 */
  uint8_t dtype;    /* the op's */
  int64_t dim[PEN_DIMS_MAX];
  uint64_t offset;           /* arena: microbatch 0's */
  uint64_t bytes;            /* of one microbatch's */
  uint64_t microbatch_bytes; /* from one microbatch's to the next one's */
};

/* On a device with memory of its own the host runs up to PEN_STEPS_AHEAD steps ahead of what it has
 * heard of. A rank then has, in its arena's persistent part, the step part:
 *
 *     staged_input_offset                              step_stats_offset            settings_offset
 * reduce_offset        flags_offset | struct pen_adamw | feeds, see pen_staged_input | the board,
 * f64        | struct pen_adamw     | workspace of NORM | u32 of the transport | |    the host's
 * copy comes each step     | own entries, then all | of this step         |                   |
 * peers write          |
 *
 * and in pinned host memory, each on PEN_ALIGNMENT_BYTES: PEN_STEPS_AHEAD feeds, as many boards of
 * one replica, the progress words (u32 each: rows done; rows from which all has left), and
 * PEN_STAGING_BYTES for checkpoints, with a snapshot as many for the thread that writes it. The
 * flags: arrivals [messages], credits [messages], published [processes], and, where there are
 * several replicas, exchanged [replica][rows of the exchange in the rank's list]; all of the
 * profile that runs. Behind the flags, with the transport nccl, from shard_staging_offset on,
 * [replicas - 1] shards of a gradient that peers send, each of the largest one's size. */
enum { PEN_STEPS_AHEAD = 2, PEN_STAGING_BYTES = 4 << 20 };

/* Sizes of one rank's arena, by kind, for `info`. The kinds of the activation part are those of the
 * train profile. */
struct pen_rank_memory {
  uint64_t arena_bytes, receive_bytes, persistent_end;
  uint64_t shared_bytes; /* from 0 on: the window, and behind it a tied matrix's copy and what peers
                            read */
  uint64_t weight_bytes, bf16_bytes, gradient_bytes, moment_bytes, constant_bytes;
  uint64_t snapshot_offset,
      snapshot_bytes;        /* memory.snapshot: a copy of weights and moments; 0 bytes: none */
  uint64_t activation_bytes; /* arena_bytes - persistent_end */
  uint64_t
      live_bytes; /* lower bound of arena_bytes: the most aligned tensor bytes live at one op */
  /* The step part, see above; all 0 on the CPU. */
  uint64_t staged_input_offset, staged_input_bytes, step_stats_offset, settings_offset,
      reduce_offset, flags_offset, shard_staging_offset;
  uint64_t device_control_bytes; /* of the whole part, from staged_input_offset */
  uint64_t pinned_bytes;
  uint32_t receive_slots;
};

/* What the generator expects of a step of the first profile, in `unit`; the exchange between
 * replicas is part of it. Of no consequence. */
struct pen_forecast {
  const char *unit;                     /* "in ms" */
  double makespan, exchanging, exposed; /* the whole; the exchange on the rank with most of it; by
                                           how much the exchange makes the whole longer */
};

/* The board: for each replica one f64 a weight (over its shard of the gradient: the sum of squares,
 * or the greatest magnitude; written by its owner), then one a microbatch (loss, written by the
 * rank of the last stage): loss_count of them, zeros behind those of the step's shape. Every rank
 * can read it after WAIT_NORM. */
struct pen_plan {
  const char *name, *schedule, *family, *version;
  const char *device, *transport;
  uint8_t digest[PEN_DIGEST_BYTES]; /* of settings, version and tables: all ranks must agree */
  uint8_t model_digest[PEN_DIGEST_BYTES];            /* of what fixes the weights' names and shapes:
                                                        checkpoints must agree */
  uint32_t rank_count, stages_per_rank, stage_count; /* of a replica */
  uint32_t replica_count;
  const char *const *hosts; /* [host_count]: host h has ranks_per_host processes from
                               h*ranks_per_host on; 0: all on one host */
  uint32_t host_count, ranks_per_host;
  uint16_t port;             /* of the first host, where processes of the others find it */
  uint8_t sharding;          /* enum pen_sharding */
  uint32_t microbatch_count; /* of the shape of the longest sequence, as `sequence` below; others:
                                see the profiles */
  uint32_t microbatch;       /* sequences */
  uint32_t sequence, vocab;
  uint32_t layers;
  uint32_t threads_per_rank;
  uint8_t dtype;        /* enum pen_dtype: of the activations */
  bool needs_tokens;    /* false: inputs are counter-based normals, no --data */
  bool packed;          /* windows may hold several documents: attention and positions know them */
  bool loss_is_mean;    /* divide by the step's targets (cross-entropy), or not (sum) */
  uint32_t loss_count;  /* entries of the loss table: the most microbatches of any profile */
  uint64_t loss_offset; /* arena offset of the loss table, f64 [loss_count], on the rank of the last
                           stage */
  struct pen_optimizer optimizer;
  struct pen_forecast forecast;
  const struct pen_weight *weights;
  uint32_t weight_count;
  const struct pen_tie *ties;
  uint32_t tie_count;                   /* 0 or 1 */
  const struct pen_rank_memory *memory; /* [rank_count] */
  const struct pen_staged_input *feeds; /* by rank */
  uint32_t staged_input_count;
  const struct pen_profile *profiles;
  uint32_t profile_count;
  /* safetensors: 8-byte little-endian length, JSON padded with blanks; then the tensors at the
   * offsets in weights[]. */
  const char *model_header, *optimizer_header; /* the JSON text */
  uint64_t model_file_bytes, optimizer_file_bytes;
  const char *config_json; /* the checkpoint's config.json */
  const char *settings;    /* canonical text of the settled settings */
};

/* The rank that has the last stage, and so what a model foretells and loses. */
static inline uint32_t pen_last_stage_rank(const struct pen_plan *plan,
                                           const struct pen_profile *profile) {
  return profile->stages[plan->stage_count - 1].rank;
}

/* Processes of the deployment. */
static inline uint32_t pen_process_count(const struct pen_plan *plan) {
  return plan->replica_count * plan->rank_count;
}

/* The plan that this binary was built from. */
extern const struct pen_plan pen_plan;

#endif
