/* rehearsal_record.c: a device and an NCCL that write down what they are told (see rehearsal.h). */
#include "tests/rehearsal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/link.h"
#include "runtime/nccl.h"
#include "runtime/transport.h"

#define must(condition, ...) ((condition) ? (void)0 : (printf("Bail out! " __VA_ARGS__), puts(""), exit(1)))

enum { RANKS_MAX = 64, SPLITS_MAX = 64 };

static struct script *scripts;
static uint32_t now;           /* the rank whose calls come */
static bool keeping;           /* in a capture: what a step issues */
static const struct pen_vm *vm_now;
static unsigned char *arenas[RANKS_MAX];
static uint32_t splits[RANKS_MAX];
static struct pair { uint32_t colour, members; } pairs[SPLITS_MAX][RANKS_MAX]; /* by round, and colour */
static uint32_t pair_count;

static void issue(enum call call, const void *stream, const void *object, uint32_t value, uint32_t message) {
  struct script *script = &scripts[now];
  if (!keeping) {
    return;
  }
  const uint32_t row = vm_now->row == NULL ? vm_now->program->action_count : (uint32_t)(vm_now->row - vm_now->program->actions);
  const struct issue made = {call, row, (uint32_t)(uintptr_t)stream - 1, message, object, value};
  if (call == KERNEL && script->count > 0 && script->issue[script->count - 1].call == KERNEL && script->issue[script->count - 1].row == row &&
      script->issue[script->count - 1].stream == made.stream) {
    return; /* kernels of a row stand for each other */
  }
  if (script->count == script->capacity) {
    script->capacity = 2 * script->capacity + 256;
    script->issue = realloc(script->issue, script->capacity * sizeof *script->issue);
    must(script->issue != NULL, "no memory");
  }
  script->issue[script->count++] = made;
}

/* ---- the device: nothing is done, memory is addresses alone ---- */

static int count(void) { return 1; }
static const char *open_device(int number) { return number == 0 ? "a recorder" : NULL; }
static const char *no_error(void) { return NULL; }
static void kernel(const struct pen_call *call) { issue(KERNEL, call->stream, NULL, 0, PEN_NONE); }
static pen_kernel *kernel_of(enum pen_op_kind kind, enum pen_dtype dtype) { return (void)kind, (void)dtype, kernel; }
static void *prepare(enum pen_op_kind kind, enum pen_dtype dtype, const int64_t *dim, const double *real) {
  return (void)kind, (void)dtype, (void)dim, (void)real, NULL;
}
static void *allocate(size_t bytes) {
  unsigned char *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  must(at != MAP_FAILED, "no addresses");
  arenas[now] = arenas[now] == NULL ? at : arenas[now];
  return at;
}
static void release(void *there) { (void)there; }
static void *stream_open(void) { return (void *)(uintptr_t)++scripts[now].stream_count; }
static void copy_over(void *there, const void *here, size_t bytes, void *stream) { (void)there, (void)here, (void)bytes, (void)stream; }
static void zero(void *there, size_t bytes, void *stream) { (void)there, (void)bytes, issue(KERNEL, stream, NULL, 0, PEN_NONE); }
static void wait_stream(void *stream) { must(!keeping, "the host waits for stream %p within a step", stream); }
static void reduce(double *to, const float *x, size_t n, void *workspace, void *stream) {
  (void)to, (void)x, (void)n, (void)workspace, issue(KERNEL, stream, NULL, 0, PEN_NONE);
}
static void adamw(float *p, float *g, float *m, float *v, uint16_t *copy_there, size_t n, const struct pen_adamw *settings,
                  double decay, void *stream) {
  (void)p, (void)g, (void)m, (void)v, (void)copy_there, (void)n, (void)settings, (void)decay, issue(KERNEL, stream, NULL, 0, PEN_NONE);
}
static void settle(struct pen_adamw *to, const struct pen_adamw *base, const double *board, size_t n, size_t parts, size_t stride, double clip,
                   int greatest, void *stream) {
  (void)to, (void)base, (void)board, (void)n, (void)parts, (void)stride, (void)clip, (void)greatest, issue(KERNEL, stream, NULL, 0, PEN_NONE);
}

static void *pinned(size_t bytes) { return calloc(1, bytes); }

/* The message of this step whose home, or whose source, that is. */
static uint32_t message_at(const void *to, const void *from) {
  const struct pen_profile *profile = vm_now->profile;
  uint32_t found = PEN_NONE;
  for (uint32_t m = 0; vm_now->row != NULL && m < profile->message_count; m++) {
    const struct pen_message *message = &profile->messages[m];
    const struct pen_channel *channel = &profile->channels[message->channel];
    if (m == vm_now->row->message && arenas[channel->to_rank] + message->target_offset == to &&
        arenas[channel->from_rank] + message->source_offset == from) {
      found = m;
    }
  }
  return found;
}

