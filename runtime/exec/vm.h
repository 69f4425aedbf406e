/* vm.h: what walks a rank's rows. Everything that can be known before the first step is resolved by
 * pen_vm_open(); running a row is then a look into a table, some additions, and the calls of its
 * program. */
#ifndef PEN_VM_H
#define PEN_VM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/device.h"
#include "runtime/data/step_inputs.h"
#include "runtime/plan/plan.h"
#include "runtime/observe/trace.h"
#include "runtime/comm/transport.h"

/* One op of a program, ready to be called: all that never changes is set. */
struct pen_bound_op {
  pen_kernel *run;
  struct pen_call call;
};

/* An address in a call that depends on the row: *where = base + offset, with the base that the
 * row's frame gives. */
struct pen_relocation {
  void **where;
  uint64_t offset;
  uint32_t base; /* enum pen_base */
};

/* A tensor that UNSHARD brings together: where it lies in the block, and each replica's shard in
 * its arena. */
struct pen_unsharded {
  uint32_t weight, stage;
  uint32_t element_bytes;
  uint64_t offset, shard_offset;
};

struct pen_link;
struct pen_stream_state;
struct pen_vm;
typedef bool pen_handler(struct pen_vm *vm,
                         const struct pen_action *action); /* false: the run was aborted */

/* How rows are run: at once (vm.c), or put on a device's queue (queue.c). */
struct pen_executor {
  bool (*step)(struct pen_vm *vm);   /* all rows once; false: the run was aborted */
  bool (*finish)(struct pen_vm *vm); /* until all steps are done and published, and memory may be
                                        looked at; false: aborted */
  pen_handler *const *handlers, *const *handlers_traced; /* [PEN_ACTION_KINDS] */
};

/* How the host makes what a feed of the plan holds: an op's outputs, in memory of its own. */
struct pen_bound_input {
  pen_kernel *run; /* null: no op of the profile is fed from it */
  void *prepared;
};

/* What a queue keeps of one profile (queue.h). */
struct pen_stream_profile {
  struct pen_link *link;         /* to other ranks; null for a rank alone */
  struct pen_bound_input *feeds; /* [plan->staged_input_count] */
  enum {
    PEN_GRAPH_WITH_PROGRESS,
    PEN_GRAPH_WITHOUT_PROGRESS,
    PEN_GRAPH_NONE
  } way;       /* a graph with progress; without; no graph */
  void *graph; /* of a step; also where another rank has none, and this one goes unused, but holds
                  communicators */
};

/* One rank in one profile. */
struct pen_vm {
  const struct pen_plan *plan;
  const struct pen_profile *profile;
  const struct pen_rank_program *program; /* the rank's rows */
  const struct pen_action *row;           /* the one that runs, for messages; null outside steps */
  uint32_t rank, replica;
  struct pen_transport *transport;
  const struct pen_device *device;
  const struct pen_executor *walk;
  struct pen_stream_state *queue;     /* null where rows run at once */
  struct pen_stream_profile queued;   /* where there is one */
  void *stream;                       /* that calls are put on */
  pen_handler *const *handlers;       /* [PEN_ACTION_KINDS] */
  struct pen_bound_op *ops;           /* [program->op_count] */
  struct pen_relocation *relocations; /* in the order of the ops that they belong to */
  uint32_t *first_relocation;         /* [program->op_count + 1] */
  unsigned char *arena;
  struct pen_data data;
  struct pen_trace *trace; /* used by the traced handlers alone */
  const uint32_t *weights; /* [weight_count]: own weights that learn, in model order */
  uint32_t weight_count;
  struct pen_bound_op join;        /* ADD, for the gradients of a tied matrix */
  struct pen_unsharded *unsharded; /* [unsharded_count]: for replicas.c */
  uint32_t unsharded_count;
  const float **sources;   /* [replica_count]: for replicas.c */
  uint64_t step;           /* in the run, of whatever profile, from 0 */
  uint64_t profile_step;   /* of this profile in the run, from 0 */
  uint64_t optimizer_step; /* from 1, over all runs */
};

/* How many operands an op of that kind has, and how many of these are inputs: they come first
 * (ops.def). */
struct pen_operand_count {
  uint32_t inputs, all;
};
struct pen_operand_count pen_operands_of(uint16_t kind);

/* The rank's weight whose shards a tensor of base UNSHARDED is made of, by its name: NAME, or
 * NAME.bf16. */
uint32_t pen_unsharded_weight(const struct pen_plan *plan, uint32_t rank,
                              const struct pen_tensor *tensor);

/* Resolves a rank's rows against its arena and transport; trace null: not traced; queue null: on
 * the CPU, at once. Kernels must be open. Allocates. */
void pen_vm_open(struct pen_vm *vm, const struct pen_plan *plan, const struct pen_profile *profile,
                 uint32_t rank, unsigned char *arena, struct pen_transport *transport,
                 struct pen_stream_state *queue, const struct pen_data *data,
                 struct pen_trace *trace);

/* Computes the constants. Once, before the first step. */
void pen_vm_start(struct pen_vm *vm);

/* Rows at once: every row is done when its handler returns. */
extern const struct pen_executor pen_host_executor;

/* handlers.c: what each kind of row does, and the same with its time taken. */
extern pen_handler *const pen_handlers[PEN_ACTION_KINDS];
extern pen_handler *const pen_handlers_traced[PEN_ACTION_KINDS];

/* Zeroes the head's gradients of the ties whose head is on this rank: what was sent, or joined. */
void pen_clear_head_gradients(struct pen_vm *vm);

/* Calls ops [first, first + count) over the memory of a frame. */
void pen_vm_call(struct pen_vm *vm, uint32_t first, uint32_t count, const struct pen_frame *frame);

#endif
