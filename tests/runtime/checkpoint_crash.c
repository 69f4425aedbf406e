/* checkpoint_crash.c: whatever interrupts a save, DIR/latest names a complete checkpoint, and no
 * failed save passes for good.
 *
 * The system calls of a save pass through this file, which can end the process at the n-th of them,
 * or let it fail; tried for every n. Besides, writers are killed at random instants, and the order
 * of syncs and renames is watched.
 */
#define _GNU_SOURCE 1
#include "tests/support/checkpoint_model.h"

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

#include "runtime/base/check.h"
#include "runtime/storage/checkpoint_load.h"
#include "runtime/storage/checkpoint_prune.h"
#include "runtime/storage/checkpoint_tensors.h"

/* ---- the system calls, with a fault at will ---- */

enum file_call {
  OPEN,
  CLOSE,
  WRITE,
  PWRITE,
  FSYNC,
  FALLOCATE,
  FTRUNCATE,
  MKDIR,
  RENAME,
  EXCHANGE,
  SYMLINK,
  UNLINK,
  RMDIR,
  CALLS
};

static struct {
  long call_count;    /* since the start */
  long at;            /* the call that is hit, from 1; 0: none */
  int cause;          /* its errno; 0: the process ends there instead, as if killed */
  enum file_call hit; /* what was hit */
  int of_kind;        /* every call of this kind is hit with `cause`, if not -1 */
} fault = {.of_kind = -1};

/* What has been written, made or renamed since its last sync. */
enum { WATCHED_MAX = 32 };
static struct {
  bool on;
  int count;
  char dirty[WATCHED_MAX][PATH_MAX];
  char violations[1024];
} watch;

/* Whether this call is to fail; does not return if the process is to end. */
static bool faulty(enum file_call call) {
  fault.call_count++;
  if (fault.call_count == fault.at) {
    fault.hit = call;
    if (fault.cause == 0) {
      _exit(137);
    }
    errno = fault.cause;
    return true;
  }
  errno = fault.of_kind == (int)call ? fault.cause : errno;
  return fault.of_kind == (int)call;
}

static void mark(const char *path, bool dirty) {
  for (int i = 0; i < watch.count; i++) {
    if (strcmp(watch.dirty[i], path) == 0) {
      if (!dirty) {
        memmove(watch.dirty[i], watch.dirty[--watch.count], PATH_MAX);
      }
      return;
    }
  }
  if (dirty && watch.count < WATCHED_MAX) {
    snprintf(watch.dirty[watch.count++], PATH_MAX, "%s", path);
  }
}

static void mark_fd(int fd, bool dirty) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = watch.on ? readlink(link, path, sizeof path - 1) : -1;
  if (length > 0) {
    path[length] = 0;
    mark(path, dirty);
  }
}

/* The folder of a path, which is relative to model_folder, has changed, if the call went well;
 * returns its result. */
static int changed(const char *path, long result) {
  char whole[2 * PATH_MAX + 1];
  if (watch.on && result >= 0) {
    snprintf(whole, sizeof whole, "%s/%s", model_folder, path);
    *strrchr(whole, '/') = 0;
    mark(whole, true);
  }
  return (int)result;
}

/* Nothing whose name contains `part` may be waiting for a sync now. */
static void want_clean(const char *part, const char *before) {
  for (int i = 0; i < watch.count && watch.on; i++) {
    if (strstr(watch.dirty[i], part) != NULL) {
      snprintf(watch.violations, sizeof watch.violations, "%.400s is not synced before %.400s",
               watch.dirty[i], before);
    }
  }
}

int open(const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (faulty(OPEN)) {
    return -1;
  }
  int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
  return flags & O_CREAT ? changed(path, fd) : fd;
}

int close(int fd) {
  int result = (int)syscall(SYS_close, fd); /* as in Linux: closed, even if it fails */
  return faulty(CLOSE) ? -1 : result;
}

ssize_t write(int fd, const void *bytes, size_t count) {
  if (fd == STDERR_FILENO || fd == STDOUT_FILENO) {
    return syscall(SYS_write, fd, bytes, count);
  }
  mark_fd(fd, true);
  return faulty(WRITE) ? -1 : syscall(SYS_write, fd, bytes, count);
}

/* Some writes take only a part, as they may. */
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
  mark_fd(fd, true);
  count = count > 100 && fault.call_count % 3 == 0 ? count / 2 : count;
  return faulty(PWRITE) ? -1 : syscall(SYS_pwrite64, fd, bytes, count, offset);
}

