/* folder_mark.c: whether all hosts see one checkpoint folder (see folder_mark.h). */
#include "runtime/storage/folder_mark.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "runtime/base/files.h"

static const char name[] = ".run";

int pen_folder_mark_write(const char *folder) {
  char path[PATH_MAX];
  uint64_t number;
  if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number ||
      pen_path_join(path, folder, name) != 0) {
    return -1;
  }
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  const uint64_t mark = number | 1; /* not 0 */
  const bool written = file >= 0 && write(file, &mark, sizeof mark) == (ssize_t)sizeof mark;
  return file >= 0 && close(file) == 0 && written ? 0 : -1;
}

uint64_t pen_folder_mark_read(const char *folder) {
  char path[PATH_MAX];
  uint64_t mark;
  if (pen_path_join(path, folder, name) != 0) {
    return 0;
  }
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const bool is_read = file >= 0 && read(file, &mark, sizeof mark) == (ssize_t)sizeof mark;
  if (file >= 0) {
    close(file);
  }
  return is_read ? mark : 0;
}

void pen_folder_mark_remove(const char *folder) {
  char path[PATH_MAX];
  if (pen_path_join(path, folder, name) == 0) {
    unlink(path);
  }
}
