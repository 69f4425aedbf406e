/* rank_open.c: what a rank opens before its first step (see rank_open.h). */
#include "runtime/rank/rank_open.h"

#include <inttypes.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/base/check.h"
#include "runtime/base/crc32.h"
#include "runtime/comm/arena.h"
#include "runtime/device/graph.h"
#include "runtime/device/stream_executor.h"
#include "runtime/device/stream_state.h"
#include "runtime/exec/find_device.h"
#include "runtime/exec/op_hook.h"
#include "runtime/rank/snapshot.h"
#include "runtime/storage/checkpoint_load.h"
#include "runtime/storage/folder_mark.h"
#include "runtime/storage/initial_weights.h"
#include "runtime/storage/manifest.h"
#include "runtime/storage/model_files.h"

/* ---- whether the ranks of several commands start from the same state ----
 *
 * They must agree on the checkpoint, the options that decide on steps, and the kernels; ranks of
 * one command have these from their parent. A checkpoint is known by its step and by the checksums
 * of its tensors, which are its manifest's; files of weights, which have none, by a sample. Each
 * command may log where it likes. */

/* The options that must agree, and a number for each. */
#define FINGERPRINTED_OPTIONS(row)                                                                \
  row("--seed", options->seed) row("--shuffle", order_number(&run->data.order)) row(              \
      "--shape", options->shape) row("--data", data_number(&run->data))                           \
      row("--init", options->init == NULL ? 0 : weights_number(run)) row(                         \
          "--checkpoint",                                                                         \
          (options->checkpoint != NULL) + (options->init == NULL ? weights_number(run) : 0))      \
          row("--save-every", options->save_every) row("--restarts", options->restarts) row(      \
              "--recover-every", options->recover_every) row("--audit", options->audit)           \
              row("--sample-every", options->sample_every) row(                                   \
                  "--eval-every", options->eval_every) row("--eval-steps", run->evaluation.steps) \
                  row("--prompt", run->prompts_checksum) row("--tokens", options->tokens) row(    \
                      "--samples", options->samples) row("--end-of-text",                         \
                                                         options->given.end_of_text               \
                                                             ? options->end_of_text               \
                                                             : UINT64_MAX)                        \
                      row("--stop", text_number(options->stop)) row(                              \
                          "--steps",                                                              \
                          run->steps) /* the last: it follows from others where it is not given */

static const char *const option_names[] = {
#define NAME(name, number) name,
    FINGERPRINTED_OPTIONS(NAME)};
enum { OPTIONS = sizeof option_names / sizeof *option_names };
_Static_assert((int)OPTIONS <= (int)PEN_FINGERPRINT_MAX, "there is room for all");

/* In the number of --data: it has several files, as patterns may find on one host alone. */
#define SEVERAL_FILES (UINT64_C(1) << 63)

static uint64_t data_number(const struct pen_data *data) {
  uint64_t number;
  memcpy(&number, data->file.checksum, sizeof number);
  number += data->token_count + data->window_count + data->mask_crc;
  return data->file_count > 0 ? number | SEVERAL_FILES : number & ~SEVERAL_FILES;
}

/* 0: the order of the file. */
static uint64_t order_number(const struct pen_window_order *order) {
  return (uint64_t)order->key[1] << 32 | order->key[0];
}

static uint64_t text_number(const char *text) {
  return text == NULL ? 0 : 1 + (uint64_t)pen_crc32(0, text, strlen(text));
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
  sha256_update(&hash,
                (size_t)PEN_CHECKPOINT_TENSORS * pen_entry_count(run->plan) * PEN_DIGEST_BYTES,
                manifest.digests[0]);
  if (manifest.updates != NULL) {
    sha256_update(&hash, run->plan->weight_count * sizeof *manifest.updates,
                  (const uint8_t *)manifest.updates);
  }
  sha256_digest(&hash, PEN_DIGEST_BYTES, start->checkpoint);
  start->step = manifest.state.step;
  pen_manifest_free(&manifest);
}

