/* start.c: starts, asks and ends the command that runs the ranks (see internal.h). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/library/internal.h"

static const uint64_t spin_ns = 2 * 1000;              /* the ranks need the cores */
static const uint64_t sleep_ns = 100 * 1000 * 1000ull; /* between two looks at the command */

/* Of a session without a command: no inputs and no weights. Never written. */
static struct pen_mailbox none;

struct pen_mailbox *pen_client_mailbox(const struct pen_session *session) {
  return session == NULL ? &none : session->mailbox;
}

int pen_client_fail(struct pen_session *session, int status, const char *format, ...) {
  char text[PEN_SESSION_MESSAGE_BYTES - 16];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  snprintf(session->message, sizeof session->message, "penstock: %s", text);
  return status;
}

/* ---- requests ---- */

/* What the command has said last. */
static void take_message(struct pen_session *session) {
  snprintf(session->message, sizeof session->message, "%s", session->mailbox->message);
  session->message[strcspn(session->message, "\n")] = '\0';
}

/* From now on all calls return that, with the message that it has now. */
static void note_end(struct pen_session *session, int status) {
  session->ended = status;
  memcpy(session->ended_message, session->message, sizeof session->message);
}

/* Whether the command has ended; then `ended` and the message are set. */
static bool has_ended(struct pen_session *session, bool waits) {
  siginfo_t info = {.si_pid = 0};
  int got;
  do {
    got = waitid(P_PID, (id_t)session->command, &info, WEXITED | (waits ? 0 : WNOHANG));
  } while (got != 0 && errno == EINTR);
  if (got == 0 && info.si_pid == 0) {
    return false;
  }
  const bool exited = got == 0 && info.si_code == CLD_EXITED;
  const int status = exited && info.si_status != 0 ? info.si_status : PEN_CLIENT_LOST;
  session->command = 0;
  if (session->mailbox->message[0] != '\0') {
    take_message(session);
  } else if (got == 0 && !exited) {
    pen_client_fail(session, PEN_CLIENT_LOST, "penstock-%s: ended by signal %d", session->name,
                    info.si_status);
  } else {
    pen_client_fail(session, PEN_CLIENT_LOST, "penstock-%s: its ranks have ended", session->name);
  }
  note_end(session, status);
  return true;
}

/* Waits for the answer to the last request. */
static int await_answer(struct pen_session *session) {
  struct pen_mailbox *mailbox = session->mailbox;
  const uint32_t needed = session->requested + 1; /* the first came unasked */
  while (!pen_futex_counter_wait_for(&mailbox->answers, needed, spin_ns, sleep_ns)) {
    if (has_ended(session, false)) {
      return session->ended;
    }
  }
  take_message(session); /* or a warning */
  return mailbox->status;
}

int pen_client_begin(struct pen_session *session) {
  if (session == NULL) {
    return PEN_CLIENT_USAGE;
  }
  if (session->caller != getpid()) {
    return pen_client_fail(session, PEN_CLIENT_USAGE,
                           "the session is of process %d, which has forked this one: open another",
                           (int)session->caller);
  }
  if (session->ended == 0) {
    session->message[0] = '\0';
    session->mailbox->message[0] = '\0';
    session->mailbox->status = 0;
  } else {
    memcpy(session->message, session->ended_message, sizeof session->message);
  }
  return session->ended;
}

int pen_client_given(struct pen_session *session, const char *call, const char *name,
                     const void *argument) {
  return argument != NULL
             ? 0
             : pen_client_fail(session, PEN_CLIENT_USAGE, "%s: %s: a null pointer", call, name);
}

static void send(struct pen_session *session, enum pen_request request) {
  session->mailbox->request = request;
  session->requested++;
  pen_futex_counter_increment(&session->mailbox->requests);
}

int pen_client_ask(struct pen_session *session, enum pen_request request) {
  send(session, request);
  return await_answer(session);
}

void pen_client_end(struct pen_session *session) {
  if (session->command != 0 && session->caller == getpid()) {
    send(session, PEN_REQUEST_CLOSE);
    has_ended(session, true);
  }
  if (session->bytes > 0) {
    munmap(session->mailbox, session->bytes);
  }
  if (session->descriptor >= 0) {
    close(session->descriptor);
  }
  session->mailbox = &none;
  session->bytes = 0;
  session->descriptor = -1;
  session->requested = 0;
}

/* ---- opening ---- */

static bool map(struct pen_session *session, size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, session->descriptor, 0);
  if (memory == MAP_FAILED) {
    return false;
  }
  if (session->bytes > 0) {
    munmap(session->mailbox, session->bytes);
  }
  session->mailbox = memory;
  session->bytes = bytes;
  return true;
}

