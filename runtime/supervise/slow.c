/* slow.c: judges the timing of ranks and links (see slow.h). */
#include "runtime/supervise/slow.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/standard_error.h"
#include "runtime/base/check.h"
#include "runtime/supervise/drift.h"
#include "runtime/supervise/link_watch.h"

enum { KINDS = PEN_SLOW_DATA + 1, LINE_BYTES = 512 };

/* A link is slow from the start when so many more blocks of steps have found its messages slow than
 * not (struct link_state). */
enum { START_BLOCKS = 3 };

/* The least rise that counts (drift.h). The speed of a core whose other hardware thread is busy
 * varies by a tenth. */
static const double compute_allowance = 0.08, data_allowance = 0.05, link_allowance = 0.5;

static const double least_s = 0.5e-3; /* a rank that loses less in a block is not slow */
static const double block_s = 50e-3;
static const uint64_t late_ns = 50000000; /* how long to wait for the timing of another host */

/* How far the share of a rank may be from that of the plan: with measured costs, and with others.
 * Beyond, it is slow, though it has been since the start. */
static const double measured_trust = 1.15, estimated_trust = 2;

/* The least loss of a message by a link that is slow from the start, as a part of what a rank
 * computes in a step: writes that meet a busy core lose some tenths of a millisecond by chance. */
static const double start_part = 0.005;

/* The least predicted work, as a part of the busiest rank's, for which the plan is trusted. */
static const double trusted_part = 0.2;

struct link_state {
  struct pen_link_watch watch;
  uint32_t start_blocks; /* up to START_BLOCKS, for a link that is slow from the start */
  bool slow_from_start;  /* as was reported */
};

struct rank_watch {
  double planned, trust;
  struct pen_drift compute; /* as measured: over the plan's time and find_values() */
  struct pen_drift data;    /* seconds of a step */
  struct link_state links[PEN_TIMED_LINKS];
  double block_compute_s, block_data_s; /* of the block so far */
  double value;                         /* of the block that is judged: see find_values() */
  bool is_slow[KINDS];                  /* as was reported */
};

struct pen_slow {
  struct pen_run *run;
  uint32_t rank_count;
  struct rank_watch *ranks;       /* [rank_count], as the next two */
  struct pen_step_timing *timing; /* of the step that is judged */
  struct pen_link_start *starts;  /* [rank_count * PEN_TIMED_LINKS] */
  double *scratch;                /* twice as many */
  uint32_t next;                  /* step of the run to judge */
  bool warm;                      /* the first step touches memory: it is left out */
  uint64_t first_step;            /* which one that was */
  uint32_t block_steps;
  uint64_t block_first_step;
  double block_longest_s; /* computed by a rank in the block so far */
};

/* What is slow, and how. */
struct slow_finding {
  enum pen_slow_kind kind;
  uint32_t rank, peer; /* peer: a link's receiver */
  double ratio;        /* planned over measured time; for a link the inverse */
  uint64_t since;      /* step */
  bool from_start;     /* of a link: relative to the other links */
};

/* ---- reports ---- */

static const char *host_of(const struct pen_slow *slow, uint32_t rank) {
  return slow->run->shared.ranks[rank].host;
}

/* The log is open for appending: a line is written whole, or, on a full disk, lost. */
static void write_slow_event(const struct pen_run *run, const char *line) {
  const bool logged =
      run->log_descriptor >= 0 && (run->plan->host_count > 1 || run->options->restarts > 0);
  if (logged) {
    const ssize_t written = write(run->log_descriptor, line, strlen(line));
    (void)written;
  } else if (!isatty(STDERR_FILENO)) { /* a terminal has the words */
    pen_standard_error_write(line, strlen(line));
  }
}

