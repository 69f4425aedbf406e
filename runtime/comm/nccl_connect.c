/* nccl_connect.c: what the transport nccl makes before the seal: communicators, windows, and a
 * first message over each, so that nothing is made later; and the line that reports it. */
#include "runtime/comm/nccl_connect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/standard_error.h"
#include "runtime/base/check.h"
#include "runtime/base/environment.h"
#include "runtime/comm/failure_text.h"
#include "runtime/comm/nccl_rounds.h"

/* NCCL gives each connection a buffer of NCCL_BUFFSIZE bytes (NCCL User Guide, "Environment
 * Variables"). A larger message waits for its receive; so messages of both sizes are tried. */
enum { BUFFER_BYTES = 4 << 20, BUFFER_BYTES_MOST = 1 << 30 };

/* A receive occupies its CTAs of the GPU from its RECV until its message has arrived, next to the
 * computation: a rank with neighbours on both sides uses at most 16 of 132 SMs (H100).
 * NCCL_MAX_CTAS in the environment overrides it. */
enum { PAIR_BLOCKS = 4 };

const char *pen_nccl_no_puts(const struct pen_nccl_calls *calls) {
  const char *asked = pen_environment("PEN_NCCL");
  const bool sends = asked != NULL && strcmp(asked, "send") == 0;
  return sends                                 ? "PEN_NCCL asks for it"
         : calls->put == NULL                  ? "built with an NCCL before 2.29"
         : calls->version() < PEN_PUTS_VERSION ? "NCCL puts from 2.29 on"
                                               : NULL;
}

/* Before 2.32 the windows of two ranks must have the same size, and a window covers the whole
 * allocation. */
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

/* For the watchdog's message about a stall, and for the message of a failure. */
static void set_stage(struct pen_transport *transport, enum pen_bootstrap_stage what, uint32_t turn,
                      uint32_t channel) {
  struct pen_rank_state *self = &transport->shared->ranks[pen_transport_self(transport)];
  atomic_store_explicit(&self->profile, (uint32_t)(transport->profile - transport->plan->profiles),
                        memory_order_relaxed);
  atomic_store_explicit(&self->bootstrap_stage, pen_bootstrap_stage_set(what, turn, channel),
                        memory_order_relaxed);
}

void pen_nccl_check(struct pen_transport *transport, const void *made, const char *what) {
  const char *why = pen_nccl_of(transport)->calls->error();
  why = why == NULL ? transport->device->error() : why;
  if (made == NULL || why != NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "rank %u, transport nccl: %s: %s", pen_transport_self(transport),
             what, why == NULL ? "none" : why);
  }
}

/* The same for the last stage that was begun. */
static void check_stage(struct pen_transport *transport, const void *made) {
  char what[PEN_BOOTSTRAP_TEXT_BYTES];
  pen_nccl_check(transport, made,
                 pen_failure_bootstrap_text(what, sizeof what, transport->plan, transport->shared,
                                            pen_transport_self(transport)));
}

static void open_streams(struct pen_transport *transport) {
  for (uint32_t c = 0; c < transport->profile->channel_count; c++) {
    if (pen_nccl_has_channel(transport, c)) {
      pen_nccl_of(transport)->pairs[c].stream = transport->device->stream_create();
      pen_nccl_check(transport, pen_nccl_of(transport)->pairs[c].stream, "a stream");
    }
  }
}

/* The other rank of a pair that this rank belongs to. */
static bool sends_on(const struct pen_transport *transport, uint32_t channel) {
  return transport->profile->channels[channel].from_rank == transport->rank;
}

/* The directed pairs of the plan are there once for each pipeline. */
static uint32_t pipeline_of(const struct pen_transport *transport) {
  return pen_pipeline_index(transport->plan, pen_transport_self(transport));
}
static uint32_t pair_count(const struct pen_transport *transport) {
  return pen_pipeline_count(transport->plan) * transport->profile->channel_count;
}

