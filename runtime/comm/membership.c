/* membership.c: which hosts take part in a run (see membership.h). */
#include "runtime/comm/membership.h"

#include <stdlib.h>

#include "runtime/base/check.h"

void pen_membership_open(struct pen_membership *membership, const struct pen_plan *plan,
                         const struct pen_rank_set *local) {
  *membership = (struct pen_membership){
      .plan = plan,
      .own = local->host,
      .only = local->only,
      .places = calloc(plan->host_count + 1u, sizeof(struct pen_place)),
      .states = calloc(pen_member_count(plan) + 1u, sizeof(_Atomic uint32_t))};
  pen_check(membership->places != NULL && membership->states != NULL, "no memory for %u hosts",
            pen_member_count(plan));
  for (uint32_t h = 0; h < plan->host_count; h++) {
    membership->places[h].member = h;
  }
}

void pen_membership_close(struct pen_membership *membership) {
  free(membership->places);
  free(membership->states);
}

const char *pen_member_name(const struct pen_plan *plan, uint32_t member) {
  const char *address = getenv("MASTER_ADDR");
  return member == pen_rank_host(plan, 0) && address != NULL && address[0] != '\0'
             ? address
             : plan->hosts[member];
}

static bool lives(const struct pen_membership *membership, uint32_t member) {
  return member != PEN_NONE && atomic_load(&membership->states[member]) == PEN_MEMBER_LIVES;
}

uint32_t pen_member_host(const struct pen_membership *membership, uint32_t member) {
  for (uint32_t h = 0; h < membership->plan->host_count; h++) {
    if (membership->places[h].member == member) {
      return h;
    }
  }
  return PEN_NONE;
}

struct pen_rank_set pen_member_ranks(const struct pen_membership *membership, uint32_t member,
                                     uint32_t only) {
  const struct pen_plan *plan = membership->plan;
  return plan->host_count < 2 ? pen_rank_set_all(plan)
                              : pen_rank_set_of(plan, pen_member_host(membership, member), only);
}

uint32_t pen_membership_server(const struct pen_membership *membership) {
  uint32_t server = membership->places[pen_rank_host(membership->plan, 0)].member;
  for (uint32_t h = 0; h < membership->plan->host_count && !lives(membership, server); h++) {
    server = membership->places[h].member;
  }
  return server;
}

void pen_membership_vacate(struct pen_membership *membership) {
  for (uint32_t h = 0; h < membership->plan->host_count; h++) {
    if (!lives(membership, membership->places[h].member)) {
      membership->places[h].member = PEN_NONE;
    }
  }
}

bool pen_membership_place(struct pen_membership *membership, uint32_t member) {
  const uint32_t vacant = pen_member_host(membership, PEN_NONE);
  if (vacant == PEN_NONE || pen_member_host(membership, member) != PEN_NONE) {
    return false;
  }
  membership->places[vacant].member = member;
  return true;
}

/* With equal numbers of living and silent members: whether the first of all lives. */
static bool has_first(const struct pen_membership *membership) {
  uint32_t member = 0;
  while (atomic_load(&membership->states[member]) == PEN_MEMBER_LOST) {
    member++;
  }
  return lives(membership, member);
}

bool pen_membership_can_continue(const struct pen_membership *membership) {
  uint32_t count[3] = {0}, vacant = 0, waiting = 0;
  for (uint32_t h = 0; h < membership->plan->host_count; h++) {
    vacant += !lives(membership, membership->places[h].member);
  }
  for (uint32_t m = 0; m < pen_member_count(membership->plan); m++) {
    waiting += lives(membership, m) && pen_member_host(membership, m) == PEN_NONE;
    count[atomic_load(&membership->states[m])]++;
  }
  const uint32_t living = count[PEN_MEMBER_LIVES], silent = count[PEN_MEMBER_SILENT];
  return (vacant == 0 || vacant < membership->plan->host_count) &&
         (vacant == 0 || membership->only == PEN_NONE) && vacant <= waiting &&
         (silent == 0 || living > silent || (living == silent && has_first(membership)));
}
