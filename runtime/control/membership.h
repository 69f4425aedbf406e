/* membership.h: the commands of a run over several hosts, one a member: a host of cluster.hosts or
 * a spare, by its index in plan->hosts. Which member has the ranks of each host, and which members
 * are lost, from the view of one command. */
#ifndef PEN_MEMBERSHIP_H
#define PEN_MEMBERSHIP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/comm/shared_control.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/rank_set.h"

enum pen_member_state {
  PEN_MEMBER_LIVES,
  PEN_MEMBER_LOST,  /* its connection was closed: its processes have ended */
  PEN_MEMBER_SILENT /* it has answered nothing: it, or only the link to it, is lost */
};

/* Who has the ranks of a host, and where it listens for the copies of the host before (mirror.h).
 */
struct pen_place {
  uint32_t member; /* PEN_NONE: none */
  uint32_t port;   /* 0: it does not listen */
  char address[PEN_ADDRESS_BYTES];
};

struct pen_membership {
  const struct pen_plan *plan;    /* of the binary, with its fallbacks */
  const struct pen_plan *current; /* which of these the ranks run */
  uint32_t own;                   /* this command's member */
  uint32_t only;                  /* with a command a rank: this one's; else PEN_NONE */
  struct pen_place *places;       /* [members]; the first current->host_count are set */
  _Atomic uint32_t *states;       /* [members]: enum pen_member_state */
  bool *held; /* [members]: had ranks before a fallback was taken, and lived; none is set once the
                 states of the plan before are no longer needed */
};

/* Which of a binary's plans `one` is: 0, or the number of a fallback. And the plan with a number;
 * null: there is none. */
uint32_t pen_plan_index(const struct pen_plan *plan, const struct pen_plan *one);
const struct pen_plan *pen_plan_of_index(const struct pen_plan *plan, uint64_t index);

/* Each host has its own ranks; `local` is what this command starts. Fails (71). */
void pen_membership_open(struct pen_membership *membership, const struct pen_plan *plan,
                         const struct pen_rank_set *local);
void pen_membership_close(struct pen_membership *membership);

/* The name or address at which the others reach a member: MASTER_ADDR for that of rank 0's host,
 * else its name in the plan. */
const char *pen_member_name(const struct pen_plan *plan, uint32_t member);

/* The host whose ranks the member has; PEN_NONE: it waits. */
uint32_t pen_member_host(const struct pen_membership *membership, uint32_t member);

/* The ranks that a member has, or of these one; an empty set for a spare that waits. */
struct pen_rank_set pen_member_ranks(const struct pen_membership *membership, uint32_t member,
                                     uint32_t only);

/* The member to which the others connect: that of rank 0, or, if it is lost, the first with ranks
 * that lives, or, if there is none, the first that lives. */
uint32_t pen_membership_server(const struct pen_membership *membership);

/* Whether a member with ranks lives. */
bool pen_membership_has_host(const struct pen_membership *membership);

/* Takes the ranks from lost members. */
void pen_membership_vacate(struct pen_membership *membership);

/* Gives the ranks of a host that has no member to this one, if there is such a host. */
bool pen_membership_place(struct pen_membership *membership, uint32_t member);

/* Where there are not as many spares as hosts without a member, takes the first fallback for at
 * most as many hosts as live. This command, the server, gets rank 0's host, then come the others
 * that had ranks, as long as there are hosts. False: nothing changes. */
bool pen_membership_fall_back(struct pen_membership *membership);

/* Takes what the server has decided. `places`: [members]. */
void pen_membership_take_places(struct pen_membership *membership, const struct pen_plan *plan,
                                const struct pen_place *places);

/* All ranks have a state of the current plan. */
void pen_membership_release(struct pen_membership *membership);

/* Whether the run can go on without the lost members: there are as many spares as hosts without a
 * member, or enough hosts for a fallback; a host with ranks lives, or all ranks were on one host;
 * and no other part of the run can go on too. Of two parts that do not reach each other, the one
 * with more members goes on, or at equal numbers that of the first member. */
bool pen_membership_can_continue(const struct pen_membership *membership);

#endif