static void split_pairs(struct pen_transport *transport) {
  struct pen_nccl_transport *own = pen_nccl_of(transport);
  uint32_t *round =
      pen_allocate(transport->profile->channel_count + 1u, sizeof *round, "a transport");
  own->rounds = pen_nccl_rounds(transport->profile, transport->plan->rank_count, round);
  for (uint32_t r = 0; r < own->rounds; r++) {
    uint32_t mine = PEN_NONE;
    for (uint32_t c = 0; c < transport->profile->channel_count; c++) {
      mine = round[c] == r && pen_nccl_has_channel(transport, c) ? c : mine;
    }
    const bool sends = mine != PEN_NONE && sends_on(transport, mine);
    const int color = (int)(pipeline_of(transport) * transport->profile->channel_count + mine);
    set_stage(transport, PEN_CONNECT_PAIR, r, mine);
    void *made = own->calls->split(own->all, mine == PEN_NONE ? -1 : color,
                                   sends ? PEN_SENDER : PEN_RECEIVER, PAIR_BLOCKS);
    check_stage(transport, mine == PEN_NONE ? transport : made);
    if (mine != PEN_NONE) {
      own->pairs[mine].communicator = made;
    }
  }
  free(round);
}

/* A communicator of the members of a group, if there are several. */
static void join_group(struct pen_transport *transport, int group, enum pen_bootstrap_stage stage) {
  struct pen_nccl_transport *own = pen_nccl_of(transport);
  const uint32_t member = pen_group_member(transport->plan, pen_transport_self(transport), group);
  if (pen_group_size(transport->plan, group) > 1) {
    set_stage(transport, stage, 0, PEN_NONE);
    own->group[group] = own->calls->split(own->all, (int)pen_transport_process(transport, group, 0),
                                          (int)member, 0);
    check_stage(transport, own->group[group]);
  }
}

void pen_nccl_sum_numbers(struct pen_transport *transport, double *numbers, size_t count) {
  pen_nccl_of(transport)->calls->sum_host(pen_nccl_of(transport)->all, numbers, count,
                                          transport->stream);
  check_stage(transport, transport);
}

/* Whether this rank can signal the other rank of the pair, which waits for the signal in
 * try_puts(). */
static bool can_signal(struct pen_transport *transport, uint32_t channel) {
  const struct pen_nccl_transport *own = pen_nccl_of(transport);
  const struct pen_pair *pair = &own->pairs[channel];
  own->calls->signal(pair->communicator, sends_on(transport, channel) ? PEN_RECEIVER : PEN_SENDER,
                     pair->stream);
  transport->device->stream_synchronize(pair->stream);
  return own->calls->clear_error() == NULL;
}

/* Opens a window for each pair, one after the other, if the NCCL of all ranks can; a pair uses puts
 * if both its ranks have their windows and can signal. */
