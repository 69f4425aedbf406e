/* samples.c: the samples of a caller: checks and copies (see internal.h). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/input_text.h"
#include "runtime/base/stored_dtypes.h"
#include "runtime/library/internal.h"

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
    if (strcmp(samples->dtype, pen_stored_dtypes[input->serving[i]].name) == 0) {
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

static int check_ids(struct pen_session *session, const struct pen_mailbox_input *input,
                     const struct pen_samples *samples) {
  const uint32_t dtype = serving_dtype(input, samples);
  const unsigned char *from = samples->data;
  const uint64_t count =
      pen_stored_dtypes[dtype].id == NULL ? 0 : samples->dim[0] * input->elements;
  const int64_t least = input->limit > 0 ? 0 : INT32_MIN,
                most = input->limit > 0 ? (int64_t)input->limit - 1 : INT32_MAX;
  char allowed[PEN_IDS_TEXT_BYTES];
  for (uint64_t e = 0; e < count; e++) {
    const int64_t id = pen_stored_dtypes[dtype].id(from + e * pen_stored_dtypes[dtype].bytes);
    if ((id < least || id > most) && !(input->may_ignore && id == PEN_IGNORED_TARGET)) {
      return pen_client_fail(session, PEN_CLIENT_DATA, PEN_INPUT_HAS_OTHER_ID, PEN_CALLER_SAMPLES,
                             input->name, e % input->elements, e / input->elements, id,
                             pen_ids_text(allowed, input->limit, input->may_ignore));
    }
  }
  return 0;
}

static int check_input(struct pen_session *session, const struct pen_mailbox_input *input,
                       const struct pen_samples *samples, enum pen_samples_use use) {
  char shape[PEN_SHOWN_BYTES], dtype[PEN_SHOWN_BYTES];
  if (samples == NULL) {
    return pen_client_fail(session, PEN_CLIENT_DATA, PEN_INPUT_IS_MISSING, PEN_CALLER_SAMPLES,
                           input->name, input->wanted);
  }
  if (serving_dtype(input, samples) == UINT32_MAX || !has_dims(input, samples)) {
    return pen_client_fail(session, PEN_CLIENT_DATA, PEN_INPUT_IS_OTHER, PEN_CALLER_SAMPLES,
                           input->name, pen_shown(dtype, samples->dtype),
                           shape_text(shape, samples), input->wanted);
  }
  if (samples->dim[0] != session->mailbox->samples[use]) {
    return pen_client_fail(session, PEN_CLIENT_DATA,
                           PEN_CALLER_SAMPLES ": input %s: %" PRIu64
                                              " samples, and a step reads %" PRIu64,
                           input->name, samples->dim[0], session->mailbox->samples[use]);
  }
  return check_ids(session, input, samples);
}

/* Checks all before anything is changed. */
static int check_samples(struct pen_session *session, const struct pen_samples *samples,
                         uint32_t count, enum pen_samples_use use) {
  const struct pen_mailbox *mailbox = session->mailbox;
  char shown[PEN_SHOWN_BYTES], names[PEN_SESSION_MESSAGE_BYTES];
  int status = 0;
  for (uint32_t i = 0; i < mailbox->input_count && status == 0; i++) {
    const struct pen_mailbox_input *input = &mailbox->inputs[i];
    status = pen_mailbox_reads(input, use)
                 ? check_input(session, input, find(input, samples, count), use)
                 : 0;
  }
  for (uint32_t i = 0; i < count && status == 0; i++) {
    uint32_t of = 0;
    while (of < mailbox->input_count && strcmp(mailbox->inputs[of].name, samples[i].name) != 0) {
      of++;
    }
    if (of == mailbox->input_count) {
      status = pen_client_fail(session, PEN_CLIENT_DATA, PEN_INPUT_IS_NONE, PEN_CALLER_SAMPLES,
                               pen_shown(shown, samples[i].name), names_text(names, mailbox));
    } else if (find(&mailbox->inputs[of], samples, i) != NULL) {
      status = pen_client_fail(session, PEN_CLIENT_DATA,
                               PEN_CALLER_SAMPLES ": input %s: given twice", samples[i].name);
    }
  }
  return status;
}

static void copy_samples(const struct pen_session *session, const struct pen_samples *samples,
                         uint32_t count, enum pen_samples_use use) {
  struct pen_mailbox *mailbox = session->mailbox;
  for (uint32_t i = 0; i < mailbox->input_count; i++) {
    struct pen_mailbox_input *input = &mailbox->inputs[i];
    const struct pen_samples *from = find(input, samples, count);
    if (pen_mailbox_reads(input, use)) {
      input->given = serving_dtype(input, from);
      memcpy((unsigned char *)mailbox + input->offset, from->data,
             from->dim[0] * input->elements * pen_stored_dtypes[input->given].bytes);
    }
  }
}

static int check_pointers(struct pen_session *session, const struct pen_samples *samples,
                          uint32_t count) {
  int status = count > 0 ? pen_client_given(session, PEN_CALLER_SAMPLES, "inputs", samples) : 0;
  for (uint32_t i = 0; i < count && status == 0; i++) {
    const struct pen_samples *of = &samples[i];
    if (of->name == NULL || of->dtype == NULL || of->dim == NULL || of->data == NULL) {
      status = pen_client_fail(session, PEN_CLIENT_USAGE,
                               PEN_CALLER_SAMPLES ": the input at index %" PRIu32
                                                  ": name, dtype, dim or data is a null pointer",
                               i);
    }
  }
  return status;
}

int pen_client_give(struct pen_session *session, const struct pen_samples *samples, uint32_t count,
                    enum pen_samples_use use) {
  int status = check_pointers(session, samples, count);
  if (status == 0) {
    status = check_samples(session, samples, count, use);
  }
  if (status == 0) {
    copy_samples(session, samples, count, use);
  }
  return status;
}
