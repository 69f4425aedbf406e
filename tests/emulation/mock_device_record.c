/* mock_device_record.c: a device and an NCCL that record the calls that they get (see
 * mock_device.h). */
#include "tests/emulation/mock_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/comm/ipc.h"
#include "runtime/comm/nccl.h"
#include "runtime/device/stream_executor.h"
#include "runtime/device/stream_state.h"
#include "runtime/comm/nccl_api.h"
#include "runtime/comm/nccl_rounds.h"
#include "runtime/comm/transport.h"

#define must(condition, ...) \
  ((condition) ? (void)0 : (printf("Bail out! " __VA_ARGS__), puts(""), exit(1)))

enum { RANKS_MAX = 64, SPLITS_MAX = 64 };

static struct script *scripts;
static uint32_t now; /* the rank that makes the calls */
static bool keeping; /* in a capture: a step's calls are recorded */
static const struct pen_vm *vm_now;
static unsigned char *arenas[RANKS_MAX];
static uint32_t splits[RANKS_MAX];
static struct pair {
  uint32_t color, members;
} pairs[SPLITS_MAX][RANKS_MAX]; /* by round and color; those of the last round are peers */
static uint32_t pair_count, pair_rounds, sum_count, wrong_sum_count;
static bool grouping;         /* between group_begin() and group_end() */
static uint32_t grouped_from; /* sends and receives before the group */
static const void
    *came[RANKS_MAX]; /* by replica: where the last received part of a gradient was to be written */
const struct pen_profile *mock_device_profile;

static uint32_t process_of(uint32_t rank) { return vm_now->replica * pen_plan.rank_count + rank; }

static void issue(enum call call, const void *stream, const void *object, uint32_t value,
                  uint32_t message) {
  struct script *script = &scripts[now];
  if (!keeping) {
    return;
  }
  const uint32_t row = vm_now->action == NULL
                           ? vm_now->program->action_count
                           : (uint32_t)(vm_now->action - vm_now->program->actions);
  const struct issue made = {.call = call,
                             .row = row,
                             .stream = (uint32_t)(uintptr_t)stream - 1,
                             .message = message,
                             .object = object,
                             .value = value};
  if (call == KERNEL && script->count > 0 && script->issue[script->count - 1].call == KERNEL &&
      script->issue[script->count - 1].row == row &&
      script->issue[script->count - 1].stream == made.stream) {
    return; /* all kernels of an action are recorded as one */
  }
  if (script->count == script->capacity) {
    script->capacity = 2 * script->capacity + 256;
    script->issue = realloc(script->issue, script->capacity * sizeof *script->issue);
    must(script->issue != NULL, "no memory");
  }
  script->issue[script->count++] = made;
}

/* ---- the device: it executes nothing, and memory is addresses only ---- */

static int count(void) { return 1; }
static const char *open_device(int number) { return number == 0 ? "a recorder" : NULL; }
static const char *no_error(void) { return NULL; }
static void kernel(const struct pen_call *call) { issue(KERNEL, call->stream, NULL, 0, PEN_NONE); }
static pen_kernel *kernel_of(enum pen_op_kind kind, enum pen_dtype dtype) {
  return (void)kind, (void)dtype, kernel;
}
static void *prepare(enum pen_op_kind kind, enum pen_dtype dtype, const int64_t *dim,
                     const double *real) {
  return (void)kind, (void)dtype, (void)dim, (void)real, NULL;
}
static void *allocate(size_t bytes) {
  unsigned char *at =
      mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  must(at != MAP_FAILED, "no addresses");
  arenas[now] = arenas[now] == NULL ? at : arenas[now];
  return at;
}
static void release(void *there) { (void)there; }
static void *stream_create(void) { return (void *)(uintptr_t)++scripts[now].stream_count; }
static void copy_over(void *there, const void *here, size_t bytes, void *stream) {
  (void)there, (void)here, (void)bytes, (void)stream;
}
static void zero(void *there, size_t bytes, void *stream) {
  (void)there, (void)bytes, issue(KERNEL, stream, NULL, 0, PEN_NONE);
}
static void synchronize(void *stream) {
  must(!keeping, "the host waits for stream %p within a step", stream);
}
static void reduce(double *to, const float *x, size_t n, void *workspace, void *stream) {
  (void)to, (void)x, (void)n, (void)workspace, issue(KERNEL, stream, NULL, 0, PEN_NONE);
}
static void adamw(float *p, float *g, float *m, float *v, uint16_t *copy_there, size_t n,
                  const struct pen_adamw *settings, double decay, void *stream) {
  (void)p, (void)g, (void)m, (void)v, (void)copy_there, (void)n, (void)settings, (void)decay,
      issue(KERNEL, stream, NULL, 0, PEN_NONE);
}
static void clip_scale(struct pen_adamw *to, const struct pen_adamw *base, const double *board,
                       size_t n, size_t parts, size_t stride, double clip, int greatest,
                       void *stream) {
  (void)to, (void)base, (void)board, (void)n, (void)parts, (void)stride, (void)clip, (void)greatest,
      issue(KERNEL, stream, NULL, 0, PEN_NONE);
}

