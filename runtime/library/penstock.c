/* penstock.c: the caller's side of the library (see penstock.h, and runtime/base/mailbox.h). It is
 * all that libpenstock-NAME.so has: the ranks run in other processes, and check.h, which ends a
 * process, is not used. */
#define _GNU_SOURCE
#include "runtime/library/penstock.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/mailbox.h"
#include "runtime/base/safetensors_header.h"

/* The numbers of check.h that arise here. */
enum { USAGE = 64, DATA = 65, NO_INPUT = 66, SYSTEM = 71, LOST = 75 };

static const uint64_t spin_ns = 2 * 1000;              /* the ranks need the cores */
static const uint64_t sleep_ns = 100 * 1000 * 1000ull; /* between two looks at the command */

struct pen_session {
  const char *name;
  struct pen_mailbox *mailbox; /* mapped whole after the first answer */
  size_t bytes;                /* that are mapped */
  int descriptor;
  pid_t command;      /* 0: it has ended */
  uint32_t requested; /* so far */
  int ended;          /* the status with which the ranks have ended; 0: they run */
  char message[PEN_SESSION_MESSAGE_BYTES];
};

static const struct {
  const char *name;
  unsigned bytes;
} dtypes[] = {
#define DTYPE(name, bytes) {#name, bytes},
    PEN_STORED_DTYPE_LIST(DTYPE)
#undef DTYPE
};

__attribute__((format(printf, 3, 4))) static int fail(struct pen_session *session, int status,
                                                      const char *format, ...) {
  char text[PEN_SESSION_MESSAGE_BYTES - 16];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  snprintf(session->message, sizeof session->message, "penstock: %s", text);
  return status;
}

/* ---- the command ---- */

/* What the command has said last. */
static void take_message(struct pen_session *session) {
  snprintf(session->message, sizeof session->message, "%s", session->mailbox->message);
  session->message[strcspn(session->message, "\n")] = '\0';
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
  session->command = 0;
  session->ended = exited && info.si_status != 0 ? info.si_status : LOST;
  if (session->mailbox->message[0] != '\0') {
    take_message(session);
  } else if (got == 0 && !exited) {
    fail(session, LOST, "penstock-%s: ended by signal %d", session->name, info.si_status);
  } else {
    fail(session, LOST, "penstock-%s: its ranks have ended", session->name);
  }
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
  if (mailbox->status != 0) {
    take_message(session);
  }
  return mailbox->status;
}

/* Before a call: what has ended stays so. */
static int begin(struct pen_session *session) {
  if (session->ended == 0) {
    session->message[0] = '\0';
    session->mailbox->message[0] = '\0';
    session->mailbox->status = 0;
  }
  return session->ended;
}

static void send_request(struct pen_session *session, enum pen_request request) {
  session->mailbox->request = request;
  session->requested++;
  pen_futex_counter_increment(&session->mailbox->requests);
}

/* ---- opening ---- */

static bool map(struct pen_session *session, size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, session->descriptor, 0);
  if (memory == MAP_FAILED) {
    return false;
  }
  if (session->mailbox != NULL) {
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
    return fail(session, SYSTEM, "cannot make shared memory: %s", strerror(errno));
  }
  session->mailbox->version = PEN_MAILBOX_VERSION;
  session->mailbox->caller = getpid();
  session->mailbox->learning_rate = NAN;
  return 0;
}

/* The binary beside the library. */
static int find_binary(struct pen_session *session, const struct pen_library *library,
                       char path[PATH_MAX]) {
  Dl_info info;
  if (dladdr(library->name, &info) == 0) {
    return fail(session, NO_INPUT, "libpenstock-%s.so: not found in this process", library->name);
  }
  const char *slash = strrchr(info.dli_fname, '/');
  const int folder = slash == NULL ? 0 : (int)(slash - info.dli_fname) + 1;
  const int bytes = snprintf(path, PATH_MAX, "%.*s%spenstock-%s", folder, info.dli_fname,
                             slash == NULL ? "./" : "", library->name);
  if (bytes >= PATH_MAX || access(path, X_OK) != 0) {
    return fail(session, NO_INPUT, "%s: %s", path,
                strerror(bytes < PATH_MAX ? errno : ENAMETOOLONG));
  }
  return 0;
}

/* A process in a session of its own, so that a terminal's signals are the caller's, with the
 * signals as a shell starts programs. */
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
  if (error == 0) {
    error = posix_spawn(&session->command, path, &files, &attributes, words, environ);
  }
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