/* Not worth the disk's time: a process that dies loses nothing that it wrote. */
int fsync(int fd) {
  mark_fd(fd, false);
  return faulty(FSYNC) ? -1 : 0;
}

int fallocate(int fd, int mode, off_t offset, off_t count) {
  return faulty(FALLOCATE) ? -1 : (int)syscall(SYS_fallocate, fd, mode, offset, count);
}

int ftruncate(int fd, off_t count) {
  return faulty(FTRUNCATE) ? -1 : (int)syscall(SYS_ftruncate, fd, count);
}

int mkdir(const char *path, mode_t mode) {
  return faulty(MKDIR) ? -1 : changed(path, syscall(SYS_mkdir, path, mode));
}

int rename(const char *from, const char *to) {
  if (strstr(to, "latest") == NULL) {
    want_clean(".tmp", to);
  }
  return faulty(RENAME) ? -1 : changed(to, syscall(SYS_rename, from, to));
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
  want_clean(".tmp", to);
  return faulty(EXCHANGE)
             ? -1
             : changed(to, syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

int symlink(const char *target, const char *path) {
  want_clean("/dir", path);
  return faulty(SYMLINK) ? -1 : changed(path, syscall(SYS_symlink, target, path));
}

int unlink(const char *path) { return faulty(UNLINK) ? -1 : (int)syscall(SYS_unlink, path); }

int rmdir(const char *path) { return faulty(RMDIR) ? -1 : (int)syscall(SYS_rmdir, path); }

/* ---- saves ---- */

static struct checkpoint_model model;
static unsigned char digests[PEN_CHECKPOINT_TENSORS * MODEL_WEIGHTS][PEN_DIGEST_BYTES];
static unsigned char *arenas[MODEL_RANKS_MAX];
static uint64_t keep; /* checkpoints that a save keeps; 0: all */

struct job {
  uint64_t step, values; /* values also stand in the cursor */
  long at;
  int cause, of_kind;
};

static void save(uint64_t step, uint64_t values) {
  for (uint32_t rank = 0; rank < model.plan.rank_count; rank++) {
    model_fill(&model, rank, arenas[rank], values);
  }
  model_begin("dir", &model.plan, step);
  for (uint32_t rank = 0; rank < model.plan.rank_count; rank++) {
    model_write(&model.plan, rank, arenas[rank], "dir", step, digests);
  }
  model_finish(&model.plan, "dir", step, values, digests);
  if (keep != 0) {
    pen_checkpoint_prune("dir", step, keep);
  }
}

/* What a child reports. */
struct report {
  long call_count;
  enum file_call hit;
  uint64_t found, step;
};
static struct report *report; /* shared */

static void tell(void) {
  report->call_count = fault.call_count;
  report->hit = fault.hit;
}

static void save_job(void *argument) {
  const struct job *job = argument;
  fault.call_count = 0;
  fault.at = job->at;
  fault.cause = job->cause;
  fault.of_kind = job->of_kind;
  atexit(tell);
  save(job->step, job->values);
  tell();
}

/* The state that `latest` names and its step, all of it verified; 0 if there is none. */
static void find_state(void *unused) {
  (void)unused;
  struct pen_checkpoint_info info;
  report->found = report->step = 0;
  if (pen_checkpoint_find("dir", &model.plan, &info)) {
    return;
  }
  for (uint32_t rank = 0; rank < model.plan.rank_count; rank++) {
    unsigned char *arena = model_arena(&model, rank);
    MODEL_LOAD(&model.plan, rank, arena, pen_checkpoint_load, info.path);
    if (model_differences(&model, rank, arena, info.state.cursor) != 0) {
      pen_fail(PEN_EXIT_INTERNAL, "%s: loads without complaint, but is not state %llu", info.path,
               (unsigned long long)info.state.cursor);
    }
    free(arena);
  }
  report->step = info.state.step;
  report->found = info.state.cursor;
}

static uint64_t found_state(uint64_t *step) {
  if (model_run(find_state, NULL) != 0) {
    fail_msg("the checkpoint is torn: %s", said);
  }
  *step = report->step;
  return report->found;
}

static bool leftovers(void) { return system("ls -d dir/*.tmp >/dev/null 2>&1") == 0; }

/* A folder with the states 1 and 2 in it, or none. */
static void start_over(bool with_states) {
  assert_int_equal(system("rm -rf dir"), 0);
  if (with_states) {
    save(1, 1);
    save(2, 2);
  }
}

static long calls_of(uint64_t step, bool with_states) {
  start_over(with_states);
  struct job job = {.step = step, .values = 3, .of_kind = -1};
  assert_int_equal(model_run(save_job, &job), 0);
  return report->call_count;
}

/* A save that ends at its n-th call leaves the state before or the new one, and the next save works
 * and tidies up. */
static void ended_at_every_call(uint64_t step, bool with_states) {
  long call_count = calls_of(step, with_states);
  assert_in_range(call_count, 30, 1000);
  uint64_t old = with_states ? 2 : 0, found_step;
  for (long n = 1; n <= call_count; n++) {
    start_over(with_states);
    struct job job = {.step = step, .values = 3, .at = n, .of_kind = -1};
    assert_int_equal(model_run(save_job, &job), 137);
    uint64_t found = found_state(&found_step);
    assert_true(found == old || found == 3);
    job = (struct job){.step = step, .values = 4, .of_kind = -1};
    if (model_run(save_job, &job) != 0) {
      fail_msg("after an end at call %ld: %s", n, said);
    }
    assert_int_equal(found_state(&found_step), 4);
    assert_int_equal(found_step, step);
    assert_false(leftovers());
  }
}

static void ended_new_folder(void **state) {
  (void)state;
  ended_at_every_call(1, false);
}

static void ended_new_step(void **state) {
  (void)state;
  ended_at_every_call(3, true);
}

static void ended_same_step(void **state) {
  (void)state;
  ended_at_every_call(2, true);
}

/* How many checkpoints there are. */
static int folders(void) {
  int count = 0;
  char path[64];
  for (int step = 1; step < 20; step++) {
    snprintf(path, sizeof path, "dir/step-%08d/manifest.json", step);
    count += access(path, F_OK) == 0;
  }
  return count;
}

/* The same where a save takes away older ones. */
static void ended_while_pruning(void **state) {
  (void)state;
  keep = 1;
  ended_at_every_call(3, true);
  assert_int_equal(folders(), 1);
  keep = 0;
}

static void the_newest_are_kept(void **state) {
  (void)state;
  uint64_t step;
  start_over(false);
  for (uint64_t values = 1; values <= 5; values++) {
    save(values, values);
  }
  keep = 3;
  save(10, 10);
  assert_int_equal(folders(), 3);
  assert_int_equal(access("dir/step-00000004", F_OK) | access("dir/step-00000005", F_OK), 0);
  assert_int_equal(found_state(&step), 10);
  /* A run taken up again at step 4: what it had beyond is not its own to remove, and what it saves
   * now is not the oldest. */
  save(6, 6);
  assert_int_equal(access("dir/step-00000010", F_OK), 0);
  assert_int_equal(folders(), 4);
  assert_int_equal(found_state(&step), 6);
  /* Whatever is in a folder that is none of ours stays there. */
  file_write("dir/step-00000004/mine", "x", 1);
  save(7, 7);
  assert_int_equal(
      access("dir/step-00000004/mine", F_OK) & access("dir/step-00000004.tmp/mine", F_OK), 0);
  assert_int_equal(found_state(&step), 7);
  keep = 0;
}

/* A call that fails: either it does not matter and the save is whole, or status and message say so
 * and the old state remains. */
static void failing_at_every_call(uint64_t step, bool with_states, int cause) {
  long call_count = calls_of(step, with_states);
  uint64_t old = with_states ? 2 : 0, found_step;
  for (long n = 1; n <= call_count; n++) {
    start_over(with_states);
    struct job job = {.step = step, .values = 3, .at = n, .cause = cause, .of_kind = -1};
    int status = model_run(save_job, &job);
    bool explained = (status == 73 || status == 74) && strstr(said, strerror(cause)) != NULL &&
                     strstr(said, "dir") != NULL;
    if (status != 0 && !explained) {
      fail_msg("call %ld: status %d: %s", n, status, said);
    }
    enum file_call hit = report->hit;
    uint64_t found = found_state(&found_step);
    assert_true(found == 3 || (found == old && status != 0));
    if (status != 0) {
      pen_checkpoint_abandon("dir"); /* as a launcher does */
      assert_false(leftovers());
      assert_int_equal(found_state(&found_step), found);
    }
    if (hit == WRITE || hit == PWRITE || hit == FALLOCATE) {
      assert_int_equal(status, 74);
    }
    if (hit == SYMLINK || hit == RENAME || hit == EXCHANGE ||
        (hit == MKDIR && !with_states)) { /* else it was there */
      assert_int_equal(status, 73);
    }
  }
}

static void failing_disk_full(void **state) {
  (void)state;
  failing_at_every_call(1, false, ENOSPC);
  failing_at_every_call(3, true, ENOSPC);
  failing_at_every_call(2, true, ENOSPC);
}

static void failing_permission(void **state) {
  (void)state;
  failing_at_every_call(3, true, EACCES);
  failing_at_every_call(2, true, EIO);
}

/* A file system that can neither reserve nor exchange. */
static void plain_file_system(void **state) {
  (void)state;
  uint64_t step;
  struct job job = {.step = 3, .values = 3, .cause = EOPNOTSUPP, .of_kind = FALLOCATE};
  start_over(true);
  assert_int_equal(model_run(save_job, &job), 0);
  assert_int_equal(found_state(&step), 3);
  job = (struct job){.step = 3, .values = 4, .cause = EINVAL, .of_kind = EXCHANGE};
  model_refused(73, save_job, &job, "dir/step-00000003: cannot create: it exists", NULL);
  assert_int_equal(found_state(&step), 3);
  assert_false(leftovers());
}

/* Power may fail too: files and folders are synced before the name that makes them count. */
static void synced_before_renamed(void **state) {
  (void)state;
  char folder[PATH_MAX];
  assert_non_null(realpath(model_folder, folder));
  strcpy(model_folder, folder);
  start_over(false);
  for (uint64_t i = 0; i < 4; i++) {
    watch.on = true;
    watch.count = 0;
    save(1 + i % 3, i); /* the last one is an exchange */
    watch.on = false;
    assert_string_equal(watch.violations, "");
    assert_int_equal(watch.count, 0);
  }
}

/* ---- killed at random ---- */

enum { KILLS = 300 };

static volatile uint64_t *finished; /* the last state whose save returned, shared */

static void save_on(uint64_t first) {
  for (uint64_t values = first;; values++) {
    save(1 + values % 4, values);
    *finished = values;
  }
}

static void killed_at_random(void **state) {
  (void)state;
  uint64_t step, last = 0;
  unsigned seed = (unsigned)time(NULL);
  print_message("# seed %u\n", seed);
  srand(seed);
  start_over(false);
  for (int i = 0; i < KILLS; i++) {
    keep = (uint64_t)i % 3;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      save_on(last + 1);
    }
    struct timespec delay = {.tv_nsec = rand() % 12000 * 1000L};
    nanosleep(&delay, NULL);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    uint64_t found = found_state(&step);
    assert_true(found >= *finished);
    assert_true(found <= *finished + 1);
    assert_true(found == 0 || step == 1 + found % 4);
    last = *finished = found;
  }
  print_message("# %llu saves in %d writers\n", (unsigned long long)last, KILLS);
  keep = 0;
  save(9, 9);
  assert_false(leftovers());
}

static int setup(void **state) {
  model_make(&model, 2, 0);
  model.weights[2].dim[0] = 7; /* a smaller one: many saves */
  model.weights[2].count = 7 * 257;
  model_whole(&model.weights[2]);
  model_files(&model);
  for (uint32_t rank = 0; rank < 2; rank++) {
    arenas[rank] = model_arena(&model, rank);
  }
  report = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  finished = (volatile uint64_t *)(report + 1);
  return model_setup(state);
}

static int teardown(void **state) {
  for (uint32_t rank = 0; rank < 2; rank++) {
    free(arenas[rank]);
  }
  return model_teardown(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ended_new_folder),      cmocka_unit_test(ended_new_step),
      cmocka_unit_test(ended_same_step),       cmocka_unit_test(ended_while_pruning),
      cmocka_unit_test(the_newest_are_kept),   cmocka_unit_test(failing_disk_full),
      cmocka_unit_test(failing_permission),    cmocka_unit_test(plain_file_system),
      cmocka_unit_test(synced_before_renamed), cmocka_unit_test(killed_at_random),
  };
  return cmocka_run_group_tests_name("checkpoint_crash", tests, setup, teardown);
}