static void report_in_words(const struct pen_slow *slow, const struct slow_finding *found) {
  if (found->kind == PEN_SLOW_LINK) {
    pen_warn(
        "messages of rank %u to rank %u (host %.64s) take %.1f times %s since step "
        "%" PRIu64,
        found->rank, found->peer, host_of(slow, found->peer), found->ratio,
        found->from_start ? "what they take on other links" : "their plan", found->since);
  } else {
    pen_warn("rank %u (host %.64s) %s at %.2f of its plan since step %" PRIu64, found->rank,
             host_of(slow, found->rank),
             found->kind == PEN_SLOW_DATA ? "waits for its data and is" : "computes", found->ratio,
             found->since);
  }
}

static void report_slow(struct pen_slow *slow, const struct slow_finding *found) {
  static const char *const names[KINDS] = {"", "compute", "link", "data"};
  struct pen_rank_state *state = &slow->run->shared.ranks[found->rank];
  char line[LINE_BYTES], peer_text[16] = "null";
  if (found->kind == PEN_SLOW_LINK) {
    snprintf(peer_text, sizeof peer_text, "%u", found->peer);
  }
  snprintf(line, sizeof line,
           "{\"event\":\"slow\",\"kind\":\"%s\",\"rank\":%u,\"host\":\"%.64s\",\"peer\":%s,"
           "\"ratio\":%.3g,\"since_step\":%" PRIu64 "}\n",
           names[found->kind], found->rank, host_of(slow, found->rank), peer_text, found->ratio,
           found->since);
  slow->ranks[found->rank].is_slow[found->kind] = true;
  atomic_store_explicit(&state->slow_ratio, found->ratio, memory_order_relaxed);
  atomic_store_explicit(&state->slow_kind, found->kind, memory_order_relaxed);
  report_in_words(slow, found);
  write_slow_event(slow->run, line);
}

static void end_report(struct pen_slow *slow, enum pen_slow_kind kind, uint32_t rank) {
  bool *is_slow = slow->ranks[rank].is_slow;
  is_slow[kind] = false;
  if (!is_slow[PEN_SLOW_COMPUTE] && !is_slow[PEN_SLOW_LINK] && !is_slow[PEN_SLOW_DATA]) {
    atomic_store_explicit(&slow->run->shared.ranks[rank].slow_kind, PEN_SLOW_NONE,
                          memory_order_relaxed);
  }
}

uint32_t pen_slow_count(const struct pen_slow *slow) {
  uint32_t count = 0;
  for (uint32_t r = 0; slow != NULL && r < slow->rank_count; r++) {
    count += atomic_load_explicit(&slow->run->shared.ranks[r].slow_kind, memory_order_relaxed) !=
             PEN_SLOW_NONE;
  }
  return count;
}

/* Judges a quantity of this block by `value`, relative to what is expected of it. */
static void judge_quantity(struct pen_slow *slow, enum pen_slow_kind kind, uint32_t rank,
                           uint32_t peer, struct pen_drift *drift, double measured, double value) {
  static const double allowances[KINDS] = {0, compute_allowance, link_allowance, data_allowance};
  const bool was_high = drift->high;
  if (pen_drift_add(drift, allowances[kind], slow->block_first_step, measured, value)) {
    const double rise = drift->rise.value;
    report_slow(slow, &(struct slow_finding){.kind = kind,
                                             .rank = rank,
                                             .peer = peer,
                                             .ratio = kind == PEN_SLOW_LINK ? rise : 1 / rise,
                                             .since = drift->since});
  } else if (was_high && !drift->high) {
    end_report(slow, kind, rank);
  }
}

/* ---- compute and data ---- */

static int compare_doubles(const void *one, const void *other) {
  const double a = *(const double *)one, b = *(const double *)other;
  return (a > b) - (a < b);
}

static double share_of(const struct rank_watch *watch) {
  return watch->block_compute_s / watch->planned;
}

/* Sets the values of all ranks: their times over the expected ones, relative to the median over the
 * ranks, of two the lower. Returns the mean of those that are not slow, the unit of what is
 * learned, which noise does not raise. 0: nothing was computed. */
