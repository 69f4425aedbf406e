/* open.c: the choice of the instruction set; each op has a kernel; calls after the first map no
 * memory. */
#include "tests/support/kernels_support.h"

#include <malloc.h>
#include <unistd.h>

static const char *open_with(const char *set) {
  if (set)
    setenv("PEN_ISA", set, 1);
  else
    unsetenv("PEN_ISA");
  return pen_kernels_open();
}

static void the_best_set_is_chosen_unless_another_is_named(void **state) {
  (void)state;
  char best[160];
  snprintf(best, sizeof best, "%s", open_with(NULL));
  assert_string_equal(open_with("no-such-set"), best);
  assert_string_equal(open_with(""), best);
  assert_int_equal(strncmp(open_with("baseline"), "baseline; ", 10), 0);
#if defined __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    assert_int_equal(strncmp(open_with("avx2"), "avx2; ", 6), 0);
  if (!__builtin_cpu_supports("avx512f")) assert_string_equal(open_with("avx512"), best);
#endif
}

static void every_op_has_a_kernel(void **state) {
  (void)state;
  open_with(NULL);
#define PEN_OP(kind, dims, reals, signature, flops, meaning) \
  assert_non_null(pen_kernel_of(PEN_OP_##kind, PEN_F32));    \
  assert_int_equal(pen_kernel_of(PEN_OP_##kind, PEN_BF16) != NULL, strstr(signature, ":t") != NULL);
#define PEN_DATA_OP(kind, dims, reals, signature, flops, meaning) \
  assert_null(pen_kernel_of(PEN_OP_##kind, PEN_F32));             \
  assert_null(pen_kernel_of(PEN_OP_##kind, PEN_BF16));
#define PEN_RUNTIME_OP PEN_DATA_OP
#include "kernels/ops.def"
}

/* Pages mapped into this process, from /proc/self/statm; 0 where there is none. */
static unsigned long mapped_pages(void) {
  unsigned long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file && fscanf(file, "%lu", &pages) != 1) pages = 0;
  if (file) fclose(file);
  return pages;
}

static void check_products_map_nothing(const char *products) {
  setenv("PEN_PRODUCTS", products, 1);
  enum { ROWS = 512, IN = 300, OUT = 700 };
  open_with(NULL);
  float *x = random_floats(ROWS * IN, 1), *w = random_floats(OUT * IN, 2), *y = floats(ROWS * OUT);
  struct pen_call call = {.operand = {x, w, NULL, y}, .dim = {ROWS, IN, OUT}};
  struct pen_call dx = {.operand = {y, w, NULL, x}, .dim = {ROWS, IN, OUT}};
  struct pen_call dw = {.operand = {y, x, w}, .dim = {ROWS, IN, OUT}};
  run(PEN_OP_LINEAR, &call); /* gives each call its workspace */
  run(PEN_OP_LINEAR_DX, &dx);
  run(PEN_OP_LINEAR_DW, &dw);
  usleep(100 * 1000); /* an OpenBLAS with threads starts its workers in the background */
  mapped_pages();
  const unsigned long before = mapped_pages();
  const size_t heap = mallinfo2().uordblks;
  for (int i = 0; i < 3; i++) {
    pen_kernel_of(PEN_OP_LINEAR, PEN_F32)(&call);
    pen_kernel_of(PEN_OP_LINEAR_DX, PEN_F32)(&dx);
    pen_kernel_of(PEN_OP_LINEAR_DW, PEN_F32)(&dw);
  }
  assert_int_equal(mapped_pages(), before);
  assert_int_equal(mallinfo2().uordblks, heap);
}

static void products_map_no_memory_after_open(void **state) {
  check_products_map_nothing("own");
  free_tensors(state);
  check_products_map_nothing("library");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(the_best_set_is_chosen_unless_another_is_named, free_tensors),
      cmocka_unit_test_teardown(every_op_has_a_kernel, free_tensors),
      cmocka_unit_test_teardown(products_map_no_memory_after_open, free_tensors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
