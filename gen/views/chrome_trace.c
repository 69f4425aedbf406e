/* chrome_trace.c: --print=trace: the simulated step as a Chrome trace, in the form of the runtime's
 * --trace: name = action, pid = rank, microseconds. Format: Google, "Trace Event Format" (complete,
 * flow, counter and metadata events). */
#include <stdio.h>

#include "gen/schedule/action_text.h"
#include "gen/views/chart.h"
#include "gen/views/live_ranges.h"
#include "gen/views/views.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/schedule/order.h"
#include "gen/timing/cost.h"
#include "runtime/plan/plan.h"

static const double microseconds = 1000; /* of a unit of cost */

/* The message of an action: from the end of the action to the start of the one that reads it. */
static void write_flow(FILE *out, const char *name, uint64_t id, uint32_t from, double sent,
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

/* The start of every F, and of every B or I: [0 or 1][stage * microbatch_count + microbatch]. */
static double **start_times(const struct pen_view *view) {
  size_t count = (size_t)view->partition->stage_count * view->partition->microbatch_count;
  double **start = pen_new(2, sizeof *start);
  start[0] = pen_new(count, sizeof(double));
  start[1] = pen_new(count, sizeof(double));
  for (uint32_t rank = 0; rank < view->order->rank_count; rank++)
    for (uint32_t index = 0; index < view->order->count[rank]; index++) {
      const struct pen_compute *action = &view->order->action[rank][index];
      if (action->kind >= PEN_W) continue;
      start[action->kind != PEN_F][(size_t)action->stage * view->partition->microbatch_count +
                                   action->microbatch] = view->timing->start[rank][index];
    }
  return start;
}

static void write_action_events(FILE *out, const struct pen_view *view) {
  const struct pen_partition *partition = view->partition;
  double **start = start_times(view);
  uint64_t id = 0;
  char text[32];
  for (uint32_t rank = 0; rank < view->order->rank_count; rank++)
    for (uint32_t index = 0; index < view->order->count[rank]; index++) {
      const struct pen_compute *a = &view->order->action[rank][index];
      double from = view->timing->start[rank][index], to = view->timing->end[rank][index];
      bool second = index > 0 && a[-1].overlaps; /* the second of a pair has a line of its own */
      pen_action_format(text, a->kind, a->stage, a->microbatch);
      fprintf(out,
              "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%u,\"tid\":%d,\"ts\":%.3f,"
              "\"dur\":%.3f},\n",
              text,
              a->kind <= PEN_W ? (const char[]){pen_chart_kinds[a->kind].letter, 0} : "exchange",
              rank, second, from * microseconds, (to - from) * microseconds);
      const bool forward = a->kind == PEN_F;
      const uint32_t receiver = pen_message_stage(partition, a, 1);
      if (receiver == PEN_NONE) continue;
      const char *name = pen_text("%u%s%u", a->stage, forward ? "SEND_F" : "SEND_B", a->microbatch);
      write_flow(out, name, id++, rank, to, partition->rank_of[receiver],
                 start[!forward][(size_t)receiver * partition->microbatch_count + a->microbatch]);
    }
}

static void write_memory(FILE *out, const struct pen_view *view) {
  const struct pen_profile *profile = &view->plan->profiles[0];
  for (uint32_t rank = 0; rank < view->plan->rank_count; rank++) {
    struct pen_live_buffers ranges = pen_live_buffers_of(view->plan, profile, rank);
    struct pen_action_times times = pen_action_times_of(
        &profile->ranks[rank], view->order->action[rank], view->order->count[rank],
        view->timing->start[rank], view->timing->end[rank]);
    for (uint32_t action = 0; action < profile->ranks[rank].action_count; action++) {
      bool lasts = action + 1 == profile->ranks[rank].action_count ||
                   times.start[action + 1] > times.start[action];
      if (lasts)
        fprintf(out,
                "{\"name\":\"in "
                "use\",\"ph\":\"C\",\"pid\":%u,\"ts\":%.3f,\"args\":{\"bytes\":%llu}},\n",
                rank, times.start[action] * microseconds,
                (unsigned long long)ranges.in_use[action]);
    }
  }
}

void pen_chrome_trace(FILE *out, const struct pen_view *view) {
  fprintf(out,
          "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"simulated\":\"times %s, shown as "
          "milliseconds\"},\"traceEvents\":[\n",
          view->unit);
  write_action_events(out, view);
  write_memory(out, view);
  for (uint32_t rank = 0; rank < view->plan->rank_count; rank++)
    fprintf(out,
            "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":0,\"args\":{\"name\":"
            "\"rank %u\"}}%s\n",
            rank, rank, rank + 1 < view->plan->rank_count ? "," : "");
  fputs("]}\n", out);
}
