/* files.c: paths, folders and complete reads and writes, without an allocator (see files.h). */
#define _GNU_SOURCE 1
#include "runtime/base/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(off_t) == 8,
               "a checkpoint may be larger than 2 GiB: 32-bit systems are not supported");

void pen_files_report_size_limit(void) { signal(SIGXFSZ, SIG_IGN); }

static int path_of(char path[PATH_MAX], const char *first, const char *second, const char *third) {
  int length = snprintf(path, PATH_MAX, "%s%s%s", first, second, third);
  if (length >= 0 && length < PATH_MAX) {
    return 0;
  }
  path[PATH_MAX - 1] = 0;
  errno = ENAMETOOLONG;
  return -1;
}

int pen_path_join(char path[PATH_MAX], const char *folder, const char *name) {
  return path_of(path, folder, "/", name);
}

int pen_path_suffix(char path[PATH_MAX], const char *file, const char *suffix) {
  return path_of(path, file, suffix, "");
}

/* Makes one folder; returns 0 also if it existed. */
static int make_one(const char *path) {
  struct stat status;
  if (mkdir(path, 0777) == 0) {
    return pen_folder_sync_of(path);
  }
  int cause = errno;
  if (stat(path, &status) == 0) {
    if (S_ISDIR(status.st_mode)) {
      return 0;
    }
    cause = ENOTDIR;
  }
  errno = cause;
  return -1;
}

int pen_folder_make(const char *path) {
  char part[PATH_MAX];
  if (pen_path_suffix(part, path, "")) {
    return -1;
  }
  for (char *slash = part + 1; part[0] && (slash = strchr(slash, '/')); slash++) {
    *slash = 0;
    if (make_one(part)) {
      return -1;
    }
    *slash = '/';
  }
  return make_one(path);
}

bool pen_folder_is(const char *path, const struct pen_folder_id *id) {
  struct stat status;
  if (id->inode == 0) {
    return true;
  }
  if (stat(path, &status) != 0) {
    return false;
  }
  errno = ESTALE;
  return status.st_dev == id->device && status.st_ino == id->inode;
}

int pen_file_lock(int fd, double seconds) {
  const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
  double waited = 0;
  while (flock(fd, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR)) {
    if (errno == EWOULDBLOCK && waited >= seconds) {
      return -1;
    }
    nanosleep(&pause, NULL);
    waited += 0.01;
  }
  return 0;
}

/* Opens and locks the folder of that name. */
static int lock_now(const char *path, double seconds, struct pen_folder_id *id) {
  struct stat status;
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0 && (fstat(fd, &status) != 0 || pen_file_lock(fd, seconds) != 0)) {
    const int cause = errno;
    close(fd);
    errno = cause;
    return -1;
  }
  if (fd >= 0) {
    *id = (struct pen_folder_id){status.st_dev, status.st_ino};
  }
  return fd;
}

int pen_folder_lock(const char *path, double seconds, struct pen_folder_id *id) {
  int fd = lock_now(path, seconds, id);
  while (fd >= 0 && !pen_folder_is(path, id)) { /* moved or replaced before it was locked */
    close(fd);
    fd = lock_now(path, seconds, id);
  }
  return fd; /* stays open, which keeps the lock */
}

/* Succeeds in a file system without locks. */
static int lock_folder(const char *path, int kind) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0 && flock(fd, kind | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(fd);
    return -1;
  }
  return fd;
}

int pen_folder_share(const char *path) {
  struct stat locked, named;
  int fd = lock_folder(path, LOCK_SH);
  if (fd < 0) {
    return -1;
  }
  if (fstat(fd, &locked) != 0 || stat(path, &named) != 0 ||
      !pen_file_same(&locked, &named)) { /* removed before it was locked */
    close(fd);
    return -1;
  }
  return 0; /* stays open, which keeps the lock */
}

int pen_folder_try_lock(const char *path) { return lock_folder(path, LOCK_EX); }

