/* mock_device_record.c: a device that records the calls that it gets (see mock_device.h). */
#include "tests/emulation/mock_device_recording.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/comm/ipc.h"
#include "runtime/comm/nccl.h"
#include "runtime/device/stream_executor.h"
#include "runtime/device/stream_state.h"
#include "runtime/exec/operands.h"
#include "runtime/comm/transport.h"

struct recording recording;
static uint32_t sum_count, wrong_sum_count;
const struct pen_profile *mock_device_profile;

static uint32_t process_of(uint32_t rank) {
  return pen_endpoint_process(recording.vm->endpoint, PEN_PIPELINE, rank);
}

void mock_device_issue(enum call call, const void *stream, const void *object, uint32_t value,
                       uint32_t message) {
  struct script *script = &recording.scripts[recording.rank];
  if (!recording.keeps) {
    return;
  }
  const uint32_t row = recording.vm->action == NULL
                           ? recording.vm->program->action_count
                           : (uint32_t)(recording.vm->action - recording.vm->program->actions);
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

/* ---- the slots of tensor ranks ---- */

/* The tensor rank that has slots there; PEN_NONE: none. */
static uint32_t slots_at(const unsigned char *at) {
  uint32_t p = 0;
  while (
      p < pen_process_count(&pen_plan) &&
      !(recording.arenas[p] != NULL && at >= recording.arenas[p] + memory_of(p)->exchange_offset &&
        at < recording.arenas[p] + memory_of(p)->exchange_offset + memory_of(p)->exchange_bytes)) {
    p++;
  }
  return p < pen_process_count(&pen_plan) ? p : PEN_NONE;
}

void mock_device_issue_slots(enum call call, const unsigned char *at, size_t bytes,
                             uint32_t exchange, void *stream) {
  const uint32_t process = slots_at(at), slots_rank = pen_table_rank(&pen_plan, process);
  must(slots_rank == recording.vm->rank && bytes % 2 == 0 &&
           pen_group_member(&pen_plan, process, PEN_DATA) == recording.vm->replica,
       "the slots of process %u, of which %zu bytes are used", process, bytes);
  if (recording.keeps) {
    mock_device_issue(call, stream, NULL, 0, PEN_NONE);
    recording.scripts[recording.rank].issue[recording.scripts[recording.rank].count - 1].slots =
        (struct slot_range){
            process, exchange,
            (uint64_t)(at - recording.arenas[process]) - memory_of(process)->exchange_offset,
            bytes};
  }
}

/* An exchange begins where a tensor rank stores into its own slots first. */
static void store(unsigned char *at, size_t bytes, void *stream) {
  if (!recording.stores && recording.keeps) {
    recording.stores = true, recording.scripts[recording.rank].exchange_count++;
  }
  mock_device_issue_slots(STORE, at, bytes, recording.scripts[recording.rank].exchange_count,
                          stream);
}

static void kernel(const struct pen_call *call) {
  const struct pen_bound_op *bound =
      (const struct pen_bound_op *)((const char *)call - offsetof(struct pen_bound_op, call));
  const struct pen_op *op = recording.keeps && bound >= recording.vm->ops &&
                                    bound < recording.vm->ops + recording.vm->program->op_count
                                ? &recording.vm->program->ops[bound - recording.vm->ops]
                                : NULL;
  for (uint32_t k = 0; op != NULL && k < pen_operands_of(op->kind).all; k++) {
    const struct pen_tensor *tensor =
        op->operand[k] == PEN_NONE ? NULL : &recording.vm->program->tensors[op->operand[k]];
    if (tensor != NULL && tensor->base == PEN_BASE_EXCHANGE) {
      must(k < pen_operands_of(op->kind).inputs, "a kernel writes into slots");
      mock_device_issue_slots(LOAD, call->operand[k], tensor->bytes,
                              recording.scripts[recording.rank].exchange_count, call->stream);
    }
  }
  mock_device_issue(KERNEL, call->stream, NULL, 0, PEN_NONE);
}
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
  recording.arenas[recording.rank] =
      recording.arenas[recording.rank] == NULL ? at : recording.arenas[recording.rank];
  return at;
}
static void release(void *there) { (void)there; }
static void *stream_create(void) {
  return (void *)(uintptr_t)++recording.scripts[recording.rank].stream_count;
}
static void copy_over(void *there, const void *here, size_t bytes, void *stream) {
  (void)there, (void)here, (void)bytes, (void)stream;
}
static void zero(void *there, size_t bytes, void *stream) {
  (void)there, (void)bytes, mock_device_issue(KERNEL, stream, NULL, 0, PEN_NONE);
}
static void synchronize(void *stream) {
  must(!recording.keeps, "the host waits for stream %p within a step", stream);
}
/* The plan has the workspace that device.h requires. */
static void reduce(double *to, const struct pen_norm_tensor *list, size_t n, void *workspace,
                   void *stream) {
  const struct pen_rank_memory *memory = memory_of(recording.rank);
  size_t blocks = 0;
  for (size_t i = 0; i < n; i++) {
    blocks += (list[i].count + PEN_NORM_BLOCK - 1) / PEN_NORM_BLOCK;
  }
  must((unsigned char *)workspace == recording.arenas[recording.rank] + memory->reduce_offset &&
           blocks * sizeof(double) <= memory->flags_offset - memory->reduce_offset,
       "NORM of rank %u has no workspace for %zu blocks", recording.rank, blocks);
  (void)to, mock_device_issue(KERNEL, stream, NULL, 0, PEN_NONE);
}
static void adamw(const struct pen_adamw_tensor *list, size_t n, const struct pen_adamw *settings,
                  void *stream) {
  (void)list, (void)n, (void)settings, mock_device_issue(KERNEL, stream, NULL, 0, PEN_NONE);
}
static void clip_scale(struct pen_adamw *to, const struct pen_adamw *base, const double *board,
                       size_t n, size_t parts, size_t stride, double clip, int greatest,
                       void *stream) {
  (void)to, (void)base, (void)board, (void)n, (void)parts, (void)stride, (void)clip, (void)greatest,
      mock_device_issue(KERNEL, stream, NULL, 0, PEN_NONE);
}