static int start_command(struct pen_session *session, const char *path,
                         const char *const *options) {
  static const char *const first[] = {"serve", "", "train", "--quiet"};
  enum { FIRST = sizeof first / sizeof *first };
  char number[16];
  size_t count = 0;
  while (options != NULL && options[count] != NULL) {
    count++;
  }
  const char **words = calloc(1 + FIRST + count + 1, sizeof *words);
  if (words == NULL) {
    return fail(session, SYSTEM, "no memory for %zu options", count);
  }
  snprintf(number, sizeof number, "%d", session->descriptor);
  words[0] = path;
  memcpy(words + 1, first, sizeof first);
  words[2] = number;
  if (count > 0) {
    memcpy(words + 1 + FIRST, options, count * sizeof *words);
  }
  const int error = spawn(session, path, (char *const *)(uintptr_t)words);
  free(words);
  return error == 0 ? 0 : fail(session, SYSTEM, "cannot start %s: %s", path, strerror(error));
}

static int open_session(struct pen_session *session, const struct pen_library *library,
                        const char *const *options) {
  char path[PATH_MAX];
  int status = find_binary(session, library, path);
  if (status == 0) {
    status = make_mailbox(session);
  }
  if (status == 0) {
    status = start_command(session, path, options);
  }
  if (status == 0) {
    status = await_answer(session);
  }
  if (status == 0 && !map(session, session->mailbox->bytes)) {
    status = fail(session, SYSTEM, "cannot map shared memory: %s", strerror(errno));
  }
  return status;
}

int pen_session_open(const struct pen_library *library, const char *const *options,
                     struct pen_session **session, char message[PEN_SESSION_MESSAGE_BYTES]) {
  struct pen_session *made = calloc(1, sizeof *made);
  *session = NULL;
  message[0] = '\0';
  if (made == NULL) {
    snprintf(message, PEN_SESSION_MESSAGE_BYTES, "penstock: no memory for a session");
    return SYSTEM;
  }
  made->descriptor = -1;
  made->name = library->name;
  const int status = open_session(made, library, options);
  if (status != 0) {
    memcpy(message, made->message, PEN_SESSION_MESSAGE_BYTES);
    pen_session_close(made);
    return status;
  }
  *session = made;
  return 0;
}

void pen_session_close(struct pen_session *session) {
  if (session->command != 0) {
    send_request(session, PEN_REQUEST_CLOSE);
    has_ended(session, true);
  }
  if (session->mailbox != NULL) {
    munmap(session->mailbox, session->bytes);
  }
  if (session->descriptor >= 0) {
    close(session->descriptor);
  }
  free(session);
}

const char *pen_session_message(const struct pen_session *session) { return session->message; }

/* ---- samples ---- */

_Static_assert((int)PEN_SESSION_EVALUATION == (int)PEN_SAMPLES_OF_EVALUATION, "one order");

uint64_t pen_session_samples(const struct pen_session *session, enum pen_session_use use) {
  return session->mailbox->samples[use];
}

const char *pen_session_input(const struct pen_session *session, uint32_t index,
                              const char **wanted) {
  const struct pen_mailbox *mailbox = session->mailbox;
  if (index >= mailbox->input_count) {
    return NULL;
  }
  *wanted = mailbox->inputs[index].wanted;
  return mailbox->inputs[index].name;
}

/* "[4, 16]" */
static const char *shape_text(char text[PEN_SHOWN_BYTES], const struct pen_samples *samples) {
  size_t used = (size_t)snprintf(text, PEN_SHOWN_BYTES, "[");
  for (uint32_t i = 0; i < samples->dim_count && used < PEN_SHOWN_BYTES; i++) {
    used += (size_t)snprintf(text + used, PEN_SHOWN_BYTES - used, "%s%" PRIu64, i > 0 ? ", " : "",
                             samples->dim[i]);
  }
  if (used < PEN_SHOWN_BYTES) {
    snprintf(text + used, PEN_SHOWN_BYTES - used, "]");
  }
  return text;
}

static const char *names_text(char text[PEN_SESSION_MESSAGE_BYTES],
                              const struct pen_mailbox *mailbox) {
  size_t used = 0;
  text[0] = '\0';
  for (uint32_t i = 0; i < mailbox->input_count && used < PEN_SHOWN_BYTES; i++) {
    used += (size_t)snprintf(text + used, PEN_SESSION_MESSAGE_BYTES - used, "%s%s",
                             i > 0 ? ", " : "", mailbox->inputs[i].name);
  }
  return text;
}