static void copy(void *to, const void *from, size_t bytes, void *stream) {
  const uint32_t message = bytes == 0 ? PEN_NONE : message_at(to, from);
  issue(message == PEN_NONE ? KERNEL : COPY, stream, NULL, 0, message);
}
static void *event_open(void) { return malloc(1); }
static void record(void *event, void *stream) { issue(RECORD, stream, event, 0, PEN_NONE); }
static void follow(void *stream, void *event) { issue(FOLLOW, stream, event, 0, PEN_NONE); }
static int reached(void *event) { return event != NULL; }
static void mark(void *word, uint32_t value, void *stream) { issue(MARK, stream, word, value, PEN_NONE); }
static void await(void *word, uint32_t value, void *stream) { issue(AWAIT, stream, word, value, PEN_NONE); }
static void capture(void *stream) { (void)stream, keeping = true; }
static void *captured(void *stream, const char **why) { return (void)stream, (void)why, keeping = false, &keeping; }
static void replay(void *graph, void *stream) { (void)graph, (void)stream; }
static int share(void *there, unsigned char name[PEN_SHARED_NAME_BYTES]) {
  memcpy(name, &there, sizeof there);
  return 1;
}
static void *reach(const unsigned char name[PEN_SHARED_NAME_BYTES]) {
  void *there;
  memcpy(&there, name, sizeof there);
  return there;
}

static const struct pen_order_calls order = {
    .pinned = pinned, .copy = copy, .event_open = event_open, .record = record, .follow = follow, .reached = reached, .mark = mark,
    .await = await, .capture = capture, .captured = captured, .replay = replay, .share = share, .reach = reach,
};

static const struct pen_device recorder = {
    .name = "recorder", .count = count, .open = open_device, .error = no_error, .kernel_of = kernel_of, .prepare = prepare,
    .allocate = allocate, .release = release, .stream_open = stream_open, .copy_in = copy_over, .copy_out = copy_over, .zero = zero,
    .wait = wait_stream, .sum_squares = reduce, .greatest_magnitude = reduce, .adamw_step = adamw, .settle = settle, .order = &order,
};

/* ---- NCCL ---- */

static int version(void) { return 23203; }
static void make_id(unsigned char id[PEN_NCCL_ID_BYTES]) { memset(id, 7, PEN_NCCL_ID_BYTES); }

static void *open_all(const unsigned char id[PEN_NCCL_ID_BYTES], int rank_count, int rank) {
  must(id[PEN_NCCL_ID_BYTES - 1] == 7 && (uint32_t)rank_count == pen_plan.rank_count && (uint32_t)rank == now, "rank %d joins wrongly", rank);
  return pairs;
}

/* Each round has every colour twice, with the keys 0 and 1. */
static void *split(void *all, int colour, int key) {
  const uint32_t round = splits[now]++;
  must(all == pairs && round < SPLITS_MAX && (key == 0 || key == 1), "rank %u splits wrongly", now);
  if (colour < 0) {
    return NULL;
  }
  uint32_t i = 0;
  while (i < RANKS_MAX && pairs[round][i].members != 0 && pairs[round][i].colour != (uint32_t)colour) {
    i++;
  }
  must(i < RANKS_MAX && (pairs[round][i].members & 1u << key) == 0, "two ranks are %d of the pair %d", key, colour);
  pair_count += pairs[round][i].members == 0;
  pairs[round][i].colour = (uint32_t)colour;
  pairs[round][i].members |= 1u << key;
  return &pairs[round][i];
}

static void enroll(void *communicator, void *there, size_t bytes) { must(communicator && there && bytes, "nothing to register"); }
static void nccl_send(void *communicator, const void *from, size_t bytes, int to, void *stream) {
  (void)from, (void)bytes, must(to == 1, "a pair sends to %d", to);
  issue(SEND, stream, communicator, 0, vm_now->row == NULL ? PEN_NONE : vm_now->row->message);
}
static void nccl_receive(void *communicator, void *to, size_t bytes, int from, void *stream) {
  (void)to, (void)bytes, must(from == 0, "a pair receives from %d", from);
  issue(RECEIVE, stream, communicator, 0, vm_now->row == NULL ? PEN_NONE : vm_now->row->message);
}
/* Each of a pair has a signal of the other: they go by the places behind the communicator's. */
static const void *signal_of(const void *communicator, int to) { return (const unsigned char *)communicator + to; }

static void *window(void *communicator, void *there, size_t bytes) {
  must(bytes == pen_plan.memory[now].arena_bytes, "a window of rank %u has %zu bytes", now, bytes);
  return there == arenas[now] ? communicator : NULL;
}

