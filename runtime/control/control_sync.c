/* control_sync.c: the shared control memory on several hosts (see control_sync.h). */
#include "runtime/control/control_sync.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/comm/step_stats.h"
#include "runtime/control/failure_report.h"
#include "runtime/plan/losses.h"
#include "runtime/storage/checkpoint_tensors.h"

/* Copies of the words at one time. They are compared byte by byte: padding is always zero. */
struct rank_copy {
#define PEN_RANK_DATA(type, name, suffix) type name suffix;
#define PEN_RANK_WORD(type, name) type name;
#define PEN_RANK_COUNTER(name) uint32_t name;
#include "runtime/comm/shared_control.def"
  uint32_t writer_arrived; /* of the thread that writes its snapshots */
};

struct run_copy {
#define PEN_CONTROL_DATA(type, name, suffix) type name suffix;
#define PEN_CONTROL_WORD(type, name) type name;
#define PEN_CONTROL_COUNTER(name) uint32_t name;
#include "runtime/comm/shared_control.def"
};

struct request_copy {
#define PEN_CONTROL_REQUEST(name) uint32_t name;
#include "runtime/comm/shared_control.def"
};

struct pen_control_sync {
  const struct pen_plan *plan;
  const struct pen_shared *shared;
  struct pen_rank_set local;
  struct rank_copy *sent_ranks; /* [process_count]: as they were sent last */
  struct run_copy sent_run;
  struct request_copy sent_requests;
  uint32_t sent_failures;
};

/* ---- copies ---- */

/* Reads the counters before the data that they guard. */
static void copy_rank(struct rank_copy *copy, const struct pen_shared *shared, uint32_t global) {
  const struct pen_rank_state *rank = &shared->ranks[global];
  memset(copy, 0, sizeof *copy);
#define PEN_RANK_COUNTER(name) copy->name = atomic_load(&rank->name.count);
#include "runtime/comm/shared_control.def"
  copy->writer_arrived = atomic_load(&shared->writers[global].arrived.count);
#define PEN_RANK_WORD(type, name) copy->name = atomic_load(&rank->name);
#define PEN_RANK_DATA(type, name, suffix) memcpy(&copy->name, &rank->name, sizeof copy->name);
#include "runtime/comm/shared_control.def"
}

static void copy_run(struct run_copy *copy, const struct pen_control *control) {
  memset(copy, 0, sizeof *copy);
#define PEN_CONTROL_COUNTER(name) copy->name = atomic_load(&control->name.count);
#include "runtime/comm/shared_control.def"
#define PEN_CONTROL_WORD(type, name) copy->name = atomic_load(&control->name);
#define PEN_CONTROL_DATA(type, name, suffix) memcpy(&copy->name, &control->name, sizeof copy->name);
#include "runtime/comm/shared_control.def"
}

static void copy_requests(struct request_copy *copy, const struct pen_control *control) {
#define PEN_CONTROL_REQUEST(name) copy->name = atomic_load(&control->name);
#include "runtime/comm/shared_control.def"
}

static size_t step_stats_bytes(const struct pen_shared *shared) {
  return shared->step_stats_count * sizeof(double);
}

static double *step_stats_of(const struct pen_shared *shared, uint64_t step) {
  return shared->step_stats + step % PEN_STEP_STATS_DEPTH * shared->step_stats_count;
}

static size_t checksum_bytes(const struct pen_plan *plan) {
  return PEN_CHECKPOINT_TENSORS * (size_t)pen_entry_count(plan) * PEN_CHECKSUM_BYTES;
}

struct pen_control_sync *pen_control_sync_open(const struct pen_plan *plan,
                                               const struct pen_shared *shared,
                                               struct pen_rank_set local) {
  struct pen_control_sync *sync = pen_allocate(1, sizeof *sync, "the connection to other hosts");
  sync->plan = plan;
  sync->shared = shared;
  sync->local = local;
  sync->sent_ranks =
      pen_allocate(local.process_count, sizeof *sync->sent_ranks, "the connection to other hosts");
  copy_run(&sync->sent_run, shared->control);
  return sync;
}

void pen_control_sync_close(struct pen_control_sync *sync) {
  free(sync->sent_ranks);
  free(sync);
}

