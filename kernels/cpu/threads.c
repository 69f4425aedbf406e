/* threads.c: the threads of a rank (see threads.h): an OpenMP team, each thread on a core of its
 * own if the rank has as many. */
#define _GNU_SOURCE
#include "kernels/cpu/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#ifdef _OPENMP
#include <omp.h>
#endif

enum {
  TILE_ELEMENTS = 2048, /* of pen_parallel_rows(): a tile takes about as long as waking a thread */
  CORES_MAX = 4096,     /* of a machine */
};

static size_t thread_count = 1;
/* How many threads the work of this one is divided over. */
static _Thread_local size_t division = 1;

size_t pen_threads_count(void) { return thread_count; }

/* ---- the team ---- */

typedef void each_thread(void *context, size_t thread);

/* Runs `run` once in each thread; a team of the same size is used again, without an allocation.
 * Returns the number of threads. */
static size_t run_in_each(size_t threads, each_thread *run, void *context) {
  size_t started = 1;
#ifdef _OPENMP
#pragma omp parallel num_threads((int)threads)
  {
    if (omp_get_thread_num() == 0) started = (size_t)omp_get_num_threads();
    run(context, (size_t)omp_get_thread_num());
  }
#else
  (void)threads;
  run(context, 0);
#endif
  return started;
}

struct core_set {
  cpu_set_t bits[CORES_MAX / CPU_SETSIZE];
};

/* Binds thread t to the t-th of the cores, if there are as many as threads, else to all. */
static void bind_thread(void *context, size_t thread) {
  const struct core_set *cores = context;
  struct core_set own = {0};
  size_t index = 0;
  if ((size_t)CPU_COUNT_S(sizeof *cores, cores->bits) != thread_count) {
    sched_setaffinity(0, sizeof *cores, cores->bits);
    return;
  }
  for (size_t core = 0; core < CORES_MAX; core++)
    if (CPU_ISSET_S(core, sizeof *cores, cores->bits) && index++ == thread)
      CPU_SET_S(core, sizeof own, own.bits);
  sched_setaffinity(0, sizeof own, own.bits);
}

int pen_threads_open(size_t threads) {
  struct core_set cores = {0};
  sigset_t all, before;
  if (threads == 1) return 1;
  thread_count = division = threads;
#ifdef _OPENMP
  omp_set_dynamic(0); /* always as many */
#endif
  if (sched_getaffinity(0, sizeof cores, cores.bits) != 0) return 0;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the first thread */
  const size_t started = run_in_each(threads, bind_thread, &cores);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return started == threads;
}

/* ---- divisions ---- */

struct division {
  size_t count;
  pen_tiles *run;
  const void *context;
};

static void run_share(void *context, size_t thread) {
  const struct division *d = context;
  const size_t first = d->count * thread / thread_count,
               past = d->count * (thread + 1) / thread_count;
  if (first < past) d->run(d->context, thread, first, past);
}

static void call_each(void *context, size_t thread) {
  (void)thread;
  (*(void (**)(void))context)();
}

void pen_threads_call(void (*run)(void)) {
  if (division == 1)
    run();
  else
    run_in_each(thread_count, call_each, &run);
}

void pen_parallel_for(size_t count, pen_tiles *run, const void *context) {
  struct division d = {count, run, context};
  const size_t threads = division;
  division = 1;
  if (threads > 1 && count > 1) {
    if (run_in_each(threads, run_share, &d) != threads) abort(); /* a share was not computed */
  } else if (count > 0) {
    run(context, 0, 0, count);
  }
  division = threads;
}

struct rows {
  size_t count, of_tile;
  pen_tiles *run;
  const void *context;
};

static void run_rows(const void *context, size_t thread, size_t first, size_t past) {
  const struct rows *rows = context;
  const size_t end = past * rows->of_tile;
  rows->run(rows->context, thread, first * rows->of_tile, end < rows->count ? end : rows->count);
}

void pen_parallel_rows(size_t rows, size_t width, pen_tiles *run, const void *context) {
  const size_t of_tile = width < TILE_ELEMENTS ? TILE_ELEMENTS / width : 1;
  const struct rows divided = {rows, of_tile, run, context};
  pen_parallel_for((rows + of_tile - 1) / of_tile, run_rows, &divided);
}