static void open_windows(struct pen_transport *transport) {
  struct pen_nccl_transport *own = pen_nccl_of(transport);
  const uint32_t channels = transport->profile->channel_count,
                 first = pipeline_of(transport) * channels, all = pair_count(transport);
  const size_t bytes = pen_nccl_arena_bytes(own->calls, transport->plan, transport->rank);
  const bool puts = own->no_puts == NULL;
  double able = puts,
         *opened = pen_allocate(all + 1u, sizeof *opened, "a transport"); /* [pipeline][channels] */
  set_stage(transport, PEN_CONNECT_PUTS, 0, PEN_NONE);
  pen_nccl_sum_numbers(transport, &able, 1);
  const bool all_able = able >= pen_process_count(transport->plan);
  if (puts) {
    own->no_puts =
        all_able ? "NCCL has no window for these ranks, or no signals" : "not all ranks' NCCL puts";
  }
  for (uint32_t c = 0; c < channels && all_able; c++) {
    if (pen_nccl_has_channel(transport, c)) {
      set_stage(transport, PEN_CONNECT_WINDOW, 0, c);
      own->pairs[c].window =
          own->calls->window(own->pairs[c].communicator, transport->arena, bytes);
      check_stage(transport, transport);
    }
    opened[first + c] = own->pairs[c].window != NULL && can_signal(transport, c);
  }
  set_stage(transport, PEN_CONNECT_WINDOWS, 0, PEN_NONE);
  pen_nccl_sum_numbers(transport, opened, all);
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

/* Why it does not register the arena; null: it does. */
static const char *register_with(struct pen_transport *transport, void *communicator) {
  const struct pen_nccl_calls *calls = pen_nccl_of(transport)->calls;
  calls->register_buffer(communicator, transport->arena,
                         (&transport->plan->memory[transport->rank])->arena_bytes);
  return calls->clear_error();
}

/* With every communicator that moves much data: a window registers for its pair's, and the
 * statistics are small. */
static void register_arena(struct pen_transport *transport) {
  const struct pen_nccl_transport *own = pen_nccl_of(transport);
  set_stage(transport, PEN_CONNECT_ARENA, 0, PEN_NONE);
  const char *refused = NULL;
  for (int g = PEN_COORDINATES; g-- > 0 && refused == NULL;) {
    refused = own->group[g] == NULL ? NULL : register_with(transport, own->group[g]);
  }
  for (uint32_t c = 0; c < transport->profile->channel_count && refused == NULL; c++) {
    if (pen_nccl_has_channel(transport, c) && own->pairs[c].window == NULL) {
      refused = register_with(transport, own->pairs[c].communicator);
    }
  }
  if (refused != NULL) {
    pen_say(transport->plan->name,
            "rank %u: NCCL does not register its memory (%s): messages go through NCCL's buffers",
            pen_transport_self(transport), refused);
  }
  check_stage(transport, transport);
}

/* Of the pair's messages. For small messages NCCL may not use the registration of the arena. */
static const struct pen_message *largest_message(const struct pen_transport *transport,
                                                 uint32_t channel) {
  const struct pen_message *largest = NULL;
  for (uint32_t m = 0; m < transport->profile->message_count; m++) {
    const struct pen_message *message = pen_transport_message(transport, m);
    if (message->channel == channel && (largest == NULL || message->bytes > largest->bytes)) {
      largest = message;
    }
  }
  pen_assert(largest != NULL);
  return largest;
}

/* What is sent over a connection to try it. */
struct tried {
  unsigned char *at;
  size_t bytes;
};

/* A message smaller than the library's buffers, a larger one, then the pair's largest, as a step
 * would send it: from its source to its target, which no action has written yet. */
static void try_sends(struct pen_transport *transport, uint32_t channel, unsigned char *scratch,
                      bool sends) {
  const struct pen_nccl_transport *own = pen_nccl_of(transport);
  const struct pen_pair *pair = &own->pairs[channel];
  const struct pen_message *message = largest_message(transport, channel);
  const struct tried tried[] = {
      {scratch, (buffer_bytes() + 3) / 4},
      {scratch, 2 * buffer_bytes() + 1},
      {transport->arena + (sends ? message->source_offset : message->target_offset),
       message->bytes},
  };
  for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
    if (sends) {
      own->calls->send(pair->communicator, tried[i].at, tried[i].bytes, PEN_RECEIVER, pair->stream);
    } else {
      own->calls->receive(pair->communicator, tried[i].at, tried[i].bytes, PEN_SENDER,
                          pair->stream);
    }
    transport->device->stream_synchronize(pair->stream);
  }
}

/* First the signal that can_signal() has raised on the other side; then signals of both directions,
 * and the largest message. (NCCL before 2.30.7 makes its signals at their first use, which must be
 * outside a graph.) */
static void try_puts(struct pen_transport *transport, uint32_t channel, bool sends) {
  const struct pen_nccl_transport *own = pen_nccl_of(transport);
  const struct pen_pair *pair = &own->pairs[channel];
  const struct pen_message *message = largest_message(transport, channel);
  own->calls->wait_signal(pair->communicator, sends ? PEN_RECEIVER : PEN_SENDER, pair->stream);
  if (sends) {
    own->calls->wait_signal(pair->communicator, PEN_RECEIVER, pair->stream);
    own->calls->put(pair->communicator, transport->arena + message->source_offset, message->bytes,
                    PEN_RECEIVER, pair->window, message->target_offset, pair->stream);
  } else {
    own->calls->signal(pair->communicator, PEN_SENDER, pair->stream);
    own->calls->wait_signal(pair->communicator, PEN_SENDER, pair->stream);
  }
  transport->device->stream_synchronize(pair->stream);
}

