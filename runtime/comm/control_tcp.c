/* wire.c: one control memory on several hosts (see wire.h). */
#define _GNU_SOURCE
#include "runtime/comm/control_tcp.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/comm/failure_text.h"
#include "runtime/storage/checkpoint_tensors.h"
#include "runtime/comm/step_stats.h"

enum { LOOK_US = 200, RETRY_US = 50000, GOODBYE_S = 5 };

enum frame_kind { HELLO, STATE, BOARD, CHECKSUMS, WORDS, ASK, GOODBYE, FRAME_KINDS };

struct frame {
  uint32_t kind, rank; /* rank: whose, in STATE, BOARD, CHECKSUMS; the first in HELLO */
  uint64_t number;     /* BOARD: the step; HELLO: how many ranks */
  uint64_t bytes;      /* behind the frame */
};

/* What a rank tells of itself. Compared byte by byte, as words and asks are: no byte may go without
 * a name. */
struct state {
  uint64_t finished, step_began, connecting;
  uint32_t profile, waits_for, phase, published, arrived;
  uint32_t writer_arrived; /* of the thread that writes its snapshots */
  uint32_t drawn[PEN_DRAWN];
  int32_t process;
  uint32_t unused; /* so that `start` is aligned */
  char host[PEN_HOST_BYTES];
  uint8_t digest[PEN_DIGEST_BYTES];
  struct pen_start start;
};
_Static_assert(sizeof(struct pen_start) ==
                   (1 + PEN_FINGERPRINT_MAX) * sizeof(uint64_t) + PEN_DIGEST_BYTES,
               "no padding");
_Static_assert(sizeof(struct state) == 3 * sizeof(uint64_t) + (8 + PEN_DRAWN) * sizeof(uint32_t) +
                                           PEN_HOST_BYTES + PEN_DIGEST_BYTES +
                                           sizeof(struct pen_start),
               "no padding");

/* What rank 0 writes. */
struct words {
  uint64_t last_step, last_evaluation_step, saved_step;
  uint32_t saving, decided, begun, logged;
  unsigned char nccl_id[sizeof((struct pen_control *)0)->nccl_id];
};
_Static_assert(sizeof(struct words) ==
                   3 * sizeof(uint64_t) + 4 * sizeof(uint32_t) + sizeof((struct words *)0)->nccl_id,
               "no padding");

/* What anybody may set, and nobody but rank 0, when it begins to save, sets back. */
struct ask {
  uint32_t abort_status, stop_requested, save_status;
};

/* The command on another host. */
struct peer {
  int socket;
  struct pen_local_ranks ranks;
  bool gone; /* it has said goodbye, and all that it has to say; it still listens until we have, too
              */
};

struct pen_control_tcp {
  const struct pen_plan *plan;
  const struct pen_shared *shared;
  struct pen_local_ranks here;
  struct peer *peers; /* on the first host: all others; elsewhere: the first */
  uint32_t peer_count;
  struct state *told; /* [here.count]: as it was sent last */
  struct words words;
  struct ask asked;
  unsigned char *buffer; /* of a frame's bytes */
  size_t buffer_bytes, checksum_bytes;
  pthread_t thread;
  atomic_int ending;
};

static bool is_first(const struct pen_control_tcp *wire) { return wire->here.first == 0; }

/* ---- bytes ---- */

static bool put(int socket, const void *from, size_t bytes) {
  const char *at = from;
  for (ssize_t sent; bytes > 0; at += sent, bytes -= (size_t)sent) {
    sent = send(socket, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) {
      return false;
    }
  }
  return true;
}

