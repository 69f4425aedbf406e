/* read_bytes.c: how long this machine takes to read so many bytes of memory, which are read again
 * and again: what a token takes at least. Prints the milliseconds of the fastest of some times.
 *
 *   read_bytes BYTES TIMES */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef uint64_t vector __attribute__((vector_size(64)));
enum { AT_ONCE = 4, HUGE_PAGE = 2 << 20 };

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static uint64_t read_all(const vector *x, size_t count) {
  vector sum[AT_ONCE] = {0};
  for (size_t i = 0; i + AT_ONCE <= count; i += AT_ONCE)
    for (size_t v = 0; v < AT_ONCE; v++) sum[v] += x[i + v];
  return (sum[0] + sum[1] + sum[2] + sum[3])[0];
}

int main(int argc, char **argv) {
  const size_t bytes = argc == 3 ? strtoull(argv[1], NULL, 10) : 0;
  const int times = argc == 3 ? atoi(argv[2]) : 0;
  const size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  vector *x = whole > 0 ? aligned_alloc(HUGE_PAGE, whole) : NULL;
  if (x == NULL || times < 1) {
    fprintf(stderr, "usage: read_bytes BYTES TIMES\n");
    return EXIT_FAILURE;
  }
  madvise(x, whole, MADV_HUGEPAGE); /* as the arena of a rank */
  memset(x, 1, whole);
  double best_ms = 1e9;
  for (int i = 0; i < times; i++) {
    const double start_ms = now_ms();
    uint64_t sum = read_all(x, bytes / sizeof *x);
    __asm__ volatile("" : "+r"(sum)); /* it is used */
    const double passed_ms = now_ms() - start_ms;
    best_ms = passed_ms < best_ms ? passed_ms : best_ms;
  }
  printf("%.4f\n", best_ms);
  free(x);
  return EXIT_SUCCESS;
}
