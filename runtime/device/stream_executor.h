/* queue.h: a rank on a device that has memory of its own and only enqueues (kernels.h): the host
 * puts a step's rows on the device's streams and goes on; it reads a step's losses and norms when
 * the next step is under way.
 *
 *   the host, in step k   writes tokens, learning rate and bias corrections to the pinned feed k
 * mod 2; enqueues: the feed's copy, the rows, the board's copy to the pinned board k mod 2, an
 * event; then waits for the event of step k-1, and publishes that step's board to the run
 * (transport.h), as a rank on the CPU does in its row PUBLISH the rows              are enqueued
 * once while the device captures, and from then on replayed as one graph, since no address and no
 * number in them changes from step to step; what cannot be captured is enqueued anew each step, one
 * by one, and then the host waits for step k itself two words             are written behind each
 * row, the one by the queue's stream, the other by the one that its messages leave on: by these the
 * watch sees where a rank stands, and whom it waits for (queue_told.c, fault.c)
 *
 * Where each of these lies is the generator's choice: plan.h, the step part. Messages go by a link
 * (link.h).
 *
 * A run may have several profiles: shapes, evaluation. Each has a graph of its own over the same
 * arena, feed, board and flags (struct pen_stream_profile in vm.h); a step of another begins when
 * all ranks have ended the one before, on the device too (pen_executor's finish()). */
#ifndef PEN_STREAM_EXECUTOR_H
#define PEN_STREAM_EXECUTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/device.h"
#include "runtime/plan/plan.h"
#include "runtime/exec/vm.h"

/* A stream takes about a thousand calls, and then holds up whoever makes another, who tells nothing
 * meanwhile. So rows that are enqueued one by one are so few ahead of the device. */
enum { PEN_ACTIONS_AHEAD = 4 };

struct pen_stream_state {
  const struct pen_device *device;
  const struct pen_plan *plan;
  const struct pen_rank_memory *memory; /* of the rank */
  unsigned char *arena;                 /* there */
  unsigned char *pinned;                /* here */
  void *stream, *side;                  /* of the rows; of the second of a pair a|b */
  void *fork, *join;                    /* events: before a pair, behind its second */
  void *done[PEN_STEPS_AHEAD];          /* events: steps' ends */
  void *row_done[PEN_ACTIONS_AHEAD]; /* events: rows' ends, where rows are enqueued one by one; by
                                        turns */
  void *aside, *copied;     /* memory.snapshot: stream of the thread that writes; event: the copy
                               stands. Else null */
  bool forked;              /* the row before was the first of a pair */
  uint64_t begun, finished; /* steps of the run, of whatever profile: enqueued, and done */
  uint64_t rows;            /* of the steps that are done */
  uint64_t rows_begun;      /* one by one */
};

/* Opens the device (of those here the one of that place, by turns), takes its memory, all zero, and
 * the pinned memory, and makes streams and events. Fails with what the device says. `what` gets the
 * line that says what was chosen. Allocates. */
struct pen_stream_state *pen_stream_open(const struct pen_plan *plan, uint32_t rank, uint32_t place,
                                         const struct pen_device *device, const char **what);

/* Runs every program once, over zeros, so that nothing is loaded or chosen later; the arena is all
 * zero again afterwards. Before weights come. */
void pen_stream_warm(struct pen_vm *vm);

/* Makes a link to the other ranks, if there are any, by the connections of `first`: the link of the
 * rank's first profile, or null, where this is it. Allocates. */
void pen_stream_link(struct pen_vm *vm, const struct pen_link *first, bool announces);

/* Reaches the other ranks, and makes the graph of a step. When all ranks are open, before the seal.
 */
void pen_stream_ready(struct pen_vm *vm);

/* Copies what persists from an arena in host memory, laid out as the rank's. Before the seal. */
void pen_stream_load(struct pen_stream_state *queue, const unsigned char *here);

/* A look at up to PEN_STAGING_BYTES of the rank's arena from the host, until the next look;
 * `context` is the queue. All steps are done. */
const unsigned char *pen_stream_look(void *context, uint64_t offset, size_t bytes);

/* The same for the thread that writes a snapshot, on the stream `aside`, while steps go on. */
const unsigned char *pen_stream_look_aside(void *context, uint64_t offset, size_t bytes);

/* How vm.h's rows are run on a queue. */
extern const struct pen_executor pen_stream_executor;

/* queue_rows.c: what each kind of row enqueues, and the same with its time taken, which waits for
 * each row. */
extern pen_handler *const pen_stream_handlers[PEN_ACTION_KINDS];
extern pen_handler *const pen_stream_handlers_traced[PEN_ACTION_KINDS];

/* queue_told.c: tells the watch that the device has done so many rows of its step, all of them:
 * what it waits for at the step's end; and that of the first `left` rows all has left; and whom the
 * rank waits for. */
void pen_stream_publish_progress(struct pen_vm *vm, uint32_t rows, uint32_t left);

/* Ends a wait in which the host did nothing but tell. */
void pen_stream_progress(struct pen_vm *vm);

/* Waits for an event behind a row, where rows are enqueued one by one, and tells meanwhile how far
 * the device is. Returns whether all ranks go on. */
bool pen_stream_await_action(struct pen_vm *vm, void *event);

/* Before what the row writes over: what comes on the queue's stream waits for the messages that are
 * still to leave from there. */
void pen_stream_await_sends(struct pen_vm *vm, const struct pen_action *row);

/* queue_replicas.c: the rows of the exchange between replicas, as replicas.h has them for the CPU;
 * and what stands around each of them. */
pen_handler pen_queue_grad_ready, pen_queue_reduce_scatter, pen_queue_all_gather_gradients,
    pen_queue_all_gather_weights, pen_stream_unshard;
void pen_stream_collective_begin(struct pen_vm *vm, const struct pen_action *action);
void pen_stream_collective_end(struct pen_vm *vm);

/* queue_feed.c: where a step's feed is written here; writes it: settings that change from step to
 * step, then each data op's outputs for every microbatch, as the CPU makes them. */
unsigned char *pen_staging_host(const struct pen_stream_state *queue, uint64_t step);
void pen_staging_fill(struct pen_vm *vm);

/* The function that a data op becomes: it copies the row's microbatch from the feed. Its call's
 * `prepared` is pen_staging_of(). */
pen_kernel *pen_stream_data_op(void);
void *pen_staging_of(struct pen_vm *vm, const struct pen_op *op);

/* What fills the feed of a data op of the profile: for who puts something else in its place
 * (tap.h). */
struct pen_bound_input *pen_staging_kernel(struct pen_vm *vm, const struct pen_op *op);

/* Ends this rank when the device has failed, as a lost rank (design.md section 10): what failed,
 * behind which row. */
void pen_stream_check(struct pen_vm *vm);

#endif
