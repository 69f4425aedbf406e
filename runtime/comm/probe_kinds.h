/* probe_kinds.h: in which order two hosts measure the link between them (fabric.c). */
#ifndef PEN_PROBE_KINDS_H
#define PEN_PROBE_KINDS_H

#include <stdbool.h>
#include <stdint.h>

/* The probes of a round: of no bytes, with bytes to higher ranks, with bytes to lower ones; one
 * direction after the other, since acknowledgements wait behind the bytes of their direction. Those
 * between are not timed: a rank whose peer's has come knows that its own bytes have arrived. */
enum probe_kind {
  PROBE_EMPTY,
  PROBE_UP,
  PROBE_UP_REPLY,
  PROBE_DOWN,
  PROBE_DOWN_REPLY,
  PROBE_KINDS
};

/* Whether a probe between these ranks has bytes. */
static inline bool probe_has_bytes(enum probe_kind kind, uint32_t from, uint32_t to) {
  return (kind == PROBE_UP && from < to) || (kind == PROBE_DOWN && from > to);
}

#endif
