/* emulate_streams.cc: CUDA's streams, events, graphs and memory between processes, for kernels that
 * emulate.cc runs on the host.
 *
 * A call on a stream is queued, and executed as late as possible: when a thread waits, or asks
 * whether an event is reached. Then the streams take turns in an order that changes from call to
 * call, so that calls that are only accidentally in order, on the host or between streams, fail
 * sooner or later. A captured call is kept in the graph, with its stream; in a replay the graph's
 * streams take turns likewise. A call is a node of it, which depends on others as in CUDA: on the
 * call before on its stream, and on those before the events that the stream waits for. Words
 * (emulate_words.cc) that another process is to write are waited for in turn, too;
 * a query of an event returns before they are written. What CUDA refuses is refused: a wait during
 * a capture, a capture whose streams are not joined, in a capture copies of memory that is not
 * pinned and code that was not used before. A stream holds a limited number of calls, and then
 * blocks the caller.
 * PEN_EMULATED_SLOW=MS: each call takes the device so many milliseconds. PEN_EMULATED_COPIES=FILE:
 * the bytes of each copy from the host's memory are added to the file, a line each.
 * PEN_EMULATED_NO_GRAPH=1: nothing can be captured; =branches: only what is on one stream; =pinned:
 * no write of a word of the host.
 *
 * Several threads may call, one at a time: a caller that waits executes the calls of all streams
 * that can be executed, those of other threads too. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/emulation/emulate.h"

namespace emulated {
namespace {

enum kind { RUN, SIGNAL, WAIT, POLL, REPLAY };

struct item {
  enum kind kind;
  std::function<void()> body; /* RUN */
  uint64_t token;             /* SIGNAL, WAIT */
  std::function<bool()> poll; /* POLL: done when it returns true; REPLAY: executes a part of a
                                 graph, and returns whether there was progress */
  std::function<bool()> over; /* REPLAY: none of it is left */
  const char *name = NULL;    /* RUN: of a kernel; of copies to other processes */
};

typedef std::deque<item> strand;

/* A node of a graph, and on which nodes it depends, by their numbers. */
struct node {
  const char *name;
  std::set<size_t> after;
};

/* The strands of a graph; tokens are those of the capture. All items but events are nodes. */
struct graph {
  std::vector<strand> strands;
  std::vector<node> nodes;
};

struct stream {
  strand items;
  int captured_strand = -1; /* in the graph that is captured; -1: none */
};

struct emulated_event {
  uint64_t token = 0; /* of the last record; 0: none */
  bool in_capture = false;
};

std::vector<stream *> streams;
std::set<uint64_t> signalled; /* live tokens */
uint64_t last_token;
std::unique_ptr<graph> capturing;
unsigned graphs;    /* ready */
unsigned under_way; /* replays */
stream *origin;
bool broken_capture;
char refusal[200];                 /* of the last capture that was refused */
std::set<std::string> loaded_code; /* see use_code() */
std::vector<uint64_t> strand_last; /* for each strand: the number of its last item; joined when the
                                      origin has waited for a signal after it */
std::vector<uint64_t> strand_joined;
std::vector<std::set<size_t>> strand_after; /* for each strand: what its next node depends on */
struct captured_event {
  int strand;
  uint64_t items;         /* before it */
  std::set<size_t> after; /* what it depends on */
};
std::map<uint64_t, captured_event> captured_signal; /* by token */
size_t held_bytes; /* of the device's memory, by what is no allocation */
uint64_t turn_seed = 88172645463325252u;
std::map<void *, size_t> pinned_blocks;

std::recursive_mutex calls; /* held in each; not while all wait for another process */
typedef std::lock_guard<std::recursive_mutex> call;

unsigned draw(unsigned below) {
  turn_seed ^= turn_seed << 13, turn_seed ^= turn_seed >> 7, turn_seed ^= turn_seed << 17;
  return (unsigned)(turn_seed >> 33) % below;
}

/* What has failed in the device: nothing; "stall", all of it; "memory"; or the calls with that name
 * (see item) stall. */
char wrong[40];
const char *const wrong_path = getenv("PEN_EMULATED_WRONG"); /* removed when a call stalls */

void see_what_is_wrong() {
  FILE *file = wrong_path == NULL || wrong[0] != '\0' ? NULL : fopen(wrong_path, "r");
  int process = 0;
  char word[sizeof wrong] = "";
  if (file != NULL && fscanf(file, "%d %39s", &process, word) == 2 && process == getpid())
    memcpy(wrong, word, sizeof wrong);
  if (file != NULL) fclose(file);
}

