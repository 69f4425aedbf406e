/* penstock.c: the functions of the library (see penstock.h). The ranks run in other processes;
 * check.h, which ends a process, is not used here. */
#include "runtime/library/penstock.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/stored_dtypes.h"
#include "runtime/library/internal.h"

int pen_session_open(const struct pen_library *library, const char *const *options,
                     struct pen_session **session, char message[PEN_SESSION_MESSAGE_BYTES]) {
  struct pen_session *made = calloc(1, sizeof *made);
  *session = NULL;
  message[0] = '\0';
  if (made == NULL) {
    snprintf(message, PEN_SESSION_MESSAGE_BYTES, "penstock: no memory for a session");
    return PEN_CLIENT_SYSTEM;
  }
  int status = pen_client_open(made, library, options);
  if (status == 0) {
    status = pen_client_start(made, NULL);
  }
  memcpy(message, made->message, PEN_SESSION_MESSAGE_BYTES);
  if (status != 0) {
    pen_session_close(made);
    return status;
  }
  *session = made;
  return 0;
}

void pen_session_close(struct pen_session *session) {
  if (session != NULL) {
    pen_client_end(session);
    free(session->words);
    free(session);
  }
}

const char *pen_session_message(const struct pen_session *session) {
  return session == NULL ? "penstock: the session is a null pointer" : session->message;
}

/* ---- samples ---- */

_Static_assert((int)PEN_SESSION_EVALUATION == (int)PEN_SAMPLES_OF_EVALUATION, "one order");

uint64_t pen_session_samples(const struct pen_session *session, enum pen_session_use use) {
  const struct pen_mailbox *mailbox = pen_client_mailbox(session);
  return use == PEN_SESSION_SCORES                    ? mailbox->score_count
         : (unsigned)use <= PEN_SAMPLES_OF_EVALUATION ? mailbox->samples[use]
                                                      : 0;
}

const char *pen_session_input(const struct pen_session *session, uint32_t index,
                              const char **wanted) {
  const struct pen_mailbox *mailbox = pen_client_mailbox(session);
  if (index >= mailbox->input_count) {
    return NULL;
  }
  *wanted = mailbox->inputs[index].wanted;
  return mailbox->inputs[index].name;
}

/* ---- requests ---- */

/* One that reads samples, with where a result goes. */
static int request_with(struct pen_session *session, const struct pen_samples *samples,
                        uint32_t count, enum pen_samples_use use, enum pen_request request,
                        const void *result) {
  static const char *const calls[] = {"step", "evaluate", "score"};
  int status = pen_client_begin(session);
  if (status == 0) {
    status = pen_client_given(session, calls[use], "result", result);
  }
  if (status == 0) {
    status = pen_client_give(session, samples, count, use);
  }
  return status == 0 ? pen_client_ask(session, request) : status;
}

int pen_session_step(struct pen_session *session, const struct pen_samples *samples, uint32_t count,
                     struct pen_step_result *result) {
  const int status =
      request_with(session, samples, count, PEN_SAMPLES_OF_STEP, PEN_REQUEST_STEP, result);
  const struct pen_mailbox_step *step = &pen_client_mailbox(session)->step;
  if (status == 0) {
    *result = (struct pen_step_result){.loss = step->targets > 0 ? step->loss : NAN,
                                       .grad_norm = step->targets > 0 ? step->norm : NAN,
                                       .learning_rate = step->learning_rate,
                                       .step = step->step,
                                       .targets = step->targets};
  }
  return status;
}

int pen_session_evaluate(struct pen_session *session, const struct pen_samples *samples,
                         uint32_t count, double *loss, uint64_t *targets) {
  const int status = request_with(session, samples, count, PEN_SAMPLES_OF_EVALUATION,
                                  PEN_REQUEST_EVALUATE, targets == NULL ? NULL : loss);
  if (status == 0) {
    *targets = session->mailbox->step.targets;
    *loss = *targets > 0 ? session->mailbox->step.loss : NAN;
  }
  return status;
}

int pen_session_score(struct pen_session *session, const struct pen_samples *samples,
                      uint32_t count, double *log_probabilities, uint64_t score_count) {
  struct pen_mailbox *mailbox = pen_client_mailbox(session);
  const uint64_t wanted = mailbox->score_count;
  int status = pen_client_begin(session);
  if (status == 0 && wanted == 0) {
    return pen_client_fail(
        session, PEN_CLIENT_USAGE, "score: the model %s",
        mailbox->text_limit == 0 ? mailbox->no_texts : "has no input with a target of each token");
  }
  if (status == 0 && score_count != wanted) {
    return pen_client_fail(session, PEN_CLIENT_USAGE,
                           "score: %" PRIu64 " log-probabilities, and there are %" PRIu64,
                           score_count, wanted);
  }
  if (status == 0) {
    pen_mailbox_clear(mailbox, mailbox->scores_offset, 2 * wanted * sizeof(double));
    status = request_with(session, samples, count, PEN_SAMPLES_OF_SCORES, PEN_REQUEST_SCORE,
                          log_probabilities);
  }
  const double *found = (const double *)((const unsigned char *)mailbox + mailbox->scored_offset);
  for (uint64_t i = 0; i < wanted && status == 0; i++) {
    log_probabilities[i] = 0.0 - found[i]; /* not -0 */
  }
  return status;
}

