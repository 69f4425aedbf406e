/* exec.h: runs the actions of a rank.
 *
 * In: a plan, a profile of it, a rank, its arena on an open device, its transport, an executor.
 * pen_vm_open() binds all that can be known before the first step: kernels, addresses, prepared
 * calls. Then a step runs each action by its handler (handlers.c, collectives.c): a look into a
 * table, some additions, and the calls of its program on the compute stream. Out: the arena after
 * the step, and the step's statistics, which PUBLISH sends to the other ranks.
 *
 * Handlers act on struct pen_device alone. How a step is run is the executor's: the host executor
 * (host_executor.c) for the CPU, whose calls are complete when they return; runtime/device/ for
 * devices whose calls are enqueued. */
#ifndef PEN_EXEC_H
#define PEN_EXEC_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/device.h"
#include "runtime/comm/transport.h"
#include "runtime/data/step_inputs.h"
#include "runtime/exec/send_hazards.h"
#include "runtime/observe/trace.h"
#include "runtime/plan/plan.h"

/* One op of a program, bound: all that is the same in every action is set. */
struct pen_bound_op {
  pen_kernel *run;
  struct pen_call call;
};

/* An address in a call that depends on the action: *where = arena + base + offset, with the base
 * that the action's frame gives. */
struct pen_relocation {
  void **where;
  uint64_t offset;
  uint32_t base; /* enum pen_base */
};

/* The function that makes a data op's outputs in host memory. */
struct pen_bound_input {
  pen_kernel *run; /* null: no op of the profile uses it */
  void *prepared;
};

struct pen_vm;
typedef bool pen_handler(struct pen_vm *vm,
                         const struct pen_action *action); /* false: the run was aborted */

/* How steps are run. */
struct pen_executor {
  /* Runs all actions once, or enqueues them. False: the run was aborted. */
  bool (*step)(struct pen_vm *vm);
  /* Waits until all steps are complete and published, and memory may be read; false: aborted. */
  bool (*finish)(struct pen_vm *vm);
  /* Waits until the action that was run last is complete; false: aborted. */
  bool (*wait_action)(struct pen_vm *vm);
  /* Binds a data op. */
  void (*bind_input)(struct pen_vm *vm, const struct pen_op *op, struct pen_bound_op *bound);
  /* What makes the inputs of a data op that is bound, for hooks (op_hook.h); null: the op itself.
   */
  struct pen_bound_input *(*input)(struct pen_vm *vm, const struct pen_op *op);
  /* Where the device notes that routes were damaged (route_guard.h); null on the CPU. */
  uint64_t *(*damage)(const struct pen_vm *vm);
};

/* The streams and events of the device that actions use; all null on the CPU, which ignores them.
 */
struct pen_streams {
  void *compute, *side;           /* side: of the second of a pair a|b */
  void *fork, *joined;            /* events: before a pair, after its second */
  void *exchange, *exchange_fork; /* of collectives within programs; an event: before them */
};

struct pen_audit_state;  /* audit.h */
struct pen_stream_state; /* runtime/device: the rank's; of one profile */
struct pen_stream_profile;

/* One rank in one profile. */
struct pen_vm {
  const struct pen_plan *plan;
  const struct pen_profile *profile;
  const struct pen_rank_program *program; /* the rank's actions */
  const struct pen_rank_memory *memory;   /* the rank's */
  const struct pen_action *action;        /* that runs, for messages; null outside of steps */
  uint32_t rank, replica;
  struct pen_endpoint *endpoint;
  struct pen_transport *transport;
  const struct pen_device *device;
  const struct pen_executor *executor;
  struct pen_stream_state *stream_state; /* both null with the host executor */
  struct pen_stream_profile *stream_profile;
  pen_handler *const *handlers; /* [PEN_ACTION_KINDS] */
  unsigned char *arena;

  struct pen_streams streams;
  bool forked;                   /* the action before was the first of a pair a|b */
  uint32_t collectives_before;   /* the action that runs, in the step */
  const struct pen_frame *frame; /* of the action whose programs, or collective, run */
  bool aborted;                  /* an op has left a wait: the run was aborted */
  bool unconnected;              /* programs run alone: collectives and exchanges do nothing */