bool stalls(const item &what) {
  static bool told;
  const bool works = what.kind == RUN || what.kind == POLL;
  const bool does = works && (strcmp(wrong, "stall") == 0 ||
                              (what.name != NULL && strcmp(wrong, what.name) == 0));
  if (does && !told) told = true, unlink(wrong_path);
  return does;
}

/* Whether the device can begin a call: a slow one may still execute the last. */
bool is_free() {
  static const char *slow_ms = getenv("PEN_EMULATED_SLOW");
  static std::chrono::steady_clock::time_point end;
  const auto now = std::chrono::steady_clock::now();
  const bool begins = now >= end;
  if (begins && slow_ms != NULL) end = now + std::chrono::milliseconds(atoi(slow_ms));
  return begins;
}

/* Executes the head of a strand, if it can be executed; of a graph, a part. */
bool advance(strand &l, std::set<uint64_t> &done) {
  item &head = l.front();
  bool moved = true;
  if (stalls(head)) return false;
  if ((head.kind == WAIT && done.count(head.token) == 0) || (head.kind == POLL && !head.poll()))
    return false;
  if (head.kind == RUN) {
    if (!is_free()) return false;
    head.body();
  }
  if (head.kind == SIGNAL) done.insert(head.token);
  if (head.kind == REPLAY) moved = head.poll();
  if (head.kind != REPLAY || head.over()) l.pop_front();
  return moved;
}

bool all_empty(const std::vector<strand *> &strands) {
  for (const strand *l : strands)
    if (!l->empty()) return false;
  return true;
}

/* One turn of a strand: some of its items. False: none could be executed. */
bool take_turn(const std::vector<strand *> &strands, std::set<uint64_t> &done) {
  strand &l = *strands[draw((unsigned)strands.size())];
  bool moved = false;
  for (unsigned n = 1 + draw(8); n > 0 && !l.empty() && advance(l, done); n--) moved = true;
  return moved;
}

enum {
  STUCK_TURNS = 16
}; /* for each strand: after so many turns without progress only another process can continue */

/* Lets strands take turns until no call can be executed without another process; returns whether
 * any was. */
bool settle(const std::vector<strand *> &strands, std::set<uint64_t> &done) {
  bool any = false;
  for (unsigned idle = 0; !all_empty(strands) && idle < STUCK_TURNS * strands.size(); idle++)
    if (take_turn(strands, done)) any = true, idle = 0;
  return any;
}

/* Lets strands take turns, some items at a time, until `over` returns true. */
template <class OVER>
void drain_until(const std::vector<strand *> &strands, std::set<uint64_t> &done, OVER over) {
  unsigned idle = 0;
  while (!over()) {
    idle = take_turn(strands, done) ? 0 : idle + 1;
    if (idle > STUCK_TURNS * strands.size()) { /* another process is to write a word */
      see_what_is_wrong();
      calls.unlock();
      rest(idle);
      calls.lock();
      if (idle > 2000 * 1000) fail("streams wait for each other");
    }
  }
}

/* Until one of them, or all (which < 0), are empty. */
void drain(const std::vector<strand *> &strands, std::set<uint64_t> &done, int which) {
  drain_until(strands, done,
              [&] { return which < 0 ? all_empty(strands) : strands[(size_t)which]->empty(); });
}

std::vector<strand *> all_strands() {
  std::vector<strand *> strands;
  for (stream *s : streams) strands.push_back(&s->items);
  return strands;
}

void drain_stream(stream *s) {
  for (size_t i = 0; i < streams.size(); i++)
    if (streams[i] == s) drain(all_strands(), signalled, (int)i);
}

enum {
  DEPTH = 256
}; /* calls that a stream holds: the caller of one more blocks until there is room (in CUDA about a
      thousand) */

item run_item(std::function<void()> body, const char *name) {
  return {RUN, std::move(body), 0, nullptr, nullptr, name};
}
item token_item(enum kind kind, uint64_t token) { return {kind, nullptr, token, nullptr, nullptr}; }

void add(stream *s, item what) {
  if (!device_chosen) fail("a call by a thread that has chosen no device");
  if (s->captured_strand < 0) {
    drain_until(all_strands(), signalled, [=] { return s->items.size() < DEPTH; });
    s->items.push_back(std::move(what));
    return;
  }
  strand &l = capturing->strands[(size_t)s->captured_strand];
  l.push_back(std::move(what));
  strand_last[(size_t)s->captured_strand] = l.size();
}