static bool in_arena(const void *at, uint32_t process) {
  const unsigned char *arena = recording.arenas[process];
  return arena != NULL && (const unsigned char *)at >= arena &&
         (const unsigned char *)at < arena + memory_of(process)->arena_bytes;
}
/* Whose arena this is in; PEN_NONE: nobody's. */
static uint32_t process_at(const void *at) {
  uint32_t p = 0;
  while (p < pen_process_count(&pen_plan) && !in_arena(at, p)) {
    p++;
  }
  return p < pen_process_count(&pen_plan) ? p : PEN_NONE;
}

/* Whether the last group has received something of a replica there. */
static bool has_come(uint32_t replica, const void *at) {
  bool found = false;
  for (uint32_t i = 0; i < recording.came_count && !found; i++) {
    found = recording.came[i].replica == replica && recording.came[i].at == at;
  }
  return found;
}

/* Each addend must be a replica's own, at the same place in the memory of that replica or where it
 * was received; and they must be in the order of the replicas. What is added up may come first, if
 * it is none of them. */
static void sum_arrays(float *y, const float *const *x, size_t arrays, size_t n, void *stream) {
  const uint32_t own = recording.vm->replica;
  const size_t first = arrays - pen_plan.replica_count;
  bool right = first <= 1 && (n == 0 || x[first == 1 ? 0 : own] == y);
  for (uint32_t d = 0; d < pen_plan.replica_count && right && n > 0; d++) {
    const unsigned char *there =
        recording.arenas[pen_endpoint_process(recording.vm->endpoint, PEN_DATA, d)] +
        ((const unsigned char *)x[first + own] - recording.arenas[recording.rank]);
    right = x[first + d] == (const float *)there || (d != own && has_come(d, x[first + d]));
    mock_device_copied(process_at(x[first + d]), recording.rank, n * sizeof *y);
  }
  sum_count += recording.keeps && n > 0, wrong_sum_count += recording.keeps && !right,
      mock_device_issue(KERNEL, stream, NULL, 0, PEN_NONE);
}

static void *allocate_host(size_t bytes) { return calloc(1, bytes); }

/* The message of this step with that target or source. */
static uint32_t message_at(const void *to, const void *from) {
  const struct pen_profile *profile = recording.vm->profile;
  uint32_t found = PEN_NONE;
  for (uint32_t m = 0; recording.vm->action != NULL && pen_has_message(recording.vm->action) &&
                       m < profile->message_count;
       m++) {
    const struct pen_message *message = &profile->messages[m];
    const struct pen_channel *channel = &profile->channels[message->channel];
    if (m == recording.vm->action->message &&
        recording.arenas[process_of(channel->to_rank)] + message->target_offset == to &&
        recording.arenas[process_of(channel->from_rank)] + message->source_offset == from) {
      found = m;
    }
  }
  return found;
}

