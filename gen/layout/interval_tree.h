/* tenants.h: the values in one base's block of a stage, and where another would fit among them: see tenants.c. */
#ifndef PEN_TENANTS_H
#define PEN_TENANTS_H

#include "gen/layout/layout.h"

/* The ops of a program during which a value holds its bytes; first > last: none. */
struct pen_stay {
  uint32_t first, last;
};

struct pen_tenant {
  uint64_t offset, bytes;
  struct pen_stay stay[PEN_PROGRAMS];
};

/* All zero: an empty block. */
struct pen_tenants {
  struct pen_tenant_node *node;
  size_t count, capacity;
  uint32_t root; /* node + 1 */
  uint64_t bytes; /* the end of the highest */
};

void pen_tenants_add(struct pen_tenants *tenants, const struct pen_tenant *tenant);
/* The highest offset where a tenant fits without making the block larger; false: none, or none that is found soon. */
bool pen_tenants_fit(const struct pen_tenants *tenants, struct pen_tenant *tenant);
void pen_tenants_free(struct pen_tenants *tenants);

#endif