static void put(void *communicator, const void *from, size_t bytes, int to, void *there, size_t offset, void *stream) {
  must(to == 1 && there == communicator, "a pair puts to %d", to);
  if (keeping) {
    const struct pen_message *message = &vm_now->profile->messages[vm_now->row->message];
    must(offset == message->target_offset && bytes == message->bytes && from == arenas[now] + message->source_offset, "another's message is put");
  }
  issue(PUT, stream, signal_of(communicator, to), 0, vm_now->row == NULL ? PEN_NONE : vm_now->row->message);
}
static void signal_to(void *communicator, int to, void *stream) {
  issue(SIGNAL, stream, signal_of(communicator, to), 0, vm_now->row == NULL ? PEN_NONE : vm_now->row->message);
}
static void take(void *communicator, int from, void *stream) {
  issue(TAKE, stream, signal_of(communicator, 1 - from), 0, vm_now->row == NULL ? PEN_NONE : vm_now->row->message);
}

static void total(void *communicator, double *here, size_t n, void *stream) { /* as if all others said the same, and loudly */
  (void)communicator, (void)stream;
  for (size_t i = 0; i < n; i++) {
    here[i] *= 1e9;
  }
}
static void sum(void *communicator, double *there, size_t n, void *stream) { (void)there, (void)n, issue(SUM, stream, communicator, 0, PEN_NONE); }
static uint64_t memory_bytes(void) { return 0; }
static const char *no_trouble(void *communicator) { return (void)communicator, NULL; }
static void no_abort(void *communicator) { (void)communicator; }

static const struct pen_nccl_calls sends = {
    .version = version, .make_id = make_id, .open = open_all, .split = split, .enroll = enroll, .send = nccl_send, .receive = nccl_receive,
    .sum = sum, .total = total, .memory_bytes = memory_bytes, .error = no_error, .forget = no_error, .trouble = no_trouble, .abort = no_abort,
};

static const struct pen_nccl_calls puts_too = {
    .version = version, .make_id = make_id, .open = open_all, .split = split, .enroll = enroll, .send = nccl_send, .receive = nccl_receive,
    .window = window, .put = put, .signal = signal_to, .await = take, .sum = sum, .total = total, .memory_bytes = memory_bytes,
    .error = no_error, .forget = no_error, .trouble = no_trouble, .abort = no_abort,
};

/* ---- the record ---- */

uint32_t rehearsal_pairs(void) { return pair_count; }

static struct pen_link *open_link(enum link link, struct pen_queue *queue, const struct pen_shared *shared) {
  const struct pen_profile *profile = &pen_plan.profiles[0];
  return link == LINK_IPC ? pen_ipc_open(queue, profile, shared, now)
                          : pen_nccl_open_with(link == LINK_PUTS ? &puts_too : &sends, queue, profile, shared, now);
}

struct script *rehearsal_record(enum link link) {
  const struct pen_plan *plan = &pen_plan;
  static struct pen_vm vms[RANKS_MAX];
  static struct pen_transport ends[RANKS_MAX];
  struct pen_shared shared;
  struct pen_data data = {0};
  must(plan->rank_count <= RANKS_MAX, "%u ranks", plan->rank_count);
  memset(arenas, 0, sizeof arenas), memset(splits, 0, sizeof splits), memset(pairs, 0, sizeof pairs), pair_count = 0;
  scripts = calloc(plan->rank_count, sizeof *scripts);
  pen_shared_open(&shared, plan);
  for (now = 0; now < plan->rank_count; now++) {
    const char *what;
    struct pen_queue *queue = pen_queue_open(plan, now, 0, &recorder, &what);
    ends[now] = (struct pen_transport){.plan = plan, .profile = &plan->profiles[0], .shared = &shared, .self = &shared.ranks[now], .rank = now,
                                        .global = now};
    pen_vm_open(&vms[now], plan, &plan->profiles[0], now, queue->arena, &ends[now], queue, &data, NULL);
    vms[now].queued.link = open_link(link, queue, &shared);
    vm_now = &vms[now];
    vms[now].queued.link->kind->offer(vms[now].queued.link);
  }
  for (now = 0; now < plan->rank_count; now++) {
    vm_now = &vms[now];
    pen_queue_ready(&vms[now]);
    must(splits[now] == splits[0], "rank %u makes %u splits, rank 0 %u", now, splits[now], splits[0]);
  }
  for (uint32_t r = 0; r < SPLITS_MAX; r++) {
    for (uint32_t i = 0; i < RANKS_MAX; i++) {
      must(pairs[r][i].members == 0 || pairs[r][i].members == 3, "a pair of round %u has one rank alone", r);
    }
  }
  return scripts;
}
