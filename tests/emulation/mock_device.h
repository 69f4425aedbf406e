/* mock_device.h: the calls that a rank makes of a device and of NCCL in a step, recorded instead of
 * executed; and models of how they may execute. A rank is here a process of the deployment, of any
 * replica (plan.h, "Replicas").
 *
 *   mock_device_record.c  replaces struct pen_device and struct pen_nccl_calls, while the runtime's
 *                         own code makes a step's calls for every rank of the linked plan
 *   mock_device_bytes.c   which actions access which messages' bytes, found again, slowly
 *   mock_device_play.c    executes the record of all ranks over several steps, as streams,
 *                         semaphores and NCCL may behave
 *   mock_device_stall.c   executes it with a device that stops, and checks whom the ranks wait for
 *   mock_device.c         the tests
 */
#ifndef PEN_MOCK_DEVICE_H
#define PEN_MOCK_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/plan/plan.h"

enum call {
  RECORD,
  FOLLOW,
  MARK,
  AWAIT,
  COPY,
  KERNEL,
  SEND,
  RECEIVE,
  SUM,
  GROUP,
  PUT,
  SIGNAL,
  TAKE
};

/* One send or receive between peers, of a group of them. */
struct swap {
  bool sends;
  uint32_t peer; /* the rank */
  uint32_t row;
  uint64_t bytes;
};

/* One call, as the host made it. */
struct issue {
  enum call call;
  uint32_t row;     /* of the rank's list; action_count after the last */
  uint32_t stream;  /* of the rank: 0 is the first that it opened */
  uint32_t message; /* COPY, SEND, RECEIVE, PUT: whose bytes these are; SIGNAL, TAKE: of whose row;
                       PEN_NONE: none */
  const void *object; /* RECORD, FOLLOW: the event; MARK, AWAIT: the word; SEND, RECEIVE: the
                         communicator; PUT, SIGNAL, TAKE: the signal */
  uint32_t value;     /* MARK, AWAIT */
  uint32_t first_swap, swap_count; /* GROUP: of the script's swaps */
};

/* All that a rank issues in a step. */
struct script {
  struct issue *issue;
  uint32_t count, capacity, stream_count;
  struct swap *swap;
  uint32_t swap_count, swap_capacity;
  const uint32_t *told; /* the rank's two progress words (plan.h) */
  struct pen_vm *vm;
};

enum link { LINK_IPC, LINK_NCCL, LINK_PUTS, LINKS }; /* NCCL by sends; by puts */

/* Lets the runtime issue one step of a profile over that link, for every rank: script[processes].
 * Fails the test where the communicators that ranks ask for do not fit together. */
struct script *mock_device_record(enum link link, uint32_t profile);

/* Of the last record: its profile; pairs of ranks, and ranks with all their peers, that got a
 * communicator; sums over replicas, and how many of these do not add the replicas' gradients in the
 * replicas' order. */
extern const struct pen_profile *mock_device_profile;
uint32_t mock_device_pairs(void), mock_device_sums(void), mock_device_wrong_sums(void);

/* By message, of any replica: what must be done before its bytes may change. */
struct bytes {
  uint32_t *overwritten_by; /* [messages] the sender's first row after SEND that writes to its
                               source; PEN_NONE */
  /* [messages] the receiver's last row before RECV that accesses its target; PEN_NONE. It is of the
   * step before if it comes after RECV. */
  uint32_t *last_touch;
  uint32_t *received_by; /* [messages] the receiver's RECV row */
  uint32_t *sent_by;     /* [messages] the sender's SEND row */
};
struct bytes mock_device_bytes(void);

/* How NCCL may be: it takes messages off senders' hands, and counts signals; or a send waits for
 * its receive, and a put, or a signal, for the wait for the one before (signals are flags: NCCL in
 * a graph); or, besides, what one rank issued runs in turn. */
enum nccl_model { BUFFERED, RENDEZVOUS, IN_TURN, NCCL_MODELS };

/* Where a rank stood when no other could go on, as its host sees it. */
struct standing {
  uint64_t step;       /* that it is in */
  uint32_t rows, left; /* its progress words */
};

/* Which streams go first when several could. */
struct pace {
  uint32_t slow_rank; /* continues only when no other can; PEN_NONE */
  bool slow_sides;    /* the streams of rows before those of messages; false: the other way round */
  uint64_t seed;      /* not 0: at random, and nothing of the above */
  /* Not 0: after so many calls a rank does no more on one of its streams, or on all (PEN_NONE),
   * and no deadlock is one. */
  uint64_t stop_behind;
  uint32_t stopped_rank, stopped_stream;
  struct standing *standing; /* [processes] gets where they end */
};

/* Plays `steps` steps; bytes null: looks for deadlocks alone. NULL when all is done and nothing was
 * wrong on the way, else the first thing wrong, in words (static). */
const char *mock_device_play(const struct script *scripts, const struct bytes *bytes,
                             enum nccl_model model, struct pace pace, uint32_t steps);

/* Plays it so often, each time with another rank's device stopped somewhere, on all its streams or
 * on one. NULL when from every rank that then stops those that are waited for lead to that
 * one, else the first that is not so, in words (static). Over ipc alone. Wrongly: all tell that
 * messages have left which have not, by which some are led to another rank. */
const char *mock_device_stall(const struct script *scripts, uint32_t times, bool wrongly);

#endif
