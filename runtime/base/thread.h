/* thread.h: threads beside which a process may fork. */
#ifndef PEN_THREAD_H
#define PEN_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* As pthread_create(), with default attributes, and returns when the thread has begun to run. A
 * thread that begins allocates, also in a sanitizer, whose locks a child process that is forked at
 * that moment has for ever. Returns false if there is no thread. */
bool pen_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

#endif
