/* mirror.c: copies of a host's states on the next host (see mirror.h). */
#include "runtime/control/mirror.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/thread.h"

enum { CONNECT_S = 10, TRY_MS = 200, ACCEPT_MS = 20, ABORT_POLL_US = 10000 };

/* Kinds of messages; their number is a step. */
enum {
  MIRROR_WANT = 100,
  MIRROR_STEP, /* bytes: struct pen_state_position */
  MIRROR_COPY, /* rank, bytes: its copy */
  MIRROR_DONE  /* the copies of all ranks have come */
};

struct pen_mirror {
  struct pen_mirror_config config;
  struct pen_control_link next, before; /* to the next host, from the host before */
  bool sends, sending;                  /* copies are sent; its thread is started */
  bool is_complete;                     /* pen_mirror_is_complete() */
  _Atomic bool accepted, ending;
  pthread_t sender, receiver;
};

/* ---- copies ---- */

static uint32_t next_rank(const struct pen_memory_checkpoints *copies, uint32_t rank) {
  return pen_rank_set_next(&copies->ranks, rank);
}

/* Sends the copies of all ranks, which have that step. */
static bool send_copies(struct pen_control_link *link, const struct pen_memory_checkpoints *copies,
                        uint64_t step) {
  const struct pen_state_position position = pen_memory_checkpoint_position(copies, step);
  struct pen_control_message message = {
      .kind = MIRROR_STEP, .number = step, .bytes = sizeof position};
  bool sent = pen_control_link_send(link, &message, &position);
  for (uint32_t r = copies->ranks.first; r < copies->ranks.process_count && sent;
       r = next_rank(copies, r + 1)) {
    message = (struct pen_control_message){.kind = MIRROR_COPY,
                                           .rank = r,
                                           .number = step,
                                           .bytes = pen_memory_copy_bytes(copies->plan, r)};
    sent = pen_control_link_send(link, &message, pen_memory_copy_of(copies, r, step));
  }
  return sent;
}

/* Receives the copies of all ranks of one step. */
static bool receive_copies(struct pen_control_link *link,
                           const struct pen_memory_checkpoints *copies, uint64_t *step) {
  struct pen_control_message message;
  struct pen_state_position position;
  if (!pen_control_link_receive_header(link, &message) || message.kind != MIRROR_STEP ||
      message.bytes != sizeof position || !pen_control_link_receive(link, &message, &position)) {
    return false;
  }
  *step = message.number;
  for (uint32_t r = copies->ranks.first; r < copies->ranks.process_count;
       r = next_rank(copies, r + 1)) {
    unsigned char *copy = pen_memory_copy_begin(copies, r);
    if (!pen_control_link_receive_header(link, &message) || message.kind != MIRROR_COPY ||
        message.rank != r || message.number != *step ||
        message.bytes != pen_memory_copy_bytes(copies->plan, r) ||
        !pen_control_link_receive(link, &message, copy)) {
      return false;
    }
    pen_memory_copy_end(copies, r, copy, *step, &position);
  }
  return true;
}

/* ---- to the next host ---- */

static uint64_t newest_step(const struct pen_memory_checkpoints *copies) {
  uint64_t steps[PEN_MEMORY_COPIES_MAX], newest = 0;
  pen_memory_checkpoint_steps(copies, steps);
  for (int i = 0; i < PEN_MEMORY_COPIES_MAX; i++) {
    newest = steps[i] > newest ? steps[i] : newest;
  }
  return newest;
}

/* Ranks no longer wait for copies on the next host. */
static void release_ranks(struct pen_mirror *mirror) {
  struct pen_memory_checkpoint_control *control = mirror->config.own->control;
  atomic_store(&control->waits, 0);
  pen_futex_counter_increment(&control->mirrored);
}

static void *send_thread(void *argument) {
  const uint64_t sleep_ns = 100 * 1000000ull;
  struct pen_mirror *mirror = argument;
  const struct pen_memory_checkpoints *own = mirror->config.own;
  uint64_t done = 0;
  while (!atomic_load(&mirror->ending)) {
    const uint32_t written = atomic_load(&own->control->written.count);
    const uint64_t step = newest_step(own);
    if (step <= atomic_load(&own->control->mirrored_step)) {
      pen_futex_counter_wait_for(&own->control->written, written + 1, 0, sleep_ns);
    } else if (send_copies(&mirror->next, own, step) &&
               pen_control_link_receive_number(&mirror->next, MIRROR_DONE, &done) && done == step) {
      atomic_store(&own->control->mirrored_step, step);
      pen_futex_counter_increment(&own->control->mirrored);
    } else {
      break; /* the loss of the host is found by its control connection */
    }
  }
  release_ranks(mirror);
  return NULL;
}

/* ---- from the host before ---- */

static uint32_t place_of_ranks(const struct pen_memory_checkpoints *copies) {
  return copies->ranks.host;
}

/* Waits for the command of the host before. False: the mirror ends. */
static bool accept_before(struct pen_mirror *mirror) {
  const struct pen_mirror_config *config = &mirror->config;
  const struct pen_membership *membership = config->control.membership;
  struct pen_proved_command command;
  while (!atomic_load(&mirror->ending)) {
    if (!pen_control_server_poll(config->server, ACCEPT_MS, &command)) {
      continue;
    }
    const struct pen_hello *hello = &command.hello;
    if (memcmp(hello->digest, config->control.plan->digest, sizeof hello->digest) == 0 &&
        hello->attempt == config->control.attempt &&
        hello->host == membership->places[place_of_ranks(config->mirrored)].host) {
      mirror->before = command.link;
      pen_control_send_verdict(&mirror->before, 0);
      return true;
    }
    pen_control_send_verdict(&command.link, PEN_EXIT_LOST);
    pen_control_refuse(config->server, &command.link, "its copies are kept elsewhere");
  }
  return false;
}

