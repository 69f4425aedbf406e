/* nccl_join.c: what the link nccl.c needs before the seal: communicators, windows, and a first use
 * of each, so that nothing is made later; and the line that says what was found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/base/check.h"
#include "runtime/comm/failure_text.h"
#include "runtime/device/nccl_internal.h"
#include "runtime/device/nccl_rounds.h"

/* NCCL gives each connection a buffer of NCCL_BUFFSIZE bytes (NCCL User Guide, "Environment
 * Variables"); what is larger waits for its receive, so that both are tried. */
enum { BUFFER_BYTES = 4 << 20, BUFFER_BYTES_MOST = 1 << 30 };

/* A receive stands on its processors of the GPU from its RECV row until its message has come,
 * beside what computes: of 132 (H100) a rank with neighbours on both sides has at most 16 in use
 * so. NCCL_MAX_CTAS, of the environment, goes before. */
enum { PAIR_BLOCKS = 4 };

/* ---- what there is ---- */

const char *pen_nccl_no_puts(const struct pen_nccl_calls *calls) {
  const char *asked = getenv("PEN_NCCL");
  const bool sends = asked != NULL && strcmp(asked, "send") == 0;
  if (asked != NULL && !sends && strcmp(asked, "put") != 0) {
    pen_fail(PEN_EXIT_USAGE, "PEN_NCCL = %s: \"put\", where NCCL has it, or \"send\"", asked);
  }
  return sends                                 ? "PEN_NCCL asks for it"
         : calls->put == NULL                  ? "built with an NCCL before 2.29"
         : calls->version() < PEN_PUTS_VERSION ? "NCCL puts from 2.29 on"
                                               : NULL;
}

/* Before 2.32 windows onto the arenas of two ranks must be of one size, and a window is of the
 * whole block. */
size_t pen_nccl_arena_bytes(const struct pen_nccl_calls *calls, const struct pen_plan *plan,
                            uint32_t rank) {
  const bool alike = pen_nccl_no_puts(calls) == NULL && calls->version() < PEN_SIZES_VERSION;
  size_t bytes = plan->memory[rank].arena_bytes;
  for (uint32_t r = 0; r < plan->rank_count && alike; r++) {
    bytes = plan->memory[r].arena_bytes > bytes ? plan->memory[r].arena_bytes : bytes;
  }
  return bytes;
}

/* ---- before the seal ---- */

/* For the watch, should it stand still, and for the line where it fails. */
static void begin(struct pen_link *link, enum pen_bootstrap_stage what, uint32_t turn,
                  uint32_t channel) {
  struct pen_rank_state *self = &link->shared->ranks[pen_link_self(link)];
  atomic_store_explicit(&self->profile, (uint32_t)(link->profile - link->plan->profiles),
                        memory_order_relaxed);
  atomic_store_explicit(&self->bootstrap_stage, pen_bootstrap_stage_set(what, turn, channel),
                        memory_order_relaxed);
}

void pen_nccl_must_be_well(struct pen_link *link, const void *made, const char *what) {
  const char *why = pen_nccl_of(link)->calls->error();
  why = why == NULL ? link->queue->device->error() : why;
  if (made == NULL || why != NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "rank %u, transport nccl: %s: %s", pen_link_self(link), what,
             why == NULL ? "none" : why);
  }
}

/* The same, of what was begun last. */
static void must_have_gone_well(struct pen_link *link, const void *made) {
  char what[PEN_BOOTSTRAP_TEXT_BYTES];
  pen_nccl_must_be_well(
      link, made,
      pen_failure_bootstrap_text(what, sizeof what, link->plan, link->shared, pen_link_self(link)));
}

static void open_streams(struct pen_link *link) {
  for (uint32_t c = 0; c < link->profile->channel_count; c++) {
    if (pen_is_mine(link, c)) {
      pen_nccl_of(link)->pairs[c].stream = link->queue->device->stream_create();
      pen_nccl_must_be_well(link, pen_nccl_of(link)->pairs[c].stream, "a stream");
    }
  }
}