static double find_values(struct pen_slow *slow) {
  double sum = 0, count = 0;
  for (uint32_t r = 0; r < slow->rank_count; r++) {
    struct rank_watch *watch = &slow->ranks[r];
    const struct pen_average *share = &watch->compute.expected;
    const double expected = share->count == 0 ? 1 : share->value;
    watch->value = share_of(watch) / fmin(fmax(expected, 1 / watch->trust), watch->trust);
    slow->scratch[r] = watch->value;
    sum += watch->compute.high ? 0 : watch->value;
    count += !watch->compute.high;
  }
  qsort(slow->scratch, slow->rank_count, sizeof *slow->scratch, compare_doubles);
  const double median = slow->scratch[(slow->rank_count - 1) / 2];
  for (uint32_t r = 0; r < slow->rank_count && median > 0; r++) {
    slow->ranks[r].value /= median;
  }
  return !(median > 0) ? 0 : count > 0 ? sum / count : median;
}

/* Ranks that share cores take turns, which is no fault of one. */
static void judge_compute(struct pen_slow *slow, uint32_t rank, double unit) {
  struct rank_watch *watch = &slow->ranks[rank];
  if (slow->run->shared.ranks[rank].shares_core) {
    return;
  }
  const bool counts = watch->block_compute_s * (1 - 1 / watch->value) >= least_s;
  judge_quantity(slow, PEN_SLOW_COMPUTE, rank, PEN_NONE, &watch->compute, share_of(watch) / unit,
                 counts ? watch->value : fmin(watch->value, 1));
}

static void judge_data(struct pen_slow *slow, uint32_t rank) {
  struct rank_watch *watch = &slow->ranks[rank];
  const double late_s = watch->block_data_s - watch->data.expected.value * slow->block_steps;
  judge_quantity(slow, PEN_SLOW_DATA, rank, PEN_NONE, &watch->data,
                 watch->block_data_s / slow->block_steps,
                 late_s < least_s ? 1 : 1 + late_s / watch->block_compute_s);
}

/* ---- links ---- */

/* The link of the receiver `to` that the messages of `from` take; null: none. */
static struct link_state *find_link(const struct pen_slow *slow, uint32_t from, uint32_t to) {
  for (uint32_t l = 0; l < PEN_TIMED_LINKS; l++) {
    if (slow->run->shared.ranks[to].link_peers[l] == from + 1) {
      return &slow->ranks[to].links[l];
    }
  }
  return NULL;
}

/* A rank that computes slowly also sends late and reads its messages late: by less than the time
 * that it loses in a step, in PEN_DELAY_UNIT_NS. */
static double lost_delay(const struct pen_slow *slow, uint32_t rank) {
  const struct rank_watch *watch = &slow->ranks[rank];
  const bool suspect = watch->compute.high || watch->value > 1 + 4 * compute_allowance;
  const double lost_s = watch->block_compute_s * (1 - 1 / watch->value) / slow->block_steps;
  return suspect ? fmax(0, lost_s) * 1e9 / PEN_DELAY_UNIT_NS : 0;
}

/* A link that was slow before the first step, and whose messages are so now. */
static void judge_start(struct pen_slow *slow, uint32_t rank, struct link_state *link,
                        const struct link_state *back, uint32_t peer) {
  const struct pen_link_start *start =
      &slow->starts[rank * PEN_TIMED_LINKS + (uint32_t)(link - slow->ranks[rank].links)];
  const double step_ns = slow->block_longest_s * 1e9 / slow->block_steps;
  if (!pen_link_start_is_slow(start, start_part * step_ns)) {
    return;
  }
  if (pen_link_watch_sum(&link->watch, &back->watch) >= start->slow_sum) {
    link->start_blocks += link->start_blocks < START_BLOCKS;
  } else {
    link->start_blocks -= link->start_blocks > 0;
  }
  if (!link->slow_from_start && link->start_blocks == START_BLOCKS) {
    link->slow_from_start = true;
    report_slow(slow, &(struct slow_finding){.kind = PEN_SLOW_LINK,
                                             .rank = peer,
                                             .peer = rank,
                                             .ratio = start->ratio,
                                             .since = slow->first_step,
                                             .from_start = true});
  } else if (link->slow_from_start && link->start_blocks == 0) {
    link->slow_from_start = false;
    end_report(slow, PEN_SLOW_LINK, peer);
  }
}