const char *pen_session_output(const struct pen_session *session, uint32_t index,
                               struct pen_samples *output) {
  const struct pen_mailbox *mailbox = pen_client_mailbox(session);
  const unsigned char *all = (const unsigned char *)mailbox;
  if (index >= mailbox->output_count) {
    return NULL;
  }
  const struct pen_mailbox_output *found =
      (const struct pen_mailbox_output *)(all + mailbox->outputs_offset) + index;
  *output = (struct pen_samples){.name = found->name,
                                 .dtype = pen_stored_dtypes[found->stored].name,
                                 .dim_count = sizeof found->dim / sizeof *found->dim,
                                 .dim = found->dim,
                                 .data = all + found->offset};
  return found->name;
}

int pen_session_generate(struct pen_session *session, const struct pen_generation *generation,
                         struct pen_generated *texts, uint32_t count) {
  const int status = pen_client_begin(session);
  return status == 0 ? pen_client_generate(session, generation, texts, count) : status;
}

int pen_session_set_learning_rate(struct pen_session *session, double learning_rate) {
  const int status = pen_client_begin(session);
  if (status == 0 && !isnan(learning_rate) && !(learning_rate >= 0 && learning_rate <= FLT_MAX)) {
    return pen_client_fail(session, PEN_CLIENT_USAGE, "learning rate %g: a number from 0 to 3.4e38",
                           learning_rate);
  }
  if (status == 0) {
    session->learning_rate = session->mailbox->learning_rate = learning_rate;
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
  if (index >= pen_client_mailbox(session)->weight_count) {
    return NULL;
  }
  const struct pen_mailbox_weight *weight = &weights_of(session)[index];
  *dim_count = weight->dim_count;
  *dim = weight->dim;
  return weight->name;
}

/* Sets which weight a request is of. */
static int find_weight(struct pen_session *session, const char *name, const float *values,
                       uint64_t count) {
  struct pen_mailbox *mailbox = pen_client_mailbox(session);
  char shown[PEN_SHOWN_BYTES];
  uint32_t w = 0;
  int status = pen_client_begin(session);
  if (status == 0) {
    status = pen_client_given(session, "weights", "name", name);
  }
  if (status != 0) {
    return status;
  }
  while (w < mailbox->weight_count && strcmp(weights_of(session)[w].name, name) != 0) {
    w++;
  }
  if (w == mailbox->weight_count) {
    return pen_client_fail(session, PEN_CLIENT_DATA,
                           "weights: tensor %s: the model has none of that name",
                           pen_shown(shown, name));
  }
  if (weights_of(session)[w].elements != count) {
    return pen_client_fail(session, PEN_CLIENT_DATA,
                           "weights: tensor %s: %" PRIu64 " elements, and it has %" PRIu64, name,
                           count, weights_of(session)[w].elements);
  }
  mailbox->requested = w;
  return pen_client_given(session, "weights", "values", values);
}

int pen_session_read_weight(struct pen_session *session, const char *name, float *values,
                            uint64_t count) {
  int status = find_weight(session, name, values, count);
  if (status == 0) {
    pen_mailbox_clear(session->mailbox, session->mailbox->values_offset, count * sizeof *values);
    status = pen_client_ask(session, PEN_REQUEST_READ_WEIGHT);
  }
  if (status == 0) {
    memcpy(values, values_of(session), count * sizeof *values);
  }
  return status;
}

int pen_session_write_weight(struct pen_session *session, const char *name, const float *values,
                             uint64_t count) {
  const int status = find_weight(session, name, values, count);
  for (uint64_t e = 0; e < count && status == 0; e++) {
    if (!isfinite(values[e])) {
      return pen_client_fail(session, PEN_CLIENT_DATA,
                             "weights: tensor %s: element %" PRIu64 " is not finite", name, e);
    }
  }
  if (status != 0) {
    return status;
  }
  memcpy(values_of(session), values, count * sizeof *values);
  return pen_client_ask(session, PEN_REQUEST_WRITE_WEIGHT);
}

/* The ranks have another working folder: the path is whole. */
static int whole_path(struct pen_session *session, const char *call, const char *folder,
                      char path[PATH_MAX]) {
  char current[PATH_MAX];
  if (folder == NULL || folder[0] == '\0') {
    return pen_client_fail(session, PEN_CLIENT_USAGE, "%s: no folder is named", call);
  }
  const bool relative = folder[0] != '/' && getcwd(current, sizeof current) != NULL;
  const int bytes = relative ? snprintf(path, PATH_MAX, "%s/%s", current, folder)
                             : snprintf(path, PATH_MAX, "%s", folder);
  return bytes < PATH_MAX ? 0
                          : pen_client_fail(session, PEN_CLIENT_USAGE,
                                            "%s: the path of the folder has more than %d bytes",
                                            call, PATH_MAX - 1);
}

int pen_session_save(struct pen_session *session, const char *folder) {
  int status = pen_client_begin(session);
  if (status == 0) {
    status = whole_path(session, "save", folder, session->mailbox->path);
  }
  return status == 0 ? pen_client_ask(session, PEN_REQUEST_SAVE) : status;
}

int pen_session_load(struct pen_session *session, const char *folder) {
  char path[PATH_MAX];
  int status = session == NULL || session->caller != getpid()
                   ? pen_client_begin(session)
                   : whole_path(session, "load", folder, path);
  struct stat found;
  if (status == 0 && stat(path, &found) == 0 && !S_ISDIR(found.st_mode)) {
    status = pen_client_fail(session, PEN_CLIENT_NO_INPUT, "%s: %s", path, strerror(ENOTDIR));
  } else if (status == 0 && access(path, X_OK) != 0) {
    status = pen_client_fail(session, PEN_CLIENT_NO_INPUT, "%s: %s", path, strerror(errno));
  }
  if (status != 0) {
    return status;
  }
  pen_client_end(session);
  return pen_client_start(session, path);
}
