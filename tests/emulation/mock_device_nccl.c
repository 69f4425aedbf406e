/* mock_device_nccl.c: an NCCL that records the calls that it gets (see mock_device.h). */
#include <string.h>

#include "runtime/comm/nccl_rounds.h"
#include "tests/emulation/mock_device_recording.h"

static uint32_t splits[RANKS_MAX];
static struct pair {
  uint32_t color, members;
} pairs[SPLITS_MAX][RANKS_MAX]; /* by round and color; then come those of peers and of members */
static uint32_t pair_count, pair_rounds;
static bool grouping;         /* between group_begin() and group_end() */
static uint32_t grouped_from; /* sends and receives before the group */

uint32_t mock_device_pairs(void) { return pair_count; }

static int version(void) { return 23203; }
static void make_id(unsigned char id[PEN_NCCL_ID_BYTES]) { memset(id, 7, PEN_NCCL_ID_BYTES); }

static void *open_all(const unsigned char id[PEN_NCCL_ID_BYTES], int rank_count, int rank) {
  must(id[PEN_NCCL_ID_BYTES - 1] == 7 && (uint32_t)rank_count == pen_process_count(&pen_plan) &&
           (uint32_t)rank == recording.rank,
       "rank %d joins wrongly", rank);
  return pairs;
}

/* Whether the communicators of a round are of peers, or of members. */
static bool is_of_peers(uint32_t round) {
  return round == pair_rounds && pen_plan.replica_count > 1;
}
static bool is_of_members(uint32_t round) { return round >= pair_rounds && !is_of_peers(round); }

/* Each round has every color twice, with keys 0 and 1; the rounds after them, with replicas and
 * with tensor ranks, have every color once for each of these. */
static uint32_t keys_of(uint32_t round) {
  return is_of_peers(round)     ? pen_plan.replica_count
         : is_of_members(round) ? pen_plan.tensor_ranks
                                : 2;
}

static void *split(void *all, int color, int key, int blocks) {
  const uint32_t round = splits[recording.rank]++;
  const int keys = (int)keys_of(round);
  must(all == pairs && round < SPLITS_MAX && key >= 0 && key < keys, "rank %u splits wrongly",
       recording.rank);
  must(round < pair_rounds ? blocks > 0 && (blocks & (blocks - 1)) == 0 : blocks == 0,
       "rank %u asks for %d processors", recording.rank, blocks);
  if (color < 0) {
    return NULL;
  }
  uint32_t i = 0;
  while (i < RANKS_MAX && pairs[round][i].members != 0 &&
         pairs[round][i].color != (uint32_t)color) {
    i++;
  }
  must(i < RANKS_MAX && (pairs[round][i].members & 1u << key) == 0,
       "two ranks are %d of the pair %d", key, color);
  pair_count += pairs[round][i].members == 0;
  pairs[round][i].color = (uint32_t)color;
  pairs[round][i].members |= 1u << key;
  return &pairs[round][i];
}

static void register_buffer(void *communicator, void *there, size_t bytes) {
  must(communicator && there && bytes, "nothing to register");
}
static uint32_t round_of(const void *communicator) {
  return (uint32_t)(((const struct pair *)communicator - &pairs[0][0]) / RANKS_MAX);
}

/* The process that is rank `of` of a communicator of peers or of members. */
static uint32_t process_in(const void *communicator, int of) {
  must(of >= 0 && (uint32_t)of < keys_of(round_of(communicator)), "there is no rank %d", of);
  return pen_group_process(&pen_plan, recording.rank,
                           is_of_members(round_of(communicator)) ? PEN_TENSOR : PEN_DATA,
                           (uint32_t)of);
}

/* The sends and receives from `first` on are one call. */
static void issue_group(uint32_t first, void *stream) {
  if (recording.keeps && recording.scripts[recording.rank].swap_count > first) {
    mock_device_issue(GROUP, stream, NULL, 0, PEN_NONE);
    struct issue *made =
        &recording.scripts[recording.rank].issue[recording.scripts[recording.rank].count - 1];
    made->first_swap = first;
    made->swap_count = recording.scripts[recording.rank].swap_count - first;
  }
}