/* Of the two ranks of a pair that is this rank's. */
static bool is_sender(const struct pen_link *link, uint32_t channel) {
  return link->profile->channels[channel].from_rank == link->rank;
}

static void split_pairs(struct pen_link *link) {
  struct pen_nccl_link *own = pen_nccl_of(link);
  uint32_t *round = calloc(link->profile->channel_count + 1u, sizeof *round);
  pen_check(round != NULL, "no memory for a link");
  own->rounds = pen_nccl_rounds(link->profile, link->plan->rank_count, round);
  for (uint32_t r = 0; r < own->rounds; r++) {
    uint32_t mine = PEN_NONE;
    for (uint32_t c = 0; c < link->profile->channel_count; c++) {
      mine = round[c] == r && pen_is_mine(link, c) ? c : mine;
    }
    const bool sends = mine != PEN_NONE && is_sender(link, mine);
    const int colour = (int)(link->replica * link->profile->channel_count + mine);
    begin(link, PEN_CONNECT_PAIR, r, mine);
    void *made = own->calls->split(own->all, mine == PEN_NONE ? -1 : colour,
                                   sends ? PEN_SENDER : PEN_RECEIVER, PAIR_BLOCKS);
    must_have_gone_well(link, mine == PEN_NONE ? link : made);
    if (mine != PEN_NONE) {
      own->pairs[mine].communicator = made;
    }
  }
  free(round);
}

static void split_peers(struct pen_link *link) {
  struct pen_nccl_link *own = pen_nccl_of(link);
  if (link->plan->replica_count > 1) {
    begin(link, PEN_CONNECT_PEERS, 0, PEN_NONE);
    own->peers = own->calls->split(own->all, (int)link->rank, (int)link->replica, 0);
    must_have_gone_well(link, own->peers);
  }
}

void pen_nccl_add_up(struct pen_link *link, double *numbers, size_t count) {
  pen_nccl_of(link)->calls->total(pen_nccl_of(link)->all, numbers, count, link->queue->stream);
  must_have_gone_well(link, link);
}

/* Whether this rank can signal the pair's other one, which takes the signal in try_puts(). */
static bool signals(struct pen_link *link, uint32_t channel) {
  const struct pen_nccl_link *own = pen_nccl_of(link);
  const struct pen_pair *pair = &own->pairs[channel];
  own->calls->signal(pair->communicator, is_sender(link, channel) ? PEN_RECEIVER : PEN_SENDER,
                     pair->stream);
  link->queue->device->stream_synchronize(pair->stream);
  return own->calls->forget() == NULL;
}

/* Opens a window for each pair, pair by pair in one order, if all ranks' NCCL can; a pair puts
 * where both its ranks have got theirs and can signal. */
static void open_windows(struct pen_link *link) {
  struct pen_nccl_link *own = pen_nccl_of(link);
  const uint32_t channels = link->profile->channel_count, first = link->replica * channels,
                 all = link->plan->replica_count * channels;
  const size_t bytes = pen_nccl_arena_bytes(own->calls, link->plan, link->rank);
  const bool puts = own->no_puts == NULL;
  double able = puts, *opened = calloc(all + 1u, sizeof *opened); /* [replica][channels] */
  pen_check(opened != NULL, "no memory for a link");
  begin(link, PEN_CONNECT_PUTS, 0, PEN_NONE);
  pen_nccl_add_up(link, &able, 1);
  const bool all_able = able >= pen_process_count(link->plan);
  if (puts) {
    own->no_puts =
        all_able ? "NCCL has no window for these ranks, or no signals" : "not all ranks' NCCL puts";
  }
  for (uint32_t c = 0; c < channels && all_able; c++) {
    if (pen_is_mine(link, c)) {
      begin(link, PEN_CONNECT_WINDOW, 0, c);
      own->pairs[c].window =
          own->calls->window(own->pairs[c].communicator, link->queue->arena, bytes);
      must_have_gone_well(link, link);
    }
    opened[first + c] = own->pairs[c].window != NULL && signals(link, c);
  }
  begin(link, PEN_CONNECT_WINDOWS, 0, PEN_NONE);
  pen_nccl_add_up(link, opened, all);
  for (uint32_t c = 0; c < channels; c++) {
    own->pairs[c].window = opened[first + c] >= 2 ? own->pairs[c].window : NULL;
  }
  for (uint32_t c = 0; c < all; c++) {
    own->put_count += opened[c] >= 2;
  }
  free(opened);
}

