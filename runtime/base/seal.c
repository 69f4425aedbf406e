/* seal.c: from pen_seal() on nothing is allocated, which a test build checks.
 *
 * The linker's --wrap redirects the calls of the project's objects, not those within a library:
 *   -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free,--wrap=aligned_alloc,--wrap=posix_memalign,--wrap=mmap
 *   -Wl,--wrap=munmap,--wrap=open,--wrap=fopen,--wrap=pthread_create */
#include "runtime/base/seal.h"

#include <stdbool.h>

#include "runtime/base/check.h"

static _Thread_local bool
    sealed; /* per thread: one that writes checkpoints opens files while its rank is sealed */

void pen_seal(void) { sealed = true; }

void pen_unseal(void) { sealed = false; }

#ifdef PEN_TEST_SEAL
#include <pthread.h>
#include <stdio.h>
#include <sys/types.h>

/* Declares the real function and defines its replacement. */
#define WRAP(result, name, parameters, arguments) \
  result __real_##name parameters;                \
  result __wrap_##name parameters;                \
  result __wrap_##name parameters {               \
    pen_assert(!sealed && #name);                 \
    return __real_##name arguments;               \
  }

WRAP(void *, malloc, (size_t bytes), (bytes))
WRAP(void *, calloc, (size_t count, size_t bytes), (count, bytes))
WRAP(void *, realloc, (void *old, size_t bytes), (old, bytes))
WRAP(void, free, (void *old), (old))
WRAP(void *, aligned_alloc, (size_t alignment, size_t bytes), (alignment, bytes))
WRAP(int, posix_memalign, (void **result, size_t alignment, size_t bytes),
     (result, alignment, bytes))
WRAP(void *, mmap,
     (void *at, size_t bytes, int protection, int flags, int descriptor, off_t offset),
     (at, bytes, protection, flags, descriptor, offset))
WRAP(int, munmap, (void *at, size_t bytes), (at, bytes))
WRAP(int, open, (const char *path, int flags, unsigned mode), (path, flags, mode))
WRAP(FILE *, fopen, (const char *path, const char *mode), (path, mode))
WRAP(int, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument),
     (thread, attributes, start, argument))
#endif