size_t pen_control_sync_bytes(const struct pen_control_sync *sync, uint32_t kind) {
  const size_t bytes[PEN_MESSAGE_KINDS] = {
      [PEN_MESSAGE_RANK] = sizeof(struct rank_copy),
      [PEN_MESSAGE_STEP_STATS] = step_stats_bytes(sync->shared),
      [PEN_MESSAGE_CHECKSUMS] = checksum_bytes(sync->plan),
      [PEN_MESSAGE_SAMPLED] = PEN_PROMPTS_MAX * sizeof(uint32_t),
      [PEN_MESSAGE_RESULTS] = sync->shared->results.block_bytes,
      [PEN_MESSAGE_PART] = sync->shared->mailbox == NULL ? 0 : PEN_MAILBOX_PART_BYTES,
      [PEN_MESSAGE_RUN] = sizeof(struct run_copy),
      [PEN_MESSAGE_FAILURE] = PEN_FAILURE_LINE_BYTES,
      [PEN_MESSAGE_REQUESTS] = sizeof(struct request_copy),
  };
  return kind > PEN_MESSAGE_START && kind < PEN_MESSAGE_KINDS ? bytes[kind] : SIZE_MAX;
}

bool pen_control_sync_fits(const struct pen_control_sync *sync,
                           const struct pen_control_message *message) {
  const uint64_t most = pen_control_sync_bytes(sync, message->kind),
                 mailbox_bytes = sync->shared->mailbox_bytes;
  if (message->kind != PEN_MESSAGE_PART) {
    return message->bytes == most;
  }
  return message->bytes <= most && message->number <= mailbox_bytes &&
         message->bytes <= mailbox_bytes - message->number;
}

/* ---- sending ---- */

typedef void send_message(void *context, const struct pen_control_message *message,
                          const void *bytes);

static void send_run(struct pen_control_sync *sync, send_message *send, void *context) {
  struct run_copy now;
  copy_run(&now, sync->shared->control);
  if (memcmp(&now, &sync->sent_run, sizeof now) != 0) {
    const struct pen_control_message message = {.kind = PEN_MESSAGE_RUN, .bytes = sizeof now};
    send(context, &message, &now);
    memcpy(&sync->sent_run, &now, sizeof now);
  }
}

/* A rank writes to a block again when the reader has passed the barrier after these, so has them.
 */
static void send_results(const struct pen_control_sync *sync, uint32_t rank, uint64_t step,
                         send_message *send, void *context) {
  const struct pen_results *results = &sync->shared->results;
  const struct pen_control_message message = {
      .kind = PEN_MESSAGE_RESULTS, .rank = rank, .number = step, .bytes = results->block_bytes};
  send(context, &message,
       pen_results_block(results, sync->plan, step, pen_group_member(sync->plan, rank, PEN_DATA)));
}

/* The tokens of the steps since the last call. Steps without any, of training, may lie between. */
static void send_sampled(const struct pen_control_sync *sync, uint32_t rank, uint32_t first,
                         uint32_t past, send_message *send, void *context) {
  first = past - first > PEN_SAMPLED_STEPS ? past - PEN_SAMPLED_STEPS : first;
  for (uint32_t step = first; step != past; step++) {
    uint32_t tokens[PEN_PROMPTS_MAX];
    for (int r = 0; r < PEN_PROMPTS_MAX; r++) {
      tokens[r] = atomic_load(&pen_sampled_of(sync->shared, step)[r]);
    }
    const struct pen_control_message message = {
        .kind = PEN_MESSAGE_SAMPLED, .rank = rank, .number = step, .bytes = sizeof tokens};
    send(context, &message, tokens);
  }
}

/* The rank gives the next part but one when all hosts have this one. */
static void send_part(const struct pen_control_sync *sync, uint32_t rank,
                      const struct pen_mailbox_part *part, send_message *send, void *context) {
  const struct pen_control_message message = {
      .kind = PEN_MESSAGE_PART, .rank = rank, .number = part->offset, .bytes = part->bytes};
  send(context, &message, sync->shared->mailbox + part->offset);
}

/* What the local processes have set; the abort, which follows a failure, only with `aborts`. */
static void send_requests(struct pen_control_sync *sync, bool aborts, send_message *send,
                          void *context) {
  struct request_copy now;
  copy_requests(&now, sync->shared->control);
  if (!aborts) {
    now.abort_status = sync->sent_requests.abort_status;
  }
  if (memcmp(&now, &sync->sent_requests, sizeof now) != 0) {
    const struct pen_control_message message = {.kind = PEN_MESSAGE_REQUESTS, .bytes = sizeof now};
    send(context, &message, &now);
    sync->sent_requests = now;
  }
}

