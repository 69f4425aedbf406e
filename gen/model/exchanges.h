/* exchanges.h: the slots of the exchanges between tensor ranks. */
#ifndef PEN_EXCHANGES_H
#define PEN_EXCHANGES_H

#include "gen/model/graph.h"

/* Whether ops of that kind are exchanges, or a tensor rank's part of one. */
bool pen_op_exchanges(int kind);

/* Gives what exchanges put its slots: exchanges of a program use the two sets alternately, from set
 * 0 on; slot s of tensor rank m is number s * tensor ranks + m. What ALL_GATHER_SEQUENCE puts has
 * all slots of its set. A program with an odd number of exchanges gets one more, SIGNAL_TENSOR. */
void pen_number_exchanges(struct pen_graph *graph);

/* How many ops the exchange has that begins at an op of the program; 0: none does. */
size_t pen_exchange_ops(const struct pen_graph *graph, const struct pen_op *op);

#endif
