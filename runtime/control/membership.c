/* membership.c: which hosts take part in a run (see membership.h). */
#include "runtime/control/membership.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"

void pen_membership_open(struct pen_membership *membership, const struct pen_plan *plan,
                         const struct pen_rank_set *local) {
  *membership = (struct pen_membership){
      .plan = plan,
      .current = plan,
      .own = local->host,
      .only = local->only,
      .places = calloc(pen_member_count(plan) + 1u, sizeof(struct pen_place)),
      .states = calloc(pen_member_count(plan) + 1u, sizeof(_Atomic uint32_t)),
      .held = calloc(pen_member_count(plan) + 1u, sizeof(bool))};
  pen_check(membership->places != NULL && membership->states != NULL && membership->held != NULL,
            "no memory for %u hosts", pen_member_count(plan));
  for (uint32_t h = 0; h < plan->host_count; h++) {
    membership->places[h].member = h;
  }
}

void pen_membership_close(struct pen_membership *membership) {
  free(membership->places);
  free(membership->states);
  free(membership->held);
}

uint32_t pen_plan_index(const struct pen_plan *plan, const struct pen_plan *one) {
  return one == plan ? 0 : (uint32_t)(one - plan->fallbacks) + 1;
}

const struct pen_plan *pen_plan_of_index(const struct pen_plan *plan, uint64_t index) {
  return index == 0 ? plan : index <= plan->fallback_count ? &plan->fallbacks[index - 1] : NULL;
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
  for (uint32_t h = 0; h < membership->current->host_count; h++) {
    if (membership->places[h].member == member) {
      return h;
    }
  }
  return PEN_NONE;
}

struct pen_rank_set pen_member_ranks(const struct pen_membership *membership, uint32_t member,
                                     uint32_t only) {
  const struct pen_plan *plan = membership->current;
  return pen_member_count(plan) < 2
             ? pen_rank_set_all(plan)
             : pen_rank_set_of(plan, pen_member_host(membership, member), only);
}

uint32_t pen_membership_server(const struct pen_membership *membership) {
  uint32_t server = membership->places[pen_rank_host(membership->current, 0)].member;
  for (uint32_t h = 0; h < membership->current->host_count && !lives(membership, server); h++) {
    server = membership->places[h].member;
  }
  for (uint32_t m = 0; m < pen_member_count(membership->plan) && !lives(membership, server); m++) {
    server = m;
  }
  return server;
}

bool pen_membership_has_host(const struct pen_membership *membership) {
  bool has = false;
  for (uint32_t h = 0; h < membership->current->host_count; h++) {
    has = has || lives(membership, membership->places[h].member);
  }
  return has;
}

void pen_membership_vacate(struct pen_membership *membership) {
  for (uint32_t h = 0; h < membership->current->host_count; h++) {
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

/* The hosts that have no living member, and the living members. */
struct member_counts {
  uint32_t vacant, waiting, count[3]; /* waiting: without ranks; count: of each state */
};

static struct member_counts count_members(const struct pen_membership *membership) {
  struct member_counts counts = {0};
  for (uint32_t h = 0; h < membership->current->host_count; h++) {
    counts.vacant += !lives(membership, membership->places[h].member);
  }
  for (uint32_t m = 0; m < pen_member_count(membership->plan); m++) {
    counts.waiting += lives(membership, m) && pen_member_host(membership, m) == PEN_NONE;
    counts.count[atomic_load(&membership->states[m])]++;
  }
  return counts;
}

/* The first fallback for at most so many hosts; null: none. */
static const struct pen_plan *fallback_for(const struct pen_membership *membership,
                                           uint32_t hosts) {
  const struct pen_plan *plan = membership->plan, *found = NULL;
  for (uint32_t f = 0; f < plan->fallback_count && found == NULL; f++) {
    found = plan->fallbacks[f].host_count <= hosts ? &plan->fallbacks[f] : NULL;
  }
  return found;
}

void pen_membership_release(struct pen_membership *membership) {
  memset(membership->held, 0, pen_member_count(membership->plan) * sizeof *membership->held);
}

/* Before another plan is taken. Those that are held already have states of a plan before, since no
 * rank has run the current one. */
static void hold(struct pen_membership *membership) {
  bool any = false;
  for (uint32_t m = 0; m < pen_member_count(membership->plan); m++) {
    any = any || membership->held[m];
  }
  for (uint32_t h = 0; h < membership->current->host_count && !any; h++) {
    const uint32_t member = membership->places[h].member;
    if (lives(membership, member)) {
      membership->held[member] = true;
    }
  }
}

void pen_membership_take_places(struct pen_membership *membership, const struct pen_plan *plan,
                                const struct pen_place *places) {
  if (plan != membership->current) {
    hold(membership);
  }
  membership->current = plan;
  memcpy(membership->places, places, pen_member_count(membership->plan) * sizeof *places);
}

bool pen_membership_fall_back(struct pen_membership *membership) {
  const struct member_counts counts = count_members(membership);
  const struct pen_plan *plan = fallback_for(membership, counts.count[PEN_MEMBER_LIVES]),
                        *before = membership->current;
  if (counts.vacant <= counts.waiting || plan == NULL) {
    return false;
  }
  struct pen_place *places = calloc(pen_member_count(plan), sizeof *places);
  pen_check(places != NULL, "no memory for %u hosts", pen_member_count(plan));
  const uint32_t first = pen_rank_host(plan, 0);
  hold(membership);
  for (uint32_t h = 0; h < plan->host_count; h++) {
    places[h].member = h == first ? membership->own : PEN_NONE;
  }
  for (uint32_t h = 0, to = 0; h < before->host_count; h++) {
    const uint32_t member = membership->places[h].member;
    if (!lives(membership, member)) {
      continue;
    }
    to += to == first;
    if (to < plan->host_count && member != membership->own) {
      places[to++].member = member;
    }
  }
  free(membership->places);
  membership->places = places;
  membership->current = plan;
  return true;
}

bool pen_membership_can_continue(const struct pen_membership *membership) {
  const struct member_counts counts = count_members(membership);
  const uint32_t living = counts.count[PEN_MEMBER_LIVES], silent = counts.count[PEN_MEMBER_SILENT],
                 vacant = counts.vacant;
  return (vacant == 0 || vacant < membership->current->host_count ||
          membership->current->host_count == 1) &&
         (vacant == 0 || membership->only == PEN_NONE) &&
         (vacant <= counts.waiting || fallback_for(membership, living) != NULL) &&
         (silent == 0 || living > silent || (living == silent && has_first(membership)));
}