static bool get(int socket, void *to, size_t bytes) {
  return bytes == 0 || recv(socket, to, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

/* To all others but one (PEN_NONE: to all). A connection that is broken shows when it is read. */
static void tell(struct pen_control_tcp *wire, const struct frame *frame, const void *bytes,
                 uint32_t but) {
  for (uint32_t p = 0; p < wire->peer_count; p++) {
    if (p != but && put(wire->peers[p].socket, frame, sizeof *frame)) {
      put(wire->peers[p].socket, bytes, frame->bytes);
    }
  }
}

/* ---- what the ranks here wrote ---- */

static struct state state_of(const struct pen_shared *shared, uint32_t global) {
  const struct pen_rank_state *rank = &shared->ranks[global];
  struct state state = {.published = atomic_load(&rank->published.count),
                        .arrived = atomic_load(&rank->arrived.count)};
  state.writer_arrived = atomic_load(&shared->writers[global].arrived.count);
  state.finished = atomic_load(&rank->finished);
  state.step_began = atomic_load(&rank->step_began);
  state.profile = atomic_load(&rank->profile);
  state.waits_for = atomic_load(&rank->waits_for);
  state.phase = atomic_load(&rank->phase);
  state.connecting = atomic_load(&rank->connecting);
  for (int i = 0; i < PEN_DRAWN; i++) {
    state.drawn[i] = atomic_load(&rank->drawn[i]);
  }
  state.process = rank->process;
  memcpy(state.host, rank->host, sizeof state.host);
  memcpy(state.digest, rank->digest, sizeof state.digest);
  state.start = rank->start;
  return state;
}

static struct words words_of(const struct pen_control *control) {
  struct words words = {.decided = atomic_load(&control->decided.count),
                        .begun = atomic_load(&control->begun.count),
                        .logged = atomic_load(&control->logged.count)};
  words.last_step = atomic_load(&control->last_step);
  words.last_evaluation_step = atomic_load(&control->last_evaluation_step);
  words.saved_step = atomic_load(&control->saved_step);
  words.saving = atomic_load(&control->saving);
  memcpy(words.nccl_id, control->nccl_id, sizeof words.nccl_id);
  return words;
}

static struct ask ask_of(const struct pen_control *control) {
  return (struct ask){atomic_load(&control->abort_status), atomic_load(&control->stop_requested),
                      atomic_load(&control->save_status)};
}

static size_t board_bytes(const struct pen_control_tcp *wire) {
  return wire->shared->board_count * sizeof(double);
}

static double *board_of(const struct pen_control_tcp *wire, uint64_t step) {
  return wire->shared->board + step % PEN_STEP_STATS_DEPTH * wire->shared->board_count;
}

/* Flags were read before the data that they guard, and are sent behind them. */
static void send_changes(struct pen_control_tcp *wire) {
  const struct pen_control *control = wire->shared->control;
  for (uint32_t i = 0; i < wire->here.count; i++) {
    const uint32_t rank = wire->here.first + i;
    const struct state now = state_of(wire->shared, rank);
    struct state *before = &wire->told[i];
    if (memcmp(&now, before, sizeof now) == 0) {
      continue;
    }
    const struct words words = words_of(control);
    if (rank == 0 && memcmp(&words, &wire->words, sizeof words) != 0) {
      tell(wire, &(struct frame){.kind = WORDS, .bytes = sizeof words}, &words, PEN_NONE);
      wire->words = words;
    }
    for (uint32_t step = before->published; step != now.published; step++) {
      tell(wire,
           &(struct frame){.kind = BOARD, .rank = rank, .number = step, .bytes = board_bytes(wire)},
           board_of(wire, step), PEN_NONE);
    }
    if (now.arrived != before->arrived || now.writer_arrived != before->writer_arrived) {
      tell(wire, &(struct frame){.kind = CHECKSUMS, .rank = rank, .bytes = wire->checksum_bytes},
           wire->shared->checksums, PEN_NONE);
    }
    tell(wire, &(struct frame){.kind = STATE, .rank = rank, .bytes = sizeof now}, &now, PEN_NONE);
    *before = now;
  }
  const struct words words = words_of(control);
  if (is_first(wire) && memcmp(&words, &wire->words, sizeof words) != 0) {
    tell(wire, &(struct frame){.kind = WORDS, .bytes = sizeof words}, &words, PEN_NONE);
    wire->words = words;
  }
  const struct ask ask = ask_of(control);
  if (memcmp(&ask, &wire->asked, sizeof ask) != 0) {
    tell(wire, &(struct frame){.kind = ASK, .bytes = sizeof ask}, &ask, PEN_NONE);
    wire->asked = ask;
  }
}

/* ---- what others wrote ---- */

static void set_flag(struct pen_flag *flag, uint32_t count) {
  if (atomic_load(&flag->count) != count) {
    atomic_store(&flag->count, count);
    pen_flag_wake(flag);
  }
}

static void take_state(struct pen_control_tcp *wire, const struct frame *frame) {
  struct pen_rank_state *rank = &wire->shared->ranks[frame->rank];
  struct state state;
  memcpy(&state, wire->buffer, sizeof state);
  rank->process = state.process;
  memcpy(rank->host, state.host, sizeof rank->host);
  memcpy(rank->digest, state.digest, sizeof rank->digest);
  rank->start = state.start;
  atomic_store(&rank->step_began, state.step_began);
  atomic_store(&rank->profile, state.profile);
  atomic_store(&rank->finished, state.finished);
  atomic_store(&rank->waits_for, state.waits_for);
  atomic_store(&rank->connecting, state.connecting);
  atomic_store(&rank->phase, state.phase);
  for (int i = 0; i < PEN_DRAWN; i++) {
    atomic_store(&rank->drawn[i], state.drawn[i]);
  }
  set_flag(&rank->published, state.published);
  set_flag(&rank->arrived, state.arrived);
  set_flag(&wire->shared->writers[frame->rank].arrived, state.writer_arrived);
}

/* Of a board, the entries that are that rank's. */
static void take_board(struct pen_control_tcp *wire, const struct frame *frame) {
  const struct pen_plan *plan = wire->plan;
  const uint32_t rank = frame->rank % plan->rank_count;
  const size_t first = pen_step_stats_first(plan, frame->rank / plan->rank_count);
  const double *from = (const double *)(void *)wire->buffer;
  double *to = board_of(wire, frame->number);
  for (uint32_t w = 0; w < plan->weight_count; w++) {
    to[first + w] = plan->weights[w].rank == rank ? from[first + w] : to[first + w];
  }
  if (pen_last_stage_rank(plan, &plan->profiles[0]) == rank) {
    memcpy(&to[first + plan->weight_count], &from[first + plan->weight_count],
           plan->loss_count * sizeof *to);
  }
}

/* Of checksums, those that the rank leaves: what stands in its table for another replica's turn may
 * be old. */
static void take_checksums(struct pen_control_tcp *wire, const struct frame *frame) {
  const struct pen_plan *plan = wire->plan;
  const uint32_t rank = frame->rank % plan->rank_count, replica = frame->rank / plan->rank_count;
  for (uint32_t i = 0; i < PEN_CHECKPOINT_TENSORS * plan->weight_count; i++) {
    if (plan->weights[i / PEN_CHECKPOINT_TENSORS].rank == rank &&
        pen_is_writer(plan, i / PEN_CHECKPOINT_TENSORS, replica)) {
      memcpy(wire->shared->checksums + (size_t)i * PEN_CHECKSUM_BYTES,
             wire->buffer + (size_t)i * PEN_CHECKSUM_BYTES, PEN_CHECKSUM_BYTES);
    }
  }
}

static void take_words(struct pen_control_tcp *wire, const struct frame *frame) {
  (void)frame;
  struct pen_control *control = wire->shared->control;
  struct words words;
  memcpy(&words, wire->buffer, sizeof words);
  if (words.saving != 0 && atomic_load(&control->saving) == 0) {
    atomic_store(&control->save_status, 0);
    wire->asked.save_status = 0;
  }
  memcpy(control->nccl_id, words.nccl_id, sizeof words.nccl_id);
  atomic_store(&control->saved_step, words.saved_step);
  atomic_store(&control->saving, words.saving);
  atomic_store(&control->last_step, words.last_step);
  atomic_store(&control->last_evaluation_step, words.last_evaluation_step);
  set_flag(&control->decided, words.decided);
  set_flag(&control->begun, words.begun);
  set_flag(&control->logged, words.logged);
}

static void set_once(_Atomic uint32_t *word, uint32_t value) {
  uint32_t none = 0;
  if (value != 0) {
    atomic_compare_exchange_strong(word, &none, value);
  }
}

static void take_ask(struct pen_control_tcp *wire, const struct frame *frame) {
  (void)frame;
  struct pen_control *control = wire->shared->control;
  struct ask ask;
  memcpy(&ask, wire->buffer, sizeof ask);
  set_once(&control->stop_requested, ask.stop_requested);
  set_once(&control->save_status, ask.save_status);
  if (ask.abort_status != 0) {
    pen_shared_abort(wire->shared, ask.abort_status);
  }
}

static void (*const take[FRAME_KINDS])(struct pen_control_tcp *wire, const struct frame *frame) = {
    [STATE] = take_state, [BOARD] = take_board, [CHECKSUMS] = take_checksums,
    [WORDS] = take_words, [ASK] = take_ask,
};

static size_t bytes_of(const struct pen_control_tcp *wire, const struct frame *frame) {
  const size_t bytes[FRAME_KINDS] = {[STATE] = sizeof(struct state),
                                     [BOARD] = board_bytes(wire),
                                     [CHECKSUMS] = wire->checksum_bytes,
                                     [WORDS] = sizeof(struct words),
                                     [ASK] = sizeof(struct ask)};
  return frame->kind < FRAME_KINDS ? bytes[frame->kind] : SIZE_MAX;
}

/* ---- connections ---- */

/* A host that is gone without a word: its ranks are lost. */
static void lose(struct pen_control_tcp *wire, struct peer *peer) {
  char line[PEN_FAILURE_LINE_BYTES];
  uint32_t lost = peer->ranks.first, waiter = PEN_NONE;
  for (uint32_t i = 0; i < peer->ranks.count; i++) {
    atomic_store(&wire->shared->ranks[lost + i].waits_for,
                 0); /* whoever is gone waits for nobody */
  }
  for (uint32_t i = 0; i < peer->ranks.count && waiter == PEN_NONE; i++) {
    waiter = pen_failure_waiter(wire->plan, wire->shared, peer->ranks.first + i);
    lost += waiter == PEN_NONE ? 0 : i;
  }
  peer->gone = true;
  pen_failure_line(line, sizeof line, wire->plan, wire->shared, lost,
                   "its host's connection closed", waiter);
  if (pen_shared_abort(wire->shared, PEN_EXIT_LOST)) {
    fprintf(stderr, "%s\n", line);
  }
}

/* One frame of another host's; the first host passes it on. */
static void hear(struct pen_control_tcp *wire, uint32_t index) {
  struct peer *peer = &wire->peers[index];
  struct frame frame;
  if (!get(peer->socket, &frame, sizeof frame) || frame.kind == HELLO ||
      frame.bytes != bytes_of(wire, &frame) || frame.rank >= wire->shared->process_count ||
      !get(peer->socket, wire->buffer, frame.bytes)) {
    lose(wire, peer);
  } else if (frame.kind == GOODBYE) {
    peer->gone = true;
  } else {
    take[frame.kind](wire, &frame);
    tell(wire, &frame, wire->buffer, index);
  }
}

static uint32_t listen_all(struct pen_control_tcp *wire, int timeout_us) {
  struct pollfd *polled = (struct pollfd *)(void *)(wire->buffer + wire->buffer_bytes);
  uint32_t left = 0;
  for (uint32_t p = 0; p < wire->peer_count; p++) {
    polled[p] =
        (struct pollfd){.fd = wire->peers[p].gone ? -1 : wire->peers[p].socket, .events = POLLIN};
    left += !wire->peers[p].gone;
  }
  const struct timespec wait = {.tv_nsec = 1000L * timeout_us};
  ppoll(polled, wire->peer_count, &wait, NULL);
  for (uint32_t p = 0; p < wire->peer_count; p++) {
    if (polled[p].fd >= 0 && polled[p].revents != 0) {
      hear(wire, p);
    }
  }
  return left;
}

static void *run(void *argument) {
  struct pen_control_tcp *wire = argument;
  while (atomic_load(&wire->ending) == 0) {
    listen_all(wire, LOOK_US);
    send_changes(wire);
  }
  send_changes(wire);
  tell(wire, &(struct frame){.kind = GOODBYE}, NULL, PEN_NONE);
  const uint64_t end_ns = pen_now_ns() + GOODBYE_S * 1000000000ull;
  while (listen_all(wire, LOOK_US) > 0 && pen_now_ns() < end_ns) {
    send_changes(wire);
  }
  return NULL;
}

/* ---- meeting ---- */

static void tune(int socket) {
  const int yes = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

static bool overlap(struct pen_local_ranks a, struct pen_local_ranks b) {
  return a.first < b.first + b.count && b.first < a.first + a.count;
}

/* Each rank has one command. */
static void check_alone(const struct pen_control_tcp *wire, struct pen_local_ranks ranks) {
  bool twice = overlap(wire->here, ranks);
  for (uint32_t p = 0; p < wire->peer_count; p++) {
    twice = twice || overlap(wire->peers[p].ranks, ranks);
  }
  if (twice) {
    pen_fail(PEN_EXIT_USAGE, "rank %u is started by two commands", ranks.first);
  }
}

/* Waits for every other command, at the plan's port. */
static void meet_all(struct pen_control_tcp *wire, uint64_t end_ns) {
  const int yes = 1, server = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const struct sockaddr_in6 any = {
      .sin6_family = AF_INET6, .sin6_port = htons(wire->plan->port), .sin6_addr = IN6ADDR_ANY_INIT};
  uint32_t here = wire->here.count;
  pen_check(server >= 0 && setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                bind(server, (const struct sockaddr *)&any, sizeof any) == 0 &&
                listen(server, SOMAXCONN) == 0,
            "cannot listen at cluster.port %u for the other hosts", wire->plan->port);
  while (here < wire->shared->process_count) {
    struct pollfd polled = {.fd = server, .events = POLLIN};
    struct frame hello;
    if (pen_now_ns() > end_ns) {
      pen_fail(PEN_EXIT_LOST, "%u of %u ranks came to port %u of this host in time", here,
               wire->shared->process_count, wire->plan->port);
    }
    const int socket =
        poll(&polled, 1, RETRY_US / 1000) > 0 ? accept4(server, NULL, NULL, SOCK_CLOEXEC) : -1;
    if (socket >= 0 && get(socket, &hello, sizeof hello) && hello.kind == HELLO &&
        hello.rank < wire->shared->process_count &&
        hello.number <= wire->shared->process_count - hello.rank) {
      tune(socket);
      check_alone(wire, (struct pen_local_ranks){hello.rank, (uint32_t)hello.number});
      wire->peers[wire->peer_count++] =
          (struct peer){socket, {hello.rank, (uint32_t)hello.number}, false};
      here += (uint32_t)hello.number;
    } else if (socket >= 0) {
      close(socket);
    }
  }
  close(server);
}

static int reach(const char *host, const char *port) {
  const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM};
  struct addrinfo *found = NULL;
  int made = -1;
  if (getaddrinfo(host, port, &wanted, &found) != 0) {
    return -1;
  }
  for (const struct addrinfo *a = found; a != NULL && made < 0; a = a->ai_next) {
    made = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (made >= 0 && connect(made, a->ai_addr, a->ai_addrlen) != 0) {
      close(made);
      made = -1;
    }
  }
  freeaddrinfo(found);
  return made;
}

static void meet_first(struct pen_control_tcp *wire, uint64_t end_ns) {
  char port[8];
  int socket = -1;
  snprintf(port, sizeof port, "%u", wire->plan->port);
  while ((socket = reach(wire->plan->hosts[0], port)) < 0) {
    if (pen_now_ns() > end_ns) {
      pen_fail(PEN_EXIT_LOST,
               "rank %u cannot reach the first host, %s, at port %s (cluster.hosts, cluster.port)",
               wire->here.first, wire->plan->hosts[0], port);
    }
    usleep(RETRY_US);
  }
  const struct frame hello = {.kind = HELLO, .rank = wire->here.first, .number = wire->here.count};
  tune(socket);
  wire->peers[wire->peer_count++] = (struct peer){socket, {0, wire->plan->ranks_per_host}, false};
  pen_check(put(socket, &hello, sizeof hello), "cannot write to the first host, %s",
            wire->plan->hosts[0]);
}

struct pen_control_tcp *pen_control_tcp_open(const struct pen_plan *plan,
                                             const struct pen_shared *shared,
                                             struct pen_local_ranks here, double patience_s) {
  const uint64_t end_ns = pen_now_ns() + (uint64_t)(patience_s * 1e9);
  if (here.count == shared->process_count) {
    return NULL;
  }
  struct pen_control_tcp *wire = calloc(1, sizeof *wire);
  pen_check(wire != NULL, "no memory for a wire");
  *wire = (struct pen_control_tcp){
      .plan = plan,
      .shared = shared,
      .here = here,
      .checksum_bytes = 3 * (size_t)plan->weight_count * PEN_CHECKSUM_BYTES};
  const size_t sizes[] = {board_bytes(wire), wire->checksum_bytes, sizeof(struct state),
                          sizeof(struct words)};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    wire->buffer_bytes = sizes[i] > wire->buffer_bytes ? sizes[i] : wire->buffer_bytes;
  }
  wire->buffer_bytes = (wire->buffer_bytes + 15) / 16 * 16;
  wire->peers = calloc(shared->process_count, sizeof *wire->peers);
  wire->told = calloc(here.count, sizeof *wire->told);
  wire->buffer = calloc(1, wire->buffer_bytes + shared->process_count * sizeof(struct pollfd));
  pen_check(wire->peers != NULL && wire->told != NULL && wire->buffer != NULL,
            "no memory for a wire");
  wire->words = words_of(shared->control);
  (is_first(wire) ? meet_all : meet_first)(wire, end_ns);
  return wire;
}

void pen_control_tcp_leave(struct pen_control_tcp *wire) {
  for (uint32_t p = 0; wire != NULL && p < wire->peer_count; p++) {
    close(wire->peers[p].socket);
  }
}

void pen_control_tcp_start(struct pen_control_tcp *wire) {
  pen_check(wire == NULL || pthread_create(&wire->thread, NULL, run, wire) == 0,
            "cannot start the thread that speaks with other hosts");
}

void pen_control_tcp_close(struct pen_control_tcp *wire) {
  if (wire != NULL) {
    atomic_store(&wire->ending, 1);
    pthread_join(wire->thread, NULL);
    pen_control_tcp_leave(wire);
    free(wire->peers);
    free(wire->told);
    free(wire->buffer);
    free(wire);
  }
}
