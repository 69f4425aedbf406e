/* membership.h: which hosts take part in a run over several hosts, and which ranks each has, from
 * the view of one command. A host is one of cluster.hosts or a spare, by its index in plan->hosts;
 * each has a command. A place is the ranks that a plan maps to one host: place p those of the
 * plan's host p. At the start each host of cluster.hosts has the place of its index, and spares
 * wait; after a loss a spare, or with a fallback another host, has it. */
#ifndef PEN_MEMBERSHIP_H
#define PEN_MEMBERSHIP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/comm/shared_control.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/rank_set.h"

enum pen_host_state {
  PEN_HOST_LIVES,
  PEN_HOST_LOST,  /* its connection was closed: its processes have ended */
  PEN_HOST_SILENT /* it has answered nothing: it, or only the link to it, is lost */
};

/* Which host has a place, and where it listens for the copies of the place before (mirror.h). */
struct pen_place {
  uint32_t host; /* PEN_NONE: none */
  uint32_t port; /* 0: it does not listen */
  char address[PEN_ADDRESS_BYTES];
};

struct pen_membership {
  const struct pen_plan *plan;    /* of the binary, with its fallbacks */
  const struct pen_plan *current; /* which of these the ranks run */
  uint32_t own;                   /* this command's host */
  uint32_t only;                  /* with a command a rank: this one's; else PEN_NONE */
  struct pen_place *places;       /* [hosts and spares]; the first current->host_count are set */
  _Atomic uint32_t *states;       /* [hosts and spares]: enum pen_host_state */
  uint32_t *absent; /* [hosts and spares]: the first rank of a host that has not come again after a
                       loss, until pen_restart_take_plan() has named it; else PEN_NONE */
  bool *held; /* [hosts and spares]: had ranks before a fallback was taken, and lived; none is set
                 once the states of the plan before are no longer needed */
};

/* Which of a binary's plans `one` is: 0, or the number of a fallback. And the plan with a number;
 * null: there is none. */
uint32_t pen_plan_index(const struct pen_plan *plan, const struct pen_plan *one);
const struct pen_plan *pen_plan_of_index(const struct pen_plan *plan, uint64_t index);

/* Each host has its own place; `local` is what this command starts. Fails (71). */
void pen_membership_open(struct pen_membership *membership, const struct pen_plan *plan,
                         const struct pen_rank_set *local);
void pen_membership_close(struct pen_membership *membership);

/* The name or address at which the others reach a host: MASTER_ADDR for the one that has rank 0 at
 * the start, else its name in the plan. */
const char *pen_host_name(const struct pen_plan *plan, uint32_t host);

/* The place that a host has; PEN_NONE: it waits. Of host PEN_NONE: the first that no host has. */
uint32_t pen_host_place(const struct pen_membership *membership, uint32_t host);

/* The ranks that a host has, or of these one; an empty set for a spare that waits. */
struct pen_rank_set pen_host_ranks(const struct pen_membership *membership, uint32_t host,
                                   uint32_t only);

/* The host to which the others connect: that of rank 0, or, if it is lost, the first with ranks
 * that lives, or, if there is none, the first that lives. */
uint32_t pen_membership_server(const struct pen_membership *membership);

/* Whether a living host has ranks. */
bool pen_membership_has_ranks(const struct pen_membership *membership);

/* Takes their places from lost hosts. */
void pen_membership_vacate(struct pen_membership *membership);

/* Gives a host without a place the first that no host has, if there is one. */
bool pen_membership_place(struct pen_membership *membership, uint32_t host);

/* Where fewer living hosts wait than places have no living host, takes the first fallback for at
 * most as many hosts as live. This command's host, the server, gets the place of rank 0, then come
 * the others that had ranks, as long as there are places. False: nothing changes. */
bool pen_membership_fall_back(struct pen_membership *membership);

/* Takes what the server has decided. `places`: [hosts and spares]. */
void pen_membership_take_places(struct pen_membership *membership, const struct pen_plan *plan,
                                const struct pen_place *places);

/* All ranks have a state of the current plan. */
void pen_membership_release(struct pen_membership *membership);

/* Whether the run can continue without the lost hosts: as many living hosts wait as places have no
 * living host, or enough live for a fallback; a host with ranks lives, or all ranks were on one
 * host; and no other part of the run can continue too. Of two parts that do not reach each other,
 * the one with more hosts continues, or at equal numbers that of the first host. */
bool pen_membership_can_continue(const struct pen_membership *membership);

#endif
