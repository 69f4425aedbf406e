/* binding.h: the cores of each rank of a host: cluster.bind. */
#ifndef PEN_BINDING_H
#define PEN_BINDING_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/plan/plan.h"
#include "runtime/plan/rank_set.h"

enum { PEN_CORES_MAX = 4096, PEN_CORES_TEXT_BYTES = 1024 };

/* The cores that a process may use. */
struct pen_cores {
  uint64_t bits[PEN_CORES_MAX / 64];
};

/* How the ranks of a command are bound. */
struct pen_binding {
  const struct pen_plan *plan;
  uint32_t fallback; /* its number from 1; 0: it is none, or runs */
  struct pen_rank_set ranks;
  enum pen_bind_mode mode;       /* that of the plan, not AUTO */
  struct pen_cores allowed;      /* to the command */
  uint32_t order[PEN_CORES_MAX]; /* the same, one hardware thread of each physical core first */
  uint32_t allowed_count;
  bool by_command; /* they are for the ranks of this command, not for all of the host */
  bool alone;      /* there are enough for all ranks to have their own */
};

/* Reads which cores this process may use. Fails (64), naming this host, where cluster.bind is
 * "core", or ranks have several threads and it is not "none", and the cores are too few for all
 * threads; or where it is a list that has others. */
void pen_binding_open(struct pen_binding *binding, const struct pen_plan *plan,
                      const struct pen_rank_set *ranks);

/* The same for a listing of what the ranks would have: where the cores are too few, those of a
 * machine with just enough, numbered from 0. Returns whether they were too few. */
bool pen_binding_open_for_enough(struct pen_binding *binding, const struct pen_plan *plan,
                                 const struct pen_rank_set *ranks);

/* The same of each fallback's ranks of any host, before a run depends on it. */
void pen_binding_check_fallbacks(const struct pen_plan *plan);

/* The cores of a rank, one of the command's or on another host, as if that had the same cores. */
struct pen_cores pen_binding_cores(const struct pen_binding *binding, uint32_t rank);

/* Binds this process; on failure it runs on any core. */
void pen_binding_apply(const struct pen_cores *cores);

/* With cluster.bind = "none", also in a fallback, ranks may share cores: starts this program again
 * with a GOMP_SPINCOUNT that makes a thread without work sleep after about 0.1 ms instead of
 * several, in which it would keep others from the core. OpenMP reads that when it is loaded. Does
 * nothing if the environment has it, or OMP_WAIT_POLICY. Call before anything is opened. */
void pen_binding_limit_spin(const struct pen_plan *plan, char **argv);

/* "0-3,8". Returns text. */
const char *pen_binding_text(const struct pen_cores *cores, char text[PEN_CORES_TEXT_BYTES]);

#endif