static void copy(void *to, const void *from, size_t bytes, void *stream) {
  mock_device_copied(process_at(from), process_at(to), bytes);
  const uint32_t message = bytes == 0 ? PEN_NONE : message_at(to, from);
  if (bytes > 0 && slots_at(to) != PEN_NONE) {
    store(to, bytes, stream);
    return;
  }
  mock_device_issue(message == PEN_NONE ? KERNEL : COPY, stream, NULL, 0, message);
}
static void *event_create(void) { return malloc(1); }
static void event_record(void *event, void *stream) {
  mock_device_issue(RECORD, stream, event, 0, PEN_NONE);
}
static void stream_wait_event(void *stream, void *event) {
  mock_device_issue(FOLLOW, stream, event, 0, PEN_NONE);
}
static int event_query(void *event) { return event != NULL; }
/* Words outside of all arenas are progress words: the first of the two after each action. */
static void signal_own(uint32_t *word, uint32_t value, void *stream) {
  must(in_arena(word, recording.rank) || process_at(word) == PEN_NONE,
       "another rank's word is marked as a local one");
  if (recording.keeps && process_at(word) == PEN_NONE &&
      (recording.scripts[recording.rank].told == NULL ||
       word < recording.scripts[recording.rank].told)) {
    recording.scripts[recording.rank].told = word;
  }
  mock_device_issue(MARK, stream, word, value, PEN_NONE);
}
static void signal_remote(uint32_t *word, void *stream) {
  must(process_at(word) != PEN_NONE && !in_arena(word, recording.rank),
       "a local word is marked as another rank's");
  recording.stores = false;
  mock_device_issue(MARK, stream, word, 1, PEN_NONE);
}
static void wait_value(uint32_t *word, uint32_t value, void *stream) {
  mock_device_issue(AWAIT, stream, word, value, PEN_NONE);
}
/* A batch: in order, but other streams may come between. */
static void take(uint32_t *const *words, size_t n, void *stream) {
  for (size_t i = 0; i < n; i++) {
    wait_value(words[i], 1, stream);
    signal_own(words[i], 0, stream);
  }
}
static void capture_begin(void *stream) { (void)stream, recording.keeps = true; }
static void *capture_end(void *stream, const char **why) {
  return (void)stream, (void)why, recording.keeps = false, &recording.keeps;
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
    .muon_momentum = adamw,
    .muon_orthogonalize = adamw,
    .muon_apply = adamw,
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
    .take = take,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .export_memory = export_memory,
    .import_memory = import_memory,
};

/* ---- the recording ---- */

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
                          : pen_nccl_open_with(&mock_device_nccl[link == LINK_PUTS], &config);
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
      pen_stream_open(plan, pen_table_rank(plan, recording.rank), 0, &recorder, &what);
  endpoints[recording.rank] = pen_endpoint_of(plan, shared, recording.rank, state->arena);
  struct pen_transport *first =
      profile > 0 ? open_transport(link, &endpoints[recording.rank], state, 0, NULL) : NULL;
  struct pen_transport *transport =
      open_transport(link, &endpoints[recording.rank], state, profile, first);
  pen_vm_open(vm, &(struct pen_vm_config){.transport = transport,
                                          .executor = &pen_stream_executor,
                                          .stream_state = state,
                                          .stream_profile = pen_stream_profile_open(plan),
                                          .streams = &state->streams,
                                          .data = &data});
  recording.vm = recording.scripts[recording.rank].vm = vm;
  first = first == NULL ? transport : first;
  first->ops->export_handles(first);
}

struct script *mock_device_record(enum link link, uint32_t profile, const char *const modes[2]) {
  const uint32_t processes = pen_process_count(&pen_plan);
  static struct pen_vm vms[RANKS_MAX];
  static struct pen_shared shared;
  must(processes <= RANKS_MAX, "%u ranks", processes);
  memset(recording.arenas, 0, sizeof recording.arenas);
  sum_count = wrong_sum_count = 0;
  mock_device_nccl_begin();
  recording.scripts = calloc(processes, sizeof *recording.scripts);
  mock_device_profile = &pen_plan.profiles[profile];
  pen_shared_open(&shared, &pen_plan);
  for (recording.rank = 0; recording.rank < processes; recording.rank++) {
    open_rank(link, profile, &vms[recording.rank], &shared);
  }
  for (recording.rank = 0; recording.rank < processes; recording.rank++) {
    recording.vm = &vms[recording.rank];
    struct pen_transport *first = (struct pen_transport *)recording.vm->transport->first;
    if (first != NULL) {
      first->ops->connect(first);
    }
    must(setenv("PEN_GRAPH", modes[recording.rank % 2], 1) == 0, "no memory");
    pen_stream_connect(&vms[recording.rank]);
    const uint32_t tensor_rank = recording.rank - recording.rank % pen_plan.tensor_ranks;
    const uint32_t exchanges = recording.scripts[recording.rank].exchange_count,
                   others = recording.scripts[tensor_rank].exchange_count;
    must(exchanges == others, "rank %u has %u exchanges, its first tensor rank %u", recording.rank,
         exchanges, others);
  }
  mock_device_nccl_check();
  return recording.scripts;
}
