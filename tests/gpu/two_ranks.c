/* two_ranks.c: two ranks in one process, each with a graph of one 1F1B step of four microbatches:
 * the copies, semaphores, events and progress counters that runtime/comm/ipc.c and
 * runtime/device/graph.c capture, with one receive slot and a credit for each message. Both graphs
 * run at the same time. There is no other process, no memory of one, and no time slice: a failure
 * is one of waits in graphs alone.
 *
 * If the steps do not end within the patience, another stream sets the semaphores until they do, so
 * that the test fails and the program goes on. */
#include "tests/gpu/two_ranks.h"

#include <time.h>
#include <unistd.h>

#include "kernels/cuda/cuda.h"
#include "tests/gpu/device.h"

enum { RANKS = 2, MICROBATCHES = 4, COUNT = 1024 };

/* The actions of each rank, as KIND MICROBATCH: r receives into a slot (returns its credit), w
 * waits for the arrival, s sends, F and B compute. */
static const char *const schedule[RANKS] = {
    "r0 F0 s0 F1 s1 w0 B0 r1 F2 s2 w1 B1 r2 F3 s3 w2 B2 r3 w3 B3",
    "r0 w0 F0 r1 B0 s0 w1 F1 r2 B1 s1 w2 F2 r3 B2 s2 w3 F3 B3 s3",
};
/* Rank 0 waits for the gradient of a microbatch that it sends afterwards. */
static const char *const deadlock[RANKS] = {"r0 F0 w0 s0", "r0 w0 F0 B0 s0"};

/* The memory of a rank, on the device. */
struct arena {
  float slot[COUNT], input[MICROBATCHES][COUNT], kept[MICROBATCHES][COUNT];
  float weight[COUNT], sent[COUNT], sum[COUNT];
  uint32_t semaphore[2][MICROBATCHES]; /* of arrivals, of credits */
};
enum { ARRIVAL, CREDIT };
enum { SENT, DONE }; /* the progress counters */

struct rank {
  int number;
  bool marked;
  struct arena *own, *far;
  void *compute, *send; /* streams */
  void *ready, *sent[MICROBATCHES], *ended;
  uint32_t *progress; /* pinned */
  void *graph;
};

/* ---- actions ---- */

static void add(float *to, const float *x, const float *y, void *on) {
  const struct pen_call call = {
      .operand = {(void *)x, (void *)y, to}, .dim = {COUNT}, .stream = on};
  pen_cuda.kernel_of(PEN_OP_ADD, PEN_F32)(&call);
}

static void take(uint32_t *semaphore, void *on) { pen_cuda.take(&semaphore, 1, on); }

static void send_stream_follows(const struct rank *r) {
  pen_cuda.event_record(r->ready, r->compute);
  pen_cuda.stream_wait_event(r->send, r->ready);
}

static void send_message(const struct rank *r, int microbatch) {
  send_stream_follows(r);
  take(&r->own->semaphore[CREDIT][microbatch], r->send);
  pen_cuda.copy(r->far->slot, r->own->sent, sizeof r->own->sent, r->send);
  pen_cuda.signal_remote(&r->far->semaphore[ARRIVAL][microbatch], r->send);
  pen_cuda.event_record(r->sent[microbatch], r->send);
}

/* What is computed replaces what was sent. */
static void send_of(const struct rank *r, int microbatch, const float *x) {
  if (microbatch > 0) pen_cuda.stream_wait_event(r->compute, r->sent[microbatch - 1]);
  add(r->own->sent, x, r->own->weight, r->compute);
}

/* Rank 0 sends input + weight. Rank 1 keeps what comes + its weight, and sends that + its weight.
 * Rank 0 adds up what comes back. */
static void compute(const struct rank *r, char kind, int microbatch) {
  struct arena *own = r->own;
  if (r->number == 0 && kind == 'F') send_of(r, microbatch, own->input[microbatch]);
  if (r->number == 0 && kind == 'B') add(own->sum, own->sum, own->slot, r->compute);
  if (r->number == 1 && kind == 'F') add(own->kept[microbatch], own->slot, own->weight, r->compute);
  if (r->number == 1 && kind == 'B') send_of(r, microbatch, own->kept[microbatch]);
}

static void enqueue_action(const struct rank *r, char kind, int microbatch, uint32_t done) {
  if (kind == 's') send_message(r, microbatch);
  if (kind == 'w') take(&r->own->semaphore[ARRIVAL][microbatch], r->compute);
  if (kind == 'r') {
    send_stream_follows(r);
    pen_cuda.signal_remote(&r->far->semaphore[CREDIT][microbatch], r->send);
  }
  compute(r, kind, microbatch);
  if (r->marked && (kind == 's' || kind == 'r')) pen_cuda.signal(&r->progress[SENT], done, r->send);
  if (r->marked) pen_cuda.signal(&r->progress[DONE], done, r->compute);
}

/* A step; at its end the weight is doubled, so that what is left of the last step gives other
 * values. */
static void enqueue_step(const struct rank *r, const char *actions) {
  for (uint32_t n = 0; n == 0 || actions[3 * n - 1] == ' '; n++)
    enqueue_action(r, actions[3 * n], actions[3 * n + 1] - '0', n + 1);
  add(r->own->weight, r->own->weight, r->own->weight, r->compute);
  pen_cuda.event_record(r->ready, r->send);
  pen_cuda.stream_wait_event(r->compute, r->ready);
  for (int i = SENT; i <= DONE && r->marked; i++) pen_cuda.signal(&r->progress[i], 0, r->compute);
}

/* ---- a run ---- */

