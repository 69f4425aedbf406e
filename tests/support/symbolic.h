/* symbolic.h: what a written order of F, I, W, B, sends and receives computes, as symbols: it is
 * run word by word, and each value is a hash of how it came about, from inputs and targets, which
 * the words name by microbatch. It shares nothing with the generator: no plan, no slots, no proofs;
 * a microbatch of a stage has a buffer of its own for all that it ever needs.
 *
 * Three models of communication: puts (a receive lets the next message of that pair of ranks come
 * and never blocks; a send blocks until it may), and rendezvous, in which sends and receives wait
 * in lanes behind the computations before them: a lane for each directed pair of ranks at each end,
 * or one lane a rank. In all of them messages of a directed pair leave and arrive in the order of
 * the words. */
#ifndef PEN_TESTS_SYMBOLIC_H
#define PEN_TESTS_SYMBOLIC_H

#include "tests/support/plan_fixture.h"

/* A word as in 3RECV_F1; overlaps: a `|` follows it. */
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

/* Whether an order runs to its end in all models, and what it adds up to is what training is: every
 * microbatch once on every stage, with the values that its own forwards and backwards make. */
bool trains_right(const struct words *words);

#endif
