/* files.h: file operations for checkpoints. None calls an allocator, so all may run after
 * pen_seal().
 *
 * Functions that return int return 0, or -1 with errno set, and print nothing.
 */
#ifndef PEN_FILES_H
#define PEN_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Makes a write beyond the process's file size limit fail with EFBIG instead of SIGXFSZ. */
void pen_files_report_size_limit(void);

/* path = folder "/" name. ENAMETOOLONG when it does not fit. */
int pen_path_join(char path[PATH_MAX], const char *folder, const char *name);

/* path = file suffix. ENAMETOOLONG when it does not fit. */
int pen_path_suffix(char path[PATH_MAX], const char *file, const char *suffix);

/* Makes a folder, unless it exists, and its missing parents, and syncs the parent of each. */
int pen_folder_make(const char *path);

/* A folder, whatever its name is; inode 0: none is known. */
struct pen_folder_id {
  uint64_t device, inode;
};

/* Whether a path names that folder; true if none is known. Else errno is that of stat(), or ESTALE:
 * another folder has the name now. */
bool pen_folder_is(const char *path, const struct pen_folder_id *id);

/* Locks the folder that the name has exclusively (flock) until this process and its children have
 * exited, or closed the descriptor that is returned; waits up to `seconds` for another process's
 * lock. -1 with EWOULDBLOCK: it is still locked. Without locks in the file system it succeeds; a
 * network file system may keep the locks of each host separately. Sets *id. */
int pen_folder_lock(const char *path, double seconds, struct pen_folder_id *id);

/* The same for an open file. */
int pen_file_lock(int fd, double seconds);

/* Takes a shared lock on a folder, so that pen_folder_try_lock() fails, until this process and its
 * children have exited. -1: the folder was removed, or is locked exclusively. */
int pen_folder_share(const char *path);

/* Locks a folder exclusively before its removal, if no process shares it. Returns a descriptor,
 * which the caller closes to unlock, or -1. */
int pen_folder_try_lock(const char *path);

/* Calls `visit` with the name of each entry of a folder, "." and ".." included, in no order. */
void pen_folder_each(const char *path, void (*visit)(void *context, const char *name),
                     void *context);

/* Syncs the entries of a folder; succeeds if the file system cannot sync folders. */
int pen_folder_sync(const char *path);

/* pen_folder_sync() of the folder that holds the file. */
int pen_folder_sync_of(const char *file);

/* open() of an output. For a FIFO it waits until a reader opens it, with all signals unblocked
 * meanwhile, so that a signal can end the wait. */
int pen_file_open_output(const char *path, int flags);

/* Whether it is open on a regular file: no pipe, socket, terminal or device. */
bool pen_file_is_regular(int fd);

/* Whether both describe the same file. */
bool pen_file_same(const struct stat *one, const struct stat *other);

/* Reserves the first `bytes` of a file, which then read as zeros, so that a full disk fails here
 * and not during a write. Sets only the length if the file system cannot reserve. */
int pen_file_reserve(int fd, uint64_t bytes);

/* Writes all of it, at the file's position or at an offset. */
int pen_file_write(int fd, const void *bytes, size_t count);
int pen_file_write_at(int fd, const void *bytes, size_t count, uint64_t offset);

/* Reads up to `count` bytes, fewer only at the end of the file; returns how many, or -1. */
int64_t pen_file_read_at(int fd, void *bytes, size_t count, uint64_t offset);

/* Syncs a file; succeeds if it is none that can be synced. */
int pen_file_sync(int fd);

/* Syncs and closes fd after work whose result was `result`, 0 or -1. Returns -1 if any of the three
 * failed, with the errno of the first. */
int pen_file_sync_close(int fd, int result);

#endif
