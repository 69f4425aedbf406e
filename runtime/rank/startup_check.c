/* startup_check.c: whether the ranks of several commands start from the same state (see
 * startup_check.h).
 *
 * A checkpoint is known by its step and by the checksums of its tensors, which are its manifest's;
 * files of weights, which have none, by a sample. Compared are the options that decide which
 * steps run and what comes between them; each command may log where it likes. */
#include "runtime/rank/startup_check.h"

#include <inttypes.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/base/crc32.h"
#include "runtime/storage/folder_mark.h"
#include "runtime/storage/manifest.h"
#include "runtime/storage/model_files.h"

/* The options that must agree, and a number for each. */
#define FINGERPRINTED_OPTIONS(row)                                                              \
  row("--seed", options->seed) row("--shape", options->shape) row("--data",                     \
                                                                  data_number(&run->data))      \
      row("--init", options->init == NULL ? 0 : weights_number(run)) row(                       \
          "--checkpoint",                                                                       \
          (options->checkpoint != NULL) + (options->init == NULL ? weights_number(run) : 0))    \
          row("--save-every", options->save_every) row("--restarts", options->restarts) row(    \
              "--recover-every",                                                                \
              options->recover_every) row("--audit", options->audit) row("--eval-every",        \
                                                                         options->eval_every)   \
              row("--shuffle", order_number(&run->data.order)) row(                             \
                  "--eval-steps", run->evaluation.steps) row("--prompt", run->prompts_checksum) \
                  row("--tokens", options->tokens) row("--samples", options->samples) row(      \
                      "--end-of-text",                                                          \
                      options->given.end_of_text ? options->end_of_text : UINT64_MAX)           \
                      row("--steps",                                                            \
                          run->steps) /* the last: it follows from others where it is not given */

static const char *const names[] = {
#define NAME(name, number) name,
    FINGERPRINTED_OPTIONS(NAME)};
enum { COUNT = sizeof names / sizeof *names };
_Static_assert((int)COUNT <= (int)PEN_FINGERPRINT_MAX, "there is room for all");

static uint64_t data_number(const struct pen_data *data) {
  uint64_t number;
  memcpy(&number, data->file.checksum, sizeof number);
  return number + data->token_count + data->window_count + data->mask_crc;
}

/* 0: the order of the file. */
static uint64_t order_number(const struct pen_window_order *order) {
  return (uint64_t)order->key[1] << 32 | order->key[0];
}

/* 0: the weights come from no file, or from a checkpoint. */
static uint64_t weights_number(const struct pen_run *run) {
  if (run->weights_path == NULL) {
    return 0;
  }
  struct pen_model_files *shards = pen_model_files_open(run->weights_path, run->plan);
  const uint64_t number = 1 + (uint64_t)pen_model_files_sample(shards, run->plan);
  pen_model_files_close(shards);
  return number;
}

static void identify(const struct pen_run *run, struct pen_startup_fingerprint *start) {
  struct pen_manifest manifest;
  struct sha256_ctx hash;
  pen_manifest_read(
      &manifest, run->checkpoint_path, run->plan,
      run->profile->kind == PEN_TRAIN ? PEN_CHECKPOINT_EXP_AVG_SQ : PEN_CHECKPOINT_VALUE);
  sha256_init(&hash);
  sha256_update(&hash, (size_t)PEN_CHECKPOINT_TENSORS * run->plan->weight_count * PEN_DIGEST_BYTES,
                manifest.digests[0]);
  if (manifest.updates != NULL) {
    sha256_update(&hash, run->plan->weight_count * sizeof *manifest.updates,
                  (const uint8_t *)manifest.updates);
  }
  sha256_digest(&hash, PEN_DIGEST_BYTES, start->checkpoint);
  start->step = manifest.step;
  pen_manifest_free(&manifest);
}

void pen_startup_publish(const struct pen_run *run, struct pen_rank_state *self,
                         const char *kernels) {
  const struct pen_options *options = run->options;
  if (run->local.count == run->shared.process_count) {
    return;
  }
  const uint64_t numbers[COUNT] = {
#define NUMBER(name, number) number,
      FINGERPRINTED_OPTIONS(NUMBER)};
  memcpy(self->fingerprint.options, numbers, sizeof numbers);
  snprintf(self->fingerprint.kernels, sizeof self->fingerprint.kernels, "%s", kernels);
  self->fingerprint.folder_mark = run->profile->kind == PEN_TRAIN && options->checkpoint != NULL
                                      ? pen_folder_mark_read(options->checkpoint)
                                      : 0;
  if (run->checkpoint_path != NULL) {
    identify(run, &self->fingerprint);
  }
}

/* All ranks of a command see one folder. */
static void check_folder(const struct pen_run *run, const struct pen_endpoint *endpoint) {
  const struct pen_rank_state *first = &run->shared.ranks[0], *own = endpoint->self;
  if (run->options->checkpoint != NULL && first->fingerprint.folder_mark != 0 &&
      own->fingerprint.folder_mark != first->fingerprint.folder_mark) {
    pen_fail(PEN_EXIT_DATA,
             "--checkpoint %s: host %s, of rank %u, and host %s, of rank 0, have a folder each:"
             " name a folder that all hosts see",
             run->options->checkpoint, own->host, endpoint->global, first->host);
  }
}

static void check_kernels(const struct pen_run *run, const struct pen_endpoint *endpoint) {
  const struct pen_rank_state *first = &run->shared.ranks[0], *own = endpoint->self;
  if (strcmp(own->fingerprint.kernels, first->fingerprint.kernels) != 0) {
    pen_fail(PEN_EXIT_USAGE,
             "rank %u (host %s) computes with %s, rank 0 (host %s) with %s: their bits differ;"
             " set PEN_ISA, and PEN_PRODUCTS=own, to what all hosts have",
             endpoint->global, own->host, own->fingerprint.kernels, first->host,
             first->fingerprint.kernels);
  }
}

/* A rank that differs from rank 0 fails. */
void pen_startup_check(const struct pen_run *run, const struct pen_endpoint *endpoint) {
  const struct pen_startup_fingerprint *own = &endpoint->self->fingerprint,
                                       *first = &run->shared.ranks[0].fingerprint;
  if (own->step != first->step) {
    pen_fail(PEN_EXIT_DATA,
             "rank %u starts from step %" PRIu64 ", rank 0 from step %" PRIu64
             ": --checkpoint must hold the same for all ranks",
             endpoint->global, own->step, first->step);
  }
  if (memcmp(own->checkpoint, first->checkpoint, sizeof own->checkpoint) != 0) {
    pen_fail(PEN_EXIT_DATA,
             "rank %u and rank 0 both start from step %" PRIu64
             ", but from other weights: --checkpoint must hold the same for all"
             " ranks",
             endpoint->global, own->step);
  }
  check_folder(run, endpoint);
  check_kernels(run, endpoint);
  for (int i = 0; i < COUNT; i++) {
    if (own->options[i] != first->options[i]) {
      pen_fail(PEN_EXIT_USAGE, "rank %u was started with another %s than rank 0", endpoint->global,
               names[i]);
    }
  }
}
