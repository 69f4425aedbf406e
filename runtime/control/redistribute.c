/* redistribute.c: copies of states go to the ranks of a fallback (see redistribute.h). */
#include "runtime/control/redistribute.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "runtime/base/check.h"
#include "runtime/base/futex_counter.h"
#include "runtime/storage/memory_convert.h"

/* Kinds of messages. */
enum {
  STATES_WANT = 200, /* rank: whose copy */
  STATES_POSITION,   /* bytes: struct pen_state_position */
  STATES_PART,       /* rank; number: of the part; its bytes */
  STATES_DONE        /* bytes: the same, in the first of the server's */
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

static bool send_position(struct pen_control_link *link, uint32_t kind,
                          const struct pen_state_position *position) {
  const struct pen_control_message message = {.kind = kind, .bytes = sizeof *position};
  return pen_control_link_send(link, &message, position);
}

static bool receive_position(struct pen_control_link *link, struct pen_state_position *position) {
  struct pen_control_message message;
  return pen_control_link_receive_header(link, &message) && message.kind == STATES_POSITION &&
         message.bytes == sizeof *position && pen_control_link_receive(link, &message, position);
}

/* ---- the server ---- */

struct serving {
  const struct pen_redistribution *states;
  struct pen_peers *peers;
  const struct pen_start_offer *offers;
  struct pen_memory_conversion *conversion;
  struct pen_state_position position;
  uint64_t heartbeat_ns;
  struct pen_peer_command *lost; /* null: none; */
  int error;                     /* errno of its loss */
};

/* Keeps the first command that is lost. The rank's copy on its way is still taken in, so that the
 * next message of its holder is where it is expected. */
static void expect(struct serving *serving, bool succeeded, struct pen_peer_command *peer) {
  if (!succeeded && serving->lost == NULL) {
    serving->error = errno;
    serving->lost = peer;
  }
}

static bool takes_part(const struct serving *serving, uint32_t peer) {
  return serving->peers->command[peer].ranks.count > 0 || serving->offers[peer + 1].held != 0;
}

/* At most every HEARTBEAT_MS: the commands that wait see that this one lives. */
static void send_heartbeats(struct serving *serving) {
  enum { HEARTBEAT_MS = 500 };
  if (pen_now_ns() < serving->heartbeat_ns) {
    return;
  }
  serving->heartbeat_ns = pen_now_ns() + HEARTBEAT_MS * 1000000ull;
  for (uint32_t p = 0; p < serving->peers->count; p++) {
    struct pen_peer_command *peer = &serving->peers->command[p];
    if (takes_part(serving, p) && peer != serving->lost) {
      expect(serving, pen_control_link_send_number(&peer->link, PEN_MESSAGE_HEARTBEAT, 0), peer);
    }
  }
}

/* To the commands whose ranks need it, except the one that has sent it. */
static void forward(struct serving *serving, const struct rank_parts *list, uint32_t index,
                    const unsigned char *bytes, const struct pen_peer_command *holder) {
  const struct pen_control_message message = part_message(list, index);
  for (uint32_t p = 0; p < serving->peers->count && serving->lost == NULL; p++) {
    struct pen_peer_command *peer = &serving->peers->command[p];
    if (peer != holder &&
        pen_memory_part_is_needed(serving->states->to->plan, &peer->ranks, &list->parts[index])) {
      expect(serving, pen_control_link_send(&peer->link, &message, bytes), peer);
    }
  }
  send_heartbeats(serving);
}

static void serve_own(struct serving *serving, const struct rank_parts *list,
                      const struct pen_memory_checkpoints *copies) {
  const unsigned char *copy = pen_memory_copy_of(copies, list->rank, serving->states->step);
  for (uint32_t i = 0; i < list->count && serving->lost == NULL; i++) {
    pen_memory_conversion_add(serving->conversion, &list->parts[i], copy + list->parts[i].offset);
    forward(serving, list, i, copy + list->parts[i].offset, NULL);
  }
  serving->position = pen_memory_checkpoint_position(copies, serving->states->step);
}

static void serve_peer(struct serving *serving, const struct rank_parts *list,
                       struct pen_peer_command *holder) {
  const struct pen_control_message want = {.kind = STATES_WANT, .rank = list->rank};
  struct pen_control_message message;
  struct pen_control_link *link = &holder->link;
  expect(serving,
         pen_control_link_send(link, &want, NULL) && receive_position(link, &serving->position),
         holder);
  for (uint32_t i = 0; i < list->count && serving->lost != holder; i++) {
    const bool received = pen_control_link_receive_header(link, &message) && message.number == i &&
                          receive_part(link, &message, list);
    expect(serving, received, holder);
    if (!received) {
      return;
    }
    pen_memory_conversion_add(serving->conversion, &list->parts[i], list->buffer);
    forward(serving, list, i, list->buffer, holder);
  }
}

/* The peer that has offered the copy of a rank: that of its host, or of the next one. */
static struct pen_peer_command *find_holder(const struct serving *serving, uint32_t rank) {
  const struct pen_redistribution *states = serving->states;
  for (uint32_t p = 0; p < serving->peers->count; p++) {
    if (pen_start_offer_has(&serving->offers[p + 1], pen_rank_host(states->from, rank),
                            states->step)) {
      return &serving->peers->command[p];
    }
  }
  pen_fail(PEN_EXIT_INTERNAL, "no command has the state of rank %u after step %" PRIu64, rank,
           states->step);
}

static void serve_ranks(struct serving *serving) {
  const struct pen_redistribution *states = serving->states;
  for (uint32_t r = 0; r < pen_process_count(states->from) && serving->lost == NULL; r++) {
    struct rank_parts list = open_parts(states->from, r);
    const struct pen_memory_checkpoints *copies = find_copies(states, r);
    if (list.count > 0 && copies != NULL) {
      serve_own(serving, &list, copies);
    } else if (list.count > 0) {
      serve_peer(serving, &list, find_holder(serving, r));
    }
    close_parts(&list);
  }
}

static void send_done(struct serving *serving, bool is_first) {
  for (uint32_t p = 0; p < serving->peers->count; p++) {
    struct pen_peer_command *peer = &serving->peers->command[p];
    if (takes_part(serving, p)) {
      expect(serving,
             is_first ? send_position(&peer->link, STATES_DONE, &serving->position)
                      : pen_control_link_send_number(&peer->link, STATES_DONE, 0),
             peer);
    }
  }
}

/* All that were told DONE say so too, unless they are lost. */
static void receive_done(struct serving *serving) {
  uint64_t unused;
  for (uint32_t p = 0; p < serving->peers->count; p++) {
    struct pen_peer_command *peer = &serving->peers->command[p];
    if (takes_part(serving, p) && peer != serving->lost) {
      expect(serving, pen_control_link_receive_number(&peer->link, STATES_DONE, &unused), peer);
    }
  }
}

struct pen_peer_command *pen_redistribute_serve(const struct pen_redistribution *states,
                                                struct pen_peers *peers,
                                                const struct pen_start_offer *offers) {
  struct serving serving = {.states = states,
                            .peers = peers,
                            .offers = offers,
                            .conversion = pen_memory_conversion_open(states->to)};
  serve_ranks(&serving);
  if (serving.lost == NULL) {
    send_done(&serving, true);
    receive_done(&serving);
  }
  struct pen_peer_command *lost = serving.lost;
  pen_memory_conversion_close(serving.conversion, lost == NULL ? states->step : 0,
                              &serving.position);
  if (lost == NULL) {
    send_done(&serving,
              false); /* one that is lost now has its copies: it is found when the ranks run */
  }
  errno = serving.error;
  return lost;
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
  const struct pen_state_position position = pen_memory_checkpoint_position(copies, states->step);
  bool sent = send_position(server, STATES_POSITION, &position);
  for (uint32_t i = 0; i < list->count && sent; i++) {
    const struct pen_control_message message = part_message(list, i);
    pen_memory_conversion_add(conversion, &list->parts[i], copy + list->parts[i].offset);
    sent = pen_control_link_send(server, &message, copy + list->parts[i].offset);
  }
  return sent;
}

/* Handles WANT and PART. */
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

/* Until the server's DONE, which is received, the first with the position. No conversion: it has
 * come once. */
static enum pen_redistribute_end join_until_done(const struct pen_redistribution *states,
                                                 struct pen_control_link *server,
                                                 struct pen_memory_conversion *conversion,
                                                 struct pen_state_position *position,
                                                 struct pen_control_message *message) {
  enum pen_redistribute_end end = PEN_REDISTRIBUTE_DONE;
  struct rank_parts list = open_parts(states->from, 0);
  bool received, goes_on;
  do {
    received = pen_control_link_receive_header(server, message);
    goes_on = message->kind == PEN_MESSAGE_HEARTBEAT;
    if (received && (goes_on || message->kind == STATES_DONE)) {
      const bool is_first = !goes_on && conversion != NULL;
      received = message->bytes == (is_first ? sizeof *position : 0) &&
                 pen_control_link_receive(server, message, is_first ? position : NULL);
    } else if (received && conversion != NULL &&
               (message->kind == STATES_WANT || message->kind == STATES_PART)) {
      goes_on = true;
      received = handle_message(states, server, conversion, &list, message);
    } else {
      end = PEN_REDISTRIBUTE_ENDED;
    }
  } while (received && goes_on);
  const int error = errno;
  close_parts(&list);
  errno = error;
  return received ? end : PEN_REDISTRIBUTE_LOST;
}

enum pen_redistribute_end pen_redistribute_join(const struct pen_redistribution *states,
                                                struct pen_control_link *server,
                                                struct pen_control_message *message) {
  struct pen_memory_conversion *conversion = pen_memory_conversion_open(states->to);
  struct pen_state_position position = {.cursor = 0};
  enum pen_redistribute_end end = join_until_done(states, server, conversion, &position, message);
  const bool has_all = end == PEN_REDISTRIBUTE_DONE;
  int error = errno;
  pen_memory_conversion_close(conversion, has_all ? states->step : 0, &position);
  if (has_all) {
    /* The server's answer tells where this was not sent. */
    pen_control_link_send_number(server, STATES_DONE, 0);
    end = join_until_done(states, server, NULL, NULL, message);
    error = errno;
  }
  errno = error;
  return end;
}