/* What is added next to a stream that is captured is a node. */
void begin_node(stream *s, const char *name) {
  if (s->captured_strand < 0) return;
  std::set<size_t> &after = strand_after[(size_t)s->captured_strand];
  capturing->nodes.push_back({name, after});
  after = {capturing->nodes.size() - 1};
}

stream *stream_of(cudaStream_t s) {
  if (s == NULL) fail("the default stream, which every stream waits for");
  return (stream *)s;
}

void join_capture(stream *s) {
  s->captured_strand = (int)capturing->strands.size();
  capturing->strands.emplace_back();
  strand_last.push_back(0);
  strand_joined.push_back(0);
  strand_after.push_back({});
}

cudaError_t refuse() {
  refuse_capture();
  return cudaErrorStreamCaptureUnsupported;
}

} // namespace

void enqueue(void *stream_pointer, std::function<void()> body, const char *name) {
  const call held(calls);
  stream *on = stream_of((cudaStream_t)stream_pointer);
  begin_node(on, name);
  add(on, run_item(std::move(body), name));
}

void enqueue_poll(void *stream_pointer, std::function<bool()> poll, const char *name) {
  const call held(calls);
  stream *on = stream_of((cudaStream_t)stream_pointer);
  begin_node(on, name);
  add(on, {POLL, nullptr, 0, std::move(poll), nullptr});
}

bool is_captured(void *stream_pointer) {
  const call held(calls);
  return stream_of((cudaStream_t)stream_pointer)->captured_strand >= 0;
}

/* The first reason counts. */
void refuse_capture(const char *why) {
  if (!broken_capture) snprintf(refusal, sizeof refusal, "%s", why);
  broken_capture = true;
}

const char *why_refused() { return refusal; }

void use_code(void *stream_pointer, const char *name, const void *code, size_t bytes) {
  const call held(calls);
  const std::string key((const char *)code, bytes);
  char why[sizeof refusal];
  snprintf(why, sizeof why, "%s is first used, and so loaded, in a capture", name);
  if (!is_captured(stream_pointer))
    loaded_code.insert(key);
  else if (loaded_code.count(key) == 0)
    refuse_capture(why);
}

bool is_refused(const char *what) {
  const char *refused = getenv("PEN_EMULATED_NO_GRAPH");
  return refused != NULL && strcmp(refused, what) == 0;
}

bool is_pinned(const void *at) {
  for (const auto &block : pinned_blocks)
    if (at >= block.first && (const char *)at < (const char *)block.first + block.second)
      return true;
  return false;
}

void hold(size_t bytes) { held_bytes += bytes; }

bool has_graph() { return graphs > 0; }

bool replays() {
  const call held(calls);
  return under_way > 0;
}

} // namespace emulated

using namespace emulated;

/* ---- memory of the device: shared, so that other processes can open it ---- */

struct device_block {
  int file;
  size_t bytes, whole;
};

static std::map<void *, device_block> &blocks() {
  static std::map<void *, device_block> map;
  return map;
}

enum { PAGE = 4096 };

bool emulated::is_own(const void *at) {
  const auto past = blocks().upper_bound((void *)at);
  return past != blocks().begin() &&
         (const char *)at < (const char *)std::prev(past)->first + std::prev(past)->second.bytes;
}

/* Maps a file and a page without access after it; the allocation ends there, aligned to 64 bytes
 * only, as tensors in an arena are. */