/* Each addend must be a replica's own, in the memory of that replica or where it was received; and
 * they must be in the order of the replicas. */
static void sum_arrays(float *y, const float *const *x, size_t arrays, size_t n, void *stream) {
  bool right = arrays == pen_plan.replica_count;
  for (uint32_t d = 0; d < arrays && right && n > 0; d++) {
    const unsigned char *there =
        arenas[d * pen_plan.rank_count + vm_now->rank] + ((unsigned char *)y - arenas[now]);
    right = x[d] == (const float *)there || (d != vm_now->replica && x[d] == came[d]);
  }
  sum_count += keeping && n > 0, wrong_sum_count += keeping && !right,
      issue(KERNEL, stream, NULL, 0, PEN_NONE);
}

static void *allocate_host(size_t bytes) { return calloc(1, bytes); }

/* The message of this step with that target or source. */
static uint32_t message_at(const void *to, const void *from) {
  const struct pen_profile *profile = vm_now->profile;
  uint32_t found = PEN_NONE;
  for (uint32_t m = 0;
       vm_now->action != NULL && pen_has_message(vm_now->action) && m < profile->message_count;
       m++) {
    const struct pen_message *message = &profile->messages[m];
    const struct pen_channel *channel = &profile->channels[message->channel];
    if (m == vm_now->action->message &&
        arenas[process_of(channel->to_rank)] + message->target_offset == to &&
        arenas[process_of(channel->from_rank)] + message->source_offset == from) {
      found = m;
    }
  }
  return found;
}

static void copy(void *to, const void *from, size_t bytes, void *stream) {
  const uint32_t message = bytes == 0 ? PEN_NONE : message_at(to, from);
  issue(message == PEN_NONE ? KERNEL : COPY, stream, NULL, 0, message);
}
static void *event_create(void) { return malloc(1); }
static void event_record(void *event, void *stream) { issue(RECORD, stream, event, 0, PEN_NONE); }
static void stream_wait_event(void *stream, void *event) {
  issue(FOLLOW, stream, event, 0, PEN_NONE);
}
static int event_query(void *event) { return event != NULL; }
static bool in_arena(const unsigned char *at, uint32_t process) {
  return at >= arenas[process] &&
         at < arenas[process] + pen_plan.memory[process % pen_plan.rank_count].arena_bytes;
}
static bool in_arenas(const unsigned char *at) {
  bool found = false;
  for (uint32_t p = 0; p < pen_process_count(&pen_plan) && !found; p++) {
    found = in_arena(at, p);
  }
  return found;
}

