/* strategy.h: lays out the activations of every rank, for one profile. */
#ifndef PEN_STRATEGY_H
#define PEN_STRATEGY_H

#include "gen/layout/internal.h"

/* Sets buffers, places, scratch, receive_bytes, slot_count, activation_bytes and live_bytes. */
void pen_place_activations(struct pen_layout_state *l);

#endif