/* Writes to the rank's state what it starts from, and the line of pen_kernels_open(), or "" where
 * it computes on a device. Before pen_endpoint_compare_plans(). May allocate. */
static void publish_startup(const struct pen_run *run, struct pen_rank_state *self,
                            const char *kernels) {
  const struct pen_options *options = run->options;
  if (run->local.count == run->shared.process_count) {
    return;
  }
  const uint64_t numbers[OPTIONS] = {
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

/* After it: fails where another rank has published something else, and prints which ranks and what:
 * PEN_EXIT_DATA where checkpoints or lists of files differ, PEN_EXIT_USAGE where options or kernels
 * do, since other kernels compute other bits. */
static void check_startup(const struct pen_run *run, const struct pen_endpoint *endpoint) {
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
  for (int i = 0; i < OPTIONS; i++) {
    if (own->options[i] != first->options[i]) {
      const bool files = strcmp(option_names[i], "--data") == 0 &&
                         ((own->options[i] | first->options[i]) & SEVERAL_FILES) != 0;
      pen_fail(files ? PEN_EXIT_DATA : PEN_EXIT_USAGE,
               "rank %u was started with another %s than rank 0", endpoint->global,
               option_names[i]);
    }
  }
}

/* ---- weights ---- */

static void load_weights(struct pen_rank *rank) {
  const struct pen_run *run = rank->run;
  const struct pen_vm *vm = &rank->vms[0];
  const struct pen_loading to = pen_loading_open(run->plan, rank->endpoint.global, vm->device,
                                                 vm->streams.compute, vm->arena);
  if (run->restart.from_memory) {
    pen_memory_checkpoint_load(&run->memory, &to, run->first_step);
  } else if (run->checkpoint_path != NULL && run->profile->kind == PEN_TRAIN) {
    pen_checkpoint_load(&to, run->checkpoint_path);
  } else if (run->checkpoint_path != NULL) {
    pen_checkpoint_load_weights(&to, run->checkpoint_path);
  } else if (run->weights_path != NULL) {
    pen_weights_load(&to, run->weights_path);
  } else {
    pen_weights_initial(&to, run->options->seed);
  }
  to.device->copy_in(&vm->adamw->updates, &run->updates.most, sizeof run->updates.most, to.stream);
  pen_loading_close(&to);
}

/* ---- device and programs ---- */

/* Opens the kernels and the plan's device. */
static const struct pen_device *open_device(struct pen_rank *rank, uint32_t global) {
  const struct pen_plan *plan = rank->run->plan;
  const struct pen_device *device = pen_device_find(plan->device);
  if (device == NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "the plan is for the device %s, which this binary was linked without",
             pen_device_row(plan->device)->text);
  }
  if (!device->asynchronous && !pen_threads_open(plan->threads_per_rank)) {
    pen_fail(PEN_EXIT_SYSTEM, "cannot start %u threads (cluster.threads_per_rank)",
             plan->threads_per_rank);
  }
  rank->kernels = pen_kernels_open();
  pen_check(rank->kernels != NULL, "no memory for the buffers of matrix products");
  if (device->asynchronous) {
    const uint32_t number = pen_host_index(plan, global);
    rank->stream_state =
        pen_stream_open(plan, pen_table_rank(plan, global), number, device, &rank->kernels);
  }
  return device;
}

static struct pen_trace *open_trace(const struct pen_run *run,
                                    const struct pen_endpoint *endpoint) {
  const bool records = run->alone || (endpoint->replica == 0 && endpoint->tensor_rank == 0);
  if (run->measured != NULL && records) {
    pen_trace_touch(run->measured);
    return run->measured;
  }
  return run->trace_descriptor < 0
             ? NULL
             : pen_trace_open(run->trace_descriptor, &run->profile->ranks[endpoint->rank],
                              run->steps);
}

/* Programs run without the other tensor ranks, whose slots hold ones: of zeros a logarithm is
 * taken. As bf16 and, nearly, as f32 the bits are those of 1. */
static void run_alone(struct pen_vm *vm) {
  static const uint16_t one = 0x3f80;
  unsigned char *slots = vm->arena + vm->memory->exchange_offset;
  for (uint64_t at = 0; at < vm->memory->exchange_bytes; at += sizeof one) {
    memcpy(slots + at, &one, sizeof one);
  }
  vm->unconnected = true;
}

static void open_vm(struct pen_rank *rank, const struct pen_device *device, struct pen_trace *trace,
                    uint32_t index) {
  const struct pen_run *run = rank->run;
  struct pen_stream_state *state = rank->stream_state;
  const struct {
    const struct pen_buckets *buckets;
    const struct pen_data *data;
  } uses[] = {{&run->buckets, &run->data},
              {&run->evaluation.buckets, &run->evaluation.data},
              {&run->sampling.buckets, &run->sampling.data},
              {&run->scoring.buckets, &run->scoring.data}};
  uint32_t use = 0, bucket = index;
  while (bucket >= uses[use].buckets->count) {
    bucket -= uses[use++].buckets->count;
  }
  const struct pen_profile *profile = uses[use].buckets->profile[bucket];
  struct pen_transport *transport = pen_transport_open(&(struct pen_transport_config){
      .endpoint = &rank->endpoint,
      .profile = profile,
      .device = device,
      .stream = state == NULL ? NULL : state->streams.compute,
      .first = index == 0 ? NULL : rank->vms[0].transport,
      .announces = run->announces,
  });
  pen_vm_open(&rank->vms[index],
              &(struct pen_vm_config){
                  .transport = transport,
                  .executor = state == NULL ? &pen_host_executor : &pen_stream_executor,
                  .stream_state = state,
                  .stream_profile = state == NULL ? NULL : pen_stream_profile_open(run->plan),
                  .streams = state == NULL ? NULL : &state->streams,
                  .data = uses[use].data,
                  .trace = use > 0 ? NULL : trace,
                  .first = index == 0 ? NULL : &rank->vms[0],
                  .lag = run->updates.lag,
              });
  if (run->alone) {
    run_alone(&rank->vms[index]);
  }
}

/* One vm for every profile that the run may need. */
static void open_vms(struct pen_rank *rank, const struct pen_device *device) {
  const struct pen_run *run = rank->run;
  struct pen_trace *trace = open_trace(run, &rank->endpoint);
  const uint32_t samples = run->buckets.count + run->evaluation.buckets.count;
  const uint32_t scores = samples + run->sampling.buckets.count;
  rank->vm_count = scores + run->scoring.buckets.count;
  for (uint32_t i = 0; i < rank->vm_count; i++) {
    open_vm(rank, device, trace, i);
  }
  rank->audit = (struct pen_audit){.every = run->options->audit, .seed = run->options->seed};
  for (uint32_t i = 0; i < run->buckets.count && rank->audit.every > 0; i++) {
    pen_audit_open(&rank->audit, &rank->vms[i]);
  }
  for (uint32_t i = 0; i < run->buckets.count && run->hooks != NULL && run->hooks->opened != NULL;
       i++) {
    run->hooks->opened(run, &rank->vms[i]);
  }
  if (run->evaluation.hooks != NULL) {
    run->evaluation.hooks->opened(run, &rank->vms[samples - 1]);
  }
  for (uint32_t i = samples; i < scores; i++) {
    run->sampling.hooks->opened(run, &rank->vms[i]);
  }
  for (uint32_t i = scores; i < rank->vm_count; i++) {
    run->scoring.hooks->opened(run, &rank->vms[i]);
  }
  for (uint32_t i = 0; i < rank->vm_count && rank->stream_state != NULL; i++) {
    pen_graph_warm(&rank->vms[i]);
  }
  rank->vm->transport->ops->export_handles(rank->vm->transport);
}

static void print_summary(const struct pen_run *run, const char *kernels) {
  const struct pen_plan *plan = run->plan;
  char replicas[32] = "";
  if (pen_group_size(plan, PEN_DATA) > 1) {
    snprintf(replicas, sizeof replicas, "%u replicas of ", pen_group_size(plan, PEN_DATA));
  }
  char tensor_ranks[48] = "";
  if (pen_group_size(plan, PEN_TENSOR) > 1) {
    snprintf(tensor_ranks, sizeof tensor_ranks, " of %u tensor ranks",
             pen_group_size(plan, PEN_TENSOR));
  }
  pen_say(plan->name, "%s%u ranks%s, %s, %u microbatches of %u sequences; %s: %s", replicas,
          plan->rank_count, tensor_ranks, plan->schedule, run->profile->microbatch_count,
          plan->microbatch, pen_device_row(plan->device)->text, kernels);
}

void pen_rank_open(struct pen_rank *rank, uint32_t global) {
  const struct pen_run *run = rank->run;
  const struct pen_plan *plan = run->plan;
  const struct pen_device *device = open_device(rank, global);
  unsigned char *arena = rank->stream_state == NULL ? pen_arena_open(plan, global, &run->shared)
                                                    : rank->stream_state->arena;
  rank->endpoint = pen_endpoint_of(plan, &run->shared, global, arena);
  open_vms(rank, device);
  load_weights(rank);
  if (run->memory.memory != NULL) {
    pen_memory_checkpoint_touch(&run->memory, global);
  }
  for (uint32_t i = 0; i < rank->vm_count; i++) {
    pen_vm_start(&rank->vms[i]);
  }
  if (rank->audit.every > 0) {
    pen_audit_start(&rank->audit, &rank->vms[0], run->first_step + 1);
  }
  if (global == 0 && run->announces) {
    print_summary(run, rank->kernels);
  }
}

/* ---- the other ranks ---- */

static bool connect_transports(struct pen_rank *rank) {
  struct pen_rank_state *self = rank->endpoint.self;
  bool going = true;
  for (uint32_t i = 0; i < rank->vm_count && going; i++) {
    struct pen_transport *transport = rank->vms[i].transport;
    atomic_store_explicit(&self->phase, PEN_PHASE_CONNECT, memory_order_relaxed);
    if (rank->stream_state != NULL) {
      pen_stream_connect(&rank->vms[i]);
    } else {
      transport->ops->connect(transport);
    }
    atomic_store_explicit(&self->phase, PEN_PHASE_START, memory_order_relaxed);
    going = pen_endpoint_barrier(&rank->endpoint);
  }
  return going;
}

bool pen_rank_connect(struct pen_rank *rank) {
  const struct pen_run *run = rank->run;
  struct pen_endpoint *endpoint = &rank->endpoint;
  bool aborted;
  publish_startup(run, endpoint->self, rank->stream_state == NULL ? rank->kernels : "");
  const uint32_t other = pen_endpoint_compare_plans(endpoint, &aborted);
  if (aborted) {
    return false;
  }
  if (other != PEN_NONE) {
    pen_fail(PEN_EXIT_DIGEST, "rank %u runs another plan than rank %u: their digests differ", other,
             endpoint->global);
  }
  check_startup(run, endpoint);
  for (uint32_t i = 0; i < rank->vm_count && rank->stream_state == NULL; i++) {
    pen_arena_reach_peers(run->plan, rank->vms[i].profile, endpoint->global, endpoint->shared);
  }
  if (run->profile->kind == PEN_TRAIN && run->options->checkpoint != NULL &&
      pen_snapshot_planned(run->plan)) {
    pen_snapshot_open(endpoint, rank->stream_state);
  }
  return pen_endpoint_barrier(endpoint) && connect_transports(rank);
}