  struct pen_bound_op *ops;             /* [program->op_count] */
  struct pen_relocation *relocations;   /* in the order of the ops that they belong to */
  uint32_t *first_relocation;           /* [program->op_count + 1] */
  struct pen_bound_op add_tied;         /* ADD, for the gradients of a tied matrix */
  struct pen_send_hazards send_hazards; /* empty where a send is complete when it returns */
  const uint64_t *lag;                  /* of each weight of the plan: struct pen_update_counts */
  const uint32_t *weights; /* [weight_count]: own weights that are trained, in model order */
  uint32_t weight_count;
  /* What NORM measures; what UPDATE does: AdamW on [weight_count] `weights`, then only zeroes. */
  const struct pen_norm_tensor *norms;
  const struct pen_adamw_tensor *updates;
  uint32_t norm_count, update_count;
  const struct pen_shared_matrix *matrices; /* [program->exchange_count / 2]: see matrices.h */
  const float **sources;                    /* [data ranks + 1]: scratch of sums */
  void **events; /* [program->event_count]: of collectives; null on the CPU */

  double *step_stats;           /* of the step that runs, all entries (plan.h), on the device */
  const struct pen_adamw *base; /* AdamW's settings in this step before clipping, on the device */
  struct pen_adamw *adamw;      /* ... and as UPDATE uses them: one of all profiles of the rank */
  struct pen_adamw host_base, host_adamw;
  struct pen_data data;
  struct pen_trace *trace;       /* null: not traced */
  struct pen_audit_state *audit; /* null: not audited */
  uint64_t sent_bytes;           /* by the rank in a step */
  uint64_t run_step;             /* steps of the run before this one, of any profile */
  uint64_t optimizer_step;       /* from 1, over all runs */
};

/* Whether the process has a weight, or owns it: pen_has_weight(), pen_owns_weight(). */
static inline bool pen_vm_has_weight(const struct pen_vm *vm, uint32_t weight) {
  return pen_has_weight(vm->plan, &vm->plan->weights[weight], vm->endpoint->global);
}
static inline bool pen_vm_owns_weight(const struct pen_vm *vm, uint32_t weight) {
  return pen_owns_weight(vm->plan, &vm->plan->weights[weight], vm->endpoint->global);
}

/* Which member of a group the process is. */
static inline uint32_t pen_vm_member(const struct pen_vm *vm, int group) {
  return pen_group_member(vm->plan, vm->endpoint->global, group);
}

/* What a vm is opened with. */
struct pen_vm_config {
  struct pen_transport *transport;
  const struct pen_executor *executor;
  struct pen_stream_state *stream_state; /* both null with the host executor */
  struct pen_stream_profile *stream_profile;
  const struct pen_streams *streams; /* null: all null */
  const struct pen_data *data;       /* copied */
  const struct pen_vm *first;        /* of the rank's first profile; null: this one */
  const uint64_t *lag;               /* [plan->weight_count]: struct pen_update_counts */
  struct pen_trace *trace;           /* null: not traced */
};

/* bind.c: binds the actions of the transport's rank and profile. The device is open. Allocates. */
void pen_vm_open(struct pen_vm *vm, const struct pen_vm_config *config);

/* call.c: sets the addresses in the calls of ops [first, first + count) for a frame. */
void pen_vm_relocate(struct pen_vm *vm, uint32_t first, uint32_t count,
                     const struct pen_frame *frame);
/* Calls ops [first, first + count) over the memory of a frame. */
void pen_vm_call(struct pen_vm *vm, uint32_t first, uint32_t count, const struct pen_frame *frame);
/* The same on another stream than the compute stream. */
void pen_vm_call_on(struct pen_vm *vm, uint32_t first, uint32_t count,
                    const struct pen_frame *frame, void *stream);

/* Computes the constants. Once, before the first step. */
void pen_vm_start(struct pen_vm *vm);

/* The sends that must be done before an action overwrites their source, as indices of messages. */
static inline const uint32_t *pen_sends_before(const struct pen_vm *vm,
                                               const struct pen_action *action, uint32_t *count) {
  const struct pen_send_hazards *hazards = &vm->send_hazards;
  const size_t index = (size_t)(action - vm->program->actions);
  *count = hazards->first == NULL ? 0 : hazards->first[index + 1] - hazards->first[index];
  return *count == 0 ? NULL : hazards->message + hazards->first[index];
}

static inline void pen_wait_sends(struct pen_vm *vm, const struct pen_action *action) {
  if (__builtin_expect(vm->send_hazards.first != NULL, 0)) {
    uint32_t count;
    const uint32_t *sends = pen_sends_before(vm, action, &count);
    for (uint32_t i = 0; i < count; i++) {
      vm->transport->ops->wait_sent(vm->transport, sends[i]);
    }
  }
}

/* handlers.c: what each kind of action does, and the same with its time taken. */
extern pen_handler *const pen_handlers[PEN_ACTION_KINDS];
extern pen_handler *const pen_handlers_traced[PEN_ACTION_KINDS];

/* host_executor.c: every action is complete when its handler returns. */
extern const struct pen_executor pen_host_executor;

#endif