/* Words outside of all arenas are progress words: the first of the two after each action. */
static void signal_own(uint32_t *word, uint32_t value, void *stream) {
  must(in_arena((unsigned char *)word, now) || !in_arenas((unsigned char *)word),
       "another's word is marked as an own one");
  if (keeping && !in_arenas((unsigned char *)word) &&
      (scripts[now].told == NULL || word < scripts[now].told)) {
    scripts[now].told = word;
  }
  issue(MARK, stream, word, value, PEN_NONE);
}
static void signal_remote(uint32_t *word, void *stream) {
  must(in_arenas((unsigned char *)word) && !in_arena((unsigned char *)word, now),
       "an own word is marked as another's");
  issue(MARK, stream, word, 1, PEN_NONE);
}
static void wait_value(uint32_t *word, uint32_t value, void *stream) {
  issue(AWAIT, stream, word, value, PEN_NONE);
}
static void capture_begin(void *stream) { (void)stream, keeping = true; }
static void *capture_end(void *stream, const char **why) {
  return (void)stream, (void)why, keeping = false, &keeping;
}
static void graph_launch(void *graph, void *stream) { (void)graph, (void)stream; }
static int export_memory(void *there, unsigned char name[PEN_SHARED_NAME_BYTES]) {
  memcpy(name, &there, sizeof there);
  return 1;
}
static void *import_memory(const unsigned char name[PEN_SHARED_NAME_BYTES]) {
  void *there;
  memcpy(&there, name, sizeof there);
  return there;
}

static const struct pen_device recorder = {
    .name = "recorder",
    .asynchronous = true,
    .count = count,
    .open = open_device,
    .error = no_error,
    .kernel_of = kernel_of,
    .prepare = prepare,
    .allocate = allocate,
    .release = release,
    .allocate_host = allocate_host,
    .copy = copy,
    .copy_in = copy_over,
    .copy_out = copy_over,
    .zero = zero,
    .sum_squares = reduce,
    .max_abs = reduce,
    .sum_arrays = sum_arrays,
    .adamw_step = adamw,
    .clip_scale = clip_scale,
    .stream_create = stream_create,
    .stream_synchronize = synchronize,
    .event_create = event_create,
    .event_record = event_record,
    .stream_wait_event = stream_wait_event,
    .event_query = event_query,
    .signal = signal_own,
    .signal_remote = signal_remote,
    .wait_value = wait_value,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .export_memory = export_memory,
    .import_memory = import_memory,
};

/* ---- NCCL ---- */

static int version(void) { return 23203; }
static void make_id(unsigned char id[PEN_NCCL_ID_BYTES]) { memset(id, 7, PEN_NCCL_ID_BYTES); }

static void *open_all(const unsigned char id[PEN_NCCL_ID_BYTES], int rank_count, int rank) {
  must(id[PEN_NCCL_ID_BYTES - 1] == 7 && (uint32_t)rank_count == pen_process_count(&pen_plan) &&
           (uint32_t)rank == now,
       "rank %d joins wrongly", rank);
  return pairs;
}

/* Each round has every color twice, with keys 0 and 1; the round after them, with replicas, has
 * every color once for each replica. */