static size_t buffer_bytes(void) {
  const char *text = getenv("NCCL_BUFFSIZE");
  const long long asked = text == NULL ? BUFFER_BYTES : atoll(text);
  return asked > 0 && asked <= BUFFER_BYTES_MOST ? (size_t)asked : BUFFER_BYTES;
}

/* Why it does not register the arena, in words; null: it does. */
static const char *enroll_with(struct pen_link *link, void *communicator) {
  const struct pen_nccl_calls *calls = pen_nccl_of(link)->calls;
  calls->enroll(communicator, link->queue->arena, link->queue->memory->arena_bytes);
  return calls->forget();
}

/* With every communicator that moves much: a window does so for its pair's, and the sum of a board
 * is small. */
static void enroll(struct pen_link *link) {
  const struct pen_nccl_link *own = pen_nccl_of(link);
  begin(link, PEN_CONNECT_ARENA, 0, PEN_NONE);
  const char *refused = own->peers == NULL ? NULL : enroll_with(link, own->peers);
  for (uint32_t c = 0; c < link->profile->channel_count && refused == NULL; c++) {
    if (pen_is_mine(link, c) && own->pairs[c].window == NULL) {
      refused = enroll_with(link, own->pairs[c].communicator);
    }
  }
  if (refused != NULL) {
    fprintf(
        stderr,
        "%s: rank %u: NCCL does not register its memory (%s): messages go through NCCL's buffers\n",
        link->plan->name, pen_link_self(link), refused);
  }
  must_have_gone_well(link, link);
}

/* Of the pair's messages: what is small NCCL may move without a use of the arena's registration. */
static const struct pen_message *largest_message(const struct pen_link *link, uint32_t channel) {
  const struct pen_message *largest = NULL;
  for (uint32_t m = 0; m < link->profile->message_count; m++) {
    const struct pen_message *message = pen_message_of(link, m);
    if (message->channel == channel && (largest == NULL || message->bytes > largest->bytes)) {
      largest = message;
    }
  }
  pen_assert(largest != NULL);
  return largest;
}

/* What a connection is tried with. */
struct tried {
  unsigned char *at;
  size_t bytes;
};

/* A message smaller than the library's buffers and one larger, then the pair's largest, as a step
 * would: from its source into its home, where no row has been yet. */
static void try_sends(struct pen_link *link, uint32_t channel, unsigned char *there, bool sends) {
  const struct pen_nccl_link *own = pen_nccl_of(link);
  const struct pen_pair *pair = &own->pairs[channel];
  const struct pen_message *message = largest_message(link, channel);
  const struct tried tried[] = {
      {there, (buffer_bytes() + 3) / 4},
      {there, 2 * buffer_bytes() + 1},
      {link->queue->arena + (sends ? message->source_offset : message->target_offset),
       message->bytes},
  };
  for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
    if (sends) {
      own->calls->send(pair->communicator, tried[i].at, tried[i].bytes, PEN_RECEIVER, pair->stream);
    } else {
      own->calls->receive(pair->communicator, tried[i].at, tried[i].bytes, PEN_SENDER,
                          pair->stream);
    }
    link->queue->device->stream_synchronize(pair->stream);
  }
}

/* The signal that signals() has raised on the other side; then signals of both directions, and the
 * largest message. (NCCL before 2.30.7 makes its signals when they are first used, and wants that
 * outside a graph.) */