/* The dtype that they have, if it serves; else UINT32_MAX. */
static uint32_t serving_dtype(const struct pen_mailbox_input *input,
                              const struct pen_samples *samples) {
  for (size_t i = 0; i < sizeof input->serving / sizeof *input->serving; i++) {
    if (strcmp(samples->dtype, dtypes[input->serving[i]].name) == 0) {
      return input->serving[i];
    }
  }
  return UINT32_MAX;
}

static bool has_dims(const struct pen_mailbox_input *input, const struct pen_samples *samples) {
  bool same = samples->dim_count == input->dim_count + 1;
  for (uint32_t i = 0; i < input->dim_count && same; i++) {
    same = samples->dim[i + 1] == input->dim[i];
  }
  return same;
}

static const struct pen_samples *find(const struct pen_mailbox_input *input,
                                      const struct pen_samples *samples, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    if (strcmp(samples[i].name, input->name) == 0) {
      return &samples[i];
    }
  }
  return NULL;
}

static int check_input(struct pen_session *session, const struct pen_mailbox_input *input,
                       const struct pen_samples *samples, enum pen_samples_use use) {
  char shape[PEN_SHOWN_BYTES], dtype[PEN_SHOWN_BYTES];
  if (samples == NULL) {
    return fail(session, DATA, PEN_INPUT_IS_MISSING, PEN_CALLER_SAMPLES, input->name,
                input->wanted);
  }
  if (serving_dtype(input, samples) == UINT32_MAX || !has_dims(input, samples)) {
    return fail(session, DATA, PEN_INPUT_IS_OTHER, PEN_CALLER_SAMPLES, input->name,
                pen_shown(dtype, samples->dtype), shape_text(shape, samples), input->wanted);
  }
  if (samples->dim[0] != session->mailbox->samples[use]) {
    return fail(session, DATA,
                PEN_CALLER_SAMPLES ": input %s: %" PRIu64 " samples, and a step reads %" PRIu64,
                input->name, samples->dim[0], session->mailbox->samples[use]);
  }
  return 0;
}

/* Checks all before anything is changed. */
static int check_samples(struct pen_session *session, const struct pen_samples *samples,
                         uint32_t count, enum pen_samples_use use) {
  const struct pen_mailbox *mailbox = session->mailbox;
  char shown[PEN_SHOWN_BYTES], names[PEN_SESSION_MESSAGE_BYTES];
  int status = 0;
  for (uint32_t i = 0; i < mailbox->input_count && status == 0; i++) {
    const struct pen_mailbox_input *input = &mailbox->inputs[i];
    status = check_input(session, input, find(input, samples, count), use);
  }
  for (uint32_t i = 0; i < count && status == 0; i++) {
    uint32_t of = 0;
    while (of < mailbox->input_count && strcmp(mailbox->inputs[of].name, samples[i].name) != 0) {
      of++;
    }
    if (of == mailbox->input_count) {
      status = fail(session, DATA, PEN_INPUT_IS_NONE, PEN_CALLER_SAMPLES,
                    pen_shown(shown, samples[i].name), names_text(names, mailbox));
    } else if (find(&mailbox->inputs[of], samples, i) != NULL) {
      status = fail(session, DATA, PEN_CALLER_SAMPLES ": input %s: given twice", samples[i].name);
    }
  }
  return status;
}

static void copy_samples(const struct pen_session *session, const struct pen_samples *samples,
                         uint32_t count) {
  struct pen_mailbox *mailbox = session->mailbox;
  for (uint32_t i = 0; i < mailbox->input_count; i++) {
    struct pen_mailbox_input *input = &mailbox->inputs[i];
    const struct pen_samples *from = find(input, samples, count);
    input->given = serving_dtype(input, from);
    memcpy((unsigned char *)mailbox + input->offset, from->data,
           from->dim[0] * input->elements * dtypes[input->given].bytes);
  }
}

/* ---- requests ---- */

/* One that reads samples. */
static int request_with(struct pen_session *session, const struct pen_samples *samples,
                        uint32_t count, enum pen_samples_use use, enum pen_request request) {
  int status = begin(session);
  if (status == 0) {
    status = check_samples(session, samples, count, use);
  }
  if (status != 0) {
    return status;
  }
  copy_samples(session, samples, count);
  send_request(session, request);
  return await_answer(session);
}

