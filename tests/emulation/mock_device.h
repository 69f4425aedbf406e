/* mock_device.h: the calls that a rank makes of a device and of NCCL in a step, recorded instead of
 * executed; and models of how they may execute. A rank is a process of the deployment, of any
 * replica (plan.h, "Replicas").
 *
 * mock_device_record.c, mock_device_nccl.c: replace struct pen_device and struct pen_nccl_calls,
 * while the runtime makes a step's calls for every rank of the linked plan
 *
 * mock_device_bytes.c: which actions access which messages' bytes, found by a second, slow method
 *
 * mock_device_copies.c: the bytes that go from one process to another
 *
 * mock_device_slots.c: what the slots of tensor ranks hold
 *
 * mock_device_play.c: executes the record of all ranks over several steps, as streams, semaphores
 * and NCCL may
 *
 * mock_device_stall.c: executes it with a device that stops, and checks for whom the ranks wait
 *
 * mock_device.c: the tests */
#ifndef PEN_MOCK_DEVICE_H
#define PEN_MOCK_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/plan/plan.h"

enum call {
  RECORD,
  FOLLOW,
  MARK,
  AWAIT,
  COPY,
  KERNEL,
  STORE,
  LOAD,
  SEND,
  RECEIVE,
  SUM,
  GROUP,
  PUT,
  SIGNAL,
  TAKE
};

/* One send or receive of a group between peers, or between tensor ranks. */
struct swap {
  bool sends;
  uint32_t peer; /* the peer's rank */
  uint32_t row, exchange;
  uint64_t bytes;
};

/* STORE: bytes of a tensor rank's slots that an exchange writes, LOAD: own ones that a kernel
 * reads. The exchanges of a rank are counted from 1 in a step, where they store. */
struct slot_range {
  uint32_t process;
  uint32_t exchange; /* STORE: which, PEN_NONE: it is under way; LOAD: the last that has begun */
  uint64_t first, bytes;
};

/* One call, as the host made it. */
struct issue {
  enum call call;
  uint32_t row;       /* index in the rank's actions; action_count after the last */
  uint32_t stream;    /* of the rank's, 0: the first that it opened */
  uint32_t message;   /* COPY, SEND, RECEIVE, PUT: whose bytes these are; SIGNAL, TAKE: of which
                         message; PEN_NONE: none */
  const void *object; /* RECORD, FOLLOW: the event; MARK, AWAIT: the word; SEND, RECEIVE: the
                         communicator; PUT, SIGNAL, TAKE: the signal */
  uint32_t value;     /* MARK, AWAIT */
  uint32_t first_swap, swap_count; /* GROUP: of the script's swaps */
  struct slot_range slots;         /* STORE, LOAD */
};

/* All that a rank issues in a step. */
struct script {
  struct issue *issue;
  uint32_t count, capacity, stream_count;
  struct swap *swap;
  uint32_t swap_count, swap_capacity;
  uint32_t exchange_count; /* between tensor ranks */
  const uint32_t *told;    /* the rank's two progress words (plan.h) */
  struct pen_vm *vm;
};

enum link { LINK_IPC, LINK_NCCL, LINK_PUTS, LINKS }; /* NCCL by sends; by puts */

/* Makes the runtime issue one step of a profile over that link, for every rank: script[processes];
 * in a mode of graph.h, one for ranks of even and one for those of odd numbers. The runtime's state
 * in the scripts is that of the last record. Fails the test if the communicators that the ranks
 * make do not match. */
struct script *mock_device_record(enum link link, uint32_t profile, const char *const modes[2]);

/* Of the last record: its profile; how many pairs of ranks, and ranks with all their peers or
 * tensor ranks, have a communicator; sums over replicas, and how many of these do not add the
 * replicas' gradients in the order of the replicas. */
extern const struct pen_profile *mock_device_profile;
uint32_t mock_device_pairs(void), mock_device_sums(void), mock_device_wrong_sums(void);

/* Before a record; and a line for each pair of processes in it, sorted, as are the sizes:
 *
 *   PROFILE LINK FROM TO BYTES*COUNT BYTES*COUNT ... */
void mock_device_copies_begin(void), mock_device_copies_print(uint32_t profile, const char *link);

/* For each message, of any replica: what must be done before its bytes may change. */
struct bytes {
  uint32_t *overwritten_by; /* [messages] the sender's first action after SEND that writes to its
                               source; PEN_NONE */
  /* [messages] the receiver's last action before RECV that accesses its target; PEN_NONE. It is of
   * the previous step if it comes after RECV. */
  uint32_t *last_touch;
  uint32_t *received_by; /* [messages] the receiver's RECV action */
  uint32_t *sent_by;     /* [messages] the sender's SEND action */
};
struct bytes mock_device_bytes(void);

/* Zeros; ends the test where there is no memory. */
void *mock_device_array(size_t count, size_t bytes);

/* What the slots of all tensor ranks hold while a record is executed: see mock_device_slots.c. For
 * the scripts of the last record; changed scripts have the same. */
struct slots;
struct slots *mock_device_slots_open(const struct script *scripts);
void mock_device_slots_close(struct slots *slots);
void mock_device_store(struct slots *slots, const struct slot_range *range, uint64_t step);
/* Whether a range holds what the list of the tensor ranks' actions says. */
bool mock_device_load(const struct slots *slots, const struct slot_range *range, uint64_t step);

/* Models of NCCL: it buffers the messages of senders, and counts signals; or a send waits for its
 * receive, and a put or a signal for the wait for the previous one (signals are flags: NCCL in a
 * graph); or it also serializes all calls of a rank. */
enum nccl_model { BUFFERED, RENDEZVOUS, IN_TURN, NCCL_MODELS };

/* The state of a rank when no rank can continue, as its host sees it. */
struct standing {
  uint64_t step;       /* the step that it is in */
  uint32_t rows, left; /* its progress words */
};

/* Which of several streams that can continue does. */
struct pace {
  uint32_t slow_rank; /* continues only when no other can; PEN_NONE */
  bool slow_sides;    /* the streams of actions before those of messages; false: after them */
  uint64_t seed;      /* not 0: random, and nothing of the above */
  /* Not 0: after so many calls a rank executes no more on one of its streams, or on all (PEN_NONE),
   * and no deadlock is reported. */
  uint64_t stop_behind;
  uint32_t stopped_rank, stopped_stream;
  struct standing *standing; /* [processes] receives their final states */
};

/* Executes `steps` steps; bytes null: looks for deadlocks only. NULL if all calls are done without
 * an error, else the first error (static). */
const char *mock_device_play(const struct script *scripts, const struct bytes *bytes,
                             enum nccl_model model, struct pace pace, uint32_t steps);

/* Executes it so many times, each time with the device of another rank stopped at another call, on
 * all its streams or on one. NULL if from each rank the chain of waits leads to that rank, else the
 * first chain that does not (static). For ipc only. With `wrongly`, all ranks publish messages as
 * sent that are not, and some chains lead to another rank. */
const char *mock_device_stall(const struct script *scripts, uint32_t times, bool wrongly);

#endif
