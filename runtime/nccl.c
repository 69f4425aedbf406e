/* nccl.c: the link between ranks on any hosts, each with a GPU of its own, by NCCL's sends and receives.
 *
 * Every directed pair of ranks that talk has a communicator and, on either side, a stream of its own, so that a slow pair holds up no other.
 * All are made before the seal: the communicator of all ranks from an id that rank 0 makes, the pairs' by splitting it, round by round
 * (pairs.h); then warmed, so that no connection and no buffer is made later, and the arena is registered with each.
 *
 *     queue's stream      ... computes X | ready --+ ......................... reuse: waits for left | computes over X
 *     pair's, on sender                            +-> send X | left
 *     pair's, on receiver ... free --> receive into the home | came
 *     its queue's stream  ... RECV ................................ WAIT: waits for came | computes with it
 *
 * A receive is put there by its RECV row, so that nothing comes before the home is free: no credits. On a pair messages keep their order,
 * which is what NCCL matches them by. No plan has a deadlock where a send waits for its receive, with one lane a pair or one for all of a
 * rank's (verify_deadlock.c): so NCCL may buffer or not, and run what one GPU was given in turn.
 *
 * The board is summed over all ranks, each having its own entries and zeros elsewhere: x + 0 is x, to the bit. Where not all ranks gather, none
 * need wait for others at a step's end: homes are safe by the receives alone. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/check.h"
#include "runtime/link.h"
#include "runtime/nccl.h"
#include "runtime/pairs.h"

/* NCCL gives each connection a buffer of NCCL_BUFFSIZE bytes (NCCL User Guide, "Environment Variables"); what is larger waits for its
 * receive, so that both are tried. */
enum { BUFFER_BYTES = 4 << 20, BUFFER_BYTES_MOST = 1 << 30 };

struct nccl_link {
  struct pen_link link;
  const struct pen_nccl_calls *calls;
  void *all;      /* communicator */
  void **pairs;   /* [channels] communicators; null for others' */
  void **streams; /* [channels] likewise */
  void *ready;    /* event: the queue's stream, for what is to leave or to come */
  void **done;    /* [messages] events: sent, or come; null for others' messages */
  uint32_t rounds, asked; /* asked: which pair's trouble was looked for last */
};

enum { SENDER, RECEIVER }; /* ranks in a pair's communicator */

static struct nccl_link *nccl_of(struct pen_link *link) { return (struct nccl_link *)link; }

static const struct pen_message *message_of(const struct pen_link *link, uint32_t index) { return &link->profile->messages[index]; }

static bool is_mine(const struct pen_link *link, uint32_t channel) {
  return link->profile->channels[channel].from_rank == link->rank || link->profile->channels[channel].to_rank == link->rank;
}

static double *board_of(const struct pen_link *link) {
  return (double *)(link->queue->arena + link->plan->memory[link->rank].board_offset);
}

/* ---- before the seal ---- */

static void must_be_well(struct pen_link *link, const void *made, const char *what) {
  const char *why = nccl_of(link)->calls->error();
  why = why == NULL ? link->queue->device->error() : why;
  if (made == NULL || why != NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "rank %u, transport nccl: %s: %s", link->rank, what, why == NULL ? "none" : why);
  }
}

static void offer(struct pen_link *link) {
  if (link->rank == 0) {
    nccl_of(link)->calls->make_id(link->shared->control->nccl_id);
    must_be_well(link, link, "making an id for all ranks");
  }
}

static void split_pairs(struct pen_link *link) {
  struct nccl_link *own = nccl_of(link);
  uint32_t *round = calloc(link->profile->channel_count + 1u, sizeof *round);
  pen_check(round != NULL, "no memory for a link");
  own->rounds = pen_pairs_rounds(link->profile, link->plan->rank_count, round);
  for (uint32_t r = 0; r < own->rounds; r++) {
    uint32_t mine = PEN_NONE;
    for (uint32_t c = 0; c < link->profile->channel_count; c++) {
      mine = round[c] == r && is_mine(link, c) ? c : mine;
    }
    const bool sends = mine != PEN_NONE && link->profile->channels[mine].from_rank == link->rank;
    void *made = own->calls->split(own->all, mine == PEN_NONE ? -1 : (int)mine, sends ? SENDER : RECEIVER);
    must_be_well(link, mine == PEN_NONE ? link : made, "joining a pair of ranks");
    if (mine != PEN_NONE) {
      own->pairs[mine] = made;
    }
  }
  free(round);
}