static void *map_block(int file, size_t bytes) {
  const size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
  unsigned char *at = (unsigned char *)mmap(NULL, whole + PAGE, PROT_NONE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED ||
      mmap(at, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
    fail("no memory");
  return at + whole - (bytes + 63) / 64 * 64;
}

extern "C" {

cudaError_t cudaMalloc(void **made, size_t bytes) {
  bytes += bytes == 0;
  const size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
  const int file = memfd_create("emulated", MFD_CLOEXEC);
  if (capturing != NULL || file < 0 || ftruncate(file, (off_t)whole) != 0)
    return cudaErrorMemoryAllocation;
  *made = map_block(file, bytes);
  memset(*made, 0x7f,
         bytes < 1 << 20
             ? bytes
             : 1 << 20); /* large numbers, so that memory that is not written is noticed */
  blocks()[*made] = {file, bytes, whole};
  return cudaSuccess;
}

cudaError_t cudaFree(void *at) {
  const call held(calls);
  const auto found = blocks().find(at);
  if (at == NULL) return cudaSuccess;
  if (found == blocks().end()) return cudaErrorInvalidValue;
  drain(all_strands(), signalled, -1);
  munmap((void *)((uintptr_t)at / PAGE * PAGE), found->second.whole + PAGE);
  close(found->second.file);
  blocks().erase(found);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **made, size_t bytes, unsigned) {
  if (posix_memalign(made, PAGE, bytes) != 0) return cudaErrorMemoryAllocation;
  pinned_blocks[*made] = bytes;
  return cudaSuccess;
}

struct block_handle {
  int process, file;
  size_t bytes;
};

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *at) {
  const auto found = blocks().find(at);
  if (found == blocks().end()) return cudaErrorInvalidValue;
  const block_handle n = {getpid(), found->second.file, found->second.bytes};
  memset(handle, 0, sizeof *handle);
  memcpy(handle, &n, sizeof n);
  return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **made, cudaIpcMemHandle_t handle, unsigned) {
  block_handle n;
  char path[64];
  memcpy(&n, &handle, sizeof n);
  snprintf(path, sizeof path, "/proc/%d/fd/%d", n.process, n.file);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (n.process == getpid() || file < 0)
    return cudaErrorInvalidValue; /* CUDA does not open a process's own memory */
  *made = map_block(file, n.bytes);
  close(file);
  return cudaSuccess;
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *made, unsigned) {
  const call held(calls);
  streams.push_back(new stream);
  *made = (cudaStream_t)streams.back();
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  const call held(calls);
  if (stream_of(s)->captured_strand >= 0) return refuse();
  drain_stream(stream_of(s));
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
  const call held(calls);
  drain(all_strands(), signalled, -1);
  return cudaSuccess;
}

static void note_copy(cudaMemcpyKind kind, size_t bytes) {
  static const char *path = getenv("PEN_EMULATED_COPIES");
  static FILE *file = path == NULL ? NULL : fopen(path, "a");
  if (file != NULL && kind == cudaMemcpyHostToDevice) {
    fprintf(file, "%zu\n", bytes);
    fflush(file);
  }
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t result = cudaDeviceSynchronize();
  note_copy(kind, bytes);
  memcpy(to, from, bytes);
  return result;
}

/* A word is written in one store: another process may wait for it, and write it again at once. */
static void bf16_bytes(void *to, const void *from, size_t bytes) {
  if (bytes == sizeof(uint32_t))
    __atomic_store_n((uint32_t *)to, *(const uint32_t *)from, __ATOMIC_SEQ_CST);
  else
    memmove(to, from, bytes);
}

/* Memory that is not pinned is copied to the device at once, and a copy from the device is waited
 * for. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s) {
  const call held(calls);
  const bool out = kind == cudaMemcpyDeviceToHost, in = kind == cudaMemcpyHostToDevice;
  const bool plain = (in && !is_pinned(from)) || (out && !is_pinned(to));
  if (plain && stream_of(s)->captured_strand >= 0) return refuse();
  note_copy(kind, bytes);
  if (in && plain) {
    std::shared_ptr<std::vector<char>> kept(
        new std::vector<char>((const char *)from, (const char *)from + bytes));
    enqueue(
        s, [=] { memcpy(to, kept->data(), bytes); }, "copy");
  } else {
    enqueue(
        s, [=] { bf16_bytes(to, from, bytes); }, out || is_own(to) ? "copy" : "copies");
  }
  if (plain) drain_stream(stream_of(s));
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s) {
  enqueue(
      s, [=] { memset(to, value, bytes); }, "clear");
  return cudaSuccess;
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *made, unsigned) {
  *made = (cudaEvent_t) new emulated_event;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *made) { return cudaEventCreateWithFlags(made, 0); }

cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  while (cudaEventQuery(e) == cudaErrorNotReady) continue;
  return cudaSuccess;
}

/* There is no device time: any two events are a millisecond apart. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t) {
  return *ms = 1, cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  const call held(calls);
  emulated_event *what = (emulated_event *)e;
  stream *on = stream_of(s);
  what->token = ++last_token;
  what->in_capture = on->captured_strand >= 0;
  add(on, token_item(SIGNAL, what->token));
  if (what->in_capture)
    captured_signal[what->token] = {on->captured_strand, strand_last[(size_t)on->captured_strand],
                                    strand_after[(size_t)on->captured_strand]};
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  const call held(calls);
  emulated_event *what = (emulated_event *)e;
  stream *on = stream_of(s);
  if (what->token == 0) return cudaSuccess; /* never recorded: nothing to wait for */
  if (what->in_capture && capturing != NULL && on->captured_strand < 0) join_capture(on);
  if (what->in_capture != (on->captured_strand >= 0)) return refuse();
  add(on, token_item(WAIT, what->token));
  if (what->in_capture) {
    const auto &signal = captured_signal[what->token];
    if (strand_joined[(size_t)signal.strand] < signal.items)
      strand_joined[(size_t)signal.strand] = signal.items;
    strand_after[(size_t)on->captured_strand].insert(signal.after.begin(), signal.after.end());
  }
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e) {
  const call held(calls);
  emulated_event *what = (emulated_event *)e;
  if (what->token == 0 || signalled.count(what->token)) return cudaSuccess;
  see_what_is_wrong();
  if (strcmp(wrong, "memory") == 0) return cudaErrorECCUncorrectable;
  static unsigned asked, unmoved;
  if (++asked % 3 != 0) /* not yet: a host that does not ask again continues too early */
    return cudaErrorNotReady;
  const bool moved = settle(all_strands(), signalled);
  if (signalled.count(what->token)) return cudaSuccess;
  unmoved = moved ? 0 : unmoved + 1;
  if (!moved) rest(unmoved);
  return cudaErrorNotReady;
}

/* ---- graphs ---- */

enum { NODE_BYTES = 4 << 10 }; /* of the device's memory, in a graph that is ready */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  capturing.reset(new graph);
  strand_last.clear(), strand_joined.clear(), strand_after.clear(), captured_signal.clear();
  broken_capture = false;
  if (is_refused("1")) refuse_capture(); /* as with a driver or a library that cannot be captured */
  origin = stream_of(s);
  join_capture(origin);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *made) {
  bool joined = stream_of(s) == origin;
  for (size_t i = 1; i < strand_last.size(); i++) joined &= strand_joined[i] == strand_last[i];
  for (stream *each : streams) each->captured_strand = -1;
  broken_capture |= is_refused("branches") && strand_last.size() > 1;
  *made = NULL;
  if (broken_capture || !joined) {
    capturing.reset();
    return broken_capture ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
  }
  *made = (cudaGraph_t)capturing.release();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t from, unsigned long long) {
  *made = (cudaGraphExec_t) new graph(*(graph *)from);
  graphs++;
  hold(((graph *)from)->nodes.size() * NODE_BYTES);
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *, size_t *count) {
  return *count = ((const graph *)g)->nodes.size(), cudaSuccess;
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t g, const char *path, unsigned) {
  FILE *file = fopen(path, "w");
  if (file == NULL) return cudaErrorOperatingSystem;
  const std::vector<node> &nodes = ((const graph *)g)->nodes;
  fprintf(file, "digraph {\n");
  for (size_t i = 0; i < nodes.size(); i++) {
    fprintf(file, "n%zu [label=\"%s\"]\n", i, nodes[i].name);
    for (size_t before : nodes[i].after) fprintf(file, "n%zu -> n%zu\n", before, i);
  }
  fprintf(file, "}\n");
  return fclose(file) == 0 ? cudaSuccess : cudaErrorOperatingSystem;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *all) {
  *left = ((size_t)1 << 33) - held_bytes;
  return *all = (size_t)1 << 34, cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g) {
  held_bytes -= ((graph *)g)->nodes.size() * NODE_BYTES;
  delete (graph *)g;
  graphs--;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g) {
  delete (graph *)g;
  return cudaSuccess;
}

/* A running graph: what is left of its strands. */
struct replay {
  graph left;
  std::set<uint64_t> done;
  std::vector<strand *> strands;
};

cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t s) {
  const call held(calls);
  std::shared_ptr<replay> run(new replay{*(const graph *)g, {}, {}});
  for (strand &l : run->left.strands) run->strands.push_back(&l);
  under_way++;
  add(stream_of(s), {REPLAY, nullptr, 0, [=] { return settle(run->strands, run->done); },
                     [=] { return all_empty(run->strands) && under_way-- > 0; }});
  return cudaSuccess;
}

/* For the library under product.c, in C. */
void emulated_use_code(void *stream_pointer, const char *name, const void *code, size_t bytes) {
  use_code(stream_pointer, name, code, bytes);
}

void emulated_enqueue(void *stream_pointer, void (*body)(void *), const void *context,
                      size_t bytes) {
  std::shared_ptr<std::vector<char>> kept(
      new std::vector<char>((const char *)context, (const char *)context + bytes));
  enqueue(
      stream_pointer, [=] { body(kept->data()); }, "product");
}
}