static void judge_link(struct pen_slow *slow, uint32_t rank, struct link_state *link,
                       uint32_t peer) {
  const struct link_state *back = find_link(slow, rank, peer);
  if (back == NULL || link->watch.delay.count == 0 || back->watch.latest_ns == 0) {
    return;
  }
  const bool known = back->watch.drift.expected.count >= PEN_DRIFT_LEAST;
  const double lost = lost_delay(slow, rank) + lost_delay(slow, peer);
  if (lost > 0 && (!known || pen_link_watch_excess(&link->watch, &back->watch) < lost)) {
    return; /* the ranks may be the cause */
  }
  if (lost == 0) {
    judge_start(slow, rank, link, back, peer);
  }
  judge_quantity(slow, PEN_SLOW_LINK, peer, rank, &link->watch.drift, link->watch.latest,
                 known ? pen_link_watch_value(&link->watch, &back->watch) : 1);
}

static void judge_links(struct pen_slow *slow) {
  for (uint32_t r = 0; r < slow->rank_count; r++) {
    for (uint32_t l = 0; l < PEN_TIMED_LINKS; l++) {
      const uint32_t peer = slow->run->shared.ranks[r].link_peers[l];
      if (peer != 0) {
        judge_link(slow, r, &slow->ranks[r].links[l], peer - 1);
      }
    }
  }
}

/* ---- steps ---- */

static void add_step(struct pen_slow *slow) {
  if (slow->block_steps++ == 0) {
    slow->block_first_step = slow->timing[0].step;
  }
  for (uint32_t r = 0; r < slow->rank_count; r++) {
    const struct pen_step_timing *timing = &slow->timing[r];
    slow->ranks[r].block_compute_s += (double)timing->compute_s;
    slow->block_longest_s = fmax(slow->block_longest_s, slow->ranks[r].block_compute_s);
    slow->ranks[r].block_data_s += (double)timing->data_s;
    for (uint32_t l = 0; l < PEN_TIMED_LINKS; l++) {
      if ((timing->link_samples >> l & 1) != 0) {
        pen_link_watch_add(&slow->ranks[r].links[l].watch, timing->delay[l]);
      }
    }
  }
}

static void start_block(struct pen_slow *slow) {
  slow->block_steps = 0;
  slow->block_longest_s = 0;
  for (uint32_t r = 0; r < slow->rank_count; r++) {
    struct rank_watch *watch = &slow->ranks[r];
    watch->block_compute_s = watch->block_data_s = 0;
    for (uint32_t l = 0; l < PEN_TIMED_LINKS; l++) {
      pen_link_watch_start_block(&watch->links[l].watch);
    }
  }
}

static void judge_block(struct pen_slow *slow) {
  const uint64_t now_ns = pen_now_ns();
  const double unit = find_values(slow);
  for (uint32_t r = 0; r < slow->rank_count && unit > 0; r++) {
    judge_compute(slow, r, unit);
    judge_data(slow, r);
  }
  for (uint32_t l = 0; l < slow->rank_count * PEN_TIMED_LINKS; l++) {
    struct rank_watch *watch = &slow->ranks[l / PEN_TIMED_LINKS];
    pen_link_watch_end_block(&watch->links[l % PEN_TIMED_LINKS].watch, now_ns);
  }
  judge_links(slow);
}

