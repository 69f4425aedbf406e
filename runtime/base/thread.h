/* thread.h: threads beside which a process may fork. */
#ifndef PEN_THREAD_H
#define PEN_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* As pthread_create() with default attributes, but returns when the thread has begun to run. While
 * it begins it may hold a lock of the allocator, such as AddressSanitizer's: a process that is
 * forked then would wait for that lock for ever. Returns false if the thread cannot be created. */
bool pen_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

#endif