static size_t buffer_bytes(void) {
  const char *text = getenv("NCCL_BUFFSIZE");
  const long long asked = text == NULL ? BUFFER_BYTES : atoll(text);
  return asked > 0 && asked <= BUFFER_BYTES_MOST ? (size_t)asked : BUFFER_BYTES;
}

/* One message smaller than the library's buffers and one larger over each pair; channel by channel, so that all ranks keep one order. */
static void warm(struct pen_link *link) {
  struct nccl_link *own = nccl_of(link);
  const struct pen_device *device = link->queue->device;
  const size_t small_bytes = (buffer_bytes() + 3) / 4, large_bytes = 2 * buffer_bytes() + 1;
  void *there = device->allocate(large_bytes);
  must_be_well(link, there, "memory to try its pairs with");
  for (uint32_t c = 0; c < link->profile->channel_count; c++) {
    for (int large = 0; large < 2 && is_mine(link, c); large++) {
      const size_t bytes = large ? large_bytes : small_bytes;
      if (link->profile->channels[c].from_rank == link->rank) {
        own->calls->send(own->pairs[c], there, bytes, RECEIVER, own->streams[c]);
      } else {
        own->calls->receive(own->pairs[c], there, bytes, SENDER, own->streams[c]);
      }
      device->wait(own->streams[c]);
      must_be_well(link, link, "trying a pair of ranks");
    }
  }
  own->calls->sum(own->all, board_of(link), link->plan->weight_count, link->queue->stream);
  device->wait(link->queue->stream);
  must_be_well(link, link, "trying a sum over all ranks");
  device->release(there);
}

static void connect(struct pen_link *link) {
  struct nccl_link *own = nccl_of(link);
  own->all = own->calls->open(link->shared->control->nccl_id, (int)link->plan->rank_count, (int)link->rank);
  must_be_well(link, own->all, "joining all ranks");
  split_pairs(link);
  warm(link);
  own->calls->enroll(own->all, link->queue->arena, link->queue->memory->arena_bytes);
  for (uint32_t c = 0; c < link->profile->channel_count; c++) {
    if (is_mine(link, c)) {
      own->calls->enroll(own->pairs[c], link->queue->arena, link->queue->memory->arena_bytes);
    }
  }
  must_be_well(link, link, "registering the arena");
  const int version = own->calls->version();
  if (link->rank == 0 && link->announces) {
    fprintf(stderr, "%s: NCCL %d.%d.%d, %u pairs of ranks made in %u rounds; %.1f MiB of rank 0's GPU are its own\n", link->plan->name,
            version / 10000, version / 100 % 100, version % 100, link->profile->channel_count, own->rounds,
            (double)own->calls->memory_bytes() / (1 << 20));
  }
}

/* ---- rows ---- */

/* What comes on a pair's stream is behind what is on the queue's. */
static void *follow_queue(struct pen_link *link, uint32_t message) {
  void *stream = nccl_of(link)->streams[message_of(link, message)->channel];
  link->queue->order->record(nccl_of(link)->ready, link->queue->stream);
  link->queue->order->follow(stream, nccl_of(link)->ready);
  return stream;
}

static void send(struct pen_link *link, uint32_t index) {
  struct nccl_link *own = nccl_of(link);
  const struct pen_message *message = message_of(link, index);
  void *stream = follow_queue(link, index);
  own->calls->send(own->pairs[message->channel], link->queue->arena + message->source_offset, message->bytes, RECEIVER, stream);
  link->queue->order->record(own->done[index], stream);
}

static void reuse(struct pen_link *link, uint32_t index) { link->queue->order->follow(link->queue->stream, nccl_of(link)->done[index]); }

static void credit(struct pen_link *link, uint32_t index, uint32_t row) {
  struct nccl_link *own = nccl_of(link);
  const struct pen_message *message = message_of(link, index);
  void *stream = follow_queue(link, index);
  for (uint32_t i = link->reuse.first[row]; i < link->reuse.first[row + 1]; i++) {
    link->queue->order->follow(stream, own->done[link->reuse.message[i]]);
  }
  own->calls->receive(own->pairs[message->channel], link->queue->arena + message->target_offset, message->bytes, SENDER, stream);
  link->queue->order->record(own->done[index], stream);
}