int pen_session_step(struct pen_session *session, const struct pen_samples *samples, uint32_t count,
                     struct pen_step *result) {
  const int status = request_with(session, samples, count, PEN_SAMPLES_OF_STEP, PEN_REQUEST_STEP);
  const struct pen_mailbox_step *step = &session->mailbox->step;
  if (status == 0) {
    *result = (struct pen_step){.loss = step->targets > 0 ? step->loss : NAN,
                                .grad_norm = step->targets > 0 ? step->norm : NAN,
                                .learning_rate = step->learning_rate,
                                .step = step->step,
                                .targets = step->targets};
  }
  return status;
}

int pen_session_evaluate(struct pen_session *session, const struct pen_samples *samples,
                         uint32_t count, double *loss, uint64_t *targets) {
  const int status =
      request_with(session, samples, count, PEN_SAMPLES_OF_EVALUATION, PEN_REQUEST_EVALUATE);
  if (status == 0) {
    *targets = session->mailbox->step.targets;
    *loss = *targets > 0 ? session->mailbox->step.loss : NAN;
  }
  return status;
}

int pen_session_set_learning_rate(struct pen_session *session, double learning_rate) {
  const int status = begin(session);
  if (status == 0 && !isnan(learning_rate) && !(learning_rate >= 0 && isfinite(learning_rate))) {
    return fail(session, USAGE, "learning rate %g: a number from 0 on", learning_rate);
  }
  if (status == 0) {
    session->mailbox->learning_rate = learning_rate;
  }
  return status;
}

static struct pen_mailbox_weight *weights_of(const struct pen_session *session) {
  return (struct pen_mailbox_weight *)((unsigned char *)session->mailbox +
                                       session->mailbox->weights_offset);
}

static float *values_of(const struct pen_session *session) {
  return (float *)((unsigned char *)session->mailbox + session->mailbox->values_offset);
}

const char *pen_session_weight(const struct pen_session *session, uint32_t index,
                               uint32_t *dim_count, const uint64_t **dim) {
  if (index >= session->mailbox->weight_count) {
    return NULL;
  }
  const struct pen_mailbox_weight *weight = &weights_of(session)[index];
  *dim_count = weight->dim_count;
  *dim = weight->dim;
  return weight->name;
}

/* Sets which weight a request is of. */
static int find_weight(struct pen_session *session, const char *name, uint64_t count) {
  struct pen_mailbox *mailbox = session->mailbox;
  const int status = begin(session);
  char shown[PEN_SHOWN_BYTES];
  uint32_t w = 0;
  if (status != 0) {
    return status;
  }
  while (w < mailbox->weight_count && strcmp(weights_of(session)[w].name, name) != 0) {
    w++;
  }
  if (w == mailbox->weight_count) {
    return fail(session, DATA, "weights: tensor %s: the model has none of that name",
                pen_shown(shown, name));
  }
  if (weights_of(session)[w].elements != count) {
    return fail(session, DATA, "weights: tensor %s: %" PRIu64 " elements, and it has %" PRIu64,
                name, count, weights_of(session)[w].elements);
  }
  mailbox->requested = w;
  return 0;
}

int pen_session_read_weight(struct pen_session *session, const char *name, float *values,
                            uint64_t count) {
  int status = find_weight(session, name, count);
  if (status == 0) {
    send_request(session, PEN_REQUEST_READ_WEIGHT);
    status = await_answer(session);
  }
  if (status == 0) {
    memcpy(values, values_of(session), count * sizeof *values);
  }
  return status;
}

int pen_session_write_weight(struct pen_session *session, const char *name, const float *values,
                             uint64_t count) {
  const int status = find_weight(session, name, count);
  for (uint64_t e = 0; e < count && status == 0; e++) {
    if (!isfinite(values[e])) {
      return fail(session, DATA, "weights: tensor %s: element %" PRIu64 " is not finite", name, e);
    }
  }
  if (status != 0) {
    return status;
  }
  memcpy(values_of(session), values, count * sizeof *values);
  send_request(session, PEN_REQUEST_WRITE_WEIGHT);
  return await_answer(session);
}

int pen_session_save(struct pen_session *session, const char *folder) {
  char real[PATH_MAX];
  const int status = begin(session);
  if (status != 0) {
    return status;
  }
  const bool absolute = folder[0] == '/' || getcwd(real, sizeof real) == NULL;
  const int bytes = absolute ? snprintf(session->mailbox->path, PATH_MAX, "%s", folder)
                             : snprintf(session->mailbox->path, PATH_MAX, "%s/%s", real, folder);
  if (bytes >= PATH_MAX) {
    return fail(session, USAGE, "save: the path has more than %d bytes", PATH_MAX - 1);
  }
  send_request(session, PEN_REQUEST_SAVE);
  return await_answer(session);
}