static int make_mailbox(struct pen_session *session) {
  session->descriptor = memfd_create("penstock library", MFD_CLOEXEC);
  if (session->descriptor < 0 ||
      ftruncate(session->descriptor, (off_t)sizeof *session->mailbox) != 0 ||
      !map(session, sizeof *session->mailbox)) {
    return pen_client_fail(session, PEN_CLIENT_SYSTEM, "cannot make shared memory: %s",
                           strerror(errno));
  }
  session->mailbox->version = PEN_MAILBOX_VERSION;
  session->mailbox->caller = getpid();
  session->mailbox->learning_rate = session->learning_rate;
  return 0;
}

/* The binary beside the library. */
static int find_binary(struct pen_session *session, const struct pen_library *library,
                       char path[PATH_MAX]) {
  Dl_info info;
  if (dladdr(library->name, &info) == 0) {
    return pen_client_fail(session, PEN_CLIENT_NO_INPUT,
                           "libpenstock-%s.so: not found in this process", library->name);
  }
  const char *slash = strrchr(info.dli_fname, '/');
  const int folder = slash == NULL ? 0 : (int)(slash - info.dli_fname) + 1;
  const int bytes = snprintf(path, PATH_MAX, "%.*s%spenstock-%s", folder, info.dli_fname,
                             slash == NULL ? "./" : "", library->name);
  if (bytes >= PATH_MAX || access(path, X_OK) != 0) {
    return pen_client_fail(session, PEN_CLIENT_NO_INPUT, "%s: %s", path,
                           strerror(bytes < PATH_MAX ? errno : ENAMETOOLONG));
  }
  return 0;
}

/* A process in a session of its own, so that a terminal's signals are the caller's, with the
 * signals as a shell starts programs, in the folder where the session was opened. */
static int spawn(struct pen_session *session, const char *path, char *const *words) {
  const short flags = POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  int error = posix_spawn_file_actions_init(&files);
  if (error == 0) {
    error = posix_spawnattr_init(&attributes);
  }
  if (error != 0) {
    return error;
  }
  posix_spawnattr_setflags(&attributes, flags);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  error = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (error == 0) {
    error = posix_spawn_file_actions_adddup2(&files, session->descriptor, session->descriptor);
  }
  if (error == 0 && session->folder[0] != '\0') {
    error = posix_spawn_file_actions_addchdir_np(&files, session->folder);
  }
  if (error == 0) {
    error = posix_spawn(&session->command, path, &files, &attributes, words, environ);
  }
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

int pen_client_open(struct pen_session *session, const struct pen_library *library,
                    const char *const *options) {
  static const char *const first[] = {"serve", "", "train", "--quiet"};
  enum { FIRST = sizeof first / sizeof *first };
  char path[PATH_MAX];
  session->mailbox = &none;
  session->descriptor = -1;
  session->caller = getpid();
  if (library == NULL || library->name == NULL) {
    return pen_client_given(session, "open", "library", NULL);
  }
  session->name = library->name;
  if (getcwd(session->folder, sizeof session->folder) == NULL) {
    session->folder[0] = '\0';
  }
  session->learning_rate = NAN;
  const int status = find_binary(session, library, path);
  size_t count = 0, bytes = strlen(path) + 1;
  for (; options != NULL && options[count] != NULL; count++) {
    bytes += strlen(options[count]) + 1;
  }
  if (status != 0) {
    return status;
  }
  const size_t word_bytes = (1 + FIRST + count + 1) * sizeof *session->words;
  session->words = calloc(1, word_bytes + bytes);
  if (session->words == NULL) {
    return pen_client_fail(session, PEN_CLIENT_SYSTEM, "no memory for %zu options", count);
  }
  char *to = (char *)session->words + word_bytes;
  memcpy(session->words + 1, first, sizeof first);
  for (size_t i = 0; i <= count; i++) {
    session->words[i == 0 ? 0 : FIRST + i] = to;
    to = stpcpy(to, i == 0 ? path : options[i - 1]) + 1;
  }
  return 0;
}

/* Starts it with a new mailbox. */
static int start(struct pen_session *session, const char *folder) {
  const char *path = session->words[0];
  char number[16];
  const int status = make_mailbox(session);
  if (status != 0) {
    return status;
  }
  snprintf(session->mailbox->loaded, PATH_MAX, "%s", folder == NULL ? "" : folder);
  snprintf(number, sizeof number, "%d", session->descriptor);
  session->words[2] = number;
  const int error = spawn(session, path, (char *const *)(uintptr_t)session->words);
  session->words[2] = "";
  return error == 0 ? await_answer(session)
                    : pen_client_fail(session, PEN_CLIENT_SYSTEM, "cannot start %s: %s", path,
                                      strerror(error));
}

int pen_client_start(struct pen_session *session, const char *folder) {
  int status;
  session->ended = 0;
  session->message[0] = '\0';
  status = start(session, folder);
  if (status == 0 && !map(session, session->mailbox->bytes)) {
    status = pen_client_fail(session, PEN_CLIENT_SYSTEM, "cannot map shared memory: %s",
                             strerror(errno));
  }
  if (status != 0) {
    pen_client_end(session);
    note_end(session, status);
  }
  return status;
}