static void send_rank(struct pen_control_sync *sync, uint32_t rank, send_message *send,
                      void *context) {
  const struct pen_shared *shared = sync->shared;
  struct rank_copy now, *sent = &sync->sent_ranks[rank];
  copy_rank(&now, shared, rank);
  if (memcmp(&now, sent, sizeof now) == 0) {
    return;
  }
  if (rank == 0) {
    send_run(sync, send, context);
  }
  for (uint32_t step = sent->published; step != now.published; step++) {
    const struct pen_control_message message = {.kind = PEN_MESSAGE_STEP_STATS,
                                                .rank = rank,
                                                .number = step,
                                                .bytes = step_stats_bytes(shared)};
    send(context, &message, step_stats_of(shared, step));
  }
  send_sampled(sync, rank, sent->drawn, now.drawn, send, context);
  if (now.arrived != sent->arrived || now.writer_arrived != sent->writer_arrived) {
    const struct pen_control_message message = {
        .kind = PEN_MESSAGE_CHECKSUMS, .rank = rank, .bytes = checksum_bytes(sync->plan)};
    send(context, &message, shared->checksums);
  }
  if (now.results_step != sent->results_step && !pen_is_local(shared, shared->results.reader)) {
    send_results(sync, rank, now.results_step - 1, send, context);
  }
  for (uint64_t part = sent->parts; part != now.parts; part++) {
    send_part(sync, rank, &now.part[part % 2], send, context);
  }
  send_requests(sync, false, send, context); /* why a save has failed, before the barrier */
  const struct pen_control_message message = {
      .kind = PEN_MESSAGE_RANK, .rank = rank, .bytes = sizeof now};
  send(context, &message, &now);
  memcpy(sent, &now, sizeof now);
}

/* Before the abort that follows a failure. */
static void send_failures(struct pen_control_sync *sync, send_message *send, void *context) {
  const struct pen_failure *failure;
  while ((failure = pen_failure_reported(sync->shared, sync->sent_failures)) != NULL) {
    const struct pen_control_message message = {.kind = PEN_MESSAGE_FAILURE,
                                                .rank = failure->rank,
                                                .number = failure->host,
                                                .bytes = sizeof failure->line};
    send(context, &message, failure->line);
    sync->sent_failures++;
  }
}

void pen_control_sync_changes(struct pen_control_sync *sync, send_message *send, void *context) {
  const struct pen_rank_set *local = &sync->local;
  for (uint32_t r = local->first; r < local->process_count; r = pen_rank_set_next(local, r + 1)) {
    send_rank(sync, r, send, context);
  }
  if (sync->local.first == 0) {
    send_run(sync, send, context);
  }
  send_failures(sync, send, context);
  send_requests(sync, true, send, context);
}

/* ---- applying ---- */

static void set_counter(struct pen_futex_counter *counter, uint32_t count) {
  if (atomic_load(&counter->count) != count) {
    atomic_store(&counter->count, count);
    pen_futex_counter_wake(counter);
  }
}

static void apply_rank(struct pen_control_sync *sync, const struct pen_control_message *message,
                       const void *bytes) {
  struct pen_rank_state *rank = &sync->shared->ranks[message->rank];
  const struct rank_copy *copy = bytes;
#define PEN_RANK_DATA(type, name, suffix) memcpy(&rank->name, &copy->name, sizeof rank->name);
#define PEN_RANK_WORD(type, name) atomic_store(&rank->name, copy->name);
#include "runtime/comm/shared_control.def"
#define PEN_RANK_COUNTER(name) set_counter(&rank->name, copy->name);
#include "runtime/comm/shared_control.def"
  set_counter(&sync->shared->writers[message->rank].arrived, copy->writer_arrived);
}

/* Takes the entries that the rank computed. The others are not written: local ranks may write
 * theirs at the same time. */
static void apply_step_stats(struct pen_control_sync *sync,
                             const struct pen_control_message *message, const void *bytes) {
  const struct pen_plan *plan = sync->plan;
  const size_t first = pen_step_stats_first(plan, pen_group_member(plan, message->rank, PEN_DATA));
  const double *from = bytes;
  double *to = step_stats_of(sync->shared, message->number);
  for (uint32_t w = 0; w < plan->weight_count; w++) {
    if (pen_owns_weight(plan, &plan->weights[w], message->rank)) {
      const size_t entry = first + pen_first_entry(plan, w);
      memcpy(&to[entry], &from[entry], pen_tensor_count(&plan->weights[w]) * sizeof *to);
    }
  }
  for (uint32_t row = 0; row < pen_stats_rows(plan); row++) {
    if (pen_has_stats_row(plan, &plan->profiles[0], row, message->rank)) {
      const size_t entry = first + pen_stats_row_first(plan, row);
      memcpy(&to[entry], &from[entry], pen_stats_row_entries(plan, row) * sizeof *to);
    }
  }
}