/* readdir() would want an allocator; the system call wants none. */
void pen_folder_each(const char *path, void (*visit)(void *context, const char *name),
                     void *context) {
  _Alignas(struct dirent64) char entries[4096];
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return;
  }
  for (long count; (count = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0;) {
    for (long at = 0; at < count;) {
      const struct dirent64 *entry = (const struct dirent64 *)(entries + at);
      visit(context, entry->d_name);
      at += entry->d_reclen;
    }
  }
  close(fd);
}

int pen_folder_sync(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return -1;
  }
  int result = fsync(fd), cause = errno;
  close(fd);
  if (result && (cause == EINVAL || cause == EROFS || cause == ENOTSUP)) {
    return 0;
  }
  errno = cause;
  return result;
}

int pen_folder_sync_of(const char *file) {
  char folder[PATH_MAX];
  if (pen_path_suffix(folder, file, "")) {
    return -1;
  }
  size_t end = strlen(folder);
  while (end > 1 && folder[end - 1] == '/') { /* "a/b/" lies in "a" */
    end--;
  }
  while (end > 0 && folder[end - 1] != '/') {
    end--;
  }
  while (end > 1 && folder[end - 1] == '/') {
    end--;
  }
  folder[end] = 0;
  return pen_folder_sync(end ? folder : ".");
}

int pen_file_open_output(const char *path, int flags) {
  struct stat status;
  sigset_t none, held;
  sigemptyset(&none);
  sigprocmask(SIG_BLOCK, &none, &held);
  if (stat(path, &status) == 0 && S_ISFIFO(status.st_mode)) {
    sigprocmask(SIG_SETMASK, &none, NULL);
  }
  int fd = open(path, flags | O_CREAT | O_WRONLY | O_CLOEXEC, 0666), error = errno;
  sigprocmask(SIG_SETMASK, &held, NULL);
  errno = error;
  return fd;
}

bool pen_file_is_regular(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

bool pen_file_same(const struct stat *one, const struct stat *other) {
  return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

int pen_file_reserve(int fd, uint64_t bytes) {
  if (bytes > INT64_MAX) {
    errno = EFBIG;
    return -1;
  }
  int result;
  do {
    result = fallocate(fd, 0, 0, (off_t)bytes);
  } while (result && errno == EINTR);
  if (result && (errno == EOPNOTSUPP || errno == ENOSYS)) {
    result = ftruncate(fd, (off_t)bytes);
  }
  return result;
}

/* One write, at the position or at an offset, which may take less than all. */
static ssize_t write_some(int fd, const void *bytes, size_t count, const uint64_t *offset) {
  ssize_t done;
  do {
    done = offset != NULL ? pwrite(fd, bytes, count, (off_t)*offset) : write(fd, bytes, count);
  } while (done < 0 && errno == EINTR);
  if (done == 0 && count) {
    errno = ENOSPC;
    done = -1;
  }
  return done;
}

static int write_all(int fd, const void *bytes, size_t count, uint64_t *offset) {
  for (const char *at = bytes; count;) {
    ssize_t done = write_some(fd, at, count, offset);
    if (done < 0) {
      return -1;
    }
    at += done;
    count -= (size_t)done;
    if (offset != NULL) {
      *offset += (uint64_t)done;
    }
  }
  return 0;
}

int pen_file_write(int fd, const void *bytes, size_t count) {
  return write_all(fd, bytes, count, NULL);
}

int pen_file_write_at(int fd, const void *bytes, size_t count, uint64_t offset) {
  return write_all(fd, bytes, count, &offset);
}

int64_t pen_file_read_at(int fd, void *bytes, size_t count, uint64_t offset) {
  size_t total = 0;
  while (total < count) {
    ssize_t done = pread(fd, (char *)bytes + total, count - total, (off_t)(offset + total));
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done < 0) {
      return -1;
    }
    if (done == 0) {
      break;
    }
    total += (size_t)done;
  }
  return (int64_t)total;
}

int pen_file_sync(int fd) { return fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : -1; }

int pen_file_sync_close(int fd, int result) {
  int cause = errno;
  if (pen_file_sync(fd) != 0 && !result) {
    result = -1, cause = errno;
  }
  if (close(fd) && !result) {
    result = -1, cause = errno;
  }
  errno = cause;
  return result;
}
