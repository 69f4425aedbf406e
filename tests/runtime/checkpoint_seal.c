/* checkpoint_seal.c: saving calls no allocator and leaves no file open: it runs after the seal. */
#define _GNU_SOURCE 1
#include "tests/support/checkpoint_model.h"

#include <dirent.h>

#include "runtime/storage/checkpoint_load.h"
#include "runtime/storage/checkpoint_prune.h"
#include "runtime/storage/checkpoint_tensors.h"

#ifndef __SANITIZE_ADDRESS__ /* which has an allocator of its own in this place */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void __libc_free(void *old);

static bool counting;
static int call_count;

void *malloc(size_t bytes) {
  call_count += counting;
  return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
  call_count += counting;
  return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes) {
  call_count += counting;
  return __libc_realloc(old, bytes);
}

void free(void *old) {
  call_count += counting;
  __libc_free(old);
}

static struct checkpoint_model model;
static unsigned char digests[PEN_CHECKPOINT_TENSORS * MODEL_WEIGHTS][PEN_DIGEST_BYTES];
static unsigned char *arenas[2];

static void save(uint64_t step) {
  model_begin("a/b/dir", &model.plan, step);
  for (uint32_t rank = 0; rank < 2; rank++) {
    model_write(&model.plan, rank, arenas[rank], "a/b/dir", step, digests);
  }
  model_finish(&model.plan, "a/b/dir", step, step, digests);
}

static int open_files(void) {
  int count = 0;
  DIR *folder = opendir("/proc/self/fd");
  while (readdir(folder) != NULL) {
    count++;
  }
  closedir(folder);
  return count;
}

static void saves_allocate_nothing(void **state) {
  (void)state;
  int before = open_files();
  counting = true;
  save(1);
  save(2);
  save(2); /* an exchange */
  model_begin("a/b/dir", &model.plan, 3);
  pen_checkpoint_abandon("a/b/dir");
  counting = false;
  assert_int_equal(call_count, 0);
  assert_int_equal(open_files(), before);
  assert_int_equal(access("a/b/dir/step-00000002/manifest.json", F_OK), 0);
}

static void counter_counts(void **state) {
  (void)state;
  struct pen_checkpoint_info info;
  counting = true;
  int result = pen_checkpoint_find("a/b/dir", &model.plan, &info);
  counting = false;
  assert_int_equal(result, 0);
  assert_true(call_count > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(saves_allocate_nothing),
                                     cmocka_unit_test(counter_counts)};
  model_make(&model, 2, 1);
  for (uint32_t rank = 0; rank < 2; rank++) {
    arenas[rank] = model_arena(&model, rank);
    model_fill(&model, rank, arenas[rank], 1);
  }
  return cmocka_run_group_tests_name("checkpoint_seal", tests, model_setup, model_teardown);
}

#else

int main(void) {
  puts("1..0 # SKIP the address sanitizer's allocator cannot be counted");
  return 0;
}

#endif