static void try_puts(struct pen_link *link, uint32_t channel, bool sends) {
  const struct pen_nccl_link *own = pen_nccl_of(link);
  const struct pen_pair *pair = &own->pairs[channel];
  const struct pen_message *message = largest_message(link, channel);
  own->calls->await(pair->communicator, sends ? PEN_RECEIVER : PEN_SENDER, pair->stream);
  if (sends) {
    own->calls->await(pair->communicator, PEN_RECEIVER, pair->stream);
    own->calls->put(pair->communicator, link->queue->arena + message->source_offset, message->bytes,
                    PEN_RECEIVER, pair->window, message->target_offset, pair->stream);
  } else {
    own->calls->signal(pair->communicator, PEN_SENDER, pair->stream);
    own->calls->await(pair->communicator, PEN_SENDER, pair->stream);
  }
  link->queue->device->stream_synchronize(pair->stream);
}

/* The same between peers, all at once, as a row's swaps go; last, within the arena, some of what is
 * no weight: all of it is zeros yet. */
static void try_swaps(struct pen_link *link, unsigned char *there) {
  const struct pen_nccl_link *own = pen_nccl_of(link);
  const struct pen_rank_memory *memory = link->queue->memory;
  const size_t large = buffer_bytes() + 1, zeros = memory->arena_bytes - memory->persistent_end;
  const struct tried tried[] = {
      {there, (buffer_bytes() + 3) / 4},
      {there, large},
      {link->queue->arena + memory->persistent_end, zeros < large ? zeros : large},
  };
  for (size_t i = 0; i < sizeof tried / sizeof *tried && own->peers != NULL; i++) {
    own->calls->group_begin();
    for (uint32_t d = 0; d < link->plan->replica_count; d++) {
      if (d != link->replica) {
        own->calls->send(own->peers, tried[i].at, tried[i].bytes, (int)d, link->queue->stream);
        own->calls->receive(own->peers, tried[i].at, tried[i].bytes, (int)d, link->queue->stream);
      }
    }
    own->calls->group_end();
    link->queue->device->stream_synchronize(link->queue->stream);
    must_have_gone_well(link, link);
  }
}

/* Channel by channel, so that all ranks keep one order. */
static void warm(struct pen_link *link) {
  struct pen_nccl_link *own = pen_nccl_of(link);
  const struct pen_device *device = link->queue->device;
  const bool tries = own->put_count < link->plan->replica_count * link->profile->channel_count ||
                     own->peers != NULL;
  unsigned char *there = tries ? device->allocate(2 * buffer_bytes() + 1) : NULL;
  pen_nccl_must_be_well(link, tries ? (void *)there : link, "memory to try its pairs with");
  for (uint32_t c = 0; c < link->profile->channel_count; c++) {
    const bool sends = is_sender(link, c);
    if (pen_is_mine(link, c) && link->profile->channels[c].message_count > 0) {
      begin(link, PEN_CONNECT_TRY_PAIR, 0, c);
      if (own->pairs[c].window != NULL) {
        try_puts(link, c, sends);
      } else {
        try_sends(link, c, there, sends);
      }
      must_have_gone_well(link, link);
    }
  }
  begin(link, PEN_CONNECT_TRY_PEERS, 0, PEN_NONE);
  try_swaps(link, there);
  begin(link, PEN_CONNECT_TRY_SUM, 0, PEN_NONE);
  own->calls->sum(own->all, pen_nccl_board_of(link), pen_nccl_sum_count(link->plan),
                  link->queue->stream);
  device->stream_synchronize(link->queue->stream);
  must_have_gone_well(link, link);
  if (tries) {
    device->release(there);
  }
}

/* Which messages a sender by puts waits with for a credit: see the top. */
static void find_credits(struct pen_link *link) {
  const struct pen_profile *profile = link->profile;
  for (uint32_t m = 0; m < profile->message_count; m++) {
    const struct pen_message *message = pen_message_of(link, m);
    const uint32_t receiver = profile->channels[message->channel].to_rank;
    bool credited =
        message->credit != PEN_NONE ||
        (link->gathers[profile->channels[message->channel].from_rank] && !link->all_gather);
    for (uint32_t k = 0; k < profile->message_count && !credited; k++) {
      const struct pen_message *other = pen_message_of(link, k);
      credited = profile->channels[other->channel].from_rank == receiver &&
                 message->target_offset < other->source_offset + other->bytes &&
                 other->source_offset < message->target_offset + message->bytes;
    }
    pen_nccl_of(link)->credited[m] = credited;
  }
}

