/* link.c: which links this binary has, and what they have in common (see link.h). */
#include "kernels/kernels.h"
#include "runtime/device/link.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"

/* Whether a rank gathers, and which of its rows send and receive which messages. */
static void read_rows(struct pen_link *link, uint32_t rank) {
  const struct pen_rank_program *program = &link->profile->ranks[rank];
  for (uint32_t i = 0; i < program->action_count; i++) {
    const struct pen_action *row = &program->actions[i];
    link->gathers[rank] = link->gathers[rank] || row->kind == PEN_WAIT_NORM;
    if (pen_kind_sends(row->kind)) {
      link->sent_by[row->message] = i;
    } else if (pen_kind_receives(row->kind)) {
      link->received_by[row->message] = i;
    }
  }
}

void pen_link_fill(struct pen_link *link, struct pen_stream_state *queue,
                   const struct pen_profile *profile, const struct pen_shared *shared,
                   uint32_t global) {
  const struct pen_plan *plan = queue->plan;
  const uint32_t rank = global % plan->rank_count;
  *link = (struct pen_link){
      .queue = queue,
      .plan = plan,
      .profile = profile,
      .shared = shared,
      .rank = rank,
      .replica = global / plan->rank_count,
      .reuse = pen_send_hazards_of(plan, profile, rank),
      .gathers = calloc(plan->rank_count, sizeof *link->gathers),
      .all_gather = true,
      .sent_by = calloc(profile->message_count + 1u, sizeof *link->sent_by),
      .received_by = calloc(profile->message_count + 1u, sizeof *link->received_by),
      .exchange_rows = calloc(profile->ranks[rank].action_count + 1u, sizeof *link->exchange_rows),
  };
  pen_check(link->gathers != NULL && link->sent_by != NULL && link->received_by != NULL &&
                link->exchange_rows != NULL,
            "no memory for a link");
  for (uint32_t r = 0; r < plan->rank_count; r++) {
    read_rows(link, r);
    link->all_gather = link->all_gather && link->gathers[r];
  }
  for (uint32_t i = 0; plan->replica_count > 1 && i < profile->ranks[rank].action_count; i++) {
    if (pen_kind_is_collective(profile->ranks[rank].actions[i].kind)) {
      link->exchange_rows[++link->exchange_count] = i;
    }
  }
}

bool pen_link_gathers(const struct pen_link *link, uint32_t process) {
  const bool ours = process / link->plan->rank_count == link->replica;
  return link->gathers[process % link->plan->rank_count] &&
         (ours || link->profile->kind == PEN_TRAIN);
}

bool pen_link_entries(const struct pen_link *link, bool own, uint32_t *first, uint32_t *past) {
  const struct pen_plan *plan = link->plan;
  for (*first = *past;
       *first < plan->weight_count && (plan->weights[*first].rank == link->rank) != own; ++*first) {
  }
  for (*past = *first;
       *past < plan->weight_count && (plan->weights[*past].rank == link->rank) == own; ++*past) {
  }
  return *first < *past;
}

const char *pen_link_captures(struct pen_link *link) { return (void)link, NULL; }

bool pen_link_captured(struct pen_link *link, bool captured) { return (void)link, captured; }

static void *allocate_plainly(const struct pen_plan *plan, uint32_t rank,
                              const struct pen_device *device) {
  void *arena = device->allocate(plan->memory[rank].arena_bytes);
  if (arena == NULL || device->error() != NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "device %s: the arena: %s", device->name,
             device->error() == NULL ? "none" : device->error());
  }
  return arena;
}

static const struct {
  const char *name;
  void *(*allocate)(const struct pen_plan *plan, uint32_t rank,
                    const struct pen_device *device); /* null: plainly */
  struct pen_link *(*open)(struct pen_stream_state *queue, const struct pen_profile *profile,
                           const struct pen_shared *shared, uint32_t global);
} links[] = {
    {"ipc", allocate_plainly, pen_ipc_open},
    {"nccl", pen_nccl_allocate, pen_nccl_open},
};

void *pen_link_allocate(const struct pen_plan *plan, uint32_t rank,
                        const struct pen_device *device) {
  void *arena = NULL;
  for (size_t i = 0;
       i < sizeof links / sizeof *links && pen_process_count(plan) > 1 && arena == NULL; i++) {
    if (strcmp(links[i].name, plan->transport) == 0) {
      arena = links[i].allocate(plan, rank, device);
    }
  }
  return arena == NULL ? allocate_plainly(plan, rank, device) : arena;
}

struct pen_link *pen_link_open(struct pen_stream_state *queue, const struct pen_profile *profile,
                               const struct pen_shared *shared, uint32_t global) {
  struct pen_link *link = NULL;
  for (size_t i = 0; i < sizeof links / sizeof *links && link == NULL; i++) {
    if (strcmp(links[i].name, queue->plan->transport) == 0) {
      link = links[i].open(queue, profile, shared, global);
    }
  }
  if (link != NULL) {
    return link;
  }
  pen_fail(PEN_EXIT_SYSTEM,
           "the plan is for the transport %s, which this binary was linked without",
           queue->plan->transport);
}
