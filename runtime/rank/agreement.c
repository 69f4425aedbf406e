/* agreement.c: compares requests of the library over several hosts (see agreement.h).
 *
 * The first rank of each command writes what its caller asks for, before the barrier in which all
 * ranks wait for all callers; then each rank compares. A rank that is one request ahead of another
 * writes to the other of two places: it cannot be two ahead, since each request has its barrier. */
#include "runtime/rank/agreement.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/base/crc32.h"
#include "runtime/base/mailbox.h"
#include "runtime/base/stored_dtypes.h"

static uint64_t samples_checksum(const struct pen_rank *rank, enum pen_samples_use use) {
  const struct pen_mailbox *mailbox = rank->run->options->mailbox;
  const unsigned char *all = rank->run->library->all;
  uint32_t crc = 0;
  for (uint32_t i = 0; i < mailbox->input_count; i++) {
    const struct pen_mailbox_input *input = &mailbox->inputs[i];
    const struct pen_stored_dtype *dtype = &pen_stored_dtypes[input->given];
    if (pen_mailbox_reads(input, use)) {
      crc = pen_crc32(crc, dtype->name, strlen(dtype->name));
      crc = pen_crc32(crc, all + input->offset,
                      mailbox->samples[use] * input->elements * dtype->bytes);
    }
  }
  return crc;
}

static uint64_t step_checksum(const struct pen_rank *rank) {
  return samples_checksum(rank, PEN_SAMPLES_OF_STEP);
}

static uint64_t evaluation_checksum(const struct pen_rank *rank) {
  return samples_checksum(rank, PEN_SAMPLES_OF_EVALUATION);
}

static uint64_t scores_checksum(const struct pen_rank *rank) {
  return samples_checksum(rank, PEN_SAMPLES_OF_SCORES);
}

static uint64_t prompts_checksum(const struct pen_rank *rank) {
  const struct pen_mailbox *mailbox = rank->run->options->mailbox;
  const struct pen_mailbox_generation *generation = &mailbox->generation;
  const unsigned char *all = rank->run->library->all;
  const struct pen_mailbox_text *texts =
      (const struct pen_mailbox_text *)(all + mailbox->texts_offset);
  const uint32_t *tokens = (const uint32_t *)(all + mailbox->tokens_offset);
  uint32_t crc = pen_crc32(0, generation, sizeof *generation);
  crc = pen_crc32(crc, texts, generation->text_count * sizeof *texts);
  for (uint64_t i = 0; i < generation->text_count; i++) {
    crc = pen_crc32(crc, tokens + i * mailbox->text_tokens, texts[i].prompt * sizeof *tokens);
  }
  return crc;
}

static uint64_t weight_checksum(const struct pen_rank *rank) {
  const uint32_t requested = rank->run->options->mailbox->requested;
  return pen_crc32(0, &requested, sizeof requested);
}

static uint64_t values_checksum(const struct pen_rank *rank) {
  const struct pen_mailbox *mailbox = rank->run->options->mailbox;
  const unsigned char *all = rank->run->library->all;
  const struct pen_mailbox_weight *weights =
      (const struct pen_mailbox_weight *)(all + mailbox->weights_offset);
  return pen_crc32((uint32_t)weight_checksum(rank), all + mailbox->values_offset,
                   weights[mailbox->requested].elements * sizeof(float));
}

/* What a request is of, and what is said where callers differ in it; null: nothing more. */
static const struct {
  uint64_t (*checksum)(const struct pen_rank *rank);
  const char *other;
} asks[PEN_REQUEST_CLOSE + 1] = {
    [PEN_REQUEST_STEP] = {step_checksum, "gives other samples"},
    [PEN_REQUEST_EVALUATE] = {evaluation_checksum, "gives other samples"},
    [PEN_REQUEST_SCORE] = {scores_checksum, "gives other samples"},
    [PEN_REQUEST_GENERATE] = {prompts_checksum, "gives other prompts, or draws otherwise"},
    [PEN_REQUEST_READ_WEIGHT] = {weight_checksum, "reads another weight"},
    [PEN_REQUEST_WRITE_WEIGHT] = {values_checksum, "sets another weight, or other values"},
};

static struct pen_asked asked_of(const struct pen_rank *rank) {
  const struct pen_mailbox *mailbox = rank->run->options->mailbox;
  struct pen_asked asked = {.request = mailbox->request + UINT64_C(1)};
  memcpy(&asked.learning_rate, &mailbox->learning_rate, sizeof asked.learning_rate);
  if (asks[mailbox->request].checksum != NULL) {
    asked.samples = asks[mailbox->request].checksum(rank);
  }
  return asked;
}

/* Null: nothing. */
static const char *difference(const struct pen_asked *a, const struct pen_asked *b) {
  return a->request != b->request               ? "makes another call"
         : a->samples != b->samples             ? asks[a->request - 1].other
         : a->learning_rate != b->learning_rate ? "has another learning rate"
                                                : NULL;
}

/* In one rank of each command. */
static void report(const struct pen_rank *rank, uint32_t other, const char *what, int status) {
  const struct pen_rank_state *ranks = rank->run->shared.ranks;
  struct pen_mailbox *mailbox = rank->run->options->mailbox;
  const bool steps = mailbox->request == PEN_REQUEST_STEP && status == PEN_EXIT_DATA;
  mailbox->status = status;
  snprintf(mailbox->message, sizeof mailbox->message,
           "penstock: %sstep %" PRIu64 ": host %s %s than host %s", steps ? "" : "after ",
           rank->vm->optimizer_step + steps, ranks[other].host, what, ranks[0].host);
}

/* From then on its ranks arrive at no barrier. */
static void fail_if_closed(const struct pen_run *run, uint32_t place) {
  const struct pen_rank_state *ranks = run->shared.ranks;
  for (uint32_t r = 0; r < run->shared.process_count; r++) {
    if (ranks[r].asked[place].request == PEN_REQUEST_CLOSE + 1) {
      pen_fail(PEN_EXIT_LOST, "host %s has closed its session", ranks[r].host);
    }
  }
}

bool pen_callers_agree(struct pen_rank *rank, bool *agreed) {
  const struct pen_run *run = rank->run;
  const struct pen_rank_state *ranks = run->shared.ranks;
  const struct pen_mailbox *mailbox = run->options->mailbox;
  const uint32_t place = rank->requests % 2;
  const bool first = rank->endpoint.global == run->local.first;
  *agreed = true;
  if (first) {
    rank->endpoint.self->asked[place] = asked_of(rank);
  }
  if (mailbox->request == PEN_REQUEST_CLOSE) {
    pen_futex_counter_increment(&rank->endpoint.self->arrived);
    pen_shared_notify(&run->shared);
    return true;
  }
  if (!pen_endpoint_barrier(&rank->endpoint)) {
    return false;
  }
  fail_if_closed(run, place);
  for (uint32_t r = 0; r < run->shared.process_count && *agreed; r++) {
    const struct pen_asked *asked = &ranks[r].asked[place];
    const char *what = asked->request == 0 ? NULL : difference(asked, &ranks[0].asked[place]);
    *agreed = what == NULL;
    if (what != NULL && first) {
      report(rank, r, what,
             asked->request != ranks[0].asked[place].request ? PEN_EXIT_USAGE : PEN_EXIT_DATA);
    }
  }
  return true;
}
