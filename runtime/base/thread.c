/* thread.c: starts threads (see thread.h). */
#include "runtime/base/thread.h"

#include <errno.h>
#include <semaphore.h>

struct start {
  void *(*run)(void *);
  void *argument;
  sem_t begun;
};

static void *begin(void *argument) {
  struct start *start = argument;
  void *(*run)(void *) = start->run;
  void *own = start->argument;
  sem_post(&start->begun); /* `start` ends with it */
  return run(own);
}

bool pen_thread_start(pthread_t *thread, void *(*run)(void *), void *argument) {
  struct start start = {.run = run, .argument = argument};
  sem_init(&start.begun, 0, 0);
  const bool started = pthread_create(thread, NULL, begin, &start) == 0;
  while (started && sem_wait(&start.begun) != 0 && errno == EINTR) {
  }
  sem_destroy(&start.begun);
  return started;
}
