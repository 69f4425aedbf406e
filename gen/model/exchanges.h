/* exchanges.h: the slots of the exchanges between tensor ranks. */
#ifndef PEN_EXCHANGES_H
#define PEN_EXCHANGES_H

#include "gen/model/graph.h"

/* Gives the values of ALL_GATHER_PART their slots: exchanges of a program use the two sets by
 * turns, from set 0 on; slot s of member m is number s * members + m. A program with an odd number
 * of exchanges gets one more, SIGNAL_MEMBERS. */
void pen_number_exchanges(struct pen_graph *graph);

#endif
