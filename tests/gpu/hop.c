/* hop.c: the cost of a message between two processes, with the calls of the transport ipc
 * (device.h): bytes are copied to the memory of the other process, then a semaphore is set there,
 * for which its stream waits. Both processes enqueue all rounds of a size after a semaphore that
 * the host sets later, so that only the time on the GPU is measured: one-way microseconds, half of
 * a round trip, and bytes a second. Uses two GPUs if present; on one, the two processes share it by
 * time slices, and a hop costs a time slice. The first row is that of the smallest message. Where a
 * hop is slow, few rounds are measured, and not all sizes. Where none arrives within a patience,
 * the program says so and fails. Skips without a GPU.
 */
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/cuda/cuda.h"
#include "tests/gpu/device.h"

enum {
  SIDES = 2,
  ROUNDS_MAX = 60, /* a stream holds about a thousand calls */
  ROUNDS_FIRST = 2,
  PATIENCE_S = EMULATED ? 120 : 10, /* of the rounds of a size; no further size begins after it */
};
static const double measured_s = 0.25; /* of the rounds of a size, or their fewest */

static const size_t sizes[] = {64, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* One process. The memory of the other has the same layout: semaphores, receive buffer, send
 * buffer. */
struct side {
  int number, other; /* 0 begins; the socket to the other */
  char *own, *far;
  void *starter; /* its own stream, for the semaphore that starts the rounds */
  size_t bytes_most;
};

enum { COME = 0, BEGIN = 64, DATA = 256 };

static void give_up(const char *what) {
  printf("Bail out! %s: %s\n", what, pen_cuda.error() == NULL ? "an error" : pen_cuda.error());
  fflush(stdout);
  _exit(1); /* streams may still wait */
}

static void check(const char *what) {
  if (pen_cuda.error() != NULL) give_up(what);
}

static void swap(const struct side *s, const void *mine, void *theirs, size_t bytes) {
  if (write(s->other, mine, bytes) != (ssize_t)bytes ||
      read(s->other, theirs, bytes) != (ssize_t)bytes)
    give_up("the other process");
}

static void meet(const struct side *s) {
  char here = 1, there_too = 0;
  swap(s, &here, &there_too, 1);
}

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void send_round(const struct side *s, size_t bytes) {
  pen_cuda.copy(s->far + DATA, s->own + DATA + s->bytes_most, bytes, stream);
  pen_cuda.signal_remote((uint32_t *)(s->far + COME), stream);
}

static void receive_round(const struct side *s) {
  pen_cuda.wait_value((uint32_t *)(s->own + COME), 1, stream);
  pen_cuda.signal((uint32_t *)(s->own + COME), 0, stream);
}

static void await_rounds(void) {
  static void *ended;
  const double begin = now_s();
  if (ended == NULL) ended = pen_cuda.event_create();
  pen_cuda.event_record(ended, stream);
  while (!pen_cuda.event_query(ended))
    if (now_s() - begin > PATIENCE_S) {
      char what[80];
      snprintf(what, sizeof what, "messages between two processes have not arrived after %d s",
               PATIENCE_S);
      pen_cuda_note_text(what, "a wait in one process holds up the other");
      give_up("ipc hop");
    }
}

/* Seconds of one round trip, the mean of `rounds`; `number` of the call, from 1. */
static double trip_s(const struct side *s, size_t bytes, int rounds, uint32_t number) {
  pen_cuda.wait_value((uint32_t *)(s->own + BEGIN), number, stream);
  for (int round = 0; round < rounds; round++) {
    if (s->number == 0) send_round(s, bytes);
    receive_round(s);
    if (s->number != 0) send_round(s, bytes);
  }
  check("putting rounds on a stream");
  meet(s); /* both have enqueued all */
  const double begin = now_s();
  pen_cuda.signal((uint32_t *)(s->own + BEGIN), number, s->starter);
  await_rounds();
  const double seconds = now_s() - begin;
  check("a round trip");
  meet(s);
  return seconds / rounds;
}

/* What side 0 says. */
static int agreed(const struct side *s, int number) {
  int theirs;
  swap(s, &number, &theirs, sizeof number);
  return s->number == 0 ? number : theirs;
}

static void open_side(struct side *s) {
  unsigned char name[PEN_SHARED_NAME_BYTES], other[PEN_SHARED_NAME_BYTES];
  int devices = pen_cuda.count();
  if (pen_cuda.open(s->number % (devices > 0 ? devices : 1)) == NULL) give_up("opening a GPU");
  stream = pen_cuda.stream_create();
  s->starter = pen_cuda.stream_create();
  s->bytes_most = runs_large() ? sizes[SIZES - 1] : 64 << 10;
  s->own = pen_cuda.allocate(DATA + 2 * s->bytes_most);
  check("memory");
  pen_cuda.zero(s->own, DATA + 2 * s->bytes_most, stream);
  pen_cuda.stream_synchronize(stream);
  if (!pen_cuda.export_memory(s->own, name)) give_up("naming memory");
  swap(s, name, other, sizeof name);
  s->far = pen_cuda.import_memory(other);
  check("the other's memory");
  if (s->number == 0)
    printf("# %d GPU%s between two processes\n", devices > 1 ? SIDES : 1, devices > 1 ? "s" : "");
}

/* Is the received data what the other process sent? */
static int arrived(const struct side *s, size_t bytes) {
  unsigned char *here = calloc(1, bytes);
  pen_cuda.copy_out(here, s->own + DATA, bytes, stream);
  pen_cuda.stream_synchronize(stream);
  size_t right = 0;
  while (right < bytes && here[right] == (unsigned char)(0x50 + !s->number)) right++;
  free(here);
  return right == bytes;
}

static int run_side(struct side *s) {
  open_side(s);
  unsigned char *pattern = malloc(s->bytes_most);
  memset(pattern, 0x50 + s->number, s->bytes_most);
  pen_cuda.copy_in(s->own + DATA + s->bytes_most, pattern, s->bytes_most, stream);
  pen_cuda.stream_synchronize(stream);
  free(pattern);
  uint32_t number = 1;
  const double begin = now_s();
  for (size_t i = 0; i < SIZES && sizes[i] <= s->bytes_most; i++) {
    if (agreed(s, now_s() - begin > PATIENCE_S)) {
      if (s->number == 0) printf("# no time for larger messages\n");
      break;
    }
    const double fit = measured_s / trip_s(s, sizes[i], ROUNDS_FIRST, number++); /* warms up */
    const int rounds = agreed(s, (int)fmin(fmax(fit, ROUNDS_FIRST), ROUNDS_MAX));
    const double one_way = trip_s(s, sizes[i], rounds, number++) / 2;
    if (!arrived(s, sizes[i])) give_up("bytes that came are not those that were sent");
    if (s->number == 0)
      printf("%-22s %-28zu %10.1f us  %7.1f GB/s\n", "ipc hop", sizes[i], one_way * 1e6,
             (double)sizes[i] / one_way * 1e-9);
    fflush(stdout);
  }
  return 0;
}

int main(void) {
  int ends[SIDES];
  signal(SIGPIPE, SIG_IGN); /* the other process may have given up */
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 1;
  const pid_t child = fork(); /* before CUDA: a process that uses CUDA cannot fork */
  struct side s = {.number = child == 0, .other = ends[child == 0]};
  close(ends[child != 0]);
  int here = pen_cuda.count() > 0, both = 0;
  swap(&s, &here, &both, sizeof here);
  if (!here || !both) {
    if (child != 0)
      printf("1..0 # SKIP %s\n", pen_cuda.error() == NULL ? "there is no GPU" : pen_cuda.error());
    return 0;
  }
  const int result = run_side(&s);
  int status = 0;
  if (child > 0 && (waitpid(child, &status, 0) != child || status != 0))
    give_up("the other process");
  return result;
}
