/* request_save.c: saves because the library asks for it (see request_save.h). */
#include "runtime/rank/request_save.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/mailbox.h"
#include "runtime/base/seal.h"
#include "runtime/rank/saving.h"

static const double lock_timeout_s = 2;

/* The folder that rank 0 has locked. */
static struct {
  struct pen_folder_id id;
  int descriptor;
} locked = {.descriptor = -1};

/* Locks a folder in place of the one before. One that cannot be made is left to the save, which
 * says why. */
static int lock(const char *path) {
  struct pen_folder_id id;
  if (locked.descriptor >= 0 && pen_folder_is(path, &locked.id)) {
    return 0;
  }
  if (pen_folder_make(path) != 0) {
    return 0;
  }
  const int descriptor = pen_folder_lock(path, lock_timeout_s, &id);
  if (descriptor < 0) {
    return -1;
  }
  if (locked.descriptor >= 0) {
    close(locked.descriptor);
  }
  locked.id = id;
  locked.descriptor = descriptor;
  return 0;
}

/* On rank 0. The folder of --checkpoint has been locked by the command. Returns why not, an exit
 * status. */
static int take_folder(const struct pen_rank *rank) {
  const struct pen_run *run = rank->run;
  const struct pen_mailbox *mailbox = run->options->mailbox;
  const bool is_own =
      run->checkpoints.inode != 0 && pen_folder_is(mailbox->path, &run->checkpoints);
  int status = 0;
  pen_unseal();
  if (!is_own && lock(mailbox->path) != 0) {
    status = PEN_EXIT_CANNOT_CREATE;
    pen_warn("%s: %s; step %" PRIu64 " is not saved, training continues", mailbox->path,
             errno == EWOULDBLOCK ? "another run saves there" : strerror(errno),
             rank->vm->optimizer_step);
  }
  pen_seal();
  return status;
}

bool pen_request_save(struct pen_rank *rank) {
  struct pen_mailbox *mailbox = rank->run->options->mailbox;
  struct pen_rank_state *first = &rank->run->shared.ranks[0];
  struct pen_arena_view view;
  if (rank->endpoint.global == 0) {
    atomic_store(&first->answer, (uint32_t)take_folder(rank));
  }
  if (!pen_endpoint_barrier(&rank->endpoint)) {
    return false;
  }
  int status = (int)atomic_load(&first->answer);
  if (status == 0) {
    const struct pen_saving saving = pen_rank_saving(rank, mailbox->path, &view);
    if (!pen_save(&rank->endpoint, &saving, &status)) {
      return false;
    }
  }
  if (rank->endpoint.global == rank->run->local.first) {
    mailbox->status = status;
    if (status != 0 && mailbox->message[0] == '\0') { /* a rank of another host has said why */
      snprintf(mailbox->message, sizeof mailbox->message,
               "penstock: step %" PRIu64 " is not saved, training continues: another host says why",
               rank->vm->optimizer_step);
    }
  }
  return true;
}