/* The same between all members of a group, all at once, as in a collective or an exchange; last, a
 * part of the arena that holds no weights: it is all zeros. */
static void try_group(struct pen_transport *transport, int group, enum pen_bootstrap_stage stage,
                      unsigned char *scratch) {
  const struct pen_nccl_transport *own = pen_nccl_of(transport);
  const struct pen_rank_memory *memory = (&transport->plan->memory[transport->rank]);
  const size_t large = buffer_bytes() + 1, zeros = memory->arena_bytes - memory->persistent_end;
  const struct tried tried[] = {
      {scratch, (buffer_bytes() + 3) / 4},
      {scratch, large},
      {transport->arena + memory->persistent_end, zeros < large ? zeros : large},
  };
  set_stage(transport, stage, 0, PEN_NONE);
  for (size_t i = 0; i < sizeof tried / sizeof *tried && own->group[group] != NULL; i++) {
    own->calls->group_begin();
    for (uint32_t r = 0; r < pen_group_size(transport->plan, group); r++) {
      if (pen_transport_process(transport, group, r) != pen_transport_self(transport)) {
        own->calls->send(own->group[group], tried[i].at, tried[i].bytes, (int)r, transport->stream);
        own->calls->receive(own->group[group], tried[i].at, tried[i].bytes, (int)r,
                            transport->stream);
      }
    }
    own->calls->group_end();
    transport->device->stream_synchronize(transport->stream);
    check_stage(transport, transport);
  }
}

/* Channel by channel: all ranks keep one order. */
static void try_connections(struct pen_transport *transport) {
  struct pen_nccl_transport *own = pen_nccl_of(transport);
  const struct pen_device *device = transport->device;
  const bool tries = own->put_count < pair_count(transport) || own->group[PEN_DATA] != NULL ||
                     own->group[PEN_TENSOR] != NULL;
  unsigned char *scratch = tries ? device->allocate(2 * buffer_bytes() + 1) : NULL;
  pen_nccl_check(transport, tries ? (void *)scratch : transport, "memory to try its pairs with");
  for (uint32_t c = 0; c < transport->profile->channel_count; c++) {
    const bool sends = sends_on(transport, c);
    if (pen_nccl_has_channel(transport, c) && transport->profile->channels[c].message_count > 0) {
      set_stage(transport, PEN_CONNECT_TRY_PAIR, 0, c);
      if (own->pairs[c].window != NULL) {
        try_puts(transport, c, sends);
      } else {
        try_sends(transport, c, scratch, sends);
      }
      check_stage(transport, transport);
    }
  }
  try_group(transport, PEN_DATA, PEN_CONNECT_TRY_PEERS, scratch);
  try_group(transport, PEN_TENSOR, PEN_CONNECT_TRY_TENSOR_RANKS, scratch);
  set_stage(transport, PEN_CONNECT_TRY_SUM, 0, PEN_NONE);
  own->calls->sum(own->all, pen_nccl_step_stats(transport), pen_nccl_sum_count(transport->plan),
                  transport->stream);
  device->stream_synchronize(transport->stream);
  check_stage(transport, transport);
  if (tries) {
    device->release(scratch);
  }
}