static void *split(void *all, int color, int key, int blocks) {
  const uint32_t round = splits[now]++;
  const int keys = round < pair_rounds ? 2 : (int)pen_plan.replica_count;
  must(all == pairs && round < SPLITS_MAX && key >= 0 && key < keys, "rank %u splits wrongly", now);
  must(round < pair_rounds ? blocks > 0 && (blocks & (blocks - 1)) == 0 : blocks == 0,
       "rank %u asks for %d processors", now, blocks);
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
static bool is_of_peers(const void *communicator) {
  return (const struct pair *)communicator >= pairs[pair_rounds];
}

/* The sends and receives from `first` on are one call. */
static void issue_group(uint32_t first, void *stream) {
  if (keeping && scripts[now].swap_count > first) {
    issue(GROUP, stream, NULL, 0, PEN_NONE);
    struct issue *made = &scripts[now].issue[scripts[now].count - 1];
    made->first_swap = first;
    made->swap_count = scripts[now].swap_count - first;
  }
}

static void *grouped_on; /* stream */
static void group_begin(void) {
  grouping = true, grouped_from = scripts[now].swap_count, memset(came, 0, sizeof came);
}
static void group_end(void) { grouping = false, issue_group(grouped_from, grouped_on); }

static void swap_with(bool sends, size_t bytes, int replica, void *stream) {
  struct script *script = &scripts[now];
  must(replica >= 0 && (uint32_t)replica < pen_plan.replica_count &&
           (uint32_t)replica != vm_now->replica,
       "a swap with replica %d", replica);
  if (!keeping) {
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
                    .peer = (uint32_t)replica * pen_plan.rank_count + vm_now->rank,
                    .row = (uint32_t)(vm_now->action - vm_now->program->actions),
                    .bytes = bytes};
  grouped_on = stream;
  if (!grouping) {
    issue_group(script->swap_count - 1, stream);
  }
}

static void nccl_send(void *communicator, const void *from, size_t bytes, int to, void *stream) {
  if (is_of_peers(communicator)) {
    swap_with(true, bytes, to, stream);
    return;
  }
  (void)from, (void)bytes, must(to == 1, "a pair sends to %d", to);
  issue(SEND, stream, communicator, 0, vm_now->action == NULL ? PEN_NONE : vm_now->action->message);
}
static void nccl_receive(void *communicator, void *to, size_t bytes, int from, void *stream) {
  if (is_of_peers(communicator)) {
    came[from] = to;
    swap_with(false, bytes, from, stream);
    return;
  }
  (void)bytes, must(from == 0, "a pair receives from %d", from);
  issue(RECEIVE, stream, communicator, 0,
        vm_now->action == NULL ? PEN_NONE : vm_now->action->message);
}
/* Each rank of a pair has one signal from the other: their numbers follow the communicator's. */
static const void *signal_of(const void *communicator, int to) {
  return (const unsigned char *)communicator + to;
}

static void *window(void *communicator, void *there, size_t bytes) {
  must(bytes == pen_plan.memory[now % pen_plan.rank_count].arena_bytes,
       "a window of rank %u has %zu bytes", now, bytes);
  return there == arenas[now] ? communicator : NULL;
}

static void put(void *communicator, const void *from, size_t bytes, int to, void *there,
                size_t offset, void *stream) {
  must(to == 1 && there == communicator, "a pair puts to %d", to);
  if (keeping) {
    const struct pen_message *message = &vm_now->profile->messages[vm_now->action->message];
    must(offset == message->target_offset && bytes == message->bytes &&
             from == arenas[now] + message->source_offset,
         "another's message is put");
  }
  issue(PUT, stream, signal_of(communicator, to), 0,
        vm_now->action == NULL ? PEN_NONE : vm_now->action->message);
}
static void signal_to(void *communicator, int to, void *stream) {
  issue(SIGNAL, stream, signal_of(communicator, to), 0,
        vm_now->action == NULL ? PEN_NONE : vm_now->action->message);
}
static void take(void *communicator, int from, void *stream) {
  issue(TAKE, stream, signal_of(communicator, 1 - from), 0,
        vm_now->action == NULL ? PEN_NONE : vm_now->action->message);
}

static void sum_host(void *communicator, double *here, size_t n,
                     void *stream) { /* as if all other ranks had the same, and had one */
  (void)communicator, (void)stream;
  for (size_t i = 0; i < n; i++) {
    here[i] *= 1e9;
  }
}
static void sum(void *communicator, double *there, size_t n, void *stream) {
  (void)there, (void)n, issue(SUM, stream, communicator, 0, PEN_NONE);
}
static uint64_t memory_bytes(void) { return 0; }
static const char *no_async_error(void *communicator) { return (void)communicator, NULL; }
static void no_abort(void *communicator) { (void)communicator; }

static const struct pen_nccl_calls sends = {
    .version = version,
    .make_id = make_id,
    .open = open_all,
    .split = split,
    .register_buffer = register_buffer,
    .send = nccl_send,
    .receive = nccl_receive,
    .group_begin = group_begin,
    .group_end = group_end,
    .sum = sum,
    .sum_host = sum_host,
    .memory_bytes = memory_bytes,
    .error = no_error,
    .clear_error = no_error,
    .async_error = no_async_error,
    .abort = no_abort,
};

static const struct pen_nccl_calls puts_too = {
    .version = version,
    .make_id = make_id,
    .open = open_all,
    .split = split,
    .register_buffer = register_buffer,
    .send = nccl_send,
    .receive = nccl_receive,
    .group_begin = group_begin,
    .group_end = group_end,
    .window = window,
    .put = put,
    .signal = signal_to,
    .wait_signal = take,
    .sum = sum,
    .sum_host = sum_host,
    .memory_bytes = memory_bytes,
    .error = no_error,
    .clear_error = no_error,
    .async_error = no_async_error,
    .abort = no_abort,
};

/* ---- the recording ---- */

uint32_t mock_device_pairs(void) { return pair_count; }
uint32_t mock_device_sums(void) { return sum_count; }
uint32_t mock_device_wrong_sums(void) { return wrong_sum_count; }

static struct pen_transport *open_transport(enum link link, struct pen_endpoint *endpoint,
                                            const struct pen_stream_state *state, uint32_t profile,
                                            const struct pen_transport *first) {
  const struct pen_transport_config config = {.endpoint = endpoint,
                                              .profile = &pen_plan.profiles[profile],
                                              .device = &recorder,
                                              .stream = state->streams.compute,
                                              .first = first};
  return link == LINK_IPC ? pen_ipc_open(&config)
                          : pen_nccl_open_with(link == LINK_PUTS ? &puts_too : &sends, &config);
}

/* The actions of a rank in a profile, over the connections of the first profile's transport, which
 * may be this one's. */
static void open_rank(enum link link, uint32_t profile, struct pen_vm *vm,
                      const struct pen_shared *shared) {
  static struct pen_endpoint endpoints[RANKS_MAX];
  static struct pen_data data;
  const struct pen_plan *plan = &pen_plan;
  const char *what;
  struct pen_stream_state *state =
      pen_stream_open(plan, pen_table_rank(plan, now), 0, &recorder, &what);
  endpoints[now] = pen_endpoint_of(plan, shared, now, state->arena);
  struct pen_transport *first =
      profile > 0 ? open_transport(link, &endpoints[now], state, 0, NULL) : NULL;
  struct pen_transport *transport = open_transport(link, &endpoints[now], state, profile, first);
  pen_vm_open(vm, &(struct pen_vm_config){.transport = transport,
                                          .executor = &pen_stream_executor,
                                          .stream_state = state,
                                          .stream_profile = pen_stream_profile_open(plan),
                                          .streams = &state->streams,
                                          .data = &data});
  vm_now = scripts[now].vm = vm;
  first = first == NULL ? transport : first;
  first->ops->export_handles(first);
}

struct script *mock_device_record(enum link link, uint32_t profile) {
  const uint32_t processes = pen_process_count(&pen_plan);
  static struct pen_vm vms[RANKS_MAX];
  static struct pen_shared shared;
  must(processes <= RANKS_MAX, "%u ranks", processes);
  uint32_t *round = calloc(pen_plan.profiles[0].channel_count + 1u, sizeof *round);
  memset(arenas, 0, sizeof arenas), memset(splits, 0, sizeof splits),
      memset(pairs, 0, sizeof pairs);
  pair_count = sum_count = wrong_sum_count = 0;
  pair_rounds = pen_nccl_rounds(&pen_plan.profiles[0], pen_plan.rank_count, round);
  free(round);
  scripts = calloc(processes, sizeof *scripts);
  mock_device_profile = &pen_plan.profiles[profile];
  pen_shared_open(&shared, &pen_plan);
  for (now = 0; now < processes; now++) {
    open_rank(link, profile, &vms[now], &shared);
  }
  for (now = 0; now < processes; now++) {
    vm_now = &vms[now];
    struct pen_transport *first = (struct pen_transport *)vm_now->transport->first;
    if (first != NULL) {
      first->ops->connect(first);
    }
    pen_stream_connect(&vms[now]);
    must(splits[now] == splits[0], "rank %u makes %u splits, rank 0 %u", now, splits[now],
         splits[0]);
  }
  for (uint32_t r = 0; r < SPLITS_MAX; r++) {
    const uint32_t all = r < pair_rounds ? 3 : (1u << pen_plan.replica_count) - 1;
    for (uint32_t i = 0; i < RANKS_MAX; i++) {
      must(pairs[r][i].members == 0 || pairs[r][i].members == all,
           "a communicator of round %u lacks ranks", r);
    }
  }
  return scripts;
}