static void *grouped_on; /* stream */

/* What a group receives into slots is under way from its beginning, and there at its end. */
static struct {
  unsigned char *at;
  size_t bytes;
} received[RECEIVES_MAX];
static uint32_t received_count;

static void receive_in_slots(unsigned char *at, size_t bytes, void *stream) {
  if (recording.keeps) {
    must(received_count < RECEIVES_MAX, "a group of too many receives");
    received[received_count].at = at, received[received_count++].bytes = bytes;
    mock_device_issue_slots(STORE, at, bytes, PEN_NONE, stream);
  }
}

static void end_stores(void) {
  for (uint32_t i = 0; i < received_count; i++) {
    mock_device_issue_slots(STORE, received[i].at, received[i].bytes,
                            recording.scripts[recording.rank].exchange_count, grouped_on);
  }
  received_count = 0;
}

static void group_begin(void) {
  grouping = true, grouped_from = recording.scripts[recording.rank].swap_count,
  recording.came_count = 0;
}
static void group_end(void) {
  grouping = recording.stores = false, issue_group(grouped_from, grouped_on), end_stores();
}

static void swap_with(bool sends, size_t bytes, const void *communicator, int of, void *stream) {
  struct script *script = &recording.scripts[recording.rank];
  const uint32_t peer = process_in(communicator, of);
  must(peer != recording.rank, "a swap with itself");
  if (!recording.keeps) {
    return;
  }
  if (script->swap_count == script->swap_capacity) {
    script->swap_capacity = 2 * script->swap_capacity + 64;
    script->swap = realloc(script->swap, script->swap_capacity * sizeof *script->swap);
    must(script->swap != NULL, "no memory");
  }
  must(!grouping || grouped_from == script->swap_count || grouped_on == stream,
       "a group on two streams");
  script->swap[script->swap_count++] =
      (struct swap){.sends = sends,
                    .peer = peer,
                    .row = (uint32_t)(recording.vm->action - recording.vm->program->actions),
                    .exchange = is_of_members(round_of(communicator)) ? script->exchange_count : 0,
                    .bytes = bytes};
  mock_device_copied(recording.rank, sends ? peer : recording.rank, bytes);
  grouped_on = stream;
  if (!grouping) {
    issue_group(script->swap_count - 1, stream);
  }
}

/* To the other rank of a pair: of the message that the action sends. */
static void send_message(size_t bytes) {
  if (recording.keeps && recording.vm->action != NULL) {
    const struct pen_profile *profile = recording.vm->profile;
    const struct pen_message *message = &profile->messages[recording.vm->action->message];
    mock_device_copied(recording.rank,
                       pen_endpoint_process(recording.vm->endpoint, PEN_PIPELINE,
                                            profile->channels[message->channel].to_rank),
                       bytes);
  }
}

static void nccl_send(void *communicator, const void *from, size_t bytes, int to, void *stream) {
  if (round_of(communicator) >= pair_rounds) {
    swap_with(true, bytes, communicator, to, stream);
    return;
  }
  (void)from, must(to == 1, "a pair sends to %d", to);
  send_message(bytes);
  mock_device_issue(SEND, stream, communicator, 0,
                    recording.vm->action == NULL ? PEN_NONE : recording.vm->action->message);
}
static void nccl_receive(void *communicator, void *to, size_t bytes, int from, void *stream) {
  if (is_of_members(round_of(communicator))) {
    receive_in_slots(to, bytes, stream);
  } else if (is_of_peers(round_of(communicator))) {
    must(recording.came_count < RECEIVES_MAX, "a group of too many receives");
    recording.came[recording.came_count].replica = (uint32_t)from;
    recording.came[recording.came_count++].at = to;
  }
  if (round_of(communicator) >= pair_rounds) {
    swap_with(false, bytes, communicator, from, stream);
    return;
  }
  (void)bytes, must(from == 0, "a pair receives from %d", from);
  mock_device_issue(RECEIVE, stream, communicator, 0,
                    recording.vm->action == NULL ? PEN_NONE : recording.vm->action->message);
}
/* Each rank of a pair has one signal from the other: their numbers follow the communicator's. */
static const void *signal_of(const void *communicator, int to) {
  return (const unsigned char *)communicator + to;
}