/* For which messages a sender by puts waits for a credit: see nccl.c. */
static void find_credits(struct pen_transport *transport) {
  const struct pen_profile *profile = transport->profile;
  for (uint32_t m = 0; m < profile->message_count; m++) {
    const struct pen_message *message = pen_transport_message(transport, m);
    const struct pen_channel *channel = pen_transport_channel(transport, m);
    bool credited =
        message->credit != PEN_NONE ||
        (transport->actions.gathers[channel->from_rank] && !transport->actions.all_gather);
    for (uint32_t k = 0; k < profile->message_count && !credited; k++) {
      const struct pen_message *other = pen_transport_message(transport, k);
      credited = pen_transport_channel(transport, k)->from_rank == channel->to_rank &&
                 message->target_offset < other->source_offset + other->bytes &&
                 other->source_offset < message->target_offset + message->bytes;
    }
    pen_nccl_of(transport)->credited[m] = credited;
  }
}

/* What was found, and how much of the GPUs' memory NCCL uses: bytes of [rank]. */
static void print_connections(FILE *out, const struct pen_transport *transport, const double *bytes,
                              uint32_t ranks, uint32_t channels) {
  const struct pen_nccl_transport *own = (const struct pen_nccl_transport *)transport;
  const int version = own->calls->version();
  fprintf(out, "%s: NCCL %d.%d.%d, %u pairs of ranks made in %u rounds: messages by ",
          transport->plan->name, version / 10000, version / 100 % 100, version % 100, channels,
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

/* Rank 0 reports it in one write: other ranks may write at the same time. */
static void print_summary(struct pen_transport *transport) {
  struct pen_nccl_transport *own = pen_nccl_of(transport);
  const uint32_t ranks = pen_process_count(transport->plan), channels = pair_count(transport);
  double *bytes = pen_allocate(ranks, sizeof *bytes, "%u ranks", ranks);
  bytes[pen_transport_self(transport)] = (double)own->calls->memory_bytes();
  set_stage(transport, PEN_CONNECT_MEMORY, 0, PEN_NONE);
  pen_nccl_sum_numbers(transport, bytes, ranks);
  if (pen_transport_self(transport) == 0 && transport->announces) {
    char *line = NULL;
    size_t line_bytes = 0;
    FILE *out = open_memstream(&line, &line_bytes);
    pen_check(out != NULL, "no memory for a line");
    print_connections(out, transport, bytes, ranks, channels);
    pen_check(fclose(out) == 0, "no memory for a line");
    pen_standard_error_write(line, line_bytes);
    free(line);
  }
  free(bytes);
}

/* The communicators, windows and streams of the rank's first profile, which include those of this
 * profile's pairs. */
static void share_connections(struct pen_transport *transport) {
  const struct pen_nccl_transport *first = (const struct pen_nccl_transport *)transport->first;
  struct pen_nccl_transport *own = pen_nccl_of(transport);
  own->all = first->all;
  memcpy(own->group, first->group, sizeof own->group);
  own->put_count = first->put_count;
  for (uint32_t c = 0; c < transport->profile->channel_count; c++) {
    const struct pen_channel *channel = &transport->profile->channels[c],
                             *other = transport->first->profile->channels;
    uint32_t f = 0;
    while (f < transport->first->profile->channel_count &&
           (other[f].from_rank != channel->from_rank || other[f].to_rank != channel->to_rank)) {
      f++;
    }
    pen_assert(f < transport->first->profile->channel_count);
    own->pairs[c] = first->pairs[f];
  }
}

void pen_nccl_connect(struct pen_transport *transport) {
  struct pen_nccl_transport *own = pen_nccl_of(transport);
  if (transport->first != NULL) {
    share_connections(transport);
    find_credits(transport);
    return;
  }
  set_stage(transport, PEN_CONNECT_ALL, 0, PEN_NONE);
  own->all =
      own->calls->open(transport->shared->control->nccl_id, (int)pen_process_count(transport->plan),
                       (int)pen_transport_self(transport));
  check_stage(transport, own->all);
  open_streams(transport);
  split_pairs(transport);
  join_group(transport, PEN_DATA, PEN_CONNECT_PEERS);
  join_group(transport, PEN_TENSOR, PEN_CONNECT_TENSOR_RANKS);
  open_windows(transport);
  find_credits(transport);
  register_arena(transport);
  try_connections(transport);
  print_summary(transport);
}