static void wait(struct pen_link *link, uint32_t index) { link->queue->order->follow(link->queue->stream, nccl_of(link)->done[index]); }

/* Others' entries are what the last sum left there. */
static void publish(struct pen_link *link) {
  for (uint32_t first, past = 0; link->all_gather && pen_link_entries(link, false, &first, &past);) {
    link->queue->device->zero(board_of(link) + first, (past - first) * sizeof(double), link->queue->stream);
  }
}

static void gather(struct pen_link *link) {
  if (link->all_gather) {
    nccl_of(link)->calls->sum(nccl_of(link)->all, board_of(link), link->plan->weight_count, link->queue->stream);
  }
}

static void end(struct pen_link *link) {
  for (uint32_t c = 0; c < link->profile->channel_count; c++) {
    if (is_mine(link, c) && link->profile->channels[c].message_count > 0) {
      link->queue->order->record(nccl_of(link)->ready, nccl_of(link)->streams[c]);
      link->queue->order->follow(link->queue->stream, nccl_of(link)->ready);
    }
  }
}

/* ---- faults ---- */

/* One communicator a look: the host looks thousands of times a second. */
static const char *error(struct pen_link *link, uint32_t *peer) {
  struct nccl_link *own = nccl_of(link);
  const char *why = own->calls->error();
  *peer = link->rank;
  if (why != NULL) {
    return why;
  }
  own->asked = (own->asked + 1) % (link->profile->channel_count + 1);
  if (own->asked == link->profile->channel_count) {
    return own->calls->trouble(own->all);
  }
  if (own->pairs[own->asked] == NULL) {
    return NULL;
  }
  const struct pen_channel *channel = &link->profile->channels[own->asked];
  *peer = channel->from_rank == link->rank ? channel->to_rank : channel->from_rank;
  return own->calls->trouble(own->pairs[own->asked]);
}

static void abort_all(struct pen_link *link) {
  struct nccl_link *own = nccl_of(link);
  for (uint32_t c = 0; c < link->profile->channel_count; c++) {
    if (own->pairs[c] != NULL) {
      own->calls->abort(own->pairs[c]);
    }
  }
  if (own->all != NULL) {
    own->calls->abort(own->all);
  }
}

static const struct pen_link_kind nccl = {
    .name = "nccl",
    .offer = offer,
    .connect = connect,
    .send = send,
    .reuse = reuse,
    .credit = credit,
    .wait = wait,
    .publish = publish,
    .gather = gather,
    .end = end,
    .error = error,
    .abort = abort_all,
};

struct pen_link *pen_nccl_open_with(const struct pen_nccl_calls *calls, struct pen_queue *queue, const struct pen_profile *profile,
                                    const struct pen_shared *shared, uint32_t rank) {
  const uint32_t channels = profile->channel_count;
  struct nccl_link *made = calloc(1, sizeof *made);
  pen_check(made != NULL, "no memory for a link");
  pen_link_fill(&made->link, queue, profile, shared, rank);
  made->link.kind = &nccl;
  made->calls = calls;
  made->ready = queue->order->event_open();
  made->pairs = calloc(channels + 1u, sizeof *made->pairs);
  made->streams = calloc(channels + 1u, sizeof *made->streams);
  made->done = calloc(profile->message_count + 1u, sizeof *made->done);
  pen_check(made->pairs != NULL && made->streams != NULL && made->done != NULL, "no memory for a link");
  for (uint32_t c = 0; c < channels; c++) {
    made->streams[c] = is_mine(&made->link, c) ? queue->device->stream_open() : NULL;
  }
  for (uint32_t m = 0; m < profile->message_count; m++) {
    made->done[m] = is_mine(&made->link, profile->messages[m].channel) ? queue->order->event_open() : NULL;
  }
  must_be_well(&made->link, made->ready, "streams and events");
  return &made->link;
}

/* A binary whose plan does not want NCCL has no trace of it: the name stays null unless the link asks for it (Makefile.am, NCCL_LINK). */
extern const struct pen_nccl_calls pen_nccl __attribute__((weak));

struct pen_link *pen_nccl_open(struct pen_queue *queue, const struct pen_profile *profile, const struct pen_shared *shared, uint32_t rank) {
  return &pen_nccl == NULL ? NULL : pen_nccl_open_with(&pen_nccl, queue, profile, shared, rank);
}