/* Copies the timing of a step of the run. False: a rank's is not there, or no more. */
static bool read_timing(struct pen_slow *slow, uint32_t step) {
  const uint64_t end_ns = pen_now_ns() + late_ns;
  for (uint32_t r = 0; r < slow->rank_count; r++) {
    struct pen_rank_state *state = &slow->run->shared.ranks[r];
    for (uint64_t now_ns; !pen_futex_counter_reached(&state->timed, step + 1);) {
      now_ns = pen_now_ns();
      if (now_ns >= end_ns ||
          atomic_load_explicit(&slow->run->shared.control->abort_status, memory_order_relaxed)) {
        return false;
      }
      pen_futex_counter_wait_for(&state->timed, step + 1, 0, end_ns - now_ns);
    }
    slow->timing[r] = state->timing[step % PEN_TIMED_STEPS];
    if (pen_futex_counter_reached(&state->timed, step + PEN_TIMED_STEPS)) {
      return false;
    }
  }
  return true;
}

/* Whether all ranks have timed the same step of training. */
static bool is_comparable(const struct pen_slow *slow) {
  bool same = slow->timing[0].step != 0;
  for (uint32_t r = 1; r < slow->rank_count; r++) {
    same = same && slow->timing[r].step == slow->timing[0].step;
  }
  return same;
}

void pen_slow_judge(struct pen_slow *slow) {
  while (slow != NULL &&
         pen_futex_counter_reached(&slow->run->shared.ranks[0].timed, slow->next + 1)) {
    if (!read_timing(slow, slow->next++) || !is_comparable(slow)) {
      continue;
    }
    if (!slow->warm) {
      slow->warm = true;
      slow->first_step = slow->timing[0].step;
      pen_link_starts_find(slow->run, slow->starts, slow->scratch);
      continue;
    }
    add_step(slow);
    if (slow->block_longest_s >= block_s) {
      judge_block(slow);
      start_block(slow);
    }
  }
}

/* ---- opening ---- */

static void set_plan(struct pen_slow *slow) {
  const struct pen_plan *plan = slow->run->plan;
  const struct pen_forecast *forecast = &plan->forecast;
  const bool measured = strcmp(forecast->unit, "in ms") == 0;
  double most = 0;
  for (uint32_t r = 0; r < plan->rank_count && forecast->busy != NULL; r++) {
    most = fmax(most, forecast->busy[r]);
  }
  for (uint32_t r = 0; r < slow->rank_count; r++) {
    const double busy = most > 0 ? forecast->busy[pen_table_rank(plan, r)] : 0;
    const bool trusted = busy >= trusted_part * most && most > 0;
    slow->ranks[r].planned = trusted ? busy : most > 0 ? trusted_part * most : 1;
    slow->ranks[r].trust = !trusted ? INFINITY : measured ? measured_trust : estimated_trust;
  }
}

struct pen_slow *pen_slow_open(struct pen_run *run) {
  const uint32_t rank_count = pen_process_count(run->plan);
  if (rank_count == 1 || !pen_device_row(run->plan->device)->on_host) {
    return NULL;
  }
  struct pen_slow *slow = pen_allocate(1, sizeof *slow, "the times of %u ranks", rank_count);
  slow->run = run;
  slow->rank_count = rank_count;
  slow->ranks = calloc(rank_count, sizeof *slow->ranks);
  slow->timing = calloc(rank_count, sizeof *slow->timing);
  slow->starts = calloc((size_t)rank_count * PEN_TIMED_LINKS, sizeof *slow->starts);
  slow->scratch = calloc((size_t)rank_count * PEN_TIMED_LINKS * 2, sizeof *slow->scratch);
  pen_check(
      slow->ranks != NULL && slow->timing != NULL && slow->starts != NULL && slow->scratch != NULL,
      "no memory for the times of %u ranks", rank_count);
  set_plan(slow);
  return slow;
}

void pen_slow_close(struct pen_slow *slow) {
  if (slow != NULL) {
    free(slow->ranks);
    free(slow->timing);
    free(slow->starts);
    free(slow->scratch);
  }
  free(slow);
}
