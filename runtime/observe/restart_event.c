/* restart_event.c: reports a restart (see restart_event.h):
 *
 *     {"event":"restart","lost":[{"rank":2,"host":"node1","cause":"penstock: rank 2 ..."}],
 *      "from_step":12,"source":"memory","seconds":0.21}
 *
 * and, with a fallback, its number from 1: "fallback":1
 */
#include "runtime/observe/restart_event.h"

#include <inttypes.h>
#include <stdio.h>

#include "runtime/base/check.h"
#include "runtime/base/futex_counter.h"
#include "runtime/base/text_writer.h"

static void write_event(struct pen_log *log, const struct pen_restart *restart, double seconds) {
  static struct pen_writer out;
  char fallback[32] = "";
  pen_writer_open(&out, log->descriptor);
  pen_writer_text(&out, "{\"event\":\"restart\",\"lost\":[");
  for (uint32_t i = 0; i < restart->lost_count; i++) {
    const struct pen_lost_rank *lost = &restart->lost[i];
    pen_writer_print(&out, "%s{\"rank\":%" PRIu32 ",\"host\":", i == 0 ? "" : ",", lost->rank);
    pen_writer_json(&out, lost->host);
    pen_writer_text(&out, ",\"cause\":");
    pen_writer_json(&out, lost->cause);
    pen_writer_text(&out, "}");
  }
  if (restart->fallback > 0) {
    snprintf(fallback, sizeof fallback, ",\"fallback\":%" PRIu32, restart->fallback);
  }
  pen_writer_print(&out, "],\"from_step\":%" PRIu64 ",\"source\":\"%s\",\"seconds\":%.3f%s}\n",
                   log->first_step, restart->from_memory ? "memory" : "checkpoint", seconds,
                   fallback);
  if (pen_writer_flush(&out) != 0) {
    pen_warn("--log %s: the restart could not be written", log->path);
  }
}

void pen_restart_report(struct pen_log *log, const struct pen_restart *restart) {
  const double seconds = (double)(pen_now_ns() - restart->lost_ns) / 1e9;
  const char *source = restart->from_memory       ? "the state in memory"
                       : restart->saved_step != 0 ? "the checkpoint"
                                                  : "the start of the run, without a checkpoint";
  char fallback[64] = "";
  if (restart->fallback > 0) {
    snprintf(fallback, sizeof fallback, ", with fallback %" PRIu32 " (%" PRIu32 " ranks)",
             restart->fallback, pen_process_count(log->plan));
  }
  pen_warn("restart %" PRIu64 ": training continues after step %" PRIu64
           ", from %s%s, %.2f s after the loss",
           restart->count, log->first_step, source, fallback, seconds);
  if (log->descriptor >= 0) {
    write_event(log, restart, seconds);
  }
}
