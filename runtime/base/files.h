/* files.h: the file operations behind checkpoints. None calls an allocator, so all may run after
 * the seal.
 *
 * Functions that return int give 0, or -1 with errno set; they leave it to the caller to say which
 * step of which work failed.
 */
#ifndef PEN_FILES_H
#define PEN_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Lets a write past the file size limit of the process fail with EFBIG rather than kill it by
 * SIGXFSZ. */
void pen_files_report_size_limit(void);

/* path = folder "/" name. ENAMETOOLONG when it does not fit. */
int pen_path_join(char path[PATH_MAX], const char *folder, const char *name);

/* path = file suffix. ENAMETOOLONG when it does not fit. */
int pen_path_suffix(char path[PATH_MAX], const char *file, const char *suffix);

/* Makes a folder and the parents that are missing; one that exists is fine. What was made is synced
 * into its parent. */
int pen_folder_make(const char *path);

/* Claims a folder until this process and all that it forks have left (flock); waits up to so many
 * seconds for who has it. -1 with EWOULDBLOCK: another still has it. A file system without such
 * locks is taken as it is; one of a network may keep them on each host apart. */
int pen_folder_lock(const char *path, double seconds);

/* Keeps pen_folder_try_lock() from a folder until this process and all that it forks have left;
 * others may do so too. -1: it is not there any more, or is being taken. */
int pen_folder_share(const char *path);

/* Claims a folder that is to be taken away, if nobody shares it: a descriptor to be closed when
 * that is done, or -1. */
int pen_folder_try_lock(const char *path);

/* Syncs the entries of a folder. A file system that cannot do so is taken as it is. */
int pen_folder_sync(const char *path);

/* As pen_folder_sync() of the folder that holds the file. */
int pen_folder_sync_of(const char *file);

/* open() of an output. A pipe that nobody reads yet is waited for as ever: a signal that is held
 * elsewhere ends that wait. */
int pen_file_open_output(const char *path, int flags);

/* Whether both are of one file. */
bool pen_file_same(const struct stat *one, const struct stat *other);

/* Reserves the first `bytes` of a file, which then reads as zeros: a full disk shows here, not in
 * the middle of the data. Where the file system cannot reserve, only the length is set. */
int pen_file_reserve(int fd, uint64_t bytes);

/* Writes all of it, at the file's position or at an offset. */
int pen_file_write(int fd, const void *bytes, size_t count);
int pen_file_write_at(int fd, const void *bytes, size_t count, uint64_t offset);

/* Reads up to `count` bytes, fewer only at the end of the file; returns how many, or -1. */
int64_t pen_file_read_at(int fd, void *bytes, size_t count, uint64_t offset);

/* Closes fd after work that came to `result`, 0 or -1, syncing it first. 0, or -1 if any of the
 * three failed: errno is the first one's. */
int pen_file_sync_close(int fd, int result);

#endif