/* What was found, and what of the GPUs' memory NCCL has taken: [rank] bytes. */
static void describe(FILE *out, const struct pen_link *link, const double *bytes, uint32_t ranks,
                     uint32_t channels) {
  const struct pen_nccl_link *own = (const struct pen_nccl_link *)link;
  const int version = own->calls->version();
  fprintf(out, "%s: NCCL %d.%d.%d, %u pairs of ranks made in %u rounds: messages by ",
          link->plan->name, version / 10000, version / 100 % 100, version % 100, channels,
          own->rounds);
  if (own->put_count == channels) {
    fprintf(out, "put and signal");
  } else if (own->put_count == 0) {
    fprintf(out, "send and receive (%s)", own->no_puts);
  } else {
    fprintf(out, "put and signal over %u, by send and receive over the others (%s)", own->put_count,
            own->no_puts);
  }
  fprintf(out, "; NCCL's own memory, MiB by rank:");
  for (uint32_t r = 0; r < ranks; r++) {
    fprintf(out, " %.1f", bytes[r] / (1 << 20));
  }
  fprintf(out, "\n");
}

/* Rank 0 says it, in one write: other ranks may speak meanwhile. */
static void announce(struct pen_link *link) {
  struct pen_nccl_link *own = pen_nccl_of(link);
  const uint32_t ranks = pen_process_count(link->plan),
                 channels = link->plan->replica_count * link->profile->channel_count;
  double *bytes = calloc(ranks, sizeof *bytes);
  pen_check(bytes != NULL, "no memory for %u ranks", ranks);
  bytes[pen_link_self(link)] = (double)own->calls->memory_bytes();
  begin(link, PEN_CONNECT_MEMORY, 0, PEN_NONE);
  pen_nccl_add_up(link, bytes, ranks);
  if (pen_link_self(link) == 0 && link->announces) {
    char *line = NULL;
    size_t line_bytes = 0;
    FILE *out = open_memstream(&line, &line_bytes);
    pen_check(out != NULL, "no memory for a line");
    describe(out, link, bytes, ranks, channels);
    pen_check(fclose(out) == 0, "no memory for a line");
    fputs(line, stderr);
    free(line);
  }
  free(bytes);
}

/* The communicators, windows and streams of the rank's first profile, whose pairs these are among.
 */
static void share(struct pen_link *link) {
  const struct pen_nccl_link *first = (const struct pen_nccl_link *)link->first;
  struct pen_nccl_link *own = pen_nccl_of(link);
  own->all = first->all;
  own->peers = first->peers;
  own->put_count = first->put_count;
  for (uint32_t c = 0; c < link->profile->channel_count; c++) {
    const struct pen_channel *channel = &link->profile->channels[c],
                             *other = link->first->profile->channels;
    uint32_t f = 0;
    while (f < link->first->profile->channel_count &&
           (other[f].from_rank != channel->from_rank || other[f].to_rank != channel->to_rank)) {
      f++;
    }
    pen_assert(f < link->first->profile->channel_count);
    own->pairs[c] = first->pairs[f];
  }
}

void pen_nccl_join(struct pen_link *link) {
  struct pen_nccl_link *own = pen_nccl_of(link);
  if (link->first != NULL) {
    share(link);
    find_credits(link);
    return;
  }
  begin(link, PEN_CONNECT_ALL, 0, PEN_NONE);
  own->all = own->calls->open(link->shared->control->nccl_id, (int)pen_process_count(link->plan),
                              (int)pen_link_self(link));
  must_have_gone_well(link, own->all);
  open_streams(link);
  split_pairs(link);
  split_peers(link);
  open_windows(link);
  find_credits(link);
  enroll(link);
  warm(link);
  announce(link);
}