static void *window(void *communicator, void *there, size_t bytes) {
  must(bytes == memory_of(recording.rank)->arena_bytes, "a window of rank %u has %zu bytes",
       recording.rank, bytes);
  return there == recording.arenas[recording.rank] ? communicator : NULL;
}

static void put(void *communicator, const void *from, size_t bytes, int to, void *there,
                size_t offset, void *stream) {
  must(to == 1 && there == communicator, "a pair puts to %d", to);
  if (recording.keeps) {
    const struct pen_message *message =
        &recording.vm->profile->messages[recording.vm->action->message];
    must(offset == message->target_offset && bytes == message->bytes &&
             from == recording.arenas[recording.rank] + message->source_offset,
         "another's message is put");
  }
  send_message(bytes);
  mock_device_issue(PUT, stream, signal_of(communicator, to), 0,
                    recording.vm->action == NULL ? PEN_NONE : recording.vm->action->message);
}
static void signal_to(void *communicator, int to, void *stream) {
  mock_device_issue(SIGNAL, stream, signal_of(communicator, to), 0,
                    recording.vm->action == NULL ? PEN_NONE : recording.vm->action->message);
}
static void take(void *communicator, int from, void *stream) {
  mock_device_issue(TAKE, stream, signal_of(communicator, 1 - from), 0,
                    recording.vm->action == NULL ? PEN_NONE : recording.vm->action->message);
}

static void sum_host(void *communicator, double *here, size_t n,
                     void *stream) { /* as if all other ranks had the same, and had one */
  (void)communicator, (void)stream;
  for (size_t i = 0; i < n; i++) {
    here[i] *= 1e9;
  }
}
static void sum(void *communicator, double *there, size_t n, void *stream) {
  (void)there, (void)n, mock_device_issue(SUM, stream, communicator, 0, PEN_NONE);
}
static uint64_t memory_bytes(void) { return 0; }
static const char *no_error(void) { return NULL; }
static const char *no_async_error(void *communicator) { return (void)communicator, NULL; }
static void no_abort(void *communicator) { (void)communicator; }

/* Without puts. */
#define SENDS                                                                           \
  .version = version, .make_id = make_id, .open = open_all, .split = split,             \
  .register_buffer = register_buffer, .send = nccl_send, .receive = nccl_receive,       \
  .group_begin = group_begin, .group_end = group_end, .sum = sum, .sum_host = sum_host, \
  .memory_bytes = memory_bytes, .error = no_error, .clear_error = no_error,             \
  .async_error = no_async_error, .abort = no_abort

const struct pen_nccl_calls mock_device_nccl[] = {
    {SENDS},
    {SENDS, .window = window, .put = put, .signal = signal_to, .wait_signal = take},
};

void mock_device_nccl_begin(void) {
  uint32_t *round = calloc(pen_plan.profiles[0].channel_count + 1u, sizeof *round);
  memset(splits, 0, sizeof splits), memset(pairs, 0, sizeof pairs);
  pair_count = 0;
  pair_rounds = pen_nccl_rounds(&pen_plan.profiles[0], pen_plan.rank_count, round);
  free(round);
}

void mock_device_nccl_check(void) {
  for (uint32_t p = 0; p < pen_process_count(&pen_plan); p++) {
    must(splits[p] == splits[0], "rank %u makes %u splits, rank 0 %u", p, splits[p], splits[0]);
  }
  for (uint32_t r = 0; r < SPLITS_MAX; r++) {
    const uint32_t all = (1u << keys_of(r)) - 1;
    for (uint32_t i = 0; i < RANKS_MAX; i++) {
      must(pairs[r][i].members == 0 || pairs[r][i].members == all,
           "a communicator of round %u lacks ranks", r);
    }
  }
}
