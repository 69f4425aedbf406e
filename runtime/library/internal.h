/* internal.h: what the files of the library share: the session (see penstock.h). */
#ifndef PEN_LIBRARY_INTERNAL_H
#define PEN_LIBRARY_INTERNAL_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "runtime/base/mailbox.h"
#include "runtime/library/penstock.h"

/* The numbers of check.h that arise here. */
enum pen_client_status {
  PEN_CLIENT_USAGE = 64,
  PEN_CLIENT_DATA = 65,
  PEN_CLIENT_NO_INPUT = 66,
  PEN_CLIENT_SYSTEM = 71,
  PEN_CLIENT_LOST = 75
};

struct pen_session {
  const char *name;
  const char **words;          /* the command line of the command; its strings are behind it */
  struct pen_mailbox *mailbox; /* mapped whole after the first answer */
  size_t bytes;                /* that are mapped */
  double learning_rate;        /* that the caller has set, or not a number */
  int descriptor;
  pid_t caller;          /* the process that has opened it */
  char folder[PATH_MAX]; /* where that was then: options have paths from there; "": not known */
  pid_t command;         /* 0: it has ended */
  uint32_t requested;    /* so far */
  int ended;             /* the status with which the ranks have ended; 0: they run */
  char message[PEN_SESSION_MESSAGE_BYTES];
  char ended_message[PEN_SESSION_MESSAGE_BYTES];
};

/* The session's; of null one of zeros. */
struct pen_mailbox *pen_client_mailbox(const struct pen_session *session);

/* Writes the message. Returns the status. */
int pen_client_fail(struct pen_session *session, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Fills a session of zeros. */
int pen_client_open(struct pen_session *session, const struct pen_library *library,
                    const char *const *options);

/* Starts the command, with the latest checkpoint of a folder (null: with none but that of its
 * options), and waits until its ranks can make a step. */
int pen_client_start(struct pen_session *session, const char *folder);

/* Ends the command, if it runs, and releases what belongs to it. */
void pen_client_end(struct pen_session *session);

/* Before a call: 0, or what the ranks have ended with; 64: the session is null, or of a process
 * that has forked this one. */
int pen_client_begin(struct pen_session *session);

/* 64 if an argument is null, of which the message names the call. */
int pen_client_given(struct pen_session *session, const char *call, const char *name,
                     const void *argument);

/* Writes a request and waits for the answer: its status. */
int pen_client_ask(struct pen_session *session, enum pen_request request);

/* Checks samples of all inputs against what that use reads, and copies them into the mailbox. What
 * does not fit (65) changes nothing. */
int pen_client_give(struct pen_session *session, const struct pen_samples *samples, uint32_t count,
                    enum pen_samples_use use);

/* Checks texts, and lets the ranks continue them. */
int pen_client_generate(struct pen_session *session, const struct pen_generation *by,
                        struct pen_generated *texts, uint32_t count);

#endif
