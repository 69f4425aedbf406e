/* exchanges.h: the slots of the exchanges between tensor ranks. */
#ifndef PEN_EXCHANGES_H
#define PEN_EXCHANGES_H

#include "gen/model/graph.h"

/* Whether ops of that kind are exchanges, or a member's part of one. */
bool pen_op_exchanges(int kind);

/* Gives what exchanges put its slots: exchanges of a program use the two sets alternately, from set
 * 0 on; slot s of member m is number s * members + m. What ALL_GATHER_RUNS puts has all slots of
 * its set. A program with an odd number of exchanges gets one more, SIGNAL_MEMBERS. */
void pen_number_exchanges(struct pen_graph *graph);

/* An exchange in a program: how many ops it has, and the bytes that each member sends in it to all
 * others together. */
struct pen_exchange {
  size_t op_count;
  uint64_t sent;
};

/* The exchange that begins at an op of the program; 0 ops: none does. */
struct pen_exchange pen_exchange_at(const struct pen_graph *graph,
                                    const struct pen_op_list *program, size_t op);

#endif
