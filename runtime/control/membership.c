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
      .places = calloc(pen_host_and_spare_count(plan) + 1u, sizeof(struct pen_place)),
      .states = calloc(pen_host_and_spare_count(plan) + 1u, sizeof(_Atomic uint32_t)),
      .absent = calloc(pen_host_and_spare_count(plan) + 1u, sizeof(uint32_t)),
      .held = calloc(pen_host_and_spare_count(plan) + 1u, sizeof(bool))};
  pen_check(membership->places != NULL && membership->states != NULL &&
                membership->absent != NULL && membership->held != NULL,
            "no memory for %u hosts", pen_host_and_spare_count(plan));
  for (uint32_t h = 0; h < pen_host_and_spare_count(plan); h++) {
    membership->absent[h] = PEN_NONE;
  }
  for (uint32_t p = 0; p < plan->host_count; p++) {
    membership->places[p].host = p;
  }
}

void pen_membership_close(struct pen_membership *membership) {
  free(membership->places);
  free(membership->states);
  free(membership->absent);
  free(membership->held);
}

uint32_t pen_plan_index(const struct pen_plan *plan, const struct pen_plan *one) {
  return one == plan ? 0 : (uint32_t)(one - plan->fallbacks) + 1;
}

const struct pen_plan *pen_plan_of_index(const struct pen_plan *plan, uint64_t index) {
  return index == 0 ? plan : index <= plan->fallback_count ? &plan->fallbacks[index - 1] : NULL;
}

const char *pen_host_name(const struct pen_plan *plan, uint32_t host) {
  const char *address = getenv("MASTER_ADDR");
  return host == pen_rank_host(plan, 0) && address != NULL && address[0] != '\0'
             ? address
             : plan->hosts[host];
}

static bool lives(const struct pen_membership *membership, uint32_t host) {
  return host != PEN_NONE && atomic_load(&membership->states[host]) == PEN_HOST_LIVES;
}

uint32_t pen_host_place(const struct pen_membership *membership, uint32_t host) {
  for (uint32_t p = 0; p < membership->current->host_count; p++) {
    if (membership->places[p].host == host) {
      return p;
    }
  }
  return PEN_NONE;
}

struct pen_rank_set pen_host_ranks(const struct pen_membership *membership, uint32_t host,
                                   uint32_t only) {
  const struct pen_plan *plan = membership->current;
  return pen_host_and_spare_count(plan) < 2
             ? pen_rank_set_all(plan)
             : pen_rank_set_of(plan, pen_host_place(membership, host), only);
}

uint32_t pen_membership_server(const struct pen_membership *membership) {
  uint32_t server = membership->places[pen_rank_host(membership->current, 0)].host;
  for (uint32_t p = 0; p < membership->current->host_count && !lives(membership, server); p++) {
    server = membership->places[p].host;
  }
  const uint32_t all = pen_host_and_spare_count(membership->plan);
  for (uint32_t h = 0; h < all && !lives(membership, server); h++) {
    server = h;
  }
  return server;
}

bool pen_membership_has_ranks(const struct pen_membership *membership) {
  bool has = false;
  for (uint32_t p = 0; p < membership->current->host_count; p++) {
    has = has || lives(membership, membership->places[p].host);
  }
  return has;
}

void pen_membership_vacate(struct pen_membership *membership) {
  for (uint32_t p = 0; p < membership->current->host_count; p++) {
    if (!lives(membership, membership->places[p].host)) {
      membership->places[p].host = PEN_NONE;
    }
  }
}

bool pen_membership_place(struct pen_membership *membership, uint32_t host) {
  const uint32_t vacant = pen_host_place(membership, PEN_NONE);
  if (vacant == PEN_NONE || pen_host_place(membership, host) != PEN_NONE) {
    return false;
  }
  membership->places[vacant].host = host;
  return true;
}

/* With equal numbers of living and silent hosts: whether the first that is not lost lives. */
static bool has_first(const struct pen_membership *membership) {
  uint32_t host = 0;
  while (atomic_load(&membership->states[host]) == PEN_HOST_LOST) {
    host++;
  }
  return lives(membership, host);
}

struct host_counts {
  uint32_t vacant;   /* places without a living host */
  uint32_t waiting;  /* living hosts without a place */
  uint32_t count[3]; /* hosts and spares of each state */
};

static struct host_counts count_hosts(const struct pen_membership *membership) {
  struct host_counts counts = {0};
  for (uint32_t p = 0; p < membership->current->host_count; p++) {
    counts.vacant += !lives(membership, membership->places[p].host);
  }
  for (uint32_t h = 0; h < pen_host_and_spare_count(membership->plan); h++) {
    counts.waiting += lives(membership, h) && pen_host_place(membership, h) == PEN_NONE;
    counts.count[atomic_load(&membership->states[h])]++;
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
  memset(membership->held, 0,
         pen_host_and_spare_count(membership->plan) * sizeof *membership->held);
}

/* Before another plan is taken. Those that are held already have states of a plan before, since no
 * rank has run the current one. */
static void hold(struct pen_membership *membership) {
  bool any = false;
  for (uint32_t h = 0; h < pen_host_and_spare_count(membership->plan); h++) {
    any = any || membership->held[h];
  }
  for (uint32_t p = 0; p < membership->current->host_count && !any; p++) {
    const uint32_t host = membership->places[p].host;
    if (lives(membership, host)) {
      membership->held[host] = true;
    }
  }
}

void pen_membership_take_places(struct pen_membership *membership, const struct pen_plan *plan,
                                const struct pen_place *places) {
  if (plan != membership->current) {
    hold(membership);
  }
  membership->current = plan;
  memcpy(membership->places, places, pen_host_and_spare_count(membership->plan) * sizeof *places);
}

bool pen_membership_fall_back(struct pen_membership *membership) {
  const struct host_counts counts = count_hosts(membership);
  const struct pen_plan *plan = fallback_for(membership, counts.count[PEN_HOST_LIVES]),
                        *before = membership->current;
  if (counts.vacant <= counts.waiting || plan == NULL) {
    return false;
  }
  struct pen_place *places = pen_allocate(pen_host_and_spare_count(plan), sizeof *places,
                                          "%u hosts", pen_host_and_spare_count(plan));
  const uint32_t first = pen_rank_host(plan, 0);
  hold(membership);
  for (uint32_t p = 0; p < plan->host_count; p++) {
    places[p].host = p == first ? membership->own : PEN_NONE;
  }
  for (uint32_t p = 0, to = 0; p < before->host_count; p++) {
    const uint32_t host = membership->places[p].host;
    if (!lives(membership, host)) {
      continue;
    }
    to += to == first;
    if (to < plan->host_count && host != membership->own) {
      places[to++].host = host;
    }
  }
  free(membership->places);
  membership->places = places;
  membership->current = plan;
  return true;
}

bool pen_membership_can_continue(const struct pen_membership *membership) {
  const struct host_counts counts = count_hosts(membership);
  const uint32_t living = counts.count[PEN_HOST_LIVES], silent = counts.count[PEN_HOST_SILENT],
                 vacant = counts.vacant;
  return (vacant == 0 || vacant < membership->current->host_count ||
          membership->current->host_count == 1) &&
         (vacant == 0 || membership->only == PEN_NONE) &&
         (vacant <= counts.waiting || fallback_for(membership, living) != NULL) &&
         (silent == 0 || living > silent || (living == silent && has_first(membership)));
}