static float input_of(int microbatch, int i) { return (float)(10 * microbatch + i % 7); }
static float weight_of(int rank, int i) { return (float)(1 + rank + i % 5); }

static void open_rank(struct rank *r, int number, bool marked) {
  struct arena here = {0};
  for (int i = 0; i < COUNT; i++) {
    here.weight[i] = weight_of(number, i);
    for (int m = 0; m < MICROBATCHES; m++) here.input[m][i] = input_of(m, i);
  }
  *r = (struct rank){.number = number,
                     .marked = marked,
                     .own = sent(&here, sizeof here),
                     .compute = pen_cuda.stream_create(),
                     .ready = pen_cuda.event_create(),
                     .ended = pen_cuda.event_create(),
                     .progress = pen_cuda.allocate_host(2 * sizeof *r->progress)};
  r->send = marked ? pen_cuda.stream_create() : r->compute;
  for (int m = 0; m < MICROBATCHES; m++) r->sent[m] = pen_cuda.event_create();
  memset(r->progress, 0, 2 * sizeof *r->progress);
  add(r->own->kept[0], r->own->input[0], r->own->input[0], r->compute); /* loads the kernel */
  pen_cuda.stream_synchronize(r->compute);
  assert_well("opening a rank");
}

static void capture_step(struct rank *r, const char *actions) {
  const char *why = NULL;
  pen_cuda.capture_begin(r->compute);
  enqueue_step(r, actions);
  r->graph = pen_cuda.capture_end(r->compute, &why);
  if (r->graph == NULL) fail_msg("not captured: %s", why);
}

static void launch(const struct rank ranks[RANKS], int steps) {
  for (int n = 0; n < RANKS * steps; n++)
    pen_cuda.graph_launch(ranks[n % RANKS].graph, ranks[n % RANKS].compute);
  for (int n = 0; n < RANKS; n++) pen_cuda.event_record(ranks[n].ended, ranks[n].compute);
}

/* Have all events been reached, at the latest after so many seconds? */
static bool reached(void *const *events, int count, int seconds) {
  const time_t begin = time(NULL);
  int n = 0;
  do n += n < count && pen_cuda.event_query(events[n]);
  while (n < count && time(NULL) - begin <= seconds);
  return n == count;
}

static bool both_ended(const struct rank ranks[RANKS], int seconds) {
  return reached((void *[]){ranks[0].ended, ranks[1].ended}, RANKS, seconds);
}

/* Sets all semaphores, again and again, until both ranks have ended. */
static void release_ranks(const struct rank ranks[RANKS], void *rescue) {
  enum { ROUNDS = 20, PATIENCE_S = 5 };
  void *written = pen_cuda.event_create();
  bool well = true;
  for (int round = 0; round < ROUNDS && well && !both_ended(ranks, 0); round++) {
    for (int n = 0; n < RANKS * 2 * MICROBATCHES; n++)
      pen_cuda.signal(&ranks[n % RANKS].own->semaphore[0][n / RANKS], 1, rescue);
    pen_cuda.event_record(written, rescue);
    well = reached(&written, 1, PATIENCE_S);
  }
  if (both_ended(ranks, 0)) return;
  printf("Bail out! streams that wait are not released by writes of another stream\n");
  fflush(stdout);
  _exit(1);
}

/* Runs these steps of both ranks; did they end by themselves? */
static bool run_ranks(struct rank ranks[RANKS], const char *const *actions, bool marked, int steps,
                      int patience_s) {
  void *rescue = pen_cuda.stream_create();
  stream = pen_cuda.stream_create();
  for (int n = 0; n < RANKS; n++) open_rank(&ranks[n], n, marked);
  for (int n = 0; n < RANKS; n++) {
    ranks[n].far = ranks[1 - n].own;
    capture_step(&ranks[n], actions[n]);
  }
  launch(ranks, steps);
  const bool ended = both_ended(ranks, patience_s);
  if (!ended) release_ranks(ranks, rescue);
  for (int n = 0; n < RANKS; n++) pen_cuda.graph_destroy(ranks[n].graph);
  assert_well("the steps of two ranks");
  return ended;
}

static void check_values(const struct rank ranks[RANKS], int steps) {
  static struct arena here;
  fetch(&here, ranks[0].own, sizeof here);
  for (int i = 0; i < COUNT; i++) {
    float expected = 0;
    for (int n = 0; n < steps * MICROBATCHES; n++)
      expected += input_of(n % MICROBATCHES, i) +
                  (weight_of(0, i) + 2 * weight_of(1, i)) * (float)(1 << n / MICROBATCHES);
    if (here.sum[i] != expected)
      fail_msg("element %d of the sum is %g, and not %g", i, here.sum[i], expected);
  }
  for (int n = 0; n < RANKS; n++)
    assert_true(ranks[n].progress[SENT] == 0 && ranks[n].progress[DONE] == 0);
}

static void two_ranks(void **state, bool marked) {
  enum { STEPS = 3, PATIENCE_S = EMULATED ? 120 : 5 };
  struct rank ranks[RANKS];
  if (!run_ranks(ranks, schedule, marked, STEPS, PATIENCE_S))
    fail_msg("two graphs that wait for each other have not ended after %d s", PATIENCE_S);
  check_values(ranks, STEPS);
  tidy(state);
}

void two_ranks_in_one_process_marked(void **state) { two_ranks(state, true); }

void two_ranks_in_one_process_serial(void **state) { two_ranks(state, false); }

void two_ranks_that_wait_for_each_other(void **state) {
  struct rank ranks[RANKS];
  assert_false(run_ranks(ranks, deadlock, false, 1, 0));
  tidy(state);
}
