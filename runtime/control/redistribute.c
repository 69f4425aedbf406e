/* redistribute.c: copies of states go to the ranks of a fallback (see redistribute.h). */
#include "runtime/control/redistribute.h"

#include <inttypes.h>
#include <stdlib.h>

#include "runtime/base/check.h"
#include "runtime/storage/memory_convert.h"

/* Kinds of messages. */
enum {
  STATES_WANT = 200, /* rank: whose copy */
  STATES_CURSOR,     /* number: the cursor after the step */
  STATES_PART,       /* rank; number: of the part; its bytes */
  STATES_DONE        /* number: the cursor after the step */
};

/* The parts of one rank's copy, and memory for the largest. */
struct rank_parts {
  uint32_t rank, count;
  struct pen_memory_part *parts;
  unsigned char *buffer;
};

static struct rank_parts open_parts(const struct pen_plan *plan, uint32_t rank) {
  struct rank_parts list = {.rank = rank};
  size_t most = 1;
  list.count = pen_memory_parts(plan, rank, &list.parts);
  for (uint32_t i = 0; i < list.count; i++) {
    const size_t bytes = pen_memory_part_bytes(&list.parts[i]);
    most = bytes > most ? bytes : most;
  }
  list.buffer = malloc(most);
  pen_check(list.buffer != NULL, "no memory for a tensor of %zu bytes", most);
  return list;
}

static void close_parts(struct rank_parts *list) {
  free(list->parts);
  free(list->buffer);
}

static void expect(bool received, const struct pen_control_link *link) {
  if (!received) {
    pen_fail(PEN_EXIT_LOST, "the command at %s ended before the ranks were started", link->address);
  }
}

/* Whether these are copies of that rank, and all ranks have that step. */
static bool have(const struct pen_memory_checkpoints *copies, uint32_t rank, uint64_t step) {
  uint64_t steps[PEN_MEMORY_COPIES_MAX];
  bool has = false;
  pen_memory_checkpoint_steps(copies, steps);
  for (int i = 0; i < PEN_MEMORY_COPIES_MAX && copies->memory != NULL; i++) {
    has = has || steps[i] == step;
  }
  return has && pen_rank_set_has(&copies->ranks, rank);
}

/* The copies with that of a rank; null: this command has none of the step. */
static const struct pen_memory_checkpoints *find_copies(const struct pen_redistribution *states,
                                                        uint32_t rank) {
  return have(states->own, rank, states->step)        ? states->own
         : have(states->mirrored, rank, states->step) ? states->mirrored
                                                      : NULL;
}

static struct pen_control_message part_message(const struct rank_parts *list, uint32_t index) {
  return (struct pen_control_message){.kind = STATES_PART,
                                      .rank = list->rank,
                                      .number = index,
                                      .bytes = pen_memory_part_bytes(&list->parts[index])};
}

/* Of a message whose header says that it is a part of these. */
static bool receive_part(struct pen_control_link *link, const struct pen_control_message *message,
                         const struct rank_parts *list) {
  return message->kind == STATES_PART && message->rank == list->rank &&
         message->number < list->count &&
         message->bytes == pen_memory_part_bytes(&list->parts[message->number]) &&
         pen_control_link_receive(link, message, list->buffer);
}

static bool receive_number(struct pen_control_link *link, uint32_t kind, uint64_t *number) {
  struct pen_control_message message;
  const bool received = pen_control_link_receive_header(link, &message) && message.kind == kind &&
                        message.bytes == 0 && pen_control_link_receive(link, &message, NULL);
  *number = message.number;
  return received;
}

/* ---- the server ---- */

struct serving {
  const struct pen_redistribution *states;
  struct pen_peers *peers;
  struct pen_memory_conversion *conversion;
  uint64_t cursor;
};

/* To the commands whose ranks need it, except the one that has sent it. */
static void forward(const struct serving *serving, const struct rank_parts *list, uint32_t index,
                    const unsigned char *bytes, const struct pen_peer_command *holder) {
  const struct pen_control_message message = part_message(list, index);
  for (uint32_t p = 0; p < serving->peers->count; p++) {
    struct pen_peer_command *peer = &serving->peers->command[p];
    if (peer != holder &&
        pen_memory_part_is_needed(serving->states->to->plan, &peer->ranks, &list->parts[index])) {
      expect(pen_control_link_send(&peer->link, &message, bytes), &peer->link);
    }
  }
}

static void serve_own(struct serving *serving, const struct rank_parts *list,
                      const struct pen_memory_checkpoints *copies) {
  const unsigned char *copy = pen_memory_copy_of(copies, list->rank, serving->states->step);
  for (uint32_t i = 0; i < list->count; i++) {
    pen_memory_conversion_add(serving->conversion, &list->parts[i], copy + list->parts[i].offset);
    forward(serving, list, i, copy + list->parts[i].offset, NULL);
  }
  serving->cursor = pen_memory_checkpoint_cursor(copies, serving->states->step);
}