/* Takes the checksums that the rank writes: its table may hold old ones of other ranks. */
static void apply_checksums(struct pen_control_sync *sync,
                            const struct pen_control_message *message, const void *bytes) {
  const struct pen_plan *plan = sync->plan;
  for (uint32_t w = 0; w < plan->weight_count; w++) {
    if (pen_is_writer(plan, w, message->rank)) {
      const size_t at = pen_checkpoint_digest_of(plan, w, 0, 0) * PEN_CHECKSUM_BYTES;
      memcpy(sync->shared->checksums + at, (const uint8_t *)bytes + at,
             (size_t)PEN_CHECKPOINT_TENSORS * pen_tensor_count(&plan->weights[w]) *
                 PEN_CHECKSUM_BYTES);
    }
  }
}

static void apply_sampled(struct pen_control_sync *sync, const struct pen_control_message *message,
                          const void *bytes) {
  const uint32_t *tokens = bytes;
  for (int r = 0; r < PEN_PROMPTS_MAX; r++) {
    atomic_store(&pen_sampled_of(sync->shared, message->number)[r], tokens[r]);
  }
}

static void apply_results(struct pen_control_sync *sync, const struct pen_control_message *message,
                          const void *bytes) {
  const struct pen_results *results = &sync->shared->results;
  if (results->memory != NULL) {
    memcpy(pen_results_block(results, sync->plan, message->number,
                             pen_group_member(sync->plan, message->rank, PEN_DATA)),
           bytes, results->block_bytes);
  }
}

/* Takes the words that another host has written: those that it has not are all ones, as here, since
 * every caller has set them so (pen_mailbox_clear()). */
static void apply_part(struct pen_control_sync *sync, const struct pen_control_message *message,
                       const void *bytes) {
  const uint32_t *from = bytes;
  unsigned char *to = sync->shared->mailbox + message->number;
  for (uint64_t w = 0; w < message->bytes / sizeof *from; w++) {
    if (from[w] != UINT32_MAX) {
      memcpy(to + w * sizeof *from, &from[w], sizeof *from);
    }
  }
}

static void apply_run(struct pen_control_sync *sync, const struct pen_control_message *message,
                      const void *bytes) {
  (void)message;
  struct pen_control *control = sync->shared->control;
  const struct run_copy *copy = bytes;
  if (copy->saving != 0 && atomic_load(&control->saving) == 0) {
    atomic_store(&control->save_status, 0);
    sync->sent_requests.save_status = 0;
  }
#define PEN_CONTROL_DATA(type, name, suffix) \
  memcpy(&control->name, &copy->name, sizeof control->name);
#define PEN_CONTROL_WORD(type, name) atomic_store(&control->name, copy->name);
#include "runtime/comm/shared_control.def"
#define PEN_CONTROL_COUNTER(name) set_counter(&control->name, copy->name);
#include "runtime/comm/shared_control.def"
}

static void apply_failure(struct pen_control_sync *sync, const struct pen_control_message *message,
                          const void *bytes) {
  char line[PEN_FAILURE_LINE_BYTES];
  memcpy(line, bytes, sizeof line);
  line[sizeof line - 1] = '\0';
  pen_failure_report(sync->shared, message->rank, message->number, line);
}

static void set_once(_Atomic uint32_t *word, uint32_t value) {
  uint32_t zero = 0;
  if (value != 0) {
    atomic_compare_exchange_strong(word, &zero, value);
  }
}

static void apply_requests(struct pen_control_sync *sync, const struct pen_control_message *message,
                           const void *bytes) {
  (void)message;
  struct pen_control *control = sync->shared->control;
  const struct request_copy *copy = bytes;
  set_once(&control->stop_requested, copy->stop_requested);
  set_once(&control->save_status, copy->save_status);
  if (copy->abort_status != 0) {
    pen_shared_abort(sync->shared, copy->abort_status);
  }
}

void pen_control_sync_apply(struct pen_control_sync *sync,
                            const struct pen_control_message *message, const void *bytes) {
  static void (*const apply[PEN_MESSAGE_KINDS])(
      struct pen_control_sync *, const struct pen_control_message *, const void *) = {
      [PEN_MESSAGE_RANK] = apply_rank,
      [PEN_MESSAGE_STEP_STATS] = apply_step_stats,
      [PEN_MESSAGE_CHECKSUMS] = apply_checksums,
      [PEN_MESSAGE_SAMPLED] = apply_sampled,
      [PEN_MESSAGE_RESULTS] = apply_results,
      [PEN_MESSAGE_PART] = apply_part,
      [PEN_MESSAGE_RUN] = apply_run,
      [PEN_MESSAGE_FAILURE] = apply_failure,
      [PEN_MESSAGE_REQUESTS] = apply_requests,
  };
  apply[message->kind](sync, message, bytes);
}
