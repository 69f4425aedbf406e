/* picture_trace.c: --print=trace: the simulated step as a Chrome trace, in the form of the
 * runtime's --trace: name = action, pid = rank, microseconds. Format: Google, "Trace Event Format"
 * (complete, flow, counter and metadata events). */
#include <stdio.h>

#include "gen/schedule/action_text.h"
#include "gen/views/live_ranges.h"
#include "gen/views/view.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/schedule/order.h"
#include "runtime/plan/plan.h"

static const double microseconds = 1000; /* of a unit of cost */

static const char *const categories[] = {[PEN_F] = "F",
                                         [PEN_B] = "B",
                                         [PEN_I] = "I",
                                         [PEN_W] = "W",
                                         [PEN_REDUCE_SCATTER] = "exchange",
                                         [PEN_ALL_GATHER_GRAD] = "exchange",
                                         [PEN_ALL_GATHER_WEIGHT] = "exchange",
                                         [PEN_UNSHARD] = "exchange"};

/* The message of an action, if it crosses ranks: begins at the action's end, ends where the other
 * rank's action starts. */
static void put_flow(FILE *out, const char *name, uint64_t id, uint32_t from, double sent,
                     uint32_t to, double start) {
  fprintf(out,
          "{\"name\":\"%s\",\"cat\":\"message\",\"ph\":\"s\",\"id\":%llu,\"pid\":%u,\"tid\":0,"
          "\"ts\":%.3f},\n",
          name, (unsigned long long)id, from, sent * microseconds);
  fprintf(out,
          "{\"name\":\"%s\",\"cat\":\"message\",\"ph\":\"f\",\"bp\":\"e\",\"id\":%llu,\"pid\":%u,"
          "\"tid\":0,\"ts\":%.3f},\n",
          name, (unsigned long long)id, to, start * microseconds);
}

/* Start of every action: F, backward [stage * microbatches + microbatch]. */
static double **starts_of(const struct pen_view *picture) {
  size_t cells = (size_t)picture->partition->stage_count * picture->partition->microbatch_count;
  double **start = pen_new(2, sizeof *start);
  start[0] = pen_new(cells, sizeof(double));
  start[1] = pen_new(cells, sizeof(double));
  for (uint32_t rank = 0; rank < picture->order->rank_count; rank++)
    for (uint32_t index = 0; index < picture->order->count[rank]; index++) {
      const struct pen_compute *action = &picture->order->action[rank][index];
      if (action->kind >= PEN_W) continue;
      start[action->kind != PEN_F][(size_t)action->stage * picture->partition->microbatch_count +
                                   action->microbatch] = picture->timing->start[rank][index];
    }
  return start;
}

static void put_actions(FILE *out, const struct pen_view *picture) {
  const struct pen_partition *partition = picture->partition;
  double **start = starts_of(picture);
  uint64_t id = 0;
  char text[32];
  for (uint32_t rank = 0; rank < picture->order->rank_count; rank++)
    for (uint32_t index = 0; index < picture->order->count[rank]; index++) {
      const struct pen_compute *a = &picture->order->action[rank][index];
      double from = picture->timing->start[rank][index], to = picture->timing->end[rank][index];
      bool second = index > 0 && a[-1].overlaps; /* of a pair: on a line of its own */
      pen_action_text(text, a->kind, a->stage, a->microbatch);
      fprintf(out,
              "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%u,\"tid\":%d,\"ts\":%.3f,"
              "\"dur\":%.3f},\n",
              text, categories[a->kind], rank, second, from * microseconds,
              (to - from) * microseconds);
      bool forward = a->kind == PEN_F,
           ends = forward ? a->stage + 1u == partition->stage_count : a->stage == 0;
      if (a->kind >= PEN_W || ends) continue;
      uint32_t reader = forward ? a->stage + 1u : a->stage - 1u;
      if (partition->rank_of[reader] == rank) continue;
      const char *name = pen_text("%u%s%u", a->stage, forward ? "SEND_F" : "SEND_B", a->microbatch);
      put_flow(out, name, id++, rank, to, partition->rank_of[reader],
               start[!forward][(size_t)reader * partition->microbatch_count + a->microbatch]);
    }
}

static void put_memory(FILE *out, const struct pen_view *picture) {
  const struct pen_profile *profile = &picture->plan->profiles[0];
  for (uint32_t rank = 0; rank < picture->plan->rank_count; rank++) {
    struct pen_live_buffers lives = pen_live_buffers_of(picture->plan, profile, rank);
    struct pen_action_times times = pen_action_times_of(
        &profile->ranks[rank], picture->order->action[rank], picture->order->count[rank],
        picture->timing->start[rank], picture->timing->end[rank]);
    for (uint32_t row = 0; row < profile->ranks[rank].action_count; row++) {
      bool lasts =
          row + 1 == profile->ranks[rank].action_count || times.start[row + 1] > times.start[row];
      if (lasts)
        fprintf(out,
                "{\"name\":\"in "
                "use\",\"ph\":\"C\",\"pid\":%u,\"ts\":%.3f,\"args\":{\"bytes\":%llu}},\n",
                rank, times.start[row] * microseconds, (unsigned long long)lives.in_use[row]);
    }
  }
}

void pen_view_trace(FILE *out, const struct pen_view *picture) {
  fprintf(out,
          "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"simulated\":\"times %s, shown as "
          "milliseconds\"},\"traceEvents\":[\n",
          picture->unit);
  put_actions(out, picture);
  put_memory(out, picture);
  for (uint32_t rank = 0; rank < picture->plan->rank_count; rank++)
    fprintf(out,
            "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":0,\"args\":{\"name\":"
            "\"rank %u\"}}%s\n",
            rank, rank, rank + 1 < picture->plan->rank_count ? "," : "");
  fputs("]}\n", out);
}
