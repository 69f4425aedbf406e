/* links.h: the ranks with which a rank exchanges messages over a network. */
#ifndef PEN_LINKS_H
#define PEN_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/comm/transport.h"

/* By global rank: whether messages of some profile go there, and come from there. */
struct pen_links {
  bool *to, *from;
};

/* `near_local`: the ranks of this command are reached by shared memory. Allocates. */
struct pen_links pen_links_of(const struct pen_transport *transport, bool near_local);
void pen_links_free(struct pen_links *links);

/* What links are measured with: so many bytes that every rank has, and that its receive slots hold
 * if it has any. */
uint32_t pen_links_probe_bytes(const struct pen_plan *plan);

#endif
