/* symbolic.h: what a written order of F, I, W, B, sends and receives computes, as symbols: it is
 * executed action by action, and each value is a hash of how it was computed from inputs and
 * targets. It shares no code with the generator: no plan, no slots, no proofs; a microbatch of a
 * stage has its own buffers.
 *
 * Three models of communication: puts (a receive lets the next message of that pair of ranks arrive
 * and never blocks; a send blocks until it may), and rendezvous, in which sends and receives wait
 * in lanes after the previous computations: a lane for each directed pair of ranks at each end, or
 * one lane for each rank. In all of them the messages of a directed pair leave and arrive in the
 * order of the text.
 */
#ifndef PEN_SYMBOLIC_H
#define PEN_SYMBOLIC_H

#include "tests/support/plan_fixture.h"

/* An action as in 3RECV_F1; overlaps: a `|` follows it. */
struct word {
  int kind; /* PEN_F ... PEN_RECV_B */
  uint32_t stage, microbatch;
  bool overlaps;
};

struct words {
  const struct pen_partition *partition;
  struct word **word;
  uint32_t *count;
};

/* Does an order run to its end in all models, and compute what training is: each microbatch once on
 * each stage, with the values of its own forwards and backwards? */
bool trains_right(const struct words *words);

#endif