static void serve_peer(struct serving *serving, const struct rank_parts *list,
                       struct pen_peer_command *holder) {
  const struct pen_control_message want = {.kind = STATES_WANT, .rank = list->rank};
  struct pen_control_message message;
  struct pen_control_link *link = &holder->link;
  expect(pen_control_link_send(link, &want, NULL) &&
             receive_number(link, STATES_CURSOR, &serving->cursor),
         link);
  for (uint32_t i = 0; i < list->count; i++) {
    expect(pen_control_link_receive_header(link, &message) && message.number == i &&
               receive_part(link, &message, list),
           link);
    pen_memory_conversion_add(serving->conversion, &list->parts[i], list->buffer);
    forward(serving, list, i, list->buffer, holder);
  }
}

/* The peer that has offered the copy of a rank: that of its host, or of the next one. */
static struct pen_peer_command *find_holder(const struct serving *serving,
                                            const struct pen_start_offer *offers, uint32_t rank) {
  const struct pen_redistribution *states = serving->states;
  for (uint32_t p = 0; p < serving->peers->count; p++) {
    if (pen_start_offer_has(&offers[p + 1], pen_rank_host(states->from, rank), states->step)) {
      return &serving->peers->command[p];
    }
  }
  pen_fail(PEN_EXIT_INTERNAL, "no command has the state of rank %u after step %" PRIu64, rank,
           states->step);
}

void pen_redistribute_serve(const struct pen_redistribution *states, struct pen_peers *peers,
                            const struct pen_start_offer *offers) {
  struct serving serving = {
      .states = states, .peers = peers, .conversion = pen_memory_conversion_open(states->to)};
  for (uint32_t r = 0; r < pen_process_count(states->from); r++) {
    struct rank_parts list = open_parts(states->from, r);
    const struct pen_memory_checkpoints *copies = find_copies(states, r);
    if (list.count > 0 && copies != NULL) {
      serve_own(&serving, &list, copies);
    } else if (list.count > 0) {
      serve_peer(&serving, &list, find_holder(&serving, offers, r));
    }
    close_parts(&list);
  }
  for (uint32_t p = 0; p < peers->count; p++) {
    const struct pen_control_message done = {.kind = STATES_DONE, .number = serving.cursor};
    if (peers->command[p].ranks.count > 0 || offers[p + 1].held != 0) {
      expect(pen_control_link_send(&peers->command[p].link, &done, NULL), &peers->command[p].link);
    }
  }
  pen_memory_conversion_close(serving.conversion, states->step, serving.cursor);
}

/* ---- the others ---- */

/* Sends the copy of a rank, as the server wants it. False: this command has none, or the server has
 * ended. */
static bool send_copy(const struct pen_redistribution *states, struct pen_control_link *server,
                      struct pen_memory_conversion *conversion, const struct rank_parts *list) {
  const struct pen_memory_checkpoints *copies = find_copies(states, list->rank);
  if (copies == NULL) {
    return false;
  }
  const unsigned char *copy = pen_memory_copy_of(copies, list->rank, states->step);
  const struct pen_control_message cursor = {
      .kind = STATES_CURSOR, .number = pen_memory_checkpoint_cursor(copies, states->step)};
  bool sent = pen_control_link_send(server, &cursor, NULL);
  for (uint32_t i = 0; i < list->count && sent; i++) {
    const struct pen_control_message message = part_message(list, i);
    pen_memory_conversion_add(conversion, &list->parts[i], copy + list->parts[i].offset);
    sent = pen_control_link_send(server, &message, copy + list->parts[i].offset);
  }
  return sent;
}

/* Handles a message other than DONE. */
static bool handle_message(const struct pen_redistribution *states, struct pen_control_link *server,
                           struct pen_memory_conversion *conversion, struct rank_parts *list,
                           const struct pen_control_message *message) {
  if (message->rank >= pen_process_count(states->from)) {
    return false;
  }
  if (message->rank != list->rank) {
    close_parts(list);
    *list = open_parts(states->from, message->rank);
  }
  if (message->kind == STATES_WANT && message->bytes == 0) {
    return pen_control_link_receive(server, message, NULL) &&
           send_copy(states, server, conversion, list);
  }
  if (!receive_part(server, message, list)) {
    return false;
  }
  pen_memory_conversion_add(conversion, &list->parts[message->number], list->buffer);
  return true;
}

void pen_redistribute_join(const struct pen_redistribution *states,
                           struct pen_control_link *server) {
  struct pen_memory_conversion *conversion = pen_memory_conversion_open(states->to);
  struct rank_parts list = open_parts(states->from, 0);
  struct pen_control_message message;
  bool done = false;
  while (!done) {
    expect(pen_control_link_receive_header(server, &message), server);
    done = message.kind == STATES_DONE && message.bytes == 0;
    expect(done ? pen_control_link_receive(server, &message, NULL)
                : handle_message(states, server, conversion, &list, &message),
           server);
  }
  close_parts(&list);
  pen_memory_conversion_close(conversion, states->step, message.number);
}
