/* memory_kinds.h: the bytes of each kind in the arena of a rank. */
#ifndef PEN_MEMORY_KINDS_H
#define PEN_MEMORY_KINDS_H

#include "runtime/plan/losses.h"

enum pen_memory_kind {
#define PEN_MEMORY_KIND(name, bytes, meaning) PEN_MEMORY_##name,
#include "runtime/plan/memory_kinds.def"
  PEN_MEMORY_KINDS
};

static inline const char *pen_memory_kind_name(enum pen_memory_kind kind) {
  static const char *const names[] = {
#define PEN_MEMORY_KIND(name, bytes, meaning) #name,
#include "runtime/plan/memory_kinds.def"
  };
  return names[kind];
}

/* The sum over all kinds is arena_bytes. */
static inline uint64_t pen_memory_kind_bytes(const struct pen_plan *plan, uint32_t rank,
                                             enum pen_memory_kind kind) {
  const struct pen_rank_memory *memory = &plan->memory[rank];
  const uint64_t losses = pen_loss_bytes(plan, &plan->profiles[0], rank);
  const uint64_t bytes[] = {
#define PEN_MEMORY_KIND(name, bytes, meaning) bytes,
#include "runtime/plan/memory_kinds.def"
  };
  return bytes[kind];
}

#endif