static void *receive_thread(void *argument) {
  struct pen_mirror *mirror = argument;
  const struct pen_memory_checkpoints *mirrored = mirror->config.mirrored;
  uint64_t step;
  if (!accept_before(mirror)) {
    return NULL;
  }
  atomic_store(&mirror->accepted, true);
  bool lives = pen_control_link_receive_number(&mirror->before, MIRROR_WANT, &step) &&
               (step == 0 || send_copies(&mirror->before, mirrored, step));
  while (lives && !atomic_load(&mirror->ending)) {
    lives = receive_copies(&mirror->before, mirrored, &step) &&
            pen_control_link_send_number(&mirror->before, MIRROR_DONE, step);
  }
  return NULL;
}

/* ---- the connections ---- */

static bool is_aborted(const struct pen_mirror *mirror) {
  return atomic_load(&mirror->config.shared->control->abort_status) != 0;
}

static bool connect_next(struct pen_mirror *mirror) {
  const struct pen_mirror_config *config = &mirror->config;
  const uint32_t hosts = config->own->plan->host_count;
  const struct pen_place *place =
      &config->control.membership->places[(place_of_ranks(config->own) + 1) % hosts];
  const uint64_t end_ns = pen_now_ns() + CONNECT_S * 1000000000ull;
  bool connected;
  do {
    connected =
        pen_control_connect(&config->control, place->host, place->address, (uint16_t)place->port,
                            pen_now_ns() + TRY_MS * 1000000ull, &mirror->next);
  } while (!connected && !is_aborted(mirror) && pen_now_ns() < end_ns);
  mirror->next.socket = connected ? mirror->next.socket : -1;
  return connected && pen_control_link_send_number(&mirror->next, MIRROR_WANT, config->wanted_step);
}

/* From the next host, which is lost if it says nothing for as long as a command may. */
static bool receive_wanted(struct pen_mirror *mirror) {
  const struct pen_mirror_config *config = &mirror->config;
  uint64_t step = 0;
  pen_control_link_limit(&mirror->next, config->control.silence_s);
  const bool received =
      config->wanted_step == 0 ||
      (receive_copies(&mirror->next, config->own, &step) && step == config->wanted_step);
  pen_control_link_limit(&mirror->next, 0);
  return received;
}

/* What the control connections say of the loss of a host comes about when this connection ends. */
static void await_abort(const struct pen_mirror *mirror) {
  const uint64_t end_ns = pen_now_ns() + (uint64_t)(mirror->config.control.silence_s * 1e9);
  while (!is_aborted(mirror) && pen_now_ns() < end_ns) {
    usleep(ABORT_POLL_US);
  }
}

struct pen_mirror *pen_mirror_open(const struct pen_mirror_config *config) {
  struct pen_mirror *mirror = pen_allocate(1, sizeof *mirror, "the connection to the next host");
  *mirror = (struct pen_mirror){.config = *config, .next.socket = -1, .before.socket = -1};
  atomic_store(&config->own->control->mirrored_step, 0);
  pen_check(pen_thread_start(&mirror->receiver, receive_thread, mirror),
            "cannot start the thread that receives copies of states");
  mirror->sends = connect_next(mirror) && receive_wanted(mirror);
  mirror->is_complete = mirror->sends || config->wanted_step == 0;
  if (mirror->sends) {
    atomic_store(&config->own->control->waits, 1);
  } else if (!mirror->is_complete) {
    await_abort(mirror);
  } else if (!is_aborted(mirror)) {
    pen_warn("the next host is not reached: the copies of --recover-every are on this host alone");
  }
  return mirror;
}

bool pen_mirror_is_complete(const struct pen_mirror *mirror) {
  return mirror == NULL || mirror->is_complete;
}

void pen_mirror_start(struct pen_mirror *mirror) {
  if (mirror != NULL && mirror->sends) {
    pen_check(pen_thread_start(&mirror->sender, send_thread, mirror),
              "cannot start the thread that sends copies of states");
    mirror->sending = true;
  }
}

static void close_links(struct pen_mirror *mirror) {
  pen_control_link_close(&mirror->next);
  pen_control_link_close(&mirror->before);
}

void pen_mirror_leave(struct pen_mirror *mirror) {
  if (mirror != NULL) {
    close_links(mirror);
  }
}

void pen_mirror_close(struct pen_mirror *mirror) {
  if (mirror == NULL) {
    return;
  }
  atomic_store(&mirror->ending, true);
  if (mirror->sending) {
    shutdown(mirror->next.socket, SHUT_RDWR);
    pen_futex_counter_increment(&mirror->config.own->control->written);
    pthread_join(mirror->sender, NULL);
  }
  if (atomic_load(&mirror->accepted)) {
    shutdown(mirror->before.socket, SHUT_RDWR);
  }
  pthread_join(mirror->receiver, NULL);
  close_links(mirror);
  free(mirror);
}
